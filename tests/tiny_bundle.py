"""A whole bundle of a random tiny BERT, written in milliseconds: what tests of bundles break."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from loader.manifest import MANIFEST, manifest_bytes
from loader.safetensors import file_bytes, float32_array, open_image
from model.families.table import reference
from tests.tiny_bert import CONFIG, make_model, make_rows
from tests.tiny_checkpoint import VOCAB, WORDS
from tools.building.quantise import quantise
from tools.building.source import read_source
from tools.building.writing import write_bundle

SIZES = {**CONFIG, "vocab_size": VOCAB, "max_position_embeddings": 32}
PASSED = {"passed": True, "tolerance": 0.5}
FAILED = {"passed": False, "tolerance": 0.5}


def write_checkpoint(folder: Path, seed: int = 1, dtype: type = np.float32,
                     **config: object) -> tuple[Path, bytes]:
    """The folder of a BERT with a real vocabulary, and the image of its weights."""
    folder.mkdir(parents=True)
    _, weights = make_model(2, seed, dtype, **{**SIZES, **config})
    (folder / "config.json").write_text(json.dumps(
        {**SIZES, **config, "architectures": ["BertForSequenceClassification"],
         "model_type": "bert", "id2label": {"0": "bad", "1": "good"}}))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "model.safetensors").write_bytes(weights)
    return folder, weights


def products(weights: bytes) -> list[str]:
    """The names of the encoder's products."""
    return [name.removesuffix(".weight") for name, tensor in open_image(weights).items()
            if ".encoder." in name and len(tensor.shape) == 2]


def quantised_arrays(weights: bytes, names: Sequence[str], bits: int = 7) -> dict[str, np.ndarray]:
    """What int8.safetensors holds of these products."""
    tensors, arrays = open_image(weights), {}
    for name in names:
        arrays[f"{name}.weight"], arrays[f"{name}.scales"] = quantise(
            float32_array(weights, tensors[f"{name}.weight"]), bits)
    return arrays


def write_tiny_bundle(folder: Path, wide: Sequence[str] = (),
                      precisions: dict[str, Any] | None = None) -> Path:
    """A bundle named "tiny" beside its checkpoint; the products `wide` stay wide."""
    checkpoint, weights = write_checkpoint(folder.with_name(folder.name + "-source"))
    card, _ = make_model(2, **SIZES)
    kinds = {name: "fp32" if name in wide else "int8" for name in products(weights)}
    rows = make_rows(card, [3, 9, 30])
    goldens = [{"ids": row.ids.tolist(), "split": row.split, "logits": logits.tolist()}
               for row, logits in zip(rows, reference(card, weights, rows))]
    write_bundle(folder, read_source(str(checkpoint)), weights,
                 quantised_arrays(weights, [name for name in kinds if kinds[name] == "int8"]),
                 {"name": "tiny", "labels": ["bad", "good"], "bits": 7, "layers": kinds,
                  "precisions": precisions or {"fp32": PASSED, "fp16": FAILED, "int8": PASSED},
                  "goldens": goldens})
    return folder


def change_manifest(folder: Path, **facts: object) -> None:
    """Other facts, and the manifest whole again; a value of ... removes the key."""
    manifest = {**json.loads((folder / MANIFEST).read_text()), **facts}
    (folder / MANIFEST).write_bytes(manifest_bytes(
        {key: value for key, value in manifest.items() if value is not ...}))


def replace_file(folder: Path, name: str, data: bytes) -> None:
    """Another file, and its hash in the manifest."""
    (folder / name).write_bytes(data)
    files = json.loads((folder / MANIFEST).read_text())["files"]
    change_manifest(folder, files={**files, name: hashlib.sha256(data).hexdigest()})


def arrays_of(data: bytes) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file in their own types."""
    from loader.safetensors import stored_array
    return {name: stored_array(data, tensor) for name, tensor in open_image(data).items()}


def image_of(arrays: dict[str, np.ndarray]) -> bytes:
    """The safetensors file of them."""
    return file_bytes(arrays)
