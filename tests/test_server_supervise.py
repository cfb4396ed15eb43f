"""Supervision: start order, restarts, leases, blame, stop; all without a process."""

import pytest

from server.supervise import (AnnounceReady, CountRestart, EnterPhase, Exit, Kill, Plan, Reading,
                              ReportDeath, Spawn, Supervisor, due_s, is_fault)


class Bench:
    """A supervisor with a clock; `lives` are the incarnations that it asked for."""

    def __init__(self, ready=True, **plan):
        self.now = 0.0
        self.supervisor = Supervisor(Plan(2, 2, **plan), 0.0)
        self.lives = {}
        self.supervisor.start(0.0)
        self.actions = self.act()
        if ready:
            self.supervisor.prepared(0.1)
            self.act()
            self.supervisor.forkserver_ready(self.lives["forkserver", 0], 0.2)
            self.act()
            self.supervisor.engine_serves(0.3)
            self.actions = self.act()

    def act(self):
        actions = self.supervisor.take_actions()
        for action in actions:
            if isinstance(action, Spawn):
                self.lives[action.role, action.index] = action.incarnation
        return actions

    def die(self, role, index=0, cause="sigkill", worked=True):
        self.supervisor.exited(role, index, self.lives[role, index], cause, is_fault(cause),
                               worked, self.now)
        return self.act()

    def tick(self, seconds=0.1, **late):
        """A tick after `seconds`; every process is alive until then unless `late` says when its
        promise ended, as role=time."""
        self.now += seconds
        readings = {place: Reading(late.get(place[0], self.now + 5.0), 0.0, 0.0,
                                   place[0] == "engine", True) for place in self.lives}
        self.supervisor.tick(readings, self.now)
        return self.act()


def spawned(actions):
    return [(action.role, action.index) for action in actions if isinstance(action, Spawn)]


def only(actions, kind):
    return [action for action in actions if isinstance(action, kind)]


def test_supervisor_starts_fronts_before_the_model_and_engines_after_it():
    bench = Bench(ready=False)
    assert spawned(bench.actions) == [("front", 0), ("front", 1), ("dispatcher", 0),
                                      ("preparer", 0)]
    bench.supervisor.prepared(0.1)
    assert spawned(bench.act()) == [("forkserver", 0)]
    bench.supervisor.forkserver_ready(bench.lives["forkserver", 0], 0.2)
    assert spawned(bench.act()) == [("engine", 0), ("engine", 1)]
    bench.supervisor.engine_serves(0.3)
    actions = bench.act()
    assert only(actions, AnnounceReady) and only(actions, EnterPhase)[0].phase == "serving"
    bench.supervisor.engine_serves(0.4)
    assert bench.act() == []


@pytest.mark.parametrize("role", ["front", "dispatcher", "preparer"])
def test_supervisor_death_before_the_first_ready_ends_the_server(role):
    bench = Bench(ready=False)
    (ended,) = only(bench.die(role, cause="exit"), Exit)
    assert ended.code == 3 and role in ended.sentence


def test_supervisor_refused_checkpoint_ends_with_its_sentence():
    bench = Bench(ready=False)
    bench.supervisor.refused("config.json: no.")
    assert only(bench.act(), Exit) == [Exit(2, "config.json: no.")]


def test_supervisor_stop_before_the_first_ready_ends_at_once():
    bench = Bench(ready=False)
    bench.supervisor.signal("TERM", 0.0)
    assert only(bench.act(), Exit) == [Exit(0)]


@pytest.mark.parametrize("role", ["front", "dispatcher", "engine", "forkserver"])
def test_supervisor_worked_process_is_replaced_at_once_with_a_new_number(role):
    bench = Bench()
    before = bench.lives[role, 0]
    actions = bench.die(role)
    assert (role, 0) in spawned(actions) and bench.lives[role, 0] > before
    assert only(actions, CountRestart) == [CountRestart(role, "sigkill")]


def test_supervisor_process_that_never_worked_waits_longer_each_time():
    bench = Bench()
    waits = []
    for _ in range(9):
        actions = bench.die("dispatcher", cause="exit", worked=False)
        assert spawned(actions) == []
        waited = 0
        while not spawned(actions):
            actions = bench.tick(0.05)
            waited += 0.05
        waits.append(waited)
    assert waits[0] == pytest.approx(0.1, abs=0.06) and waits == sorted(waits)
    assert waits[-1] == pytest.approx(5.0, abs=0.1)


def test_supervisor_engine_waits_for_a_forkserver():
    bench = Bench()
    assert spawned(bench.die("forkserver")) == [("forkserver", 0)]
    assert spawned(bench.die("engine", 1)) == []
    bench.supervisor.forkserver_ready(bench.lives["forkserver", 0], bench.now)
    assert spawned(bench.act()) == [("engine", 1)]


