"""Networks for graphs of BERT and its kin: DistilBERT, ELECTRA, RoBERTa, MPNet and ALBERT.

What a network takes and gives is told in model.programs.padded; tensor letters as there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from model.families import albert, distilbert, mpnet
from model.families.shapes import BERT_LAYER, LayerNames
from model.programs.padded import (Embeddings, Head, Layer, MaskedLayer, Weights, firsts,
                                   padding_mask)


class Encoder(nn.Module):
    """All layers, the last one for the first tokens; one that is named again is the same."""

    def __init__(self, made: Weights, names: Sequence[LayerNames],
                 settings: dict[str, Any]) -> None:
        super().__init__()
        known = {name: Layer(made, name, settings, False) for name in dict.fromkeys(names[:-1])}
        self.layers = nn.ModuleList(known[name] for name in names[:-1])
        self.last = Layer(made, names[-1], settings, True)

    def forward(self, x: Tensor, starts: Tensor, key_starts: Tensor, lengths: Tensor,
                length: int) -> Tensor:
        for layer in self.layers:
            x = layer(x, starts, key_starts, lengths, length)
        return self.last(x, starts, key_starts, lengths, length)            # [B, D]


class Bert(nn.Module):
    """BERT, and by their names DistilBERT, ELECTRA and ALBERT."""

    def __init__(self, embed: Embeddings, positions: int, project: nn.Module, encoder: Encoder,
                 head: Head) -> None:
        super().__init__()
        self.embed, self.project, self.encoder, self.head = embed, project, encoder, head
        self.rows: int = len(embed.rows)
        self.positions: int = positions

    def forward(self, ids: Tensor, places: Tensor, lengths: Tensor, starts: Tensor,
                key_starts: Tensor, length: int) -> Tensor:
        if self.rows == self.positions:  # one segment, or no segments at all
            places = places % self.positions
        x = self.project(self.embed(ids, places))                           # [B·L, D]
        return self.head(self.encoder(x, starts, key_starts, lengths, length))


def bert(made: Weights, settings: dict[str, Any]) -> Bert:
    names = [BERT_LAYER.at(f"bert.encoder.layer.{layer}.") for layer in range(settings["layers"])]
    return Bert(_typed(made, "bert.embeddings."), settings["max_position_embeddings"],
                nn.Identity(), Encoder(made, names, settings),
                Head(made, "bert.pooler.dense", "classifier", "tanh"))


def distilbert_network(made: Weights, settings: dict[str, Any]) -> Bert:
    here = "distilbert.embeddings."
    names = [distilbert.LAYER.at(f"distilbert.transformer.layer.{layer}.")
             for layer in range(settings["layers"])]
    return Bert(Embeddings(made, here, made.rows(here + "position_embeddings")),
                settings["max_position_embeddings"], nn.Identity(),
                Encoder(made, names, settings), Head(made, "pre_classifier", "classifier", "relu"))


def electra(made: Weights, settings: dict[str, Any]) -> Bert:
    names = [BERT_LAYER.at(f"electra.encoder.layer.{layer}.")
             for layer in range(settings["layers"])]
    is_projected = settings["embedding_size"] != settings["hidden_size"]
    return Bert(_typed(made, "electra.embeddings."), settings["max_position_embeddings"],
                made.product("electra.embeddings_project") if is_projected else nn.Identity(),
                Encoder(made, names, settings),
                Head(made, "classifier.dense", "classifier.out_proj", "gelu"))


def albert_network(made: Weights, settings: dict[str, Any]) -> Bert:
    return Bert(_typed(made, "albert.embeddings."), settings["max_position_embeddings"],
                made.product("albert.encoder.embedding_hidden_mapping_in"),
                Encoder(made, albert.layers(settings), settings),
                Head(made, "albert.pooler", "classifier", "tanh"))


class Roberta(nn.Module):
    """RoBERTa and its kin: positions pass over padding, all tokens are of one type."""

    def __init__(self, made: Weights, settings: dict[str, Any]) -> None:
        super().__init__()
        here = "roberta.embeddings."
        self.embed = Embeddings(made, here, made.rows(
            here + "token_type_embeddings", here + "position_embeddings",
            first=settings["max_position_embeddings"]))
        self.pad_id: int = settings["pad_id"]
        self.encoder = Encoder(made, [BERT_LAYER.at(f"roberta.encoder.layer.{layer}.")
                                      for layer in range(settings["layers"])], settings)
        self.head = Head(made, "classifier.dense", "classifier.out_proj", "tanh")

    def forward(self, ids: Tensor, places: Tensor, lengths: Tensor, starts: Tensor,
                key_starts: Tensor, length: int) -> Tensor:
        x = self.embed(ids, _past_padding(ids, self.pad_id, length))        # [B·L, D]
        return self.head(self.encoder(x, starts, key_starts, lengths, length))


class MPNet(nn.Module):
    """MPNet: as RoBERTa, with one bias of relative positions in all layers."""

    def __init__(self, made: Weights, settings: dict[str, Any]) -> None:
        super().__init__()
        here, last = "mpnet.embeddings.", settings["layers"] - 1
        self.embed = Embeddings(made, here, made.rows(here + "position_embeddings"))
        self.pad_id: int = settings["pad_id"]
        self.most: int = settings["max_position_embeddings"]
        rows = torch.from_numpy(mpnet.buckets(np.arange(1 - self.most, self.most)))
        biases = made.wide("mpnet.encoder.relative_attention_bias.weight")[rows]
        self.biases = made.placed(biases.t())                               # [H, 2P - 1]
        self.layers = nn.ModuleList(
            MaskedLayer(made, mpnet.LAYER.at(f"mpnet.encoder.layer.{layer}."), settings,
                        layer == last) for layer in range(last + 1))
        self.head = Head(made, "classifier.dense", "classifier.out_proj", "tanh")

    def forward(self, ids: Tensor, places: Tensor, lengths: Tensor, starts: Tensor,
                key_starts: Tensor, length: int) -> Tensor:
        x = self.embed(ids, _past_padding(ids, self.pad_id, length))        # [B·L, D]
        near = self.biases.narrow(1, self.most - length, 2 * length - 1)
        mask = near.unfold(1, length, 1).flip(1) + padding_mask(lengths, length, x.dtype)
        for layer in self.layers:
            x = layer(x, mask, length)
        return self.head(x)


def _typed(made: Weights, here: str) -> Embeddings:
    return Embeddings(made, here, made.rows(here + "token_type_embeddings",
                                            here + "position_embeddings"))


def _past_padding(ids: Tensor, pad_id: int, length: int) -> Tensor:
    """Positions from pad_id + 1; padding that a text holds has pad_id and does not count."""
    counted = (ids != pad_id).int().view(-1, length)
    return (counted.cumsum(1, dtype=torch.int32) * counted + pad_id).flatten()
