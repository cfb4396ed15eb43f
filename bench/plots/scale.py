"""From values to pixels, and round values for the ticks of an axis (pure)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MINUS = "\u2212"
NICE = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """Maps `low` … `high` to `start` … `end` pixels, by logarithms where `is_log`."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = ((math.log10(max(one, 1e-300)) for one in (self.low, self.high, value))
                            if self.is_log else (self.low, self.high, value))
        if high == low:
            return (self.start + self.end) / 2
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def linear_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Some `count` round values of one step, the first at or below `low`, the last at or above
    `high`. Example: linear_ticks(0, 9.3) is [0, 2, 4, 6, 8, 10]."""
    if not high > low:
        high = low + (abs(low) or 1.0)
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(nice for nice in NICE if nice * power >= rough * (1 - 1e-9)) * power
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, with 2 and 5 or 3 between them where that leaves few, around `low` … `high`,
    both above 0. Example: log_ticks(3, 40) is [2, 5, 10, 20, 50]."""
    decades = math.log10(high / low)
    steps = (1.0, 2.0, 5.0) if decades < 2 else (1.0, 3.0) if decades < 5 else (1.0,)
    first, last = math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1
    every = [step * 10.0 ** power for power in range(first, last + 1) for step in steps]
    begin = max(place for place, value in enumerate(every) if value <= low * (1 + 1e-9))
    stop = min(place for place, value in enumerate(every) if value >= high * (1 - 1e-9))
    return [float(f"{value:.12g}") for value in every[begin:stop + 1]]


def readable(value: float, digits: int = 3) -> str:
    """A number for people: `digits` significant ones, thousands set apart, no exponent.

    Example: 0.012345 is 0.0123, 1234.5 is 1,230 with three digits and 1,234 with four.
    """
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    places = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    text = f"{abs(rounded):,.{places}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return (MINUS if rounded < 0 else "") + text


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places as near to the wanted ones as `gap` between neighbours allows, within low … high as
    far as they fit; order is kept.

    Example: spread([10, 12, 50], 10, 0, 100) is [6, 16, 50].
    """
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    groups: list[list[float]] = []  # [middle, members]
    for place in order:
        groups.append([wanted[place], 1])
        while len(groups) > 1 and _touch(groups[-2], groups[-1], gap):
            second, first = groups.pop(), groups.pop()
            members = first[1] + second[1]
            middle = (first[0] * first[1] + second[0] * second[1]) / members
            groups.append([middle, members])
    found: list[float] = []
    for middle, members in groups:
        found += [middle + (at - (members - 1) / 2) * gap for at in range(int(members))]
    for at in range(len(found)):                 # off the lower end, upwards
        found[at] = max(found[at], low + at * gap)
    for at in range(len(found) - 1, -1, -1):     # off the upper end, downwards
        found[at] = min(found[at], high - (len(found) - 1 - at) * gap)
    result = [0.0] * len(wanted)
    for at, place in enumerate(order):
        result[place] = found[at]
    return result


def _touch(first: Sequence[float], second: Sequence[float], gap: float) -> bool:
    return second[0] - first[0] < (first[1] + second[1]) / 2 * gap
