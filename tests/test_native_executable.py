"""Code in memory runs here and in forks, and cannot be written once it may run."""

import ctypes
import errno
import os
import platform

import numpy as np
import pytest

from model.native import executable
from model.native.arguments import Fields
from model.native.assembler import Assembler
from model.native.executable import Executable
from model.native.operands import RAX, RDI, at

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="code is for x86-64")

NUMBER = Fields("number", "found")


def small() -> Executable:
    """Two functions: "triple" gives three times the number, "same" the number."""
    a = Assembler()
    a.label("triple")
    a.imul(RAX, NUMBER.of("number"), 3)
    a.mov(NUMBER.of("found"), RAX)
    a.ret()
    a.align()
    a.label("same")
    a.mov(RAX, at(RDI))
    a.mov(at(RDI, 8), RAX)
    a.ret()
    return Executable(*a.finish())


def run(code: Executable, label: str, number: int) -> int:
    block = NUMBER.block(number=number, found=0)
    code.function(label)(block.ctypes.data)
    return int(block[1])


def rights(address: int) -> str:
    """What the process may do with the page there."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        for line in file:
            span, found, *_ = line.split()
            begin, end = (int(one, 16) for one in span.split("-"))
            if begin <= address < end:
                return found
    raise LookupError(hex(address))


def test_executable_functions_run_by_their_labels():
    code = small()
    assert run(code, "triple", 14) == 42
    assert run(code, "triple", -5) == -15
    assert run(code, "same", 1 << 40) == 1 << 40
    assert code.address("same") - code.address("triple") == 64


def test_executable_code_of_several_pages_runs_at_its_end():
    a = Assembler()
    for _ in range(300):
        a.align()
        a.push(RAX)
    a.label("far")
    a.mov(at(RDI, 8), 7)
    a.ret()
    code = Executable(*a.finish())
    assert run(code, "far", 0) == 7
    assert rights(code.address("far")) == "r-xp"


def test_executable_pages_cannot_be_written():
    code = small()
    assert rights(code.address("triple")) == "r-xp"
    assert rights(code.address("same")) == "r-xp"


def test_executable_unknown_label_is_refused():
    with pytest.raises(KeyError):
        small().function("other")


def test_executable_runs_in_a_fork_and_there_cannot_be_written():
    code = small()
    child = os.fork()
    if child == 0:
        is_right = run(code, "triple", 5) == 15 and rights(code.address("same")) == "r-xp"
        os._exit(0 if is_right else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_executable_function_outlives_many_others():
    kept = [small() for _ in range(50)]
    assert len({code.address("triple") for code in kept}) == 50
    assert [run(code, "triple", n) for n, code in enumerate(kept)] == [3 * n for n in range(50)]


def test_executable_system_that_forbids_it_is_an_os_error(monkeypatch):
    def refuse(*_what: object, **_more: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    before = set(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(executable.mmap, "mmap", refuse)
    with pytest.raises(OSError):
        small()
    assert set(os.listdir("/proc/self/fd")) == before


def test_executable_runs_where_written_memory_must_not():
    """PR_SET_MDWE (Linux 6.3), what systemd's MemoryDenyWriteExecute asks for."""
    child = os.fork()
    if child == 0:
        if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):
            os._exit(2)
        os._exit(0 if run(small(), "triple", 5) == 15 else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 2:
        pytest.skip("this kernel has no PR_SET_MDWE")
    assert status == 0


def test_executable_constants_are_read_beside_the_code():
    a = Assembler()
    a.label("read")
    a.mov(RAX, a.constant(np.array([11, -12345], np.int64).tobytes()) + 8)
    a.mov(NUMBER.of("found"), RAX)
    a.ret()
    assert run(Executable(*a.finish()), "read", 0) == -12345
