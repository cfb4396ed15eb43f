"""What torch's errors mean, as they come and out of TorchScript."""

import pytest
import torch

from model.device.port import DeviceBroken, OutOfMemory
from model.device.torch_errors import meaning, said
from model.programs.script import script


class Failing(torch.nn.Module):
    """Raises, from inside TorchScript, what it is told to."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    @torch.jit.ignore
    def fail(self, x: torch.Tensor) -> torch.Tensor:
        raise ERRORS[self.number]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fail(x)


ERRORS = [OutOfMemory("launching kernel a: CUDA_ERROR_OUT_OF_MEMORY (2)"),
          torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore words"),
          RuntimeError("CUDA error: out of memory\nMore words"),
          DeviceBroken("launching kernel a: CUDA_ERROR_LAUNCH_FAILED (719)"),
          RuntimeError("CUDA error: an illegal memory access was encountered\nMore words")]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_torch_errors_keep_their_meaning_through_torchscript(number):
    with pytest.raises(RuntimeError) as raised:
        script(Failing(number))(torch.ones(1))
    found = meaning(raised.value)
    assert isinstance(found, OutOfMemory if number < 3 else DeviceBroken)
    assert str(ERRORS[number]).splitlines()[0] in str(found)


def test_torch_errors_of_compiled_operations_say_what_failed():
    class Wrong(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(3)

    with pytest.raises(RuntimeError) as raised:
        script(Wrong())(torch.ones(2))
    assert said(raised.value) == "shape '[3]' is invalid for input of size 2"


@pytest.mark.parametrize("error, words, kind", [
    (torch.OutOfMemoryError("CUDA out of memory. Tried\nmore"), "CUDA out of memory. Tried",
     OutOfMemory),
    (RuntimeError("CUDA error: out of memory"), "CUDA error: out of memory", OutOfMemory),
    (RuntimeError("CUDA error: unspecified launch failure\nmore"),
     "CUDA error: unspecified launch failure", DeviceBroken),
    (RuntimeError(), "RuntimeError", DeviceBroken)])
def test_torch_errors_as_they_come_are_their_first_line(error, words, kind):
    found = meaning(error)
    assert type(found) is kind and str(found) == words
