"""The house's processes as thin shells over the real state machines, as the real shells are."""

from collections import Counter

from server.inflight import Finish, InFlight, Limits, SendCancel, SendGroups, SendHello
from server.messages import (Batch, Cancel, Done, EngineHello, Failed, FrontHello, Jobs, Notes,
                             Refused, Results)
from server.scheduler import (Policy, RunBatch, Scheduler, SendNotes, SendRefused, SendResults,
                              SendState)
from server.supervise import due_s
from tests.simulate.world import EOF, End, Process, World, pipe

COSTS = [(1, 8, 0.6), (1, 64, 3.0), (1, 512, 24.0), (8, 64, 3.7), (8, 512, 24.0)]
TOKEN_MS, BASE_MS = 0.05, 0.2


class House:
    """What the processes share with the observer: the backlog, the truth about jobs, counters."""

    def __init__(self, world: World, limits: Limits, policy: Policy) -> None:
        self.world, self.limits, self.policy = world, limits, policy
        self.backlog: list[End] = []
        self.dispatcher: Dispatcher | None = None
        self.reached: Counter[str] = Counter()
        self.poison: dict[bytes, str] = {}
        # A row's ids → faults that really happened while it ran.
        self.faults: Counter[bytes] = Counter()
        self.violations: list[str] = []
        self.finished = None            # set by the play: (front, group, outcome, now)
        self.ended = None               # set by the master: (process, cause)
        self.on_death = None            # set by the play: (process)

    def blame(self, batch: Batch) -> None:
        """What really happened: these rows ran when their engine failed by a fault."""
        for row in batch.rows:
            self.faults[row.ids] += 1

    def real_faults(self, front: "Front", job: int) -> int | None:
        """The faults of an open job of a front; None for one that it does not hold any more."""
        held = front.held._jobs.get(job)
        return None if held is None else self.faults[held.row.ids]

    def violate(self, what: str) -> None:
        self.violations.append(f"at {self.world.now:.6f} s: {what}")


class Front(Process):
    """A front: requests come as ("client", …) items; counts an answer before it is seen."""

    def __init__(self, house: House, index: int, incarnation: int, is_ready: bool) -> None:
        super().__init__(house.world, "front", index, incarnation)
        self.house = house
        self.held = InFlight(index, incarnation, 1, house.limits, house.world.now)
        if is_ready:
            self.held.set_ready(house.world.now)
        self.link: End | None = None
        self.is_up = True
        self.counted = self.stale_seen = 0

    def turn(self, items: list, now: float) -> float | None:
        held, ended = self.held, False
        for source, message in items:
            if source == "control":
                if message[0] == "ready":
                    held.set_ready(now)
                else:
                    held.dispatcher_died(message[1], message[2])
            elif source == "client":
                self._client(*message, now)
            elif source is self.link:
                if message is EOF:
                    ended = True
                else:
                    self._note(message)
                    held.receive(message, now)
        if ended:
            held.link_down(now)
            self.link.close()
            self.ends.remove(self.link)
            self.link = None
        held.tick(now)
        if self.link is None:
            self.link, far = pipe(self.world, self, None)
            self.ends.append(self.link)
            self.house.backlog.append(far)
            held.link_up(now)
            if self.house.dispatcher is not None:
                self.house.dispatcher.wake(now)
        self._act(now)
        return held.next_timer(now)

    def _client(self, kind: str, given: tuple, now: float) -> None:
        if kind == "gone":
            self.held.cancel(given[0])
            return
        group, connection, priority, deadline, rows, partial = given
        refusal = self.held.early_refusal(priority, now)
        if refusal is not None:
            self.house.reached["refused early: " + refusal.kind] += 1
            self._finish(group, refusal, now)
        else:
            self.held.open(group, connection, priority, deadline, rows, now, partial)

    def _note(self, message: object) -> None:
        """What the observer checks of a message before the front acts on it."""
        if isinstance(message, Notes):
            for note in message.notes:
                real = self.house.real_faults(self, note.job)
                if real is not None and note.deaths > real:
                    self.house.violate(f"job {note.job} of front {self.index} is blamed for "
                                       f"{note.deaths} faults, {real} happened")

    def _act(self, now: float) -> None:
        for action in self.held.take_actions():
            if isinstance(action, SendHello):
                self.link.send(action.hello)
            elif isinstance(action, SendGroups):
                for group in action.groups:
                    for job in group.jobs:
                        self.house.reached["job sent again"] += job.sends > 1
                        self.house.reached["job sent alone"] += job.sends > 5
                self.link.send(Jobs(action.groups))
            elif isinstance(action, SendCancel):
                self.house.reached["cancel"] += 1
                self.link.send(action.cancel)
            elif isinstance(action, Finish):
                self._finish(action.group, action.outcome, now)
        self.house.reached["stale result"] += self.held.stale_results - self.stale_seen
        self.stale_seen = self.held.stale_results

    def _finish(self, group: int, outcome: object, now: float) -> None:
        if outcome.kind == "deadline" and any(
                isinstance(message, Results) for _, message in self.inbox):
            self.house.violate(f"group {group} is late though its answer waits to be read")
        self.counted += 1
        self.house.finished(self, group, outcome, now)


