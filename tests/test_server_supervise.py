"""Supervision as a function: start order, restarts, leases, blame, stopping."""

import pytest

from server.generation import FIRST_BACK_OFF_S, LONGEST_BACK_OFF_S
from server.orders import (AnnounceReady, CloseDoors, CountRestart, EnterPhase, Exit, Kill, Plan,
                           ReportDeath, Spawn)
from server.supervise import TICK_S
from tests.supervisor_desk import LEASE_S, Desk, kinds, spawned


def test_supervise_start_goes_in_order_and_announces_once():
    desk = Desk()
    assert spawned(desk.done) == [("front", 0), ("front", 1), ("dispatcher", 0), ("preparer", 0)]
    assert spawned(desk.prepared()) == [("forkserver", 0)]
    assert spawned(desk.forkserver_ready()) == [("engine", 0), ("engine", 1)]
    assert desk.engine_serves() == [EnterPhase("serving", 1), AnnounceReady()]
    assert desk.engine_serves() == []


def test_supervise_incarnations_are_never_used_twice():
    desk = Desk().made_ready()
    for _ in range(20):
        desk.die("engine", 1)
        desk.die("front", 0)
    numbers = [action.incarnation for action in desk.done if isinstance(action, Spawn)]
    assert len(numbers) == len(set(numbers)) and min(numbers) > 0


@pytest.mark.parametrize("role, index", [("front", 1), ("dispatcher", 0), ("preparer", 0)])
def test_supervise_death_before_ready_ends_with_its_last_words(role, index):
    desk = Desk()
    (end,) = desk.die(role, index, "exit", words="it ended with status 70")[-1:]
    assert end.code == 3 and "status 70" in end.sentence and role in end.sentence


def test_supervise_refused_checkpoint_ends_with_2_and_its_sentence():
    desk = Desk()
    desk.refused("config.json: no model_type")
    desk.die("preparer", 0, "exit")
    assert kinds(desk.done, Exit) == [Exit(2, "config.json: no model_type")]


def test_supervise_worked_part_is_replaced_at_once_and_counted():
    desk = Desk().made_ready()
    for role, index in (("engine", 0), ("front", 1), ("dispatcher", 0), ("forkserver", 0)):
        actions = desk.die(role, index)
        assert spawned(actions) == [(role, index)]
        assert CountRestart(role, "sigkill") in actions


def test_supervise_part_that_never_worked_waits_longer_each_time():
    desk = Desk().made_ready()
    expected = FIRST_BACK_OFF_S
    for _ in range(9):
        assert spawned(desk.die("front", 0, "exit", has_worked=False)) == []
        died_at = desk.now
        while not spawned(desk.tick(0.01)):
            pass
        assert desk.now - died_at == pytest.approx(expected, abs=0.02)
        expected = min(2 * expected, LONGEST_BACK_OFF_S)
    assert spawned(desk.die("front", 0)) == [("front", 0)], "one that worked starts anew"
    assert spawned(desk.die("front", 0, has_worked=False)) == []
    died_at = desk.now
    while not spawned(desk.tick(0.01)):
        pass
    assert desk.now - died_at == pytest.approx(FIRST_BACK_OFF_S, abs=0.02)


def test_supervise_timer_names_the_next_start():
    desk = Desk().made_ready()
    desk.die("front", 0, has_worked=False)
    assert desk.supervisor.next_timer(desk.now + 0.05) == pytest.approx(
        desk.now + FIRST_BACK_OFF_S)


def test_supervise_engine_waits_for_a_forkserver():
    desk = Desk().made_ready()
    desk.die("forkserver", has_worked=True)
    assert spawned(desk.die("engine", 0)) == []
    assert spawned(desk.wait(1.0)) == []
    assert spawned(desk.forkserver_ready()) == [("engine", 0)]


def test_supervise_ready_of_an_older_forkserver_is_void():
    desk = Desk().made_ready()
    older = desk.incarnation("forkserver", 0)
    desk.die("forkserver")
    desk.die("engine", 0)
    desk.supervisor.forkserver_ready(older, desk.now)
    assert spawned(desk.take()) == []


