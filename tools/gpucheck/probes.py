"""Each operation of the networks on the device, as it is and captured, against float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from model.device.port import Port
from model.programs.attention import attention
from model.programs.on_device import PRECISIONS
from tools.gpucheck.rig import Rig

# Of the largest value of a result. 16 bits carry 11 and 8 binary digits.
TOLERANCES = {torch.float32: 5e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
ROWS, WIDTH, WIDER = 70, 128, 512       # of the products; no multiple of a tile in rows
LENGTHS, LENGTH, HEADS = (48, 1, 17, 33), 48, 4
HEAD_SIZES = (32, 64)
# What keys behind a text's end hold: whoever reads them is far off.
BEHIND = 50.0


@dataclass(frozen=True)
class Probe:
    """`call` of `inputs` (moved to the device in the type under test, integers as they are) should
    be `wanted`, float64."""

    name: str
    call: Callable[..., Tensor]
    inputs: list[Tensor]
    wanted: Tensor


def run(rig: Rig) -> None:
    """All probes in every arithmetic of the device."""
    port = rig.open()
    for dtype in port.dtypes:
        for probe in [*operations(dtype), *attentions(port.capability, dtype)]:
            judge(rig, port, probe, dtype)
    port.flush()


def judge(rig: Rig, port: Port, probe: Probe, dtype: torch.dtype) -> None:
    """One claim, of the call as it is and of its graph."""
    found = {"as it is": None, "captured": None}
    found["as it is"], found["captured"] = results(port, probe, dtype)
    scale = float(probe.wanted.abs().max())
    worst = {way: float((result - probe.wanted).abs().max()) / scale
             for way, result in found.items()}
    name = f"{probe.name}_{PRECISIONS[dtype]}"
    rig.report.claim(name, all(value <= TOLERANCES[dtype] for value in worst.values()),
                     "; ".join(f"{way} {value:.2g} off" for way, value in worst.items())
                     + f" of the largest value, allowed {TOLERANCES[dtype]:g}")


def results(port: Port, probe: Probe, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(as it is, by a graph): float64 in the shape of what is wanted."""
    inputs = [port.upload(value.to(dtype) if value.is_floating_point() else value)
              for value in probe.inputs]
    count = probe.wanted.numel()
    output, host = port.empty((count,), torch.float32), port.staging(count, torch.float32)

    def work() -> Tensor:
        result = probe.call(*inputs)
        output.copy_(result.float().reshape(count))
        return result

    port.low.warm(work)
    as_it_is = _fetch(port, host, output)
    graph = port.low.capture(work, 1)
    host.fill_(float("nan"))
    port.low.put(output, host)
    port.wait()
    port.low.replay(graph)
    captured = _fetch(port, host, output)
    return as_it_is.view(probe.wanted.shape), captured.view(probe.wanted.shape)


def _fetch(port: Port, host: Tensor, output: Tensor) -> Tensor:
    port.low.get(host, output)
    port.wait()
    return host.double()


def operations(dtype: torch.dtype) -> list[Probe]:
    """What networks are made of; wanted is the same call in float64 on the host, of inputs as the
    type holds them."""
    generator = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype).float()

    x, table = noise(ROWS, WIDTH), noise(ROWS, WIDTH)
    weight, bias, gain = noise(WIDER, WIDTH), noise(WIDER), noise(WIDTH)
    picked = torch.randint(0, ROWS, (WIDER,), generator=generator, dtype=torch.int32)
    calls: list[tuple[str, Callable[..., Tensor], list[Tensor]]] = [
        ("product", functional.linear, [x, weight, bias]),
        ("norm", lambda x, gain: functional.layer_norm(x, [WIDTH], gain, gain, 1e-12), [x, gain]),
        ("gelu", functional.gelu, [4 * x]),
        ("tanh", torch.tanh, [x]),
        ("rows", functional.embedding, [picked, table]),
        ("softmax", lambda x: torch.softmax(x, 1), [4 * x]),
    ]
    return [Probe(name, call, inputs, call(*(value.double() if value.is_floating_point() else value
                                             for value in inputs)))
            for name, call, inputs in calls]


def attentions(capability: tuple[int, int], dtype: torch.dtype) -> list[Probe]:
    """The kernel that networks take here, for texts of unequal lengths: queries of all tokens, and
    of the first ones."""
    found = []
    for size in HEAD_SIZES:
        kernel = attention(capability, dtype, size)
        generator = torch.Generator().manual_seed(size)
        query, key, value = torch.randn(3, len(LENGTHS), LENGTH, HEADS, size, generator=generator) \
            .to(dtype).float()
        for text, length in enumerate(LENGTHS):
            key[text, length:] = value[text, length:] = BEHIND
        for width, name in ((LENGTH, "all"), (1, "firsts")):
            found.append(_attention(f"attention_{type(kernel).__name__.lower()}_{size}_{name}",
                                    kernel, query[:, :width], key, value, width))
    return found


def _attention(name: str, kernel: Callable[..., Tensor], query: Tensor, key: Tensor,
               value: Tensor, width: int) -> Probe:
    texts = len(LENGTHS)
    lengths = torch.tensor(LENGTHS, dtype=torch.int32)
    starts = torch.arange(texts + 1, dtype=torch.int32) * width
    key_starts = torch.arange(texts + 1, dtype=torch.int32) * LENGTH
    # What comes out for queries behind a text's end means nothing: only the others are looked at.
    counted = torch.tensor([text * width + place for text, length in enumerate(LENGTHS)
                            for place in range(min(length, width))])

    def call(query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, starts: Tensor,
             key_starts: Tensor, counted: Tensor) -> Tensor:
        return kernel(query, key, value, starts, key_starts, lengths, width,
                      LENGTH).index_select(0, counted)

    inputs = [query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1), lengths, starts,
              key_starts, counted]
    return Probe(name, call, inputs, _slowly(query, key, value, LENGTHS))


def _slowly(query: Tensor, key: Tensor, value: Tensor, lengths: Sequence[int]) -> Tensor:
    """Attention text by text in float64: [counted queries, H, d]."""
    rows = []
    for text, length in enumerate(lengths):
        q = query[text, :length].double().transpose(0, 1)                   # [H, q, d]
        k, v = (one[text, :length].double().transpose(0, 1) for one in (key, value))
        scores = q @ k.transpose(1, 2) / query.size(3) ** 0.5
        rows.append((torch.softmax(scores, 2) @ v).transpose(0, 1))
    return torch.cat(rows)
