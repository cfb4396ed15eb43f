"""A sound, tiny BERT checkpoint and the family that reads it: what loader tests break."""

import json
from pathlib import Path

import numpy as np

from loader.config import real, whole
from loader.errors import CheckpointError
from loader.safetensors import file_bytes

HIDDEN, VOCAB, POSITIONS, INNER = 8, 40, 32, 16
WORDS = (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + list("abcdefghijklmnopqrstuvwxyz")
         + ["##a", "##e", "##s", "the", "free", "good", "bad", ".", "!"])
CONFIG = {"architectures": ["BertForSequenceClassification"], "model_type": "bert",
          "vocab_size": VOCAB, "hidden_size": HIDDEN, "num_hidden_layers": 1,
          "num_attention_heads": 2, "intermediate_size": INNER, "hidden_act": "gelu",
          "max_position_embeddings": POSITIONS, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
          "id2label": {"0": "bad", "1": "good"}}


class TinyFamily:
    """A FamilySpec of BERT's naming with one tensor of each kind: it has no layers."""

    name = "bert"
    model_types = ("bert",)
    architectures = ("BertForSequenceClassification",)
    prefix = "bert."
    needs_weights = True

    def settings(self, config: dict) -> dict:
        sizes = {key: whole(config, key, 1, 1 << 20) for key in (
            "vocab_size", "hidden_size", "max_position_embeddings", "type_vocab_size")}
        if sizes["hidden_size"] % whole(config, "num_attention_heads", 1, 1 << 20):
            raise CheckpointError("config.json: hidden_size is no multiple of the heads.")
        return {**sizes, "layer_norm_eps": real(config, "layer_norm_eps", 0.0, 1.0, 1e-12)}

    def tensors(self, settings: dict, labels: int) -> dict:
        hidden = settings["hidden_size"]
        table = "bert.embeddings."
        return {table + "word_embeddings.weight": (settings["vocab_size"], hidden),
                table + "position_embeddings.weight":
                    (settings["max_position_embeddings"], hidden),
                table + "LayerNorm.weight": (hidden,), table + "LayerNorm.bias": (hidden,),
                "bert.pooler.dense.weight": (hidden, hidden),
                "classifier.weight": (labels, hidden), "classifier.bias": (labels,)}

    def positions(self, settings: dict) -> int:
        return settings["max_position_embeddings"]

    def pair_types(self, settings: dict) -> int:
        return settings["type_vocab_size"]


class WeightlessFamily(TinyFamily):
    """The same without tensors, as the echo model is."""

    name, model_types, needs_weights = "echo", ("echo",), False


FAMILIES = {"bert": TinyFamily(), "echo": WeightlessFamily()}


def tiny_weights(seed: int = 7) -> dict[str, np.ndarray]:
    """name → float32 array of every tensor that TinyFamily wants."""
    rng = np.random.default_rng(seed)
    shapes = TinyFamily().tensors({**CONFIG}, 2)
    return {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def write_checkpoint(folder: Path, weights: dict[str, np.ndarray] | None = None,
                     **config: object) -> Path:
    """Writes the checkpoint with changed config keys; a value of ... removes the key."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = {key: value for key, value in {**CONFIG, **config}.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(keys))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "model.safetensors").write_bytes(file_bytes(weights or tiny_weights()))
    return folder
