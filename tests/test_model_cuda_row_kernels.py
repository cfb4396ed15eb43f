"""The kernels' own sources, run on the CPU, against float64; and each check sees a broken kernel.

What the device's instructions for conversions do is not simulated but played (simulate.h).
"""

import functools

import pytest
import torch

from model.cuda.cubins import Cubins
from model.cuda.launch import Driver
from model.cuda.row_kernels import Launcher, RowKernels, open_row_kernels
from model.cuda.row_sources import NotSupported
from model.device.port import DeviceBroken
from model.programs.script import script
from tests import row_cases, simulated_cuda
from tests.simulated_cuda import STREAM, NoCompiler, SimulatedCompiler

FP16, BF16, INT8, FP8 = torch.float16, torch.bfloat16, torch.int8, torch.float8_e4m3fn
TYPES = [pytest.param(wide, codes, id=f"{wide}-{codes}".replace("torch.", ""))
         for wide in (FP16, BF16) for codes in (INT8, FP8)]
# Every type with either form of product, and each pair of types with one.
FORMS = [pytest.param(*form, id="{}-{}-{}".format(*form).replace("torch.", ""))
         for form in ((FP16, INT8, True), (BF16, INT8, True), (FP16, FP8, False),
                      (BF16, FP8, False), (FP16, INT8, False), (BF16, FP8, True))]


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """(codes, wide, **options) → row operations on the simulated device."""
    folder = tmp_path_factory.mktemp("simulated")
    try:
        driver = simulated_cuda.build_driver(folder)
    except NoCompiler as error:
        pytest.skip(str(error))
    return functools.partial(simulated_cuda.row_kernels, folder, driver)


@pytest.mark.parametrize("wide, codes", TYPES)
def test_kernels_quantise_awkward_rows(make, wide, codes):
    row_cases.check_quantise(make(codes, wide), wide, 384)


@pytest.mark.parametrize("codes", [INT8, FP8], ids=["int8", "fp8"])
def test_kernels_codes_are_torchs_for_every_half(make, codes):
    row_cases.check_every_half_in_codes(make(codes, FP16), codes)


@pytest.mark.parametrize("wide", [FP16, BF16], ids=["fp16", "bf16"])
def test_kernels_round_as_torch_does(make, wide):
    row_cases.check_every_rounding(make(INT8, wide), wide)


@pytest.mark.parametrize("width", [128, 768, 1152], ids=["narrowest", "one warp", "three warps"])
def test_kernels_quantise_rows_of_any_cut(make, width):
    row_cases.check_quantise(make(INT8, FP16), FP16, width)


def test_kernels_quantise_on_devices_without_a_reduction_of_warps(make):
    row_cases.check_quantise(make(INT8, FP16, (7, 5)), FP16, 1536)


@pytest.mark.parametrize("wide", [FP16, BF16], ids=["fp16", "bf16"])
def test_kernels_dequantise_awkward_rows(make, wide):
    row_cases.check_dequantise(make(INT8, wide), wide, 384)


@pytest.mark.parametrize("wide, codes, of_sums", FORMS)
def test_kernels_add_norm_awkward_rows(make, wide, codes, of_sums):
    ops = make(codes, wide)
    row_cases.check_add_norm(ops, wide, 256, of_sums)
    if not of_sums:
        row_cases.check_add_norm_wide(ops, wide, 256)


def test_kernels_add_norm_of_rows_shared_by_warps(make):
    row_cases.check_add_norm(make(INT8, FP16), FP16, 1024, True)


@pytest.mark.parametrize("wide, codes, of_sums", FORMS)
def test_kernels_gelu_awkward_rows(make, wide, codes, of_sums):
    row_cases.check_gelu(make(codes, wide), wide, 512, of_sums)


def test_kernels_gelu_of_rows_shared_by_warps(make):
    row_cases.check_gelu(make(INT8, FP16), FP16, 1536, True)


add_norm = functools.partial(row_cases.check_add_norm, wide=FP16, width=256, of_sums=True)
add_norm_16 = functools.partial(row_cases.check_add_norm, wide=FP16, width=256, of_sums=False)
gelu = functools.partial(row_cases.check_gelu, wide=FP16, width=512, of_sums=True)
quantise = functools.partial(row_cases.check_quantise, wide=FP16, width=1536)


