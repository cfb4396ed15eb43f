"""Compiles every kernel for every device and width and prints what each takes of a processor.

    python -m tests.compile_kernels [sm_90 ...]

One line a kernel: registers, bytes of shared memory, bytes spilled, bytes of stack. The exit status
is 1 where anything is spilled. Needs a libnvrtc: torch's CUDA wheel brings one, or NVRTC's own
wheel on PYTHONPATH; no device.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from model.cuda.nvrtc import Nvrtc, find
from model.cuda.row_sources import HEADERS, NotSupported, Variant, read

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
FIRST_FP8 = 89
HIDDEN = (384, 768, 1024)
# ptxas -v: one such paragraph a kernel.
PARAGRAPH = re.compile(
    r"Compiling entry function '(?P<kernel>\w+)'.*?(?P<stack>\d+) bytes stack frame, "
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)", re.S)


@dataclass(frozen=True)
class Usage:
    """What one kernel takes: registers a thread, bytes a block, and bytes a thread."""

    registers: int
    shared: int
    spilled: int
    stack: int


def variants(architecture: str) -> Iterator[Variant]:
    """What MiniLM, BERT-base and BERT-large need on such a device, in all types."""
    has_fp8 = int(architecture.removeprefix("sm_")) >= FIRST_FP8
    for hidden, is_bf16, is_fp8 in product(HIDDEN, (False, True), (False, True)[:1 + has_fp8]):
        yield Variant("quantise", hidden, is_bf16, is_fp8, False)
        for of_sums in (False, True):
            yield Variant("add_norm_quantise", hidden, is_bf16, is_fp8, of_sums)
            yield Variant("add_norm", hidden, is_bf16, is_fp8, of_sums)
            yield Variant("gelu_quantise", 4 * hidden, is_bf16, is_fp8, of_sums)
        if not is_fp8:
            yield Variant("dequantise_bias", 3 * hidden, is_bf16, is_fp8, True)


def usage(nvrtc: Nvrtc, variant: Variant, architecture: str) -> Usage:
    """What the compiler says of it. Raises NotSupported."""
    _, said = nvrtc.compile(variant.source(), read(variant.source()),
                            {name: read(name) for name in HEADERS},
                            [f"--gpu-architecture={architecture}", "--ptxas-options=-v",
                             *variant.defines()])
    for found in PARAGRAPH.finditer(said):
        if found["kernel"] == variant.kernel:
            shared = re.search(r"(\d+) bytes smem", found["rest"])
            return Usage(int(found["registers"]), int(shared[1]) if shared else 0,
                         int(found["stores"]) + int(found["loads"]), int(found["stack"]))
    raise NotSupported(f"the compiler says nothing of {variant.kernel}: {said}")


def main(architectures: list[str]) -> int:
    """Prints all; 1 where anything is spilled."""
    nvrtc = find()
    print("NVRTC {}.{}".format(*nvrtc.version))
    count = spilling = most = 0
    for architecture in architectures or ARCHITECTURES:
        for one in variants(architecture):
            takes = usage(nvrtc, one, architecture)
            count, most = count + 1, max(most, takes.registers)
            spilling += bool(takes.spilled or takes.stack)
            print(f"{architecture} {one.kernel} {one.width} {'bf16' if one.is_bf16 else 'fp16'} "
                  f"{'fp8' if one.is_fp8 else 'int8'} of {'sums' if one.of_sums else '16 bits'}: "
                  f"{takes.registers} registers, {takes.shared} shared, {takes.spilled} spilled, "
                  f"{takes.stack} stack", flush=True)
    print(f"{count} kernels, at most {most} registers, {spilling} with spills or a stack")
    return 1 if spilling else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
