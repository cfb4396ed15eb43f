"""Kernels in a row: emitted once each, run one after the other by one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from model.native.assembler import Assembler
from model.native.executable import Executable
from model.native.operands import RAX, RBX, RDI, at

RUN = "run"


class Kernels:
    """The machine code of a network; kernels that are the same are emitted once."""

    def __init__(self) -> None:
        self._assembler = Assembler()
        self._labels: dict[tuple, str] = {}
        _emit_run(self._assembler)

    def label(self, emit: Callable[..., None], *arguments: Any) -> str:
        """Where `emit(assembler, label, *arguments)` put its code; the arguments are hashable."""
        key = (emit, *arguments)
        if key not in self._labels:
            self._labels[key] = f"{emit.__name__}.{len(self._labels)}"
            emit(self._assembler, self._labels[key], *arguments)
        return self._labels[key]

    def finish(self) -> Executable:
        """The code, ready to run. Raises OSError where the system does not let it."""
        return Executable(*self._assembler.finish())


class Tape:
    """Steps (label of a kernel, its block) that `run` goes through; forks may run it too."""

    def __init__(self, code: Executable, steps: list[tuple[str, np.ndarray]]) -> None:
        self._begin(code.function(RUN), (code, steps),
                    np.array([word for label, block in steps
                              for word in (code.address(label), block.ctypes.data)] + [0],
                             dtype=np.int64))

    @classmethod
    def joined(cls, first: Tape, *others: Tape) -> Tape:
        """One that runs these one after the other."""
        tape = cls.__new__(cls)
        tapes = (first, *others)
        tape._begin(first._run, tapes, np.concatenate([
            *(part._words[:-1] for part in tapes), first._words[-1:]]))
        return tape

    def _begin(self, run: Callable[[int], None], held: Any, words: np.ndarray) -> None:
        """`held` is what the words, int64 with a 0 at the end, point at."""
        self._run, self._held, self._words = run, held, words
        self._address = words.ctypes.data

    def run(self) -> None:
        self._run(self._address)


def _emit_run(a: Assembler) -> None:
    """Calls each kernel with its block; RBX points at the next one."""
    step, finished = a.fresh(RUN), a.fresh(RUN)
    a.label(RUN)
    a.push(RBX)
    a.mov(RBX, RDI)
    a.label(step)
    a.mov(RAX, at(RBX))
    a.cmp(RAX, 0)
    a.je(finished)
    a.mov(RDI, at(RBX, 8))
    a.call_at(at(RBX))
    a.add(RBX, 16)
    a.jmp(step)
    a.label(finished)
    a.pop(RBX)
    a.ret()
