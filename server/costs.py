"""What a batch costs in milliseconds: fitted to measured points, refined by every batch (pure).

cost(texts, tokens) = (base + text · texts + token · tokens) · drift · shape[size class], where the
line is fitted once to the points that an engine measured. The drift follows what any batch really
took, so that a machine which slows down is slower for sizes too that do not come up; the shape,
slowly, what batches of one size took beside the others. Example: base 1, text 0.1, token 0.02:
4 texts of 50 tokens cost 1 + 0.4 + 4 = 5.4 ms.
"""

import math
from collections.abc import Sequence

# How far one batch moves the drift, and the shape: about the last 16 count, and the last 128.
DRIFT_RATE, SHAPE_RATE = 1 / 16, 1 / 128
# A single batch on a preempted core must not make everything look ten times as dear.
WORST_RATIO, BEST_RATIO = 4.0, 0.25
SIZE_CLASSES = 24
SMALLEST_MS = 0.001
# Estimated work by which a pace is known: what two engines do in half a second.
PACE_MEMORY_MS = 1000.0


class CostModel:
    """Milliseconds for a batch of `texts` texts with `tokens` tokens in all."""

    def __init__(self, points: Sequence[tuple[int, int, float]]) -> None:
        self.base_ms, self.text_ms, self.token_ms = _fit(points)
        self._drift = 1.0
        self._shape = [1.0] * SIZE_CLASSES

    def estimate_ms(self, texts: int, tokens: int) -> float:
        # Asked several times a job, so nothing is called that is not needed.
        size_class = tokens.bit_length()
        correction = self._drift * self._shape[
            size_class if size_class < SIZE_CLASSES else SIZE_CLASSES - 1]
        ms = (self.base_ms + self.text_ms * texts + self.token_ms * tokens) * correction
        return ms if ms > SMALLEST_MS else SMALLEST_MS

    def most_ms(self, texts: int, tokens: int) -> float:
        """No batch of so many texts and tokens, or of fewer, is estimated to take longer, nor
        shares in one."""
        return (self.base_ms + self.text_ms * texts + self.token_ms * tokens) * max(
            1.0, self._drift * max(self._shape)) + SMALLEST_MS

    def share_ms(self, tokens: int, texts: int = 1) -> float:
        """What more texts of `tokens` tokens add to a batch that runs anyway, by the line: how a
        batch of one's size really fares says nothing of it (Pace does)."""
        ms = self.text_ms * texts + self.token_ms * tokens
        return ms if ms > SMALLEST_MS else SMALLEST_MS

    def shares_ms(self, texts: Sequence[int]) -> list[float]:
        """`share_ms` of each of texts of so many tokens."""
        text_ms, token_ms = self.text_ms, self.token_ms
        return [ms if (ms := text_ms + token_ms * tokens) > SMALLEST_MS else SMALLEST_MS
                for tokens in texts]

    def observe(self, texts: int, tokens: int, took_ms: float) -> None:
        """Learns from a finished batch."""
        ratio = took_ms / self.estimate_ms(texts, tokens)
        excess = min(max(ratio, BEST_RATIO), WORST_RATIO) - 1.0
        self._drift *= 1.0 + DRIFT_RATE * excess
        self._shape[min(tokens.bit_length(), SIZE_CLASSES - 1)] *= 1.0 + SHAPE_RATE * excess


class Pace:
    """What an engine really takes for a millisecond of estimated work, with all that is between
    two batches; of the work of the last second or so."""

    def __init__(self, first: float = 1.0) -> None:
        self._work_ms, self._took_ms = PACE_MEMORY_MS, first * PACE_MEMORY_MS

    @property
    def value(self) -> float:
        return self._took_ms / self._work_ms

    def observe(self, work_ms: float, took_ms: float, estimate_ms: float) -> None:
        """Learns from a batch that an engine was busy with for `took_ms`. Where that is more than
        what was expected of the batch it counts for so much more, so that a machine that has become
        slow is known as soon as one that is fast again."""
        took_ms = min(took_ms, max(WORST_RATIO * self.value * work_ms, WORST_RATIO))
        weight = max(took_ms / max(estimate_ms, SMALLEST_MS), 1.0)
        keep = PACE_MEMORY_MS / (PACE_MEMORY_MS + weight * work_ms)
        self._work_ms = keep * (self._work_ms + weight * work_ms)
        self._took_ms = keep * (self._took_ms + weight * took_ms)


def _fit(points: Sequence[tuple[int, int, float]]) -> tuple[float, float, float]:
    """Least squares for (base, text, token) by coordinate descent, none of them negative.

    Errors are relative, so that small batches, which are the many, fit as well as large ones.
    """
    usable = [point for point in points if point[2] > 0]
    if not usable:
        return 1.0, 0.0, 0.0
    columns = [[1 / ms for _, _, ms in usable], [texts / ms for texts, _, ms in usable],
               [tokens / ms for _, tokens, ms in usable]]
    solution = [0.0, 0.0, 0.0]
    residual = [1.0] * len(usable)
    for _ in range(500):
        for axis, column in enumerate(columns):
            norm = math.fsum(value * value for value in column)
            if not norm:
                continue
            # fsum: the same on every Python, which sum() is not since 3.12.
            step = math.fsum(map(float.__mul__, column, residual)) / norm
            step = max(step, -solution[axis])
            solution[axis] += step
            residual = [left - step * value for left, value in zip(residual, column)]
    return solution[0], solution[1], solution[2]
