"""A checkpoint of BERT-base's shape with random weights, for speed alone."""

from __future__ import annotations

import json
from pathlib import Path

from loader.safetensors import file_bytes
from model.families.random_weights import random_weights
from model.families.table import FAMILIES

SIZES = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
         "intermediate_size": 3072, "vocab_size": 30522, "max_position_embeddings": 512,
         "type_vocab_size": 2}
LABELS = 6


def write_base(folder: Path, seed: int = 0) -> Path:
    """Writes 440 MB into `folder`, which must not be there yet; the same bytes for a seed."""
    folder.mkdir(parents=True)
    config = {"architectures": ["BertForSequenceClassification"], "model_type": "bert",
              "hidden_act": "gelu", "layer_norm_eps": 1e-12, "pad_token_id": 0,
              "id2label": {str(label): f"label {label}" for label in range(LABELS)},
              "label2id": {f"label {label}": label for label in range(LABELS)}, **SIZES}
    (folder / "config.json").write_text(json.dumps(config))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words += [f"w{number}" for number in range(SIZES["vocab_size"] - len(words))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    family = FAMILIES["bert"]
    tensors = random_weights(family, family.settings(config), LABELS, seed)
    (folder / "model.safetensors").write_bytes(file_bytes(tensors))
    return folder
