"""How large everything is: on a device, and in a dry run that must end soon on a CPU core."""

from __future__ import annotations

from dataclasses import dataclass

LABELS = 6


def bert(hidden: int, layers: int, heads: int, vocab: int = 30522,
         positions: int = 512) -> dict[str, int]:
    """The numbers of a config.json of such a BERT."""
    return {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
            "intermediate_size": 4 * hidden, "vocab_size": vocab,
            "max_position_embeddings": positions, "type_vocab_size": 2}


@dataclass(frozen=True)
class Net:
    """A network with random weights; texts a second that are promised and aimed at."""

    name: str
    config: dict[str, int]
    promised: int
    aimed: int


@dataclass(frozen=True)
class Sizes:
    """`small` and `base` are the two networks of the figures.

    `rate_length` is the length of the promised rates, `latency_lengths` those of single texts;
    `token_cap` bounds a graph; `rows_compared` texts of each graph are computed on the CPU too.
    """

    small: Net = Net("MiniLM-L6", bert(384, 6, 12), 60_000, 85_000)
    base: Net = Net("BERT-base", bert(768, 12, 12), 15_000, 20_000)
    token_cap: int = 16384
    rate_length: int = 128
    latency_lengths: tuple[int, ...] = (16, 32, 64, 128)
    latency_calls: int = 150
    replays: int = 1000
    rate_s: float = 0.12
    loop_s: float = 3.0
    product: int = 8192
    rows_compared: int = 2
    texts: int = 400
    load_threads: int = 16
    load_pause_s: float = 0.0
    patience_s: float = 20.0
    left_bytes: int = 32 << 20


FULL = Sizes()
DRY = Sizes(small=Net("MiniLM-L6 in miniature", bert(32, 2, 2, 97, 64), 60_000, 85_000),
            base=Net("BERT-base in miniature", bert(64, 3, 4, 97, 64), 15_000, 20_000),
            token_cap=256, rate_length=32, latency_lengths=(16, 32), latency_calls=10, replays=50,
            rate_s=0.02, loop_s=0.5, product=64, texts=60, load_threads=2, load_pause_s=0.01,
            patience_s=120.0)
# The parts of `first` alone, on a device.
QUICK = Sizes(token_cap=8192, latency_lengths=(32, 128), latency_calls=60, replays=300,
              rate_s=0.1, loop_s=1.5, rows_compared=1)
