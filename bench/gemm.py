"""The matrix products that torch offers on this machine, each as raw as it can be called."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

Product = Callable[[], Tensor]
TIMED_S = 0.05
TIMED_RUNS_LEAST = 3


def _stored(x: Tensor, weight: Tensor) -> Product:
    return lambda: torch.nn.functional.linear(x, weight)


def _onednn(x: Tensor, weight: Tensor) -> Product:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, len(x))
    return lambda: torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")


def _fbgemm_fp16(x: Tensor, weight: Tensor) -> Product:
    packed = torch.ops.quantized.linear_prepack_fp16(weight, None)
    return lambda: torch.ops.quantized.linear_dynamic_fp16(x, packed)


def _bytes(weight: Tensor) -> tuple[Tensor, Tensor]:
    """int8 weights, a scale a row."""
    scale = weight.abs().amax(1) / 127
    return (weight / scale[:, None]).round_().to(torch.int8), scale


def _fbgemm_int8(x: Tensor, weight: Tensor) -> Product:
    whole, scale = _bytes(weight)
    torch.backends.quantized.engine = "fbgemm"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the tensor kind's end, which prepacking still needs
        packed = torch.ops.quantized.linear_prepack(torch._make_per_channel_quantized_tensor(
            whole, scale.double(), torch.zeros(len(scale), dtype=torch.long), 0), None)
    call = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
    return lambda: call(x, 1 / 32, 128, packed)


def _onednn_int8(x: Tensor, weight: Tensor) -> Product:
    whole, scale = _bytes(weight)
    packed = torch.ops.onednn.qlinear_prepack(whole, [len(x), x.size(1)])
    given = (x * 32 + 128).clamp_(0, 255).to(torch.uint8)
    zeros = torch.zeros(len(scale), dtype=torch.int32)
    return lambda: torch.ops.onednn.qlinear_pointwise(
        given, 1 / 32, 128, packed, scale, zeros, None, 1.0, 0, torch.float32, "none", [], "")


def _bf16(make: Callable[[Tensor, Tensor], Product]) -> Callable[[Tensor, Tensor], Product]:
    return lambda x, weight: make(x.bfloat16(), weight.bfloat16())


class Unoffered(Exception):
    """torch or the machine has no such kernel."""


# Kernel -> the precision of the programs that it serves, and how a call is made ready.
KERNELS: Mapping[str, tuple[str, Callable[[Tensor, Tensor], Product]]] = {
    "MKL fp32": ("fp32", _stored),
    "oneDNN fp32, packed": ("fp32", _onednn),
    "fbgemm fp16 weights": ("fp16", _fbgemm_fp16),
    "oneDNN bf16": ("bf16", _bf16(_stored)),
    "oneDNN bf16, packed": ("bf16", _bf16(_onednn)),
    "fbgemm int8, quantises": ("int8", _fbgemm_int8),
    "oneDNN int8, u8 to fp32": ("int8", _onednn_int8),
}


class Ready:
    """The products of some (M, N, K), each prepared for a kernel."""

    def __init__(self, kernel: str, shapes: Iterable[tuple[int, int, int]]) -> None:
        """Unoffered where torch or the machine does not have the kernel."""
        self.operations, self._products = 0, []
        generator = torch.Generator().manual_seed(0)
        for rows, outputs, inputs in shapes:
            x = torch.randn(rows, inputs, generator=generator)
            weight = torch.randn(outputs, inputs, generator=generator)
            try:
                product = KERNELS[kernel][1](x, weight)
                product()
            except (RuntimeError, AttributeError, NotImplementedError) as error:
                raise Unoffered(kernel) from error
            self.operations += 2 * rows * outputs * inputs
            self._products.append(product)

    def rate(self) -> float:
        """GOP/s over all of them, 2·M·N·K operations each; each is timed for a moment and its
        least processor time counts."""
        return self.operations / sum(map(_least_s, self._products)) / 1e9


def _least_s(product: Product) -> float:
    took: list[float] = []
    ends = time.perf_counter() + TIMED_S
    while time.perf_counter() < ends or len(took) < TIMED_RUNS_LEAST:
        begun = time.thread_time()
        product()
        took.append(time.thread_time() - begun)
    return min(took)
