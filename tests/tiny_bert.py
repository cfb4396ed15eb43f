"""Random BERT checkpoints of any size, made from a seed: what model tests run without downloads."""

import numpy as np

from loader.safetensors import file_bytes, float32_array, open_image
from model.families.bert import BertFamily
from model.program import Row
from tools.building.quantise import quantise

CONFIG = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
          "intermediate_size": 64, "vocab_size": 97, "max_position_embeddings": 64,
          "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu"}


def make_model(labels: int = 3, seed: int = 1, dtype: type = np.float32,
               **config: object) -> tuple[dict, bytes]:
    """A card, as far as programs read it, and the image of weights that give lively logits."""
    family = BertFamily()
    settings = family.settings({**CONFIG, **config})
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in family.tensors(settings, labels).items():
        scale = 1.5 / shape[-1] ** 0.5 if len(shape) == 2 and "embeddings" not in name else 0.5
        values = rng.normal(0.0, scale, shape)
        if name.endswith("LayerNorm.weight"):
            values = 1 + 0.2 * values
        weights[name] = values.astype(dtype)
    card = {"family": "bert", "labels": [f"l{number}" for number in range(labels)],
            "settings": settings, "max_tokens": family.positions(settings), "id_bytes": 2,
            "vocab_size": settings["vocab"], "precision": "fp32"}
    return card, file_bytes(weights)


def quantised_image(weights: bytes, bits: int) -> bytes:
    """The same image with every weight of the encoder's products in 8-bit integers."""
    arrays = {}
    for name, tensor in open_image(weights).items():
        array = float32_array(weights, tensor)
        if ".encoder." in name and name.endswith("weight") and "LayerNorm" not in name:
            values, scales = quantise(array, bits)
            arrays[name] = values
            arrays[name.removesuffix("weight") + "scales"] = scales
        else:
            arrays[name] = array
    return file_bytes(arrays)


def make_rows(card: dict, sizes: list[int], seed: int = 2) -> list[Row]:
    """A text of random ids for each size; every third is a pair where the model takes pairs."""
    rng = np.random.default_rng(seed)
    pairs = card["settings"]["type_vocab_size"] > 1
    return [Row(rng.integers(0, card["settings"]["vocab"], size),
                size // 2 if pairs and number % 3 == 2 else size)
            for number, size in enumerate(sizes)]
