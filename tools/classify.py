"""`python -m tools.classify`: all texts of a file through the engines, results in its order."""

import argparse
import contextlib
import functools
import os
import re
import sys
from pathlib import Path
from typing import BinaryIO

from loader.errors import CheckpointError
from server.cores import usable_cores
from server.settings import DEFAULT_MODEL
from tools.offline.crew import Crew, CrewError
from tools.offline.loading import load_worker
from tools.offline.progress import Progress
from tools.offline.source import STANDARD_INPUT, Lines, Records, Shard, Source, SourceError
from tools.offline.target import TargetError, open_target
from tools.offline.worker import ItemReader, Worker, read_record
from tools.texts.formats import FIELDS, read_columns, read_jsonl, read_tsv

SOME_BAD, REFUSED, ENGINES_DIED, INTERRUPTED = 1, 2, 3, 130
RECORDS = "records"
PRECISIONS = ("auto", "fp32", "bf16", "fp16", "int8")
FORMATS = ("jsonl", "tsv", RECORDS)


class Refusal(Exception):
    """Why nothing is classified: one sentence with the way out."""


def main(argv: list[str] | None = None) -> int:
    """0 when every text was classified, 1 when some were bad, 2 when it could not begin (or go on
    reading), 3 when the engines died on and on, 130 after Ctrl-C."""
    chosen = _parser().parse_args(argv)
    try:
        return _classify(chosen)
    except (Refusal, CheckpointError, SourceError, TargetError) as refusal:
        print(refusal, file=sys.stderr)
        return REFUSED
    except CrewError as error:
        print(error, file=sys.stderr)
        return ENGINES_DIED
    except BrokenPipeError:  # as of `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return SOME_BAD
    except OSError as error:
        print(f"{error.filename or chosen.texts}: {error.strerror}.", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("\nstopped; go on with --skip and the number of whole results that were written",
              file=sys.stderr)
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.classify", allow_abbrev=False,
        description="Classify every text of a file on all cores. The results come in the order of "
                    "the file, one for each line or record, and their bytes do not depend on the "
                    "number of engines. A line that is no text is told by number and has "
                    "{\"error\"} as its result; then the exit status is 1.")
    parser.add_argument("texts", metavar="TEXTS",
                        help="the file; - is the standard input, for lines")
    parser.add_argument("--model", metavar="DIR", default=DEFAULT_MODEL,
                        help="checkpoint folder or bundle (default: the shipped sms-spam)")
    parser.add_argument("--precision", choices=PRECISIONS, default="auto",
                        help="arithmetic of the model; auto takes fp32, or the fastest of a "
                             "bundle's here: say one where several machines must agree to the "
                             "last digit (default: auto)")
    parser.add_argument("--format", choices=FORMATS,
                        help="of TEXTS; otherwise the end of its name says it: .jsonl ({\"text\", "
                             "\"text_pair\"?, \"user_id\"?} a line), .tsv, or any other for a "
                             "packed record file")
    parser.add_argument("--columns", type=read_columns, default=FIELDS, metavar="NAMES",
                        help="the columns of a TSV file in order; others than text, text_pair and "
                             "user_id are left out: label,text reads label<TAB>text")
    parser.add_argument("-o", "--out", metavar="FILE", type=Path,
                        help="write there and not to the standard output; with --skip, results "
                             "that FILE holds of as many texts are kept")
    parser.add_argument("--to", choices=("jsonl", RECORDS), default="jsonl",
                        help="jsonl: {\"label\", \"score\", \"scores\", \"tokens\", "
                             "\"truncated\", \"user_id\"?} a line; records: the 16 bytes of the "
                             "binary answer, for record files (default: jsonl)")
    parser.add_argument("--engines", type=_count, default=usable_cores(), metavar="N",
                        help="processes that classify (default: the usable cores)")
    parser.add_argument("--skip", type=_whole, default=0, metavar="N",
                        help="leave out the first N lines or records (of the shard)")
    parser.add_argument("--shard", type=_shard, default=Shard(), metavar="K/N",
                        help="only the Kth of N parts, from 0/N to N-1/N; their results one after "
                             "another are those of the whole file")
    return parser


def _classify(chosen: argparse.Namespace) -> int:
    kind = chosen.format or _kind(chosen.texts)
    if chosen.texts == STANDARD_INPUT and (kind == RECORDS or chosen.shard.count > 1):
        raise Refusal("the standard input holds lines and is read as a whole; give the name of a "
                      "file for records or --shard.")
    if chosen.to == RECORDS and kind != RECORDS:
        raise Refusal(f"{chosen.texts}: --to records answers record files; pack the texts with "
                      "tools.pack, or leave it out.")
    with contextlib.closing((Records if kind == RECORDS else Lines)(
            chosen.texts, chosen.shard, chosen.skip)) as source:
        worker = _worker(chosen, _reader(kind, chosen.columns))
        with open_target(chosen.out, chosen.texts, chosen.skip, chosen.to == RECORDS) as out, \
                Crew(worker, chosen.engines) as crew:
            bad = _write(chosen.texts, source, crew, out)
    return SOME_BAD if bad else 0


def _write(name: str, source: Source, crew: Crew, out: BinaryIO) -> int:
    """Writes all results; the number of bad texts."""
    progress, texts, bad = Progress(), 0, 0
    for answered in crew.classify(source):
        if answered is not None:
            out.write(answered.output)
            texts += answered.count
            bad += len(answered.faults)
            for number, reason in answered.faults:
                print(f"{name}:{number}: {reason}", file=sys.stderr)
        progress.show(texts, source.done and source.done * texts / max(1, crew.taken))
    out.flush()
    progress.finish(texts, bad, crew.deaths)
    return bad


def _worker(chosen: argparse.Namespace, read: ItemReader) -> Worker:
    try:
        worker, words = load_worker(chosen.model, chosen.precision, read, chosen.to == RECORDS)
    except ArithmeticError as error:
        raise Refusal(f"{error}.") from None
    print(words, file=sys.stderr)
    return worker


def _reader(kind: str, columns: tuple[str, ...]) -> ItemReader:
    return {"jsonl": read_jsonl, "tsv": functools.partial(read_tsv, columns=columns),
            RECORDS: read_record}[kind]


def _kind(path: str) -> str:
    suffix = Path(path).suffix.lower().removeprefix(".")
    if path == STANDARD_INPUT:
        return "jsonl"
    return suffix if suffix in FORMATS else RECORDS


def _count(text: str) -> int:
    if not re.fullmatch("[1-9][0-9]{0,3}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 9999")
    return int(text)


def _whole(text: str) -> int:
    if not re.fullmatch("[0-9]{1,15}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def _shard(text: str) -> Shard:
    match = re.fullmatch("([0-9]{1,6})/([1-9][0-9]{0,5})", text)
    if not match or int(match[1]) >= int(match[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not K/N with K from 0 to N-1, such as 0/4")
    return Shard(int(match[1]), int(match[2]))


if __name__ == "__main__":
    sys.exit(main())
