"""Assembles x86-64 machine code: instructions in, bytes out (pure).

General instructions are methods; vector and tile instructions are those of instructions.py, called
by their name: a.vaddps(ZMM[0], ZMM[1], at(RSI)). Destinations come first, as in Intel's manual.
"""

from __future__ import annotations

import struct

from model.native.instructions import EVEX, VEX, Form
from model.native.operands import Gpr, Mask, Mem, RSP, Tile, Zmm

Register = Gpr | Zmm | Mask | Tile

JUMPS = {"jmp": b"\xe9", "call": b"\xe8", "je": b"\x0f\x84", "jne": b"\x0f\x85",
         "jl": b"\x0f\x8c", "jge": b"\x0f\x8d", "jle": b"\x0f\x8e", "jg": b"\x0f\x8f"}
# By name: the opcode with a register or memory as the second operand, and /digit with an immediate.
ARITHMETIC = {"add": (0x03, 0), "or": (0x0b, 1), "and": (0x23, 4), "sub": (0x2b, 5),
              "xor": (0x33, 6), "cmp": (0x3b, 7)}
LINE = 64  # bytes of a cache line and of a vector: what constants and loops are aligned to


class Assembler:
    """A buffer of code that grows at its end; labels may be used before they are placed."""

    def __init__(self) -> None:
        self._code = bytearray()
        self._labels: dict[str, int] = {}
        self._uses: list[tuple[int, str, int]] = []  # (place of 4 bytes, label, end of instruction)
        self._constants: dict[bytes, str] = {}
        self._fresh = 0

    # ---- places in the code ---------------------------------------------------------------------

    def label(self, name: str) -> None:
        """The next instruction is here. Raises ValueError for a label that was placed before."""
        if name in self._labels:
            raise ValueError(f"label {name} is placed twice")
        self._labels[name] = len(self._code)

    def fresh(self, name: str) -> str:
        """A label that nobody else has, to be placed by the caller."""
        self._fresh += 1
        return f"{name}.{self._fresh}"

    def constant(self, data: bytes) -> Mem:
        """Where in the code these bytes will lie, on a boundary of 64 bytes; equal ones once."""
        return Mem(label=self._constants.setdefault(data, f"constant.{len(self._constants)}"))

    def number(self, value: float) -> Mem:
        """A float32 in all lanes."""
        return self.constant(struct.pack("<f", value)).to_all

    def align(self) -> None:
        """Continues on a boundary of 64 bytes."""
        self._code += b"\x90" * (-len(self._code) % LINE)

    def finish(self) -> tuple[bytes, dict[str, int]]:
        """The code with its constants, and the offset of each label. Raises KeyError for a label
        that was never placed."""
        for data, name in self._constants.items():
            self.align()
            self.label(name)
            self._code += data
        for place, name, end in self._uses:
            struct.pack_into("<i", self._code, place, struct.unpack_from(
                "<i", self._code, place)[0] + self._labels[name] - end)
        self._uses.clear()
        return bytes(self._code), dict(self._labels)

    # ---- general instructions -------------------------------------------------------------------

    def mov(self, target: Gpr | Mem, source: Gpr | Mem | int) -> None:
        """64 bits; an immediate is sign-extended from 32."""
        if isinstance(source, int):
            self._general(b"\xc7", 0, target, struct.pack("<i", source))
        elif isinstance(target, Mem):
            self._general(b"\x89", source.number, target)
        else:
            self._general(b"\x8b", target.number, source)

    def movsxd(self, target: Gpr, source: Mem) -> None:
        """A signed 32-bit integer of memory."""
        self._general(b"\x63", target.number, source)

    def movzx(self, target: Gpr, source: Mem) -> None:
        """16 bits of memory, without a sign."""
        self._general(b"\x0f\xb7", target.number, source)

    def lea(self, target: Gpr, source: Mem) -> None:
        self._general(b"\x8d", target.number, source)

    def imul(self, target: Gpr, source: Gpr | Mem, factor: int | None = None) -> None:
        """The target is source · factor, without one target · source; its lower 64 bits."""
        if factor is None:
            self._general(b"\x0f\xaf", target.number, source)
        else:
            self._general(b"\x69", target.number, source, struct.pack("<i", factor))

    def shl(self, target: Gpr, bits: int) -> None:
        self._general(b"\xc1", 4, target, bytes([bits]))

    def shr(self, target: Gpr, bits: int) -> None:
        self._general(b"\xc1", 5, target, bytes([bits]))

    def bsf(self, target: Gpr, source: Gpr | Mem) -> None:
        """The number of the lowest bit that is set; of none, nothing that holds."""
        self._general(b"\x0f\xbc", target.number, source)

    def cmovg(self, target: Gpr, source: Gpr | Mem) -> None:
        """Moves where the last comparison found greater, signed."""
        self._general(b"\x0f\x4f", target.number, source)

    def prefetcht0(self, place: Mem) -> None:
        """Into the core's first cache."""
        self._general(b"\x0f\x18", 1, place)

    def prefetcht1(self, place: Mem) -> None:
        """Into the core's second cache."""
        self._general(b"\x0f\x18", 2, place)

    def push(self, *registers: Gpr) -> None:
        for register in registers:
            self._code += bytes([0x41, 0x50 | register.number & 7] if register.number > 7
                                else [0x50 | register.number])

    def pop(self, *registers: Gpr) -> None:
        for register in registers:
            self._code += bytes([0x41, 0x58 | register.number & 7] if register.number > 7
                                else [0x58 | register.number])

    def call_at(self, place: Mem) -> None:
        """Calls the address that lies there."""
        self._general(b"\xff", 2, place)

    def ret(self) -> None:
        # Upper halves that stay dirty slow what the C library does with narrow vectors.
        self._code += b"\xc5\xf8\x77\xc3"  # vzeroupper; ret

    # ---- encodings ------------------------------------------------------------------------------

    def _jump(self, opcode: bytes, name: str) -> None:
        self._code += opcode + bytes(4)
        self._uses.append((len(self._code) - 4, name, len(self._code)))

    def _arithmetic(self, kind: tuple[int, int], target: Gpr, source: Gpr | Mem | int) -> None:
        opcode, digit = kind
        if isinstance(source, int):
            self._general(b"\x81", digit, target, struct.pack("<i", source))
        else:
            self._general(bytes([opcode]), target.number, source)

    def _general(self, opcode: bytes, register: int, operand: Gpr | Mem,
                 immediate: bytes = b"") -> None:
        index, base = _extensions(operand)
        self._code.append(0x48 | (register >> 3) << 2 | (index >> 3 & 1) << 1 | base >> 3 & 1)
        self._code += opcode
        self._operand(register, operand, 1, immediate)

    def _evex(self, form: Form, *operands: Register | Mem | int, mask: Mask | None = None,
              zero: bool = False) -> None:
        """`mask` chooses the lanes that change; with `zero` the others become 0."""
        register, other, operand, immediate = _ordered(form, operands)
        index, base = _extensions(operand)
        # What takes one float32 anyway needs no telling that it is spread.
        spread = isinstance(operand, Mem) and operand.spread and form.size == LINE
        # Bit 4 of a vector register in ModRM.rm is X; of a vector index, V'.
        x_bit = base >> 4 & 1 if isinstance(operand, Zmm) else index >> 3 & 1
        v_bit = index >> 4 & 1 if isinstance(operand, Mem) else other >> 4 & 1
        if form.order.startswith("rvm"):
            v_bit = other >> 4 & 1
        self._code += bytes([
            0x62,
            (~register >> 3 & 1) << 7 | (x_bit ^ 1) << 6 | (~base >> 3 & 1) << 5
            | (~register >> 4 & 1) << 4 | form.map,
            form.wide << 7 | (~other & 15) << 3 | 4 | form.prefix,
            zero << 7 | (0 if form.size == 4 and form.order == "mr" else 2) << 5 | spread << 4
            | (v_bit ^ 1) << 3 | (mask.number if mask else 0),
            form.opcode])
        self._operand(register, operand, 4 if spread else form.size, immediate)

    def _vex(self, form: Form, *operands: Register | Mem) -> None:
        register, other, operand, _ = _ordered(form, operands)
        index, base = _extensions(operand)
        self._code += bytes([
            0xc4,
            (~register >> 3 & 1) << 7 | (~index >> 3 & 1) << 6 | (~base >> 3 & 1) << 5 | form.map,
            form.wide << 7 | (~other & 15) << 3 | form.prefix,
            form.opcode])
        self._operand(register, operand, 1, b"")

    def _operand(self, register: int, operand: Register | Mem, unit: int, immediate: bytes) -> None:
        """ModRM, SIB, offset, immediate; offsets that are multiples of `unit` may take one byte."""
        field = (register & 7) << 3
        if not isinstance(operand, Mem):
            self._code += bytes([0xc0 | field | operand.number & 7]) + immediate
        elif operand.label:
            self._code += bytes([field | 5]) + struct.pack("<i", operand.offset) + immediate
            self._uses.append((len(self._code) - 4 - len(immediate), operand.label,
                               len(self._code)))
        else:
            base, units = operand.base.number & 7, operand.offset // unit
            is_short = operand.offset % unit == 0 and -128 <= units < 128
            mode = 0 if operand.offset == 0 and base != 5 else 1 if is_short else 2
            if operand.index is not None or base == RSP.number:
                index = operand.index.number & 7 if operand.index is not None else 4
                sib = (operand.scale.bit_length() - 1) << 6 | index << 3 | base
                self._code += bytes([mode << 6 | field | 4, sib])
            else:
                self._code += bytes([mode << 6 | field | base])
            self._code += (b"", struct.pack("<b", units) if is_short else b"",
                           struct.pack("<i", operand.offset))[mode] + immediate


