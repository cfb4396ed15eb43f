"""What the server says about itself: /healthz, /readyz, /info and /metrics."""

import json

from server.inflight import InFlight
from server.messages import HIGH
from server.metrics import SINCE, Registry
from server.metrics_text import CONTENT_TYPE, render
from server.replies import JSON, TEXT
from server.version import VERSION

MODEL_FACTS = ("name", "version", "family", "labels", "function", "max_tokens", "buckets",
               "precision", "precision_why")
_METRICS_TYPE = CONTENT_TYPE.encode()


class Status:
    """Answers for one front; `card` is None until the model is there, `is_leaving` holds from the
    first signal to stop on, `last_reload` is as /info shows it."""

    def __init__(self, registry: Registry, generation: int, inflight: InFlight) -> None:
        self.card: dict | None = None
        self.is_leaving = False
        self.last_reload: dict | None = None
        self._registry = registry
        self._generation = generation
        self._inflight = inflight

    def answer(self, action: str, now: float) -> tuple[int, bytes, bytes]:
        """(status, content, content type) of healthz, readyz, info or metrics."""
        if action == "healthz":
            return 200, b"ok\n", TEXT
        if action == "readyz":
            reason = self.not_ready(now)
            return (503, reason.encode() + b"\n", TEXT) if reason else (200, b"ready\n", TEXT)
        if action == "info":
            return 200, json.dumps(self.info(now), ensure_ascii=False).encode(), JSON
        return 200, render(self._registry, self.card, self._generation), _METRICS_TYPE

    def not_ready(self, now: float) -> str:
        """Why a new request had better go elsewhere; empty where it is welcome."""
        if self.is_leaving:
            return "the server is ending"
        refusal = self._inflight.early_refusal(HIGH, now)
        if refusal is not None and refusal.kind in ("not_ready", "outage"):
            return refusal.reason
        return "" if self.card is not None else "the model is still being loaded"

    def info(self, now: float) -> dict:
        """The object of /info."""
        since = self._registry.page("master", 0).get(SINCE)
        card = self.card
        model = None
        if card is not None:
            model = {fact: card[fact] for fact in MODEL_FACTS}
            # What the forkserver found out on this machine; null until it has.
            model |= {fact: card.get("facts", {}).get(fact) for fact in ("kernels", "is_invariant")}
        return {
            "name": "firebrick", "version": VERSION, "generation": self._generation,
            "uptime_s": round(now - since, 3),
            "model": model, "processes": self._registry.processes(),
            "devices": json.loads(self._registry.board.read() or "[]"),
            "last_reload": self.last_reload,
        }
