"""A checkpoint folder as an ONNX graph, through transformers' own model and torch's exporter."""

from __future__ import annotations

import importlib
import os
import warnings
from pathlib import Path

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OPSET = 17


def export(folder: str, cache: str) -> Path:
    """Where the graph of `folder` lies below `cache`; made at the first call, no network needed."""
    path = Path(cache) / "model.onnx"
    if path.is_file():
        return path
    # Loaded by name: they are no dependencies of ours, and only a peer's process has them.
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch = importlib.import_module("torch")
    transformers = importlib.import_module("transformers")
    # The plain attention: what the exporter makes of it is what optimisers recognise.
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, attn_implementation="eager").eval()
    ids = torch.randint(5, 90, (2, 16))
    making = path.with_suffix(".tmp")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (ids, torch.ones_like(ids), torch.zeros_like(ids)), str(making),
                          input_names=list(INPUTS), output_names=["logits"], opset_version=OPSET,
                          dynamic_axes={name: {0: "texts", 1: "tokens"} for name in INPUTS},
                          dynamo=False)
    making.rename(path)
    return path
