"""What to compile for rows of a width: which source, with which constants, cut how into threads.

A row lies in the registers of whole warps, four neighbouring numbers to a thread at a time, so its
width must be a multiple of 128; up to 768 numbers one warp holds it, and nothing waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
HEADERS = ("machine.cuh", "numbers.cuh", "rows.cuh")
# Kernel → its source file.
SOURCES = {"quantise": "quantise.cu", "dequantise_bias": "dequantise.cu",
           "gelu_quantise": "gelu.cu", "add_norm_quantise": "add_norm.cu",
           "add_norm": "add_norm.cu"}

WARP_WIDTH = 128
# Fours a thread holds: six where a warp holds a whole row (some 60 registers; with eight, compilers
# spill on sm_86 and sm_89), fewer where it shares one, so that more warps wait for memory at once.
MOST_FOURS, MOST_FOURS_SHARED = 6, 4
MOST_WARPS = 32
# A processor has so many schedulers: warps in such numbers keep them all busy, and for others
# compilers choose a limit of registers that makes gelu_quantise spill.
SCHEDULERS = 4
# Rows of one warp each, in one block.
BLOCK_ROWS = 4
FIRST_CAPABILITY, FIRST_FP8_CAPABILITY = (7, 5), (8, 9)


class NotSupported(Exception):
    """Our kernels are not for this here: plain operators serve. The message says what is missing.
    """


@dataclass(frozen=True)
class Variant:
    """One kernel for rows of `width`. `is_bf16`: of the two 16-bit types; `is_fp8`: of the two
    8-bit types; `of_sums`: the product is int32 sums, not 16 bits. Raises NotSupported."""

    kernel: str
    width: int
    is_bf16: bool
    is_fp8: bool
    of_sums: bool

    def __post_init__(self) -> None:
        if not self.warps:
            raise NotSupported(
                f"rows of {self.width} numbers have no kernel: a width must be a multiple of "
                f"{WARP_WIDTH} and divide among at most {MOST_WARPS} warps")

    @property
    def warps(self) -> int:
        """How many hold a row; 0 where no number does."""
        units, rest = divmod(self.width, WARP_WIDTH)
        if rest or units < 1:
            return 0
        if units <= MOST_FOURS:
            return 1
        fit = [warps for warps in range(2, MOST_WARPS + 1)
               if units % warps == 0 and units // warps <= MOST_FOURS_SHARED]
        return min(fit, key=lambda warps: (warps % SCHEDULERS != 0, warps), default=0)

    @property
    def block_rows(self) -> int:
        return BLOCK_ROWS if self.warps == 1 else 1

    @property
    def block_threads(self) -> int:
        return 32 * self.warps * self.block_rows

    def blocks(self, rows: int) -> int:
        return -(-rows // self.block_rows)

    def defines(self) -> list[str]:
        """The constants as a compiler's options."""
        return [f"-DWIDTH={self.width}", f"-DWARPS={self.warps}", f"-DROWS={self.block_rows}",
                f"-DBF16={self.is_bf16:d}", f"-DFP8={self.is_fp8:d}", f"-DSUMS={self.of_sums:d}"]

    def source(self) -> str:
        """The name of its source file."""
        return SOURCES[self.kernel]


def read(name: str) -> str:
    """The text of a source or header."""
    return (FOLDER / name).read_text("utf-8")
