"""Probes pass on a device that computes right, and each fails on one that does not."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.gpucheck_rig import Bench
from tools.gpucheck import probes


@pytest.fixture
def names(tmp_path):
    """All claims of the part."""
    bench = Bench(tmp_path)
    probes.run(bench.rig)
    assert set(bench.verdicts().values()) == {"PASS"}
    return set(bench.verdicts())


def test_probes_cover_the_operations_and_both_kinds_of_attention(names):
    assert {"product_fp32", "norm_fp32", "gelu_fp32", "tanh_fp32", "rows_fp32", "softmax_fp32",
            "attention_masked_32_all_fp32", "attention_masked_64_firsts_fp32"} <= names


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_probes_hold_in_every_arithmetic(tmp_path, dtype):
    from model.device.recorder import Recorder
    bench = Bench(tmp_path, device=lambda script, clock: Recorder(script, (dtype,), clock))
    probes.run(bench.rig)
    assert not bench.failed()


class _Liar(torch.nn.Module):
    """Attention that is wrong in one way."""

    def __init__(self, kernel, lie):
        super().__init__()
        self.kernel, self.lie = kernel, lie

    def forward(self, query, key, value, starts, key_starts, lengths, width, key_width):
        if self.lie == "ignores lengths":
            lengths = torch.full_like(lengths, key_width)
        found = self.kernel(query, key, value, starts, key_starts, lengths, width, key_width)
        if self.lie == "one text is another's":
            found = found.clone()
            found[:width] = found[2 * width:3 * width]
        return found * 1.05 if self.lie == "scales" else found


@pytest.mark.parametrize("lie", ["ignores lengths", "one text is another's", "scales"])
def test_probes_attention_that_lies_is_found(tmp_path, monkeypatch, names, lie):
    honest = probes.attention
    monkeypatch.setattr(probes, "attention", lambda *asked: _Liar(honest(*asked), lie))
    bench = Bench(tmp_path)
    probes.run(bench.rig)
    assert bench.failed() == {name.replace("masked", "_liar") for name in names
                              if name.startswith("attention")}


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("lie", ["off by a little", "nan", "one column"])
def test_probes_operation_that_lies_is_found(tmp_path, number, lie):
    bench = Bench(tmp_path)
    probe = probes.operations(torch.float32)[number]

    def call(*inputs):
        found = probe.call(*inputs).clone()
        if lie == "one column":
            found[:, 3] = found[:, 4]
        elif lie == "nan":
            found[7, 1] = torch.nan
        else:
            found *= 1.001
        return found

    probes.judge(bench.rig, bench.rig.open(), probes.Probe(probe.name, call, probe.inputs,
                                                           probe.wanted), torch.float32)
    assert bench.failed() == {f"{probe.name}_fp32"}


@pytest.mark.parametrize("kind", ["stale", "nan"])
def test_probes_replay_that_leaves_its_output_is_found(tmp_path, kind):
    bench = Bench(tmp_path, f"once replay {kind} 3\n")
    probes.run(bench.rig)
    (name,) = bench.failed()
    assert name == "gelu_fp32"


@pytest.mark.parametrize("capability", [(7, 5), (9, 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_probes_have_the_right_shapes_on_cuda(capability, dtype):
    """As far as torch can tell without a device: its own kernels are named there."""
    for probe in [*probes.operations(dtype), *probes.attentions(capability, dtype)]:
        with FakeTensorMode():
            found = probe.call(*(torch.empty(
                value.shape, dtype=dtype if value.is_floating_point() else value.dtype,
                device="cuda") for value in probe.inputs))
        assert found.shape == probe.wanted.shape and found.device.type == "cuda"
