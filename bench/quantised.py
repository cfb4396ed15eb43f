"""A checkpoint's weights with the encoder's products in 8-bit integers, simply rounded: for timing.

What is served comes from `tools.build`, which measures what rounding does to the answers. Speed
does not depend on the values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loader.safetensors import file_bytes, float32_array, open_image


def is_quantised(weights: Any) -> bool:
    """True for an image that holds 8-bit integers already, as a bundle's does."""
    return any(tensor.dtype == "I8" for tensor in open_image(weights).values())


def quantised(weights: Any, bits: int) -> bytes:
    """The image `weights` with a scale a channel for every product of the encoder; 7 bits are for
    CPUs where sums of 8-bit products saturate."""
    largest = (1 << (bits - 1)) - 1
    arrays = {}
    for name, tensor in open_image(weights).items():
        array = float32_array(weights, tensor)
        if ".layer." in name and name.endswith(".weight") and array.ndim == 2:
            scales = np.maximum(np.abs(array).max(1), np.float32(1e-12)) / np.float32(largest)
            arrays[name] = np.rint(array / scales[:, None]).astype(np.int8)
            arrays[name.removesuffix("weight") + "scales"] = scales
        else:
            arrays[name] = array
    return file_bytes(arrays)
