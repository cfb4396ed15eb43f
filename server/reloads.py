"""Requests for a new model that wait for their turn: many become one (pure)."""

from server.orders import TellReload


class Reloads:
    """At most one reload waits. Tickets are numbered from 1; no number is used twice."""

    def __init__(self) -> None:
        self._next_ticket = 1
        self._tickets: tuple[int, ...] = ()
        self._model = ""

    def ask(self, model: str) -> tuple[int, list[TellReload]]:
        """(ticket, who is told that nothing comes of it) for a wish: a folder, or "" for the one
        that is served then. Of two folders the later counts."""
        ticket, self._next_ticket = self._next_ticket, self._next_ticket + 1
        told = []
        if self._tickets and model and self._model and model != self._model:
            told.append(TellReload(self._tickets, False,
                                   f"superseded by a later request for {model}"))
            self._tickets = ()
        self._tickets = (*self._tickets, ticket)
        self._model = model or self._model
        return ticket, told

    def take(self) -> tuple[tuple[int, ...], str] | None:
        """(tickets, folder) of what waits, which then waits no more."""
        if not self._tickets:
            return None
        taken = self._tickets, self._model
        self._tickets, self._model = (), ""
        return taken

    def give_up(self, reason: str) -> list[TellReload]:
        """Nothing comes of what waits."""
        taken = self.take()
        return [] if taken is None else [TellReload(taken[0], False, reason)]