def test_supervise_order_that_nobody_took_is_no_death():
    desk = Desk().made_ready()
    desk.die("engine", 0)
    incarnation = desk.vanish("engine", 0)
    desk.supervisor.never_came("engine", 0, incarnation, desk.now, "its forkserver died")
    actions = desk.take()
    assert not kinds(actions, CountRestart) and not kinds(actions, ReportDeath)
    assert spawned(actions) == []
    assert spawned(desk.wait(2 * FIRST_BACK_OFF_S)) == [("engine", 0)]
    desk.supervisor.never_came("engine", 0, incarnation, desk.now, "told twice")
    assert desk.take() == []


def test_supervise_failed_fork_before_ready_ends_with_3():
    desk = Desk()
    desk.supervisor.never_came("front", 1, desk.incarnation("front", 1), desk.now, "no memory")
    assert desk.take()[-1] == Exit(3, "front 1 could not be started: no memory")


@pytest.mark.parametrize("cause, fault", [
    ("sigkill", False), ("sigterm", False), ("exit-0", False), ("sigsegv", True), ("exit-3", True),
    ("sigabrt", True), ("sigbus", True)])
def test_supervise_only_faults_blame(cause, fault):
    desk = Desk().made_ready()
    for role in ("engine", "dispatcher"):
        incarnation = desk.incarnation(role, 0)
        assert ReportDeath(role, 0, incarnation, fault, 1) in desk.die(role, 0, cause)


def test_supervise_death_of_others_is_reported_to_nobody():
    desk = Desk().made_ready()
    assert not kinds(desk.die("front") + desk.die("forkserver"), ReportDeath)


def test_supervise_expired_lease_kills_once_and_counts_as_a_fault():
    desk = Desk().made_ready()
    incarnation = desk.incarnation("engine", 1)
    desk.hang("engine", 1)
    actions = desk.wait(LEASE_S + 1)
    assert [(a.role, a.index) for a in kinds(actions, Kill)] == [("engine", 1)]
    actions = desk.die("engine", 1, "sigkill")
    assert ReportDeath("engine", 1, incarnation, True, 1) in actions
    assert CountRestart("engine", "lease") in actions


def test_supervise_cpu_time_beyond_its_promise_kills_and_below_it_does_not():
    desk = Desk().made_ready()
    seat = desk.life("engine", 0)
    seat.cpu_until, seat.cpu_used = 2.0, 1.9
    assert not kinds(desk.wait(1.0), Kill)
    seat.cpu_used = 2.1
    assert [k.why for k in kinds(desk.tick(), Kill)] == ["used more CPU time than its work costs"]


def test_supervise_frozen_machine_kills_nobody():
    desk = Desk().made_ready()
    everyone = list(desk.lives)
    actions = desk.tick(60.0, stopped=everyone)             # the master wakes first
    actions += desk.wait(LEASE_S - 0.5, stopped=everyone)
    assert not kinds(actions, Kill)
    assert len(kinds(desk.wait(2.0, stopped=everyone), Kill)) == len(everyone), \
        "who goes on saying nothing is killed after a lease of the woken machine's time"


def test_supervise_lateness_below_a_second_moves_no_lease():
    desk = Desk().made_ready()
    desk.hang("front", 0)
    actions = []
    for _ in range(6):
        actions += desk.tick(0.95)
    assert [(k.role, k.index) for k in kinds(actions, Kill)] == [("front", 0)]


def test_supervise_new_sign_of_life_ends_the_grace_of_a_freeze():
    desk = Desk().made_ready()
    desk.tick(60.0, stopped=list(desk.lives))
    desk.tick()
    desk.hang("front", 0)
    assert [(k.role, k.index) for k in kinds(desk.wait(LEASE_S + 0.5), Kill)] == [("front", 0)]


