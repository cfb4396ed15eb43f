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
    """See the module's docstring. `engines` by (index, incarnation); `planned` is how many CPU
    engines there should be."""

    def __init__(self, planned: int) -> None:
        self.engines: dict[tuple[int, int], LinkedEngine] = {}
        self.costs = {CPU: CostModel(()), GPU: CostModel(())}
        self._planned = planned
        self._known: set[int] = set()
        self._paces = {CPU: Pace(), GPU: Pace()}

    def join(self, hello: EngineHello) -> None:
        """A new link. The first measured costs of a kind are kept and refined from then on."""
        if hello.kind not in self._known and hello.costs:
            self._known.add(hello.kind)
            self.costs[hello.kind] = CostModel(hello.costs)
        self.engines[hello.index, hello.incarnation] = LinkedEngine(hello, deque())

    def gpus(self) -> list[LinkedEngine]:
        """The GPU engines that take work."""
        return [engine for engine in self.engines.values()
                if engine.hello.kind == GPU and not engine.is_leaving]

    def serving(self) -> list[LinkedEngine]:
        """The engines that have the work now: GPUs, if there is one."""
        return self.gpus() or [engine for engine in self.engines.values()
                               if engine.hello.kind == CPU]

    def speed(self) -> float:
        """What one engine that serves takes of a CPU engine's time for the same text."""
        return self._speed_of(GPU if self.gpus() else CPU)

    def _speed_of(self, kind: int) -> float:
        return 1.0 if kind == CPU else (
            self.costs[GPU].share_ms(USUAL_TOKENS) / self.costs[CPU].share_ms(USUAL_TOKENS))

    def drain(self) -> float:
        """The milliseconds that pass for each of queued work, on the safe side, with the engines
        that are being started again."""
        gpus = self.gpus()
        pace = self._paces[GPU if gpus else CPU].value
        return SAFETY * self.speed() * pace / (
            len(gpus) or max(len(self.engines), self._planned, 1))

    def alone_ms(self, texts: int, tokens: int) -> float:
        """How long a group takes that has the engines for itself."""
        whole = self.costs[CPU].estimate_ms(texts, tokens)
        return whole * self.speed() / min(texts, max(len(self.serving()), 1))

    def estimate_ms(self, engine: LinkedEngine, texts: int, tokens: int) -> float:
        """How long a batch takes there."""
        return self.costs[engine.hello.kind].estimate_ms(texts, tokens)

    def learn(self, engine: LinkedEngine, run: Run, infer_ms: float, now: float) -> None:
        """A batch was answered that the engine computed for `infer_ms`."""
        kind = engine.hello.kind
        self.costs[kind].observe(len(run.entries), run.tokens, infer_ms)
        self._paces[kind].observe(
            sum(entry.cost_ms for entry in run.entries) * self._speed_of(kind),
            1e3 * (now - max(run.sent_at, engine.free_at)), run.cost_ms)
        engine.free_at, engine.last_texts, engine.last_ms = now, len(run.entries), infer_ms
