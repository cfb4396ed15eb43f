"""OpenVINO as a contender: fp32, bf16, and INT8 by NNCF with calibration on texts."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.calls import Call
from bench.peers.export import export
from bench.peers.padding import padded, stacked

CALIBRATION_TEXTS = 300
# What is computed outside of INT8 products. Weights in INT8 with activations quantised on the way
# were tried too: half as fast as the better of these.
HINTS = {"fp32": "f32", "bf16": "bf16", "int8": "f32", "int8_bf16": "bf16"}


class OpenVino:
    """A compiled model on one thread."""

    modes = ("alone", "buckets", "buckets-256", "128", "256", "512")

    def __init__(self, path: Path, kind: str, max_tokens: int) -> None:
        library = importlib.import_module("openvino")
        core = library.Core()
        compiled = core.compile_model(core.read_model(str(path)), "CPU", {
            "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": HINTS[kind]})
        self._request = compiled.create_infer_request()
        self.name = f"OpenVINO {library.__version__.split('-')[0]} {kind}"
        self.max_tokens = max_tokens

    def run(self, rows: Sequence[np.ndarray], calls: Sequence[Call]) -> np.ndarray:
        """Logits, float32 [B, C]."""
        found = []
        for call in calls:
            ids, mask = padded(rows, call, np.int64)
            answer = self._request.infer({"input_ids": ids, "attention_mask": mask,
                                          "token_type_ids": np.zeros_like(ids)})
            found.append(answer["logits"].copy())
        return stacked(found, calls)


def load(contender: str, folder: str, cache: str, texts: Sequence[np.ndarray]) -> OpenVino:
    """`contender` is openvino-fp32, -bf16, -int8 or -int8_bf16."""
    kind = contender.split("-")[1]
    config = json.loads((Path(folder) / "config.json").read_text("utf-8"))
    graph = export(folder, cache)
    path = Path(cache) / ("openvino-int8.xml" if kind.startswith("int8") else "openvino.xml")
    if not path.is_file():
        library = importlib.import_module("openvino")
        model = library.convert_model(str(graph))
        if kind.startswith("int8"):
            model = _quantise(model, texts)
        library.save_model(model, str(path), compress_to_fp16=False)
    return OpenVino(path, kind, config["max_position_embeddings"])


def _quantise(model: Any, texts: Sequence[np.ndarray]) -> Any:
    nncf = importlib.import_module("nncf")
    samples = []
    for text in texts[:CALIBRATION_TEXTS]:
        ids, mask = padded([text], Call([0], len(text)), np.int64)
        samples.append({"input_ids": ids, "attention_mask": mask,
                        "token_type_ids": np.zeros_like(ids)})
    return nncf.quantize(model, nncf.Dataset(samples), model_type=nncf.ModelType.TRANSFORMER,
                         subset_size=len(samples))
