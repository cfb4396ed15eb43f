"""Graphs that are wrong in any way are told from right ones."""

import pytest
import torch

from model.device.ladder import shapes
from model.device.recorder import Recorder
from model.programs.graphs import GraphProgram
from tests.gpucheck_rig import TINY, Bench
from tools.gpucheck import equality, networks


@pytest.fixture(scope="module")
def model():
    return networks.random_model(TINY["small"])


def _judge(bench, model):
    known = shapes(model.card["buckets"], bench.rig.sizes.token_cap)
    seen = equality.compare(bench.rig.open(), model, model.on_cpu(), torch.float32, known,
                            bench.rig.sizes.rows_compared)
    equality.tell(bench.rig, model, torch.float32, seen)
    return known, seen


def test_equality_right_graphs_pass(tmp_path, model):
    bench = Bench(tmp_path)
    known, seen = _judge(bench, model)
    assert bench.verdicts() == {"graphs_are_as_eager": "PASS", "graphs_are_as_cpu": "PASS"}
    assert seen.texts == 2 * sum(shape.batch for shape in known)
    assert seen.on_cpu == sum(min(shape.batch, 2) for shape in known)


def test_equality_runs_the_shipped_model_and_the_small_network(tmp_path):
    bench = Bench(tmp_path)
    equality.run(bench.rig)
    assert {line["model"] for line in bench.lines if "figure" in line} == {"sms-spam", "tiny"}
    assert not bench.failed()


def test_equality_wrong_weight_on_the_device_is_found(tmp_path, model, monkeypatch):
    honest = networks.padded_network

    def wrong(*asked):
        network = honest(*asked)
        network.encoder.last.after.widen.weight.mul_(1.5)
        return network

    monkeypatch.setattr(networks, "padded_network", wrong)
    bench = Bench(tmp_path)
    _judge(bench, model)
    assert bench.failed() == {"graphs_are_as_cpu"}


@pytest.mark.parametrize("kind", ["stale", "nan"])
@pytest.mark.parametrize("after", [1, 6])
def test_equality_replay_that_is_wrong_while_serving_is_found(tmp_path, model, kind, after):
    """The start-up comparison has seen each graph once: these are wrong later."""
    known = shapes(model.card["buckets"], Bench(tmp_path).rig.sizes.token_cap)
    bench = Bench(tmp_path, f"once replay {kind} {len(known) + after}\n")
    _judge(bench, model)
    assert "graphs_are_as_eager" in bench.failed()


class _Crossing(Recorder):
    """Once it serves, every third answer is in another order, as outputs are that share memory."""

    def __init__(self, script, clock):
        super().__init__(script, clock=clock)
        honest, calls = self.low.get, [0]

        def get(host, device):
            calls[0] += 1
            honest(host, device)
            if calls[0] > 12 and calls[0] % 3 == 0:
                self.low.enqueue(lambda: host.copy_(host.flip(0)))

        self.low.get = get


def test_equality_outputs_that_are_crossed_are_found(tmp_path, model):
    bench = Bench(tmp_path, device=_Crossing)
    _judge(bench, model)
    assert {"graphs_are_as_eager", "graphs_are_as_cpu"} & bench.failed()


def test_equality_graphs_that_were_never_captured_are_found(tmp_path, model, monkeypatch):
    honest = GraphProgram.prepare
    monkeypatch.setattr(GraphProgram, "prepare", lambda self, eager=frozenset(): honest(
        self, frozenset(self.shapes)))
    bench = Bench(tmp_path)
    _, seen = _judge(bench, model)
    assert bench.failed() == {"graphs_are_as_eager"}
    assert "was not one replay" in seen.eager[0]
