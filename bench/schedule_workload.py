"""What a simulated schedule needs to know of a model on a machine: costs and lengths of texts.

Stored as JSON, so that a schedule can be simulated where neither is at hand.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.figures import ROOT
from bench.schedule_machine import Machine

STORED = ROOT / "bench" / "schedule_minilm.json"


@dataclass(frozen=True)
class Workload:
    """`lengths` are token counts of texts by the name of their set: short, profile; `measured`
    says where and when in words."""

    model: str
    measured: str
    machine: Machine
    lengths: dict[str, list[int]]


def read(path: Path) -> Workload:
    """A stored workload; OSError, or ValueError where the file is not one."""
    try:
        found = json.loads(path.read_text("utf-8"))
        machine = found["machine"]
        costs = tuple((int(texts), int(tokens), float(ms))
                      for texts, tokens, ms in machine.pop("costs"))
        return Workload(found["model"], found["measured"], Machine(costs, **machine),
                        {name: [int(size) for size in sizes]
                         for name, sizes in found["lengths"].items()})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no workload: {error!r}; python -m bench.check_schedule "
                         "--store FILE writes one") from None


def write(path: Path, workload: Workload) -> None:
    """Stores a workload, one line for each fact."""
    facts = asdict(workload)
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in facts.items())
    path.write_text("{\n" + lines + "\n}\n", "utf-8")