def test_supervise_no_engine_for_too_long_gives_up():
    desk = Desk(engines=1, give_up_s=30.0).made_ready()
    desk.die("forkserver", has_worked=True)
    desk.die("engine", 0)
    assert not kinds(desk.wait(29.0), Exit)
    assert kinds(desk.wait(2.0), Exit) == [Exit(5, "gave up: no engine for 30 s")]


def test_supervise_freeze_does_not_count_towards_giving_up():
    desk = Desk(engines=1, give_up_s=30.0).made_ready()
    desk.die("forkserver", has_worked=True)
    desk.die("engine", 0)
    assert not kinds(desk.tick(100.0) + desk.wait(25.0), Exit)


def test_supervise_slow_load_before_ready_is_not_given_up():
    desk = Desk(give_up_s=1.0)
    assert not kinds(desk.wait(10.0), Exit)


def test_supervise_term_before_ready_ends_at_once():
    desk = Desk()
    desk.supervisor.signal("TERM", desk.now)
    assert desk.take() == [Exit(0, "")]


def test_supervise_term_goes_through_the_phases_to_0():
    desk = Desk(lame_duck_s=2.0).made_ready()
    desk.supervisor.signal("TERM", desk.now)
    assert desk.take() == [EnterPhase("lame_duck", 1)]
    assert desk.supervisor.next_timer(desk.now + 1.99) == pytest.approx(desk.now + 2.0)
    assert desk.wait(2.1)[:2] == [EnterPhase("draining", 1), CloseDoors()]
    assert not kinds(desk.drained(0), Exit)
    assert desk.drained(1) == [Exit(0, "")]


def test_supervise_int_skips_the_lame_duck():
    desk = Desk().made_ready()
    desk.supervisor.signal("INT", desk.now)
    assert desk.take() == [EnterPhase("draining", 1), CloseDoors()]


@pytest.mark.parametrize("first", ["TERM", "INT"])
@pytest.mark.parametrize("second", ["TERM", "INT"])
def test_supervise_second_signal_ends_with_1(first, second):
    desk = Desk().made_ready()
    desk.supervisor.signal(first, desk.now)
    desk.supervisor.signal(second, desk.now)
    assert [end.code for end in kinds(desk.take(), Exit)] == [1]


def test_supervise_drain_that_takes_too_long_says_so_and_ends_with_1():
    desk = Desk(drain_s=10.0).made_ready()
    desk.supervisor.signal("INT", desk.now)
    actions = desk.drained(0) + desk.wait(11.0)
    assert [a.phase for a in kinds(actions, EnterPhase)] == ["draining", "stop"]
    assert [end.code for end in kinds(actions, Exit)] == [1]


def test_supervise_front_that_dies_while_draining_is_not_replaced_and_not_awaited():
    desk = Desk().made_ready()
    desk.supervisor.signal("INT", desk.now)
    desk.drained(0)
    actions = desk.die("front", 1)
    assert spawned(actions) == [] and Exit(0, "") in actions


def test_supervise_front_in_its_back_off_is_not_awaited_by_the_drain():
    desk = Desk().made_ready()
    desk.die("front", 1, has_worked=False)
    desk.supervisor.signal("INT", desk.now)
    assert Exit(0, "") in desk.drained(0)


def test_supervise_engine_and_dispatcher_are_replaced_while_draining():
    desk = Desk().made_ready()
    desk.supervisor.signal("INT", desk.now)
    assert spawned(desk.die("engine", 0)) == [("engine", 0)]
    assert spawned(desk.die("dispatcher")) == [("dispatcher", 0)]


def test_supervise_front_that_dies_as_a_lame_duck_is_replaced():
    desk = Desk().made_ready()
    desk.supervisor.signal("TERM", desk.now)
    assert spawned(desk.die("front", 1)) == [("front", 1)]


def test_supervise_nothing_is_started_after_the_end():
    desk = Desk().made_ready()
    desk.supervisor.signal("INT", desk.now)
    desk.supervisor.signal("INT", desk.now)
    desk.take()
    assert spawned(desk.die("engine", 0) + desk.wait(1.0)) == []
