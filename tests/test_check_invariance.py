"""`make check-invariance` finds what it is for: bits that depend on rows, company or load."""

import os

import numpy as np
import pytest
import torch

from model.programs.probe import Choice, RandomProduct
from tests import check_invariance as check


class Fake:
    """Answers each row with itself; `change` gets the answers, the batch and the process."""

    facts = {"is_invariant": True}

    def __init__(self, change=lambda logits, is_child: logits):
        self.change, self.parent = change, os.getpid()

    def warm(self):
        pass

    def run(self, rows):
        logits = np.array([[row.ids.sum(), row.split] for row in rows], np.float32)
        return self.change(logits, os.getpid() != self.parent)


CHANGES = {
    "": lambda logits, is_child: logits,
    "together": lambda logits, is_child: logits + 1.0 * (len(logits) > 20),
    "times text": lambda logits, is_child: logits + 1.0 * (len(logits) == 7),
    "differ from each alone": lambda logits, is_child: logits + (8 <= len(logits) <= 20),
    "answers under load differ": lambda logits, is_child: logits + 1.0 * is_child,
    "processes under load ended with": lambda logits, is_child: logits if not is_child else
    os._exit(3)}


@pytest.mark.parametrize("words", CHANGES)
def test_check_program_tells_what_differs(words, monkeypatch):
    monkeypatch.setattr(check, "build", lambda card, weights: Fake(CHANGES[words]))
    found, fault = check.check_program(
        {"max_tokens": 64, "vocab_size": 50, "pair_types": 2}, b"", seed=1)
    assert found == "21 texts of 2 to 64 tokens"
    assert words in fault if words else fault == ""


@pytest.mark.parametrize(("odd", "fault"), [(None, ""), (8, "8 rows from row 0 on differ")])
def test_check_product_tells_the_number_of_rows(monkeypatch, odd, fault):
    x = torch.rand(16, 3)
    monkeypatch.setattr(check, "choose", lambda kind, *shape: Choice("fake", (4, 8, 12, 16)))
    monkeypatch.setattr(check, "make_random", lambda *arguments: RandomProduct(
        lambda part: part * 2 + 1e-6 * (len(part) == odd), x))
    assert check.check_product("fp32", (3, 3)) == (
        "fp32 3x3", "fake, 4 numbers of rows, 4 to 16", fault)


@pytest.mark.parametrize(("faults", "verdict", "status"), [
    (["", ""], "PASS  ", 0), (["", "8 rows differ"], "FAIL  ", 1)])
def test_main_last_line_is_the_verdict(monkeypatch, capsys, faults, verdict, status):
    left = list(faults)
    monkeypatch.setattr(check, "SHAPES", [(3, 3)])
    monkeypatch.setattr(check, "PRECISIONS", ["fp32"])
    monkeypatch.setattr(check, "programs", lambda kinds: [("fake", {}, b"")])
    monkeypatch.setattr(check, "check_product", lambda kind, shape: ("one", "k", left.pop(0)))
    monkeypatch.setattr(check, "check_program", lambda card, weights, seed: ("two", left.pop(0)))
    assert check.main([]) == status
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[-1].startswith(verdict + check.cpu_model())
