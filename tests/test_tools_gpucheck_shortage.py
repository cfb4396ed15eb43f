"""A full device: what goes on, what is told, and each of it broken."""

import pytest

from model.device.port import DeviceBroken
from model.device.recorder import Recorder
from tests.gpucheck_rig import Bench
from tools.gpucheck import filling, shortage
from tools.gpucheck.filling import ScriptedFiller, fill

ALL = {"device_is_full", "graphs_need_no_memory", "shortage_is_told", "graphs_outlive_it",
       "memory_comes_back", "functions_recover"}


def _run(tmp_path, monkeypatch, faults=shortage.FAULTS, device=Recorder, **sizes):
    monkeypatch.setattr(shortage, "FAULTS", faults)
    monkeypatch.setattr(shortage, "PATIENCE_S", 0.05)
    bench = Bench(tmp_path, "memory 1000 900\n", device=device, **sizes)
    shortage.run(bench.rig)
    assert set(bench.verdicts()) == ALL
    return bench.failed()


def test_shortage_is_survived_by_a_good_device(tmp_path, monkeypatch):
    assert not _run(tmp_path, monkeypatch)


def test_shortage_where_functions_find_room_still_is_no_failure(tmp_path, monkeypatch):
    assert not _run(tmp_path, monkeypatch, faults="")


def test_shortage_graph_that_needs_memory_is_found(tmp_path, monkeypatch):
    assert _run(tmp_path, monkeypatch, "once replay memory\n" * 2 + shortage.FAULTS) == {
        "graphs_need_no_memory"}


def test_shortage_graphs_that_do_not_outlive_it_are_found(tmp_path, monkeypatch):
    # One replay to compare, one to ask, then twenty while it is full.
    assert _run(tmp_path, monkeypatch, f"once replay nan {2 + shortage.REPLAYS + 3}\n"
                + shortage.FAULTS) == {"graphs_outlive_it"}


def test_shortage_functions_that_never_recover_are_found(tmp_path, monkeypatch):
    honest = ScriptedFiller.release

    def release(self):
        honest(self)
        filling.write(self._path, self._before + shortage.FAULTS)

    monkeypatch.setattr(ScriptedFiller, "release", release)
    assert _run(tmp_path, monkeypatch) == {"functions_recover"}


def test_shortage_device_that_was_not_filled_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(ScriptedFiller, "take", lambda self: None)
    assert _run(tmp_path, monkeypatch) == {"device_is_full"}


def test_shortage_memory_that_stays_away_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(ScriptedFiller, "release", lambda self: None)
    assert _run(tmp_path, monkeypatch) == {"memory_comes_back"}


class _Breaks(Recorder):
    """Says of a shortage that the device is broken."""

    def __init__(self, script, clock):
        super().__init__(script, clock=clock)
        honest = self.low.run

        def run(work, tokens=0):
            if self.memory()[0] < 100 << 20:
                raise DeviceBroken("719: unspecified launch failure")
            honest(work, tokens)

        self.low.run = run


def test_shortage_that_is_told_as_a_broken_device_is_found(tmp_path, monkeypatch):
    assert _run(tmp_path, monkeypatch, "", device=_Breaks) == {"shortage_is_told"}


class _Card:
    """Memory that runs out, in pieces of at most `piece`."""

    def __init__(self, free: int, piece: int) -> None:
        self.free, self.piece, self.asked = free, piece, []

    def memory(self):
        return self.free, 1 << 40

    def empty(self, shape, dtype):
        (count,) = shape
        self.asked.append(count)
        if count > min(self.piece, self.free):
            raise filling.OutOfMemory("no room")
        self.free -= count
        return count


@pytest.mark.parametrize("piece", [1 << 40, 100 << 20, 3 << 20])
def test_filling_takes_all_but_what_should_be_left(piece):
    card = _Card(1 << 30, piece)
    assert sum(fill(card, 64 << 20)) == (1 << 30) - (64 << 20) and card.free == 64 << 20


def test_filling_ends_where_nothing_more_can_be_had():
    card = _Card(1 << 30, 0)
    assert fill(card, 64 << 20) == [] and len(card.asked) < 40
