"""The tile unit's palette: loaded before the first product of a call, put back after the last.

Loading it takes as long as a small product, so that products do not each do it. oneDNN remembers
which palette it has loaded and would not load its own again, hence the putting back.
"""

from __future__ import annotations

from model.native.arguments import Fields
from model.native.assembler import Assembler
from model.native.operands import RAX, TMM, at
from model.native.sums import STEP, TILE

PALETTE_BYTES = 64
PALETTE = bytes([1]) + bytes(15) + len(TMM) * STEP.to_bytes(2, "little") + bytes(16) \
    + len(TMM) * bytes([TILE]) + bytes(8)

# The address of PALETTE_BYTES where the palette is kept that was there before.
KEPT_PALETTE = Fields("palette")


def emit_tiles_begin(a: Assembler, label: str, fields: Fields = KEPT_PALETTE) -> None:
    """A kernel: every tile register has 16 rows of 64 bytes from here on."""
    a.label(label)
    a.mov(RAX, fields.of("palette"))
    a.sttilecfg(at(RAX))
    a.ldtilecfg(a.constant(PALETTE))
    a.ret()


def emit_tiles_end(a: Assembler, label: str, fields: Fields = KEPT_PALETTE) -> None:
    """A kernel: the palette is what it was before emit_tiles_begin's."""
    a.label(label)
    a.mov(RAX, fields.of("palette"))
    a.ldtilecfg(at(RAX))
    a.ret()
