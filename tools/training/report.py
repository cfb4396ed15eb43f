"""What a model gets right and wrong on texts it has not seen, and progress till then."""

import sys
import time
from collections.abc import Sequence
from typing import NamedTuple


class Report(NamedTuple):
    """`confusion[true][predicted]` counts texts."""

    names: list[str]
    confusion: list[list[int]]

    @property
    def accuracy(self) -> float:
        right = sum(row[index] for index, row in enumerate(self.confusion))
        return right / max(1, sum(map(sum, self.confusion)))

    def recall(self, label: int) -> float | None:
        """The share of this label's texts that were found; None where there are none."""
        texts = sum(self.confusion[label])
        return self.confusion[label][label] / texts if texts else None

    def line(self) -> str:
        """Accuracy and recalls in one line."""
        return ", ".join([f"accuracy {self.accuracy:.4f}",
                          *(f"recall {name} {_share(self.recall(index))}"
                            for index, name in enumerate(self.names))])

    def text(self) -> str:
        """Accuracy, recall a label and the confusion matrix, for people."""
        wide = max(8, *map(len, self.names))
        lines = [f"accuracy {self.accuracy:.4f} on {sum(map(sum, self.confusion))} texts"]
        lines += [f"recall {name}: {_share(self.recall(index))}"
                  for index, name in enumerate(self.names)]
        lines.append(" ".join([f"{'true, predicted':<{wide + 8}}",
                               *(f"{name:>{wide}}" for name in self.names)]))
        lines += [" ".join([f"{name:<{wide + 8}}", *(f"{count:>{wide}}" for count in row)])
                  for name, row in zip(self.names, self.confusion)]
        return "\n".join(lines)


def compare(names: list[str], labels: Sequence[int], predicted: Sequence[int]) -> Report:
    """Counts the texts of each (label, predicted label)."""
    confusion = [[0] * len(names) for _ in names]
    for label, guess in zip(labels, predicted):
        confusion[label][guess] += 1
    return Report(names, confusion)


def total(reports: Sequence[Report]) -> Report:
    """All texts of several reports over the same labels."""
    names = reports[0].names
    return Report(names, [[sum(report.confusion[row][column] for report in reports)
                           for column in range(len(names))] for row in range(len(names))])


def _share(value: float | None) -> str:
    return "no texts" if value is None else f"{value:.4f}"


class Progress:
    """Steps, rate, loss, time left: one line rewritten, or few lines where nobody watches."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._started = self._shown = time.monotonic()
        self._is_terminal = sys.stderr.isatty()
        self._loss = 0.0

    def __call__(self, done: int, total: int, loss: float) -> None:
        self._loss = loss if not self._loss else 0.95 * self._loss + 0.05 * loss
        now = time.monotonic()
        if done < total and now - self._shown < (0.2 if self._is_terminal else 10.0):
            return
        self._shown = now
        rate = done / max(now - self._started, 1e-9)
        line = (f"{self._prefix}step {done}/{total}  {rate:.1f} steps/s  loss {self._loss:.3f}  "
                f"{(total - done) / rate:.0f} s left")
        end = "\n" if done == total or not self._is_terminal else ""
        print(("\r\x1b[K" if self._is_terminal else "") + line, end=end, file=sys.stderr,
              flush=True)
