"""Machine code is for models and CPUs that it fits; all others have torch's program."""

import errno
import json

import numpy as np
import pytest

from model.families.table import build
from model.native import assembly, cpu, tape
from model.native.program import NativeProgram
from tests.native_programs import FITTING, native, skip_without, texts, tiny, torchs
from tests.tiny_families import CONFIGS, SIZES, make_rows, make_tiny

TOLERANCE = 2e-5
# Changes of fitting configurations, by what does not fit.
UNFIT = {"a head that is no vector": ("bert", {"hidden_size": 48, "num_attention_heads": 2}),
         "a head that is too wide": ("bert", {"hidden_size": 144, "num_attention_heads": 1}),
         "half a vector of intermediate": ("roberta", {"intermediate_size": 72}),
         "half a vector of embeddings": ("electra", {"embedding_size": 24}),
         "half a group of projected": ("electra projected", {"hidden_size": 80,
                                                            "num_attention_heads": 5}),
         "half a group of shared": ("albert", {"hidden_size": 48, "num_attention_heads": 3}),
         "odd widths": ("bert", {"hidden_size": 36, "num_attention_heads": 3,
                                 "intermediate_size": 37})}


def is_native(card: dict, weights: bytes) -> bool:
    return isinstance(build(card, weights), NativeProgram)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("name", FITTING)
def test_assembly_takes_machine_code_where_it_fits(name, precision):
    skip_without()
    card, weights = tiny(name, precision=precision)
    program = build(card, weights)
    assert isinstance(program, NativeProgram)
    assert program.facts["precision"] == precision and program.facts["is_invariant"]


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("what", UNFIT)
def test_assembly_leaves_to_torch_what_does_not_fit(what, precision):
    name, changes = UNFIT[what]
    card, weights = tiny(name, precision=precision, **changes)
    assert not is_native(card, weights)
    assert build(card, weights).run(texts(card)).shape == (len(texts(card)), 3)


@pytest.mark.parametrize("change", [{"embedding_size": 24}, {"hidden_size": 48,
                                                             "num_attention_heads": 3}], ids=str)
@pytest.mark.parametrize("name", ["electra", "albert"])
def test_assembly_leaves_odd_widths_around_a_projection_to_torch(name, change):
    card, weights = make_tiny(name, {**SIZES, "embedding_size": 16, **change})
    assert not is_native(card, weights)


@pytest.mark.parametrize("change", [
    {"conv_kernel_size": 3}, {"share_att_key": False}, {"pos_att_type": "c2p"},
    {"type_vocab_size": 2}, {"relative_attention": False}, {"max_position_embeddings": 513}],
    ids=str)
def test_assembly_leaves_deberta_that_is_not_as_v3_is_to_torch(change):
    card, weights = tiny("deberta-v2", **change)
    assert not is_native(card, weights)
    assert build(card, weights).run(texts(card)).shape == (len(texts(card)), 3)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_assembly_leaves_16_bits_to_torch(precision):
    card, _ = tiny("bert")
    from model.programs.bert import outline
    assert not assembly.is_fit(card["settings"], outline(card["settings"]), precision)


def test_assembly_leaves_families_that_normalise_before_to_torch():
    assert not is_native(*make_tiny("modernbert", CONFIGS["modernbert"][0]))


def test_assembly_leaves_a_cpu_without_vectors_to_torch(monkeypatch):
    monkeypatch.setattr(assembly, "integer_products",
                        lambda: cpu.Products("", "this CPU has no avx512f"))
    assert not is_native(*tiny("bert"))


def refuse(*_what: object) -> None:
    raise OSError(errno.EACCES, "memory cannot be made executable here")


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_assembly_leaves_a_system_that_runs_no_written_memory_to_torch(precision, monkeypatch):
    card, weights = tiny("bert", precision=precision)
    rows = texts(card)
    expected = torchs(card, weights).run(rows)
    monkeypatch.setattr(tape, "Executable", refuse)
    program = build(card, weights)
    assert not isinstance(program, NativeProgram)
    assert np.array_equal(program.run(rows), expected)


@pytest.mark.parametrize("unit", ["amx", "vnni"])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_assembly_built_again_from_facts_answers_the_same_bits(precision, unit):
    card, weights = tiny("bert", precision=precision)
    first = native(card, weights, unit)
    facts = json.loads(json.dumps(first.facts))
    twin = native({**card, "facts": facts}, weights, unit)
    rows = texts(card)
    assert twin.facts == facts
    assert np.array_equal(twin.run(rows), first.run(rows))


def test_assembly_tells_the_kernel_of_each_kind_of_product():
    card, weights = tiny("bert", precision="int8", labels=5)
    kernels = native(card, weights, "vnni").facts["kernels"]
    assert kernels == {"int8 96x32": "vnni", "int8 64x32": "vnni", "int8 32x32": "vnni",
                       "int8 32x64": "vnni", "fp32 32x32": "avx512", "fp32 5x32": "avx512"}


@pytest.mark.parametrize("name", CONFIGS)
def test_assembly_s_choice_is_within_rounding_of_torch_s(name):
    for config in CONFIGS[name]:
        card, weights = make_tiny(name, config)
        rows = make_rows(card, [5, 2, 40, 17, 1, 33])
        found, expected = build(card, weights).run(rows), torchs(card, weights).run(rows)
        assert np.abs(found - expected).max() <= TOLERANCE * max(expected.std(), 1)
