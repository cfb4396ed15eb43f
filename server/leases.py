"""How long a batch may take, and whether a death speaks against what ran (pure)."""


def is_fault(cause: str, killed_by_us: bool = False) -> bool:
    """Whether a death speaks against what the process did: anything but an ordered end or a kill
    from outside."""
    return killed_by_us or cause not in ("exit-0", "sigkill", "sigterm")


def due_s(cost_ms: float) -> tuple[float, float]:
    """(CPU seconds, wall seconds) that a batch of that estimated cost may take.

    Eight times the estimate and a second, so that no healthy engine is killed; ten times that on
    the wall, because neighbours may hold the cores.
    """
    cpu_s = cost_ms * 8 / 1e3 + 1.0
    return cpu_s, 10 * cpu_s
