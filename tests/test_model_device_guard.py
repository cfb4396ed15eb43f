"""What a CUDA graph cannot hold is found on CPU tensors; what it can is let through."""

import pytest
import torch

from model.device.guard import CaptureGuard, Uncapturable
from model.programs.script import script

X = torch.arange(6.0)
FORBIDDEN = [
    ("item", lambda: X[0].item()), ("bool", lambda: bool(X[0] > 1)), ("int", lambda: int(X[2])),
    ("nonzero", lambda: X.nonzero()), ("mask index", lambda: X[X > 2]),
    ("masked_select", lambda: X.masked_select(X > 2)), ("unique", lambda: X.unique()),
    ("mask store", lambda: X.clone().__setitem__(X > 2, torch.tensor(1.0))),
    ("repeat by counts", lambda: torch.repeat_interleave(X, torch.tensor([1] * 6))),
    ("random", lambda: torch.rand(3)), ("dropout", lambda: torch.dropout(X, 0.5, True)),
    ("other device", lambda: X.to("meta")),
]


@pytest.mark.parametrize("name, call", FORBIDDEN, ids=[row[0] for row in FORBIDDEN])
def test_guard_call_that_needs_a_value_is_found(name, call):
    with pytest.raises(Uncapturable), CaptureGuard():
        call()


def test_guard_arithmetic_and_indices_pass():
    with CaptureGuard():
        y = torch.nn.functional.layer_norm(X.view(2, 3), [3])
        assert y[torch.tensor([0, 1])].shape == (2, 3)
        torch.nn.functional.scaled_dot_product_attention(*[X.view(1, 1, 2, 3)] * 3)


def test_guard_looks_into_scripts():
    class Asks(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if bool(x[0] > 0) else x

    guard = CaptureGuard()
    with pytest.raises(RuntimeError), guard:
        script(Asks())(X)
    assert "cannot be captured" in guard.found
