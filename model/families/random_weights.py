"""Weights of no meaning in the shapes of a family: for speed, and to compare arithmetic by."""

from __future__ import annotations

from typing import Any

import numpy as np

from loader.family import FamilySpec

# Of weights: with BERT-base's width, activations stay of the size that trained ones have.
DEVIATION = 0.03
CLASSIFIER = 0.1   # logits with a deviation of some 2


def random_weights(family: FamilySpec, settings: dict[str, Any], labels: int, seed: int = 0,
                   deviation: float = DEVIATION) -> dict[str, np.ndarray]:
    """Tensors by name, float32; the same for a seed."""
    rng, tensors = np.random.default_rng(seed), {}
    for name, shape in family.tensors(settings, labels).items():
        if name.endswith("LayerNorm.weight"):
            tensors[name] = np.ones(shape, np.float32)
        elif name.endswith("bias"):
            tensors[name] = np.zeros(shape, np.float32)
        else:
            tensors[name] = rng.standard_normal(shape, np.float32)
            tensors[name] *= CLASSIFIER if name.startswith("classifier") else deviation
    return tensors