@pytest.mark.parametrize("check, old, new", [
    pytest.param(add_norm, "v[c].at[i] += add.at[i]", "v[c].at[i]", id="residual dropped"),
    pytest.param(add_norm_16, "(1.0f / WIDTH) + eps", "(1.0f / WIDTH) + 1e-12f", id="wrong eps"),
    pytest.param(add_norm, "row_sum<1>(squares) * (1.0f / WIDTH)",
                 "row_sum<1>(squares) * (1.0f / (WIDTH - 1))", id="another variance"),
    pytest.param(add_norm, "scales.at[i] + add.at[i]", "scales.at[i]", id="bias dropped"),
    pytest.param(gelu, "erff(x * 0.7071", "tanhf(x * 0.7978", id="gelu by tanh"),
    pytest.param(gelu, "largest < infinity ?", "largest != 0x7fc00000u ?", id="infinity passes"),
    pytest.param(quantise, "parts[warp] > v ? parts[warp] : v", "v", id="warps alone"),
    pytest.param(quantise, "__syncthreads();", "", id="no barrier"),
    pytest.param(quantise, "LARGEST / (reach", "126.0f / (reach", id="steps too wide"),
    pytest.param(quantise, "(long long)own_row() * (WIDTH / 4)",
                 "(long long)own_row() * (WIDTH / 8)", id="rows overlap"),
])
def test_kernels_fault_is_seen(make, check, old, new):
    with pytest.raises(AssertionError):
        check(make(INT8, FP16, faults={old: new}))


def test_kernels_thread_that_leaves_its_warp_fails_the_launch(make):
    leaves = {"if (own_row() >= rows) return;": "if (own_place() == 3) return;"}
    ops = make(INT8, FP16, faults=leaves)
    with pytest.raises(DeviceBroken, match="719"):
        row_cases.check_quantise(ops, FP16, 128)


def test_kernels_run_where_torch_does(make):
    make(INT8, FP16).quantise(torch.ones(1, 128, dtype=FP16))
    driver = make.args[1]
    assert driver.stand_in_stream() == STREAM


def test_kernels_no_rows_are_no_launch(make):
    codes, scales = make(INT8, FP16).quantise(torch.empty(0, 128, dtype=FP16))
    assert codes.shape == (0, 128) and scales.shape == (0, 1)


@pytest.mark.parametrize("hidden, intermediate", [(32, 512), (384, 1500), (33792, 512)])
def test_kernels_width_without_a_kernel_is_said_at_start(make, hidden, intermediate):
    with pytest.raises(NotSupported, match="rows of .* numbers have no kernel"):
        make(INT8, FP16).prepare(hidden, intermediate)


def test_kernels_wide_type_without_a_kernel_is_said(make):
    with pytest.raises(NotSupported, match="not torch.float32"):
        make(INT8, torch.float32)


def test_kernels_prepared_widths_compile_nothing_later(make, tmp_path):
    compiler = SimulatedCompiler(tmp_path)
    made = Cubins(compiler, (9, 0), None)
    ops = RowKernels(Launcher(made, Driver(make.args[1]), INT8, FP16, lambda: STREAM))
    ops.prepare(256, 512)
    before = compiler.calls
    row_cases.check_quantise(ops, FP16, 256)
    row_cases.check_add_norm(ops, FP16, 256, True)
    row_cases.check_gelu(ops, FP16, 512, True)
    row_cases.check_dequantise(ops, FP16, 768)
    assert compiler.calls == before > 0


@pytest.mark.parametrize("x", [
    torch.ones(4, 128, dtype=BF16), torch.ones(4, 256, dtype=FP16)[:, :128],
    torch.ones(4 * 128 + 1, dtype=FP16)[1:].view(4, 128)], ids=["type", "slice", "alignment"])
def test_kernels_tensor_that_a_kernel_cannot_read_is_refused(make, x):
    with pytest.raises(ValueError, match="a kernel"):
        make(INT8, FP16).quantise(x)


class Half(torch.nn.Module):
    """A program's part that TorchScript compiles around the kernels."""

    def __init__(self, rows) -> None:
        super().__init__()
        self.rows = rows

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        codes, scales = self.rows.quantise(x * 2)
        return codes.float() * scales


def test_kernels_are_called_from_torchscript(make):
    x = torch.randn(5, 128, generator=torch.Generator().manual_seed(1)).to(FP16)
    found = script(Half(make(INT8, FP16)))(x)
    assert (found - 2 * x.float()).abs().max() <= found.abs().max() / 250


@pytest.mark.gpu
@pytest.mark.parametrize("wide, codes", TYPES)
def test_kernels_on_a_device_are_what_was_simulated(wide, codes):
    torch.cuda.init()
    capability = torch.cuda.get_device_capability()
    if codes == FP8 and capability < (8, 9):
        pytest.skip("this device has no 8-bit floats")
    ops = row_cases.Uploading(open_row_kernels(
        capability, codes, wide, lambda: torch.cuda.current_stream().cuda_stream))
    for hidden in (128, 384, 768, 1024):
        row_cases.check_quantise(ops, wide, hidden)
        row_cases.check_dequantise(ops, wide, 3 * hidden)
        for of_sums in (False, True):
            row_cases.check_add_norm(ops, wide, hidden, of_sums)
            row_cases.check_gelu(ops, wide, 4 * hidden, of_sums)
        row_cases.check_add_norm_wide(ops, wide, hidden)
    row_cases.check_every_rounding(ops, wide)
    if wide == FP16:
        row_cases.check_every_half_in_codes(ops, codes)
