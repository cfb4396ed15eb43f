"""The forkserver: its self-test, and engines that are the master's children."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from server.forkserver import SelfTestError, self_test
from server.self_test import TOLERANCES
from tests.house import ROOT

CARD = {"precision": "fp32",
        "self_test": [{"ids": [2, 5, 3], "split": 3, "logits": [1.0, -1.0]},
                      {"ids": [2, 7, 7, 3], "split": 4, "logits": [2.0, 0.5]}]}
LOGITS = {tuple(case["ids"]): case["logits"] for case in CARD["self_test"]}


def program(change=lambda logits, company: logits):
    """A program that knows the two texts; `change` spoils its answers."""
    def run(rows):
        logits = np.array([LOGITS[tuple(row.ids.tolist())] for row in rows], np.float32)
        return change(logits, len(rows))
    return SimpleNamespace(run=run)


def test_forkserver_self_test_passes_what_answers_as_the_reference():
    self_test(program(), CARD)
    self_test(program(lambda logits, company: logits + 0.9 * TOLERANCES["fp32"]), CARD)


@pytest.mark.parametrize("change", [
    lambda logits, company: logits + 1.5 * TOLERANCES["fp32"],
    lambda logits, company: logits * np.nan,
    lambda logits, company: logits[:, ::-1]])
def test_forkserver_self_test_refuses_other_logits(change):
    with pytest.raises(SelfTestError, match="reference"):
        self_test(program(change), CARD)


def test_forkserver_self_test_refuses_answers_that_depend_on_company():
    with pytest.raises(SelfTestError, match="company"):
        self_test(program(lambda logits, company: logits + 1e-6 * company), CARD)


# A master in miniature: prepares the echo model, forks a forkserver, orders two engines, and tells
# what it sees of them.
MASTER = """
import json, os, signal, sys, time
from types import SimpleNamespace
from server import forkserver, link, preparer
from server.metrics import Registry
from server.processes import *
set_process_option(PR_SET_CHILD_SUBREAPER, 1)
registry = Registry(1, 2)
settings = SimpleNamespace(model=sys.argv[1], precision='auto', engine_nice=11, device='cpu')
listener = link.listen("firebrick-test-%d" % os.getpid())
def start(role, entry, *first):
    ours, theirs = Control.pair()
    for message, descriptors in first:
        ours.send(message, descriptors)
    pid = fork(entry, ChildSpec(role, 0, 1, 1, settings, theirs, registry.page(role, 0, 1),
                                registry, "firebrick-test-%d" % os.getpid(), os.getpid()))
    theirs.close()
    return pid, ours
def hear(control):
    while True:
        for message in control.receive():
            return message
        time.sleep(0.001)
_, control = start("preparer", preparer.run)
_, (card, _, weights) = hear(control)
forker, control = start("forkserver", forkserver.run, ({"type": "model"}, (card, weights)))
assert hear(control)[0] == {"type": "ready", "precision": "fp32"}
threads = len(os.listdir("/proc/%d/task" % forker))
engines = []
for index in (0, 1):
    ours, theirs = Control.pair()
    control.send({"type": "spawn", "index": index, "incarnation": 5 + index}, (theirs.fileno(),))
    theirs.close()
    engines.append((hear(ours)[0]["pid"], ours))
def parent(pid):
    return int(open("/proc/%d/stat" % pid).read().rpartition(")")[2].split()[1])
os.kill(forker, signal.SIGKILL)
os.waitpid(forker, 0)
links = []
while len(links) < 2:
    peer = link.accept(listener)
    if peer is not None:
        links.append(peer)
    time.sleep(0.001)
json.dump({"threads": threads, "ours": [parent(pid) == os.getpid() for pid, _ in engines],
           "nice": [os.getpriority(os.PRIO_PROCESS, pid) for pid, _ in engines]}, sys.stdout)
sys.stdout.flush()
for pid, _ in engines:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"""


@pytest.mark.sockets
def test_forkserver_engines_are_the_masters_and_outlive_it():
    found = subprocess.run(
        [sys.executable, "-c", MASTER, str(ROOT / "tests" / "fixtures" / "echo")], cwd=ROOT,
        capture_output=True, text=True, timeout=60, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    assert found.stderr == ""
    niceness = max(11, os.getpriority(os.PRIO_PROCESS, 0))
    assert json.loads(found.stdout) == {"threads": 1, "ours": [True, True],
                                        "nice": [niceness, niceness]}
