"""Which models machine code is for on this CPU, and their programs."""

from __future__ import annotations

from typing import Any

from model.native.activations import HERE
from model.native.cpu import integer_products
from model.native.network import Network
from model.native.outline import Outline, Terms
from model.native.program import NativeProgram, most_rows
from model.native.sums import ROWS, TILE
from model.native.weights import Weights
from model.programs.image import Image

PRECISIONS = ("fp32", "int8")
WIDEST_HEAD = 128
# Of texts whose attention has terms of distances: each layer's tables hold a row for each distance,
# which is 6 MiB in a network of 768 columns.
LONGEST_WITH_TERMS = 512


def is_fit(settings: dict[str, Any], outline: Outline, precision: str) -> bool:
    """Whether there is machine code for a model of these settings in this precision, here."""
    hidden, heads = settings["hidden_size"], settings["heads"]
    # Such products are cut, or write rows without gaps, where the groups of their columns end.
    is_grouped = bool(outline.projection) or outline.is_last_shared
    return (precision in PRECISIONS and integer_products().kind != ""
            and hidden % heads == 0 and hidden // heads % TILE == 0
            and hidden // heads <= WIDEST_HEAD and settings["intermediate"] % TILE == 0
            and settings.get("embedding_size", hidden) % TILE == 0
            and not (is_grouped and hidden % ROWS)
            and not (isinstance(outline.relative, Terms)
                     and settings["max_position_embeddings"] > LONGEST_WITH_TERMS)
            and {settings["activation"], outline.head_activation} <= HERE)


def program(card: dict[str, Any], image: Image, outline: Outline, precision: str
            ) -> NativeProgram:
    """The program of a model for which machine code is fit. Raises OSError where the system lets no
    file in memory run."""
    network = Network(Weights(image, integer_products().kind), outline, card["settings"],
                      len(card["labels"]), most_rows(card["max_tokens"]))
    return NativeProgram(card, precision, network, outline)
