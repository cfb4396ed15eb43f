"""The model of an offline run: loaded and warmed in the process from which engines are forked."""

from __future__ import annotations

from loader.prepare import map_file, model_name, open_card, prepare, seal
from loader.tokenizers.table import open_tokenizer
from model.families.table import FAMILIES, build
from tools.offline.worker import ItemReader, Worker


def load_worker(model: str, precision: str, read: ItemReader,
                as_records: bool) -> tuple[Worker, str]:
    """The worker, and a line that says what it computes with.

    Raises CheckpointError; ArithmeticError in a sentence where this CPU cannot compute the
    precision.
    """
    files = seal(prepare(model, model_name(model), FAMILIES, precision))
    card = open_card(files.card_fd)
    tables, *images = map(map_file, files.descriptors[1:])  # stay mapped as long as the program
    files.close()
    tokenizer = open_tokenizer(tables)
    if FAMILIES[card["family"]].needs_weights:
        from model.programs.precision import choose  # torch, only now
        card = choose(card, lambda part: build(part, *images))
    program = build(card, *images)
    program.warm()
    return Worker(card, tokenizer, program, read, as_records), (
        f"{card['name']}, version {card['version']}, in {card['precision']} "
        f"({card['precision_why']})")
