"""A bundle's manifest: what it says, and that it is whole.

It tells what the bundle is, what was measured, and the hash of every other file, and has a hash of
itself: what was changed after it was written is seen, what another tool wrote is checked besides.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from loader.errors import CheckpointError, shown
from loader.strict_json import read_object

MANIFEST = "firebrick-manifest.json"
FORMAT = 1
# Key → type of what a manifest must say. "self" is the hash of all the rest of it.
FACTS = {"format": int, "name": str, "version": str, "source": dict, "labels": list, "files": dict,
         "bits": int, "layers": dict, "precisions": dict, "goldens": list, "made_with": dict,
         "self": str}
BUILD_AGAIN = "build the bundle again with python -m tools.build"


def manifest_bytes(manifest: Mapping[str, Any]) -> bytes:
    """The manifest with its own hash, as it is written."""
    facts = {key: value for key, value in manifest.items() if key != "self"}
    facts["self"] = hashlib.sha256(_text(facts).encode()).hexdigest()
    return (_text(facts, indent=1) + "\n").encode()


def read_manifest(data: bytes) -> dict[str, Any]:
    """A manifest that is whole and that this version understands. Raises CheckpointError."""
    manifest = read_object(data, MANIFEST)
    if manifest.get("format") != FORMAT:
        raise CheckpointError(f"{MANIFEST} has the format {shown(manifest.get('format'))}, this "
                              f"version reads {FORMAT}; {BUILD_AGAIN}.")
    if data != _bytes_again(manifest):
        raise CheckpointError(f"{MANIFEST} was changed after it was written; copy the bundle "
                              f"again, or {BUILD_AGAIN}.")
    wrong = _faults(manifest)
    if wrong:
        raise CheckpointError(f"{MANIFEST} does not say what it must in {wrong[0]}; {BUILD_AGAIN}.")
    return manifest


def passed_precisions(manifest: Mapping[str, Any]) -> list[str]:
    """The precisions that the gate let pass, fp32 first."""
    return ["fp32", *(name for name, facts in manifest["precisions"].items()
                      if name != "fp32" and facts["passed"])]


def tolerances(manifest: Mapping[str, Any]) -> dict[str, float]:
    """By precision, how far its logits may be from the goldens, where that was measured."""
    return {name: facts["tolerance"] for name, facts in manifest["precisions"].items()
            if facts["tolerance"] is not None}


def read_goldens(manifest: Mapping[str, Any], vocab_size: int, max_tokens: int, pair_types: int,
                 labels: int) -> list[dict[str, Any]]:
    """The texts of the self-test, which fit the model of the bundle. Raises CheckpointError."""
    goldens = manifest["goldens"]
    for number, golden in enumerate(goldens):
        ids, split, logits = (golden.get(key) for key in ("ids", "split", "logits"))
        if not (_numbers(ids, int) and 1 <= len(ids) <= max_tokens
                and all(0 <= one < vocab_size for one in ids)
                and type(split) is int and 1 <= split <= len(ids)
                and (split == len(ids) or pair_types > 1)
                and _numbers(logits, float) and len(logits) == labels):
            raise CheckpointError(f"{MANIFEST}: golden {number} is no text of this model with its "
                                  f"logits; {BUILD_AGAIN}.")
    return goldens


def _bytes_again(manifest: dict[str, Any]) -> bytes | None:
    """As manifest_bytes; None where no manifest of ours holds such values."""
    try:
        return manifest_bytes(manifest)
    except ValueError:  # a number beyond all bounds, half a surrogate pair
        return None


def _faults(manifest: Mapping[str, Any]) -> list[str]:
    """The keys whose values are of another kind than ours."""
    wrong = [key for key, kind in FACTS.items() if type(manifest.get(key)) is not kind]
    if wrong:
        return wrong
    precisions = manifest["precisions"]
    checks = {
        "files": all(isinstance(digest, str) for digest in manifest["files"].values()),
        "layers": all(isinstance(kind, str) for kind in manifest["layers"].values()),
        "precisions": "fp32" in precisions and all(map(_is_precision, precisions.values())),
        "goldens": bool(manifest["goldens"])
        and all(isinstance(golden, dict) for golden in manifest["goldens"])}
    return [key for key, is_right in checks.items() if not is_right]


def _is_precision(facts: Any) -> bool:
    return isinstance(facts, dict) and type(facts.get("passed")) is bool and "tolerance" in facts \
        and (facts["tolerance"] is None or type(facts["tolerance"]) in (int, float))


def _numbers(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(
        type(one) is int or (kind is float and type(one) is float and math.isfinite(one))
        for one in value)


def _text(facts: Mapping[str, Any], indent: int | None = None) -> str:
    return json.dumps(facts, ensure_ascii=False, allow_nan=False, indent=indent)
