"""The judge lets an honest quantisation pass and none of the spoiled ones, on models that serve."""

import os
from contextlib import contextmanager

import numpy as np
import pytest

from loader.prepare import map_file, prepare
from loader.safetensors import file_bytes, float32_array, open_image
from loader.tokenizers.table import open_tokenizer
from model.families.table import FAMILIES, build
from model.program import Row
from model.programs import probe
from tests.tiny_bert import make_model, make_rows
from tests.tiny_families import CONFIGS, make_tiny
from tests.tiny_families import make_rows as rows_of_family
from tools.building.gate import ERROR_LIMIT
from tools.building.judging import Judge
from tools.training.texts import read_tsv

TEXTS, CALIBRATION = 200, 128


@contextmanager
def judge_of(folder, texts, labels):
    """(judge, the rows to calibrate by) of a checkpoint."""
    prepared = prepare(str(folder), "x", FAMILIES)
    tokenizer = open_tokenizer(prepared.tokenizer)
    encodings = [tokenizer.encode(text, None, prepared.card["max_tokens"]) for text in texts]
    rows = [Row(np.array(encoding.ids), encoding.split) for encoding in encodings]
    try:
        yield Judge(prepared.card, map_file(prepared.weights_fd), rows[:TEXTS], labels[:TEXTS],
                    lambda line: None), rows[-CALIBRATION:]
    finally:
        os.close(prepared.weights_fd)


@pytest.fixture(scope="module")
def sms(repo):
    """The default model's judge, and its honest quantisation."""
    data = read_tsv(str(repo / "data" / "sms-spam" / "eval.tsv"))
    with judge_of(repo / "models" / "sms-spam", data.texts, data.labels) as (judge, calibration):
        yield judge, judge.quantise(calibration, 7)[0]


def spoiled(arrays, name, change):
    """The same with the values and scales of one product changed."""
    values, scales = change(arrays[f"{name}.weight"].astype(np.float32), arrays[f"{name}.scales"])
    return {**arrays, f"{name}.weight": np.clip(np.rint(values), -63, 63).astype(np.int8),
            f"{name}.scales": scales.astype(np.float32)}


SPOILED = {
    "wrong scale": lambda values, scales: (values, scales * 1.25),
    "scales of other channels": lambda values, scales: (values, scales[::-1]),
    "one scale for all": lambda values, scales: (values, np.full_like(scales, scales.mean())),
    "4 bits": lambda values, scales: (np.rint(values / 9) * 9, scales),
    "saturated": lambda values, scales: (values * 2.5, scales / 2.5),
    "zeros": lambda values, scales: (values * 0, scales),
    "turned round": lambda values, scales: (-values, scales)}
PRODUCTS = ["bert.encoder.layer.0.attention.self.value", "bert.encoder.layer.0.output.dense",
            "bert.encoder.layer.1.intermediate.dense"]


def test_judge_honest_quantisation_passes(sms):
    judge, arrays = sms
    judgement = judge.judge_int8(arrays)
    assert judgement.faults() == [] and judgement.is_invariant and judgement.texts == TEXTS
    assert 0 < judgement.worst_product_error < 0.02 and judgement.largest_difference > 0
    assert 0.5 < judgement.worst_rounding < 1.5
    assert judge.judgement_fp32.faults() == []
    assert judgement.accuracy_fp32 == judge.judgement_fp32.accuracy > 0.95


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("deed", SPOILED)
def test_judge_spoiled_quantisation_of_one_product_is_refused(sms, name, deed):
    judge, arrays = sms
    judgement = judge.judge_int8(spoiled(arrays, name, SPOILED[deed]))
    assert any("a product's output is" in fault for fault in judgement.faults())


def test_judge_divisors_that_do_not_belong_are_refused(sms):
    judge, arrays = sms
    name = PRODUCTS[1]
    inputs = arrays[f"{name}.weight"].shape[1]
    divisors = np.exp(np.random.default_rng(1).normal(size=inputs)).astype(np.float32)
    assert judge.judge_int8({**arrays, f"{name}.divisors": divisors}).faults()


def test_judge_kernels_that_saturate_are_refused(sms, monkeypatch):
    """Weights of 8 bits on a CPU where all kernels saturate: there is no program to judge."""
    judge, arrays = sms
    monkeypatch.setattr(probe, "is_exact", lambda kind, *_: kind != "int8")
    probe.choose.cache_clear()
    try:
        wider = spoiled(arrays, PRODUCTS[0], lambda values, scales: (values, scales))
        wider[f"{PRODUCTS[0]}.weight"] = (arrays[f"{PRODUCTS[0]}.weight"] * 2).clip(-127, 127)
        with pytest.raises(ArithmeticError, match="no kernel of this CPU multiplies 8-bit"):
            judge.judge_int8(wider)
    finally:
        probe.choose.cache_clear()


