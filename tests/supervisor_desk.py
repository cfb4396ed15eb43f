"""A supervisor with a clock, and the processes that it believes in, each with its reading."""

from dataclasses import dataclass

from server.generation import Place
from server.leases import is_fault
from server.orders import Begin, Dismiss, Plan, Reading, Retire, Spawn
from server.supervise import TICK_S, Supervisor

LEASE_S = 5.0


@dataclass
class Life:
    """A process: who it is, and what its page says."""

    role: str
    index: int
    generation: int
    alive_until: float
    cpu_until: float = 0.0
    cpu_used: float = 0.0
    is_up: bool = True
    is_hung: bool = False


class Desk:
    """Obeys the supervisor and tells it what happens."""

    def __init__(self, engines=2, fronts=2, **times):
        self.now = 1000.0
        self.supervisor = Supervisor(Plan(fronts, engines, **times), self.now)
        self.lives = {}
        self.done = []
        self.generations = {}           # number → folder, while it is not retired
        self.dismissed = []
        self.supervisor.start("first", self.now)
        self.take()

    def take(self):
        """Obeys; returns and remembers the actions."""
        actions = self.supervisor.take_actions()
        for action in actions:
            if isinstance(action, Begin):
                assert action.generation not in self.generations
                self.generations[action.generation] = action.model
                assert len(self.generations) <= 2, "a third generation"
                assert len({number % 2 for number in self.generations}) == len(self.generations)
            elif isinstance(action, Spawn):
                place = action.role, action.index, action.generation
                assert place not in self.places(), "two processes in a place"
                assert action.generation in self.generations
                self.lives[action.incarnation] = Life(*place, self.now + LEASE_S)
            elif isinstance(action, Dismiss):
                self.dismissed.append(action.generation)
            elif isinstance(action, Retire):
                assert not self.of(action.generation), "retired with processes left"
                del self.generations[action.generation]
        self.done += actions
        return actions

    # ---- who there is -------------------------------------------------------------------

    def places(self):
        return {(life.role, life.index, life.generation) for life in self.lives.values()}

    def of(self, generation):
        return [number for number, life in self.lives.items() if life.generation == generation]

    def incarnation(self, role, index=0, generation=None):
        """The process in a place; of the youngest generation that has one there."""
        found = [(life.generation, number) for number, life in self.lives.items()
                 if (life.role, life.index) == (role, index)
                 and generation in (None, life.generation)]
        return max(found)[1]

    def life(self, role, index=0, generation=None):
        return self.lives[self.incarnation(role, index, generation)]

    def hang(self, role, index=0, generation=None):
        self.life(role, index, generation).is_hung = True

    # ---- what happens -------------------------------------------------------------------

    def prepared(self):
        number = self.incarnation("preparer")
        del self.lives[number]
        self.supervisor.prepared(number, self.now)
        return self.take()

    def refused(self, sentence):
        self.supervisor.refused("preparer", self.incarnation("preparer"), sentence, self.now)
        return self.take()

    def forkserver_ready(self):
        self.supervisor.forkserver_ready(self.incarnation("forkserver"), self.now)
        return self.take()

    def engine_serves(self):
        self.supervisor.engine_serves(self.incarnation("dispatcher"), self.now)
        return self.take()

    def tested(self, index, fault=""):
        self.supervisor.tested(self.incarnation("front", index), index, fault, self.now)
        return self.take()

    def opened(self, index):
        self.supervisor.opened(self.incarnation("front", index), index, self.now)
        return self.take()

    def drained(self, index, generation=None):
        number = self.incarnation("front", index, generation)
        self.supervisor.drained(number, index, self.now)
        return self.take()

    def vanish(self, role, index=0, generation=None):
        number = self.incarnation(role, index, generation)
        del self.lives[number]
        return number

    def die(self, role, index=0, cause="sigkill", has_worked=True, words="", generation=None):
        number = self.vanish(role, index, generation)
        self.supervisor.exited(role, index, number, cause, is_fault(cause), has_worked, self.now,
                               words)
        return self.take()

    def bury_dismissed(self):
        """Everyone who was told to end does."""
        for generation in self.dismissed:
            for number in self.of(generation):
                life = self.lives.pop(number)
                self.supervisor.exited(life.role, life.index, number, "sigkill", False, True,
                                       self.now)
                self.take()
        self.dismissed.clear()

    def made_ready(self):
        self.prepared()
        self.forkserver_ready()
        self.engine_serves()
        return self

    def reload(self, model=""):
        ticket = self.supervisor.reload(model, self.now)
        self.take()
        return ticket

    def rehearsed(self):
        """The new generation up to the moment before the commit."""
        self.prepared()
        self.forkserver_ready()
        self.engine_serves()
        for index in range(self.supervisor.plan.fronts):
            self.tested(index)
        return self

    def committed(self):
        """The new generation lets clients in; the old one drains."""
        self.rehearsed()
        self.tick()
        for index in range(self.supervisor.plan.fronts):
            self.opened(index)
        return self

    def tick(self, seconds=TICK_S, stopped=()):
        """Time goes by; everyone but the hung and the stopped shows that it lives."""
        self.now += seconds
        for number, life in self.lives.items():
            if not life.is_hung and number not in stopped:
                life.alive_until = self.now + LEASE_S
        self.supervisor.tick({
            number: Reading(life.alive_until, life.cpu_until, life.cpu_used, life.is_up, True)
            for number, life in self.lives.items()}, self.now)
        return self.take()

    def wait(self, seconds, **options):
        found = []
        until = self.now + seconds
        while self.now < until:
            found += self.tick(**options)
        return found


def spawned(actions):
    return [(a.role, a.index) for a in actions if isinstance(a, Spawn)]


def kinds(actions, kind):
    return [action for action in actions if isinstance(action, kind)]
