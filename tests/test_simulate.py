"""The simulation finds no fault in the house, all those put in on purpose, and repeats."""

from collections import Counter

import pytest

from tests.simulate.broken import BROKEN
from tests.simulate.play import play

SEEDS_TO_CATCH = 400


def test_simulation_sound_house_keeps_every_promise():
    reached: Counter[str] = Counter()
    for seed in range(40):
        outcome = play(seed)
        assert not outcome.violations, (seed, outcome.violations[:3])
        reached.update(outcome.reached)
    assert reached["end: ok"] > 5000 and reached["job sent again"] > 500
    assert reached["known text"] > 100 and reached["text known to a front"] > 100
    assert reached["text joined"] > 500


def test_simulation_same_seed_gives_the_same_trace():
    first, second = [], []
    digests = {play(7, trace=first.append).digest, play(7, trace=second.append).digest}
    assert len(digests) == 1 and first == second and len(first) > 300


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_simulation_broken_machine_is_caught(name):
    with BROKEN[name]():
        assert any(play(seed).violations for seed in range(SEEDS_TO_CATCH))
