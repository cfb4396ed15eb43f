"""Codes of rows by numpy, and rows to make them of."""

from __future__ import annotations

import numpy as np

LEAST = -0.17  # of GELU


def quantise_slowly(x: np.ndarray, least: float = 0.0, factors: np.ndarray | None = None
                    ) -> tuple[np.ndarray, np.ndarray]:
    """Int8Product's formulas."""
    x = x if factors is None else x * factors
    if least < 0:
        reach = np.maximum(x.max(1), np.float32(least / -16 * 238))
        if factors is not None:
            reach = np.maximum(reach, x.min(1) * np.float32(238 / -16))
        steps, zero_point = np.float32(238), 16
    else:
        reach = np.maximum(np.abs(x).max(1), np.float32(1e-10))
        steps, zero_point = np.float32(127), 128
    return np.rint(x * (steps / reach)[:, None]) + zero_point, reach


def rows_of(seed: int, count: int, width: int, least: float = 0.0) -> np.ndarray:
    """Rows of very different sizes, as far down as `least` where that is below zero."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, width)) * np.exp(3 * rng.standard_normal((count, 1)))
    return np.maximum(x, least if least < 0 else -np.inf).astype(np.float32)


def factors_of(seed: int, width: int, has_factors: bool) -> np.ndarray | None:
    rng = np.random.default_rng(seed)
    return np.exp(rng.standard_normal(width)).astype(np.float32) if has_factors else None
