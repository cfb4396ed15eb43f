"""Served checkpoints answer as their goldens say, alone and in company."""

import pytest

from tests.goldens import judge

pytestmark = pytest.mark.sockets


@pytest.mark.parametrize("name", [
    "bert", "ce-bert-identity", "bert-mixed-dtype", "bert-multilabel"])
def test_served_checkpoint_answers_as_its_goldens(shared, name):
    _, faults = judge(shared / "checkpoints" / name)
    assert not faults


def test_served_minilm_answers_as_its_goldens(shared, minilm):
    _, faults = judge(minilm, shared / "checkpoints" / "minilm-trec6" / "golden.json")
    assert not faults
