"""config.json: strict types, labels, the score function, and what is refused by name."""

import json

import pytest

from loader.config import (choose_family, flag, read_labels, real, score_function, whole, word)
from loader.errors import CheckpointError, shown
from loader.strict_json import read_object
from tests.tiny_checkpoint import CONFIG, FAMILIES


def refused(call, *arguments) -> str:
    with pytest.raises(CheckpointError) as caught:
        call(*arguments)
    message = str(caught.value)
    assert message.startswith("config.json") and "\n" not in message and message.isascii()
    return message


@pytest.mark.parametrize("value", [True, None, "8", 8.0, 8.5, [8], {"8": 8}, 0, -1, 65, 10**12,
                                   int("1" + "0" * 4000)])
def test_whole_anything_but_an_integer_in_range_is_refused(value):
    message = refused(whole, {"hidden_size": value}, "hidden_size", 1, 64)
    assert "hidden_size" in message and len(message) < 200


def test_whole_missing_key_gives_the_default_or_is_refused():
    assert whole({}, "n", 1, 9, 2) == 2
    assert whole({"n": 9}, "n", 1, 9) == 9
    assert "n is missing" in refused(whole, {}, "n", 1, 9)


@pytest.mark.parametrize("value", [True, None, "small", float("nan"), float("inf"), -1.0, 2])
def test_real_anything_but_a_finite_number_in_range_is_refused(value):
    assert "layer_norm_eps" in refused(real, {"layer_norm_eps": value}, "layer_norm_eps", 0, 1)


def test_real_word_flag_good_values_are_given():
    assert real({"e": 1}, "e", 0, 1) == 1.0 and isinstance(real({"e": 1}, "e", 0, 1), float)
    assert word({"w": "gelu"}, "w", ("gelu", "relu")) == "gelu"
    assert word({}, "w", ("gelu",), "gelu") == "gelu"
    assert flag({"f": True}, "f") is True and flag({}, "f", False) is False
    assert "'warp' is not supported; supported: gelu, relu" in \
        refused(word, {"w": "warp"}, "w", ("relu", "gelu"))
    assert "not true or false" in refused(flag, {"f": 1}, "f")


