"""Probes of 8-bit operators: what is right is adopted, what is wrong or missing is not."""

import pytest
import torch

from model.device.port import DeviceBroken
from model.device.recorder import Recorder
from model.device.script import Script
from model.programs import operators
from model.programs.eight_bits import CODES
from model.programs.operators import ROW_OPS, Unfit, find, row_op_fault
from model.programs.row_ops import PlainRows

WIDES = [torch.float16, torch.bfloat16, torch.float32]


class _Device(Recorder):
    """A recorder whose own row kernels are what a test gives it."""

    def __init__(self, make=None) -> None:
        super().__init__(Script())
        self._make = make

    def row_kernels(self, wide, codes):
        return self._make(codes, wide) if self._make else None


def _find(kind, wide=torch.float16, device=None, hidden=64, intermediate=96):
    with torch.inference_mode():
        return find(kind, wide, device or _Device(), hidden, intermediate)


@pytest.mark.parametrize("wide", WIDES)
@pytest.mark.parametrize("kind", CODES)
def test_operators_that_are_right_are_found(kind, wide):
    found = _find(kind, wide)
    assert (found.kind, found.wide, found.product_type) == (kind, wide, wide)
    assert "torch._int_mm" in found.report[0] or "torch._scaled_mm" in found.report[0]
    assert found.report[1] == "row operations: torch's"


@pytest.mark.parametrize("kind, hidden, intermediate", [
    ("int8", 36, 64), ("int8", 64, 100), ("fp8", 40, 64), ("fp8", 64, 72)])
def test_operators_refuse_widths_that_cuda_does_not_take(kind, hidden, intermediate):
    with pytest.raises(Unfit, match="is no multiple of"):
        _find(kind, hidden=hidden, intermediate=intermediate)


def _broken_sums(real):
    def product(codes, weight):
        sums = real(codes, weight)
        sums[3, 5] += 1
        return sums
    return product


def _saturated_sums(real):
    return lambda codes, weight: real(codes, weight).clamp(-(1 << 15), (1 << 15) - 1)


@pytest.mark.parametrize("breaks", [_broken_sums, _saturated_sums])
def test_operators_int_mm_that_is_wrong_is_caught(breaks, monkeypatch):
    monkeypatch.setattr(torch, "_int_mm", breaks(torch._int_mm))
    with pytest.raises(Unfit, match="sums of a product of 64 by 64 are wrong"):
        _find("int8")


def _scales_of_tensors(real):
    """One scale for all rows and columns, as the older operator has."""
    return lambda codes, weight, rows, columns, **more: real(
        codes, weight, rows.mean(), columns.mean(), **more)


def _no_bias(real):
    return lambda *given, **more: real(*given, **{**more, "bias": None})


@pytest.mark.parametrize("breaks", [_scales_of_tensors, _no_bias])
def test_operators_scaled_mm_that_is_wrong_is_caught(breaks, monkeypatch):
    monkeypatch.setattr(torch, "_scaled_mm", breaks(torch._scaled_mm))
    with pytest.raises(Unfit, match="a product of 64 by 64 is .* off"):
        _find("fp8")


def test_operators_scaled_mm_for_bf16_alone_is_used_for_fp16_too(monkeypatch):
    real = torch._scaled_mm

    def product(*given, out_dtype, **more):
        if out_dtype != torch.bfloat16:
            raise RuntimeError("only bf16 high precision output types are supported")
        return real(*given, out_dtype=out_dtype, **more)

    monkeypatch.setattr(torch, "_scaled_mm", product)
    assert _find("fp8").product_type == torch.bfloat16


def test_operators_that_refuse_are_unfit_and_the_device_goes_on(monkeypatch):
    def product(codes, weight):
        raise RuntimeError("_int_mm is only supported on SM75 and later\nmore")

    monkeypatch.setattr(torch, "_int_mm", product)
    device = _Device()
    with pytest.raises(Unfit, match="is refused: _int_mm is only supported on SM75 and later$"):
        _find("int8", device=device)
    assert _find("fp8", device=device).kind == "fp8"


def test_operators_that_break_the_device_are_the_callers():
    device = _Device()
    device.break_down()
    with pytest.raises(DeviceBroken):
        _find("int8", device=device)


