"""Weights to 8-bit integers with one scale a channel (numpy only)."""

from __future__ import annotations

import numpy as np

LARGEST = {8: 127, 7: 63}


def quantise(weight: np.ndarray, bits: int, divisors: np.ndarray | None = None
             ) -> tuple[np.ndarray, np.ndarray]:
    """(values int8 [N, K], scales float32 [N]) of a float32 weight [N, K].

    values · scales[:, None] is the weight times `divisors` (float32 [K], of its inputs), each
    element within half a step. A row's largest element is ±127, or ±63 with 7 bits: such weights
    do not saturate on CPUs without VNNI. A row of zeros has the scale 1.
    """
    if divisors is not None:
        weight = weight * divisors
    largest = np.abs(weight).max(axis=1)
    scales = np.where(largest > 0, largest / np.float32(LARGEST[bits]), 1).astype(np.float32)
    return np.rint(weight / scales[:, None]).astype(np.int8), scales


def dequantise(values: np.ndarray, scales: np.ndarray, divisors: np.ndarray | None = None
               ) -> np.ndarray:
    """The float32 weight [N, K] that the integers stand for."""
    weight = values.astype(np.float32) * scales[:, None]
    return weight if divisors is None else weight / divisors
