"""What machine code may be used: from the CPU's flags and the kernel's word."""

import ctypes
import errno
import os
import platform
import subprocess
import sys

import pytest

from model.native import cpu
from model.native.cpu import TILES, VECTORS, judge

ALL = frozenset(VECTORS + TILES)


def granted() -> int:
    return 0


def never() -> int:
    pytest.fail("the kernel was asked")


def test_cpu_with_everything_takes_tiles():
    assert judge("Linux", "x86_64", ALL | {"fpu"}, granted) == ("amx", "")


@pytest.mark.parametrize("flag", VECTORS)
def test_cpu_one_vector_flag_missing_takes_nothing_and_names_it(flag):
    assert judge("Linux", "x86_64", ALL - {flag}, never) == ("", f"this CPU has no {flag}")


def test_cpu_without_flags_names_all_that_it_lacks():
    assert judge("Linux", "x86_64", (), never).reason.endswith(" ".join(VECTORS))


@pytest.mark.parametrize("flag", TILES)
def test_cpu_without_tiles_takes_vectors(flag):
    assert judge("Linux", "x86_64", ALL - {flag}, never) == ("vnni", f"this CPU has no {flag}")


def test_cpu_kernel_refuses_tiles_takes_vectors_and_says_why():
    kind, reason = judge("Linux", "x86_64", ALL, lambda: errno.EPERM)
    assert kind == "vnni"
    assert reason == f"the kernel gives no AMX tiles: {os.strerror(errno.EPERM)}"


@pytest.mark.parametrize("system, machine", [
    ("Darwin", "x86_64"), ("Linux", "aarch64"), ("Linux", "i686"), ("Windows", "AMD64")])
def test_cpu_elsewhere_takes_nothing(system, machine):
    kind, reason = judge(system, machine, ALL, never)
    assert kind == ""
    assert f"{machine} {system}" in reason


def test_cpu_here_is_judged_by_its_own_flags():
    products = cpu.integer_products()
    assert products.kind in ("amx", "vnni", "")
    assert (products.kind == "amx") == (products.reason == "")
    if products.kind:
        assert set(VECTORS) <= cpu.read_flags()
    assert cpu.integer_products() is products


def test_cpu_without_proc_has_no_flags(monkeypatch):
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise OSError("no /proc")
    monkeypatch.setattr("builtins.open", refuse)
    assert cpu.read_flags() == frozenset()


def permitted() -> int:
    """The XSTATE components that the process may use (ARCH_GET_XCOMP_PERM)."""
    components = ctypes.c_uint64()
    libc = ctypes.CDLL(None)
    assert libc.syscall(ctypes.c_long(cpu.ARCH_PRCTL), ctypes.c_long(0x1022),
                        ctypes.byref(components)) == 0
    return components.value


@pytest.mark.skipif(platform.machine() != "x86_64" or not set(TILES) <= cpu.read_flags(),
                    reason="this CPU has no AMX")
def test_cpu_tiles_once_granted_belong_to_forks_too():
    if cpu.integer_products().kind != "amx":
        pytest.skip(cpu.integer_products().reason)
    assert permitted() >> cpu.TILE_DATA & 1
    child = os.fork()
    if child == 0:
        os._exit(0 if permitted() >> cpu.TILE_DATA & 1 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_cpu_is_judged_without_torch(repo):
    code = ("import sys; from model.native.cpu import integer_products; integer_products(); "
            "sys.exit('torch' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], cwd=repo, timeout=60).returncode == 0