class Dispatcher(Process):
    """The dispatcher around the real scheduler."""

    def __init__(self, house: House, incarnation: int) -> None:
        super().__init__(house.world, "dispatcher", 0, incarnation)
        self.house = house
        self.scheduler = Scheduler(incarnation, house.policy)
        self.peers: dict[End, object] = {}
        self.by_key: dict[object, End] = {}
        self.is_up = self.has_worked = True
        self.on_first_engine = None
        house.dispatcher = self

    def turn(self, items: list, now: float) -> float | None:
        for far in self.house.backlog:
            self.peers[far] = None
            self.ends.append(far)
            far.accept(self)
        self.house.backlog.clear()
        items += self.inbox
        self.inbox = []
        verdicts = [message for source, message in items if source == "control"]
        for source, message in items:
            if source != "control" and source in self.peers:
                self._take(source, message, now)
        for index, incarnation, is_fault in verdicts:
            self.scheduler.death(index, incarnation, is_fault)
        self._act(now)
        return self.scheduler.next_timer(now)

    def _take(self, end: End, message: object, now: float) -> None:
        who, scheduler = self.peers[end], self.scheduler
        if message is EOF:
            self._drop(end)
        elif isinstance(message, FrontHello):
            key = ("front", message.front, message.incarnation)
            if key in self.by_key:
                self._drop(self.by_key[key])
            self.peers[end], self.by_key[key] = key, end
            scheduler.front_hello(key[1:])
        elif isinstance(message, EngineHello):
            key = ("engine", message.index, message.incarnation)
            self.peers[end], self.by_key[key] = key, end
            scheduler.engine_hello(message)
            if self.on_first_engine is not None:
                self.on_first_engine()
                self.on_first_engine = None
        elif isinstance(message, Jobs):
            scheduler.jobs(who[1:], message.groups, now)
        elif isinstance(message, Cancel):
            scheduler.cancel(who[1:], message.jobs)
        elif isinstance(message, Done):
            if not scheduler.done(*who[1:], message, now):
                self.house.reached["result of an unknown batch"] += 1
                self._drop(end)
        elif isinstance(message, Failed):
            self.house.reached["batch failed"] += 1
            scheduler.failed(*who[1:], message)

    def _drop(self, end: End) -> None:
        who = self.peers.pop(end)
        end.close()
        self.ends.remove(end)
        if who is None or self.by_key.get(who) is not end:
            return
        del self.by_key[who]
        if who[0] == "front":
            self.scheduler.front_gone(who[1:])
        else:
            self.scheduler.engine_gone(*who[1:])

    def _act(self, now: float) -> None:
        for action in self.scheduler.take_actions(now):
            if isinstance(action, RunBatch):
                end = self.by_key["engine", action.engine, action.incarnation]
                end.send(action.batch)
                engine = end.peer.owner
                engine.assigned.append(action.batch)
                if engine.died_of_fault and len(engine.assigned) == 1:
                    self.house.blame(action.batch)      # dead already, its end not yet seen
            elif isinstance(action, SendState):
                for key, end in self.by_key.items():
                    if key[0] == "front":
                        end.send(action.state)
            elif isinstance(action, (SendResults, SendRefused, SendNotes)):
                end = self.by_key.get(("front", *action.source))
                if end is None:
                    continue
                if isinstance(action, SendResults):
                    end.send(Results(action.results))
                elif isinstance(action, SendRefused):
                    self.house.reached["group refused"] += 1
                    end.send(Refused([action.refusal]))
                else:
                    self.house.reached["blame noted"] += 1
                    end.send(Notes(action.notes))


