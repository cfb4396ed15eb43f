"""What machine code may be used here: what the CPU has, and what the kernel gives of it."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
from collections.abc import Callable, Collection
from typing import NamedTuple

# What every kernel of ours uses, by the names of /proc/cpuinfo.
VECTORS = ("avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512_vnni", "bmi2")
TILES = ("amx_tile", "amx_int8")

# Linux, x86-64: Documentation/arch/x86/xstate.rst and arch/x86/include/uapi/asm/prctl.h.
ARCH_PRCTL = 158
REQUEST_PERMISSION = 0x1023  # ARCH_REQ_XCOMP_PERM
TILE_DATA = 18               # the XSTATE component that holds the tiles


class Products(NamedTuple):
    """`kind` of products of 8-bit integers: "amx", "vnni" or "" (no machine code at all), and the
    sentence why not the next better kind ("" for "amx")."""

    kind: str
    reason: str


@functools.cache
def integer_products() -> Products:
    """What this process may use. The first call asks the kernel for the tiles, which it gives to
    the process, its threads and its later forks, until they exec."""
    return judge(platform.system(), platform.machine(), read_flags(), request_tiles)


@functools.cache
def has_vectors() -> bool:
    """Whether this process may use machine code without tiles; asks the kernel for nothing."""
    return judge(platform.system(), platform.machine(), read_flags(),
                 lambda: errno.EPERM).kind != ""


def judge(system: str, machine: str, flags: Collection[str],
          request: Callable[[], int]) -> Products:
    """`request` asks for the tiles and gives an error number or 0; only where all else is there."""
    if system != "Linux" or machine != "x86_64":
        return Products("", f"machine code is for x86_64 Linux, this is {machine} {system}")
    missing = [flag for flag in VECTORS if flag not in flags]
    if missing:
        return Products("", f"this CPU has no {' '.join(missing)}")
    missing = [flag for flag in TILES if flag not in flags]
    if missing:
        return Products("vnni", f"this CPU has no {' '.join(missing)}")
    number = request()
    if number:
        return Products("vnni", f"the kernel gives no AMX tiles: {os.strerror(number)}")
    return Products("amx", "")


def read_flags() -> frozenset[str]:
    """The flags of the first CPU, none where the kernel tells none."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, words = line.partition(":")
                if name.strip() == "flags":
                    return frozenset(words.split())
    except OSError:
        pass  # as in a container that hides /proc: then nothing is promised
    return frozenset()


def request_tiles() -> int:
    """Asks the kernel for the AMX tiles; an error number, or 0 for granted."""
    libc = ctypes.CDLL(None, use_errno=True)
    asked = libc.syscall(*map(ctypes.c_long, (ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA)))
    return ctypes.get_errno() if asked else 0
