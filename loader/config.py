"""config.json: which family, which labels, which score function, and strictly typed numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

from loader.errors import CheckpointError, shown
from loader.family import FamilySpec

FILE = "config.json"
LABEL_LIMIT = 10_000       # one answer's logits must fit one message between processes
LABEL_CHARS = 1000
REQUIRED = object()

# Never imported, only known: what sentence-transformers stores for its cross-encoders.
ACTIVATIONS = {"torch.nn.modules.linear.Identity": "none", "torch.nn.Identity": "none",
               "torch.nn.modules.activation.Sigmoid": "sigmoid", "torch.nn.Sigmoid": "sigmoid"}


def whole(config: Mapping[str, Any], key: str, low: int, high: int,
          default: Any = REQUIRED) -> int:
    """config[key] as an integer in [low, high]; `default` where the key is missing.

    true, 8.0, "8" and null are no integers. Raises CheckpointError.
    """
    value = _value(config, key, default)
    if value is default:
        return value
    if type(value) is not int:
        raise CheckpointError(f"{FILE}: {key} is {shown(value)}, not a whole number; correct it.")
    if not low <= value <= high:
        raise CheckpointError(f"{FILE}: {key} is {shown(value)}, it must be from {low} to {high}.")
    return value


def real(config: Mapping[str, Any], key: str, low: float, high: float,
         default: Any = REQUIRED) -> float:
    """config[key] as a finite number in [low, high]; `default` where the key is missing."""
    value = _value(config, key, default)
    if value is default:
        return value
    if type(value) not in (int, float) or not math.isfinite(value):
        raise CheckpointError(f"{FILE}: {key} is {shown(value)}, not a finite number; correct it.")
    if not low <= value <= high:
        raise CheckpointError(f"{FILE}: {key} is {shown(value)}, it must be from {low} to {high}.")
    return float(value)


def word(config: Mapping[str, Any], key: str, allowed: Collection[str],
         default: Any = REQUIRED) -> str:
    """config[key] as one of the allowed words; `default` where the key is missing."""
    value = _value(config, key, default)
    if value is default:
        return value
    if not isinstance(value, str) or value not in allowed:
        raise CheckpointError(f"{FILE}: {key} {shown(value)} is not supported; "
                              f"supported: {', '.join(sorted(allowed))}.")
    return value


def flag(config: Mapping[str, Any], key: str, default: Any = REQUIRED) -> bool:
    """config[key] as true or false; `default` where the key is missing."""
    value = _value(config, key, default)
    if value is not default and not isinstance(value, bool):
        raise CheckpointError(f"{FILE}: {key} is {shown(value)}, not true or false; correct it.")
    return value


def choose_family(config: Mapping[str, Any], families: Mapping[str, FamilySpec]) -> FamilySpec:
    """The family that a configuration asks for; CheckpointError names what is not served."""
    model_type = config.get("model_type")
    if "model_type" not in config:
        raise CheckpointError(f"{FILE}: model_type is missing; this is no transformers checkpoint "
                              "or a very old one: add \"model_type\".")
    if not isinstance(model_type, str):
        raise CheckpointError(f"{FILE}: model_type is {shown(model_type)}, not a text; correct it.")
    if config.get("auto_map"):
        raise CheckpointError(f"{FILE}: model_type {shown(model_type)} with auto_map needs code "
                              "from the folder, which is never run; use a checkpoint without it.")
    family = next((f for f in families.values() if model_type in f.model_types), None)
    if family is None:
        served = sorted(name for f in families.values() for name in f.model_types)
        raise CheckpointError(f"{FILE}: model_type {shown(model_type)} is not supported; "
                              f"supported: {', '.join(served)}.")
    _check_architectures(config, family)
    if config.get("quantization_config") is not None:
        raise CheckpointError(f"{FILE} has a quantization_config: quantised weights are not "
                              "supported; use the checkpoint that they were made from.")
    word(config, "position_embedding_type", ("absolute",), "absolute")
    if flag(config, "is_decoder", False):
        raise CheckpointError(f"{FILE}: is_decoder is true; a decoder is not supported, "
                              "only encoders are.")
    return family


def read_labels(config: Mapping[str, Any]) -> list[str]:
    """The names of the outputs in order; a name that stands twice gets `#index` appended.

    id2label decides, sorted by number; without it num_labels (else 2) names LABEL_0, LABEL_1, …
    label2id is not read, as the reference does not read it either.
    """
    count = whole(config, "num_labels", 1, LABEL_LIMIT, None)
    table = config.get("id2label")
    if table is None:
        return [f"LABEL_{index}" for index in range(2 if count is None else count)]
    if not isinstance(table, dict) or not 1 <= len(table) <= LABEL_LIMIT:
        raise CheckpointError(f"{FILE}: id2label is {shown(table)}; it must be an object of "
                              f"1 to {LABEL_LIMIT} labels.")
    if count is not None and count != len(table):
        raise CheckpointError(f"{FILE}: num_labels is {count}, but id2label has {len(table)} "
                              "labels; remove the one that is wrong.")
    names: dict[int, str] = {}
    for key, label in table.items():
        if not re.fullmatch(r"0|[1-9][0-9]{0,5}", key):
            raise CheckpointError(f"{FILE}: the id2label key {shown(key)} is no number; "
                                  "keys count from \"0\".")
        names[int(key)] = _label(label)
    if sorted(names) != list(range(len(table))):
        raise CheckpointError(f"{FILE}: the id2label keys are not the numbers from 0 to "
                              f"{len(table) - 1}; correct them.")
    return _distinct([names[index] for index in range(len(names))])


def score_function(config: Mapping[str, Any], labels: int) -> str:
    """"softmax", "sigmoid" or "none" (raw logits), chosen in the reference's order.

    An activation that sentence-transformers stored for a cross-encoder's single output comes before
    all: the checkpoint's own training framework would apply it. Then problem_type, then the number
    of labels; those of several labels are scores of a choice, whatever was stored beside them.
    """
    stored = _stored_activation(config)
    if stored is not None and labels == 1:
        return stored
    kind = config.get("problem_type")
    if kind not in (None, "regression", "single_label_classification",
                    "multi_label_classification"):
        raise CheckpointError(f"{FILE}: problem_type {shown(kind)} is not known; it may be "
                              "regression, single_label_classification or "
                              "multi_label_classification.")
    if kind == "single_label_classification" and labels == 1:
        raise CheckpointError(f"{FILE}: problem_type is single_label_classification, but there is "
                              "one label only; correct it, or remove problem_type for a sigmoid.")
    if kind == "regression":
        return "none"
    return "sigmoid" if kind == "multi_label_classification" or labels == 1 else "softmax"


def _value(config: Mapping[str, Any], key: str, default: Any) -> Any:
    if key in config:
        return config[key]
    if default is REQUIRED:
        raise CheckpointError(f"{FILE}: {key} is missing; add it.")
    return default


def _check_architectures(config: Mapping[str, Any], family: FamilySpec) -> None:
    names = config.get("architectures")
    if names is None or names == []:  # old checkpoints: the tensors decide
        return
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise CheckpointError(f"{FILE}: architectures is {shown(names)}, not a list of names; "
                              "correct it.")
    if not set(names) & set(family.architectures):
        raise CheckpointError(f"{FILE}: architectures says {shown(names[0])[1:-1]}, not a sequence "
                              "classification model, so its head is missing or another one; "
                              f"supported: {', '.join(family.architectures)}.")


def _stored_activation(config: Mapping[str, Any]) -> str | None:
    table = config.get("sentence_transformers")
    if table is not None and not isinstance(table, dict):
        raise CheckpointError(f"{FILE}: sentence_transformers is {shown(table)}, not an object.")
    key, name = "sentence_transformers.activation_fn", (table or {}).get("activation_fn")
    if name is None:
        key = "sbert_ce_default_activation_function"
        name = config.get(key)
    if name is None:
        return None
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise CheckpointError(f"{FILE}: {key} {shown(name)} is not supported (it is never "
                              f"imported); supported: {', '.join(ACTIVATIONS)}.")
    return ACTIVATIONS[name]


def _label(label: Any) -> str:
    if type(label) is int and not abs(label) >> 64:
        label = str(label)
    if not isinstance(label, str) or len(label) > LABEL_CHARS:
        raise CheckpointError(f"{FILE}: the id2label label {shown(label)} is not a text of at most "
                              f"{LABEL_CHARS} characters; correct it.")
    try:
        label.encode("utf-8")
    except UnicodeEncodeError:
        raise CheckpointError(f"{FILE}: the id2label label {shown(label)} holds half of a "
                              "surrogate pair; correct it.") from None
    return label


def _distinct(names: list[str]) -> list[str]:
    """["a", "b", "a"] → ["a#0", "b", "a#2"]; again while an appended name meets another."""
    while len(set(names)) != len(names):
        counts: dict[str, int] = {}
        for name in names:
            counts[name] = counts.get(name, 0) + 1
        names = [f"{name}#{index}" if counts[name] > 1 else name
                 for index, name in enumerate(names)]
    return names
