"""A GPU in the simulation: its engine, and the master's part around the real state machine."""

from server.messages import GPU, HIGH, LOW, NO_BATCH, Batch, Done, EngineHello, Failed
from server.pressure import DeviceReading, Entered, Leave, Limits, Pressure, Start
from tests.simulate.roles import Engine, House, stamped
from tests.simulate.world import EOF, Process, pipe

FIRST_INCARNATION = 1 << 40
TOTAL, PLENTY, FOOTPRINT = 1000, 900, 50
LIMITS = Limits(20, 0.0, 5, 0.0, hold_s=0.5, back_off_s=0.3, longest_back_off_s=2.0, good_s=3.0)
GPU_COSTS = [(1, 8, 0.06), (1, 64, 0.3), (1, 512, 2.4), (8, 64, 0.37), (8, 512, 2.4)]
TOKEN_MS, BASE_MS = 0.005, 0.1
DUE_S = 2.0
READ_EVERY_S = 0.1


class GpuEngine(Engine):
    """Takes batches ahead in two lanes, and ends in every way that a real one does."""

    def __init__(self, house: House, host: "GpuHost", incarnation: int, generation: int) -> None:
        super().__init__(house, 0, incarnation, generation)
        self.role, self.host = "gpu_engine", host
        self.ready_at = house.world.now + house.world.between(0.1, 0.6)
        self.is_leaving = False
        # By number: low batches that ran or began while a high one waited.
        self.low_ahead: dict[int, int] = {}
        self.will = ""              # what its next batch meets: "oom", "nan", "hang", "crash"
        self.wake(self.ready_at)

    def turn(self, items: list, now: float) -> float | None:
        if now < self.ready_at:
            self.inbox = items + self.inbox         # it hears nothing while it loads
            return self.ready_at
        if not self.is_up:
            self.is_up = True
            self.host.deliver(self, "serves")
        for source, message in items:
            if source == "control":
                self._leave(message)
            elif source is self.link:
                self._hear(message)
        if self.running is not None and now >= self.done_at:
            self._finish()
        if not self.is_alive or self.is_hung:
            return None
        if self.is_leaving and self.running is None and not self.waiting:
            self.host.end(self, "died")
            return None
        if self.link is None and self.running is None and not self.is_leaving:
            self._connect()
        if self.running is None and self.waiting:
            self._begin(now)
        return self.done_at if self.running is not None else None

    def _leave(self, reason: str) -> None:
        self.is_leaving = True
        if self.link is not None:
            self.link.send(Failed(NO_BATCH, True, reason))

    def _hear(self, message: object) -> None:
        if message is EOF:
            self.link.close()
            self.ends.remove(self.link)
            self.link, self.waiting, self.assigned, self.low_ahead = None, [], [], {}
        elif self.is_leaving:
            self.house.reached["batch given back by a leaving GPU"] += 1
            self.assigned.remove(message)
            self.link.send(Failed(message.batch, True, "leaving"))
        else:
            self.waiting.append(message)
            if message.priority == HIGH:
                self.low_ahead[message.batch] = \
                    self.running is not None and self.running.priority == LOW

    def _next(self) -> Batch:
        """The high lane goes first wherever both wait."""
        return min(self.waiting, key=lambda batch: batch.priority)

    def _begin(self, now: float) -> None:
        """The oracle of lanes counts what a high batch sees begin before it."""
        batch = self._next()
        self.house.reached["high batch overtook a low one on a GPU"] += batch is not self.waiting[0]
        self.waiting.remove(batch)
        self.low_ahead.pop(batch.batch, None)
        if batch.priority == LOW:
            self.low_ahead = {number: ahead + 1 for number, ahead in self.low_ahead.items()}
            if any(ahead > 1 for ahead in self.low_ahead.values()):
                self.house.violate("a high batch waits behind more than one low one on a GPU")
        self._start(batch, now)

    def _connect(self) -> None:
        self.link, far = pipe(self.world, self, None)
        self.ends.append(self.link)
        self.link.send(EngineHello(GPU, self.index, self.incarnation, self.generation,
                                   2 + self.generation % 3, GPU_COSTS))
        self.house.connect(far, self.generation)

    def _start(self, batch: Batch, now: float) -> None:
        cost_ms = BASE_MS + TOKEN_MS * sum(row.tokens for row in batch.rows)
        self.running, self.run_link = batch, self.link
        self.due_at = now + DUE_S
        self.took_us = int(cost_ms * 1e3 * self.speed)
        self.done_at = now + self.took_us / 1e6
        traps = {self.house.poison.get(row.ids) for row in batch.rows}
        if self.will == "hang" or "hang" in traps:
            self.is_hung = True
            self.alive_until = self.due_at

    def _finish(self) -> None:
        batch, self.running = self.running, None
        traps = {self.house.poison.get(row.ids) for row in batch.rows}
        will, self.will = self.will, ""
        if will == "crash" or "die" in traps:
            self.running = batch
            self.host.end(self, "cuda_error")
            return
        if self.link is None or self.link is not self.run_link:
            return
        if will == "oom":
            for open_one in self.assigned:
                self.link.send(Failed(open_one.batch, True, "no memory"))
            self.assigned = []
            self.host.pressure.allocation_failed(self.world.now)
            self.host.end(self, "allocation")
            return
        self.assigned.remove(batch)
        if will == "nan" or "raise" in traps:
            self.house.reached["GPU's logits not finite"] += 1
            self.link.send(Failed(batch.batch, False, "not finite"))
            return
        self.house.reached["batch answered by a GPU"] += 1
        self.link.send(Done(batch.batch, self.took_us, 2 + self.generation % 3,
                            b"".join(stamped(row, self.generation) for row in batch.rows)))


