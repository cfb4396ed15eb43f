"""Golden cases for model tests: a checkpoint without its tokenizer, and rows of known ids."""

import json
import os
from pathlib import Path

import numpy as np

from loader.prepare import map_file, prepare
from model.families.table import FAMILIES
from model.program import Row

TOLERANCE, TOLERANCE_16_BITS = 5e-5, 2e-4
TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def served_folders(shared: Path) -> dict[str, list[Path]]:
    """The folders of the manifest that are to be served, by family; BERT's are left out: they are
    read with their own tokenizers."""
    folders: dict[str, list[Path]] = {name: [] for name in FAMILIES if name not in ("bert", "echo")}
    for row in json.loads((shared / "checkpoints" / "MANIFEST.json").read_text())["folders"]:
        if row["expected"] == "serve" and row["family"] in folders:
            folders[row["family"]].append(shared / "checkpoints" / row["folder"])
    return folders


def load(folder: Path, scratch: Path) -> tuple[dict, memoryview]:
    """(card, mapped weights) of a checkpoint, as the loader makes them of a copy of the folder
    that has a tiny tokenizer in place of its own: ids come from the goldens."""
    copy = scratch / folder.name
    copy.mkdir()
    for name in ("config.json", "model.safetensors"):
        (copy / name).symlink_to(folder / name)
    (copy / "vocab.txt").write_text("\n".join(TOKENS))
    (copy / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    prepared = prepare(str(copy), folder.name, FAMILIES)
    try:
        return prepared.card, map_file(prepared.weights_fd)
    finally:
        os.close(prepared.weights_fd)


def golden_cases(folder: Path) -> tuple[list[Row], np.ndarray]:
    """(rows, logits float32 [B, C]) of a checkpoint's golden.json."""
    cases = json.loads((folder / "golden.json").read_text())["entries"]
    rows = [Row(np.array(case["input_ids"]),
                len(case["input_ids"]) - sum(case.get("token_type_ids", ()))) for case in cases]
    return rows, np.array([case["logits"] for case in cases], dtype=np.float32)


def tolerance_of(weights: memoryview) -> float:
    """5e-5, or 2e-4 where weights are stored in 16 bits."""
    head = bytes(weights[:1 << 16])
    return TOLERANCE_16_BITS if b'"F16"' in head or b'"BF16"' in head else TOLERANCE
