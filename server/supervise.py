"""Who lives, who is started again, who is killed; when the server is ready, when a new model takes
over, and when the server ends (pure).

Each place of a generation should have a process (server/generation.py). Events come in as method
calls with `now` in monotonic seconds; `take_actions` gives what the master must do. A process is
known by its incarnation, whichever generation it is of.

Start: fronts, dispatcher, preparer → (prepared) forkserver → (forkserver ready) engines → (first
engine serves) ready. Until the first ready a death ends the server with exit code 3. After it:

- a process that has worked is replaced at once; one that died before it had worked waits 0.1 s,
  doubling to 5 s, so that a part that cannot start does not spin; one that never came to be (a
  failed fork, a forkserver that died with the order unread) is no death: it is tried again so;
- a death is a fault unless a signal KILL or TERM from outside caused it, or the process ended with
  status 0; the master's own kill of one that broke its lease is a fault;
- leases: each process says until when it is alive, and how much CPU time it may have used by then.
  Who is past it is killed. When this machine itself was late (stopped, frozen), everyone's lease
  moves by as much, because they may have been stopped with it;
- reload: preparer → (prepared) forkserver, dispatcher, fronts that let nobody in → engines →
  (everything up, each front has tested the whole way) the commit: the new fronts let clients in,
  and when all do, the old ones drain and their generation ends. A death or a refusal before the
  commit ends the reload and nothing else. At most two generations live, so what is asked for
  meanwhile is one further reload, with the model that was named last;
- stop: lame duck → draining → exit, or at once before the first ready and on a second signal. A
  reload that has not committed is given up.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from server.generation import (DRAINING, LEAVING, OPENING, PREPARING, SERVING, TESTING, Generation,
                               Place, Seat)
from server.orders import (AnnounceReady, Begin, CloseDoors, CountRestart, Dismiss, EnterPhase,
                           Exit, Kill, Plan, Reading, ReportDeath, Retire, Spawn, TellReload)
from server.reloads import Reloads

# A turn that comes this much later than it was due means that the machine itself stood still.
LATE_S = 1.0
TICK_S = 0.1
# A front may still send its 503s after the drain's end.
FAREWELL_S = 0.3
# From the forkserver's ready to the last front's test. Who hangs meanwhile breaks its lease; this
# is for what hangs between them.
TESTING_S = 60.0


@dataclass(slots=True)
class _Stop:
    """A stop under way: its phase and when that ends."""

    phase: str = ""
    until: float = math.inf


class Supervisor:
    """The master's decisions. Lives and generations are numbered from 1; no number is used
    twice."""

    def __init__(self, plan: Plan, now: float) -> None:
        self.plan = plan
        self.is_ready = False
        # At most two: the one that clients meet, and before or behind it another.
        self._generations: list[Generation] = []
        self._next_incarnation = 1
        self._last_number = 0
        self._reloads = Reloads()
        self._last_engine_at = now
        self._last_tick = now
        self._stop = _Stop()
        self._has_ended = False
        self._actions: list[object] = []

    def start(self, model: str, now: float) -> None:
        first = self._begin((), model)
        first.place("front", self.plan.fronts, now)
        first.place("dispatcher", 1, now)
        first.place("preparer", 1, now)
        self._fill(now)

    # ---- what processes tell ------------------------------------------------------------

    def prepared(self, incarnation: int, now: float) -> None:
        """The model is sealed; the preparer's place is closed."""
        found = self._find("preparer", 0, incarnation)
        if found is None:
            return
        generation = found[0]
        del generation.seats["preparer", 0]
        generation.place("forkserver", 1, now)
        generation.place("dispatcher", 1, now)
        generation.place("front", self.plan.fronts, now)
        self._fill(now)

    def refused(self, role: str, incarnation: int, sentence: str, now: float) -> None:
        """The preparer or the forkserver says that the checkpoint cannot be served."""
        found = self._find(role, 0, incarnation)
        if found is None:
            return
        if not self.is_ready:
            self._end(2, sentence)
        elif not found[0].is_committed:
            self._fail(found[0], sentence, now)

    def forkserver_ready(self, incarnation: int, now: float) -> None:
        found = self._find("forkserver", 0, incarnation)
        if found is None:
            return
        generation, seat = found
        generation.has_forkserver = seat.has_worked = True
        generation.place("engine", self.plan.engines, now)
        if generation.state == PREPARING and self.is_ready:
            generation.state, generation.until = TESTING, now + TESTING_S
        self._fill(now)

    def engine_serves(self, incarnation: int, now: float) -> None:
        """That dispatcher has its first engine."""
        found = self._find("dispatcher", 0, incarnation)
        if found is None:
            return
        generation = found[0]
        generation.has_served = True
        if not self.is_ready and not self._has_ended:
            self._last_engine_at = now
            self.is_ready = True
            generation.state = SERVING
            # The fronts are told first, so that whoever reads the announcement is not refused.
            self._enter("serving", generation)
            self._actions.append(AnnounceReady())
            self._begin_wanted(now)

    def tested(self, incarnation: int, index: int, fault: str, now: float) -> None:
        """A front has sent texts through its whole generation; `fault` says what came back wrong,
        empty for nothing."""
        found = self._find("front", index, incarnation)
        if found is None or found[0].is_committed:
            return
        found[0].tested.add(index)
        if fault:
            self._fail(found[0], fault, now)

    def opened(self, incarnation: int, index: int, now: float) -> None:
        """A front lets clients in."""
        found = self._find("front", index, incarnation)
        if found is None:
            return
        generation = found[0]
        generation.opened.add(index)
        if generation.is_open:
            generation.state = SERVING
            self._actions.append(TellReload(generation.tickets, True))
            for older in self._generations:
                if older is not generation and older.state == SERVING:
                    older.drain(now + self.plan.drain_s)
                    self._enter("replaced", older)
            self._end_drained(now)

    def drained(self, incarnation: int, index: int, now: float) -> None:
        """A front has nothing open any more."""
        found = self._find("front", index, incarnation)
        if found is not None:
            found[0].drained.add(index)
            self._end_drained(now)

    # ---- deaths -------------------------------------------------------------------------

    def exited(self, role: str, index: int, incarnation: int, cause: str, is_fault: bool,
               has_worked: bool, now: float, words: str = "") -> None:
        """A process was reaped. `cause` as in the metrics, `words` for people."""
        found = self._find(role, index, incarnation)
        if found is None:
            return
        generation, seat = found
        if seat.killed_why:
            cause, is_fault, words = "lease", True, seat.killed_why
        if role in ("engine", "dispatcher") and generation.state != LEAVING:
            self._actions.append(ReportDeath(role, index, incarnation, is_fault,
                                             generation.number))
        if not self.is_ready:
            self._end(3, f"{role} {index} ended before the server was ready: {words or cause}")
            return
        if generation.is_committed:
            self._actions.append(CountRestart(role, cause))
        self._leave_seat(generation, (role, index), seat, has_worked,
                         f"{role} {index} of the new generation ended: {words or cause}", now)

    def never_came(self, role: str, index: int, incarnation: int, now: float,
                   words: str = "") -> None:
        """A process that was to be started is not there and never was."""
        found = self._find(role, index, incarnation)
        if found is None:
            return
        if not self.is_ready:
            self._end(3, f"{role} {index} could not be started: {words}")
            return
        self._leave_seat(found[0], (role, index), found[1], False,
                         f"{role} {index} of the new generation could not be started: {words}",
                         now)

    def _leave_seat(self, generation: Generation, place: Place, seat: Seat, has_worked: bool,
                    reason: str, now: float) -> None:
        seat.vacate(has_worked, now)
        generation.gone(place)
        if generation.state in (PREPARING, TESTING):
            self._fail(generation, reason, now)
        self._retire_empty(now)
        self._end_drained(now)
        self._fill(now)

    def _find(self, role: str, index: int, incarnation: int) -> tuple[Generation, Seat] | None:
        for generation in self._generations:
            seat = generation.seats.get((role, index))
            if seat is not None and seat.incarnation == incarnation:
                return generation, seat
        return None

    # ---- reload -------------------------------------------------------------------------

    def reload(self, model: str, now: float) -> int:
        """Asks for a new generation from that folder ("": the one that is served now); the ticket
        that its outcome will name."""
        ticket, told = self._reloads.ask(model)
        self._actions += told
        if self._stop.phase or self._has_ended:
            self._actions += self._reloads.give_up("the server is ending")
        self._begin_wanted(now)
        return ticket

    def _begin_wanted(self, now: float) -> None:
        if not self.is_ready or len(self._generations) > 1:
            return
        wanted = self._reloads.take()
        if wanted is not None:
            generation = self._begin(wanted[0], wanted[1] or self._generations[0].model)
            self._enter("rehearsal", generation)
            generation.place("preparer", 1, now)
            self._fill(now)

    def _begin(self, tickets: tuple[int, ...], model: str) -> Generation:
        """A new generation. Pages go by a number's parity, so neighbours in time differ in it."""
        number = self._last_number + 1
        if self._generations and number % 2 == self._generations[0].number % 2:
            number += 1
        self._last_number = number
        generation = Generation(number, self.plan, tickets, model)
        self._generations.append(generation)
        self._actions.append(Begin(number, model))
        return generation

    def _fail(self, generation: Generation, reason: str, now: float) -> None:
        """The reload ends here; whatever served goes on."""
        if generation.state == LEAVING:
            return
        self._actions.append(TellReload(generation.tickets, False, reason))
        self._dismiss(generation, now)

    def _dismiss(self, generation: Generation, now: float) -> None:
        generation.state, generation.until = LEAVING, math.inf
        self._actions.append(Dismiss(generation.number))
        self._retire_empty(now)

    def _retire_empty(self, now: float) -> None:
        for generation in list(self._generations):
            if generation.state == LEAVING and generation.is_empty:
                self._generations.remove(generation)
                self._actions.append(Retire(generation.number))
                self._begin_wanted(now)

    # ---- time ---------------------------------------------------------------------------

    def tick(self, readings: Mapping[int, Reading], now: float) -> None:
        """Timers and leases; after everything that has come was read. `readings` go by
        incarnation."""
        late_s = now - self._last_tick - TICK_S
        late_s = late_s if late_s > LATE_S else 0.0
        self._last_tick = now
        for generation in list(self._generations):
            if generation.state != LEAVING:
                for place, seat, why in generation.overdue(readings, late_s, now):
                    self._actions.append(Kill(*place, seat.incarnation, why))
            self._advance(generation, readings, late_s, now)
        current = self._current
        if current is not None and current.has_engine(readings):
            self._last_engine_at = now
        else:
            self._last_engine_at += late_s
        if self.is_ready and now - self._last_engine_at > self.plan.give_up_s:
            self._end(5, f"gave up: no engine for {self.plan.give_up_s:g} s")
        if now >= self._stop.until:
            self._drain(now)
        self._fill(now)

    def _advance(self, generation: Generation, readings: Mapping[int, Reading], late_s: float,
                 now: float) -> None:
        """Goes on with a reload, and ends what has lasted for too long."""
        generation.until += late_s
        if generation.may_open and generation.all_up(readings):
            generation.state, generation.until = OPENING, math.inf
            self._enter("serving", generation)
        elif now < generation.until:
            return
        elif generation.state == TESTING:
            self._fail(generation, f"the new generation did not pass its test within "
                       f"{TESTING_S:g} s", now)
        elif not generation.has_farewell:
            generation.has_farewell, generation.until = True, now + FAREWELL_S
            self._enter("stop", generation)
        elif self._stop.phase == "draining":
            self._end(1, "the drain's time is over: some requests were not answered")
        else:
            self._dismiss(generation, now)

    @property
    def _current(self) -> Generation | None:
        """The youngest that lets clients in, or will be the first to."""
        committed = [one for one in self._generations if one.is_committed]
        return committed[-1] if committed else None

    def next_timer(self, now: float) -> float:
        """When `tick` should be called next, in monotonic seconds."""
        return min([now + TICK_S, self._stop.until,
                    *(one.until for one in self._generations),
                    *(one.next_start(now) for one in self._generations)])

    def take_actions(self) -> list[object]:
        actions, self._actions = self._actions, []
        return actions

    def _fill(self, now: float) -> None:
        """Starts a process in each empty place whose time has come."""
        if self._has_ended:
            return
        for generation in self._generations:
            for (role, index), seat in generation.due(now):
                seat.incarnation = self._next_incarnation
                seat.last_alive_until = seat.shift_s = 0.0
                self._next_incarnation += 1
                self._actions.append(Spawn(role, index, seat.incarnation, generation.number))

    # ---- stop ---------------------------------------------------------------------------
    def signal(self, name: str, now: float) -> None:
        """TERM or INT; others are not the supervisor's."""
        if not self.is_ready:
            self._end(0)
            return
        if self._stop.phase:
            self._end(1, "told twice to stop: some requests may be unanswered")
            return
        self._give_up_reloads(now)
        if name == "TERM" and self.plan.lame_duck_s > 0:
            self._stop = _Stop("lame_duck", now + self.plan.lame_duck_s)
            for generation in self._generations:
                if generation.state in (OPENING, SERVING):
                    self._enter("lame_duck", generation)
        else:
            self._drain(now)

    def _give_up_reloads(self, now: float) -> None:
        self._actions += self._reloads.give_up("the server is ending")
        for generation in list(self._generations):
            if generation.state in (PREPARING, TESTING):
                self._fail(generation, "the server is ending", now)

    def _drain(self, now: float) -> None:
        self._stop = _Stop("draining")
        for generation in self._generations:
            if generation.state == OPENING:
                self._actions.append(TellReload(generation.tickets, True))
            if generation.state in (OPENING, SERVING):
                generation.drain(now + self.plan.drain_s)
            if generation.state == DRAINING:
                self._enter("draining", generation)
        self._actions.append(CloseDoors())
        self._end_drained(now)

    def _end_drained(self, now: float) -> None:
        """Ends each generation that holds nothing any more, and with the last one the server."""
        draining = [one for one in self._generations if one.state == DRAINING]
        if self._stop.phase == "draining":
            if all(generation.is_drained for generation in draining):
                self._end(0)
            return
        for generation in draining:
            if generation.is_drained:
                self._dismiss(generation, now)

    def _enter(self, phase: str, generation: Generation) -> None:
        self._actions.append(EnterPhase(phase, generation.number))

    def _end(self, code: int, sentence: str = "") -> None:
        if not self._has_ended:
            self._has_ended = True
            self._actions.append(Exit(code, sentence))
