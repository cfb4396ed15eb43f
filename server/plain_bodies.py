"""JSON bodies that hold one text and nothing else, to token ids.

Where the CPU has the vectors and the tokeniser cuts at spaces, machine code looks the text's chunks
up as they lie in the body (model/native/known_chunks.py), which touches far less memory than
Python's strings and tables. A chunk gets into its table from here alone: if a body of it alone is
sound, and with the ids that the tokeniser gives what it says. So what is found is what the general
way would give, and all that it refuses is not found.
"""

from array import array

from loader.tokenizers.id_runs import IdRuns
from loader.tokenizers.table import Tokenizer
from model.native.cpu import has_vectors
from model.native.known_chunks import CHUNK_BYTES, LINE, KnownChunks
from server.body import read_plain

# A longer text may have so many chunks that looking it up again after each new one takes long.
LONGEST_BYTES = 1 << 10
NEW_CHUNKS = 16             # of one text, at most


class PlainBodies:
    """Reads such bodies for one model; `runs` is the tokeniser's, of the same `code` and
    `max_tokens`. Not for several threads at once."""

    def __init__(self, tokenizer: Tokenizer, runs: IdRuns, code: str, max_tokens: int) -> None:
        self._tokenizer, self._runs, self._code = tokenizer, runs, code
        self._id_bytes = array(code).itemsize
        self._known = self._table(max_tokens * self._id_bytes)
        if self._known is not None:
            self._look_up, self._written = self._known.look_up, self._known.written

    def _table(self, most_bytes: int) -> KnownChunks | None:
        if not self._tokenizer.cuts_at_spaces or not has_vectors():
            return None
        frame = self._tokenizer.frame
        start, end = self._bytes(frame.start), self._bytes(frame.end)
        if max(len(start), len(end)) > LINE:
            return None
        try:
            return KnownChunks((start, end), most_bytes)
        except OSError:
            return None     # the system lets no file in memory run

    def _bytes(self, ids: list[int]) -> bytes:
        return array(self._code, ids).tobytes()

    def encode(self, data: bytes, begin: int) -> tuple[int, int, bytes, bool] | None:
        """What `IdRuns.encode` gives for the text of the body data[begin:]; None where the body is
        none that `read_plain` reads."""
        if self._known is not None:
            at = begin + 10 if data.startswith(b'{"text": "', begin) \
                else begin + 9 if data.startswith(b'{"text":"', begin) else len(data)
            end = len(data) - 2
            if at <= end <= at + LONGEST_BYTES and data.endswith(b'"}'):
                found = self._look_up(data, at, end)
                if found < 0:
                    found = self._learn(data, at, end, ~found)
                if found >= 0:
                    tokens = (found - LINE) // self._id_bytes
                    return tokens, tokens, self._written[LINE:found], False
        text = read_plain(data[begin:])
        return None if text is None else self._runs.encode(text, None)

    def _learn(self, data: bytes, begin: int, end: int, missing: int) -> int:
        """What is found after the chunk at `missing`, and those that are missing then, were put
        into the table; negative where one does not belong there, or has no room."""
        for _ in range(NEW_CHUNKS):
            if missing == end:
                return -1
            stop = data.find(b" ", missing, end)
            chunk = data[missing:end if stop < 0 else stop]
            # A JSON string is sound if its chunks are, since no escape and no character holds the
            # byte of a space; pairs of escapes that make one character stand side by side.
            text = read_plain(b'{"text": "%b"}' % chunk) if len(chunk) <= CHUNK_BYTES else None
            if text is None or not self._known.add(chunk, self._bytes(self._tokenizer.ids(text))):
                return -1
            found = self._look_up(data, begin, end)
            if found >= 0:
                return found
            missing = ~found
        return -1
