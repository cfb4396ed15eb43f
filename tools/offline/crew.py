"""The engines: processes forked from this one, which holds the program; fed, watched, replaced."""

import gc
import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe, wait
from typing import NamedTuple

from server.processes import PR_SET_PDEATHSIG, close_all_but, set_process_option
from tools.offline.ledger import Ledger, Part
from tools.offline.source import Source
from tools.offline.worker import Result, Worker

PART_S = 0.5         # a part is so many texts as take about this much of an engine's time
FIRST_PART, LARGEST_PART = 16, 4096  # texts
# A second part waits in an engine's socket only where it surely fits there: this process must not
# wait for an engine that waits for it.
AHEAD_BYTES = 32 << 10
PARTS_EACH = 2       # that an engine holds: one runs, one waits
WINDOW_EACH = 8      # chunks known at once, an engine
MOST_DEATHS = 100    # in a row, with nothing done between them
TICK_S = 0.5
KILLED = (signal.SIGKILL, signal.SIGTERM)  # somebody else's doing, not the text's


class CrewError(Exception):
    """The engines cannot work: one sentence."""


class Answered(NamedTuple):
    """The results of some items in order; `faults` are (number of the item, reason)."""

    output: bytes
    count: int
    faults: list[tuple[int, str]]


class Crew:
    """`size` engines that share the program of `worker`; a context manager."""

    def __init__(self, worker: Worker, size: int) -> None:
        self.deaths = 0
        self.taken = 0       # items of the source
        self._worker = worker
        self._links: dict[int, Connection] = {}  # by engine
        self._pids: dict[int, int] = {}
        self._engine_at: dict[int, int] = {}     # by descriptor
        self._part_size = FIRST_PART
        self._deaths_in_row = 0
        gc.collect()
        gc.freeze()  # so that engines share this process's pages
        for engine in range(size):
            self._fork(engine)

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        for engine, pid in self._pids.items():
            self._links[engine].close()
            os.kill(pid, signal.SIGKILL)  # ours and not yet reaped
            os.waitpid(pid, 0)

    @property
    def pids(self) -> list[int]:
        return list(self._pids.values())

    def classify(self, source: Source) -> Iterator[Answered | None]:
        """The results of the whole source in order; None now and then, when none is ready.

        Raises CrewError where engines die on and on, and what the source raises.
        """
        ledger = Ledger(WINDOW_EACH * len(self._pids))
        has_more = True
        while True:
            has_more = self._feed(ledger, source, has_more)
            yield from ledger.ready()
            if ledger.is_empty and not has_more:
                return
            self._collect(ledger)
            yield None

    def _feed(self, ledger: Ledger, source: Source, has_more: bool) -> bool:
        """Gives each engine what it may hold; False when the source is at its end."""
        for depth in range(PARTS_EACH):
            for engine, link in self._links.items():
                if ledger.running(engine) != depth:
                    continue
                if has_more and ledger.has_room:
                    first, items = source.take(self._next_size(source))
                    has_more = bool(items)
                    self.taken += len(items)
                    if items:
                        ledger.add(first, items)
                part = ledger.next_part()
                if part is None or depth and sum(map(_size, part.items)) > AHEAD_BYTES:
                    continue
                _send(link, ledger.hand_out(engine))
        return has_more

    def _collect(self, ledger: Ledger) -> None:
        """Waits until an engine answers or dies."""
        for link in wait(list(self._links.values()), TICK_S):
            engine = self._engine_at[link.fileno()]
            try:
                result, seconds = pickle.loads(link.recv_bytes())
            except (EOFError, OSError):
                self._bury(ledger, engine)
                continue
            part = ledger.finished(engine)
            ledger.settle(part, _numbered(part, result))
            self._deaths_in_row = 0
            self._fit(len(part.items), seconds)

    def _next_size(self, source: Source) -> int:
        """Towards the end parts become small, so that all engines end at the same time."""
        if not source.done:
            return self._part_size
        left = int(self.taken * (1 / source.done - 1))
        return max(FIRST_PART, min(self._part_size, left // (PARTS_EACH * len(self._links))))

    def _fit(self, count: int, seconds: float) -> None:
        """Sizes the next parts by what one took; which part is cut where changes no result."""
        wanted = int(count * PART_S / max(seconds, 1e-6))
        self._part_size = max(1, min(wanted, 2 * self._part_size, LARGEST_PART))

    def _bury(self, ledger: Ledger, engine: int) -> None:
        """Reaps a dead engine, hands what it held to others, and forks the next."""
        self._links[engine].close()
        _, status = os.waitpid(self._pids.pop(engine), 0)
        is_fault = not (os.WIFSIGNALED(status) and os.WTERMSIG(status) in KILLED)
        self.deaths += 1
        self._deaths_in_row += 1
        if self._deaths_in_row > MOST_DEATHS:
            raise CrewError(f"the engines died {MOST_DEATHS} times in a row (the last one with "
                            f"{_told(status)}); look for memory or a broken checkpoint.")
        given_up = ledger.died(engine, is_fault)
        if given_up is not None:
            ledger.settle(given_up, _numbered(given_up, self._worker.fail(given_up.items)))
        self._fork(engine)

    def _fork(self, engine: int) -> None:
        ours, theirs = Pipe()
        pid = os.fork()
        if not pid:
            _live(self._worker, theirs)
        theirs.close()
        self._links[engine], self._pids[engine] = ours, pid
        self._engine_at[ours.fileno()] = engine


def _numbered(part: Part, result: Result) -> Answered:
    return Answered(result.output, len(part.items),
                    [(part.first + index, reason) for index, reason in result.faults])


def _size(item: bytes | None) -> int:
    return 16 + len(item or b"")


def _send(link: Connection, part: Part) -> None:
    try:
        link.send_bytes(pickle.dumps(part.items, pickle.HIGHEST_PROTOCOL))
    except OSError:  # it is dead, which its end of the link tells next
        return


def _live(worker: Worker, link: Connection) -> None:
    """An engine's life: one part after another; it ends with this program, whatever that does."""
    status = 1
    try:
        set_process_option(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        close_all_but({0, 1, 2, link.fileno()})
        while True:
            items = pickle.loads(link.recv_bytes())
            begun = time.process_time()  # on a busy machine parts stay large enough to fill batches
            result = worker.classify(items)
            link.send_bytes(pickle.dumps((result, time.process_time() - begun)))
    except (EOFError, OSError):
        status = 0
    except BaseException as error:
        print(f"an engine ended: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def _told(status: int) -> str:
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else \
        f"exit status {os.waitstatus_to_exitcode(status)}"
