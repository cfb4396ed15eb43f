"""`python -m tools.inspect`: what a checkpoint is, whether it can be served, and its token ids."""

import argparse
import json
import os
import stat
import sys
from collections.abc import Iterator
from typing import Any

from loader.checkpoint import Folder
from loader.errors import CheckpointError
from loader.prepare import Prepared, map_file, model_name, prepare
from loader.safetensors import BITS, Tensor, open_image
from loader.strict_json import read_object
from loader.tokenizer_files import read_tokenizer
from loader.tokenizers.table import (Tokenizer, TokenizerFiles, compile_tokenizer,
                                     open_tokenizer)
from model.families.table import FAMILIES
from tools.texts.formats import LineError, numbered_lines, read_jsonl

CONFIG_BYTES = 16 << 20
NO_LIMIT = 1 << 40  # tokens
SHOWN_LABELS = 20
REFUSED = 2


def main(argv: list[str] | None = None) -> int:
    """0 for a checkpoint that can be served (or whose ids were printed), else 2 with a sentence."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.inspect", allow_abbrev=False,
        description="Tell what a checkpoint folder is and whether it can be served; exit status 2 "
                    "and one sentence where it cannot.")
    parser.add_argument("folder", metavar="FOLDER", help="a checkpoint, or with --ids only the "
                                                         "files of a tokenizer")
    parser.add_argument("--ids", metavar="FILE.jsonl",
                        help="print the token ids of each {\"text\", \"text_pair\"?} as served, a "
                             "JSON list a line; - is the standard input; nothing is truncated "
                             "where FOLDER has no config.json")
    parser.add_argument("--json", action="store_true", help="tell it as one JSON object")
    chosen = parser.parse_args(argv)
    if chosen.ids and chosen.json:
        parser.error("--ids prints lists, --json an object; choose one")
    try:
        return _print_ids(chosen.folder, chosen.ids) if chosen.ids else \
            _print_facts(chosen.folder, chosen.json)
    except CheckpointError as refusal:
        print(refusal, file=sys.stderr)
        return REFUSED
    except BrokenPipeError:  # as of `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def facts(path: str) -> dict[str, Any]:
    """What is known of a folder, JSON-able: `servable`, and `reason` where it is not.

    The first keys describe files only, and are there for a folder that is refused too.
    """
    with Folder(path) as folder:
        found = {"folder": path, "servable": False, "reason": None, **_config_facts(folder),
                 "files": _sizes(path)}
    try:
        prepared = prepare(path, model_name(path), FAMILIES)
    except CheckpointError as refusal:
        found["reason"] = str(refusal)
        return found
    card = prepared.card
    try:
        with map_file(prepared.weights_fd) as image:
            tensors = open_image(image)
    finally:
        _close(prepared)
    kept = ("name", "version", "family", "labels", "function", "max_tokens", "vocab_size",
            "precisions", "precision_why", "settings")
    return {**found, "servable": True, **{key: card[key] for key in kept},
            "takes_pairs": card["pair_types"] > 1, **_weight_facts(tensors),
            "tokenizer_bytes": len(prepared.tokenizer)}


def _close(prepared: Prepared) -> None:
    for fd in (prepared.weights_fd, prepared.wide_fd):
        if fd is not None:
            os.close(fd)


def _config_facts(folder: Folder) -> dict[str, Any]:
    """model_type and architectures as they stand in config.json, where it can be read at all."""
    try:
        config = read_object(folder.read("config.json", CONFIG_BYTES), "config.json")
    except CheckpointError:  # prepare tells it
        config = {}
    return {key: config.get(key) for key in ("model_type", "architectures")}


def _sizes(path: str) -> dict[str, int]:
    """The plain files of the folder (links followed) and their bytes."""
    found = {}
    for name in sorted(os.listdir(path)):
        try:
            facts = os.stat(os.path.join(path, name))
        except OSError:  # a link to nothing, or to itself
            continue
        if stat.S_ISREG(facts.st_mode):
            found[name] = facts.st_size
    return found


def _weight_facts(tensors: dict[str, Tensor]) -> dict[str, Any]:
    stored: dict[str, int] = {}
    for tensor in tensors.values():
        stored[tensor.dtype] = stored.get(tensor.dtype, 0) + tensor.end - tensor.begin
    return {"parameters": sum(size * 8 // BITS[dtype] for dtype, size in stored.items()),
            "weight_bytes": stored}


def _print_facts(path: str, as_json: bool) -> int:
    found = facts(path)
    if as_json:
        print(json.dumps(found, ensure_ascii=False, indent=1))
    else:
        for line in _lines(found):
            print(line)
    if found["servable"]:
        return 0
    raise CheckpointError(found["reason"])


def _lines(found: dict[str, Any]) -> Iterator[str]:
    """The facts for people."""
    def row(name: str, value: object) -> str:
        return f"{name:<12}{value}"

    yield row("folder", found["folder"])
    yield row("served", "yes" if found["servable"] else "no")
    kind = ", ".join([str(found["model_type"]), *map(str, found["architectures"] or [])])
    yield row("config.json", kind)
    if found["servable"]:
        labels = found["labels"]
        more = f", … {len(labels) - SHOWN_LABELS} more" if len(labels) > SHOWN_LABELS else ""
        yield row("model", f"{found['name']}, version {found['version']}, family "
                           f"{found['family']}")
        yield row("labels", f"{len(labels)}: {', '.join(labels[:SHOWN_LABELS])}{more}")
        yield row("scores", {"none": "the raw logits"}.get(found["function"], found["function"]))
        yield row("limits", f"{found['max_tokens']} tokens a text with specials, "
                            f"{'pairs' if found['takes_pairs'] else 'no pairs'}, vocabulary "
                            f"{found['vocab_size']:,}")
        yield row("precision", f"{' or '.join(found['precisions'])}: {found['precision_why']}")
        stored = ", ".join(f"{size:,} bytes of {dtype}"
                           for dtype, size in found["weight_bytes"].items())
        yield row("weights", f"{found['parameters']:,} parameters, {stored or 'none'}")
        yield row("tokenizer", f"{found['tokenizer_bytes']:,} bytes of tables")
    for name, size in found["files"].items():
        yield row("file", f"{name} {size:,} bytes")


def _print_ids(path: str, texts: str) -> int:
    tokenizer, limit = _tokenizer(path)
    try:
        source = sys.stdin.buffer if texts == "-" else open(texts, "rb")
    except OSError as error:
        raise CheckpointError(f"{texts}: {error.strerror}") from None
    with source:
        for number, line in numbered_lines(source):
            try:
                if line is None:
                    raise LineError("the line is too long")
                item = read_jsonl(line)
            except LineError as error:
                place = "standard input" if texts == "-" else texts
                raise CheckpointError(f"{place}:{number}: {error}.") from None
            print(json.dumps(tokenizer.encode(item.text, item.pair, limit).ids))
    return 0


def _tokenizer(path: str) -> tuple[Tokenizer, int]:
    """The folder's tokenizer and how many tokens a text may have."""
    with Folder(path) as folder:
        if not folder.has("config.json"):
            return open_tokenizer(compile_tokenizer(_as_it_stands(folder))), NO_LIMIT
    prepared = prepare(path, model_name(path), FAMILIES)
    _close(prepared)
    return open_tokenizer(prepared.tokenizer), prepared.card["max_tokens"]


def _as_it_stands(folder: Folder) -> TokenizerFiles:
    """The tokenizer's files where no model is; tokenizer.json alone counts as it stands.

    A BERT model takes its casing from tokenizer_config.json, or lower-cases without one, whatever
    tokenizer.json says; but where neither is, nothing tells of BERT.
    """
    files, sources = read_tokenizer(folder)
    normalizer = (files.tokenizer_json or {}).get("normalizer")
    if "tokenizer_config.json" in sources or not isinstance(normalizer, dict) \
            or normalizer.get("type") != "BertNormalizer":
        return files
    keys = {"do_lower_case": "lowercase", "strip_accents": "strip_accents",
            "tokenize_chinese_chars": "handle_chinese_chars"}
    return files._replace(tokenizer_config={
        ours: normalizer[theirs] for ours, theirs in keys.items() if theirs in normalizer})


if __name__ == "__main__":
    sys.exit(main())
