"""bench/roofline.py counts operations and sorts operators; bench/gemm.py's kernels multiply."""

import pytest
import torch

from bench.gemm import KERNELS, Ready, Unoffered
from bench.roofline import COLUMNS, PARTS, layer_products, operations, part_of


def test_roofline_operations_are_as_worked_by_hand():
    settings = {"hidden_size": 2, "intermediate": 8, "layers": 1}
    assert operations(settings, [3]) == 2 * (3 * 2 * 4 + 2 * 4 + 2 * 2 * 8)
    # Another layer works on all tokens; what a text costs does not depend on the others.
    assert operations({**settings, "layers": 2}, [3]) == operations(settings, [3]) + 2 * 3 * 48
    assert operations(settings, [3, 5]) == operations(settings, [3]) + operations(settings, [5])


def test_roofline_products_of_a_layer_are_its_operations():
    settings = {"hidden_size": 6, "intermediate": 24, "layers": 2}
    whole = operations({**settings, "layers": 3}, [10]) - operations(settings, [10])
    assert sum(2 * rows * outputs * inputs
               for rows, outputs, inputs in layer_products(settings, 10)) == whole


@pytest.mark.parametrize("operator, part", [
    ("aten::addmm", "products"), ("mkldnn::_linear_pointwise", "products"),
    ("onednn::qlinear_pointwise", "products"), ("quantized::linear_dynamic_fp16", "products"),
    ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"), ("aten::bmm", "attention"),
    ("aten::_softmax", "softmax"), ("aten::native_layer_norm", "layernorm"),
    ("aten::gelu_", "GELU"), ("aten::amax", "quantise"), ("aten::index_select", "moves"),
    ("aten::add_", "rest"), ("forward", "rest")])
def test_roofline_operator_belongs_to_its_part(operator, part):
    assert part_of(operator) == part


def test_roofline_each_part_has_a_column():
    assert set(COLUMNS) == {part for part, _ in PARTS} | {"rest"}


@pytest.mark.parametrize("kernel", KERNELS)
def test_gemm_kernel_gives_the_product(kernel):
    generator = torch.Generator().manual_seed(1)
    # Within 1, so that 8-bit products stay in 16 bits where the CPU adds two of them there.
    x = torch.randn(48, 64, generator=generator).clamp_(-1, 1)
    weight = torch.randn(32, 64, generator=generator)
    _, make = KERNELS[kernel]
    try:
        Ready(kernel, [(48, 32, 64)])
    except Unoffered:
        pytest.skip(f"this machine has no {kernel}")
    expected = x @ weight.T
    found = make(x, weight)().float()
    assert (found - expected).abs().mean() < 0.1 * expected.abs().mean()


def test_gemm_rate_is_operations_over_time():
    ready = Ready("MKL fp32", [(8, 16, 32), (8, 32, 16)])
    assert ready.operations == 2 * 2 * 8 * 16 * 32
    assert 1e-4 < ready.rate() < 1e4
