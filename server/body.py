"""Request bodies in JSON or plain text, read by shape: what is not a classify request is refused.

A general JSON reader builds whatever it is sent before anyone looks at it (4 MiB of `[]` cost the
standard one 360 ms). This one knows the request's shape, so it stops at the first token that does
not fit, and its work is one pass over the text. Strings go through the standard library's scanner.
"""

import re
from json.decoder import JSONDecodeError, scanstring
from typing import NamedTuple

from server.errors import ClientError

USER_ID_LIMIT = 1 << 64
USER_ID_CHARACTERS = 128
_SPACE = re.compile(r"[ \t\n\r]*")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)(?![0-9.eE])")
_SURROGATE = re.compile("[\ud800-\udfff]")


class TextItem(NamedTuple):
    """One text to classify; `pair` is None without a second text, `user_id` as it was sent."""

    text: str
    pair: str | None
    user_id: int | str | None


class ClassifyBody(NamedTuple):
    """A classify request: its texts in order, whether it asked for many, and its options."""

    texts: list[TextItem]
    many: bool
    logits: bool
    top_k: int | None


def read_text(body: bytes) -> ClassifyBody:
    """The request of a text/plain body: the body is the text. Raises ClientError."""
    return ClassifyBody([TextItem(_decode(body), None, None)], False, False, None)


def read_json(body: bytes, max_texts: int) -> ClassifyBody:
    """The request of a JSON body.

    Raises ClientError: 400 invalid_json, invalid_utf8 (also for lone surrogates) or invalid_field,
    413 too_large for more than `max_texts` texts.
    """
    text = read_plain(body)
    if text is not None:
        return ClassifyBody([TextItem(text, None, None)], False, False, None)
    return _Reader(_decode(body), max_texts).read()


def read_plain(body: bytes) -> str | None:
    """The text of a JSON body that holds nothing but one, as most do; None for every other, sound
    or not, and for some that do."""
    at = 10 if body.startswith(b'{"text": "') else 9 if body.startswith(b'{"text":"') else 0
    if not at:
        return None
    try:
        source = body.decode()
        text, end = scanstring(source, at, True)
    except (UnicodeDecodeError, JSONDecodeError):
        return None
    if source[end:] != "}" or ("\\u" in source and _SURROGATE.search(text)):
        return None
    return text


