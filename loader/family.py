"""What the loader must know about a model family to validate a checkpoint without torch."""

from __future__ import annotations

from typing import Any, Protocol


class FamilySpec(Protocol):
    """One family of models as the loader sees it; model/families/table.py lists them.

    Settings are the family's own numbers out of config.json: validated, bounded, JSON-able. They
    travel in the model's card, so that programs and references read no config.json again.
    """

    name: str
    """The family's name in messages, metrics and the card: "bert"."""

    model_types: tuple[str, ...]
    """The values of config.json's model_type that mean this family."""

    architectures: tuple[str, ...]
    """The class names in config.json's architectures that can be served."""

    prefix: str
    """What begins the names of the encoder's tensors ("bert."); a checkpoint may leave it out."""

    needs_weights: bool
    """False for a family without tensors (echo): then no weights file is looked for."""

    def settings(self, config: dict[str, Any]) -> dict[str, Any]:
        """The family's numbers out of a parsed config.json; raises CheckpointError."""

    def tensors(self, settings: dict[str, Any], labels: int) -> dict[str, tuple[int, ...]]:
        """Canonical full name → shape of every tensor that the program reads."""

    def positions(self, settings: dict[str, Any]) -> int:
        """How many tokens, specials included, the position table holds."""

    def pair_types(self, settings: dict[str, Any]) -> int:
        """How many token types the model knows; 1 means that it takes no pairs. A model without
        types says 2: special tokens alone divide its pairs."""
