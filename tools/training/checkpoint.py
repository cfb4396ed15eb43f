"""The folder of a trained model in Hugging Face layout: where it may be written, and writing it."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from loader.safetensors import file_bytes
from tools.training.texts import TrainingError

# What a checkpoint that we replace may consist of: --force never removes anything else.
OURS = {"config.json", "model.safetensors", "vocab.txt", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json", "README.md"}


def check_place(folder: Path, force: bool) -> None:
    """Raises TrainingError where `write` could not or should not write; before hours of training.

    A folder that is not empty needs `force`, and may hold the files of a checkpoint only.
    """
    try:
        if folder.is_symlink() or folder.exists() and not folder.is_dir():
            raise TrainingError(f"{folder} is not a folder; choose another place")
        there = sorted(os.listdir(folder)) if folder.exists() else []
        if there and not force:
            raise TrainingError(f"{folder} exists and is not empty; choose another folder, or add "
                                "--force to replace the checkpoint in it")
        strange = next((name for name in there if name not in OURS), None)
        if strange is not None:
            raise TrainingError(f"{folder} holds {strange}, which is no part of a checkpoint; "
                                "choose another folder, or move it away")
        parent = folder.absolute().parent
        parent.mkdir(parents=True, exist_ok=True)
        if not os.access(parent, os.W_OK | os.X_OK):
            raise TrainingError(f"{parent} may not be written; choose another place")
    except OSError as error:
        raise TrainingError(f"{folder}: {error.strerror}; choose another place") from None


def write(folder: Path, config: Mapping[str, object], names: list[str],
          parameters: Mapping[str, np.ndarray], others: Mapping[str, bytes]) -> None:
    """Writes the whole folder beside its place and then renames it, so that no half of one is
    ever there. `parameters` are float32 by Hugging Face name; `others` are further files.

    Raises TrainingError.
    """
    labels = dict(enumerate(names))
    whole = {"architectures": ["BertForSequenceClassification"], "model_type": "bert", **config,
             "id2label": labels, "label2id": {name: index for index, name in labels.items()},
             "problem_type": "single_label_classification", "dtype": "float32"}
    files = {"config.json": (json.dumps(whole, ensure_ascii=False, indent=1) + "\n").encode(),
             "model.safetensors": file_bytes(parameters), **others}
    place = folder.absolute()
    fresh, old = (place.with_name(f".{place.name}.{word}-{os.getpid()}") for word in ("new", "old"))
    try:
        fresh.mkdir()
        for name, data in files.items():
            (fresh / name).write_bytes(data)
        check_place(folder, force=True)  # minutes have passed
        if place.exists():
            place.rename(old)
        fresh.rename(place)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise TrainingError(f"{folder}: {error.strerror}; nothing was written") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
