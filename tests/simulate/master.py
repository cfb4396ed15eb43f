"""The master of the simulation: the real supervisor, with simulated forks, reaping and leases."""

from collections.abc import Callable

from server.leases import is_fault
from server.orders import (AnnounceReady, Begin, CountRestart, Dismiss, EnterPhase, Exit, Kill,
                           Plan, Reading, ReportDeath, Retire, Spawn, TellReload)
from server.supervise import Supervisor
from tests.simulate.front import Front
from tests.simulate.roles import Dispatcher, Engine, Forkserver, House, Preparer
from tests.simulate.world import HEARTBEAT_S, LOOP_LEASE_S, Process


class Master(Process):
    """Holds every process; a death reaches it a moment later, as SIGCHLD does.

    `children` go by incarnation; `phases` are those of the generations that are not retired.
    """

    def __init__(self, house: House, plan: Plan) -> None:
        self.supervisor = Supervisor(plan, house.world.now)
        self.children: dict[int, Process] = {}
        self.phases: dict[int, str] = {}
        self.house = house
        self.is_ready = False
        self.restarts: dict[str, int] = {}
        self.asked: list[int] = []
        self.told: list[int] = []
        self.exit: Exit | None = None
        super().__init__(house.world, "master", 0, 0)
        house.ended = self.end
        self.supervisor.start("", self.world.now)

    def end(self, process: Process, cause: str) -> None:
        """A process dies now; its engine's batch is blamed in truth where the cause is a fault."""
        process.die()
        self.house.on_death(process)
        if self.house.dispatcher.get(process.generation) is process:
            del self.house.dispatcher[process.generation]
        process.died_of_fault = is_fault(cause, process.killed_by_master)
        if isinstance(process, Engine) and process.died_of_fault:
            blamed = [process.running] if process.running is not None else []
            blamed += [batch for batch in process.assigned[:1] if batch not in blamed]
            for batch in blamed:
                self.house.blame(batch)
        self.world.at(self.world.now + self.world.between(1e-4, 5e-3), self.deliver, process,
                      ("died", cause))

    def phase_of(self, process: Process) -> str:
        """The phase of a process's generation, "" for one that never had any."""
        return self.phases.get(process.generation, "")

    def turn(self, items: list, now: float) -> float | None:
        supervisor = self.supervisor
        for source, (kind, given) in items:
            if kind == "reload":
                self.asked.append(supervisor.reload("", now))
            elif kind == "signal":
                supervisor.signal(given, now)
            elif kind == "died":
                self.children.pop(source.incarnation, None)
                supervisor.exited(source.role, source.index, source.incarnation, given,
                                  is_fault(given), source.has_worked, now)
            elif kind == "never came":
                self.children.pop(source.incarnation, None)
                supervisor.never_came(source.role, source.index, source.incarnation, now)
            elif kind == "prepared":
                supervisor.prepared(source.incarnation, now)
                self.end(source, "exit-0")
            elif kind == "refused":
                supervisor.refused("preparer", source.incarnation, "broken", now)
            elif kind == "loaded":
                supervisor.forkserver_ready(source.incarnation, now)
            elif kind == "serves":
                supervisor.engine_serves(source.incarnation, now)
            elif kind == "tested":
                supervisor.tested(source.incarnation, source.index, given, now)
            elif kind == "opened":
                supervisor.opened(source.incarnation, source.index, now)
            elif kind == "drained":
                supervisor.drained(source.incarnation, source.index, now)
        supervisor.tick(self._readings(), now)
        actions = supervisor.take_actions()
        while actions:
            for action in actions:
                self._do(action, now)
            actions = supervisor.take_actions()
        return supervisor.next_timer(now)

    def _readings(self) -> dict[int, Reading]:
        return {number: Reading(child.alive_until, 0.0, 0.0, child.is_up, child.has_worked)
                for number, child in self.children.items()}

    def _do(self, action: object, now: float) -> None:
        house = self.house
        if isinstance(action, Spawn):
            self._spawn(action)
        elif isinstance(action, Kill):
            self._kill(self.children[action.incarnation], now)
        elif isinstance(action, ReportDeath):
            self._report(action)
        elif isinstance(action, AnnounceReady):
            self.is_ready = True
        elif isinstance(action, Begin):
            self.phases[action.generation] = ""
            if len(self.phases) > 2:
                house.violate(f"{len(self.phases)} generations live")
        elif isinstance(action, EnterPhase):
            self._enter(action)
        elif isinstance(action, Dismiss):
            self._dismiss(action.generation)
        elif isinstance(action, Retire):
            del self.phases[action.generation]
            house.backlog.pop(action.generation, None)
        elif isinstance(action, TellReload):
            self.told += action.tickets
            house.reached["reload ok" if action.is_ok else "reload failed"] += 1
        elif isinstance(action, CountRestart):
            self.restarts[action.cause] = self.restarts.get(action.cause, 0) + 1
        elif isinstance(action, Exit):
            self.exit = action

    def _enter(self, action: EnterPhase) -> None:
        self.phases[action.generation] = action.phase
        fronts = [child for child in self.children.values() if child.role == "front"]
        if action.phase == "replaced" and not any(
                front.is_open and front.generation > action.generation for front in fronts):
            self.house.violate("the old fronts close before a new one lets clients in")
        for front in fronts:
            if front.generation == action.generation:
                self._tell(front, ("phase", action.phase))

    def _dismiss(self, generation: int) -> None:
        for child in list(self.children.values()):
            if child.generation == generation and child.is_alive:
                # After the drain's time a front that is stopped may not even have said its 503s.
                if isinstance(child, Front) and self.house.busy_clients(child) \
                        and self.phases[generation] != "stop":
                    self.house.violate(f"front {child.index} is dismissed with open requests")
                child.killed_by_master = True
                self.end(child, "sigkill")

    def _tell(self, child: Process, message: object) -> None:
        self.world.at(self.world.now + self.world.between(1e-5, 1e-4), child.deliver, "control",
                      message)

    def _report(self, action: ReportDeath) -> None:
        told, first = ("dispatcher", action.index) if action.role == "engine" \
            else ("front", "death")
        for child in self.children.values():
            if child.role == told and child.generation == action.generation:
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
        world, generation, child = self.world, action.generation, self._make(action)
        if action.role == "engine" and not any(
                one.role == "forkserver" and one.generation == generation and one.is_alive
                for one in self.children.values()):
            self.house.reached["engine asked of a dead forkserver"] += 1
            child.die()
            world.at(world.now + 1e-3, self.deliver, child, ("never came", ""))
        self.children[action.incarnation] = child
        self.house.on_spawn(child, self.phases[generation])
        child.stop(world.between(5e-4, 5e-3))       # the fork itself
        child.stopped_since = None

    def _make(self, action: Spawn) -> Process:
        role, number, generation = action.role, action.incarnation, action.generation
        if role == "front":
            return Front(self.house, action.index, number, generation, self.phases[generation],
                         self._hears(number))
        if role == "dispatcher":
            child = Dispatcher(self.house, number, generation)
            child.on_first_engine = lambda: self.deliver(child, ("serves", ""))
            return child
        if role == "forkserver":
            return Forkserver(self.house, number, generation, self._hears(number))
        if role == "preparer":
            return Preparer(self.house, number, generation, self._hears(number))
        return Engine(self.house, action.index, number, generation)

    def _hears(self, incarnation: int) -> Callable[[str, str], None]:
        """What a child says reaches the master a moment later."""
        def tell(kind: str, given: str) -> None:
            world = self.world
            child = self.children.get(incarnation)
            if child is not None:
                world.at(world.now + world.between(1e-5, 1e-4), self.deliver, child, (kind, given))
        return tell
