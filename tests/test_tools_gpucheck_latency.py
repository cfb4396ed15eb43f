"""Targets of single texts: met by a recorded device that is scripted so, missed by a slower one."""

import pytest

from model.device.recorder import Recorder
from tests.gpucheck_rig import Bench
from tools.gpucheck import latency


def test_latency_fast_steady_replays_meet_both_targets(tmp_path):
    bench = Bench(tmp_path, "speed 10\neager 800\n")
    latency.run(bench.rig)
    assert bench.verdicts() == {"replay_is_faster": "PASS", "replay_is_steady": "PASS"}
    found = bench.figures()
    assert found["eager_p50"] > 5 * found["replay_p50"] > 0
    assert found["torchscript_p50"] > found["replay_p50"]
    assert found["replay_alone_p99"] >= found["replay_alone_p50"]
    assert {line["clock"] for line in bench.lines if "figure" in line} == {"events", "wall"}


def test_latency_replay_that_is_no_faster_misses_its_target(tmp_path):
    bench = Bench(tmp_path, "speed 10\neager 100\n")
    latency.run(bench.rig)
    assert bench.failed() == {"replay_is_faster"}


class _Stutters(Recorder):
    """Every tenth replay takes five times as long."""

    def __init__(self, script, clock):
        super().__init__(script, clock=clock)
        honest, calls = self.low.replay, [0]

        def replay(graph):
            calls[0] += 1
            tokens = graph.tokens
            graph.tokens *= 5 if calls[0] % 10 == 0 else 1
            honest(graph)
            graph.tokens = tokens

        self.low.replay = replay


def test_latency_replay_that_stutters_misses_its_target(tmp_path):
    bench = Bench(tmp_path, "speed 10\neager 800\n", device=_Stutters)
    latency.run(bench.rig)
    assert bench.failed() == {"replay_is_steady"}


def test_latency_other_devices_are_told_and_not_judged(tmp_path):
    bench = Bench(tmp_path, is_judged=False)
    latency.run(bench.rig)
    assert set(bench.verdicts().values()) == {"NOT JUDGED"}


@pytest.mark.parametrize("length, judged", [(128, 2), (129, 0)])
def test_latency_long_texts_have_no_target(tmp_path, length, judged):
    from tools.gpucheck.asking import Took
    bench = Bench(tmp_path)
    took = [Took(None, 1.0, 1.0)]
    latency.tell(bench.rig, "x", "fp16", length,
                 {"replay": took, "eager": [Took(None, 9.0, 9.0)]}, took)
    assert len(bench.verdicts()) == judged