class GpuHost(Process):
    """Watch and master's part in one: readings, the real Pressure, one engine.

    `serving` gives the generation that is serving, 0 before the first.
    """

    def __init__(self, house: House, serving) -> None:
        self.pressure = Pressure(LIMITS, FOOTPRINT)
        self.house, self._serving = house, serving
        self.engine: GpuEngine | None = None
        self.free = PLENTY
        self.blind_until = 0.0
        self._said = ""
        self._next = FIRST_INCARNATION
        super().__init__(house.world, "gpu_host", 0, 0)

    def turn(self, items: list, now: float) -> float | None:
        pressure = self.pressure
        for source, said in items:
            if said == "serves" and source is self.engine:
                pressure.serves(FOOTPRINT, now)
            elif source is self.engine:
                self.engine = None
                pressure.ended(self._said or said, now)
                self._said = ""
        if now >= self.blind_until:
            pressure.read(DeviceReading(now, TOTAL, self.free), now)
        engine, generation = self.engine, self._serving()
        if engine is not None and engine.is_hung and now > engine.due_at:
            self.house.reached["GPU engine killed past its due"] += 1
            self.end(engine, "hang")
        elif engine is not None and engine.is_alive and engine.generation != generation \
                and not self._said and pressure.state in ("ok", "tight"):
            self._said = "reload"
            self._tell("reload")
        if generation:
            pressure.tick(now)
        for action in pressure.take_actions():
            if isinstance(action, Start):
                self.engine = GpuEngine(self.house, self, self._next, generation)
                self._next += 1
            elif isinstance(action, Leave):
                self._tell(action.reason)
            elif isinstance(action, Entered):
                self.house.reached[f"GPU {action.state}: {action.reason}"] += 1
        return now + READ_EVERY_S

    def _tell(self, reason: str) -> None:
        """The dispatcher and the engine that it leaves; either may hear it first."""
        engine = self.engine
        if engine is None:
            return
        dispatcher = self.house.dispatcher.get(engine.generation)
        for told, message in ((dispatcher, (engine.index, engine.incarnation, None)),
                              (engine, reason)):
            if told is not None:
                self.world.at(self.world.now + self.world.between(1e-5, 1e-4), told.deliver,
                              "control", message)

    def end(self, engine: GpuEngine, reason: str) -> None:
        """The engine's process ends now, of that."""
        if engine.is_alive:
            self.house.reached["GPU engine ended with batches"] += bool(engine.assigned)
            engine.die()
            self.world.at(self.world.now + self.world.between(1e-4, 5e-3), self.deliver, engine,
                          reason)

    # ---- faults -------------------------------------------------------------------------------

    def fault(self, kind: str) -> None:
        """One of FAULTS happens to the device, its engine or its watch."""
        world, engine = self.world, self.engine
        if kind == "low memory":
            self.free = world.pick([1, 10, 10])
            world.at(world.now + world.pick([0.05, 0.5, 3.0]), self._give_back)
        elif kind == "dead watch":
            self.blind_until = world.now + world.pick([0.5, 5.0])
        elif kind == "lost device":
            self.pressure.lost("device_lost", world.now)
        elif engine is not None and engine.is_alive and kind == "kill":
            self.end(engine, "killed")
        elif engine is not None and engine.is_alive:
            engine.will = kind

    def _give_back(self) -> None:
        self.free = PLENTY


FAULTS = ("low memory", "low memory", "dead watch", "kill", "oom", "nan", "hang", "crash")
