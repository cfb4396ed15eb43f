"""What each family takes from config.json, and what it asks of the tensors."""

import json

import numpy as np
import pytest

from loader.errors import CheckpointError
from model.families.albert import layers
from model.families.deberta_v2 import relative_rows
from model.families.modernbert import GLOBAL, LOCAL
from model.families.mpnet import buckets
from model.families.table import FAMILIES
from tests.family_goldens import served_folders


@pytest.mark.parametrize("name, count", [
    # As base models have, by the sizes that transformers gives a bare configuration.
    ("distilbert", 104), ("electra", 203), ("roberta", 201), ("mpnet", 201),
    ("albert", 27), ("modernbert", 138)])
def test_family_of_a_bare_config_has_the_reference_s_tensors(name, count):
    family = FAMILIES[name]
    assert len(family.tensors(family.settings({}), 2)) == count


@pytest.mark.parametrize("name, config", [
    ("distilbert", {"dim": 30, "n_heads": 4}), ("distilbert", {"activation": "mish"}),
    ("distilbert", {"n_layers": 0}), ("distilbert", {"hidden_dim": "64"}),
    ("electra", {"embedding_size": 0}), ("electra", {"type_vocab_size": 0}),
    ("electra", {"hidden_size": 30, "num_attention_heads": 4}),
    ("roberta", {"pad_token_id": -1}), ("camembert", {"pad_token_id": None}),
    ("xlm-roberta", {"max_position_embeddings": 2}),
    ("mpnet", {"relative_attention_num_buckets": 31}), ("mpnet", {"max_position_embeddings": 2}),
    ("albert", {"num_hidden_groups": 13}), ("albert", {"inner_group_num": 0}),
    ("albert", {"embedding_size": True}),
    ("deberta-v2", {"pos_att_type": "c2p|p2p"}), ("deberta-v2", {"pos_att_type": 1}),
    ("deberta-v2", {"pos_att_type": [["c2p"]]}), ("deberta-v2", {"norm_rel_ebd": "batch_norm"}),
    ("deberta-v2", {"embedding_size": 128}), ("deberta-v2", {"pooler_hidden_size": 64}),
    ("deberta-v2", {"attention_head_size": 32}), ("deberta-v2", {"share_att_key": 1}),
    ("deberta-v2", {"conv_kernel_size": 2}), ("deberta-v2", {"conv_act": "softmax"}),
    ("deberta-v2", {"position_buckets": 1, "relative_attention": True}),
    ("deberta-v2", {"position_buckets": 256, "max_relative_positions": 128,
                    "relative_attention": True}),
    ("modernbert", {"hidden_size": 36, "num_attention_heads": 4}),
    ("modernbert", {"layer_types": ["full_attention"]}),
    ("modernbert", {"layer_types": [1] * 22}), ("modernbert", {"layer_types": "full_attention"}),
    ("modernbert", {"rope_scaling": {"type": "linear"}}), ("modernbert", {"rope_parameters": 1}),
    ("modernbert", {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}),
    ("modernbert", {"rope_parameters": {"sliding_attention": 10000}}),
    ("modernbert", {"global_rope_theta": 0}), ("modernbert", {"classifier_pooling": "max"}),
    ("modernbert", {"norm_bias": 0}), ("modernbert", {"global_attn_every_n_layers": 0})], ids=str)
def test_family_settings_out_of_range_are_refused_by_name(name, config):
    with pytest.raises(CheckpointError) as raised:
        FAMILIES[name].settings(config)
    text = str(raised.value)
    assert text.startswith("config.json: ")
    assert any(key in text for key in (*config, "rope_type", "rope_theta"))


def test_family_settings_of_every_checkpoint_are_json(shared):
    for name, folders in served_folders(shared).items():
        for folder in folders:
            config = json.loads((folder / "config.json").read_text())
            settings = FAMILIES[name].settings(config)
            assert json.loads(json.dumps(settings)) == settings


def test_family_positions_leave_out_what_padding_takes():
    for name, expected in (("roberta", 512), ("xlm-roberta", 512), ("mpnet", 512),
                           ("distilbert", 514), ("albert", 514)):
        family = FAMILIES[name]
        assert family.positions(family.settings({"max_position_embeddings": 514})) == expected
    family = FAMILIES["roberta"]
    settings = family.settings({"max_position_embeddings": 514, "pad_token_id": 5})
    assert family.positions(settings) == 508


def test_family_that_uses_no_types_takes_pairs():
    for name in ("roberta", "mpnet", "distilbert", "modernbert", "deberta-v2"):
        family = FAMILIES[name]
        assert family.pair_types(family.settings({"type_vocab_size": 0} if name == "deberta-v2"
                                                 else {})) == 2
    for name in ("electra", "albert", "deberta-v2"):
        family = FAMILIES[name]
        assert family.pair_types(family.settings({"type_vocab_size": 1})) == 1


def test_deberta_position_terms_as_list_and_as_text_are_the_same():
    family = FAMILIES["deberta-v2"]
    for value in (["p2c", "c2p"], "p2c|c2p", " C2P | P2C "):
        assert family.settings({"pos_att_type": value})["terms"] == ["c2p", "p2c"]
    assert family.settings({})["terms"] == []


def test_deberta_relative_rows_are_as_in_the_example():
    relative = {"span": 16, "buckets": 16, "distance": 96}
    distances = np.array([0, 8, 9, 95, -95, 1000])
    assert relative_rows(distances, relative).tolist() == [16, 24, 25, 31, 1, 31]
    plain = {"span": 4, "buckets": 0, "distance": 4}
    assert relative_rows(np.arange(-6, 7), plain).tolist() == [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 7, 7,
                                                              7]


def test_mpnet_buckets_are_as_in_the_example():
    assert buckets(np.array([-1, 0, 1, 8, 100])).tolist() == [1, 0, 17, 24, 31]
    assert buckets(np.array([-10000, -128, -127, 127, 16, -15])).tolist() == [15, 15, 15, 31, 26, 9]


def test_albert_layers_come_back_in_their_groups():
    parts = [names.query.split(".")[3:6:2] for names in
             layers({"layers": 5, "groups": 2, "inner_layers": 1})]
    assert parts == [["0", "0"], ["0", "0"], ["0", "0"], ["1", "0"], ["1", "0"]]
    assert len(layers({"layers": 3, "groups": 1, "inner_layers": 2})) == 6


def test_modernbert_kinds_of_attention_and_thetas_by_old_and_new_keys():
    family = FAMILIES["modernbert"]
    old = family.settings({"num_hidden_layers": 4, "global_attn_every_n_layers": 2,
                           "global_rope_theta": 5e3, "local_rope_theta": None})
    assert old["attention"] == [GLOBAL, LOCAL, GLOBAL, LOCAL]
    assert old["thetas"] == {GLOBAL: 5e3, LOCAL: 5e3}
    new = family.settings({"num_hidden_layers": 2, "layer_types": [LOCAL, GLOBAL],
                           "rope_parameters": {GLOBAL: {"rope_theta": 7.0}}})
    assert (new["attention"], new["thetas"]) == ([LOCAL, GLOBAL], {GLOBAL: 7.0, LOCAL: 10000.0})
