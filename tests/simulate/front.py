"""The front of the simulation: the real requests in flight, with clients, doors and a rehearsal."""

from server import codec
from server.actions import (Answers, Finish, Outcome, SendCancel, SendGroups, SendHello)
from server.inflight import NEVER, InFlight
from server.messages import Notes, Result, Results, Row
from tests.simulate.roles import House, stamped
from tests.simulate.world import EOF, End, Process, pipe

# The rehearsal's group and its text.
TEST_GROUP, TEST_IDS = 1 << 63, b"test"


class Front(Process):
    """A front: requests come as ("client", …) items; counts an answer before it is seen.

    `tell` says something to the master; `clients` are those that are connected. It lets clients in
    from birth where it has no `phase`.
    """

    def __init__(self, house: House, index: int, incarnation: int, generation: int, phase: str,
                 tell) -> None:
        super().__init__(house.world, "front", index, incarnation, generation)
        self.house, self.tell = house, tell
        self.held = InFlight(index, incarnation, generation, house.limits, house.world.now)
        self.link: End | None = None
        self.is_up = self.is_open = True
        self.phase = ""
        self.clients: set[int] = set()
        self.close_idle_at = float("inf")
        self.has_told_open = self.has_told_drained = False
        self.counted = self.stale_seen = 0
        if phase:
            self._enter(phase, house.world.now)

    def turn(self, items: list, now: float) -> float | None:
        held, ended = self.held, False
        for source, message in items:
            if source == "control":
                if message[0] == "phase":
                    self._enter(message[1], now)
                else:
                    held.dispatcher_died(message[1], message[2])
            elif source == "client":
                self._client(*message, now)
            elif source is self.link:
                if message is EOF:
                    ended = True
                else:
                    self._note(message)
                    self._receive(message, now)
        if ended:
            held.link_down(now)
            self.link.close()
            self.ends.remove(self.link)
            self.link = None
        held.tick(now)
        if self.link is None:
            self.link, far = pipe(self.world, self, None)
            self.ends.append(self.link)
            held.link_up(now)
            self.house.connect(far, self.generation)
        self._act(now)
        if self.is_open and not self.has_told_open:
            self.has_told_open = True
            self.tell("opened", "")
        self._leave(now)
        return held.next_timer(now)

    def _enter(self, phase: str, now: float) -> None:
        self.phase = phase
        self.held.set_ready(now)
        self.is_open = phase in ("serving", "lame_duck")
        if phase == "rehearsal":
            self.held.open(TEST_GROUP, 0, 1, None, [self._test_row()], now)
        elif phase in ("replaced", "draining"):
            self.close_idle_at = now + self.house.drain_s / 2
        elif phase == "stop":
            for group in list(self.held._groups):
                self.held.cancel(group)
                self._finish(group, Outcome("draining"), now)

    def _leave(self, now: float) -> None:
        """Closes what is idle for long enough, and tells when nothing is open any more."""
        if self.phase not in ("replaced", "draining"):
            return
        busy = self.house.busy_clients(self)
        if now >= self.close_idle_at:
            self.clients &= busy
        if not self.clients and not busy and not self.has_told_drained:
            self.has_told_drained = True
            self.tell("drained", "")

    def _client(self, kind: str, given: tuple, now: float) -> None:
        if kind == "gone":
            self.held.cancel(given[0])
            return
        group, connection, priority, deadline, rows, partial = given
        refusal = self.held.early_refusal(priority, now)
        if refusal is not None:
            self.house.reached["refused early: " + refusal.kind] += 1
            self._finish(group, refusal, now)
        elif len(rows) == 1 and not partial:
            row = rows[0]
            self.held.open_lone(group, connection, priority, NEVER if deadline is None
                                else deadline, row.tokens, row.split, row.ids, now)
        else:
            self.held.open(group, connection, priority, deadline, rows, now, partial)

    def _receive(self, message: object, now: float) -> None:
        """Results come as a front reads them of their bytes."""
        for data in codec.encode_results(message.results) if isinstance(message, Results) else ():
            answers = codec.read_answers(data)
            if answers is not None:
                self._answer(self.held.take_answers(answers), now)
            else:
                self.held.receive(codec.decode(data), now)
        if not isinstance(message, Results):
            self.held.receive(message, now)

    def _note(self, message: object) -> None:
        """What the observer checks of a message before the front acts on it."""
        if isinstance(message, Notes):
            for note in message.notes:
                real = self.house.real_faults(self, note.job)
                if real is not None and note.deaths > real:
                    self.house.violate(f"job {note.job} of front {self.index} is blamed for "
                                       f"{note.deaths} faults, {real} happened")

    def _act(self, now: float) -> None:
        self.house.reached["text known to a front"] += self.held.hits
        self.held.hits = 0
        for action in self.held.take_actions():
            if isinstance(action, SendHello):
                self.link.send(action.hello)
            elif isinstance(action, SendGroups):
                for group in action.groups:
                    for job in group.jobs:
                        self.house.reached["job sent again"] += job.sends > 1
                        self.house.reached["job sent alone"] += job.sends > 5
                # What travels is a copy, as it is between processes.
                for message in codec.encode_jobs(action.groups):
                    self.link.send(codec.decode(message))
            elif isinstance(action, SendCancel):
                self.house.reached["cancel"] += 1
                self.link.send(action.cancel)
            elif isinstance(action, Answers):
                self._answer(action.answered, now)
            elif isinstance(action, Finish):
                self._finish(action.group, action.outcome, now)
        if self.held.unsent_lone:
            for message in codec.encode_lone(self.held.take_lone()):
                self.link.send(codec.decode(message))
        self.house.reached["stale result"] += self.held.stale_results - self.stale_seen
        self.stale_seen = self.held.stale_results

    def _answer(self, answered: list, now: float) -> None:
        for group, (*head, _, logits) in answered:
            self._finish(group, Outcome("ok", [Result(*head, logits)]), now)

    def _finish(self, group: int, outcome: object, now: float) -> None:
        if outcome.kind == "deadline" and any(
                isinstance(message, Results) for _, message in self.inbox):
            self.house.violate(f"group {group} is late though its answer waits to be read")
        if group == TEST_GROUP:
            self._judge_test(outcome)
            return
        self.counted += 1
        self.house.finished(self, group, outcome, now)

    def _test_row(self) -> Row:
        return Row(4, 4, TEST_IDS + self.generation.to_bytes(4, "little"))

    def _judge_test(self, outcome: Outcome) -> None:
        is_right = outcome.kind == "ok" \
            and outcome.results[0].logits == stamped(self._test_row(), self.generation)
        self.tell("tested", "" if is_right else f"test: {outcome.kind}")
