"""Each family's fast program equals its reference, and no text's answer depends on its company."""

import numpy as np
import pytest

from model.families.table import FAMILIES, build, reference
from model.program import Row
from tests.family_goldens import golden_cases, load, served_folders, tolerance_of
from tests.tiny_families import CONFIGS, make_rows, make_tiny

TOLERANCE = 5e-5
# Steps of 16 bits, and of 8 bits in weights and activations, of logits with a deviation near 1.
TOLERANCES = {"fp32": TOLERANCE, "fp16": 2e-2, "bf16": 0.3, "int8": 0.3}
SIZES = [5, 2, 64, 17, 16, 33, 1, 3, 48, 15, 63, 32]
VARIANTS = [pytest.param(name, config, id=f"{name}-{number}")
            for name, configs in CONFIGS.items() for number, config in enumerate(configs)]
PLAIN = [pytest.param(name, configs[0], id=name) for name, configs in CONFIGS.items()]


def make_program(name, config, **options):
    """(card, weights, warmed program)."""
    card, weights = make_tiny(name, config, **options)
    program = build(card, weights)
    program.warm()
    return card, weights, program


def can_compute(precision):
    """False for what this CPU has no instructions for."""
    import torch
    return precision != "bf16" or torch.ops.mkldnn._is_mkldnn_bf16_supported()


def sizes_of(card):
    """Lengths up to the model's limit, longer ones where it takes them."""
    return SIZES + [size for size in (129, 200, 256, 300, 400) if size <= card["max_tokens"]]


@pytest.mark.parametrize("name, config", VARIANTS)
def test_program_equals_reference(name, config):
    card, weights, program = make_program(name, config)
    rows = make_rows(card, sizes_of(card))
    found, expected = program.run(rows), reference(card, weights, rows)
    assert found.dtype == np.float32 and found.shape == (len(rows), len(card["labels"]))
    assert expected.std(axis=0).min() > 200 * TOLERANCE
    assert np.abs(found - expected).max() <= TOLERANCE


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
@pytest.mark.parametrize("name, config", PLAIN)
def test_program_in_fewer_bits_is_near_the_reference_and_the_same_in_company(name, config,
                                                                            precision):
    if not can_compute(precision):
        pytest.skip(f"this CPU has no {precision}")
    card, weights, program = make_program(name, config, precision=precision)
    assert program.facts["is_invariant"]
    rows = make_rows(card, SIZES)
    found, expected = program.run(rows), reference(card, weights, rows)
    assert 0 < np.abs(found - expected).max() <= TOLERANCES[precision] * max(expected.std(), 1)
    assert np.array_equal(np.concatenate([program.run([row]) for row in rows]), found)


@pytest.mark.parametrize("name, config", VARIANTS)
def test_program_alone_moved_in_company_and_ragged_is_the_same(name, config):
    card, _, program = make_program(name, config)
    assert program.facts["is_invariant"]
    rng = np.random.default_rng(5)
    rows = make_rows(card, [*sizes_of(card), 4, card["max_tokens"] - 1, card["max_tokens"],
                            *np.minimum(rng.geometric(1 / 20, 8) + 2, card["max_tokens"])])
    alone = np.concatenate([program.run([row]) for row in rows])
    assert np.array_equal(program.run(rows), alone)
    assert np.array_equal(program.run(rows[::-1]), alone[::-1])
    for row, expected in zip(rows[:4], alone):
        assert (program.run([row] * 5) == expected).all()
    for _ in range(8):
        chosen = rng.choice(len(rows), rng.integers(1, len(rows)))
        assert np.array_equal(program.run([rows[place] for place in chosen]), alone[chosen])


@pytest.mark.parametrize("name", ["deberta-v2", "modernbert", "mpnet"])
def test_program_built_again_from_facts_answers_the_same_bits(name):
    card, weights, program = make_program(name, CONFIGS[name][0])
    rows = make_rows(card, SIZES)
    twin = build({**card, "facts": program.facts}, weights)
    assert np.array_equal(twin.run(rows), program.run(rows))


@pytest.mark.parametrize("name", ["roberta", "mpnet"])
def test_program_padding_inside_a_text_takes_no_position(name):
    """Not as the same text without it, and not as a counted token: as the reference has it."""
    card, weights, program = make_program(name, CONFIGS[name][0])
    pad = card["settings"]["pad_id"]
    texts = ([0, 5, pad, 9, 2], [pad, pad], [5, pad], [pad, 5, 7], [7] * 20 + [pad] * 3 + [8])
    rows = [Row(np.array(ids), len(ids)) for ids in texts]
    found = program.run(rows)
    assert np.abs(found - reference(card, weights, rows)).max() <= TOLERANCE
    assert np.array_equal(np.concatenate([program.run([row]) for row in rows]), found)


@pytest.mark.parametrize("name", ["distilbert", "roberta", "mpnet", "modernbert"])
def test_program_without_types_is_blind_to_the_split(name):
    card, _, program = make_program(name, CONFIGS[name][0])
    row, = make_rows(card, [30])
    assert np.array_equal(program.run([row]), program.run([Row(row.ids, 11)]))


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - {"bert", "echo"}))
def test_program_goldens_of_every_checkpoint(name, shared, tmp_path):
    folders = served_folders(shared)[name]
    assert folders
    for folder in folders:
        card, weights = load(folder, tmp_path)
        rows, expected = golden_cases(folder)
        program = build(card, weights)
        program.warm()
        together = program.run(rows)
        assert np.abs(together - expected).max() <= tolerance_of(weights), folder.name
        assert np.array_equal(np.concatenate([program.run([row]) for row in rows]), together)


def test_every_family_but_those_with_tests_of_their_own_has_tiny_configs():
    classes = {type(FAMILIES[name]) for name in CONFIGS}
    assert classes == {type(FAMILIES[name]) for name in FAMILIES.keys() - {"bert", "echo"}}
