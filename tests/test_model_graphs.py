"""A program of graphs on the recorder: right answers, overlap, and every broken output found."""

import time

import numpy as np
import pytest
import torch

from model.device.ladder import Shape, shapes
from model.device.port import DeviceBroken, OutOfMemory
from model.device.recorder import Recorder
from model.device.script import Script, write
from model.families.table import build
from model.grid import buckets
from model.program import Row
from model.programs.graphs import SLOTS, CheckFailed, GraphProgram
from model.programs.image import Image
from model.programs.padded import Weights
from model.programs.padded_post_norm import bert
from model.programs.script import script, settle
from tests.tiny_bert import make_model, make_rows

LABELS = 3


@pytest.fixture(scope="module")
def made():
    """(card, image, compiled network) of a tiny BERT."""
    settle()
    card, image = make_model(LABELS)
    weights = Weights(Image(image), card["settings"], torch.float32, (0, 0), lambda tensor: tensor)
    return card, image, script(bert(weights, card["settings"]))


def _program(made, faults: str = "", network=None, cap: int = 128, **options) -> GraphProgram:
    card, _, compiled = made
    found = shapes(buckets(card["max_tokens"]), cap)
    program = GraphProgram(Recorder(Script(faults)), network or compiled, torch.float32, found,
                           card["settings"], LABELS, card["max_tokens"])
    program.prepare(**options)
    program.port.seal()
    return program


@pytest.fixture
def faults(tmp_path):
    """A function that writes the script of faults and gives its path."""
    path = str(tmp_path / "faults")

    def make(text: str) -> str:
        write(path, text)
        return path
    return make


def _finish(program) -> dict[int, np.ndarray]:
    found = {}
    while program.is_busy:
        for finished in program.poll():
            found[finished.number] = finished.logits
        time.sleep(0.0002)
    return found


def test_graphs_answer_as_the_cpu_program_does(made):
    card, image, _ = made
    program = _program(made)
    rows = make_rows(card, [1, 64, 3, 17, 60, 2, 9, 33, 16, 32] * 5)
    assert np.abs(program.run(rows) - build(card, image).run(rows)).max() < 1e-5
    assert program.captured == len(program.shapes)
    counts = program.take_counts()
    assert counts.replays and not counts.eager
    assert not program.take_counts().replays


def test_graphs_row_alone_equals_the_row_in_company(made):
    card, _, _ = made
    program = _program(made)
    rows = make_rows(card, [5, 40, 12, 64, 1, 1, 30])
    together = program.run(rows)
    for row, logits in zip(rows, together):
        assert np.abs(program.run([row])[0] - logits).max() < 1e-5


def test_graphs_batches_submitted_ahead_finish_in_order_with_their_own_answers(made):
    card, _, _ = made
    program = _program(made)
    batches = [make_rows(card, [3 + number] * (1 + number % 5), seed=number)
               for number in range(3 * SLOTS)]
    for number, rows in enumerate(batches):
        program.submit(number, rows)
    found = _finish(program)
    assert list(found) == list(range(len(batches)))
    for number, rows in enumerate(batches):
        assert np.array_equal(found[number], program.run(rows))


def test_graphs_host_prepares_the_next_batch_while_one_runs(made, faults):
    card, _, _ = made
    program = _program(made, faults(""))
    faults("speed 1000\n")                  # a replay of 16 tokens takes 16 ms
    begun = time.monotonic()
    for number in range(SLOTS):
        program.submit(number, make_rows(card, [8]))
    submitted_s = time.monotonic() - begun
    assert sum(slot.part is not None for slot in program._slots) == SLOTS
    assert len(_finish(program)) == SLOTS
    # All were launched before even the first could be done.
    assert submitted_s < time.monotonic() - begun - 0.02


def test_graphs_tokens_that_fill_a_shape_are_counted(made):
    card, _, _ = made
    program = _program(made)
    program.submit(1, make_rows(card, [5, 16, 60]))
    found = []
    while program.is_busy:
        found += program.poll()
    # Two texts of 16 in a graph of 4, one of 60 alone.
    assert found[0].padding == 4 * 16 + 64 - (5 + 16 + 60)


@pytest.mark.parametrize("row", [Row(np.array([97]), 1), Row(np.zeros(65, np.int64), 65),
                                 Row(np.zeros(0, np.int64), 0)])
