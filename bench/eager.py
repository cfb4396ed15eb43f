"""The bottom of the ladder: BERT as one writes it down in torch, eager, padded, every row kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bench.peers.calls import cut_calls
from bench.peers.padding import padded, stacked
from bench.rounds import Burst, time_runs
from model.programs.script import settle

ACTIVATIONS = {"gelu": functional.gelu, "relu": functional.relu, "silu": functional.silu,
               "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
               "quick_gelu": lambda x: x * torch.sigmoid(x * 1.702)}


class Eager:
    """A bench.rounds.Contender: fp32, and the reference that the others are compared with."""

    key = "eager"
    name = "torch eager fp32, padded"
    modes = ("alone", "buckets", "256", "1024")

    def __init__(self, card: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> None:
        """`tensors` are float32, by canonical name."""
        settle()
        self._settings = card["settings"]
        self._max_tokens = card["max_tokens"]
        self._tensors = {name: torch.from_numpy(array.copy()) for name, array in tensors.items()}

    def run(self, rows: Sequence[np.ndarray], mode: str, repeats: int) -> Burst:
        """A bench.rounds.Burst of the rows in calls of the mode."""
        lengths = [len(row) for row in rows]

        def work() -> np.ndarray:
            calls = cut_calls(lengths, mode, self._max_tokens)
            with torch.inference_mode():
                return stacked([self._logits(*padded(rows, call, np.int64)) for call in calls],
                               calls)
        return time_runs(work, repeats)

    def _logits(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """float32 [B, C] of ids and mask, int64 [B, T]; all tokens are of segment 0."""
        settings, here = self._settings, "bert.embeddings."
        x = functional.embedding(torch.from_numpy(ids),
                                 self._tensors[here + "word_embeddings.weight"])
        x = x + self._tensors[here + "position_embeddings.weight"][:ids.shape[1]]
        x = self._norm(here + "LayerNorm",
                       x + self._tensors[here + "token_type_embeddings.weight"][0])  # [B, T, D]
        ignored = None
        if not mask.all():
            ignored = torch.from_numpy(np.where(mask, np.float32(0), np.float32(-np.inf)))
            ignored = ignored[:, None, None]                                   # [B, 1, 1, T]
        for layer in range(settings["layers"]):
            here = f"bert.encoder.layer.{layer}."
            mixed = self._attention(here + "attention.self.", x, ignored)
            x = self._norm(here + "attention.output.LayerNorm",
                           x + self._product(here + "attention.output.dense", mixed))
            inner = ACTIVATIONS[settings["activation"]](
                self._product(here + "intermediate.dense", x))                 # [B, T, I]
            x = self._norm(here + "output.LayerNorm",
                           x + self._product(here + "output.dense", inner))
        pooled = torch.tanh(self._product("bert.pooler.dense", x[:, 0]))
        return self._product("classifier", pooled).numpy()

    def _attention(self, here: str, x: Tensor, ignored: Tensor | None) -> Tensor:
        texts, tokens, hidden = x.shape
        heads = self._settings["heads"]
        query, key, value = (
            self._product(here + name, x).view(texts, tokens, heads, hidden // heads)
            .transpose(1, 2) for name in ("query", "key", "value"))            # [B, H, T, D/H]
        found = functional.scaled_dot_product_attention(query, key, value, ignored)
        return found.transpose(1, 2).reshape(texts, tokens, hidden)

    def _product(self, name: str, x: Tensor) -> Tensor:
        return functional.linear(x, self._tensors[name + ".weight"], self._tensors[name + ".bias"])

    def _norm(self, name: str, x: Tensor) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:], self._tensors[name + ".weight"],
                                     self._tensors[name + ".bias"],
                                     self._settings["layer_norm_eps"])
