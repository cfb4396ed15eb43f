"""When a front interrupts others, and when it lets them finish."""

import os

import pytest

from server.wakeups import BUSY, CALM, FEWEST_TURNS, Wakeups


def seen():
    return os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)


def spend(wakeups, turns, events):
    wakeups.turns, wakeups.events = turns, events
    wakeups.look()


def test_wakeups_busy_turns_let_others_finish_until_turns_are_calm():
    told = []
    wakeups = Wakeups(told.append)
    spend(wakeups, 100, int(100 * BUSY))
    assert told == []
    spend(wakeups, 100, int(100 * BUSY) + 1)
    assert told == [os.SCHED_BATCH]
    spend(wakeups, 100, int(100 * CALM) + 1)
    assert told == [os.SCHED_BATCH]
    spend(wakeups, 100, int(100 * CALM))
    assert told == [os.SCHED_BATCH, os.SCHED_OTHER]


def test_wakeups_few_turns_decide_nothing_and_count_later():
    told = []
    wakeups = Wakeups(told.append)
    spend(wakeups, FEWEST_TURNS - 1, 100 * FEWEST_TURNS)
    assert told == []
    wakeups.turns += 1
    wakeups.look()
    assert told == [os.SCHED_BATCH]
    assert (wakeups.turns, wakeups.events) == (0, 0)


def test_wakeups_a_policy_that_is_forbidden_is_asked_for_again():
    asked = []

    def forbid(policy):
        asked.append(policy)
        raise PermissionError(1, "Operation not permitted")

    wakeups = Wakeups(forbid)
    for _ in range(2):
        spend(wakeups, FEWEST_TURNS, 10 * FEWEST_TURNS)
    spend(wakeups, FEWEST_TURNS, 0)
    assert asked == [os.SCHED_BATCH] * 2


def test_wakeups_kernel_takes_the_policy_and_keeps_the_niceness():
    child = os.fork()
    if child == 0:
        try:
            niceness = os.nice(3)
            wakeups = Wakeups()
            spend(wakeups, FEWEST_TURNS, 10 * FEWEST_TURNS)
            batch = seen() == (os.SCHED_BATCH, niceness)
            spend(wakeups, FEWEST_TURNS, 0)
            other = seen() == (os.SCHED_OTHER, niceness)
            os._exit(0 if batch and other else 1)
        finally:
            os._exit(2)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        pytest.fail("the kernel's policy is not what was asked for")
