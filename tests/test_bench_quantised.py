"""bench/quantised.py rounds the encoder's products and nothing else."""

import numpy as np
import pytest

from bench.quantised import is_quantised, quantised
from loader.safetensors import float32_array, open_image
from tests.tiny_bert import make_model


@pytest.mark.parametrize("bits", [7, 8])
def test_quantised_weights_are_within_half_a_step(bits):
    _, weights = make_model()
    image = quantised(weights, bits)
    assert (is_quantised(weights), is_quantised(image)) == (False, True)
    before, after = open_image(weights), open_image(image)
    products = [name for name, tensor in after.items() if tensor.dtype == "I8"]
    assert len(products) == 2 * 6
    for name, tensor in before.items():
        expected, found = float32_array(weights, tensor), float32_array(image, after[name])
        if name not in products:
            assert np.array_equal(expected, found)
            continue
        scales = float32_array(image, after[name.removesuffix("weight") + "scales"])
        assert np.abs(found).max() == (1 << (bits - 1)) - 1
        assert (np.abs(found * scales[:, None] - expected) <= 0.5001 * scales[:, None]).all()