@pytest.mark.parametrize("kind", CODES)
def test_operators_row_kernels_that_are_right_are_adopted(kind):
    found = _find(kind, device=_Device(PlainRows))
    assert [line.partition(": ")[2] for line in found.report[1:]] == ["our kernel"] * len(ROW_OPS)


class _Wrong(PlainRows):
    """Row operations of which one, `broken`, is wrong in a way that `how` names."""

    broken, how = "", ""

    def _changed(self, name, found):
        if name != self.broken:
            return found
        parts = list(found) if isinstance(found, tuple) else [found]
        if self.how == "refused":
            raise ValueError("no kernel for this width")
        if self.how == "swapped":       # rows that are each other's
            parts = [part[torch.tensor([1, 0, *range(2, len(part))])] for part in parts]
        elif self.how == "scaled":
            parts[-1] = parts[-1] * 1.01
        elif self.how == "finite":
            parts = [part if part.dtype in CODES.values() else part.nan_to_num(0) for part in parts]
        return tuple(parts) if isinstance(found, tuple) else parts[0]

    def quantise(self, x):
        return self._changed("quantise", super().quantise(x))

    def dequantise_bias(self, *given):
        return self._changed("dequantise_bias", super().dequantise_bias(*given))

    def add_norm_quantise(self, *given):
        return self._changed("add_norm_quantise", super().add_norm_quantise(*given))

    def gelu_quantise(self, *given):
        return self._changed("gelu_quantise", super().gelu_quantise(*given))


# Of 16-bit products only `quantise` is given a row that is not finite, and nothing is dequantised.
WRONGS = [(kind, broken, how) for kind in CODES for broken in ROW_OPS
          for how in ("swapped", "scaled", "refused", "finite")
          if kind == "int8" or broken == "quantise"
          or broken != "dequantise_bias" and how != "finite"]


@pytest.mark.parametrize("kind, broken, how", WRONGS)
def test_operators_row_kernel_that_is_wrong_is_replaced_and_the_others_stay(kind, broken, how,
                                                                            monkeypatch):
    monkeypatch.setattr(_Wrong, "broken", broken)
    monkeypatch.setattr(_Wrong, "how", how)
    found = _find(kind, torch.float32, _Device(_Wrong))
    for line in found.report[1:]:
        name, _, what = line.partition(": ")
        assert what.startswith("torch's, for") == (name == broken), line
    assert ("no kernel for this width" in str(found.report)) == (how == "refused")


def test_operators_row_kernels_that_cannot_be_had_leave_torchs():
    def make(codes, wide):
        raise OSError("libnvrtc.so is not there")

    found = _find("int8", device=_Device(make))
    assert found.report[1] == "row operations: torch's, for libnvrtc.so is not there"
    assert type(found.rows) is PlainRows


@pytest.mark.parametrize("width", [64, 3072])
@pytest.mark.parametrize("wide", WIDES)
@pytest.mark.parametrize("kind", CODES)
def test_operators_probe_of_rows_passes_what_only_rounds_otherwise(kind, wide, width):
    class Rounded(PlainRows):
        """In float64, so that sums and ties fall otherwise."""

        def _whole(self, product, row_scales, column_scales, bias):
            x = product.double()
            return x if row_scales is None else x * row_scales * column_scales + bias

        def _codes(self, x):
            codes, scales = super()._codes(x.double() * (1 + 1e-6))
            return codes, scales.float()

        def add_norm_quantise(self, *given):
            *product, residual, gain, shift, eps = given
            x = self._whole(*product) + residual.double()
            x = torch.nn.functional.layer_norm(x, [x.size(1)], gain.double(), shift.double(), eps)
            return (x.to(self.wide), *self._codes(x))

    device = _Device()
    with torch.inference_mode():
        for name in ROW_OPS:
            assert row_op_fault(name, kind, wide, device, Rounded(CODES[kind], wide), width) == ""


def test_operators_probe_says_that_a_device_has_no_memory_left(tmp_path):
    path = tmp_path / "faults"
    path.write_text("once allocate memory 1\n")
    with pytest.raises(operators.OutOfMemory):
        find("int8", torch.float16, Recorder(Script(str(path))), 64, 64)
