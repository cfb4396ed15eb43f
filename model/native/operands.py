"""What x86-64 instructions work on: registers, masks, tiles and places in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Gpr:
    """A 64-bit general register by its number."""

    number: int


@dataclass(frozen=True)
class Zmm:
    """A 512-bit vector register."""

    number: int


@dataclass(frozen=True)
class Mask:
    """A mask register; k0 cannot mask an instruction."""

    number: int


@dataclass(frozen=True)
class Tile:
    """An AMX tile register."""

    number: int


@dataclass(frozen=True)
class Mem:
    """[base + index · scale + offset], or [label + offset] of the code itself.

    The index may be a vector, for gathers. With `spread`, one float32 there is used in all lanes.
    """

    base: Gpr | None = None
    index: Gpr | Zmm | None = None
    scale: int = 1
    offset: int = 0
    label: str = ""
    spread: bool = False

    def __add__(self, offset: int) -> Mem:
        return replace(self, offset=self.offset + offset)

    @property
    def to_all(self) -> Mem:
        """The one float32 there, in all lanes."""
        return replace(self, spread=True)


RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15 = map(Gpr, range(16))
K1, K2, K3, K4, K5, K6, K7 = map(Mask, range(1, 8))
ZMM = tuple(map(Zmm, range(32)))
TMM = tuple(map(Tile, range(8)))


def at(base: Gpr, offset: int = 0, index: Gpr | Zmm | None = None, scale: int = 1) -> Mem:
    """The place base + index · scale + offset."""
    return Mem(base, index, scale, offset)
