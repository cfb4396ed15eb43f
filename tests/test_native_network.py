"""Whole networks as machine code against torch's programs and the numpy references."""

import numpy as np
import pytest

from loader.safetensors import file_bytes
from model.families.settings import ACTIVATIONS
from model.families.table import reference
from tests.native_programs import (FITTING, alone, changed, kept, native, skip_without, smoothed,
                                   texts, tiny, torchs)

# Of float32: both programs and the reference round each in its own order.
TOLERANCE = 2e-5
# Of 8 bits: where a value lies between two steps the last bit decides, so single logits may be
# steps apart; all others differ by rounding.
MEDIAN, STEPS = 2e-6, 0.08
# hidden_size, heads, intermediate: of one vector, no multiples of a block's or a step's columns,
# heads of every width.
SHAPES = [(16, 1, 16), (48, 3, 80), (80, 5, 48), (112, 7, 208), (64, 1, 256), (144, 3, 144),
          (160, 2, 16), (192, 2, 336), (112, 1, 32), (128, 1, 512), (256, 2, 64)]


def check_near(found: np.ndarray, expected: np.ndarray, precision: str) -> None:
    difference = np.abs(found - expected)
    size = max(float(expected.std()), 1.0)
    assert expected.std() > 0.1, "logits that are all alike tell nothing"
    if precision == "fp32":
        assert difference.max() <= TOLERANCE * size
    else:
        assert np.median(difference) <= MEDIAN * size and difference.max() <= STEPS * size


def check_model(card: dict, weights: bytes, precision: str) -> None:
    """Against torch's program of the same arithmetic, and in float32 against the reference."""
    program, rows = native(card, weights), texts(card)
    found = program.run(rows)
    assert found.dtype == np.float32 and found.shape == (len(rows), len(card["labels"]))
    check_near(found, torchs(card, weights).run(rows), precision)
    if precision == "fp32":
        check_near(found, reference(card, weights, rows), precision)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("name", FITTING)
def test_network_of_each_family_equals_torch_s(name, precision):
    check_model(*tiny(name, precision=precision), precision)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("act", {name: act for act, name in ACTIVATIONS.items()}.values())
def test_network_of_each_activation_equals_torch_s(act, precision):
    check_model(*tiny("bert", precision=precision, hidden_act=act), precision)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_network_of_any_widths_equals_torch_s(shape, precision):
    hidden, heads, inner = shape
    card, weights = tiny("bert", precision=precision, hidden_size=hidden, intermediate_size=inner,
                         num_attention_heads=heads)
    check_model(card, weights, precision)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("layers", [1, 3])
def test_network_of_any_depth_equals_torch_s(layers, precision):
    card, weights = tiny("bert", precision=precision, num_hidden_layers=layers)
    check_model(card, weights, precision)


@pytest.mark.parametrize("labels", [1, 16, 33, 40])
def test_network_of_any_number_of_labels_equals_torch_s(labels):
    check_model(*tiny("distilbert", labels=labels), "fp32")


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("size", [16, 48, 144])
@pytest.mark.parametrize("name", ["albert", "electra"])
def test_network_whose_embeddings_have_a_width_of_their_own_equals_torch_s(name, size, precision):
    card, weights = tiny(name, precision=precision, embedding_size=size, hidden_size=96)
    if precision == "int8":
        weights = smoothed(weights)
    check_model(card, weights, precision)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("layers, groups, inner", [(1, 1, 1), (1, 1, 2), (4, 1, 1), (5, 2, 1),
                                                   (2, 2, 2)])
def test_network_whose_layers_come_back_equals_torch_s(layers, groups, inner, precision):
    card, weights = tiny("albert", precision=precision, num_hidden_layers=layers,
                         num_hidden_groups=groups, inner_group_num=inner)
    check_model(card, weights, precision)


@pytest.mark.parametrize("positions", [40, 64, 300])
@pytest.mark.parametrize("name, changes", [
    ("mpnet", {}), ("mpnet", {"relative_attention_num_buckets": 40}), ("deberta-v2", {}),
    ("deberta-v2", {"norm_rel_ebd": "none", "position_biased_input": True, "hidden_size": 128}),
    ("deberta-v2", {"position_buckets": -1, "max_relative_positions": 20})], ids=str)
def test_network_that_knows_distances_equals_torch_s(name, changes, positions):
    """Of texts that are longer than what has places of its own in tables of distances, too."""
    card, weights = tiny(name, max_position_embeddings=positions, **changes)
    rows = texts(card, [1, 14, 15, 16, 17, 33, 150, 300])
    check_near(native(card, weights).run(rows), torchs(card, weights).run(rows), "fp32")


@pytest.mark.parametrize("types", [1, 2, 5])
@pytest.mark.parametrize("name", ["albert", "bert", "electra", "roberta"])
def test_network_with_any_number_of_token_types_equals_torch_s(name, types):
    check_model(*tiny(name, type_vocab_size=types), "fp32")


