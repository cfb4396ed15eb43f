"""Single texts: a graph's replay against the same network compiled and as it is written."""

from __future__ import annotations

from collections.abc import Sequence

from model.device.ladder import Shape
from model.programs.on_device import PRECISIONS
from tools.gpucheck.asking import Took, ask_in_turn
from tools.gpucheck.networks import Model, Networks, random_model, rows_of
from tools.gpucheck.report import percentile
from tools.gpucheck.rig import Rig

# What is promised of the replay of one text of at most `LONGEST` tokens.
FASTER, LONGEST, SPREAD = 3.0, 128, 1.2


def run(rig: Rig) -> None:
    """Both networks, one text of each length."""
    for net in (rig.sizes.small, rig.sizes.base):
        measure(rig, random_model(net))


def measure(rig: Rig, model: Model) -> None:
    """Three programs on one device, asked in turn, then the replays alone."""
    port = rig.open()
    networks = Networks(port, model, port.dtypes[0])
    known = [Shape(length, 1) for length in sorted(rig.sizes.latency_lengths, reverse=True)]
    programs = {"replay": networks.program(known), "torchscript": networks.program(known),
                "eager": networks.program(known, is_scripted=False)}
    programs["replay"].prepare()
    programs["torchscript"].prepare(eager=frozenset(known))
    programs["eager"].prepare(eager=frozenset(known))
    port.seal()
    for shape in reversed(known):
        rows = rows_of(shape, [], model.card["vocab_size"], seed=0)
        taken = ask_in_turn(programs, rows, rig.sizes.latency_calls, rig.clock)
        replays = ask_in_turn({"replay": programs["replay"]}, rows, rig.sizes.replays,
                              rig.clock)["replay"]
        tell(rig, model.name, PRECISIONS[networks.dtype], shape.length, taken, replays)
    port.flush()


def tell(rig: Rig, model: str, precision: str, length: int, taken: dict[str, list[Took]],
         replays: Sequence[Took]) -> None:
    """Figures of `taken` in turn and of `replays` alone, and the two targets."""
    facts = {"model": model, "precision": precision, "batch": 1, "tokens": length}
    for way, calls in [*taken.items(), ("replay_alone", replays)]:
        for clock, times in (("events", [call.device_ms for call in calls]),
                             ("wall", [call.wall_ms for call in calls])):
            for percent in (50, 99):
                rig.report.figure(f"{way}_p{percent}", percentile(times, percent), "ms",
                                  clock=clock, calls=len(times), **facts)
    if length > LONGEST:
        return
    name = f"{model} 1 × {length}"
    replay, eager = (percentile([call.device_ms for call in taken[way]], 50)
                     for way in ("replay", "eager"))
    rig.report.target("replay_is_faster", replay * FASTER <= eager,
                      f"{name}: replay {replay:.4g} ms, eager {eager:.4g} ms (medians by events); "
                      f"promised: {FASTER:g} times faster")
    middle, late = (percentile([call.device_ms for call in replays], percent)
                    for percent in (50, 99))
    rig.report.target("replay_is_steady", late <= SPREAD * middle,
                      f"{name}: p50 {middle:.4g} ms, p99 {late:.4g} ms of {len(replays)} replays; "
                      f"promised: p99 at most {SPREAD:g} × p50")