def _extensions(operand: Register | Mem) -> tuple[int, int]:
    """The numbers of the index and the base; a register is a base."""
    if not isinstance(operand, Mem):
        return 0, operand.number
    return (operand.index.number if operand.index is not None else 0,
            operand.base.number if operand.base is not None else 0)


def _ordered(form: Form, operands: tuple[Register | Mem | int, ...]
             ) -> tuple[int, int, Register | Mem, bytes]:
    """(ModRM.reg, vvvv, ModRM.rm, immediate) of operands in the manual's order."""
    order, immediate = form.order, b""
    if order.endswith("i"):
        *operands, value = operands
        order, immediate = order[:-1], bytes([value])
    if order == "none":
        return 0, 0, Gpr(0), b""
    if len(order) != len(operands):
        raise ValueError(f"{len(operands)} operands where {len(order)} are wanted")
    by_place = dict(zip(order, operands))
    register = by_place["r"].number if "r" in by_place else 0
    other = by_place["v"].number if "v" in by_place else 0
    return register, other, by_place.get("m", Gpr(0)), immediate


def _add_instructions() -> None:
    """Each instruction of the tables becomes a method of its name."""
    def method(encode, *fixed):
        return lambda self, *operands, **options: encode(self, *fixed, *operands, **options)

    for name, opcode in JUMPS.items():
        setattr(Assembler, name, method(Assembler._jump, opcode))
    for name, kind in ARITHMETIC.items():
        setattr(Assembler, name + "_" if name in ("or", "and") else name,
                method(Assembler._arithmetic, kind))
    for name, form in EVEX.items():
        setattr(Assembler, name, method(Assembler._evex, form))
    for name, form in VEX.items():
        setattr(Assembler, name, method(Assembler._vex, form))


_add_instructions()
