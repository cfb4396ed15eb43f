"""The preparer's process: checks the checkpoint, seals it into memory, hands it to the master.

It also computes, with the family's numpy reference, what the program must answer to a few fixed
texts: the forkserver's self-test compares before anything is served.
"""

import os
import time

import numpy as np

from loader.errors import CheckpointError
from loader.prepare import map_file, model_name, prepare, seal
from loader.tokenizers.table import open_tokenizer
from model.families.table import FAMILIES, reference
from model.grid import buckets
from model.program import Row
from server import program_files
from server.device_source import may_have
from server.processes import ChildSpec, arm, take_niceness

CHANGED = "the program's files have changed since this server started; start a new server beside " \
    "it with --share-port, and end this one."
# A large checkpoint on a cold disk, and its reference by numpy on one core.
LEASE_S = 300.0
# Short and long, with and without a pair; a slow reference must not delay the start.
SELF_TEST_TEXTS = (("ok", None), ("Win a free phone now! Call 09061701461.", None),
                   ("The quick brown fox jumps over the lazy dog. " * 2, None),
                   ("Is this a pair?", "Yes, it is."))


def run(spec: ChildSpec) -> None:
    """Sends {"type": "prepared"} with the descriptors of ModelFiles, or {"type": "refused",
    "message": …}."""
    arm(spec)
    if spec.generation > 1:
        take_niceness(spec.settings.engine_nice)
        if program_files.digest() != program_files.STARTED_FROM:
            spec.control.send({"type": "refused", "message": CHANGED})
            return
    spec.page.promise(time.monotonic() + LEASE_S)
    try:
        prepared = prepare(spec.settings.model, model_name(spec.settings.model), FAMILIES,
                           spec.settings.precision, may_have(spec.settings.device))
        card = prepared.card
        card["buckets"] = buckets(card["max_tokens"])
        if "self_test" not in card:     # a bundle brings its own
            card["self_test"] = _self_test(prepared)
        files = seal(prepared)
    except CheckpointError as refusal:
        spec.control.send({"type": "refused", "message": str(refusal)})
        return
    spec.control.send({"type": "prepared"}, files.descriptors)


def _self_test(prepared) -> list[dict]:
    tokenizer = open_tokenizer(prepared.tokenizer)
    card = prepared.card
    rows, cases = [], []
    for text, pair in SELF_TEST_TEXTS:
        if pair is not None and card["pair_types"] < 2:
            continue
        encoding = tokenizer.encode(text, pair, card["max_tokens"])
        rows.append(Row(np.array(encoding.ids), encoding.split))
        cases.append({"text": text, "pair": pair, "ids": list(map(int, encoding.ids)),
                      "split": encoding.split})
    weights = map_file(prepared.weights_fd) if os.fstat(prepared.weights_fd).st_size else None
    for case, logits in zip(cases, reference(card, weights, rows)):
        case["logits"] = [float(value) for value in logits]
    return cases