def test_graphs_text_out_of_bounds_never_reaches_the_device(made, row):
    program = _program(made)
    before = program.take_counts()
    with pytest.raises(ValueError):
        program.submit(1, [Row(np.array([1, 2]), 2), row])
    assert before.replays and not program.is_busy and not program.take_counts().replays


def test_graphs_shape_without_a_graph_runs_as_it_is(made):
    card, image, _ = made
    program = _program(made, eager=frozenset({Shape(16, 4), Shape(16, 1)}))
    assert program.captured == len(program.shapes) - 2
    program.take_counts()
    rows = make_rows(card, [5, 9])
    assert np.abs(program.run(rows) - build(card, image).run(rows)).max() < 1e-5
    assert program.take_counts().eager == 1


def _overflowing(network):
    """A network whose arithmetic is too narrow for its numbers."""
    def broken(*inputs):
        return network(*inputs).mul(float("inf"))
    return broken


class _Aliased(GraphProgram):
    """Copies results out of the pool after the replay, not inside it: the classic mistake."""

    def _work(self, shape):
        work = super()._work(shape)
        output, network = self._output, self._network

        def outside():
            kept = output.clone()
            logits = work()
            output.copy_(kept)
            return logits
        return outside


def test_graphs_nan_output_is_found_before_serving(made):
    with pytest.raises(CheckFailed, match="not finite"):
        _program(made, network=_overflowing(made[2]))


def test_graphs_output_that_is_never_written_is_found_before_serving(made):
    card, _, compiled = made
    program = _Aliased(Recorder(Script()), compiled, torch.float32, shapes([16, 64], 64),
                       card["settings"], LABELS, card["max_tokens"])
    with pytest.raises(CheckFailed):
        program.prepare()


@pytest.mark.parametrize("kind", ["stale", "nan"])
@pytest.mark.parametrize("nth", [1, 4])
def test_graphs_replay_that_leaves_stale_or_nan_outputs_is_found_before_serving(made, faults, kind,
                                                                                nth):
    with pytest.raises(CheckFailed, match="other logits|not finite"):
        _program(made, faults(f"once replay {kind} {nth}\n"))


def test_graphs_graph_of_another_input_is_found_before_serving(made):
    class Swapped(Recorder):
        """Replays another graph than it was asked for."""

        def __init__(self, script):
            super().__init__(script)
            real = self.low.replay
            self.low.replay = lambda graph: real(self.low.pool.graphs[0])

    card, _, compiled = made
    program = GraphProgram(Swapped(Script()), compiled, torch.float32, shapes([16, 64], 64),
                           card["settings"], LABELS, card["max_tokens"])
    with pytest.raises(CheckFailed):
        program.prepare()


def test_graphs_hang_while_comparing_is_found(made, faults, monkeypatch):
    monkeypatch.setattr("model.programs.graphs.DUE_S", 0.05)
    with pytest.raises(CheckFailed, match="does not end"):
        _program(made, faults("once replay hang\n"))


def test_graphs_memory_that_is_back_after_a_trim_costs_nothing_but_a_retry(made, faults):
    card, _, _ = made
    program = _program(made, faults(""))
    rows = make_rows(card, [7, 9])
    right = program.run(rows)
    faults("once replay memory\n")
    assert np.array_equal(program.run(rows), right)
    assert program.take_counts().retries == 1


def test_graphs_memory_that_stays_short_and_broken_devices_are_the_callers(made, faults):
    card, _, _ = made
    program = _program(made, faults(""))
    faults("once replay memory\nonce replay memory\n")
    with pytest.raises(OutOfMemory):
        program.submit(1, make_rows(card, [7]))
    program = _program(made, faults(""))
    faults("once replay error\n")
    with pytest.raises(DeviceBroken):
        program.submit(1, make_rows(card, [7]))


def test_graphs_overdue_launch_shows_in_its_due(made, faults):
    card, _, _ = made
    program = _program(made, faults(""))
    assert program.due() == float("inf")
    faults("once replay hang\n")
    program.submit(1, make_rows(card, [7]))
    assert time.monotonic() < program.due() < time.monotonic() + 60
    assert program.poll() == [] and program.is_busy
