"""The vector and tile instructions that our kernels use, as Intel's manual writes their encodings.

A line is "name prefix.map.W opcode order size". Prefix NP, 66, F3 or F2 and map 0F, 0F38 or 0F3A
are the manual's; `order` says which operand goes where: rvm (ModRM.reg, vvvv, ModRM.rm), rm, mr, or
rvmi, rmi with an immediate byte, rmv where ModRM.rm comes before vvvv. `size` is how many bytes of
memory the instruction names, which is what one-byte offsets count in (EVEX, disp8*N).

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.
"""

from __future__ import annotations

from typing import NamedTuple

PREFIXES = {"NP": 0, "66": 1, "F3": 2, "F2": 3}
MAPS = {"0F": 1, "0F38": 2, "0F3A": 3}


class Form(NamedTuple):
    """How one instruction is encoded."""

    prefix: int
    map: int
    wide: int
    opcode: int
    order: str
    size: int


def _forms(table: str) -> dict[str, Form]:
    found = {}
    for line in table.strip().splitlines():
        name, kind, opcode, order, size = line.split()
        prefix, map_name, wide = kind.split(".")
        found[name] = Form(PREFIXES[prefix], MAPS[map_name], int(wide[1]), int(opcode, 16), order,
                           int(size))
    return found


# 512 bits wide; `size` 64 may be read as one float32 in all lanes.
EVEX = _forms("""
vmovups        NP.0F.W0   10 rm   64
vmovups_to     NP.0F.W0   11 mr   64
vmovdqu8       F2.0F.W0   6F rm   64
vmovss_to      F3.0F.W0   11 mr   4
vaddps         NP.0F.W0   58 rvm  64
vsubps         NP.0F.W0   5C rvm  64
vmulps         NP.0F.W0   59 rvm  64
vdivps         NP.0F.W0   5E rvm  64
vminps         NP.0F.W0   5D rvm  64
vmaxps         NP.0F.W0   5F rvm  64
vcmpps         NP.0F.W0   C2 rvmi 64
vpmaxsd        66.0F38.W0 3D rvm  64
vsqrtps        NP.0F.W0   51 rm   64
vandps         NP.0F.W0   54 rvm  64
vorps          NP.0F.W0   56 rvm  64
vxorps         NP.0F.W0   57 rvm  64
vfmadd132ps    66.0F38.W0 98 rvm  64
vfmadd213ps    66.0F38.W0 A8 rvm  64
vfmadd231ps    66.0F38.W0 B8 rvm  64
vfnmadd231ps   66.0F38.W0 BC rvm  64
vrndscaleps    66.0F3A.W0 08 rmi  64
vrangeps       66.0F3A.W0 50 rvmi 64
vreduceps      66.0F3A.W0 56 rmi  64
vscalefps      66.0F38.W0 2C rvm  64
vcvtdq2ps      NP.0F.W0   5B rm   64
vcvtps2dq      66.0F.W0   5B rm   64
vcvttps2dq     F3.0F.W0   5B rm   64
vpaddw         66.0F.W0   FD rvm  64
vpcmpeqb       66.0F.W0   74 rvm  64
vpaddd         66.0F.W0   FE rvm  64
vpsubd         66.0F.W0   FA rvm  64
vpxord         66.0F.W0   EF rvm  64
vpsrlvd        66.0F38.W0 45 rvm  64
vpdpbusd       66.0F38.W0 50 rvm  64
vpackssdw      66.0F.W0   6B rvm  64
vpacksswb      66.0F.W0   63 rvm  64
vpackuswb      66.0F.W0   67 rvm  64
vpmovdb_to     F3.0F38.W0 31 mr   16
vpmovusdb_to   F3.0F38.W0 11 mr   16
vbroadcastss   66.0F38.W0 18 rm   4
vpbroadcastd   66.0F38.W0 58 rm   4
vpermps        66.0F38.W0 16 rvm  64
vpermd         66.0F38.W0 36 rvm  64
vpermi2ps      66.0F38.W0 77 rvm  64
vgatherdps     66.0F38.W0 92 rm   4
vshuff32x4     66.0F3A.W0 23 rvmi 64
vpermilps      66.0F3A.W0 04 rmi  64
vunpcklps      NP.0F.W0   14 rvm  64
vunpckhps      NP.0F.W0   15 rvm  64
vunpcklpd      66.0F.W1   14 rvm  64
vunpckhpd      66.0F.W1   15 rvm  64
""")

# Of general registers, masks and tiles; offsets of memory count in bytes.
VEX = _forms("""
kmovw          NP.0F.W0   92 rm   1
kmovq          F2.0F.W1   92 rm   1
kmovq_from     F2.0F.W1   93 rm   1
bzhi           NP.0F38.W1 F5 rmv  1
ldtilecfg      NP.0F38.W0 49 m    1
sttilecfg      66.0F38.W0 49 m    1
tilerelease    NP.0F38.W0 49 none 1
tilezero       F2.0F38.W0 49 r    1
tileloadd      F2.0F38.W0 4B rm   1
tilestored     F3.0F38.W0 4B mr   1
tdpbusd        66.0F38.W0 5E rmv  1
""")
