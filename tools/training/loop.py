"""The training loop: AdamW, warm-up and linear decay, words left out at random; evaluation."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from tools.training.network import Classifier
from tools.training.texts import TrainingError

EVALUATION_BATCH = 64
CLIP_NORM = 1.0


@dataclass(frozen=True)
class Recipe:
    """How to train. `warm_up` is the share of all steps in which the rate rises; `word_dropout`
    how often an id but [CLS] and [SEP] becomes [UNK], so that no text can be learnt by heart;
    `balance` 0 counts every text alike, 1 every label alike."""

    epochs: int
    batch: int
    learning_rate: float
    weight_decay: float
    warm_up: float
    word_dropout: float
    label_smoothing: float
    balance: float
    seed: int


def train(network: Classifier, rows: Sequence[list[int]], labels: Sequence[int], unknown: int,
          recipe: Recipe, progress: Callable[[int, int, float], None]) -> None:
    """Trains in place. `rows` are ids with specials; `progress(done, total, loss)` each step.

    Raises TrainingError when the loss is no number any more.
    """
    rng = random.Random(recipe.seed)
    optimizer = torch.optim.AdamW(_decayed(network, recipe.weight_decay), lr=recipe.learning_rate)
    total = recipe.epochs * -(-len(rows) // recipe.batch)
    warm_up = max(1, int(total * recipe.warm_up))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(
        (step + 1) / warm_up, max(0.0, (total - step) / max(1, total - warm_up))))
    weights = _label_weights(labels, network.classifier.out_features, recipe.balance)
    network.train()
    step = 0
    for _ in range(recipe.epochs):
        for picked in _batches(rows, recipe.batch, rng):
            ids, lengths = pad([_thin(rows[i], unknown, recipe.word_dropout, rng) for i in picked])
            loss = functional.cross_entropy(
                network(ids, lengths), torch.tensor([labels[i] for i in picked]),
                weight=weights, label_smoothing=recipe.label_smoothing)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), CLIP_NORM)
            optimizer.step()
            schedule.step()
            step += 1
            progress(step, total, _finite(loss.item(), step))


def predict(network: nn.Module, rows: Sequence[list[int]]) -> list[int]:
    """The best label of each row, in order."""
    network.eval()
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    found = [0] * len(rows)
    with torch.inference_mode():
        for at in range(0, len(order), EVALUATION_BATCH):
            picked = order[at:at + EVALUATION_BATCH]
            best = network(*pad([rows[i] for i in picked])).argmax(1)
            for place, label in zip(picked, best.tolist()):
                found[place] = label
    return found


def pad(rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids [B, T] padded right with 0, lengths [B])."""
    longest = max(map(len, rows))
    return (torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows]),
            torch.tensor([len(row) for row in rows]))


def _batches(rows: Sequence[list[int]], size: int, rng: random.Random) -> list[list[int]]:
    """Batches of rows of similar length, in random order: little is spent on padding."""
    order = sorted(range(len(rows)), key=lambda i: (len(rows[i]) + rng.random() * 8, i))
    batches = [order[at:at + size] for at in range(0, len(order), size)]
    rng.shuffle(batches)
    return batches


def _finite(loss: float, step: int) -> float:
    if not math.isfinite(loss):
        raise TrainingError(f"the loss is {loss} at step {step}; lower --learning-rate")
    return loss


def _thin(row: list[int], unknown: int, share: float, rng: random.Random) -> list[int]:
    return [row[0], *(unknown if rng.random() < share else token for token in row[1:-1]), row[-1]]


def _label_weights(labels: Sequence[int], classes: int, balance: float) -> torch.Tensor:
    """float32 [C]: (mean count / count) ** balance; a label without texts has 1."""
    counts = [labels.count(label) for label in range(classes)]
    mean = len(labels) / classes
    return torch.tensor([(mean / count) ** balance if count else 1.0 for count in counts])


def _decayed(network: nn.Module, weight_decay: float) -> list[dict]:
    """Weight decay on matrices alone: not on biases and layer norms."""
    matrices = [p for p in network.parameters() if p.dim() > 1]
    vectors = [p for p in network.parameters() if p.dim() == 1]
    return [{"params": matrices, "weight_decay": weight_decay},
            {"params": vectors, "weight_decay": 0.0}]
