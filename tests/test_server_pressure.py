"""A GPU's state against scenarios, one a line of a table, and against rules that always hold."""

import random

import pytest

from server.pressure import (CRITICAL, LOST, OK, REASONS, RECOVERING, SERVING, STATES, TIGHT,
                             DeviceReading, Entered, Leave, Limits, Pressure, Start, Tighten)

GIB = 1 << 30
TOTAL = 100 * GIB           # TIGHT below 2 GiB, CRITICAL below 0.5 GiB
FOOTPRINT = 3 * GIB
LIMITS = Limits(hold_s=10.0, back_off_s=8.0, longest_back_off_s=20.0, good_s=100.0)
PERIOD_S = 0.5


class Play:
    """A GPU read every PERIOD_S whose engine starts and leaves as soon as it is told."""

    def __init__(self, limits: Limits = LIMITS, footprint: int = FOOTPRINT) -> None:
        self.gpu = Pressure(limits, footprint)
        self.now = 100.0
        self.starts: list[float] = []
        self.entered: list[tuple[str, str]] = []
        self.told: list[str] = []

    def obey(self, is_obedient: bool = True) -> None:
        for action in self.gpu.take_actions():
            if isinstance(action, Start):
                self.starts.append(self.now)
                if is_obedient:
                    self.gpu.serves(FOOTPRINT, self.now)
                    self.obey()
            elif isinstance(action, Leave):
                self.told.append(action.reason)
                if is_obedient:
                    self.gpu.ended("died", self.now)
                    self.obey()
            elif isinstance(action, Tighten):
                self.told.append("tighten")
            elif isinstance(action, Entered):
                self.entered.append((action.state, action.reason))

    def read(self, free_gib: float, count: int = 1, is_obedient: bool = True) -> "Play":
        for _ in range(count):
            self.now += PERIOD_S
            self.gpu.read(DeviceReading(self.now, TOTAL, int(free_gib * GIB)), self.now)
            self.gpu.tick(self.now)
            self.obey(is_obedient)
        return self

    def wait(self, seconds: float) -> "Play":
        """Time without readings."""
        self.now += seconds
        self.gpu.tick(self.now)
        self.obey()
        return self


# (name, [(free GiB, readings)], state, states entered since the first OK)
SCENARIOS = [
    ("plenty", [(50, 20)], OK, []),
    ("two low readings are a spike", [(1.9, 2), (50, 1), (1.9, 2)], OK, []),
    ("three low readings", [(1.9, 3)], TIGHT, [TIGHT]),
    ("exactly the level is not below it", [(2, 9)], OK, []),
    ("one very low reading is a spike", [(0.1, 1), (50, 5)], OK, []),
    ("two very low readings", [(0.1, 2)], RECOVERING, [CRITICAL, RECOVERING]),
    ("tight, then very low", [(1.9, 3), (0.4, 2)], RECOVERING, [TIGHT, CRITICAL, RECOVERING]),
    ("tight is not left below twice the level", [(1.9, 3), (3.9, 60)], TIGHT, [TIGHT]),
    ("tight is left after the hold", [(1.9, 3), (4, 21)], OK, [TIGHT, OK]),
    ("tight is not left before the hold", [(1.9, 3), (4, 20)], TIGHT, [TIGHT]),
    ("a dip begins the hold anew", [(1.9, 3), (4, 15), (3.9, 1), (4, 15)], TIGHT, [TIGHT]),
    ("back after hold and back-off", [(0.1, 2), (7, 21)], OK, [CRITICAL, RECOVERING, OK]),
    ("not back before the hold", [(0.1, 2), (7, 20)], RECOVERING, [CRITICAL, RECOVERING]),
    ("not back without room for all of it", [(0.1, 2), (6.9, 200)], RECOVERING,
     [CRITICAL, RECOVERING]),
]


@pytest.mark.parametrize("name, readings, state, entered", SCENARIOS,
                         ids=[row[0].replace(" ", "-") for row in SCENARIOS])
def test_pressure_scenario_ends_in_its_state(name, readings, state, entered):
    play = Play().read(50)
    assert play.gpu.state == OK
    del play.entered[:]
    for free, count in readings:
        play.read(free, count)
    assert (play.gpu.state, [row[0] for row in play.entered]) == (state, entered)


def test_pressure_first_start_waits_for_a_reading_with_room_but_not_for_the_hold():
    play = Play().wait(5.0)
    assert not play.starts
    play.read(6.9, 3)
    assert not play.starts and play.gpu.state == RECOVERING
    play.read(7)
    assert len(play.starts) == 1 and play.gpu.state == OK


def test_pressure_stale_readings_keep_the_state_and_promote_nobody():
    play = Play().read(50).read(1.9, 3)
    assert play.wait(1000.0).gpu.state == TIGHT
    play.gpu.read(DeviceReading(play.now - 4.0, TOTAL, 50 * GIB), play.now)     # older than 3 s
    play.read(0.1)
    assert play.gpu.state == TIGHT, "one very low reading after a gap is one"
    play.read(0.1)
    assert play.gpu.state == RECOVERING
    play.read(50, 3)
    assert play.wait(1000.0).gpu.state == RECOVERING
    play.read(50)
    assert play.gpu.state == RECOVERING, "the hold begins after the gap"
    play.read(50, 20)
    assert play.gpu.state == OK


