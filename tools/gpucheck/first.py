"""The most telling of everything, in the first seconds: what `--quick` runs alone."""

from __future__ import annotations

from model.device.ladder import Shape, shapes
from tools.gpucheck import equality, latency, probes, rates
from tools.gpucheck.networks import random_model, shipped_model
from tools.gpucheck.rig import Rig


def run(rig: Rig) -> None:
    """Operations in the fastest arithmetic; the shipped model's graphs; single texts; one rate of
    each network."""
    port = rig.open()
    dtype = port.dtypes[0]
    for probe in [*probes.operations(dtype), *probes.attentions(port.capability, dtype)]:
        probes.judge(rig, port, probe, dtype)
    port.flush()
    shipped = shipped_model()
    known = shapes(shipped.card["buckets"], rig.sizes.token_cap)
    equality.tell(rig, shipped, dtype, equality.compare(
        rig.open(), shipped, shipped.on_cpu(), dtype, known[::3], rig.sizes.rows_compared))
    small = random_model(rig.sizes.small)
    latency.measure(rig, small)
    length = rig.sizes.rate_length
    batch = max(shape.batch for shape in shapes([length], rig.sizes.token_cap))
    rates.measure(rig, random_model(rig.sizes.base), rig.sizes.base, [Shape(length, batch)])
    rates.measure(rig, small, rig.sizes.small, [Shape(length, batch)])
