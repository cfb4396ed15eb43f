"""Children: their control socket, foreign descriptors, signals, the death of the master."""

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from server.metrics import Registry
from server.processes import (BROKEN, PR_SET_CHILD_SUBREAPER, ChildSpec, Control, arm, fork,
                              set_process_option, take_niceness)
from tests.house import ROOT, is_alive, wait_until

pytestmark = pytest.mark.sockets


@pytest.fixture
def pair():
    ends = Control.pair()
    yield ends
    for end in ends:
        end.close()


def spec(control, **options):
    registry = Registry(1, 1)
    return ChildSpec("engine", 0, 1, 1, SimpleNamespace(), control, registry.page("engine", 0),
                     registry, "name", os.getpid(), **options)


def start(entry, pair, **options):
    """A child that runs `entry(spec)`; (pid, the master's end)."""
    ours, theirs = pair
    pid = fork(entry, spec(theirs, **options))
    theirs.close()
    return pid, ours


def status_of(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def heard(control, count=1):
    """The next messages; AssertionError where they do not come."""
    messages = []

    def listen():
        messages.extend(control.receive())
        return len(messages) >= count
    wait_until(f"{count} messages", listen, 20)
    return messages


def test_processes_control_carries_messages_in_order_and_descriptors(pair):
    ours, theirs = pair
    reader, writer = os.pipe()
    ours.send({"type": "model"}, (reader,))
    ours.send({"type": "phase"})
    os.close(reader)
    (first, (descriptor,)), (second, none) = theirs.receive()
    assert (first, second, none) == ({"type": "model"}, {"type": "phase"}, [])
    os.write(writer, b"x")
    assert os.read(descriptor, 1) == b"x"
    os.close(descriptor)
    os.close(writer)


def test_processes_control_to_one_who_does_not_read_waits_and_loses_nothing(pair):
    ours, theirs = pair
    total = 2000
    for number in range(total):
        ours.send({"number": number, "padding": "x" * 500})
    found = []
    while len(found) < total:
        found += [message["number"] for message, _ in theirs.receive()]
        ours.flush()
    assert found == list(range(total))


def test_processes_control_of_the_dead_tells_what_they_sent_and_then_their_end(pair):
    ours, theirs = pair
    theirs.send({"type": "last words"})
    theirs.close()
    before = len(os.listdir("/proc/self/fd"))
    ours.send({"type": "in vain"}, (0,))
    assert len(os.listdir("/proc/self/fd")) == before, "the copy of the descriptor is closed"
    messages, has_ended = ours.receive_all()
    assert [message for message, _ in messages] == [{"type": "last words"}] and has_ended


def ends_well(given):
    arm(given)
    given.control.send({"fds": sorted(os.listdir("/proc/self/fd"), key=int)})


def test_processes_child_keeps_only_its_own_descriptors(pair):
    with socket.socket() as foreign, socket.socket() as listener:
        pid, control = start(ends_well, pair, listeners=(listener,))
        ((message, _),) = heard(control)
        kept = set(map(int, message["fds"]))
        assert {0, 1, 2, listener.fileno()} < kept and foreign.fileno() not in kept
        # Standard streams, the listener, the control socket, and the folder that was listed.
        assert len(kept) == 6
    assert status_of(pid) == 0


@pytest.mark.parametrize("entry, status", [
    (lambda given: None, 0), (lambda given: sys.exit(7), 7), (lambda given: 1 / 0, BROKEN)])
def test_processes_child_ends_with_a_status_and_never_returns(pair, entry, status):
    pid, _ = start(entry, pair)
    assert status_of(pid) == status


def lives_on(given):
    arm(given)
    given.control.send({"core": resource.getrlimit(resource.RLIMIT_CORE)[0]})
    while True:
        time.sleep(60)


def test_processes_child_leaves_signals_to_the_master_and_leaves_no_core(pair):
    pid, control = start(lives_on, pair)
    ((message, _),) = heard(control)
    assert message["core"] == 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
    time.sleep(0.05)
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)
    assert status_of(pid) == -signal.SIGKILL


def test_processes_usr2_shows_the_stack_and_nothing_else_happens(pair, capfd):
    pid, control = start(lives_on, pair)
    heard(control)
    os.kill(pid, signal.SIGUSR2)
    # The file that stands for stderr is read once: reading empties it under the writer's hands.
    wait_until("the stack", lambda: os.fstat(2).st_size > 300, 20)
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)
    status_of(pid)
    assert "lives_on" in capfd.readouterr().err


def test_processes_child_of_another_parent_ends_at_once(pair):
    ours, theirs = pair
    given = spec(theirs)
    object.__setattr__(given, "master_pid", 1)
    assert status_of(fork(lives_on, given)) == 0


ORPHANS = """
import os, signal, sys, time
from types import SimpleNamespace
from server.metrics import Registry
from server.processes import *
def entry(given):
    arm(given)
    os.write(1, b"%d\\n" % os.getpid())
    while True:
        time.sleep(60)
registry = Registry(1, 1)
for index in range(2):
    ours, theirs = Control.pair()
    fork(entry, ChildSpec("engine", 0, 1, 1, SimpleNamespace(), theirs, registry.page("engine", 0),
                          registry, "name", os.getpid()))
time.sleep(60)
"""


def test_processes_children_die_with_a_killed_master_even_if_stopped():
    master = subprocess.Popen([sys.executable, "-c", ORPHANS], cwd=ROOT, stdout=subprocess.PIPE)
    with master:
        children = [int(master.stdout.readline()) for _ in range(2)]
        os.kill(children[0], signal.SIGSTOP)
        master.kill()
    wait_until("both to be gone", lambda: not any(map(is_alive, children)), 5)


def test_processes_option_that_the_kernel_does_not_know_is_an_error():
    with pytest.raises(OSError, match="Invalid argument"):
        set_process_option(999_999, 0)


def test_processes_subreaper_becomes_the_parent_of_its_grandchildren():
    code = ("import os, time\nfrom server.processes import *\n"
            f"set_process_option({PR_SET_CHILD_SUBREAPER}, 1)\n"
            "reader, writer = os.pipe()\nmaster = os.getpid()\n"
            "if not os.fork():\n    middle = os.getpid()\n    if os.fork(): os._exit(0)\n"
            "    while os.getppid() == middle: time.sleep(0.001)\n"
            "    os.write(writer, b'yes' if os.getppid() == master else b'no'); os._exit(0)\n"
            "print(os.read(reader, 9).decode())")
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
                           timeout=60)
    assert (found.stdout, found.stderr) == ("yes\n", "")


@pytest.mark.parametrize("own, wanted, after", [(0, 7, 7), (7, 0, 7), (7, 3, 7), (3, 7, 7)])
def test_processes_niceness_is_never_less_than_whoever_started_it_asked_for(own, wanted, after):
    base = os.getpriority(os.PRIO_PROCESS, 0)      # less may be forbidden
    own, wanted, after = (min(base + niceness, 19) for niceness in (own, wanted, after))
    child = os.fork()
    if child == 0:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, own)
            take_niceness(wanted)
            os._exit(os.getpriority(os.PRIO_PROCESS, 0))
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == after
