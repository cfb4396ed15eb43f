"""Texts to runs of id bytes, as they travel to an engine.

A front asks for nothing else, and a short text's run is joined from those of its chunks: no number
is made in between, which for 25 tokens takes half as long.
"""

from __future__ import annotations

from array import array

from loader.tokenizers.encoding import WHOLE_CHARACTERS, Tokenizer


class IdRuns:
    """A tokeniser's encodings as runs; `code` is the array module's, "H" or "I", and all ids fit.

    Not for several threads at once.
    """

    def __init__(self, tokenizer: Tokenizer, code: str, max_tokens: int) -> None:
        frame = tokenizer.frame
        self._tokenizer, self._code, self._max_tokens = tokenizer, code, max_tokens
        self._join = tokenizer.joiner(code)
        self._id_bytes = array(code).itemsize
        self._start, self._end = (len(ids) * self._id_bytes for ids in (frame.start, frame.end))
        self._cuts_left = tokenizer.cuts_left

    def encode(self, text: str, pair: str | None) -> tuple[int, int, bytes, bool]:
        """What Tokenizer.encode gives for `max_tokens`: (how many ids, how many of them have type
        0, the ids as native integers, whether something was cut off)."""
        if pair or len(text) > WHOLE_CHARACTERS:
            ids, split, is_cut = self._tokenizer.encode(text, pair, self._max_tokens)
            return len(ids), split, array(self._code, ids).tobytes(), is_cut
        ids = self._join(text)
        tokens = len(ids) // self._id_bytes
        if tokens <= self._max_tokens:
            return tokens, tokens, ids, False
        return self._max_tokens, self._max_tokens, self._cut(ids), True

    def _cut(self, ids: bytes) -> bytes:
        """As many as may be, with the whole frame."""
        start, end = self._start, len(ids) - self._end      # where the text's own begin and end
        room = self._max_tokens * self._id_bytes - self._start - self._end
        kept = ids[end - room:end] if self._cuts_left else ids[start:start + room]
        return ids[:start] + kept + ids[end:]
