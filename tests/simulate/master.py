"""The master of the simulation: the real supervisor, with simulated forks, reaping and leases."""

from server.supervise import (AnnounceReady, CountRestart, EnterPhase, Exit, Kill, Plan, Reading,
                              ReportDeath, Spawn, Supervisor, is_fault)
from tests.simulate.roles import Dispatcher, Engine, Forkserver, Front, House
from tests.simulate.world import HEARTBEAT_S, LOOP_LEASE_S, Process


class Master(Process):
    """Holds every process; a death reaches it a moment later, as SIGCHLD does."""

    def __init__(self, house: House, plan: Plan) -> None:
        self.supervisor = Supervisor(plan, house.world.now)
        self.children: dict[tuple[str, int], Process] = {}
        self.house = house
        self.is_ready = False
        self.restarts: dict[str, int] = {}
        self.exit: Exit | None = None
        super().__init__(house.world, "master", 0, 0)
        house.ended = self.end
        self.supervisor.start(self.world.now)
        self.world.at(self.world.now + 0.05, self.deliver, "preparer", None)

    def end(self, process: Process, cause: str) -> None:
        """A process dies now; its engine's batch is blamed in truth where the cause is a fault."""
        process.die()
        self.house.on_death(process)
        if process is self.house.dispatcher:
            self.house.dispatcher = None
        process.died_of_fault = is_fault(cause, process.killed_by_master)
        if isinstance(process, Engine) and process.died_of_fault:
            blamed = [process.running] if process.running is not None else []
            blamed += [batch for batch in process.assigned[:1] if batch not in blamed]
            for batch in blamed:
                self.house.blame(batch)
        self.world.at(self.world.now + self.world.between(1e-4, 5e-3), self.deliver, process,
                      cause)

    def turn(self, items: list, now: float) -> float | None:
        supervisor = self.supervisor
        for source, message in items:
            if source == "preparer":
                self.children.pop(("preparer", 0), None)
                supervisor.prepared(now)
            elif source == "forkserver":
                supervisor.forkserver_ready(message, now)
            elif source == "serves":
                supervisor.engine_serves(now)
            else:
                place = source.role, source.index
                if self.children.get(place) is source:
                    del self.children[place]
                if message == "never came":
                    supervisor.never_came(*place, source.incarnation, now)
                else:
                    supervisor.exited(*place, source.incarnation, message, is_fault(message),
                                      source.has_worked, now)
        supervisor.tick(self._readings(), now)
        actions = supervisor.take_actions()
        while actions:
            for action in actions:
                self._do(action, now)
            actions = supervisor.take_actions()
        return supervisor.next_timer(now)

    def _readings(self) -> dict[tuple[str, int], Reading]:
        return {place: Reading(child.alive_until, 0.0, 0.0, child.is_up, child.has_worked)
                for place, child in self.children.items()}

    def _do(self, action: object, now: float) -> None:
        if isinstance(action, Spawn):
            self._spawn(action)
        elif isinstance(action, Kill):
            self._kill(self.children[action.role, action.index], now)
        elif isinstance(action, ReportDeath):
            self._report(action)
        elif isinstance(action, AnnounceReady):
            self.is_ready = True
        elif isinstance(action, EnterPhase):
            for child in self.children.values():
                if child.role == "front":
                    self._tell(child, ("ready",))
        elif isinstance(action, CountRestart):
            self.restarts[action.cause] = self.restarts.get(action.cause, 0) + 1
        elif isinstance(action, Exit):
            self.exit = action

    def _tell(self, child: Process, message: object) -> None:
        self.world.at(self.world.now + self.world.between(1e-5, 1e-4), child.deliver, "control",
                      message)

    def _report(self, action: ReportDeath) -> None:
        told, first = ("dispatcher", action.index) if action.role == "engine" \
            else ("front", "death")
        for child in self.children.values():
            if child.role == told:
                self._tell(child, (first, action.incarnation, action.is_fault))

    def _kill(self, child: Process, now: float) -> None:
        """The oracle of leases: who is killed was hung, or stopped alone for longer than it."""
        self.house.reached["killed past its lease: " + child.role] += 1
        is_stopped = child.stopped_since is not None and \
            now - child.stopped_since - child.shared_stop_s >= LOOP_LEASE_S - 2 * HEARTBEAT_S
        if not child.is_hung and not is_stopped:
            self.house.violate(f"{child.role} {child.index} was healthy and is killed")
        child.killed_by_master = True
        self.end(child, "sigkill")

    def _spawn(self, action: Spawn) -> None:
        role, index, incarnation = action.role, action.index, action.incarnation
        world = self.world
        if role == "preparer":
            return
        if role == "front":
            child: Process = Front(self.house, index, incarnation, self.is_ready)
        elif role == "dispatcher":
            child = Dispatcher(self.house, incarnation)
            child.on_first_engine = lambda: self.deliver("serves", None)
        elif role == "forkserver":
            child = Forkserver(self.house, incarnation,
                               lambda number: self.deliver("forkserver", number))
        else:
            child = Engine(self.house, index, incarnation)
            if ("forkserver", 0) not in self.children or not \
                    self.children["forkserver", 0].is_alive:
                self.house.reached["engine asked of a dead forkserver"] += 1
                child.die()
                world.at(world.now + 1e-3, self.deliver, child, "never came")
        self.children[role, index] = child
        child.stop(world.between(5e-4, 5e-3))       # the fork itself
        child.stopped_since = None
