"""The forkserver's process: one loaded, warmed, tested program, from which engines are forked.

It has one thread (a lock held by another one would stay locked in the fork) and its garbage
collector is frozen, so that engines share its pages. An engine is forked by a middle process that
exits at once: the master, as subreaper, becomes its parent, and the engine outlives the forkserver.
"""

import gc
import os
import select
import socket
import sys
import time

import numpy as np

from loader.prepare import map_file, open_card, seal_card
from model.families.table import FAMILIES, build
from model.program import Program, Row
from server import engine
from server.messages import ENGINE_KINDS
from server.metrics import UP, Registry
from server.processes import BROKEN, ChildSpec, Control, arm, live, take_niceness
from server.self_test import tolerance

LOAD_LEASE_S = 60.0
LONGEST_WAIT_S = 0.5


class SelfTestError(Exception):
    """The program does not answer as the reference does."""


def run(spec: ChildSpec) -> None:
    """Waits for the model, loads it, says ready, then forks an engine for each request."""
    arm(spec)
    if spec.generation > 1:
        take_niceness(spec.settings.engine_nice)    # beside engines that serve: not before them
    try:
        card, program, costs = _load(spec)
    except ArithmeticError as error:
        spec.control.send({"type": "refused", "message": f"{error}."})
        return
    except SelfTestError as error:
        print(f"the self-test failed: {error}", file=sys.stderr)
        sys.exit(BROKEN)
    gc.collect()
    gc.freeze()
    card_fd = seal_card(card)
    spec.control.send({"type": "ready", "precision": card["precision"]}, (card_fd,))
    os.close(card_fd)
    spec.page.set_worked()
    spec.page.set_state(UP)
    while True:
        select.select((spec.control,), (), (), LONGEST_WAIT_S)
        spec.page.turn(time.monotonic())
        messages, has_ended = spec.control.receive_all()
        if has_ended:
            return
        for message, descriptors in messages:
            if message["type"] == "spawn":
                _fork_engine(spec, message, descriptors[0], program, card, costs)


def _load(spec: ChildSpec) -> tuple[dict, Program, list[tuple[int, int, float]]]:
    """The card, its precision and kernels decided, with the program and its costs.

    A card that has "facts" comes from a forkserver before this one, whose engines may still live.
    """
    spec.page.promise(time.monotonic() + LOAD_LEASE_S)
    ((_, (card_fd, *image_fds)),) = spec.control.receive()
    card = open_card(card_fd)
    images = [map_file(fd) for fd in image_fds]
    for fd in (card_fd, *image_fds):
        os.close(fd)
    if "facts" not in card and FAMILIES[card["family"]].needs_weights:
        from model.programs.precision import choose  # torch, only now
        card = choose(card, lambda part: build(part, *images))
    program = build(card, *images)
    spec.page.promise(time.monotonic() + LOAD_LEASE_S)
    program.warm()
    self_test(program, card)
    return {**card, "facts": program.facts}, program, program.costs()


def self_test(program: Program, card: dict) -> None:
    """Compares the program with the reference's answers, and each text alone with itself in
    company, bit for bit. Raises SelfTestError."""
    allowed = tolerance(card)
    rows = [Row(np.array(case["ids"]), case["split"]) for case in card["self_test"]]
    together = program.run(rows)
    for number, (case, row) in enumerate(zip(card["self_test"], rows)):
        alone = program.run([row])[0]
        worst = float(np.abs(alone - np.array(case["logits"])).max())
        if not worst <= allowed:
            raise SelfTestError(f"the logits of text {number} are {worst:.2g} from the reference, "
                                f"{allowed:g} is allowed")
        if not np.array_equal(alone, together[number]):
            raise SelfTestError(f"text {number} is answered differently in company")


def _fork_engine(spec: ChildSpec, message: dict, control_fd: int, program: Program, card: dict,
                 costs: list[tuple[int, int, float]]) -> None:
    index, incarnation = message["index"], message["incarnation"]
    middle = os.fork()
    if middle:
        os.close(control_fd)
        os.waitpid(middle, 0)
        return
    middle = os.getpid()
    try:
        if os.fork():
            os._exit(0)
    except OSError as error:
        print(f"cannot fork an engine: {error}", file=sys.stderr)
        os._exit(BROKEN)
    control = Control(socket.socket(fileno=control_fd))
    registry: Registry = spec.registry
    engine_spec = ChildSpec("engine", index, incarnation, spec.generation, spec.settings, control,
                            registry.page("engine", index, spec.generation), registry,
                            spec.dispatcher_name, spec.master_pid)
    # The middle process is the parent for a moment; who comes after it is the master, unless that
    # died meanwhile, which `arm` notices.
    while os.getppid() == middle:
        time.sleep(0.0005)
    live(lambda given: engine.run(given, program, card, costs, ENGINE_KINDS.index("cpu")),
         engine_spec)
