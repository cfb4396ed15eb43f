"""bench/load_plan.py plans Poisson arrivals and texts of the lengths that a profile asks for."""

import json
import random

import pytest

from bench.figures import ROOT
from bench.load_plan import Band, assemble, plan, read_bands


def test_load_plan_rate_share_and_order_are_as_asked():
    arrivals = plan(500, 40, 0.15, 7, random.Random(1))
    times = [one.at_s for one in arrivals]
    assert times == sorted(times) and 0 < times[0] and times[-1] < 40
    assert abs(len(arrivals) / 20_000 - 1) < 0.03  # four deviations of a Poisson count
    assert abs(sum(one.high for one in arrivals) / len(arrivals) - 0.15) < 0.015
    assert {one.text for one in arrivals} == set(range(7))


def test_load_plan_gaps_are_exponential():
    times = [one.at_s for one in plan(100, 100, 0, 1, random.Random(2))]
    gaps = [later - sooner for sooner, later in zip(times, times[1:])]
    longer = sum(gap > 0.02 for gap in gaps) / len(gaps)
    assert abs(longer - 0.1353) < 0.015  # exp(-2)


def test_load_plan_same_seed_gives_the_same_plan():
    assert plan(50, 5, 0.5, 9, random.Random(3)) == plan(50, 5, 0.5, 9, random.Random(3))


def test_load_plan_bands_get_their_share_and_their_bytes():
    bands = [Band(82, 1, 10), Band(15, 20, 40), Band(3, 100, 140)]
    made = assemble(["short", "söme more", "x"], bands, 1000, random.Random(4))
    sizes = [len(text.encode()) for text in made]
    assert len(made) == 1000
    for band in bands:
        assert sum(band.least <= size <= band.most for size in sizes) == band.share * 10


def test_load_plan_no_bands_leaves_the_texts():
    assert assemble(["a", "b"], [], 1000, random.Random(5)) == ["a", "b"]


def test_load_plan_band_that_no_text_fits_raises():
    with pytest.raises(ValueError, match="no text of 1 to 3 bytes"):
        assemble(["longer"], [Band(1, 1, 3)], 10, random.Random(6))


def test_load_plan_shipped_profile_is_the_documented_mix():
    name, bands = read_bands(json.loads((ROOT / "bench" / "traffic.json").read_text()))
    assert (ROOT / "bench" / name).is_file()
    shares = [sum(band.share for band in bands if least <= band.least and band.most <= most)
              for least, most in ((1, 600), (601, 2000), (2001, 9999))]
    assert shares == pytest.approx([0.82, 0.15, 0.03])


@pytest.mark.parametrize("profile, words", [
    ([], "an object"),
    ({"text": "a"}, "texts and bands alone"),
    ({"texts": 3}, "name of a file"),
    ({"bands": {}}, "is a list"),
    ({"bands": [3]}, "the band 3 is not"),
    ({"bands": [{"share": 1}]}, "is not of the form"),
    ({"bands": [{"share": 0, "bytes": [1, 2]}]}, "share above 0"),
    ({"bands": [{"share": True, "bytes": [1, 2]}]}, "share above 0"),
    ({"bands": [{"share": float("nan"), "bytes": [1, 2]}]}, "share above 0"),
    ({"bands": [{"share": 1, "bytes": [2, 1]}]}, "is not of the form"),
    ({"bands": [{"share": 1, "bytes": [0, 1]}]}, "is not of the form"),
    ({"bands": [{"share": 1, "bytes": [1.5, 2]}]}, "is not of the form"),
])
def test_load_plan_wrong_profile_is_refused(profile, words):
    with pytest.raises(ValueError, match=words):
        read_bands(profile)
