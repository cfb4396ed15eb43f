"""Plain bodies, by machine code or not: ids of the general way, and refused where it refuses."""

import json
import random
import struct

import pytest

from loader.checkpoint import Folder
from loader.tokenizer_files import read_tokenizer
from loader.tokenizers.id_runs import IdRuns
from loader.tokenizers.table import compile_tokenizer, open_tokenizer
from model.native import cpu
from server import plain_bodies
from server.body import read_plain
from server.plain_bodies import LONGEST_BYTES, PlainBodies

HEAD = b"POST /infer HTTP/1.1\r\n\r\n"
WORDS = ["win", "a", "free", "phone", "", "x" * 40, "don't", "[SEP]", "\u00a3100", "\u4e2d\u4e2d",
         "e\u0301", "\u200b", "\U0001f600", "\x7f", "\u0085", "\u2028", "\ufeff", "Free", "FREE!!!",
         "..................", "a" * 32, "\u00e9" * 17,
         'so-called "art"', "a\\b", "tab\there", "line\n", "\x01", '"']
BROKEN = [b'{"text": "a"', b'{"text": "a"b"}', b'{"text": "a\\"}', b'{"text": "}', b'{"text": "',
          b'{"text": "a", "text": "b"}', b'{"text": "\xff"}', b'{"text": "a \xc3"}',
          b'{"text": "\xed\xa0\x80"}', b'{"text": "\xc3 \xa9"}', b'{"text": "a\x00"}',
          b'{"text": "a\x1fb"}', b'{"text": "a\nb"}', b'{"text": "\\ud800"}', b'{"text": ""}} ',
          b'{"text" : "a"}', b'{"texts": "a"}', b"", b'"}', b'{"text": 1"}', b'{"text":""}',
          b'{"text": "\\u0061 b"}', b'{"text": "a\tb"}',
          b'{"text": "\\ud83d \\ude00"}', b'{"text": "a\\ud83d\\ude00 \\u0020\\n"}',
          b'{"text": "a\\ b"}', b'{"text": "a\\u00 e9"}', b'{"text": "\\ a"}', b'{"text": "a"} "}',
          b'{"text": "' + b"ab " * 999 + b'"}',
          b'{"text":"tight  spaces "}', b'{"text": "' + b"y" * 4000 + b'"}']


def opened(path):
    with Folder(str(path)) as folder:
        return open_tokenizer(compile_tokenizer(read_tokenizer(folder)[0]))


def bodies(rng, count):
    """Sound ones of few words that come again, a byte of some changed."""
    for _ in range(count):
        text = " ".join(rng.choices(WORDS, k=rng.randrange(14)))
        body = json.dumps({"text": text}, ensure_ascii=rng.random() < 0.1).encode()
        if rng.random() < 0.2:
            at = rng.randrange(len(body))
            body = body[:at] + rng.randbytes(rng.randrange(2)) + body[at + 1:]
        yield body
        if rng.random() < 0.05:
            yield rng.choice(BROKEN)


def general(runs, body):
    text = read_plain(body)
    return None if text is None else runs.encode(text, None)


class Counted:
    """Counts how often machine code found all of a text."""

    def __init__(self, plain):
        self.found, self._look_up = 0, plain._look_up
        plain._look_up = self.look_up

    def look_up(self, *arguments):
        where = self._look_up(*arguments)
        self.found += where >= 0
        return where


@pytest.mark.parametrize("name", ["bert", "bert-cased", "bert-added-flags", "bert-uncased-keep",
                                  "roberta", "xlm-roberta"])
@pytest.mark.parametrize("code", ["H", "I"])
def test_plain_bodies_give_what_the_general_way_gives(shared, name, code):
    rng = random.Random(name + code)
    tokenizer = opened(shared / "checkpoints" / name)
    for limit in (9, 60):
        runs = IdRuns(tokenizer, code, limit)
        plain = PlainBodies(tokenizer, runs, code, limit)
        counted = Counted(plain) if tokenizer.cuts_at_spaces and cpu.has_vectors() else None
        asked = [*bodies(rng, 800), *BROKEN]
        for body in asked:
            assert plain.encode(HEAD + body, len(HEAD)) == general(runs, body), body
        assert counted is None or counted.found > len(asked) // 8


@pytest.mark.parametrize("name", ["sms_spam/eval.tsv", "trec6/eval.tsv", "traffic/short.tsv"])
def test_plain_bodies_real_texts_give_what_the_general_way_gives(shared, repo, name):
    tokenizer = opened(repo / "models" / "sms-spam")
    runs = IdRuns(tokenizer, "H", 512)
    plain = PlainBodies(tokenizer, runs, "H", 512)
    lines = (shared / "data" / name).read_text("utf-8").splitlines()
    for line in lines[:1200] * 2:
        body = json.dumps({"text": line.rsplit("\t", 1)[-1]}, ensure_ascii=False).encode()
        assert plain.encode(body, 0) == general(runs, body)


@pytest.mark.skipif(not cpu.has_vectors(), reason="no machine code on this CPU")
def test_plain_bodies_known_text_needs_no_string(shared, monkeypatch):
    tokenizer = opened(shared / "checkpoints" / "bert")
    plain = PlainBodies(tokenizer, IdRuns(tokenizer, "H", 60), "H", 60)
    body = '{"text": "win  \u00a3100 now"}'.encode()
    first = plain.encode(body, 0)
    monkeypatch.setattr(plain_bodies, "read_plain", None)
    assert plain.encode(body, 0) == first
    longer = b'{"text": "' + b"win " * (LONGEST_BYTES // 4 + 1) + b'"}'
    with pytest.raises(TypeError):
        plain.encode(longer, 0)


def test_plain_bodies_long_frame_is_the_general_ways(shared):
    tokenizer = opened(shared / "checkpoints" / "bert")
    tokenizer.frame = tokenizer.frame._replace(start=[7] * 40)
    runs = IdRuns(tokenizer, "H", 60)
    body = b'{"text": "win a phone"}'
    assert PlainBodies(tokenizer, runs, "H", 60).encode(body, 0) == general(runs, body)


def refuse(*_):
    raise OSError("no file in memory runs here")


@pytest.mark.parametrize("name, stand_in", [("has_vectors", lambda: False),
                                            ("KnownChunks", refuse)])
def test_plain_bodies_without_machine_code_are_read_too(shared, monkeypatch, name, stand_in):
    monkeypatch.setattr(plain_bodies, name, stand_in)
    tokenizer = opened(shared / "checkpoints" / "bert")
    runs = IdRuns(tokenizer, "H", 60)
    plain = PlainBodies(tokenizer, runs, "H", 60)
    for body in (b'{"text": "win a phone"}', *BROKEN):
        assert plain.encode(HEAD + body, len(HEAD)) == general(runs, body)
    assert struct.unpack("<H", plain.encode(b'{"text": ""}', 0)[2][:2])[0] == \
        tokenizer.frame.start[0]
