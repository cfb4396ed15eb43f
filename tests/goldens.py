"""`python -m tests.goldens FOLDER …`: served answers against stored goldens, alone and in company.

Each checkpoint or bundle is served; every golden text is asked alone, then in ragged batches by 16
clients at once. Logits must be within the tolerance of the golden, and the same bit for bit in
every company. With --decisions, for bundles: the largest logit must be the golden's wherever that
is larger than all others by so much.
"""

import argparse
import concurrent.futures
import http.client
import json
import random
import sys
from pathlib import Path

from loader.checkpoint import Folder
from loader.weights import open_weights
from tests.chaos.clients import ask
from tests.house import House

CLIENTS = 16
BATCH = 24
# Against float32 goldens; weights stored in 16 bits are compared more loosely.
TOLERANCE, TOLERANCE_16_BIT = 5e-5, 2e-4


def tolerance_of(folder: Path) -> float:
    """5e-5, or 2e-4 where the checkpoint's own weights have 16 bits."""
    with Folder(str(folder)) as opened, open_weights(opened) as weights:
        dtypes = {tensor.dtype for tensor in weights.tensors.values()}
    return TOLERANCE_16_BIT if dtypes & {"F16", "BF16"} else TOLERANCE


def judge(folder: Path, golden_path: Path | None = None, margin: float | None = None
          ) -> tuple[float, list[str]]:
    """(largest |Δ logit| to a golden, what is wrong); with a `margin` decisions count, not logits.
    """
    golden = json.loads((golden_path or folder / "golden.json").read_text("utf-8"))
    entries = golden["entries"]
    bodies = [{key: entry[key] for key in ("text", "text_pair") if key in entry}
              for entry in entries]
    with House(["--model", str(folder), "--fronts", "2", "--engines", "2",
                "--max-wait-ms", "600000", "--max-age-s", "600"]) as house:
        connection = http.client.HTTPConnection("127.0.0.1", house.port, timeout=60)
        alone, faults, worst = [], [], 0.0
        for entry, body in zip(entries, bodies):
            status, answer = ask(connection, {**body, "logits": True})
            if status != 200:
                faults.append(f"{entry['id']}: status {status} {answer}")
                alone.append(None)
                continue
            alone.append(answer["logits"])
            worst = max([worst, *(abs(a - b) for a, b in zip(answer["logits"], entry["logits"]))])
            if margin is not None and _is_changed(answer["logits"], entry["logits"], margin):
                faults.append(f"{entry['id']}: another decision than its golden")
            if answer["tokens"] != len(entry["input_ids"]):
                faults.append(f"{entry['id']}: {answer['tokens']} tokens instead of "
                              f"{len(entry['input_ids'])}")
        connection.close()
        if not faults:
            faults += _company(house.port, entries, bodies, alone)
    if margin is None and worst > tolerance_of(folder):
        faults.append(f"a logit is {worst:.2g} from its golden")
    return worst, faults


def _is_changed(found: list[float], golden: list[float], margin: float) -> bool:
    """True if a decision that was clear by `margin` is another one."""
    if len(golden) == 1:
        return abs(golden[0]) >= margin / 2 and (found[0] > 0) != (golden[0] > 0)
    second, first = sorted(golden)[-2:]
    return first - second >= margin and found.index(max(found)) != golden.index(first)


def _company(port: int, entries: list[dict], bodies: list[dict], alone: list) -> list[str]:
    """What answers differently in a batch, or under 16 clients, than alone."""
    def client(seed: int) -> list[str]:
        rng = random.Random(seed)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        order = list(range(len(bodies)))
        rng.shuffle(order)
        found = []
        while order:
            size = rng.choice((1, 2, 5, BATCH))
            part, order = order[:size], order[size:]
            status, answer = ask(connection, {"texts": [bodies[i] for i in part], "logits": True})
            if status != 200:
                found.append(f"status {status} {answer}")
                continue
            found += [f"{entries[i]['id']}: differs in company"
                      for i, result in zip(part, answer["results"])
                      if result["logits"] != alone[i]]
        connection.close()
        return found

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        return [fault for found in pool.map(client, range(CLIENTS)) for fault in found]


def main(argv: list[str] | None = None) -> int:
    """One line a folder; 1 if any differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.goldens", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="checkpoints with a golden.json")
    parser.add_argument("--golden", type=Path, help="golden.json of a single folder without one")
    parser.add_argument("--decisions", type=float, metavar="MARGIN",
                        help="compare decisions that are clear by this, not logits")
    options = parser.parse_args(argv)
    failed = 0
    for folder in options.folders:
        worst, faults = judge(folder, options.golden, options.decisions)
        failed += bool(faults)
        allowed = f" of {tolerance_of(folder):g}" if options.decisions is None else ""
        print(f"{'FAIL' if faults else 'ok  '} {folder.name}: largest difference {worst:.2e}"
              f"{allowed} {faults[:3] if faults else ''}", flush=True)
    print(f"{len(options.folders) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