@pytest.mark.parametrize("name", FITTING)
def test_network_with_factors_of_its_own_for_each_product_equals_torch_s(name):
    card, weights = tiny(name, precision="int8",
                         **{"n_layers" if name == "distilbert" else "num_hidden_layers": 4})
    check_model(card, smoothed(weights), "int8")


def test_network_of_stored_16_bits_equals_torch_s():
    card, weights = tiny("bert")
    check_model(card, file_bytes({name: array.astype(np.float16)
                                  for name, array in changed(weights).items()}), "fp32")


def test_network_whose_products_are_partly_of_8_bits_equals_torch_s():
    """Each product of a layer in turn is the one that stays in float32."""
    card, coded = tiny("bert", precision="int8", num_hidden_layers=1)
    wide = changed(tiny("bert", num_hidden_layers=1)[1])
    layer = "bert.encoder.layer.0."
    for products in (["attention.self.query"], ["attention.self.key", "attention.self.value"],
                     ["attention.output.dense"], ["intermediate.dense"], ["output.dense"]):
        arrays = changed(coded)
        for product in products:
            arrays[f"{layer}{product}.weight"] = wide[f"{layer}{product}.weight"]
            del arrays[f"{layer}{product}.scales"]
        weights = file_bytes(arrays)
        program, rows = native(card, weights), texts(card)
        check_near(program.run(rows), torchs(card, weights).run(rows), "int8")
        assert {"amx", "vnni"} & set(program.facts["kernels"].values())


@pytest.mark.parametrize("name", FITTING)
def test_network_of_codes_answers_the_same_bits_by_either_unit(name):
    skip_without("amx")
    card, weights = tiny(name, precision="int8")
    weights, rows = smoothed(weights), texts(card)
    tiles, vectors = native(card, weights, "amx"), native(card, weights, "vnni")
    assert "amx" in tiles.facts["kernels"].values()
    assert "amx" not in vectors.facts["kernels"].values()
    assert np.array_equal(tiles.run(rows), vectors.run(rows))


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("name", FITTING)
def test_network_answers_a_text_alike_in_any_company(name, precision):
    card, program = kept(name, precision)
    rows = texts(card)
    expected = alone(program, rows)
    assert np.array_equal(program.run(rows), expected)
    assert np.array_equal(program.run(rows[::-1]), expected[::-1])
    rng = np.random.default_rng(5)
    for _ in range(20):
        chosen = rng.choice(len(rows), rng.integers(1, len(rows)))
        assert np.array_equal(program.run([rows[place] for place in chosen]), expected[chosen])


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("size", [1, 2, 3, 15, 16, 17, 31, 32, 33, 64])
def test_network_answers_a_text_alike_behind_any_number_of_rows(size, precision):
    card, program = kept("bert", precision)
    (row,), (one,) = texts(card, [size]), texts(card, [1], seed=9)
    expected = program.run([row])[0]
    for before in range(40):
        found = program.run([one] * before + [row, one])
        assert np.array_equal(found[before], expected), before


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_network_keeps_a_word_that_is_no_number_to_its_text(value, precision):
    card, weights = tiny("bert", precision=precision)
    rows = texts(card)
    bad = card["vocab_size"] - 1
    rows = [row._replace(ids=np.minimum(row.ids, bad - 1)) for row in rows]
    arrays = changed(weights)
    arrays["bert.embeddings.word_embeddings.weight"][bad] = value
    program = native(card, file_bytes(arrays))
    expected = program.run(rows)
    assert np.isfinite(expected).all()
    for place in (0, 5, 8, 20):
        poisoned = list(rows)
        ids = rows[place].ids.copy()
        ids[-1] = bad
        poisoned[place] = rows[place]._replace(ids=ids)
        found = program.run(poisoned)
        assert np.isnan(found[place]).all()
        assert np.array_equal(np.delete(found, place, 0), np.delete(expected, place, 0))
        assert np.array_equal(program.run(rows), expected), "what the last batch left is read"


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_network_keeps_a_label_that_is_no_number_to_itself(precision):
    card, weights = tiny("bert", precision=precision)
    arrays = changed(weights)
    arrays["classifier.weight"][1, 3] = np.nan
    rows = texts(card)
    found = native(card, file_bytes(arrays)).run(rows)
    assert np.isnan(found[:, 1]).all()
    assert np.array_equal(found[:, ::2], native(card, weights).run(rows)[:, ::2])


def test_network_of_huge_scores_equals_torch_s():
    """Rounding such a product is more than all that the powers of its differences tell."""
    card, weights = tiny("bert")
    name = "bert.encoder.layer.0.attention.self.query.weight"
    arrays = changed(weights)
    sharp = file_bytes({**arrays, name: arrays[name] * np.float32(1e12)})
    rows = texts(card)
    check_near(native(card, sharp).run(rows), torchs(card, sharp).run(rows), "fp32")
