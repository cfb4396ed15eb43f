"""Tensors out of a sealed image, without a copy where torch can take the bytes as they are."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any

import torch

from loader.safetensors import open_image

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I8": torch.int8}


class Image:
    """The tensors of images by canonical name; of one in several, the last counts. The buffers must
    outlive them."""

    def __init__(self, *buffers: Any) -> None:
        self._tensors = {name: (buffer, tensor) for buffer in buffers
                         for name, tensor in open_image(buffer).items()}

    def names(self) -> Iterable[str]:
        return self._tensors.keys()

    def has(self, name: str) -> bool:
        return name in self._tensors

    def is_quantised(self, name: str) -> bool:
        """True for a tensor of 8-bit integers, whose scales are another tensor."""
        return self._tensors[name][1].dtype == "I8"

    def stored(self, name: str) -> torch.Tensor:
        """The tensor in its stored type, as a view of the (read-only) buffer."""
        buffer, tensor = self._tensors[name]
        with warnings.catch_warnings():  # of a buffer that is not writable: nobody writes here
            warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)
            flat = torch.frombuffer(buffer, dtype=DTYPES[tensor.dtype],
                                    count=math.prod(tensor.shape), offset=tensor.begin)
        return flat.view(tensor.shape)

    def widened(self, name: str) -> torch.Tensor:
        """The tensor as float32: a view, or a copy where 16 bits are stored."""
        return self.stored(name).float()

    def wide_weight(self, product: str) -> torch.Tensor:
        """The weight of a product as float32, whichever form the image has it in."""
        weight = self.widened(f"{product}.weight")
        if self.is_quantised(f"{product}.weight"):
            weight = weight * self.widened(f"{product}.scales")[:, None]
            if self.has(f"{product}.divisors"):
                weight = weight / self.widened(f"{product}.divisors")
        return weight

    def bias(self, product: str) -> torch.Tensor:
        """The bias of a product or norm as float32: zeros where it has none."""
        if self.has(f"{product}.bias"):
            return self.widened(f"{product}.bias")
        return torch.zeros(len(self.stored(f"{product}.weight")))
