"""Supervision with two generations: the commit, what fails before it, what goes on after it."""

import random

import pytest

from server.orders import (Begin, CloseDoors, CountRestart, Dismiss, EnterPhase, Exit, Kill,
                           ReportDeath, Retire, TellReload)
from server.supervise import FAREWELL_S, TESTING_S, Supervisor
from tests.supervisor_desk import LEASE_S, Desk, kinds, spawned

ROLES = ("front", "dispatcher", "forkserver", "engine")


def ready_desk(**plan):
    return Desk(**plan).made_ready()


def test_supervise_reload_starts_the_preparer_alone_in_a_new_generation():
    desk = ready_desk()
    desk.done.clear()
    desk.reload("second")
    assert desk.done[0] == Begin(2, "second")
    assert desk.done[1] == EnterPhase("rehearsal", 2)
    assert spawned(desk.done) == [("preparer", 0)]
    assert set(spawned(desk.prepared())) == {
        ("forkserver", 0), ("dispatcher", 0), ("front", 0), ("front", 1)}
    assert spawned(desk.forkserver_ready()) == [("engine", 0), ("engine", 1)]


def test_supervise_reload_commits_when_everything_is_up_and_tested_and_not_before():
    desk = ready_desk()
    desk.reload()
    desk.prepared()
    desk.forkserver_ready()
    desk.engine_serves()
    desk.tested(0)
    assert not kinds(desk.wait(1.0), EnterPhase)
    desk.life("engine", 1).is_up = False
    desk.tested(1)
    assert not kinds(desk.wait(1.0), EnterPhase), "an engine is not up yet"
    desk.life("engine", 1).is_up = True
    assert desk.tick() == [EnterPhase("serving", 2)]


def test_supervise_old_generation_drains_only_when_every_new_front_polls():
    desk = ready_desk()
    ticket = desk.reload()
    desk.rehearsed().tick()
    assert desk.opened(0) == []
    assert desk.opened(1) == [TellReload((ticket,), True), EnterPhase("replaced", 1)]
    assert desk.drained(0, 1) == []
    assert desk.drained(1, 1) == [Dismiss(1)]
    desk.bury_dismissed()
    assert desk.done[-1] == Retire(1) and list(desk.generations) == [2]


def test_supervise_refused_checkpoint_changes_nothing_and_says_why():
    desk = ready_desk()
    ticket = desk.reload("broken")
    assert desk.refused("config.json: no model_type") == [
        TellReload((ticket,), False, "config.json: no model_type"), Dismiss(2)]
    desk.bury_dismissed()
    assert list(desk.generations) == [1] and not kinds(desk.done, Exit)
    assert not kinds(desk.done, CountRestart)
    desk.done.clear()
    desk.reload()
    assert desk.done[0] == Begin(4, "first"), "what is served; pages of the other parity"


def test_supervise_forkserver_that_refuses_the_precision_ends_the_reload_alone():
    desk = ready_desk()
    ticket = desk.reload()
    desk.prepared()
    for generation, told in ((1, []), (2, [TellReload((ticket,), False, "too small")])):
        desk.supervisor.refused("forkserver", desk.incarnation("forkserver", 0, generation),
                                "too small", desk.now)
        assert kinds(desk.take(), TellReload) == told


@pytest.mark.parametrize("role", ROLES)
def test_supervise_death_before_the_commit_ends_the_reload_and_nothing_else(role):
    desk = ready_desk()
    ticket = desk.reload()
    desk.rehearsed()
    actions = desk.die(role, 0, "sigkill", words="killed by SIGKILL")
    (told,) = kinds(actions, TellReload)
    assert told.tickets == (ticket,) and not told.is_ok
    assert role in told.reason and "SIGKILL" in told.reason
    assert Dismiss(2) in actions and not spawned(actions)
    assert not kinds(actions, CountRestart)
    desk.bury_dismissed()
    assert not spawned(desk.wait(2.0)) and list(desk.generations) == [1]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("generation", [1, 2])
def test_supervise_death_after_the_commit_is_followed_by_a_successor(role, generation):
    desk = ready_desk()
    desk.reload()
    desk.rehearsed().tick()
    actions = desk.die(role, 0, generation=generation)
    assert spawned(actions) == [(role, 0)]
    assert not kinds(actions, (TellReload, Dismiss, Exit))
    assert CountRestart(role, "sigkill") in actions


