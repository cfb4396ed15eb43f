"""ONNX Runtime as a contender: fp32 and dynamic INT8, the graph as exported and as fused."""

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

FLOAT = 1  # onnx.TensorProto.FLOAT


class OnnxRuntime:
    """A session on one thread, every graph optimisation on."""

    modes = ("alone", "buckets", "buckets-256", "128", "256", "512")

    def __init__(self, path: Path, name: str, max_tokens: int) -> None:
        runtime = importlib.import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
        self._session = runtime.InferenceSession(str(path), options,
                                                 providers=["CPUExecutionProvider"])
        self._inputs = {one.name for one in self._session.get_inputs()}
        self.name = f"ONNX Runtime {runtime.__version__} {name}"
        self.max_tokens = max_tokens

    def run(self, rows: Sequence[np.ndarray], calls: Sequence[Call]) -> np.ndarray:
        """Logits, float32 [B, C]."""
        found = []
        for call in calls:
            ids, mask = padded(rows, call, np.int64)
            given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            found.append(self._session.run(None, {name: given[name] for name in self._inputs})[0])
        return stacked(found, calls)


def load(contender: str, folder: str, cache: str, texts: Sequence[np.ndarray]) -> OnnxRuntime:
    """`contender` is ort-fp32, ort-fp32-fused, ort-int8 or ort-int8-fused."""
    _, precision, *fused = contender.split("-")
    config = json.loads((Path(folder) / "config.json").read_text("utf-8"))
    path = export(folder, cache)
    if fused:
        path = _fuse(path, config)
    if precision == "int8":
        path = _quantise(path)
    return OnnxRuntime(path, precision + (" fused" if fused else ""),
                       config["max_position_embeddings"])


def _fuse(path: Path, config: dict[str, Any]) -> Path:
    """The graph after onnxruntime's own transformer optimiser."""
    made = path.with_name("fused.onnx")
    if not made.is_file():
        optimizer = importlib.import_module("onnxruntime.transformers.optimizer")
        model = optimizer.optimize_model(
            str(path), model_type="bert", num_heads=config["num_attention_heads"],
            hidden_size=config["hidden_size"], opt_level=1, use_gpu=False)
        model.save_model_to_file(str(made))
    return made


def _quantise(path: Path) -> Path:
    """Dynamic INT8, a scale a channel; 7-bit weights only where 8-bit products would saturate."""
    made = path.with_name(path.stem + ".int8.onnx")
    if not made.is_file():
        quantization = importlib.import_module("onnxruntime.quantization")
        # The fused graph's own operators tell the quantiser no types: they are all floats.
        quantization.quantize_dynamic(str(path), str(made), per_channel=True,
                                      reduce_range=not has_vnni(),
                                      weight_type=quantization.QuantType.QInt8,
                                      extra_options={"DefaultTensorType": FLOAT})
    return made


def has_vnni() -> bool:
    """Whether the CPU adds products of bytes in 32 bits."""
    flags = Path("/proc/cpuinfo").read_text("utf-8")
    return "avx512_vnni" in flags or "avx_vnni" in flags
