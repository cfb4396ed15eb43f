"""How far an answer to the self-test may be from the fp32 reference, in logits (pure)."""

# A wrong weight or operation is far beyond these. A bundle brings what was measured when it was
# built.
TOLERANCES = {"fp32": 1e-3, "fp16": 0.1, "bf16": 1.0}


def tolerance(card: dict) -> float:
    """For the precision that the card is served in."""
    return {**TOLERANCES, **card.get("tolerances", {})}[card["precision"]]
