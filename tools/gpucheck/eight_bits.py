"""Eight bits on the device: operators, products, whole networks against fp32, and their time."""

from __future__ import annotations

from tools.gpucheck.rig import Rig


def run(rig: Rig) -> None:
    """Says what is missing."""
    rig.open()
    rig.report.skip("gates", "this checkout has no programs of 8 bits for devices")
