"""What an engine does with a part: read its texts, tokenise, run the program, render results."""

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from loader.tokenizers.table import Tokenizer
from loader.wire import FAILED, NOT_UTF8, record_at
from model.program import Program
from model.program import Row as TokenRow
from model.programs.packing import cut
from server.answer import RECORD_ERRORS, Renderer, Row
from server.body import TextItem
from tools.texts.formats import LineError

ID_TYPES = {2: np.uint16, 4: np.uint32}
# Turns a raw item into a text. Raises LineError.
ItemReader = Callable[[bytes], TextItem]


class Result(NamedTuple):
    """The rendered results of a part's items, in order, and (index in the part, reason) of each
    that could not be classified."""

    output: bytes
    faults: list[tuple[int, str]]


class Text(NamedTuple):
    """An item that can be run."""

    index: int
    user_id: int | str | None
    row: TokenRow
    truncated: bool


class Worker:
    """Classifies parts with one model; `as_records` asks for 16 bytes an item, not JSON lines."""

    def __init__(self, card: dict, tokenizer: Tokenizer, program: Program, read: ItemReader,
                 as_records: bool) -> None:
        self._card = card
        self._tokenizer = tokenizer
        self.program = program
        self._read = read
        self._as_records = as_records
        self._renderer = Renderer(card)
        self._id_type = ID_TYPES[card["id_bytes"]]

    def classify(self, items: Sequence[bytes | None]) -> Result:
        """The results do not depend on how the input was divided into parts, not by a bit."""
        texts: list[Text] = []
        rendered: list[bytes] = [b""] * len(items)
        faults = []
        for index, item in enumerate(items):
            try:
                texts.append(self.text(index, item))
            except LineError as fault:
                rendered[index] = self._fault(item, str(fault))
                faults.append((index, str(fault)))
        # Full batches of like lengths: what is padded inside a batch is padded least.
        texts.sort(key=lambda text: len(text.row.ids))
        by_row = {id(text.row): text for text in texts}
        for rows in cut([text.row for text in texts], self.program.token_cap):
            for row, logits in zip(rows, self._run(rows)):
                text = by_row[id(row)]
                rendered[text.index] = self._render(text, logits)
                if logits is None:
                    faults.append((text.index, RECORD_ERRORS[FAILED]))
        return Result(b"".join(rendered), sorted(faults))

    def fail(self, items: Sequence[bytes | None]) -> Result:
        """The results of items that no engine survived."""
        reason = RECORD_ERRORS[FAILED]
        return Result(b"".join(self._fault(item, reason) for item in items),
                      [(index, reason) for index in range(len(items))])

    def text(self, index: int, item: bytes | None) -> Text:
        """One item as token ids; LineError where it is no text."""
        if item is None:
            raise LineError("the line is too long")
        text, pair, user_id = self._read(item)
        if pair and self._card["pair_types"] < 2:
            raise LineError("a pair, but this model takes single texts only")
        ids, split, truncated = self._tokenizer.encode(text, pair, self._card["max_tokens"])
        return Text(index, user_id, TokenRow(np.array(ids, self._id_type), split), truncated)

    def _run(self, rows: Sequence[TokenRow]) -> list[list[float] | None]:
        """Logits of each row; None for one that the program fails, run alone then."""
        try:
            logits = self.program.run(rows)
            is_sound = logits.shape == (len(rows), len(self._card["labels"])) \
                and bool(np.isfinite(logits).all())
        except Exception:
            # The input's fault or the program's: either way each row is tried alone.
            is_sound = False
        if is_sound:
            return logits.tolist()
        if len(rows) == 1:
            return [None]
        return [self._run([row])[0] for row in rows]

    def _render(self, text: Text, logits: list[float] | None) -> bytes:
        row = Row(text.user_id, len(text.row.ids), text.truncated, logits,
                  FAILED if logits is None else 0)
        winner = None if logits is None else self._renderer.winner(row)
        if self._as_records:
            return self._renderer.record(text.user_id, row, winner)
        return self._renderer.result(row, winner).encode("utf-8") + b"\n"

    def _fault(self, item: bytes | None, reason: str) -> bytes:
        """The result of an item that is no text."""
        if not self._as_records:
            return json.dumps({"error": reason}, ensure_ascii=False).encode("utf-8") + b"\n"
        status = NOT_UTF8 if reason == RECORD_ERRORS[NOT_UTF8] else FAILED
        number = record_at(item, 0).user_id
        return self._renderer.record(number, Row(number, 0, False, None, status), None)


def read_record(item: bytes) -> TextItem:
    """The text of one raw record of the wire format."""
    record = record_at(item, 0)
    try:
        pair = None if record.pair is None else record.pair.decode("utf-8")
        return TextItem(record.text.decode("utf-8"), pair, record.user_id)
    except UnicodeDecodeError:
        raise LineError(RECORD_ERRORS[NOT_UTF8]) from None
