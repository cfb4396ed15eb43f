"""High against low priority; until the device has two lanes, a sentence."""

from __future__ import annotations

from tools.gpucheck.rig import Rig


def run(rig: Rig) -> None:
    """Says what is missing."""
    rig.open()
    rig.report.skip("high_is_not_delayed", "this checkout runs one lane a device")
