"""The choice among precisions of a device by what their shapes took."""

import pytest

from model.programs.device_choice import CLEARLY, decide

SHAPES = [(64, 8192), (4, 512), (1, 16)]


def _costs(*ms, shapes=SHAPES):
    return [(texts, tokens, one) for (texts, tokens), one in zip(shapes, ms)]


@pytest.mark.parametrize("times, best", [
    ({"fp16": _costs(10, 1, 0.1)}, "fp16"),
    ({"fp16": _costs(10, 1, 0.1), "fp8": _costs(6, 0.7, 0.09)}, "fp8"),
    ({"fp16": _costs(10, 1, 0.1), "fp8": _costs(9.8, 0.98, 0.098)}, "fp16"),
    ({"fp16": _costs(10, 1, 0.1), "fp8": _costs(7, 0.7, 0.07), "int8": _costs(6.9, 0.69, 0.069)},
     "fp8"),
    ({"fp16": _costs(10, 1, 0.1), "fp8": _costs(7, 0.7, 0.07), "int8": _costs(5, 0.5, 0.05)},
     "int8"),
    ({"fp16": _costs(10, 1, 0.1), "int8": _costs(2, 9, 0.9)}, "fp16"),
], ids=str)
def test_decide_takes_a_less_exact_precision_only_where_it_clearly_wins(times, best):
    assert decide(times)[0] == best


def test_decide_compares_the_shapes_that_all_have():
    times = {"fp16": _costs(10, 1, 0.1), "int8": _costs(0.5, 0.05, shapes=SHAPES[1:])}
    best, why = decide(times)
    assert best == "int8" and "over 2 shapes" in why


def test_decide_says_what_each_took():
    _, why = decide({"fp16": _costs(10, 1, 0.1), "fp8": _costs(5, 0.5, 0.05)})
    assert f"must win by {1 - CLEARLY:.0%}: fp16 1.00, fp8 0.50 of fp16's time" in why
    assert "1 × 16 tokens fp16 0.100, fp8 0.050 ms" in why
    assert "64 × 128 tokens fp16 10.000, fp8 5.000 ms" in why


def test_decide_times_of_zero_are_no_error():
    assert decide({"fp32": _costs(0, 0, 0), "int8": _costs(0, 0, 0)})[0] == "fp32"
