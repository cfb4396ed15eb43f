"""Kernels in a row run in their order, with their blocks, and are emitted once."""

import os
import platform

import numpy as np
import pytest

from model.native.arguments import Fields
from model.native.assembler import Assembler
from model.native.operands import R12, RAX, RBX, RCX, at
from model.native.tape import Kernels, Tape

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="code is for x86-64")

NUMBER = Fields("number")


def emit_add(a: Assembler, label: str, amount: int) -> None:
    """Adds to the number."""
    a.label(label)
    a.mov(RAX, NUMBER.of("number"))
    a.mov(RCX, at(RAX))
    a.add(RCX, amount)
    a.mov(at(RAX), RCX)
    a.ret()


def emit_triple(a: Assembler, label: str) -> None:
    """Three times the number; with registers that a kernel keeps put aside meanwhile."""
    a.label(label)
    a.push(RBX, R12)
    a.mov(RBX, 77)
    a.mov(RAX, NUMBER.of("number"))
    a.imul(R12, at(RAX), 3)
    a.mov(at(RAX), R12)
    a.pop(R12, RBX)
    a.ret()


class Case:
    """A tape of steps (kernel's emitter, its arguments, the array whose number it works on)."""

    def __init__(self, *steps: tuple) -> None:
        kernels = Kernels()
        self.labels = [kernels.label(emit, *arguments) for emit, arguments, _ in steps]
        blocks = [NUMBER.block(number=number) for *_, number in steps]
        self.tape = Tape(kernels.finish(), list(zip(self.labels, blocks)))


def test_tape_runs_steps_in_their_order():
    number = np.array([5])
    tape = Case((emit_add, (2,), number), (emit_triple, (), number),
                (emit_add, (-1,), number)).tape
    tape.run()
    assert number[0] == (5 + 2) * 3 - 1
    tape.run()
    assert number[0] == (20 + 2) * 3 - 1


def test_tape_gives_each_step_its_own_block():
    numbers = [np.array([value]) for value in (1, 10, 100)]
    Case(*[(emit_triple, (), number) for number in numbers]).tape.run()
    assert [int(number[0]) for number in numbers] == [3, 30, 300]


def test_tape_without_steps_does_nothing():
    Case().tape.run()


def test_tape_of_many_steps_runs_them_all():
    number = np.array([0])
    Case(*[(emit_add, (amount,), number) for amount in range(1000)]).tape.run()
    assert number[0] == 1000 * 999 // 2


def test_tape_holds_what_its_words_point_at():
    number = np.array([1])
    tapes = [Case((emit_add, (amount,), number)).tape for amount in range(100)]
    spoilt = [np.full(1, -1) for _ in range(1000)]  # where freed blocks would have been
    for tape in tapes:
        tape.run()
    assert number[0] == 1 + sum(range(100)) and len(spoilt) == 1000


def test_tape_runs_in_forks():
    number = np.array([4])
    tape = Case((emit_triple, (), number)).tape
    child = os.fork()
    if child == 0:
        tape.run()
        os._exit(0 if number[0] == 12 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert number[0] == 4
    tape.run()
    assert number[0] == 12


def test_kernels_that_are_the_same_are_emitted_once():
    number = np.array([0])
    case = Case((emit_add, (1,), number), (emit_add, (2,), number), (emit_add, (1,), number),
                (emit_triple, (), number))
    assert case.labels[0] == case.labels[2]
    assert len(set(case.labels)) == 3


def test_kernels_with_a_label_that_nobody_placed_are_refused():
    kernels = Kernels()
    kernels.label(lambda a, label: a.call("nowhere"))
    with pytest.raises(KeyError, match="nowhere"):
        kernels.finish()


def test_tapes_joined_run_one_after_the_other_and_each_alone():
    number = np.array([5])
    first = Case((emit_add, (2,), number), (emit_triple, (), number)).tape
    second = Case((emit_add, (-1,), number)).tape
    Tape.joined(second, first, second).run()
    assert number[0] == (5 - 1 + 2) * 3 - 1
    first.run()
    assert number[0] == (17 + 2) * 3
