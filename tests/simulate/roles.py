"""The house's processes but fronts: thin shells over the real state machines, as the real are."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from server import codec
from server.dispatch import (Answered, Policy, RunBatch, SendNotes, SendRefused, SendResults,
                             SendState)
from server.inflight import Limits
from server.leases import due_s
from server.linked import Run
from server.messages import (HIGH, LOW, Batch, Cancel, Done, EngineHello, Failed, FrontHello,
                             Jobs, LoneJobs, Notes, PackedBatch, Refused, Results, Row)
from server.scheduler import Scheduler
from server.sharing import waiting_for
from server.turns import GONE, QUEUED, Entry
from tests.simulate.world import EOF, End, Process, World, pipe

COSTS = [(1, 8, 0.6), (1, 64, 3.0), (1, 512, 24.0), (8, 64, 3.7), (8, 512, 24.0)]
TOKEN_MS, BASE_MS = 0.05, 0.2


def stamped(row: Row, model: int) -> bytes:
    """What the engines of a generation answer to a row: each model has labels of its own number."""
    return row.ids[:4] + bytes([(model + 7 * row.split) % 256]) * (4 * (1 + model % 3))


class House:
    """What the processes share with the observer: the backlog, the truth about jobs, counters."""

    def __init__(self, world: World, limits: Limits, policy: Policy, drain_s: float) -> None:
        self.world, self.limits, self.policy, self.drain_s = world, limits, policy, drain_s
        # By generation: links that wait to be accepted, the dispatcher that lives.
        self.backlog: dict[int, list[End]] = defaultdict(list)
        self.dispatcher: dict[int, Dispatcher] = {}
        self.reached: Counter[str] = Counter()
        self.poison: dict[bytes, str] = {}
        # A row's ids → faults that really happened while it ran.
        self.faults: Counter[bytes] = Counter()
        self.violations: list[str] = []
        self.finished = None            # set by the play: (front, group, outcome, now)
        self.ended = None               # set by the master: (process, cause)
        self.on_death = None            # set by the play: (process)
        self.on_spawn = None            # set by the play: (process, phase of its generation)
        self.busy_clients = None        # set by the play: (front) → clients with open requests

    def blame(self, batch: Batch) -> None:
        """What really happened: these rows ran when their engine failed by a fault."""
        for row in batch.rows:
            self.faults[row.ids] += 1

    def real_faults(self, front: Process, job: int) -> int | None:
        """The faults of an open job of a front; None for one that it does not hold any more."""
        held = front.held._jobs.get(job)
        if type(held) is tuple:
            held = codec.read_lone(held)
        return None if held is None else self.faults[held.ids]

    def connect(self, end: End, generation: int) -> None:
        """A link's far end, in the backlog of a generation's dispatcher."""
        self.backlog[generation].append(end)
        if generation in self.dispatcher:
            self.dispatcher[generation].wake(self.world.now)

    def violate(self, what: str) -> None:
        self.violations.append(f"at {self.world.now:.6f} s: {what}")


class Dispatcher(Process):
    """The dispatcher around the real scheduler."""

    def __init__(self, house: House, incarnation: int, generation: int) -> None:
        super().__init__(house.world, "dispatcher", 0, incarnation, generation)
        self.house = house
        self.scheduler = Scheduler(incarnation, house.policy)
        self.peers: dict[End, object] = {}
        self.by_key: dict[object, End] = {}
        self.is_up = self.has_worked = True
        self.on_first_engine = None
        self.fell_on_gpus: set[Entry] = set()
        self.shared_seen = [0, 0, 0]
        house.dispatcher[generation] = self

    def turn(self, items: list, now: float) -> float | None:
        for far in self.house.backlog.pop(self.generation, ()):
            self.peers[far] = None
            self.ends.append(far)
            far.accept(self)
        items += self.inbox
        self.inbox = []
        verdicts = [message for source, message in items if source == "control"]
        for source, message in items:
            if source != "control" and source in self.peers:
                self._take(source, message, now)
        for index, incarnation, is_fault in verdicts:
            if is_fault is None:
                self.scheduler.leaving(index, incarnation)
            else:
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
        elif isinstance(message, LoneJobs):
            scheduler.lone(who[1:], message, now)
        elif isinstance(message, Cancel):
            scheduler.cancel(who[1:], message.jobs)
        elif isinstance(message, Done):
            if scheduler.sharing.is_on:
                self._note_twins(scheduler.pool.engines[who[1:]].runs)
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
        if end.peer.owner is not None and end.peer.owner.role == "gpu_engine":
            self.fell_on_gpus.update(job for run in self.scheduler.pool.engines[who[1:]].runs
                                     for entry in run.entries for job in waiting_for(entry))
        if who[0] == "front":
            self.scheduler.front_gone(who[1:])
        else:
            self.scheduler.engine_gone(*who[1:])

    def _note_twins(self, runs: Sequence[Run]) -> None:
        """What an answer reaches, if it is for jobs that share it."""
        reached = self.house.reached
        for entry in runs[0].entries if runs else ():
            jobs = waiting_for(entry)
            if entry.where == GONE:
                reached["answer for the twins of a job that left"] += bool(jobs)
            elif len(jobs) > 1:
                reached["answer for twins of several fronts"] += any(
                    job.source != entry.source for job in jobs)
                reached["answer for twins of both classes"] += any(
                    job.priority != entry.priority for job in jobs)
                reached["answer for twins that are suspects"] += entry.is_alone

    def _run(self, engine: "Engine", batch: Batch | PackedBatch) -> Run:
        return self.scheduler.pool.engines[engine.index, engine.incarnation].find(batch.batch)

    def _rows(self, engine: "Engine", batch: Batch | PackedBatch) -> Batch:
        """A batch by rows, whichever way it came to be."""
        if isinstance(batch, Batch):
            return batch
        self.house.reached["batch of blocks"] += 1
        tokens = [count for block in self._run(engine, batch).blocks
                  for count in block.lone.tokens]
        rows, at = [], 0
        for count, size, split in zip(tokens, batch.sizes, batch.splits):
            rows.append(Row(count, split, batch.ids[at:at + size]))
            at += size
        assert at == len(batch.ids) and len(tokens) == len(batch.splits)
        return Batch(batch.batch, batch.priority, rows)

    def _judge_choice(self, engine: "Engine", batch: Batch) -> None:
        """The oracle of GPUs: none gets what one fell over or two classes at once, and CPU engines
        are parked."""
        run = self._run(engine, batch)
        if engine.role == "gpu_engine":
            if len({entry.priority for entry in run.entries}) > 1:
                self.house.violate("a GPU's batch is of both classes")
            if any(job in self.fell_on_gpus for entry in run.entries
                   for job in waiting_for(entry)):
                self.house.violate("a GPU gets a text that a GPU fell over")
        elif self.scheduler.pool.gpus:
            if not all(entry.is_alone or entry.is_for_cpu for entry in run.entries):
                self.house.violate("a CPU engine works though a GPU serves")

    def _judge_wait(self, now: float) -> None:
        """The oracle of lanes: a high job that a GPU may have is never left in the queue while its
        high lane has room, unless high has had its share and low is there."""
        scheduler = self.scheduler
        queue = scheduler._queue
        for gpu in scheduler.pool.gpus:
            lanes = Counter(run.priority for run in gpu.runs)
            if lanes[HIGH] == 2 or lanes[LOW] and queue._high_ahead_ms > 0:
                continue
            for entries in scheduler._by_source.values():
                for entry in entries.values():
                    if entry.where == QUEUED and entry.priority == HIGH and entry.deadline > now \
                            and not (entry.is_alone or entry.is_for_cpu):
                        self.house.violate("a high job waits though a GPU's high lane has room")
                        return

    def _act(self, now: float) -> None:
        counts = self.scheduler.sharing.counts
        for what, count, seen in zip(("known text", "text joined"), counts, self.shared_seen):
            self.house.reached[what] += count - seen
        self.shared_seen = counts.copy()
        for action in self.scheduler.take_actions(now):
            if isinstance(action, RunBatch):
                end = self.by_key["engine", action.engine, action.incarnation]
                engine = end.peer.owner
                batch = self._rows(engine, action.batch)
                end.send(batch)
                engine.assigned.append(batch)
                self._judge_choice(engine, batch)
                if engine.died_of_fault and len(engine.assigned) == 1:
                    self.house.blame(batch)             # dead already, its end not yet seen
            elif isinstance(action, SendState):
                for key, end in self.by_key.items():
                    if key[0] == "front":
                        end.send(action.state)
            elif isinstance(action, (Answered, SendResults, SendRefused, SendNotes)):
                end = self.by_key.get(("front", *action.source))
                if end is None:
                    continue
                if isinstance(action, Answered):
                    for data in codec.cut_results(codec.pack_answered(action)):
                        end.send(codec.decode(data))
                elif isinstance(action, SendResults):
                    end.send(Results(action.results))
                elif isinstance(action, SendRefused):
                    self.house.reached["group refused"] += 1
                    end.send(Refused([action.refusal]))
                else:
                    self.house.reached["blame noted"] += 1
                    end.send(Notes(action.notes))
        self._judge_wait(now)


class Engine(Process):
    """Answers each row with its own first bytes; poison rows do what they are named for."""

    def __init__(self, house: House, index: int, incarnation: int, generation: int) -> None:
        super().__init__(house.world, "engine", index, incarnation, generation)
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
        self.link.send(EngineHello(0, self.index, self.incarnation, self.generation,
                                   2 + self.generation % 3, COSTS))
        self.is_up = True
        self.house.connect(far, self.generation)

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
            self.link.send(Done(batch.batch, self.took_us, 2 + self.generation % 3,
                                b"".join(stamped(row, self.generation) for row in batch.rows)))


class Forkserver(Process):
    """Loads for a while, then is ready; the master asks it for engines."""

    def __init__(self, house: House, incarnation: int, generation: int, on_ready) -> None:
        super().__init__(house.world, "forkserver", 0, incarnation, generation)
        self.on_ready = on_ready
        self.ready_at = house.world.now + house.world.between(0.1, 0.5)
        self.alive_until = house.world.now + 60.0

    def turn(self, items: list, now: float) -> float | None:
        if not self.is_up and now >= self.ready_at:
            self.is_up = self.has_worked = True
            self.on_ready("loaded", "")
        return None if self.is_up else self.ready_at


class Preparer(Process):
    """Reads a checkpoint for a while; of some it says that they cannot be served."""

    def __init__(self, house: House, incarnation: int, generation: int, tell) -> None:
        super().__init__(house.world, "preparer", 0, incarnation, generation)
        self.tell = tell
        self.done_at = house.world.now + house.world.between(0.02, 0.3)
        self.is_broken = generation > 1 and house.world.rng.random() < 0.2

    def turn(self, items: list, now: float) -> float | None:
        if now < self.done_at:
            return self.done_at
        self.tell("refused" if self.is_broken else "prepared", "")
        return None
