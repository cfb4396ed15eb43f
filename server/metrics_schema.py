"""What is counted: every metric's kind, labels and buckets, and its place in a page (pure).

Label values are listed here, so that each sample has a fixed slot and a scrape allocates nothing in
the writers. A histogram's `_count` is the sum of its slots, so it equals `+Inf` by construction.
"""

import itertools
import math
from dataclasses import dataclass, field

from server.pressure import REASONS, STATES

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
           30.0, 60.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
ROUTES = ("/infer", "/healthz", "/readyz", "/info", "/metrics", "/", "/openapi.json", "other",
          "none")
CODES = (200, 400, 401, 403, 404, 405, 408, 411, 413, 414, 415, 417, 422, 429, 431, 499, 500, 501,
         503, 504, 505)
LENGTH_BUCKETS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
                  6144, 8192, 12288, 16384)
REFUSALS = ("wait", "deadline", "full", "not_ready", "outage", "draining")
ROLES = ("master", "front", "dispatcher", "preparer", "forkserver", "engine", "gpu_watch",
         "gpu_engine")
# What a process died of: a signal by its name, an exit status, or the master's own kill.
CAUSES = ("exit", "lease", "sigabrt", "sigbus", "sigfpe", "sigill", "sigkill", "sigsegv",
          "sigterm", "signal")
# Labels beyond this many are counted together, so that a page stays small.
MAX_LABELS = 1024
MAX_ENGINES = 1024
MAX_GPUS = 32
GPUS = tuple(f"gpu-{index}" for index in range(MAX_GPUS))


@dataclass(frozen=True)
class Metric:
    """One family. `kind` is counter, gauge, peak (a gauge summed by maximum) or histogram;
    `labels` maps a label's name to its values; `limits` are a histogram's upper bounds."""

    name: str
    kind: str
    help: str
    labels: dict[str, tuple] = field(default_factory=dict)
    limits: tuple = ()

    @property
    def width(self) -> int:
        """Slots of one sample: a histogram has one a bucket, one for +Inf, one for the sum."""
        return len(self.limits) + 2 if self.kind == "histogram" else 1

    @property
    def size(self) -> int:
        """How many samples there are: one for each combination of label values."""
        return math.prod(len(values) for values in self.labels.values())

    def sample(self, number: int) -> tuple:
        """The label values of a sample, by its place in slot order."""
        found = []
        for values in reversed(self.labels.values()):
            number, place = divmod(number, len(values))
            found.append(values[place])
        return tuple(reversed(found))

    def samples(self) -> list[tuple]:
        """Every combination of label values, in slot order."""
        return list(itertools.product(*self.labels.values()))


# Fronts and dispatcher both answer from a cache.
CACHE_TOTAL = Metric(
    "cache_total", "counter", "Texts that were answered from a cache (hit), that waited for an "
    "equal one in flight (join), that were computed (miss).", {"result": ("hit", "join", "miss")})
FRONT = (
    Metric("requests_total", "counter", "Requests by route and status; 499: the client left.",
           {"route": ROUTES, "code": CODES}),
    Metric("request_seconds", "histogram", "Time from the last byte of a request to its answer, "
           "by length bucket.", {"bucket": LENGTH_BUCKETS}, SECONDS),
    Metric("tokenize_seconds", "histogram", "Time to tokenise a request.", {}, SECONDS),
    Metric("predictions_total", "counter", "Texts by the label that they got, "
           "since the model was loaded.",
           {"label": tuple(range(MAX_LABELS))}),
    Metric("refused_total", "counter", "Requests not taken, by reason.", {"reason": REFUSALS}),
    Metric("connections", "gauge", "Open client connections."),
    Metric("inflight", "gauge", "Requests taken and not yet answered."),
    Metric("front_turn_seconds_max", "peak", "Longest turn of a front's loop."),
    CACHE_TOTAL,
)
DISPATCHER = (
    Metric("queue_seconds", "histogram", "Time of a text from the dispatcher to an engine.",
           {"priority": ("high", "low")}, SECONDS),
    Metric("infer_seconds", "histogram", "Time of a batch in an engine.",
           {"engine_kind": ("cpu", "gpu")}, SECONDS),
    Metric("batch_size", "histogram", "Texts in a batch.", {}, SIZES),
    Metric("tokens_total", "counter", "Tokens computed; padding fills shapes of a GPU's graphs.",
           {"kind": ("real", "padding")}),
    Metric("recomputed_total", "counter", "Texts computed again because their engine died."),
    CACHE_TOTAL,
    Metric("backlog_seconds", "peak", "Estimated wait of a low-priority request."),
    Metric("engine_up", "peak", "Whether an engine is linked to the dispatcher.",
           {"engine": tuple(f"{kind}-{index}" for kind in ("cpu", "gpu")
                            for index in range(MAX_ENGINES))}),
)
MASTER = (
    Metric("restarts_total", "counter", "Processes that were replaced, by what they died of.",
           {"role": ROLES, "cause": CAUSES}),
    Metric("device_state", "gauge", "1 for the state that a GPU is in.",
           {"device": GPUS, "state": STATES}),
    Metric("device_transitions_total", "counter", "States that a GPU entered, and why.",
           {"device": GPUS, "state": STATES, "reason": REASONS}),
    Metric("device_memory_bytes", "gauge", "A GPU's memory as last read, and its engine's part.",
           {"device": GPUS, "kind": ("total", "free", "engine")}),
)
GPU_ENGINE = (
    Metric("graph_replays_total", "counter", "Launches of captured graphs.", {"device": GPUS}),
    Metric("graph_eager_total", "counter", "Launches of shapes that have no graph.",
           {"device": GPUS}),
    Metric("graph_retries_total", "counter", "Launches that were tried again for want of memory.",
           {"device": GPUS}),
)
SCHEMAS = {"front": FRONT, "dispatcher": DISPATCHER, "master": MASTER, "gpu_engine": GPU_ENGINE}


def slots(role: str) -> dict[tuple, int]:
    """(name, label values in order) → first slot, counted from the end of a page's header."""
    found, at = {}, 0
    for metric in SCHEMAS.get(role, ()):
        for values in metric.samples():
            found[(metric.name, *values)] = at
            at += metric.width
    return found


def page_slots(role: str) -> int:
    return sum(metric.width * metric.size for metric in SCHEMAS.get(role, ()))
