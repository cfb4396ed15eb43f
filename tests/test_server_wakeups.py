"""When a process interrupts others, and when it lets them finish."""

import os

import pytest

from server.wakeups import BUSY, CALM, TURNS, Wakeups


def seen():
    return os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)


def spend(wakeups, events):
    """As many turns as an average is taken of, the first of them with all `events`."""
    wakeups.count(events)
    for _ in range(TURNS - 1):
        wakeups.count(0)


def test_wakeups_busy_turns_let_others_finish_until_turns_are_calm():
    told = []
    wakeups = Wakeups(told.append)
    spend(wakeups, int(TURNS * BUSY))
    assert told == []
    spend(wakeups, int(TURNS * BUSY) + 1)
    assert told == [os.SCHED_BATCH]
    spend(wakeups, int(TURNS * CALM) + 1)
    assert told == [os.SCHED_BATCH]
    spend(wakeups, int(TURNS * CALM))
    assert told == [os.SCHED_BATCH, os.SCHED_OTHER]


def test_wakeups_few_turns_decide_nothing_and_count_later():
    told = []
    wakeups = Wakeups(told.append)
    for _ in range(TURNS - 1):
        wakeups.count(100)
    assert told == []
    wakeups.count(0)
    assert told == [os.SCHED_BATCH]
    spend(wakeups, 0)               # of what was counted before nothing is left
    assert told == [os.SCHED_BATCH, os.SCHED_OTHER]


def test_wakeups_a_policy_that_is_forbidden_is_asked_for_again():
    asked = []

    def forbid(policy):
        asked.append(policy)
        raise PermissionError(1, "Operation not permitted")

    wakeups = Wakeups(forbid)
    for _ in range(2):
        spend(wakeups, 10 * TURNS)
    spend(wakeups, 0)
    assert asked == [os.SCHED_BATCH] * 2


def test_wakeups_kernel_takes_the_policy_and_keeps_the_niceness():
    child = os.fork()
    if child == 0:
        try:
            niceness = os.nice(3)
            wakeups = Wakeups()
            spend(wakeups, 10 * TURNS)
            batch = seen() == (os.SCHED_BATCH, niceness)
            spend(wakeups, 0)
            other = seen() == (os.SCHED_OTHER, niceness)
            os._exit(0 if batch and other else 1)
        finally:
            os._exit(2)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        pytest.fail("the kernel's policy is not what was asked for")
