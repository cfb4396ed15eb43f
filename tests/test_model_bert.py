"""BERT: the program equals the reference, and both equal what transformers answers."""

import json
import os

import numpy as np
import pytest

from loader.errors import CheckpointError
from loader.prepare import map_file, prepare
from model.families.bert import BertFamily
from model.families.settings import ACTIVATIONS
from model.families.table import FAMILIES, build, reference
from model.program import Row
from tests.tiny_bert import CONFIG, make_model, make_rows

TOLERANCE, TOLERANCE_16_BITS = 5e-5, 2e-4
# In forms of weights or tokenizers that are refused until their readers are built.
NOT_READ_YET = {"bert-sharded", "bert-bin", "bert-bin-legacy", "bert-bin-sharded", "bert-bin-tied",
                "bert-added-flags", "bert-legacy-added-tokens"}
SIZES = [5, 2, 64, 17, 16, 33, 1, 3, 48, 15]


def program_and_reference(card, weights, rows):
    program = build(card, weights)
    program.warm()
    return program.run(rows), reference(card, weights, rows)


@pytest.mark.parametrize("config", [
    *({"hidden_act": name} for name in ACTIVATIONS),
    {"hidden_size": 36, "num_attention_heads": 3, "intermediate_size": 37},
    {"hidden_size": 7, "num_attention_heads": 1, "intermediate_size": 5},
    {"num_hidden_layers": 1}, {"num_hidden_layers": 3}, {"type_vocab_size": 1},
    {"type_vocab_size": 3}, {"layer_norm_eps": 1e-1}, {"labels": 1}, {"labels": 33},
    {"dtype": np.float16}], ids=str)
def test_bert_program_equals_reference(config):
    card, weights = make_model(**config)
    rows = make_rows(card, SIZES)
    found, expected = program_and_reference(card, weights, rows)
    assert found.dtype == np.float32 and found.shape == (len(rows), len(card["labels"]))
    assert expected.std() > 0.2
    assert np.abs(found - expected).max() <= TOLERANCE


def test_bert_program_without_rows_gives_no_logits():
    card, weights = make_model()
    assert build(card, weights).run([]).shape == (0, 3)


def test_bert_program_text_too_long_is_an_error():
    card, weights = make_model()
    with pytest.raises(ValueError, match="65 tokens, the model takes 64"):
        build(card, weights).run(make_rows(card, [3, 65]))


def test_bert_program_unknown_id_is_an_error():
    card, weights = make_model()
    with pytest.raises(ValueError, match="token id 97, the model's vocabulary ends before 97"):
        build(card, weights).run([Row(np.array([1, CONFIG["vocab_size"]]), 2)])


def test_bert_program_takes_narrow_read_only_ids():
    card, weights = make_model()
    program, (row,) = build(card, weights), make_rows(card, [9])
    for kind in ("<u2", "<u4"):
        narrow = Row(np.frombuffer(row.ids.astype(kind).tobytes(), kind), row.split)
        assert np.array_equal(program.run([narrow]), program.run([row]))


def test_bert_program_costs_grow_with_tokens():
    card, weights = make_model()
    program = build(card, weights)
    program.warm()
    points = program.costs()
    assert len(points) >= 3 and all(ms > 0 and tokens >= texts for texts, tokens, ms in points)


@pytest.mark.parametrize("config", [
    {"hidden_act": "mish"}, {"hidden_size": 33}, {"num_hidden_layers": 0}, {"hidden_size": "32"},
    {"num_hidden_layers": 1001}, {"layer_norm_eps": None}, {"type_vocab_size": 0},
    {"intermediate_size": True}, {"num_attention_heads": -2}], ids=str)
def test_bert_settings_out_of_range_are_refused(config):
    with pytest.raises(CheckpointError, match=f"config.json: {next(iter(config))}"):
        BertFamily().settings({**CONFIG, **config})


def test_bert_settings_missing_are_the_reference_s_defaults():
    settings = BertFamily().settings({})
    assert (settings["hidden_size"], settings["layers"], settings["heads"]) == (768, 12, 12)
    assert (settings["activation"], settings["layer_norm_eps"]) == ("gelu", 1e-12)
    assert len(BertFamily().tensors(settings, 2)) == 201  # as bert-base has, and no more


def golden_folders(shared):
    rows = json.loads((shared / "checkpoints" / "MANIFEST.json").read_text())["folders"]
    return [shared / "checkpoints" / row["folder"] for row in rows if row["family"] == "bert"
            and row["expected"] == "serve" and row["folder"] not in NOT_READ_YET]


def load(folder):
    """(card, mapped weights) of a checkpoint."""
    prepared = prepare(str(folder), folder.name, FAMILIES)
    try:
        return prepared.card, map_file(prepared.weights_fd)
    finally:
        os.close(prepared.weights_fd)


def check_goldens(card, weights, golden):
    """Program and reference against the file; alone, together and shuffled, bit for bit."""
    cases = json.loads(golden.read_text())["entries"]
    rows = [Row(np.array(case["input_ids"]),
                len(case["input_ids"]) - sum(case.get("token_type_ids", ()))) for case in cases]
    expected = np.array([case["logits"] for case in cases], dtype=np.float32)
    tolerance = TOLERANCE if b'"F16"' not in weights[:1 << 16] and \
        b'"BF16"' not in weights[:1 << 16] else TOLERANCE_16_BITS
    program = build(card, weights)
    program.warm()
    together = program.run(rows)
    assert np.abs(together - expected).max() <= tolerance
    assert np.abs(reference(card, weights, rows[:20]) - expected[:20]).max() <= tolerance
    assert np.array_equal(np.concatenate([program.run([row]) for row in rows]), together)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(rows))[:len(rows) - 9 * seed]
        assert np.array_equal(program.run([rows[place] for place in order]), together[order])
    return program


def test_bert_goldens_of_every_checkpoint(shared):
    folders = golden_folders(shared)
    assert len(folders) >= 48
    for folder in folders:
        check_goldens(*load(folder), folder / "golden.json")


@pytest.mark.slow
def test_bert_minilm_goldens_and_every_recorded_answer(shared, minilm):
    from loader.tokenizers.table import open_tokenizer
    prepared = prepare(str(minilm), "minilm-trec6", FAMILIES)
    weights = map_file(prepared.weights_fd)
    os.close(prepared.weights_fd)
    folder = shared / "checkpoints" / "minilm-trec6"
    program = check_goldens(prepared.card, weights, folder / "golden.json")

    recorded = json.loads((folder / "eval_expected.json").read_text())["predicted"]
    texts = [line.split("\t", 1)[1] for line in
             (shared / "data" / "trec6" / "eval.tsv").read_text("utf-8").splitlines()]
    tokenizer = open_tokenizer(prepared.tokenizer)
    codes = [tokenizer.encode(text, None, prepared.card["max_tokens"]) for text in texts]
    logits = program.run([Row(np.array(code.ids), code.split) for code in codes])
    assert [prepared.card["labels"][place] for place in logits.argmax(axis=1)] == recorded