class Engine(Process):
    """Answers each row with its own first bytes; poison rows do what they are named for."""

    def __init__(self, house: House, index: int, incarnation: int) -> None:
        super().__init__(house.world, "engine", index, incarnation)
        self.house = house
        self.link: End | None = None
        self.waiting: list[Batch] = []
        # What it was sent and has not answered: a death blames the first, begun or not.
        self.assigned: list[Batch] = []
        self.running: Batch | None = None
        self.due_at = 0.0
        self.done_at = 0.0
        self.took_us = 0
        self.run_link: End | None = None
        self.speed = house.world.between(0.5, 1.5)

    def promised_until(self) -> float:
        return self.due_at if self.running is not None else 0.0

    def turn(self, items: list, now: float) -> float | None:
        for source, message in items:
            if source is not self.link:
                continue
            if message is EOF:
                self.link.close()
                self.ends.remove(self.link)
                self.link, self.waiting, self.assigned = None, [], []
            else:
                self.waiting.append(message)
        if self.running is not None and now >= self.done_at:
            self._finish()
        if not self.is_alive or self.is_hung:
            return None
        if self.link is None and self.running is None:
            self._connect()
        if self.running is None and self.waiting:
            self._start(self.waiting.pop(0), now)
        return self.done_at if self.running is not None else None

    def _connect(self) -> None:
        self.link, far = pipe(self.world, self, None)
        self.ends.append(self.link)
        self.house.backlog.append(far)
        self.link.send(EngineHello(0, self.index, self.incarnation, 1, 1, COSTS))
        self.is_up = True
        if self.house.dispatcher is not None:
            self.house.dispatcher.wake(self.world.now)

    def _start(self, batch: Batch, now: float) -> None:
        cost_ms = BASE_MS + TOKEN_MS * sum(row.tokens for row in batch.rows)
        self.running, self.run_link = batch, self.link
        self.due_at = now + due_s(cost_ms)[1]
        self.alive_until = max(self.alive_until, self.due_at)
        self.took_us = int(cost_ms * 1e3 * self.speed)
        self.done_at = now + self.took_us / 1e6
        for row in batch.rows:
            trap = self.house.poison.get(row.ids)
            if trap == "hang":
                self.is_hung = True
                return
            if trap == "die":
                self.done_at = now + cost_ms / 1e3 * self.speed * self.world.rng.random()

    def _finish(self) -> None:
        batch, self.running = self.running, None
        traps = [self.house.poison.get(row.ids) for row in batch.rows]
        if "die" in traps:
            self.running = batch
            self.house.ended(self, "sigsegv")
            return
        self.has_worked = True
        if self.link is None or self.link is not self.run_link:
            self.house.reached["batch of a dead dispatcher finished"] += 1
            return
        self.assigned.pop(0)
        if "raise" in traps:
            if len(batch.rows) == 1:
                self.house.blame(batch)
            self.link.send(Failed(batch.batch, False, "trap"))
        else:
            self.link.send(Done(batch.batch, self.took_us, 1,
                                b"".join(row.ids[:4] for row in batch.rows)))


class Forkserver(Process):
    """Loads for a while, then is ready; the master asks it for engines."""

    def __init__(self, house: House, incarnation: int, on_ready) -> None:
        super().__init__(house.world, "forkserver", 0, incarnation)
        self.on_ready = on_ready
        self.ready_at = house.world.now + house.world.between(0.1, 0.5)
        self.alive_until = house.world.now + 60.0

    def turn(self, items: list, now: float) -> float | None:
        if not self.is_up and now >= self.ready_at:
            self.is_up = self.has_worked = True
            self.on_ready(self.incarnation)
        return None if self.is_up else self.ready_at
