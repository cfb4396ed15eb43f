"""The training loop: AdamW, warm-up and linear decay, words left out at random; evaluation."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

EVALUATION_BATCH = 64
CLIP_NORM = 1.0


@dataclass(frozen=True)
class Recipe:
    """How to train; the defaults were chosen by cross-validation on the SMS training set."""

    epochs: int = 10
    batch: int = 32
    learning_rate: float = 1e-3
    weight_decay: float = 0.05
    warm_up_share: float = 0.1
    # Each id but [CLS] and [SEP] becomes [UNK] this often: no text can be learnt by heart.
    word_dropout: float = 0.1
    label_smoothing: float = 0.05
    seed: int = 0


def train(network: nn.Module, rows: Sequence[list[int]], labels: Sequence[int], unknown: int,
          recipe: Recipe, progress: Callable[[int, int, float], None]) -> None:
    """Trains in place. `rows` are ids with specials; `progress(done, total, loss)` each step."""
    rng = random.Random(recipe.seed)
    optimizer = torch.optim.AdamW(_decayed(network, recipe.weight_decay), lr=recipe.learning_rate)
    total = recipe.epochs * -(-len(rows) // recipe.batch)
    warm_up = max(1, int(total * recipe.warm_up_share))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(
        (step + 1) / warm_up, max(0.0, (total - step) / max(1, total - warm_up))))
    network.train()
    step = 0
    for _ in range(recipe.epochs):
        for picked in _batches(rows, recipe.batch, rng):
            ids, lengths = pad([_thin(rows[i], unknown, recipe.word_dropout, rng) for i in picked])
            loss = functional.cross_entropy(
                network(ids, lengths), torch.tensor([labels[i] for i in picked]),
                label_smoothing=recipe.label_smoothing)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), CLIP_NORM)
            optimizer.step()
            schedule.step()
            step += 1
            progress(step, total, loss.item())


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


def _thin(row: list[int], unknown: int, share: float, rng: random.Random) -> list[int]:
    return [row[0], *(unknown if rng.random() < share else token for token in row[1:-1]), row[-1]]


def _decayed(network: nn.Module, weight_decay: float) -> list[dict]:
    """Weight decay on matrices alone: not on biases and layer norms."""
    matrices = [p for p in network.parameters() if p.dim() > 1]
    vectors = [p for p in network.parameters() if p.dim() == 1]
    return [{"params": matrices, "weight_decay": weight_decay},
            {"params": vectors, "weight_decay": 0.0}]
