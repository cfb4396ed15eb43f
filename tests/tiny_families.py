"""Random checkpoints of every family, made from a seed: what model tests run without downloads."""

import numpy as np

from loader.safetensors import file_bytes
from model.families.table import FAMILIES
from model.program import Row
from tools.building.quantise import quantise

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 64, "vocab_size": 97, "max_position_embeddings": 64}
PADDED = {**SIZES, "max_position_embeddings": 66, "pad_token_id": 1}
RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "layer_norm_eps": 1e-7}
# By family: the plain configuration first, then its variants. CamemBERT and XLM-RoBERTa are of
# RoBERTa's class.
CONFIGS: dict[str, list[dict]] = {
    "distilbert": [
        {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "vocab_size": 97,
         "max_position_embeddings": 64},
        {"dim": 36, "n_layers": 1, "n_heads": 3, "hidden_dim": 37, "vocab_size": 97,
         "max_position_embeddings": 64, "activation": "relu"}],
    "electra": [{**SIZES, "embedding_size": 48}, {**SIZES, "embedding_size": 24},
                {**SIZES, "embedding_size": 32},
                {**SIZES, "embedding_size": 7, "hidden_size": 36, "num_attention_heads": 3,
                 "type_vocab_size": 1}],
    "roberta": [{**PADDED, "type_vocab_size": 1},
                {**PADDED, "type_vocab_size": 2, "pad_token_id": 5, "num_hidden_layers": 1,
                 "max_position_embeddings": 70, "hidden_act": "gelu_new"}],
    "mpnet": [PADDED, {**PADDED, "relative_attention_num_buckets": 40, "hidden_act": "silu",
                       "max_position_embeddings": 202, "hidden_size": 36,
                       "num_attention_heads": 3}],
    "albert": [
        {**SIZES, "embedding_size": 16, "num_hidden_layers": 3},
        {**SIZES, "embedding_size": 32, "hidden_size": 64, "num_hidden_layers": 5,
         "num_hidden_groups": 2},
        {**SIZES, "embedding_size": 8, "num_hidden_groups": 2, "inner_group_num": 2,
         "hidden_act": "relu"}],
    "deberta-v2": [
        {**SIZES, **RELATIVE, "share_att_key": True, "position_buckets": 16,
         "position_biased_input": False, "norm_rel_ebd": "layer_norm"},
        {**SIZES, **RELATIVE, "type_vocab_size": 2, "conv_kernel_size": 3, "conv_act": "gelu",
         "pooler_hidden_act": "tanh"},
        {**SIZES, **RELATIVE, "pos_att_type": "p2c", "max_relative_positions": 20,
         "conv_kernel_size": 5, "conv_groups": 4, "num_hidden_layers": 1, "type_vocab_size": 3},
        {**SIZES, **RELATIVE, "pos_att_type": "c2p", "share_att_key": True, "hidden_size": 36,
         "num_attention_heads": 3, "conv_kernel_size": 1},
        {**SIZES, "position_biased_input": False, "pos_att_type": ["p2c"]}],
    "modernbert": [
        {**SIZES, "num_hidden_layers": 4, "local_attention": 16},
        {**SIZES, "num_hidden_layers": 3, "local_attention": 7, "classifier_pooling": "mean",
         "max_position_embeddings": 400},
        {**SIZES, "num_hidden_layers": 2, "local_attention": 128, "intermediate_size": 37,
         "hidden_size": 36, "num_attention_heads": 3, "norm_bias": True, "attention_bias": True,
         "mlp_bias": True, "classifier_bias": True, "max_position_embeddings": 400,
         "classifier_activation": "silu", "hidden_activation": "gelu_pytorch_tanh"},
        {**SIZES, "num_hidden_layers": 1, "local_attention": 40,
         "layer_types": ["sliding_attention"]}]}


def make_tiny(name: str, config: dict, *, precision: str = "fp32", labels: int = 3, seed: int = 1,
              dtype: type = np.float32) -> tuple[dict, bytes]:
    """A card, as far as programs read it, and an image of weights that give lively logits; in
    "int8" every product of two dimensions but the head's is of 8-bit integers."""
    family = FAMILIES[name]
    settings = family.settings(config)
    rng = np.random.default_rng(seed)
    arrays = {}
    for tensor, shape in family.tensors(settings, labels).items():
        arrays |= _drawn(rng, tensor, shape, dtype, family.prefix if precision == "int8" else None)
    card = {"family": name, "labels": [f"l{number}" for number in range(labels)],
            "settings": settings, "max_tokens": family.positions(settings),
            "vocab_size": settings["vocab"], "id_bytes": 2, "precision": precision,
            "pair_types": family.pair_types(settings)}
    return card, file_bytes(arrays)


def make_rows(card: dict, sizes: list[int], seed: int = 2) -> list[Row]:
    """A text of random ids for each size; every third is a pair where the model takes pairs."""
    rng = np.random.default_rng(seed)
    return [Row(rng.integers(0, card["vocab_size"], size),
                size // 2 if card["pair_types"] > 1 and number % 3 == 2 else size)
            for number, size in enumerate(sizes)]


def _drawn(rng: np.random.Generator, name: str, shape: tuple[int, ...], dtype: type,
           quantised_prefix: str | None) -> dict[str, np.ndarray]:
    is_product = len(shape) > 1 and "embeddings" not in name.replace("embeddings_project", "") \
        and "relative" not in name
    values = rng.normal(0.0, 1.5 / np.prod(shape[1:]) ** 0.5 if is_product else 0.5, shape)
    if "norm" in name.lower() and name.endswith("weight"):
        values = 1 + 0.2 * values
    if quantised_prefix and is_product and len(shape) == 2 and name.startswith(quantised_prefix) \
            and "pooler" not in name:
        values, scales = quantise(values.astype(np.float32), 8)
        return {name: values, name.removesuffix("weight") + "scales": scales}
    return {name: values.astype(dtype)}
