"""One seed: a house, clients, faults, and the oracles that watch every answer."""

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from server.actions import Outcome
from server.dispatch import Policy
from server.inflight import Limits
from server.messages import Row
from server.orders import Plan
from server.supervise import LATE_S
from tests.simulate import gpu
from tests.simulate.front import Front
from tests.simulate.master import Master
from tests.simulate.roles import Engine, House, stamped
from tests.simulate.world import Process, World

REQUESTS = 760
CLIENTS = 24
# Texts that come again and again where there is a cache: it holds none of them, some, or all.
REPEATED_TEXTS, FIRST_REPEATED = 40, 1 << 30
CACHES_BYTES = (1, 1500, 1 << 20)
FAULTS_FROM_S, FAULTS_UNTIL_S = 1.5, 14.0
# By then the last stop is over and the queue is worked off, unless texts hang every engine.
QUIET_FROM_S = 55.0
# An answer may come this much after its bound, when nothing was stopped: a turn and a heartbeat.
SLACK_S = 1.0


@dataclass(slots=True)
class Request:
    number: int
    front: Front
    client: int
    rows: list[Row]
    opened_at: float
    deadline: float | None
    is_partial: bool
    traps: set[str]
    end: str = ""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What a seed showed; `digest` is the same wherever it is played."""

    seed: int
    finished: int
    reached: Counter
    violations: list[str]
    digest: str


def play(seed: int,
         trace: Callable[[str], None] | None = None) -> Outcomes:
    """Plays a seed; `trace` gets a line an event."""
    return _Play(seed, trace).run()


class _Play:
    def __init__(self, seed: int, trace: Callable[[str], None] | None) -> None:
        self.world = world = World(seed)
        self.seed, self.trace = seed, trace
        # Apart from the rest of chance, so that seeds without a cache are what they were.
        self.chance = random.Random(f"cache {seed}").random
        self.has_cache = self.chance() < 0.4
        limits = Limits(max_wait_ms=world.pick([300.0, 2000.0, 60_000.0]),
                        max_age_s=world.pick([6.0, 20.0, 60.0]),
                        outage_s=world.pick([1.0, 10.0]), max_jobs=world.pick([60, 10_000]),
                        cache_bytes=self._cache_bytes())
        self.plan = Plan(1 + int(world.rng.random() * 3), 1 + int(world.rng.random() * 3),
                         drain_s=world.pick([3.0, 25.0]))
        policy = Policy(self.plan.engines, limits.max_wait_ms, world.pick([0.0, 0.8, 1.0]),
                        limits.max_jobs,
                        cache_bytes=self._cache_bytes())
        self.house = House(world, limits, policy, self.plan.drain_s)
        self.requests: dict[tuple[int, int, int], Request] = {}
        self.digest = hashlib.blake2b(digest_size=16)
        self.finished = self.seen = self.counted_by_dead = 0
        self.house.finished = self._on_finish
        self.house.on_death = self._on_death
        self.house.on_spawn = self._on_spawn
        self.house.busy_clients = self._busy_clients
        self.connected: dict[int, Front] = {}
        # By a front's incarnation: each client's open requests.
        self.busy: dict[int, Counter] = defaultdict(Counter)
        self.is_told_to_end = False
        self.master = Master(self.house, self.plan)
        # Each run has some kinds of fault and not others, so that each is met alone too.
        kinds = ["kill engine", "kill dispatcher", "kill front", "kill forkserver", "crash engine",
                 "crash dispatcher", "crash unseen", "stop one", "stop all", "cut link"]
        self.kinds = [kind for kind in kinds if world.rng.random() < 0.5]
        self.gpu = gpu.GpuHost(self.house, self._serving) if world.rng.random() < 0.6 else None
        self.said: set[bytes] = set()       # the ids of every text so far
        self.trap_share = world.pick([0.0, 0.0, 0.01, 0.03])

    def run(self) -> Outcomes:
        world = self.world
        for number in range(REQUESTS):
            world.at(1.0 + world.between(0.0, FAULTS_UNTIL_S), self._ask, number)
        if self.kinds:
            pace_s = world.pick([0.03, 0.2, 1.0])
            at = FAULTS_FROM_S
            while at < FAULTS_UNTIL_S:
                world.at(at, self._fault, world.pick(self.kinds))
                at += world.between(0.2, 2.0) * pace_s
        self._plan_gpu_faults()
        self._plan_reloads()
        world.run(FAULTS_UNTIL_S + 1.5, self._has_ended)
        world.run(world.now + self.house.limits.max_age_s + 20.0,
                  lambda: self._has_ended() or not (self._open() or self._is_reloading()))
        self._judge_end()
        return Outcomes(self.seed, self.finished, self.house.reached, self.house.violations,
                        self.digest.hexdigest())

    def _plan_gpu_faults(self) -> None:
        world = self.world
        if self.gpu is None:
            return
        at, pace_s = FAULTS_FROM_S, world.pick([0.3, 0.3, 1.0, 100.0])
        while at < FAULTS_UNTIL_S:
            world.at(at, self.gpu.fault, world.pick(list(gpu.FAULTS)))
            at += world.between(0.2, 2.0) * pace_s
        if world.rng.random() < 0.15:
            world.at(world.between(FAULTS_FROM_S, FAULTS_UNTIL_S), self.gpu.fault, "lost device")

    def _serving(self) -> int:
        """The generation that is serving; 0 before the first."""
        return max((generation for generation, phase in self.master.phases.items()
                    if phase == "serving"), default=0)

    def _plan_reloads(self) -> None:
        """Some seeds ask for new models, alone and in haste; a few end with TERM."""
        world = self.world
        if world.rng.random() < 0.7:
            for _ in range(1 + int(world.rng.random() * 5)):
                at = FAULTS_FROM_S + world.between(0.0, FAULTS_UNTIL_S - FAULTS_FROM_S)
                for _ in range(world.pick([1, 1, 1, 4])):
                    world.at(at, self.master.deliver, None, ("reload", ""))
                    at += world.between(0.0, 0.3)
        if world.rng.random() < 0.15:
            at = world.between(5.0, FAULTS_UNTIL_S)
            if world.rng.random() < 0.7:
                world.at(at - world.between(0.0, 0.6), self.master.deliver, None, ("reload", ""))
            world.at(at, self._tell_to_end)

    def _tell_to_end(self) -> None:
        if self.master.is_ready:
            self.is_told_to_end = True
            self.house.reached["TERM"] += 1
            self.house.reached["TERM during a reload"] += len(self.master.phases) > 1
            self.master.deliver(None, ("signal", self.world.pick(["TERM", "INT"])))

    def _has_ended(self) -> bool:
        return self.master.exit is not None

    def _is_reloading(self) -> bool:
        return self.is_told_to_end or len(self.master.phases) > 1 \
            or len(self.master.told) < len(self.master.asked)

    def _note(self, *words: object) -> None:
        line = f"{round(self.world.now * 1e6)} " + " ".join(map(str, words))
        self.digest.update(line.encode())
        if self.trace is not None:
            self.trace(line)

    # ---- clients ------------------------------------------------------------------------

    def _fronts(self) -> list[Front]:
        return [child for child in self.master.children.values()
                if isinstance(child, Front) and child.is_alive]

    def _ask(self, number: int) -> None:
        world, client = self.world, int(self.world.rng.random() * CLIENTS)
        front = self._connect(client)
        if front is None:
            return
        count = world.pick([1, 1, 1, 1, 2, 5])
        rows, traps = [], set()
        for place in range(count):
            tokens = world.pick([4, 12, 12, 30, 120, 400])
            row = self._text(number * 8 + place, tokens)
            if world.rng.random() < self.trap_share:
                trap = world.pick(["die", "die", "raise", "hang"])
                if row.ids not in self.said:
                    self.house.poison[row.ids] = trap
                    traps.add(trap)
            self.said.add(row.ids)
            rows.append(row)
        deadline = world.now + world.pick([0.01, 0.1, 0.5, 3.0]) if world.rng.random() < 0.15 \
            else None
        request = Request(number, front, client, rows, world.now, deadline,
                          world.rng.random() < 0.2, traps)
        self.requests[front.index, front.incarnation, number] = request
        self.busy[front.incarnation][client] += 1
        front.deliver("client", ("ask", (number, client, int(world.rng.random() < 0.8),
                                         deadline, rows, request.is_partial)))
        if world.rng.random() < 0.1:
            world.at(world.now + world.between(0.0, world.pick([0.01, 0.3])), self._leave,
                     request)
        if self.has_cache and self.chance() < 0.25:     # others may have joined it
            world.at(world.now + 0.02 * self.chance(), self._leave, request)

    def _cache_bytes(self) -> int:
        return CACHES_BYTES[int(self.chance() * len(CACHES_BYTES))] if self.has_cache else 0

    def _text(self, number: int, tokens: int) -> Row:
        """A text that nobody has sent; with a cache most are one of a few, with either split."""
        if not self.has_cache or self.chance() < 0.3:
            return Row(tokens, tokens, number.to_bytes(4, "little") + b"\0" * min(tokens, 12))
        number = int(self.chance() ** 2 * REPEATED_TEXTS)
        tokens = 8 << number % 5
        return Row(tokens, tokens // 2 if self.chance() < 0.3 else tokens,
                   (FIRST_REPEATED + number).to_bytes(4, "little") + b"\0" * min(tokens, 12))

    def _connect(self, client: int) -> Front | None:
        """The front that a client is connected to, or connects to; None where nobody lets it in."""
        front = self.connected.get(client)
        if front is None or not front.is_alive or client not in front.clients:
            doors = [front for front in self._fronts() if front.is_open]
            if not doors:
                return None
            front = self.connected[client] = self.world.pick(doors)
            front.clients.add(client)
        return front

    def _busy_clients(self, front: Front) -> set[int]:
        return set(+self.busy[front.incarnation])

    def _close(self, request: Request, end: str) -> None:
        """A request is over; on a front that is being replaced so is its connection."""
        request.end = end
        front = request.front
        busy = self.busy[front.incarnation]
        busy[request.client] -= 1
        if front.phase in ("replaced", "draining") and not busy[request.client]:
            front.clients.discard(request.client)

    def _leave(self, request: Request) -> None:
        if not request.end and request.front.is_alive:
            self._close(request, "left")
            request.front.deliver("client", ("gone", (request.number,)))

    # ---- oracles ------------------------------------------------------------------------

    def _on_finish(self, front: Front, group: int, outcome: Outcome, now: float) -> None:
        request = self.requests[front.index, front.incarnation, group]
        house = self.house
        if request.end == "left":
            house.reached["answer to a client that left"] += 1
            request.end = "left and answered"
            self.seen += 1
            return
        if request.end:
            house.violate(f"request {group} ends twice: {request.end}, then {outcome.kind}")
        self._close(request, outcome.kind)
        self.finished += 1
        self.seen += 1
        self._note("end", front.index, group, outcome.kind)
        house.reached["end: " + outcome.kind] += 1
        if outcome.kind == "ok":
            self._judge_results(request, outcome)
        elif outcome.kind == "failed" and not any(map(self._may_fail, request.rows)):
            house.violate(f"request {group} fails though nothing is wrong with it")
        elif outcome.kind == "draining" and front.phase != "stop":
            house.violate(f"request {group} is given up before the drain's end")
        elif outcome.kind == "aged" and now > QUIET_FROM_S \
                and "hang" not in house.poison.values():
            house.violate(f"request {group} starves though nothing is wrong any more")
        elif outcome.kind == "deadline" and now < request.deadline:
            house.violate(f"request {group} is called late before its deadline")
        self._judge_bound(request, outcome, now)

    def _judge_results(self, request: Request, outcome: Outcome) -> None:
        for row, result in zip(request.rows, outcome.results):
            if result is None:
                self.house.reached["row failed in a partial group"] += 1
                if not self._may_fail(row):
                    self.house.violate(f"a sound row of request {request.number} failed")
            elif result.logits != stamped(row, request.front.generation):
                self.house.violate(f"request {request.number} gets another row's or another "
                                   "model's logits")

    def _may_fail(self, row: Row) -> bool:
        """Three real faults while it ran, or dispatchers that died of faults while they held it."""
        return self.house.faults[row.ids] >= 3 \
            or self.house.reached["dispatcher died of a fault"] >= 3

    def _judge_bound(self, request: Request, outcome: Outcome, now: float) -> None:
        bound = request.opened_at + self.house.limits.max_age_s
        if request.deadline is not None:
            bound = min(bound, request.deadline)
        if now > bound + SLACK_S and not self.house.reached["stop"]:
            self.house.violate(f"request {request.number} is answered {now - bound:.2f} s after "
                               f"its bound, {outcome.kind}")

    def _open(self) -> list[Request]:
        return [request for request in self.requests.values()
                if not request.end and request.front.is_alive]

    def _judge_end(self) -> None:
        house = self.house
        has_cut = self._has_ended() and self.master.exit.code
        for request in [] if has_cut else self._open():
            house.violate(f"request {request.number} was never answered")
        counted = self.counted_by_dead + sum(front.counted for front in self._fronts())
        if counted != self.seen:
            house.violate(f"{counted} answers are counted, {self.seen} were given")
        ended = self.master.exit
        if ended is not None and not self.is_told_to_end:
            house.violate(f"the server ended: {ended.sentence}")
        if self.is_told_to_end and ended is None:
            house.violate("the server did not end though it was told to")
        if ended is None and sorted(self.master.told) != self.master.asked:
            house.violate(f"of reloads {self.master.asked} only {self.master.told} were told")
        self._note("over", self.finished, sorted(self.master.restarts.items()))

    # ---- faults -------------------------------------------------------------------------

    def _fault(self, kind: str) -> None:
        world, master = self.world, self.master
        if not master.is_ready:
            return
        living = [child for child in master.children.values() if child.is_alive]
        self._note("fault", kind)
        if kind == "stop all":
            self._stop_all(living)
        elif kind == "stop one":
            target = world.pick([*living, master])
            self.house.reached["stop"] += 1
            target.stop(world.pick([0.05, 0.5, 2.0, 8.0]))
            target.shared_stop_s = 0.0
        elif kind == "cut link":
            fronts = [front for front in self._fronts() if front.link is not None]
            if fronts:
                self.house.reached["link cut"] += 1
                world.pick(fronts).link.peer.close()
        elif kind == "crash unseen":
            engines = [child for child in living if child.role == "engine"]
            engine = world.pick(engines) if engines else None
            dispatcher = self.house.dispatcher.get(engine.generation) if engine else None
            if dispatcher is not None:
                # What it sent and its end then wait to be read together.
                self.house.reached["stop"] += 1
                dispatcher.stop(0.3)
                dispatcher.shared_stop_s = 0.0
                world.at(world.now + 0.05, self._crash_if_alive, engine)
        else:
            verb, _, role = kind.partition(" ")
            targets = [child for child in living if child.role == role]
            if targets:
                self._end(world.pick(targets), "sigkill" if verb == "kill" else "sigsegv")

    def _crash_if_alive(self, process: Process) -> None:
        if process.is_alive:
            self.house.reached["engine crashed unseen"] += 1
            self._end(process, "sigsegv")

    def _stop_all(self, living: list[Process]) -> None:
        seconds = self.world.pick([0.5, 3.0, 12.0])
        self.house.reached["stop"] += 1
        self.house.reached["stop of all"] += 1
        for process in [*living, self.master]:
            process.stop(seconds + self.world.between(0.0, 0.05))
            # Leases move by what the master itself stood still, if that is more than a second.
            process.shared_stop_s = seconds if seconds > LATE_S else 0.0

    def _on_spawn(self, process: Process, phase: str) -> None:
        """The moment between an engine's birth and the commit is short: some die in it."""
        world = self.world
        if isinstance(process, Engine) and phase == "rehearsal" and world.rng.random() < 0.06:
            world.at(world.now + world.between(0.002, 0.03), self._kill_if_alive, process)

    def _kill_if_alive(self, process: Process) -> None:
        if process.is_alive:
            self._end(process, "sigkill")

    def _on_death(self, process: Process) -> None:
        """Its counters stay in its page; a front's open requests end with their connections."""
        if isinstance(process, Front):
            self.counted_by_dead += process.counted
            for request in self.requests.values():
                if request.front is process and not request.end:
                    self.house.reached["open request of a dead front"] += 1
        elif isinstance(process, Engine):
            self.house.reached["engine died with a batch"] += process.running is not None

    def _end(self, process: Process, cause: str) -> None:
        house = self.house
        house.reached[f"{process.role} died of {cause}"] += 1
        if len(self.master.phases) > 1:
            phase = self.master.phase_of(process)
            house.reached[f"{process.role} of a {phase} generation died beside another"] += 1
        if process.role == "dispatcher" and cause != "sigkill":
            house.reached["dispatcher died of a fault"] += 1
        self.master.end(process, cause)