def _decode(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ClientError(400, "invalid_utf8", f"the body is not UTF-8 at byte {error.start}; "
                          "encode it as UTF-8") from None


class _Reader:
    """One pass over a request's text; each method starts at a position and returns the next."""

    def __init__(self, source: str, max_texts: int) -> None:
        self.source = source
        self.max_texts = max_texts
        # A strictly decoded body holds surrogates only where an escape wrote one.
        self.has_escapes = "\\u" in source

    def read(self) -> ClassifyBody:
        found, at = self._object(self._skip(0), self._request_value, "the request")
        at = self._skip(at)
        if at != len(self.source):
            raise self._broken(at, "the end of the body")
        many = found.get("texts") is not None
        if many:
            for key in ("text", "text_pair", "user_id"):
                if found.get(key) is not None:
                    raise _field(f"{key} and texts exclude each other; put {key} into the texts")
            texts = found["texts"]
        elif "text" in found:
            texts = [TextItem(found["text"], found.get("text_pair") or None, found.get("user_id"))]
        else:
            raise _field("text is missing; send {\"text\": \"…\"} or {\"texts\": [\"…\"]}")
        return ClassifyBody(texts, many, bool(found.get("logits")), found.get("top_k"))

    def _request_value(self, key: str, at: int) -> tuple[object, int]:
        if key == "logits":
            return self._boolean(key, at)
        if key == "top_k":
            return self._top_k(at)
        if key == "texts":
            return self._texts(at)
        return self._item_value(key, at)

    def _item_value(self, key: str, at: int) -> tuple[object, int]:
        if key == "text":
            return self._string(key, at)
        if key == "text_pair":
            return self._null(at) or self._string(key, at)
        if key == "user_id":
            return self._user_id(at)
        raise _field(f"{key[:40]!r} is not a key of a request; the keys are text, text_pair, "
                     "texts, user_id, logits and top_k")

    def _object(self, at: int, value_of, name: str) -> tuple[dict[str, object], int]:
        """The members of an object, each read by `value_of(key, at)`."""
        source = self.source
        if source[at:at + 1] != "{":
            raise self._mistyped(at, name, "an object")
        found: dict[str, object] = {}
        at = self._skip(at + 1)
        if source[at:at + 1] == "}":
            return found, at + 1
        while True:
            if source[at:at + 1] != '"':
                raise self._broken(at, "a key in double quotes")
            key, at = self._scan(at)
            at = self._skip(at)
            if source[at:at + 1] != ":":
                raise self._broken(at, "':'")
            if key in found:
                raise _field(f"{key[:40]!r} is given twice; send it once")
            found[key], at = value_of(key, self._skip(at + 1))
            at = self._skip(at)
            mark = source[at:at + 1]
            if mark == "}":
                return found, at + 1
            if mark != ",":
                raise self._broken(at, "',' or '}'")
            at = self._skip(at + 1)

    def _texts(self, at: int) -> tuple[list[TextItem] | None, int]:
        null = self._null(at)
        if null:
            return null
        if self.source[at:at + 1] != "[":
            raise self._mistyped(at, "texts", "an array")
        texts: list[TextItem] = []
        at = self._skip(at + 1)
        if self.source[at:at + 1] == "]":
            raise _field("texts is empty; send at least one text")
        while True:
            if len(texts) == self.max_texts:
                raise ClientError(413, "too_large", f"texts holds more than {self.max_texts} "
                                  "texts; send them in several requests")
            item, at = self._item(len(texts), at)
            texts.append(item)
            at = self._skip(at)
            mark = self.source[at:at + 1]
            if mark == "]":
                return texts, at + 1
            if mark != ",":
                raise self._broken(at, "',' or ']'")
            at = self._skip(at + 1)

    def _item(self, index: int, at: int) -> tuple[TextItem, int]:
        """An element of texts: "text", ["text", "pair"] or {"text": …}."""
        name, mark = f"texts[{index}]", self.source[at:at + 1]
        if mark == '"':
            text, at = self._string(name, at)
            return TextItem(text, None, None), at
        if mark == "{":
            found, at = self._object(at, self._item_value, name)
            if "text" not in found:
                raise _field(f"{name} has no text")
            return TextItem(found["text"], found.get("text_pair") or None,
                            found.get("user_id")), at
        if mark == "[":
            text, at = self._string(name + "[0]", self._skip(at + 1))
            at = self._skip(at)
            if self.source[at:at + 1] != ",":
                raise _field(f"{name} must be [text, pair]")
            at = self._skip(at + 1)
            pair, at = self._null(at) or self._string(name + "[1]", at)
            at = self._skip(at)
            if self.source[at:at + 1] != "]":
                raise _field(f"{name} must be [text, pair]")
            return TextItem(text, pair or None, None), at + 1
        raise self._mistyped(at, name, "a string, [text, pair] or an object")

    def _string(self, name: str, at: int) -> tuple[str, int]:
        if self.source[at:at + 1] != '"':
            raise self._mistyped(at, name, "a string")
        return self._scan(at)

    def _scan(self, at: int) -> tuple[str, int]:
        try:
            text, end = scanstring(self.source, at + 1, True)
        except JSONDecodeError as error:
            raise ClientError(400, "invalid_json", f"the body is not JSON: {error.msg} "
                              f"character {error.pos}") from None
        if self.has_escapes and _SURROGATE.search(text):
            raise ClientError(400, "invalid_utf8", "a string has a lone surrogate escape, which "
                              "is no character; send surrogates in pairs")
        return text, end

    def _user_id(self, at: int) -> tuple[int | str | None, int]:
        null = self._null(at)
        if null:
            return null
        if self.source[at:at + 1] == '"':
            text, at = self._scan(at)
            if len(text) > USER_ID_CHARACTERS:
                raise _field(f"user_id has {len(text)} characters, the limit is "
                             f"{USER_ID_CHARACTERS}")
            return text, at
        value, at = self._integer("user_id", at, "an unsigned 64-bit integer or a string")
        if not 0 <= value < USER_ID_LIMIT:
            raise _field("user_id must lie between 0 and 2^64 - 1; send larger ones as strings")
        return value, at

    def _top_k(self, at: int) -> tuple[int | None, int]:
        null = self._null(at)
        if null:
            return null
        value, at = self._integer("top_k", at, "a positive integer")
        if value < 1:
            raise _field("top_k must be at least 1")
        return value, at

    def _integer(self, name: str, at: int, wanted: str) -> tuple[int, int]:
        found = _INTEGER.match(self.source, at)
        if not found:
            raise self._mistyped(at, name, wanted)
        if found.end() - at > 20:
            raise _field(f"{name} is out of range; it must be {wanted}")
        return int(found.group()), found.end()

    def _boolean(self, name: str, at: int) -> tuple[bool | None, int]:
        if self.source.startswith("true", at):
            return True, at + 4
        if self.source.startswith("false", at):
            return False, at + 5
        null = self._null(at)
        if null:
            return null
        raise self._mistyped(at, name, "true or false")

    def _null(self, at: int) -> tuple[None, int] | None:
        return (None, at + 4) if self.source.startswith("null", at) else None

    def _skip(self, at: int) -> int:
        return _SPACE.match(self.source, at).end()

    def _mistyped(self, at: int, name: str, wanted: str) -> ClientError:
        """Another JSON type is a wrong field; what starts no JSON value is broken JSON."""
        mark = self.source[at:at + 1]
        if name != "the request" and mark and (mark in '"{[-0123456789'
                                               or self._literal(at) is not None):
            return _field(f"{name} must be {wanted}")
        if mark and mark in '"[-0123456789':
            return ClientError(400, "invalid_json",
                               "the body must be a JSON object such as {\"text\": \"…\"}")
        return self._broken(at, wanted)

    def _literal(self, at: int) -> str | None:
        words = ("true", "false", "null", "NaN", "Infinity")
        return next((word for word in words if self.source.startswith(word, at)), None)

    def _broken(self, at: int, wanted: str) -> ClientError:
        mark = self.source[at:at + 1]
        if at == 0 and mark == "\ufeff":
            return ClientError(400, "invalid_json",
                               "the body begins with a byte order mark; leave it out")
        seen = "the body ends" if not mark else f"there is {mark!r}"
        return ClientError(400, "invalid_json", f"the body is not JSON: {seen} at character {at} "
                           f"where {wanted} should be")


def _field(message: str) -> ClientError:
    return ClientError(400, "invalid_field", message)
