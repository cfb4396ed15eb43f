"""Memory of graphs: a device that takes too much, at any moment, is told from one that does not."""

import pytest

from model.device.recorder import Recorder
from tests.gpucheck_rig import Bench
from tools.gpucheck import memory

MIB = 1 << 20


def _leaky(in_capture: int = 0, in_replay: int = 0, for_good: int = 0, pool: int = 0):
    """A recorder that loses bytes by each capture and replay, `for_good` more at each `flush`;
    `pool` of a capture's lie in the allocator."""
    class Leaky(Recorder):
        def __init__(self, script, clock):
            super().__init__(script, clock=clock)
            self.lost = self.kept = self.pooled = 0
            capture, replay = self.low.capture, self.low.replay

            def capture_more(work, tokens):
                self.lost += in_capture
                self.pooled += pool
                return capture(work, tokens)

            def replay_more(graph):
                self.lost += in_replay
                replay(graph)

            self.low.capture, self.low.replay = capture_more, replay_more

        def memory(self):
            free, total = super().memory()
            return free - self.lost, total

        def held(self):
            return super().held() + self.pooled

        def flush(self):
            super().flush()
            self.kept += for_good
            self.lost, self.pooled = self.kept, 0

    return Leaky


def test_memory_of_a_device_as_planned_passes_and_is_told_by_graph(tmp_path):
    bench = Bench(tmp_path, device=_leaky(in_capture=20 * MIB, pool=8 * MIB))
    memory.run(bench.rig)
    assert bench.verdicts() == {name: "PASS" for name in (
        "graphs_are_within_plan", "replays_take_nothing", "flush_gives_back")}
    found = bench.figures()
    assert found["graph_driver"] == 12 and found["graph_pool"] == 8
    graphs = [line for line in bench.lines if "figure" in line and "graph_pool" in line["figure"]]
    assert found["graphs"] == 20 * len(graphs)


@pytest.mark.parametrize("leak, failed", [
    (dict(in_capture=30 * MIB), "graphs_are_within_plan"),
    (dict(in_replay=MIB), "replays_take_nothing"),
    (dict(in_capture=20 * MIB, for_good=40 * MIB), "flush_gives_back"),
])
def test_memory_that_is_lost_is_found(tmp_path, leak, failed):
    bench = Bench(tmp_path, device=_leaky(**leak))
    memory.run(bench.rig)
    assert bench.failed() == {failed}
