"""The tile unit's palette is there for products and put back for others."""

import numpy as np

from model.native.operands import RAX, at
from model.native.tiles import PALETTE, PALETTE_BYTES, emit_tiles_begin, emit_tiles_end
from tests.guarded import run_code, skip_without


def seen_palettes(before: bytes) -> list[bytes]:
    """What the unit has before, after emit_tiles_begin's kernel and after emit_tiles_end's."""
    skip_without("amx")
    arrays = {"before": np.frombuffer(before, np.uint8).copy(),
              "palette": np.zeros(PALETTE_BYTES, np.uint8),
              "seen": np.zeros((3, PALETTE_BYTES), np.uint8)}

    def emit(a, fields):
        def look(turn: int) -> None:
            a.mov(RAX, fields.of("seen"))
            a.sttilecfg(at(RAX, turn * PALETTE_BYTES))

        a.label("kernel")
        a.mov(RAX, fields.of("before"))
        a.ldtilecfg(at(RAX))
        look(0)
        for turn, label in ((1, "begin"), (2, "end")):
            a.call(label)
            look(turn)
        a.tilerelease()
        a.ret()
        emit_tiles_begin(a, "begin", fields)
        emit_tiles_end(a, "end", fields)

    run_code(emit, arrays)
    return [row.tobytes() for row in arrays["seen"]]


def test_palette_of_others_is_put_back():
    other = PALETTE[:16] + bytes([32, 0]) + PALETTE[18:48] + bytes([4]) + PALETTE[49:]
    assert other != PALETTE
    assert seen_palettes(other) == [other, PALETTE, other]


def test_palette_is_none_again_where_there_was_none():
    nothing = bytes(PALETTE_BYTES)
    assert seen_palettes(nothing) == [nothing, PALETTE, nothing]
