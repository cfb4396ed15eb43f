"""A new front's test before it lets clients in: fixed texts through tokeniser, dispatcher and
engine, held against what the reference computed of them."""

import struct

from server.actions import Outcome
from server.classify import Classifier
from server.inflight import InFlight
from server.messages import LOW
from server.self_test import tolerance

# The number of the texts among a front's requests in flight; clients' begin at 1.
GROUP = 0
TRY_AGAIN_S = 0.1


class Rehearsal:
    """Sent until it is answered: a generation that is being started may let it wait."""

    def __init__(self, classifier: Classifier, inflight: InFlight, now: float) -> None:
        self.due_at = now
        self._classifier = classifier
        self._inflight = inflight

    def tick(self, now: float) -> str | None:
        """Sends the texts if they are due; what is wrong with their ids, None for nothing."""
        if now < self.due_at:
            return None
        self.due_at = float("inf")
        rows = []
        for number, case in enumerate(self._classifier.card["self_test"]):
            row = self._classifier.row(case["ids"], case["split"])
            if "text" in case and self._classifier.encode(case["text"], case["pair"])[0] != row:
                return f"the front tokenises text {number} of the self-test differently"
            rows.append(row)
        self._inflight.open(GROUP, 0, LOW, None, rows, now)
        return None

    def judge(self, outcome: Outcome, card: dict, now: float) -> str | None:
        """What is wrong with the answer, "" for nothing; None where there was none. `card` says in
        which precision the engines compute."""
        if outcome.kind == "failed":
            return "a text of the self-test breaks the engines"
        if outcome.kind != "ok":
            self.due_at = now + TRY_AGAIN_S
            return None
        for number, (case, result) in enumerate(zip(card["self_test"], outcome.results)):
            logits = struct.unpack(f"<{len(result.logits) // 4}f", result.logits)
            if len(logits) != len(case["logits"]) or not all(
                    abs(got - wanted) <= tolerance(card)
                    for got, wanted in zip(logits, case["logits"])):    # NaN is not
                return f"text {number} of the self-test comes back too far from the reference"
        return ""
