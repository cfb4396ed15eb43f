"""The engines that a dispatcher has, who of them serves, and what work takes there (pure).

Costs of jobs are those of a CPU engine throughout; what a GPU makes of them is one factor, and what
engines of a kind get done in truth is another, their pace.
"""

from collections import deque

from server.costs import CostModel, Pace
from server.linked import LinkedEngine, Run
from server.messages import CPU, GPU, EngineHello

# The text by which a GPU's costs are compared with a CPU engine's.
USUAL_TOKENS = 64
# What an engine gets done moves by a tenth and more from second to second on a shared machine, and
# who was let in must not wait for longer than was promised.
SAFETY = 1.2


class Pool:
    """What is asked at every turn is kept, and worked out anew where an engine comes, goes or has
    finished something.

    `engines` by (index, incarnation); `gpus` are the GPU engines that take work, `serving` those
    that have the work now: GPUs, if there is one. `speed` is what one that serves takes of a CPU
    engine's time for the same text; `drain` the milliseconds that pass for each of queued work, on
    the safe side, with the engines that are being started again. `planned` is how many CPU engines
    there should be.
    """

    def __init__(self, planned: int) -> None:
        self.engines: dict[tuple[int, int], LinkedEngine] = {}
        self.costs = {CPU: CostModel(()), GPU: CostModel(())}
        self._planned = planned
        self._known: set[int] = set()
        self._paces = {CPU: Pace(), GPU: Pace()}
        self._look_again()

    def join(self, hello: EngineHello) -> None:
        """A new link. The first measured costs of a kind are kept and refined from then on."""
        if hello.kind not in self._known and hello.costs:
            self._known.add(hello.kind)
            self.costs[hello.kind] = CostModel(hello.costs)
        self.engines[hello.index, hello.incarnation] = LinkedEngine(hello, deque())
        self._look_again()

    def part(self, index: int, incarnation: int) -> LinkedEngine | None:
        """An engine's link has ended; None where it was not there."""
        engine = self.engines.pop((index, incarnation), None)
        self._look_again()
        return engine

    def set_leaving(self, engine: LinkedEngine) -> None:
        """It answers what it has, and gets nothing more."""
        engine.is_leaving = True
        self._look_again()

    def _look_again(self) -> None:
        self.gpus = [engine for engine in self.engines.values()
                     if engine.hello.kind == GPU and not engine.is_leaving]
        self.serving = self.gpus or [engine for engine in self.engines.values()
                                     if engine.hello.kind == CPU]
        self.speed = self._speed_of(GPU if self.gpus else CPU)
        self._set_drain()

    def _set_drain(self) -> None:
        pace = self._paces[GPU if self.gpus else CPU].value
        self.drain = SAFETY * self.speed * pace / (
            len(self.gpus) or max(len(self.engines), self._planned, 1))

    def _speed_of(self, kind: int) -> float:
        return 1.0 if kind == CPU else (
            self.costs[GPU].share_ms(USUAL_TOKENS) / self.costs[CPU].share_ms(USUAL_TOKENS))

    def alone_ms(self, texts: int, tokens: int) -> float:
        """How long a group takes that has the engines for itself."""
        whole = self.costs[CPU].estimate_ms(texts, tokens)
        return whole * self.speed / min(texts, max(len(self.serving), 1))

    def estimate_ms(self, engine: LinkedEngine, texts: int, tokens: int) -> float:
        """How long a batch takes there."""
        return self.costs[engine.hello.kind].estimate_ms(texts, tokens)

    def learn(self, engine: LinkedEngine, run: Run, infer_ms: float, now: float) -> None:
        """A batch was answered that the engine computed for `infer_ms`."""
        kind = engine.hello.kind
        self.costs[kind].observe(run.texts, run.tokens, infer_ms)
        self._paces[kind].observe(run.work_ms * self._speed_of(kind),
                                  1e3 * (now - max(run.sent_at, engine.free_at)), run.cost_ms)
        self._set_drain()
        engine.free_at, engine.last_texts, engine.last_ms = now, run.texts, infer_ms
