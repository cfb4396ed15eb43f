"""The echo model: answers that anyone can compute, and every trap as documented."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from loader.errors import CheckpointError
from model.families.echo import EXIT_STATUS, LATE_S, EchoFamily, echo_logits
from model.families.table import FAMILIES, build, reference
from model.program import Row

FOLDER = Path(__file__).parent / "fixtures" / "echo"
CONFIG = json.loads((FOLDER / "config.json").read_text())
TRAPS = CONFIG["traps"]


def make_card(**config):
    """A card as loader.prepare makes it, as far as the program reads it."""
    return {"family": "echo", "labels": list(CONFIG["id2label"].values()),
            "settings": EchoFamily().settings({**CONFIG, **config})}


def make_row(*ids, split=None):
    return Row(np.array(ids), len(ids) if split is None else split)


def run_trap(kind):
    build(make_card(), None).run([make_row(2, TRAPS[kind], 3)])


def start_trap(kind):
    """A process that springs a trap and prints a line just before."""
    code = f"from tests.test_model_echo import run_trap; print(flush=True); run_trap({kind!r})"
    return subprocess.Popen([sys.executable, "-c", code], cwd=FOLDER.parents[2],
                            stdout=subprocess.PIPE)


def test_echo_logits_by_hand():
    assert echo_logits([2, 7, 3], 3, 2) == [0.253662109375, 3.543701171875]


def test_echo_logits_depend_on_order_split_and_number():
    found = {tuple(echo_logits(ids, split, 4)) for ids, split in (
        ([2, 7, 3], 3), ([7, 2, 3], 3), ([2, 7, 3], 2), ([2, 7, 3, 0], 4), ([2, 7, 263], 3))}
    assert len(found) == 5


def test_echo_program_answers_the_hash_in_any_integer_type():
    rows = [make_row(2, 20, 3), make_row(2, 21, 3, 22, 3, split=3),
            Row(np.array([2, 50, 3], dtype=np.uint16), 3)]
    logits = build(make_card(), None).run(rows)
    assert logits.dtype == np.float32 and logits.shape == (3, 4)
    assert logits.tolist() == [echo_logits(row.ids, row.split, 4) for row in rows]
    assert np.array_equal(reference(make_card(), None, rows), logits)


def test_echo_fixture_vocabulary_holds_the_traps_at_their_ids():
    words = (FOLDER / "vocab.txt").read_text().split("\n")
    assert words[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert len(words) - 1 == CONFIG["vocab_size"] == len(set(words[:-1]))
    for kind, trap in TRAPS.items():
        assert words[trap] == f"trap{kind}"


def test_echo_family_stands_in_the_table():
    family = FAMILIES["echo"]
    settings = make_card()["settings"]
    assert family.tensors(settings, 4) == {} and not family.needs_weights
    assert (family.positions(settings), family.pair_types(settings)) == (512, 2)


@pytest.mark.parametrize("config", [{"traps": {"explode": 5}}, {"traps": {"exit": 116}},
                                    {"traps": [5]}, {"delay_ms": -1}, {"type_vocab_size": 3}])
def test_echo_settings_out_of_range_are_refused(config):
    with pytest.raises(CheckpointError, match="config.json"):
        make_card(**config)


def test_echo_trap_raise_raises():
    with pytest.raises(RuntimeError, match="trap"):
        run_trap("raise")


def test_echo_trap_nonsense_has_the_wrong_shape():
    rows = [make_row(2, TRAPS["nonsense"], 3), make_row(2, 20, 3)]
    assert build(make_card(), None).run(rows).shape == (3, 5)


def test_echo_trap_late_answers_rightly_later():
    row, begin = make_row(2, TRAPS["late"], 3), time.monotonic()
    logits = build(make_card(), None).run([row])
    assert time.monotonic() - begin >= LATE_S
    assert logits.tolist() == [echo_logits(row.ids, row.split, 4)]


@pytest.mark.parametrize(("kind", "code"), [("exit", EXIT_STATUS), ("segv", -signal.SIGSEGV)])
def test_echo_trap_ends_its_process(kind, code):
    with start_trap(kind) as child:
        assert child.wait(60) == code


@pytest.mark.parametrize("kind", ["hang", "spin"])
def test_echo_trap_never_returns(kind):
    with start_trap(kind) as child:
        child.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.2)
        child.kill()
        assert child.wait(60) == -signal.SIGKILL


def test_echo_delays_add_up():
    program = build(make_card(delay_ms=5, delay_us_per_token=1000), None)
    begin = time.monotonic()
    program.run([make_row(*range(20, 30))])
    assert time.monotonic() - begin >= 0.015
    program.warm()
    assert all(ms >= 5 + tokens for _, tokens, ms in program.costs())
