"""Which precisions a model may be served in, before anyone has measured which is the fastest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loader.errors import CheckpointError
from loader.manifest import MANIFEST, passed_precisions

# Of a plain checkpoint, which nobody has measured: fp32 is exact, the other two round each weight
# by at most 2^-9 of it and are served to those who ask.
PLAIN = ("fp32", "fp16", "bf16")


def candidates(wanted: str, manifest: Mapping[str, Any] | None) -> tuple[list[str], str]:
    """The precisions among which a measurement may choose, and why these.

    `wanted` is the flag's value, `manifest` that of a bundle. Raises CheckpointError where the
    model may not be served in what is wanted.
    """
    if manifest is None:
        if wanted == "auto":
            return ["fp32"], "a plain checkpoint is served in fp32"
        if wanted in PLAIN:
            return [wanted], "asked for with --precision"
        raise CheckpointError(
            f"a plain checkpoint is not served in {wanted}, which could make it worse unseen: "
            "serve the bundle that python -m tools.build CHECKPOINT -o BUNDLE measures and makes.")
    passed = passed_precisions(manifest)
    if wanted == "auto":
        return passed, "passed the gate of tools.build"
    if wanted in passed or wanted in PLAIN:
        return [wanted], "asked for with --precision"
    raise CheckpointError(f"{MANIFEST}: {wanted} did not pass when this bundle was built; it is "
                          f"served in {', '.join(passed)}.")