@pytest.mark.parametrize("role", ROLES)
def test_supervise_death_in_the_old_generation_does_not_touch_the_reload(role):
    desk = ready_desk()
    ticket = desk.reload()
    desk.prepared()
    assert spawned(desk.die(role, 0, generation=1)) == [(role, 0)]
    if role == "forkserver":
        desk.supervisor.forkserver_ready(desk.incarnation("forkserver", 0, 1), desk.now)
    desk.forkserver_ready()
    desk.engine_serves()
    desk.tested(0)
    desk.tested(1)
    desk.tick()
    desk.opened(0)
    assert TellReload((ticket,), True) in desk.opened(1)


def test_supervise_front_that_dies_while_opening_is_awaited_again():
    desk = ready_desk()
    desk.reload()
    desk.rehearsed().tick()
    desk.opened(0)
    desk.die("front", 0)
    assert desk.opened(1) == [], "its successor does not poll yet"
    assert kinds(desk.opened(0), TellReload)


def test_supervise_verdicts_go_to_the_generation_of_the_dead():
    desk = ready_desk()
    desk.reload()
    desk.committed()
    old, new = desk.incarnation("engine", 0, 1), desk.incarnation("engine", 0, 2)
    assert ReportDeath("engine", 0, old, True, 1) in desk.die("engine", 0, "sigsegv", generation=1)
    assert ReportDeath("engine", 0, new, True, 2) in desk.die("engine", 0, "sigsegv", generation=2)


def test_supervise_front_of_a_draining_generation_is_not_replaced_and_not_awaited():
    desk = ready_desk()
    desk.reload()
    desk.committed()
    desk.drained(0, 1)
    actions = desk.die("front", 1, generation=1)
    assert Dismiss(1) in actions and not spawned(actions)


def test_supervise_drain_of_a_replaced_generation_ends_after_its_time():
    desk = ready_desk(drain_s=3.0)
    desk.reload()
    desk.committed()
    actions = desk.wait(3.2)
    assert EnterPhase("stop", 1) in actions and not kinds(actions, Dismiss)
    assert Dismiss(1) in desk.wait(FAREWELL_S + 0.2)
    assert not kinds(desk.done, Exit)


def test_supervise_requests_that_come_meanwhile_become_one_further_reload():
    desk = ready_desk()
    first = desk.reload()
    others = [desk.reload() for _ in range(5)]
    assert list(desk.generations) == [1, 2]
    desk.committed()
    assert TellReload((first,), True) in desk.done
    desk.drained(0, 1)
    desk.drained(1, 1)
    desk.bury_dismissed()
    assert list(desk.generations) == [2, 3], "it begins when the oldest is gone"
    desk.committed()
    assert TellReload(tuple(others), True) in desk.done


def test_supervise_of_two_folders_the_later_one_is_loaded():
    desk = ready_desk()
    desk.reload("a")
    second, hangup, third = desk.reload("b"), desk.reload(), desk.reload("c")
    (told,) = kinds(desk.done, TellReload)
    assert told.tickets == (second, hangup) and not told.is_ok and "c" in told.reason
    desk.refused("no")
    desk.bury_dismissed()
    assert Begin(4, "c") in desk.done
    desk.committed()
    assert TellReload((third,), True) in desk.done


def test_supervise_request_before_the_first_ready_waits_for_it():
    desk = Desk()
    desk.reload()
    assert list(desk.generations) == [1]
    desk.made_ready()
    assert list(desk.generations) == [1, 2]


def test_supervise_term_before_the_commit_gives_the_reload_up():
    desk = ready_desk()
    first, second = desk.reload(), desk.reload("other")
    desk.rehearsed()
    desk.supervisor.signal("TERM", desk.now)
    actions = desk.take()
    assert {told.tickets for told in kinds(actions, TellReload)} == {(first,), (second,)}
    assert not any(told.is_ok for told in kinds(actions, TellReload))
    assert EnterPhase("lame_duck", 1) in actions and Dismiss(2) in actions
    desk.bury_dismissed()
    desk.wait(2.1)
    desk.drained(0)
    assert Exit(0, "") in desk.drained(1)


def test_supervise_term_after_the_commit_drains_both_generations():
    desk = ready_desk()
    ticket = desk.reload()
    desk.rehearsed().tick()
    desk.supervisor.signal("INT", desk.now)
    actions = desk.take()
    assert TellReload((ticket,), True) in actions
    assert {a.generation for a in kinds(actions, EnterPhase) if a.phase == "draining"} == {1, 2}
    assert kinds(actions, CloseDoors) == [CloseDoors()]
    for index, generation in ((0, 1), (1, 1), (0, 2)):
        assert not kinds(desk.drained(index, generation), Exit)
    assert Exit(0, "") in desk.drained(1, 2)


