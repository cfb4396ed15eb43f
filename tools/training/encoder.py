"""The sizes of a network to train, and where it may start: a BERT encoder's checkpoint folder."""

import os
from typing import NamedTuple

import numpy as np

from loader.checkpoint import Folder
from loader.config import flag, word
from loader.errors import CheckpointError
from loader.stored import read_float32
from loader.strict_json import read_object
from loader.weights import match_tensors, open_weights
from model.families.bert import BertFamily
from tools.training.tokens import Tokens, of_checkpoint

CONFIG_BYTES = 16 << 20


class Encoder(NamedTuple):
    """`config` by config.json's names; `parameters` float32 by canonical name, without the
    classifier, and without the pooler where the checkpoint has none."""

    config: dict
    parameters: dict[str, np.ndarray]
    tokens: Tokens


def new_config(vocab_size: int, layers: int, width: int, heads: int, positions: int,
               dropout: float, pad: int = 0) -> dict:
    """The sizes of a new network, by config.json's names; `pad` is the id of [PAD]."""
    return {"vocab_size": vocab_size, "hidden_size": width, "num_hidden_layers": layers,
            "num_attention_heads": heads, "intermediate_size": 4 * width, "hidden_act": "gelu",
            "max_position_embeddings": positions, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
            "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout,
            "classifier_dropout": dropout, "initializer_range": 0.02, "pad_token_id": pad}


def read_encoder(path: str, dropout: float) -> Encoder:
    """A BERT checkpoint to start from; the head that it may have is left out.

    Raises CheckpointError that begins with the folder.
    """
    if not os.path.isdir(path):
        raise CheckpointError(f"{path} is not a folder; --init takes a checkpoint's.")
    try:
        with Folder(path) as folder:
            config = read_object(folder.read("config.json", CONFIG_BYTES), "config.json")
            word(config, "model_type", ("bert",))
            word(config, "position_embedding_type", ("absolute",), "absolute")
            if flag(config, "is_decoder", False):
                raise CheckpointError("config.json: is_decoder is true; give an encoder.")
            family = BertFamily()
            settings = family.settings(config)
            usual = new_config(settings["vocab"], settings["layers"], settings["hidden_size"],
                               settings["heads"], settings["max_position_embeddings"], dropout)
            kept = {key: config[key] for key in ("hidden_act", "pad_token_id") if key in config}
            sizes = {**usual, **kept, "intermediate_size": settings["intermediate"],
                     "type_vocab_size": settings["type_vocab_size"],
                     "layer_norm_eps": settings["layer_norm_eps"]}
            tokens = of_checkpoint(folder, settings["max_position_embeddings"], settings["vocab"])
            return Encoder(sizes, _parameters(folder, family, settings), tokens)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None


def _parameters(folder: Folder, family: BertFamily, settings: dict) -> dict[str, np.ndarray]:
    wanted = {name: shape for name, shape in family.tensors(settings, 1).items()
              if not name.startswith("classifier.")}
    with open_weights(folder) as weights:
        if not any(name.removeprefix(family.prefix) == "pooler.dense.weight"
                   for name in weights.tensors):
            wanted = {name: shape for name, shape in wanted.items() if ".pooler." not in name}
        tensors = match_tensors(wanted, family.prefix, weights)
        return {name: read_float32(stored) for name, stored in tensors.items()}