def test_judge_all_computes_what_this_cpu_can(sms):
    judge, arrays = sms
    judgements = judge.judge_all(arrays)
    assert {"fp16", "int8"} <= set(judgements) <= {"fp16", "bf16", "int8"}
    assert not any(judgement.faults() for judgement in judgements.values())


@pytest.mark.slow
def test_judge_minilm_keeps_what_the_gate_demands(minilm, shared):
    data = read_tsv(str(next((shared / "data" / "trec6").glob("*eval*"))))
    with judge_of(minilm, data.texts, data.labels) as (judge, calibration):
        arrays, kinds, _ = judge.quantise(calibration, 7)
        assert set(kinds.values()) == {"int8"} and judge.judge_int8(arrays).faults() == []
        name = "bert.encoder.layer.3.attention.output.dense"
        for deed in ("wrong scale", "4 bits", "saturated"):
            assert judge.judge_int8(spoiled(arrays, name, SPOILED[deed])).faults()


def outlier_model():
    """A model one of whose products has an input that is hundreds of times the others, and whose
    weight there is small: steps that fit the one are too coarse for the rest."""
    card, weights = make_model(hidden_act="relu")
    tensors = open_image(weights)
    arrays = {name: float32_array(weights, tensor).copy() for name, tensor in tensors.items()}
    layer = "bert.encoder.layer.0"
    arrays[f"{layer}.intermediate.dense.bias"][5] = 3000.0
    arrays[f"{layer}.output.dense.weight"][:, 5] = 0.0
    arrays[f"{layer}.output.dense.weight"][3, 5] = 1e-3
    return {**card, "function": "softmax"}, file_bytes(arrays), f"{layer}.output.dense"


def test_judge_product_that_8_bits_would_hurt_stays_wide(monkeypatch):
    from tools.building import layers
    monkeypatch.setattr(layers, "SMOOTHING_PAYS", 0.0)  # smoothing would save it
    card, weights, hurt = outlier_model()
    rows = make_rows(card, [5, 2, 40, 17, 1, 33] * 10)
    judge = Judge(card, weights, rows, None, lambda line: None)
    arrays, kinds, bits = judge.quantise(rows, 7)
    assert bits == 7 and kinds.pop(hurt) == "fp32" and set(kinds.values()) == {"int8"}
    assert f"{hurt}.weight" not in arrays and len(arrays) == 2 * len(kinds)
    judgement = judge.judge_int8(arrays)
    assert judgement.is_invariant and judgement.worst_product_error <= ERROR_LIMIT
    wide = {name: float32_array(weights, tensor) for name, tensor in open_image(weights).items()}
    program = build({**card, "precision": "int8"}, file_bytes({**wide, **arrays}))
    assert np.array_equal(program.run(rows[:5]), program.run(rows)[:5])
    assert np.abs(program.run(rows) - judge.expected).max() < 0.3


def test_judge_product_that_8_bits_would_hurt_is_saved_by_smoothing():
    card, weights, hurt = outlier_model()
    rows = make_rows(card, [5, 2, 40, 17, 1, 33] * 10)
    judge = Judge(card, weights, rows, None, lambda line: None)
    arrays, kinds, _ = judge.quantise(rows, 7)
    assert kinds[hurt] == "int8" and arrays[f"{hurt}.divisors"].shape == (64,)
    assert judge.judge_int8(arrays).worst_product_error <= ERROR_LIMIT


@pytest.mark.parametrize("name", CONFIGS)
def test_judge_every_family_can_be_quantised(name):
    for config in CONFIGS[name][:2]:  # the second has widths that are no multiples of anything
        card, weights = make_tiny(name, config)
        card = {**card, "function": "softmax"}
        rows = rows_of_family(card, [5, 2, 40, 17, 1, 33] * 4)
        judge = Judge(card, weights, rows, None, lambda line: None)
        arrays, kinds, _ = judge.quantise(rows, 7)
        listed = {product for product, kind in kinds.items() if kind == "int8"}
        assert listed and {array.rpartition(".")[0] for array in arrays} == listed
        judgement = judge.judge_int8(arrays)
        assert judgement.is_invariant and judgement.worst_product_error <= ERROR_LIMIT
        assert judgement.mean_difference < 0.1 * judge.expected.std()