def test_supervisor_stale_news_of_an_earlier_life_change_nothing():
    bench = Bench()
    old = bench.lives["engine", 0]
    bench.die("engine", 0)
    bench.supervisor.exited("engine", 0, old, "sigsegv", True, True, bench.now)
    bench.supervisor.forkserver_ready(999, bench.now)
    assert bench.act() == []


@pytest.mark.parametrize("cause,fault", [
    ("sigkill", False), ("sigterm", False), ("exit-0", False), ("exit", True), ("exit-3", True),
    ("sigsegv", True), ("sigabrt", True)])
def test_supervisor_death_is_reported_with_its_fault(cause, fault):
    bench = Bench()
    number = bench.lives["engine", 0]
    (report,) = only(bench.die("engine", 0, cause), ReportDeath)
    assert report == ReportDeath("engine", 0, number, fault)


def test_supervisor_broken_lease_is_killed_once_and_counts_as_a_fault():
    bench = Bench()
    actions = bench.tick(engine=0.05)
    kills = only(actions, Kill)
    assert [(kill.role, kill.index) for kill in kills] == [("engine", 0), ("engine", 1)]
    assert only(bench.tick(engine=0.05), Kill) == []
    (report, *_) = only(bench.die("engine", 0, "sigkill"), ReportDeath)
    assert report.is_fault


def test_supervisor_too_much_cpu_time_is_killed():
    bench = Bench()
    readings = {("engine", 0): Reading(99.0, 1.0, 1.1, True, True),
                ("engine", 1): Reading(99.0, 1.0, 0.9, True, True)}
    bench.supervisor.tick(readings, 0.1)
    assert [(kill.role, kill.index) for kill in only(bench.act(), Kill)] == [("engine", 0)]


def test_supervisor_own_stop_moves_every_lease_by_as_much():
    bench = Bench()
    promised = bench.now + 5.0
    bench.tick(0.1, front=promised, dispatcher=promised)
    assert only(bench.tick(8.0, front=promised, dispatcher=promised), Kill) == []
    kills = []
    while not kills and bench.now < 20:
        kills = only(bench.tick(0.1, front=promised, dispatcher=promised), Kill)
    assert {kill.role for kill in kills} == {"front", "dispatcher"}
    assert bench.now == pytest.approx(promised + 7.9, abs=0.2)


def test_supervisor_term_is_lame_duck_then_drain_then_exit():
    bench = Bench(lame_duck_s=2.0, drain_s=25.0)
    bench.supervisor.signal("TERM", bench.now)
    assert only(bench.act(), EnterPhase) == [EnterPhase("lame_duck")]
    phases = []
    while not phases:
        phases = only(bench.tick(), EnterPhase)
    assert phases == [EnterPhase("draining")] and bench.now == pytest.approx(2.0, abs=0.2)
    bench.supervisor.drained(0, bench.now)
    assert bench.act() == []
    bench.supervisor.drained(1, bench.now)
    assert only(bench.act(), Exit) == [Exit(0)]


def test_supervisor_int_skips_the_lame_duck_and_a_second_one_ends_now():
    bench = Bench()
    bench.supervisor.signal("INT", bench.now)
    assert only(bench.act(), EnterPhase) == [EnterPhase("draining")]
    bench.supervisor.signal("INT", bench.now)
    assert only(bench.act(), Exit)[0].code == 1


def test_supervisor_drain_that_takes_too_long_ends_with_one():
    bench = Bench(drain_s=3.0)
    bench.supervisor.signal("INT", bench.now)
    bench.act()
    seen = []
    while not only(seen, Exit):
        seen += bench.tick()
    assert only(seen, EnterPhase) == [EnterPhase("stop")] and only(seen, Exit)[0].code == 1
    assert bench.now == pytest.approx(3.3, abs=0.3)


def test_supervisor_dead_front_is_drained_and_not_replaced_while_draining():
    bench = Bench()
    bench.supervisor.signal("INT", bench.now)
    bench.act()
    assert spawned(bench.die("front", 0)) == []
    bench.supervisor.drained(1, bench.now)
    assert only(bench.act(), Exit) == [Exit(0)]


def test_supervisor_engines_are_replaced_while_draining():
    bench = Bench()
    bench.supervisor.signal("INT", bench.now)
    bench.act()
    assert spawned(bench.die("engine", 0)) == [("engine", 0)]


def test_supervisor_no_engine_for_too_long_gives_up():
    bench = Bench(give_up_s=2.0)
    readings = {}
    actions = []
    while not only(actions, Exit) and bench.now < 10:
        bench.now += 0.1
        bench.supervisor.tick(readings, bench.now)
        actions = bench.act()
    assert only(actions, Exit)[0].code == 5 and bench.now == pytest.approx(2.4, abs=0.3)


def test_due_leaves_room_for_slow_machines():
    assert due_s(0.0) == (1.0, 10.0)
    assert due_s(1000.0) == (9.0, 90.0)
