"""Which precisions a model may be served in, before anyone has measured which is the fastest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loader.errors import CheckpointError
from loader.manifest import MANIFEST, passed_precisions

# Of a plain checkpoint, which nobody has measured: fp32 is exact, the other two round each weight
# by at most 2^-9 of it and are served to those who ask.
PLAIN = ("fp32", "fp16", "bf16")


def candidates(wanted: str, manifest: Mapping[str, Any] | None,
               for_devices: bool = False) -> tuple[list[str], str]:
    """The precisions among which a measurement on a CPU may choose, and why these.

    `wanted` is the flag's value, `manifest` that of a bundle. With `for_devices` a GPU may serve
    too, which makes its own 8 bits and judges them: what CPUs have not, it is asked for alone.
    Raises CheckpointError where the model may not be served in what is wanted.
    """
    if wanted == "fp8" and not for_devices:
        raise CheckpointError("fp8 is for GPUs only, and there is none; serve in int8 or auto.")
    if for_devices and (wanted == "fp8" or wanted == "int8" and manifest is None):
        found, why = candidates("auto", manifest)
        return found, f"{wanted} is for the GPU here; on CPUs {why}"
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
