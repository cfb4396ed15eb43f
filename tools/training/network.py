"""BERT as a trainable network, its parameters named as Hugging Face checkpoints name them.

Devlin et al. 2019, post-layernorm. B texts, T tokens, D hidden, H heads, C classes.
"""

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from model.families import settings as read

INITIAL_STD = 0.02
# By the names that model.families.bert gives them.
ACTIVATIONS = {"gelu": functional.gelu, "relu": functional.relu, "silu": functional.silu,
               "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
               "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x)}


class Embeddings(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        width = config["hidden_size"]
        self.word_embeddings = nn.Embedding(config["vocab_size"], width)
        self.position_embeddings = nn.Embedding(config["max_position_embeddings"], width)
        self.token_type_embeddings = nn.Embedding(config["type_vocab_size"], width)
        self.LayerNorm = nn.LayerNorm(width, config["layer_norm_eps"])
        self.dropout = nn.Dropout(config["hidden_dropout_prob"])

    def forward(self, ids: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1])
        x = self.word_embeddings(ids) + self.position_embeddings(positions)
        return self.dropout(self.LayerNorm(x + self.token_type_embeddings.weight[0]))  # [B, T, D]


class Projections(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)


class AddNorm(nn.Module):
    """A dense layer whose output is added to the residual and normalised."""

    def __init__(self, config: dict, inputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, config["hidden_size"])
        self.LayerNorm = nn.LayerNorm(config["hidden_size"], config["layer_norm_eps"])
        self.dropout = nn.Dropout(config["hidden_dropout_prob"])

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dropout(self.dense(x)) + residual)


class Attention(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        self.heads = config["num_attention_heads"]
        self.dropout = config["attention_probs_dropout_prob"]
        self.self = Projections(config["hidden_size"])
        self.output = AddNorm(config, config["hidden_size"])

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            project(x).view(batch, length, self.heads, -1).transpose(1, 2)      # [B, H, T, D/H]
            for project in (self.self.query, self.self.key, self.self.value))
        mixed = functional.scaled_dot_product_attention(
            query, key, value, mask, self.dropout if self.training else 0.0)
        return self.output(mixed.transpose(1, 2).reshape(batch, length, width), x)


class Intermediate(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        self.dense = nn.Linear(config["hidden_size"], config["intermediate_size"])


class Layer(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.intermediate = Intermediate(config)
        self.output = AddNorm(config, config["intermediate_size"])
        self.activation = ACTIVATIONS[read.ACTIVATIONS[config["hidden_act"]]]

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention(x, mask)
        return self.output(self.activation(self.intermediate.dense(x)), x)


class Encoder(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        self.layer = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))


class Pooler(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)


class Backbone(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config)
        self.pooler = Pooler(config["hidden_size"])


class Classifier(nn.Module):
    """`forward(ids [B, T] int64, lengths [B])` → logits float32 [B, C]; padding stands right."""

    def __init__(self, config: dict, classes: int) -> None:
        super().__init__()
        self.bert = Backbone(config)
        self.dropout = nn.Dropout(config["classifier_dropout"])
        self.classifier = nn.Linear(config["hidden_size"], classes)
        self.apply(_initialise)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        mask = (torch.arange(ids.shape[1]) < lengths[:, None])[:, None, None, :]    # [B, 1, 1, T]
        x = self.bert.embeddings(ids)
        for layer in self.bert.encoder.layer:
            x = layer(x, mask)
        pooled = torch.tanh(self.bert.pooler.dense(x[:, 0]))                        # [B, D]
        return self.classifier(self.dropout(pooled))


def _initialise(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.trunc_normal_(module.weight, std=INITIAL_STD, a=-2 * INITIAL_STD,
                              b=2 * INITIAL_STD)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


def load(network: Classifier, parameters: Mapping[str, np.ndarray]) -> None:
    """Copies the given arrays over the network's own values; their shapes agree."""
    known = network.state_dict()
    with torch.no_grad():
        for name, array in parameters.items():
            known[name].copy_(torch.tensor(array))


def count_parameters(network: nn.Module) -> int:
    return sum(math.prod(p.shape) for p in network.parameters())