@pytest.mark.parametrize(("change", "words"), [
    ({"model_type": 5}, "model_type is 5"),
    ({"model_type": "hal9000"}, "model_type 'hal9000' is not supported; supported: bert, echo"),
    ({"model_type": "my_bert", "auto_map": {"AutoConfig": "m.C"}}, "'my_bert' with auto_map"),
    ({"architectures": ["BertForQuestionAnswering"]}, "BertForQuestionAnswering"),
    ({"architectures": "BertForSequenceClassification"}, "not a list"),
    ({"architectures": [7]}, "not a list"),
    ({"quantization_config": {"load_in_8bit": True}}, "quantised"),
    ({"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key'"),
    ({"is_decoder": True}, "is_decoder"),
])
def test_choose_family_what_is_not_served_is_refused_by_name(change, words):
    assert words in refused(choose_family, {**CONFIG, **change}, FAMILIES)


def test_choose_family_missing_model_type_is_refused():
    assert "model_type is missing" in refused(choose_family, {}, FAMILIES)


@pytest.mark.parametrize("change", [
    {}, {"architectures": None}, {"architectures": []}, {"auto_map": None}, {"auto_map": {}},
    {"position_embedding_type": "absolute"}, {"quantization_config": None},
    {"architectures": ["X", "BertForSequenceClassification"]}])
def test_choose_family_sound_config_gives_the_family(change):
    assert choose_family({**CONFIG, **change}, FAMILIES) is FAMILIES["bert"]


@pytest.mark.parametrize(("config", "labels"), [
    ({}, ["LABEL_0", "LABEL_1"]),
    ({"num_labels": 3}, ["LABEL_0", "LABEL_1", "LABEL_2"]),
    ({"label2id": {"a": 0, "b": 1}}, ["LABEL_0", "LABEL_1"]),
    ({"id2label": {"10": "k", "2": "c", "0": "a", "11": "l", **{
        str(i): str(i) for i in (1, 3, 4, 5, 6, 7, 8, 9)}}},
     ["a", "1", "c", "3", "4", "5", "6", "7", "8", "9", "k", "l"]),
    ({"id2label": {"0": "x"}, "num_labels": 1}, ["x"]),
    ({"id2label": {"0": 0, "1": 1}}, ["0", "1"]),
    ({"id2label": {"0": "", "1": "否"}}, ["", "否"]),
    ({"id2label": {"0": "s", "1": "s", "2": "t"}}, ["s#0", "s#1", "t"]),
    ({"id2label": {"0": "s", "1": "s", "2": "s#0"}}, ["s#0#0", "s#1", "s#0#2"]),
])
def test_read_labels_each_form_gives_names_in_order(config, labels):
    assert read_labels(config) == labels


@pytest.mark.parametrize("config", [
    {"id2label": {}}, {"id2label": ["a", "b"]}, {"id2label": {"0": "a", "2": "b"}},
    {"id2label": {"a": "0"}}, {"id2label": {"-1": "a"}}, {"id2label": {"0": None}},
    {"id2label": {"00": "a"}}, {"id2label": {"0": 1.5}}, {"id2label": {"0": True}},
    {"id2label": {"0": "\ud800"}}, {"id2label": {"0": "a" * 1001}}, {"id2label": {"0": 10**40}},
    {"id2label": {"0": "a", "1": "b"}, "num_labels": 5}, {"num_labels": 0}, {"num_labels": "2"},
    {"num_labels": 10**9}, {"id2label": {"٣": "a"}}])
def test_read_labels_unclear_labels_are_refused(config):
    assert "label" in refused(read_labels, config)


OLD, NEW = "sbert_ce_default_activation_function", "sentence_transformers"
IDENTITY = "torch.nn.modules.linear.Identity"
SIGMOID = "torch.nn.modules.activation.Sigmoid"


@pytest.mark.parametrize(("config", "labels", "function"), [
    ({}, 2, "softmax"), ({}, 1, "sigmoid"), ({"problem_type": None}, 3, "softmax"),
    ({"problem_type": "regression"}, 1, "none"), ({"problem_type": "regression"}, 3, "none"),
    ({"problem_type": "multi_label_classification"}, 5, "sigmoid"),
    ({"problem_type": "single_label_classification"}, 2, "softmax"),
    ({OLD: IDENTITY}, 1, "none"), ({OLD: SIGMOID}, 1, "sigmoid"),
    ({NEW: {"activation_fn": IDENTITY, "version": "4.0.1"}}, 1, "none"),
    ({NEW: {"activation_fn": SIGMOID}}, 3, "softmax"), ({NEW: {"version": "5.0"}}, 3, "softmax"),
    ({NEW: {"activation_fn": SIGMOID}, OLD: IDENTITY}, 1, "sigmoid"),
    ({NEW: {"activation_fn": IDENTITY}, "problem_type": "multi_label_classification"}, 2,
     "sigmoid"),
])
def test_score_function_follows_the_reference(config, labels, function):
    assert score_function(config, labels) == function


@pytest.mark.parametrize(("config", "labels"), [
    ({"problem_type": "dream"}, 2), ({"problem_type": 3}, 2), ({"problem_type": ["a"]}, 2),
    ({"problem_type": "single_label_classification"}, 1),
    ({OLD: "os.system"}, 1), ({OLD: 7}, 1), ({NEW: "x"}, 1),
    ({NEW: {"activation_fn": "torch.nn.Tanh"}}, 1)])
def test_score_function_unknown_words_are_refused(config, labels):
    refused(score_function, config, labels)


@pytest.mark.parametrize(("data", "words"), [
    (b"", "empty"), (b" \n", "empty"), (b"[]", "a list"), (b"null", "null"), (b"3", "a number"),
    (b'"a"', "a text"), (b"true", "true or false"), (b'{"a": 1,', "not JSON"),
    (b'\xef\xbb\xbf{}', "byte order mark"), (b'{"a": "\xff"}', "not UTF-8"),
    (b'{"a": {"b": 1, "b": 2}}', "'b' twice"), (b'{"a": NaN}', "NaN"),
    (b'{"a": -Infinity}', "-Infinity"), (b'{"a": 1' + b"0" * 5000 + b"}", "digits"),
    (b'{"a":' * 70 + b"1" + b"}" * 70, "nested"), (b"[" * 100000 + b"]" * 100000, "nested"),
    (b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"}", "nested")])
def test_read_object_what_is_no_clear_object_is_refused(data, words):
    assert words in refused(read_object, data, "config.json")


def test_read_object_sound_file_is_read():
    assert read_object(json.dumps(CONFIG).encode(), "config.json") == CONFIG
    assert read_object(b'{"a": 1e400}', "config.json") == {"a": float("inf")}
    assert read_object(b'{"a":' * 64 + b"1" + b"}" * 64, "config.json")


@pytest.mark.parametrize(("value", "text"), [
    (None, "null"), (True, "true"), (5, "5"), ("é\n", "'\\xe9\\n'"), ([1], "a list of 1"),
    ({}, "an object of 0"), (10**50, "a number of more than 38 digits"),
    ("x" * 1000, "'" + "x" * 56 + "...")])
def test_shown_values_are_short_ascii(value, text):
    assert shown(value) == text
