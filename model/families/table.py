"""Every family that is served, and the way from a card to its program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from loader.family import FamilySpec
from model.families.albert import AlbertFamily
from model.families.bert import BertFamily
from model.families.deberta_v2 import DebertaV2Family
from model.families.distilbert import DistilBertFamily
from model.families.echo import EchoFamily
from model.families.electra import ElectraFamily
from model.families.modernbert import ModernBertFamily
from model.families.mpnet import MPNetFamily
from model.families.roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from model.program import Program, Row

if TYPE_CHECKING:
    from model.programs.image import Image
    from model.programs.plan import Plan


class Family(FamilySpec, Protocol):
    """What the loader must know of a family, and what the model's own code adds."""

    def build(self, card: dict[str, Any], image: Image, plan: Plan) -> Program:
        """The program, its products made by `plan`; torch is imported here and not before."""

    def reference(self, card: dict[str, Any], weights: Any, rows: Sequence[Row]) -> np.ndarray:
        """The same logits as the program's within rounding, float32 [B, C], slowly, by numpy."""


FAMILIES: dict[str, Family] = {family.name: family for family in (
    BertFamily(), DistilBertFamily(), ElectraFamily(), ROBERTA, CAMEMBERT, XLM_ROBERTA,
    MPNetFamily(), AlbertFamily(), DebertaV2Family(), ModernBertFamily(), EchoFamily())}


def build(card: dict[str, Any], weights: Any, wide: Any = None) -> Program:
    """The program of a prepared model, not warmed yet, in the card's precision.

    `weights` is the sealed image (any buffer), None for a family without weights; `wide` is the
    second one of a bundle, which an int8 program does not read. What is read must stay mapped as
    long as the program lives. A card with "facts" (`Program.facts` of a program that was built
    before) gives that one's twin, which answers alike bit for bit.

    Raises ArithmeticError in a sentence where this CPU cannot compute the precision.
    """
    family = FAMILIES[card["family"]]
    if not family.needs_weights:
        return family.build(card, None, None)
    from model.programs.image import Image  # torch, only now
    from model.programs.plan import Plan
    plan = Plan(**card["facts"]) if "facts" in card else Plan(card["precision"])
    with_wide = wide is not None and plan.precision != "int8"
    return family.build(card, Image(weights, wide) if with_wide else Image(weights), plan)


def reference(card: dict[str, Any], weights: Any, rows: Sequence[Row]) -> np.ndarray:
    """What the program should answer to `rows`, float32 [B, C], by the family's numpy reference."""
    return FAMILIES[card["family"]].reference(card, weights, rows)
