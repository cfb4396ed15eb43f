"""bench/ours.py and bench/eager.py compute the same model, whole, alone and padded."""

import numpy as np
import pytest

from bench.eager import Eager
from bench.ours import Model, Ours
from loader.safetensors import float32_array, open_image
from tests.tiny_bert import make_model
from tests.tiny_checkpoint import WORDS, write_checkpoint

CONFIG = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
          "intermediate_size": 64, "vocab_size": len(WORDS), "max_position_embeddings": 32}
TOLERANCE = {"fp32": 1e-4, "fp16": 0.05, "int8": 0.5}  # of logits with a deviation of some 2


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Model:
    _, image = make_model(labels=2, **CONFIG)
    weights = {name: float32_array(image, tensor) for name, tensor in open_image(image).items()}
    folder = tmp_path_factory.mktemp("ours") / "tiny"
    return Model(str(write_checkpoint(folder, weights, **CONFIG)))


@pytest.fixture(scope="module")
def rows(model) -> list[np.ndarray]:
    return model.encode(["free", "a good bad", "the " * 12, "b c d", "good " * 29])


@pytest.fixture(scope="module")
def expected(model, rows) -> np.ndarray:
    return Eager(model.card, model.tensors()).run(rows, "alone", 1).logits


def test_eager_answers_as_the_families_reference(model, rows, expected):
    from model.families.table import reference
    from model.program import Row
    found = reference(model.card, model.weights, [Row(row, len(row)) for row in rows])
    assert np.abs(found - expected).max() < 1e-4


@pytest.mark.parametrize("mode", ["whole", "buckets", "16"])
def test_eager_padding_changes_nothing_but_rounding(mode, model, rows, expected):
    found = Eager(model.card, model.tensors()).run(rows, mode, 2)
    assert np.abs(found.logits - expected).max() < 1e-4
    assert len(found.cpu_ms) == len(found.wall_ms) == 2


@pytest.mark.parametrize("precision", TOLERANCE)
def test_ours_answers_as_eager_and_the_same_alone(precision, model, rows, expected):
    ours = Ours(model, precision)
    whole = ours.run(rows, "whole", 1).logits
    assert np.abs(whole - expected).max() < TOLERANCE[precision]
    assert np.array_equal(whole, ours.run(rows, "alone", 1).logits)
    assert precision in ours.name


def test_ours_int8_of_a_checkpoint_computes_in_8_bits(model, rows, expected):
    ours = Ours(model, "int8")
    assert any(layer.startswith("int") for layer in ours.kernels)
    assert np.abs(ours.run(rows, "whole", 1).logits - expected).max() > 1e-4
