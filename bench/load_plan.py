"""What an open-loop run sends and when, fixed before it begins: arrivals, priorities, texts (pure).

The arrivals are a Poisson process, as of many users who know nothing of each other: they never wait
for an answer, so a slow server meets the same load as a fast one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

JOIN = " "
DRAWS_MOST = 1000  # of which none fitted its band: the texts are too long for it


@dataclass(frozen=True)
class Band:
    """A share of the requests whose texts have from `least` to `most` bytes of UTF-8."""

    share: float
    least: int
    most: int


@dataclass(frozen=True)
class Arrival:
    """One planned request: seconds from the begin of the run, and which of the texts it sends."""

    at_s: float
    text: int
    high: bool


def read_bands(profile: object) -> tuple[str | None, list[Band]]:
    """(texts file or None, bands) of a traffic profile; ValueError says what is wrong with it.

    {"texts": FILE, "bands": [{"share": 0.82, "bytes": [1, 320]}, …]}; either may be left out,
    shares are relative to their sum, no bands means the texts as they are.
    """
    if not isinstance(profile, Mapping) or set(profile) - {"texts", "bands"}:
        raise ValueError("a traffic profile is an object with texts and bands alone")
    texts = profile.get("texts")
    if texts is not None and not isinstance(texts, str):
        raise ValueError("texts of a traffic profile is the name of a file")
    rows = profile.get("bands", [])
    if not isinstance(rows, list):
        raise ValueError("bands of a traffic profile is a list")
    return texts, [_band(row) for row in rows]


def _band(row: object) -> Band:
    wrong = ValueError(f"the band {json.dumps(row)} is not of the form "
                       '{"share": 0.5, "bytes": [1, 400]} with a share above 0')
    if not isinstance(row, Mapping) or set(row) != {"share", "bytes"}:
        raise wrong
    share, size = row["share"], row["bytes"]
    if (isinstance(share, bool) or not isinstance(share, (int, float)) or not share > 0
            or not isinstance(size, list) or len(size) != 2
            or any(type(end) is not int for end in size) or not 0 < size[0] <= size[1]):
        raise wrong
    return Band(float(share), size[0], size[1])


def assemble(found: Sequence[str], bands: Sequence[Band], count: int,
             chance: random.Random) -> list[str]:
    """`count` texts, each band's share of them exact but for rounding, in no order; short texts
    are joined where a band asks for more bytes. ValueError where no text fits a band."""
    if not bands:
        return list(found)
    whole, made, share = sum(band.share for band in bands), [], 0.0
    for band in bands:
        share += band.share
        while len(made) < round(count * share / whole):
            made.append(_draw(found, band, chance))
    return made


def _draw(found: Sequence[str], band: Band, chance: random.Random) -> str:
    for _ in range(DRAWS_MOST):
        text = chance.choice(found)
        while len(text.encode()) < band.least:
            text += JOIN + chance.choice(found)
        if len(text.encode()) <= band.most:
            return text
    raise ValueError(f"no text of {band.least} to {band.most} bytes comes of these texts; widen "
                     "the band")


def plan(rps: float, duration_s: float, high_ratio: float, texts: int,
         chance: random.Random) -> list[Arrival]:
    """Poisson arrivals of `rps` a second for `duration_s`, in order."""
    arrivals, at = [], chance.expovariate(rps)
    while at < duration_s:
        arrivals.append(Arrival(at, chance.randrange(texts), chance.random() < high_ratio))
        at += chance.expovariate(rps)
    return arrivals
