"""Machine code is what the GNU assembler makes of the same lines; labels, constants, refusals."""

import random
import re
import struct

import pytest

from model.native.assembler import JUMPS, Assembler
from model.native.instructions import EVEX, VEX
from model.native.operands import K1, R9, RAX, RCX, RDI, RSI, ZMM, at
from tests import gnu_as
from tests.instruction_texts import NAMES, is_scalar, texts
from tests.intel_syntax import assemble, our_name

RECORDED = [row.split(" ", 1) for row in gnu_as.TABLE.read_text("utf-8").splitlines()]
LINES_A_NAME = 30


def shown(code: bytes, line: str) -> str:
    """Hexadecimal; without the length of the vector where the CPU ignores it."""
    if is_scalar(line.split()[0]) and code[0] == 0x62:
        code = code[:3] + bytes([code[3] & 0x9f]) + code[4:]
    return code.hex()


def test_assembler_recorded_lines_give_the_recorded_bytes():
    wrong = [f"{line}: {shown(assemble(line), line)}, recorded {code}" for code, line in RECORDED
             if shown(assemble(line), line) != shown(bytes.fromhex(code), line)]
    assert not wrong, "\n".join(wrong)


def test_assembler_every_instruction_is_recorded():
    seen = set()
    for _, line in RECORDED:
        mnemonic, _, rest = line.partition(" ")
        seen.add(our_name(mnemonic, rest))
    assert {*EVEX, *VEX, *NAMES} - seen == set(), "record them: python -m tests.gnu_as"


@pytest.mark.skipif(not gnu_as.is_here(), reason="no GNU as and objdump on this machine")
@pytest.mark.parametrize("seed", range(2))
def test_assembler_random_lines_give_the_bytes_of_gnu_as(seed):
    rng = random.Random(seed)
    lines = [line for name in NAMES for line in texts(rng, name, LINES_A_NAME)]
    wrong = [f"{line}: {shown(assemble(line), line)}, as: {shown(code, line)}"
             for line, code in zip(lines, gnu_as.encode(lines))
             if shown(assemble(line), line) != shown(code, line)]
    assert not wrong, f"{len(wrong)} of {len(lines)}\n" + "\n".join(wrong[:20])


def test_assembler_return_cleans_the_upper_halves():
    a = Assembler()
    a.ret()
    assert a.finish()[0].hex(" ") == "c5 f8 77 c3"


def test_assembler_several_pushes_are_in_their_order():
    a = Assembler()
    a.push(RAX, R9)
    a.pop(R9, RAX)
    assert a.finish()[0].hex(" ") == "50 41 51 41 59 58"


@pytest.mark.parametrize("name", JUMPS)
def test_assembler_jumps_back_and_forth_count_from_their_ends(name):
    size = len(JUMPS[name]) + 4
    a = Assembler()
    a.label("back")
    a.push(RAX)
    getattr(a, name)("back")
    getattr(a, name)("forth")
    a.push(RAX, RAX, RAX)
    a.label("forth")
    code, labels = a.finish()
    assert labels == {"back": 0, "forth": 1 + 2 * size + 3}
    assert struct.unpack_from("<i", code, 1 + size - 4) == (-1 - size,)
    assert struct.unpack_from("<i", code, 1 + 2 * size - 4) == (3,)


def test_assembler_label_placed_twice_is_refused():
    a = Assembler()
    a.label("here")
    with pytest.raises(ValueError, match="here is placed twice"):
        a.label("here")


def test_assembler_label_never_placed_is_refused():
    a = Assembler()
    a.jmp("nowhere")
    with pytest.raises(KeyError, match="nowhere"):
        a.finish()


def test_assembler_fresh_labels_are_nobody_elses():
    a = Assembler()
    names = {a.fresh("loop"), a.fresh("loop"), a.fresh("end")}
    assert len(names) == 3
    for name in names:
        a.label(name)


def test_assembler_align_fills_up_with_instructions_that_do_nothing():
    a = Assembler()
    a.align()
    a.push(RAX)
    a.align()
    a.align()
    a.label("loop")
    code, labels = a.finish()
    assert code == b"\x50" + b"\x90" * 63
    assert labels["loop"] == 64


def test_assembler_constants_lie_behind_the_code_on_lines_of_64_bytes_once():
    vector, number = bytes(range(64)), struct.pack("<f", 2.5)
    a = Assembler()
    a.vmovups(ZMM[1], a.constant(vector))
    a.vaddps(ZMM[1], ZMM[2], a.number(2.5))
    a.vpermilps(ZMM[3], a.constant(vector), 27)
    a.vmulps(ZMM[4], ZMM[5], a.constant(vector) + 16)
    ends = [10, 20, 31, 41]  # EVEX with an offset of four bytes: 10 bytes, one more with a number
    code, _ = a.finish()
    assert len(code) == 64 + 64 + 4
    assert code[64:128] == vector and code[128:] == number
    places = [end + struct.unpack_from("<i", code, end - 4 - (end == 31))[0] for end in ends]
    assert places == [64, 128, 64, 80]


def test_assembler_number_is_spread_and_equal_ones_are_one():
    a = Assembler()
    assert a.number(1.5) == a.number(1.5) == a.constant(struct.pack("<f", 1.5)).to_all
    assert a.number(1.5) != a.number(-1.5)


@pytest.mark.parametrize("call", [
    lambda a: a.vaddps(ZMM[0], ZMM[1]),
    lambda a: a.vmovups(ZMM[0], ZMM[1], ZMM[2]),
    lambda a: a.vrndscaleps(ZMM[0], ZMM[1]),
    lambda a: a.tilezero(),
])
def test_assembler_wrong_number_of_operands_is_refused(call):
    with pytest.raises((ValueError, TypeError)):
        call(Assembler())


@pytest.mark.parametrize("call", [
    lambda a: a.mov(RAX, 1 << 31),
    lambda a: a.add(RAX, -(1 << 31) - 1),
    lambda a: a.mov(RAX, at(RSI, 1 << 31)),
    lambda a: a.vmovups(ZMM[0], at(RSI, 1 << 31)),
    lambda a: a.vpermilps(ZMM[0], ZMM[1], 256),
])
def test_assembler_number_that_does_not_fit_is_refused(call):
    with pytest.raises((ValueError, struct.error)):
        call(Assembler())


def test_assembler_places_add_up():
    place = at(RDI, 8, RCX, 4) + 56
    assert place == at(RDI, 64, RCX, 4)
    a, b = Assembler(), Assembler()
    a.vaddps(ZMM[0], ZMM[1], place.to_all, mask=K1)
    b.vaddps(ZMM[0], ZMM[1], at(RDI, 64, RCX, 4).to_all, mask=K1)
    assert a.finish() == b.finish()


def test_table_lines_reach_each_kind_of_operand():
    text = "\n".join(line for _, line in RECORDED)
    for wanted in (r"\{k7\}\{z\}", r"\{1to16\}", r"\[rip", r"\[rbp\+0\]", r"\[r13\+0\]",
                   r"\[rsp\+0\]", r"\[r12\+0\]", r"\+zmm2\d\*", r"zmm31", r"\[r9-8256\]"):
        assert re.search(wanted, text), wanted
