"""`python -m tools.build`: a checkpoint in, a bundle with judged 8-bit weights beside it out."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from loader.errors import CheckpointError
from loader.prepare import Prepared, map_file, model_name, prepare
from loader.tokenizers.table import open_tokenizer
from model.families.table import FAMILIES
from model.program import Row
from tools.building import options
from tools.building.gate import ROWS_NEEDED, Judgement
from tools.building.source import read_source
from tools.building.writing import write_bundle
from tools.training.texts import TrainingError, read_lines, read_tsv

SHIPPED_TEXTS = Path(__file__).parent.parent / "data" / "sms-spam" / "train.tsv"
CALIBRATION_TEXTS = 512
GOLDENS = 8
# Of the largest difference seen while judging: what a start on another machine may differ by.
TOLERANCE_FACTOR, TOLERANCE_LEAST = 2.0, 1e-3


class RefusedError(Exception):
    """The gate let nothing pass: one sentence that says why and what to do."""


def main(argv: list[str] | None = None) -> int:
    """Builds; 1 where the gate refuses, 2 with one sentence where it cannot begin."""
    chosen = options.parser().parse_args(argv)
    try:
        _build(chosen)
    except RefusedError as refusal:
        print(refusal, file=sys.stderr)
        return 1
    except (TrainingError, CheckpointError) as refusal:
        print(refusal, file=sys.stderr)
        return 2
    except ArithmeticError as refusal:
        print(f"{refusal}; build with --bits 7, or on a CPU that has such.", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{chosen.out} cannot be written: {error.strerror}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; nothing was written", file=sys.stderr)
        return 130
    return 0


def _build(chosen: argparse.Namespace) -> None:
    if chosen.out.exists():
        raise CheckpointError(f"{chosen.out} is there already; name another folder: a bundle is "
                              "never overwritten.")
    prepared = prepare(chosen.checkpoint, model_name(chosen.checkpoint), FAMILIES)
    card = prepared.card
    if "self_test" in card or not FAMILIES[card["family"]].needs_weights:
        raise CheckpointError(f"{chosen.checkpoint} is no checkpoint of weights to quantise; name "
                              "the folder that it was made of.")
    names = card["labels"]
    if chosen.eval:
        texts, labels = _labelled(chosen.eval, names)
    else:
        texts, labels = read_lines(chosen.texts), None
    if (labels is None or len(texts) < ROWS_NEEDED) and not chosen.force:
        raise CheckpointError(f"{chosen.eval or chosen.texts} has {len(texts) if labels else 0} "
                              f"labelled texts, fewer than the {ROWS_NEEDED} that a loss of "
                              "accuracy shows on; give more, or judge by these with --force.")
    rows = _rows(prepared, texts)
    calibration = _rows(prepared, _calibration(chosen.calibrate))
    _tell(f"{card['name']}: {len(calibration)} texts to calibrate by, {len(rows)} to judge by")

    from tools.building.judging import Judge  # torch, only now
    judge = Judge(card, map_file(prepared.weights_fd), rows, labels, _tell)
    quantised, layers, bits = judge.quantise(calibration, chosen.bits)
    judgements = judge.judge_all(quantised)
    for precision, judgement in judgements.items():
        print(_line(precision, judgement), flush=True)
    faults = judgements["int8"].faults()
    if faults:
        raise RefusedError(f"{card['name']} was not built: in 8 bits {'; '.join(faults)}. Give "
                           "texts of its own kind with --calibrate, or serve it in fp32.")
    if not quantised:
        raise RefusedError(f"{card['name']} was not built: 8 bits would hurt every product of it. "
                           "Give texts of its own kind with --calibrate, or serve it in fp32.")
    measured = _facts({"fp32": judge.judgement_fp32, **judgements})
    version = write_bundle(
        chosen.out, read_source(chosen.checkpoint), map_file(prepared.weights_fd), quantised,
        {"name": card["name"], "labels": names, "bits": bits, "layers": layers,
         "precisions": measured, "goldens": _goldens(rows, judge.expected)})
    print(f"wrote {chosen.out}, version {version}: "
          f"{sum(kind == 'int8' for kind in layers.values())} of {len(layers)} products in 8 bits")


def _labelled(path: str, names: Sequence[str]) -> tuple[list[str], list[int]]:
    data = read_tsv(path, names)
    return data.texts, data.labels


def _calibration(path: str | None) -> list[str]:
    lines = read_lines(path or str(SHIPPED_TEXTS))
    return [line.rpartition("\t")[2] for line in lines[:CALIBRATION_TEXTS]]


def _rows(prepared: Prepared, texts: Sequence[str]) -> list[Row]:
    tokenizer = open_tokenizer(prepared.tokenizer)
    encodings = [tokenizer.encode(text, None, prepared.card["max_tokens"]) for text in texts]
    return [Row(np.array(encoding.ids), encoding.split) for encoding in encodings]


def _facts(judgements: Mapping[str, Judgement]) -> dict[str, Any]:
    """What the manifest says of each precision. A number that is not finite is null there."""
    facts: dict[str, Any] = {}
    for precision, judgement in judgements.items():
        faults = judgement.faults()
        tolerance = max(TOLERANCE_LEAST, TOLERANCE_FACTOR * judgement.largest_difference)
        facts[precision] = {
            "passed": not faults, "faults": faults, **judgement._asdict(), "tolerance": tolerance}
        for key, value in facts[precision].items():
            if isinstance(value, float) and not math.isfinite(value):
                facts[precision][key] = None
    return facts


def _goldens(rows: Sequence[Row], expected: np.ndarray) -> list[dict[str, Any]]:
    """fp32's answers to some of the texts, the shortest and the longest among them."""
    order = np.argsort([len(row.ids) for row in rows], kind="stable")
    chosen = order[np.unique(np.linspace(0, len(order) - 1, GOLDENS).astype(int))]
    return [{"ids": rows[index].ids.tolist(), "split": rows[index].split,
             "logits": expected[index].tolist()} for index in chosen]


def _line(precision: str, judgement: Judgement) -> str:
    words = [f"{precision}: agrees with fp32 on {judgement.agreement:.2%} of {judgement.texts}",
             f"|Δlogit| {judgement.mean_difference:.4f} and at most "
             f"{judgement.largest_difference:.3f}"]
    if judgement.interval:
        low, high = judgement.interval
        words.append(f"accuracy {judgement.accuracy:.2%} (fp32 {judgement.accuracy_fp32:.2%}; "
                     f"difference {low:+.2%} to {high:+.2%} with 95 %)")
    if judgement.worst_product_error is not None:
        words.append(f"products at most {judgement.worst_product_error:.2%} off and "
                     f"{judgement.worst_rounding:.2f} times what rounding explains")
    if judgement.clear_decisions_changed:
        words.append(f"{judgement.clear_decisions_changed} clear decisions changed")
    faults = judgement.faults()
    words.append("refused: " + "; ".join(faults) if faults else "passed")
    return ", ".join(words)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