def test_supervise_request_while_ending_is_refused():
    desk = ready_desk()
    desk.supervisor.signal("TERM", desk.now)
    ticket = desk.reload()
    assert kinds(desk.done, TellReload) == [TellReload((ticket,), False, "the server is ending")]


def test_supervise_wrong_answer_in_the_rehearsal_ends_the_reload():
    desk = ready_desk()
    ticket = desk.reload()
    desk.prepared()
    desk.forkserver_ready()
    assert TellReload((ticket,), False, "text 2 is answered wrongly") in desk.tested(
        1, "text 2 is answered wrongly")


def test_supervise_hung_process_of_a_new_generation_is_killed_and_ends_the_reload():
    desk = ready_desk()
    desk.reload()
    desk.prepared()
    desk.hang("dispatcher")
    assert [kill.role for kill in kinds(desk.wait(LEASE_S + 1), Kill)] == ["dispatcher"]
    (told,) = kinds(desk.die("dispatcher"), TellReload)
    assert "no sign of life" in told.reason


def test_supervise_rehearsal_that_never_ends_is_given_up():
    desk = ready_desk()
    desk.reload()
    desk.prepared()
    desk.forkserver_ready()
    assert not kinds(desk.wait(TESTING_S - 1.0), TellReload)
    assert [told.is_ok for told in kinds(desk.wait(2.0), TellReload)] == [False]


def test_supervise_new_engines_do_not_hide_an_outage_of_the_old():
    desk = ready_desk(engines=1, give_up_s=5.0)
    desk.reload()
    desk.prepared()
    desk.forkserver_ready()
    desk.die("forkserver", generation=1)
    desk.die("engine", generation=1)
    assert [end.code for end in kinds(desk.wait(6.0), Exit)] == [5]


@pytest.mark.parametrize("seed", range(60))
def test_supervise_any_order_of_events_keeps_the_promises(seed):
    """Random deaths, requests and progress: at most two generations, each ticket told once, no
    exit, and in the end one generation that stands whole."""
    rng = random.Random(seed)
    desk = ready_desk(engines=1 + seed % 2, drain_s=5.0)
    tickets = []
    for _ in range(300):
        act = rng.choice(("reload", "die", "die", "move", "move", "move", "move", "bury", "tick"))
        if act == "reload" and rng.random() < 0.3:
            tickets.append(desk.reload(rng.choice(("", "", "a", "b"))))
        elif act == "die":
            life = rng.choice(list(desk.lives.values()))
            desk.die(life.role, life.index, rng.choice(("sigkill", "sigsegv", "exit")),
                     rng.random() < 0.8, generation=life.generation)
        elif act == "move":
            _move(desk, rng)
        elif act == "bury":
            desk.bury_dismissed()
        desk.tick(rng.choice((0.01, 0.1)))
    for _ in range(400):
        desk.bury_dismissed()
        _move(desk, rng)
        desk.tick()
    told = [ticket for action in kinds(desk.done, TellReload) for ticket in action.tickets]
    assert sorted(told) == tickets and not kinds(desk.done, Exit)
    (number,) = desk.generations
    assert len(desk.of(number)) == 2 + 1 + 1 + desk.supervisor.plan.engines


def _move(desk, rng):
    """One process tells something that it may tell now."""
    number, life = rng.choice(list(desk.lives.items()))
    supervisor: Supervisor = desk.supervisor
    if life.role == "preparer":
        if rng.random() < 0.2:
            supervisor.refused("preparer", number, "no", desk.now)
        else:
            del desk.lives[number]
            supervisor.prepared(number, desk.now)
    elif life.role == "forkserver":
        supervisor.forkserver_ready(number, desk.now)
    elif life.role == "dispatcher":
        supervisor.engine_serves(number, desk.now)
    elif life.role == "front":
        phases = [action.phase for action in kinds(desk.done, EnterPhase)
                  if action.generation == life.generation]
        if phases[-1] == "rehearsal":
            supervisor.tested(number, life.index, "", desk.now)
        elif phases[-1] == "serving":
            supervisor.opened(number, life.index, desk.now)
        elif phases[-1] == "replaced":
            supervisor.drained(number, life.index, desk.now)
    desk.take()