def test_pressure_the_same_reading_again_counts_once():
    play = Play().read(50)
    reading = DeviceReading(play.now + 0.1, TOTAL, 0)
    for _ in range(10):
        play.gpu.read(reading, play.now + 0.2)
    assert play.gpu.state == OK


def test_pressure_each_fall_doubles_the_back_off_up_to_the_longest_and_good_service_clears_it():
    play = Play().read(50)
    waits = []
    for _ in range(4):
        fell_at = play.now
        play.gpu.ended("cuda_error", play.now)
        play.obey()
        assert play.gpu.state == RECOVERING
        play.read(50, 100)
        waits.append(play.starts[-1] - fell_at)
        # The hold counts from the first reading after the fall; 100 readings are not good service.
    assert waits == [10.5, 16.0, 20.0, 20.0]
    play.read(50, int(LIMITS.good_s / PERIOD_S))
    fell_at = play.now
    play.gpu.ended("cuda_error", play.now)
    play.read(50, 100)
    assert play.starts[-1] - fell_at == 10.5


def test_pressure_failed_allocation_leaves_at_once_and_the_reason_stays():
    play = Play().read(50)
    play.gpu.allocation_failed(play.now)
    play.obey()
    assert play.told == ["allocation"]
    assert play.entered[-2:] == [(CRITICAL, "allocation"), (RECOVERING, "allocation")]


def test_pressure_engine_that_does_not_leave_is_told_once_and_not_started_again():
    play = Play().read(50)
    play.read(0.1, 2, is_obedient=False).read(50, 100, is_obedient=False)
    assert play.gpu.state == CRITICAL and play.told == ["pressure"] and len(play.starts) == 1
    play.gpu.serves(FOOTPRINT, play.now)        # what it says now is too late
    assert play.gpu.state == CRITICAL


def test_pressure_grows_while_starting_leaves_too():
    play = Play().read(50, is_obedient=False)
    play.read(0.1, 2, is_obedient=False)
    assert play.gpu.state == CRITICAL and play.told == ["pressure"]


def test_pressure_lost_is_final():
    play = Play().read(50)
    play.gpu.lost("device_lost", play.now)
    play.obey()
    play.read(50, 500)
    assert play.gpu.state == LOST and len(play.starts) == 1 and play.told == ["device_lost"]


def test_pressure_engine_that_cannot_use_the_device_loses_it():
    play = Play().read(50)
    play.gpu.ended("unusable", play.now)
    play.obey()
    assert play.entered[-1] == (LOST, "unusable")


def test_pressure_levels_are_bytes_on_small_cards_and_shares_on_large_ones():
    limits = Limits()
    assert limits.tight(8 * GIB) == 512 << 20 and limits.critical(8 * GIB) == 192 << 20
    assert limits.tight(141 * GIB) == pytest.approx(2.82 * GIB)
    assert limits.critical(141 * GIB) == pytest.approx(0.705 * GIB)
    assert Limits(tight_bytes=0, tight_share=0.0).critical(8 * GIB) == 0


@pytest.mark.parametrize("seed", range(200))
def test_pressure_random_life_keeps_its_rules(seed):
    """Whatever comes: at most one engine, started only with room, a fresh reading and after the
    back-off; told to leave once a life."""
    rng = random.Random(seed)
    play = Play()
    gpu, engines, ended_at, told_in_life = play.gpu, 0, None, 0
    free = 50.0
    for _ in range(400):
        if rng.random() < 0.05:
            free = rng.choice((0.1, 0.4, 1.0, 1.9, 3.0, 5.0, 6.9, 7.1, 50.0))
        play.now += rng.choice((0.1, 0.5, 0.5, 0.5, 5.0))
        what = rng.random()
        if what < 0.9:
            gpu.read(DeviceReading(play.now - rng.choice((0.0, 0.0, 0.2, 4.0)), TOTAL,
                                   int(free * GIB)), play.now)
        elif what < 0.92 and engines:
            gpu.allocation_failed(play.now)
        elif what < 0.94 and engines:
            gpu.ended(rng.choice(("killed", "hang", "cuda_error")), play.now)
            engines, ended_at = 0, play.now
        elif what < 0.97 and engines:
            gpu.serves(FOOTPRINT, play.now)
        state_before = gpu.state
        gpu.tick(play.now)
        for action in gpu.take_actions():
            if isinstance(action, Start):
                assert engines == 0 and state_before == RECOVERING
                assert play.now - gpu.reading.at <= LIMITS.stale_s
                assert gpu.reading.free >= gpu.footprint + 4 * GIB
                assert ended_at is None or play.now >= ended_at + LIMITS.back_off_s
                engines, told_in_life = 1, 0
            elif isinstance(action, Leave):
                told_in_life += 1
                assert engines == 1 and told_in_life == 1
            elif isinstance(action, Entered):
                assert action.state in STATES and action.reason in REASONS
        assert gpu.has_engine == bool(engines)
        assert not (gpu.state in SERVING and not engines)
    # From anywhere the way back is open.
    if engines and gpu.state not in SERVING:
        gpu.ended("died", play.now)
    play.read(50, 200)
    assert gpu.state == OK
