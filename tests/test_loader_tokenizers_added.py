"""Added tokens: what each flag does, the two passes, and what is refused."""

import json
import random
import re

import pytest

from loader.errors import CheckpointError
from loader.tokenizers import added
from loader.tokenizers.added import AddedTokens, compile_added
from loader.tokenizers.code_points import SPACES, code_points

WHITE = "".join(code_points(SPACES))


def token(content, number, **flags):
    return {"content": content, "id": number, "special": False, "normalized": False,
            "lstrip": False, "rstrip": False, "single_word": False, **flags}


def table(*tokens, vocab=None):
    return {"model": {"vocab": {"x": 0} if vocab is None else vocab}, "added_tokens": list(tokens)}


def added_tokens(*contents, normalize=str, **flags):
    """Tokens from id 1 on, all with these flags."""
    return AddedTokens(compile_added(table(*(
        token(content, number, **flags) for number, content in enumerate(contents, 1)))), normalize)


@pytest.mark.parametrize("flags,text,pieces", [
    ({}, "a<m>b", ["a", 1, "b"]),
    ({}, "<m><m>", [1, 1]),
    ({}, " <m> ", [" ", 1, " "]),
    ({}, "<M>", ["<M>"]),
    ({}, "", []),
    ({"lstrip": True}, "a \u3000\n<m> b", ["a", 1, " b"]),
    ({"lstrip": True}, " <m>", [1]),
    ({"lstrip": True}, "a\x1c<m>", ["a\x1c", 1]),
    ({"rstrip": True}, "a <m> \x85\tb", ["a ", 1, "b"]),
    ({"lstrip": True, "rstrip": True}, "<m>  <m> a", [1, 1, "a"]),
    ({"single_word": True}, "<m>", [1]),
    ({"single_word": True}, "a<m> <m>b (<m>)", ["a<m> <m>b (", 1, ")"]),
    ({"single_word": True}, "é<m> _<m> \u0301<m> \u200d<m> ٣<m> -<m>",
     ["é<m> _<m> \u0301<m> \u200d<m> ٣<m> -", 1]),
])
def test_added_token_flags_decide_what_it_takes(flags, text, pieces):
    assert list(added_tokens("<m>", **flags).raw(text)) == pieces


def test_added_tokens_leftmost_and_of_those_the_longest_wins():
    tokens = added_tokens("[AB]", "[AB]C", "bc", "abcd", "abd")
    assert list(tokens.raw("[AB]C[AB]D")) == [2, 1, "D"]
    assert list(tokens.raw("abc abd")) == ["a", 3, " ", 5]


def test_added_token_discarded_as_part_of_a_word_hides_what_it_covers():
    tokens = AddedTokens(compile_added(table(token("ab", 1, single_word=True), token("b", 2))))
    assert list(tokens.raw("xab b")) == ["xab ", 2]


def test_added_tokens_normalized_ones_are_found_in_normalised_text_only():
    tokens = AddedTokens(compile_added(table(token("Raw", 1), token("NoRm", 2, normalized=True))),
                         str.lower)
    assert not tokens.is_empty
    assert list(tokens.raw("norm NoRm raw Raw")) == ["norm NoRm raw ", 1]
    assert list(tokens.normalized("norm NoRm raw ")) == [2, " NoRm raw "]


def test_added_tokens_of_two_with_one_normalised_form_the_special_one_counts():
    tokens = AddedTokens(compile_added(table(
        token("AB", 1, normalized=True), token("Ab", 2, normalized=True, special=True),
        token("aB", 3, normalized=True, special=True))), str.lower)
    assert list(tokens.normalized("ab")) == [2]


def test_added_tokens_none_give_the_text_back():
    tokens = AddedTokens(compile_added(table()))
    assert tokens.is_empty
    assert list(tokens.raw("a <m>")) == ["a <m>"] and list(tokens.normalized("")) == []


def slowly(tokens, text):
    """The same cut, one place and one token at a time."""
    pieces, begun, at = [], 0, 0
    while at < len(text):
        here = [one for one in tokens if text.startswith(one["content"], at)]
        if not here:
            at += 1
            continue
        found = max(here, key=lambda one: len(one["content"]))
        start, at = at, at + len(found["content"])
        if found["single_word"] and (re.match(r"\w", text[:start][-1:])
                                     or re.match(r"\w", text[at:])):
            continue
        end = at
        if found["lstrip"]:
            start = max(len(text[:start].rstrip(WHITE)), begun)
        if found["rstrip"]:
            end += len(text[at:]) - len(text[at:].lstrip(WHITE))
        pieces += [text[begun:start]] * (begun < start) + [found["id"]] * (start < end)
        begun = end
    return pieces + [text[begun:]] * (begun < len(text))


def test_added_tokens_random_ones_in_random_texts_are_cut_as_slowly(monkeypatch):
    monkeypatch.setattr(added, "WINDOW", 3)
    rng, letters = random.Random(7), ["a", "b", " ", "\n", "[", "é", "日", "\u3000"]
    cuts = 0
    for _ in range(300):
        contents = {"".join(rng.choices(letters, k=rng.randint(1, 4))) for _ in range(5)}
        tokens = [token(content, number, **{flag: rng.random() < .3 for flag in
                                            ("lstrip", "rstrip", "single_word")})
                  for number, content in enumerate(sorted(contents), 1)]
        rng.shuffle(tokens)
        fast = AddedTokens(compile_added(table(*tokens, vocab={
            one["content"]: one["id"] for one in tokens})))
        for _ in range(30):
            text = "".join(rng.choices([*letters, *contents], k=rng.randint(0, 12)))
            pieces = slowly(tokens, text)
            assert list(fast.raw(text)) == pieces, (text, tokens)
            cuts += len(pieces) > 2
    assert cuts > 3000


def test_added_tokens_many_and_nested_deep_are_found():
    nested = ["a" * size for size in range(1, 200)]
    tokens = added_tokens(*nested)
    assert list(tokens.raw("b" + "a" * 150 + "b")) == ["b", 150, "b"]
    assert list(tokens.raw("a" * 250)) == [199, 51]


def test_added_tokens_compiled_rows_are_jsonable():
    rows = compile_added(table(token("<m>", 1, lstrip=True)))
    assert list(AddedTokens(json.loads(json.dumps(rows))).raw("a <m>")) == ["a", 1]


def test_added_tokens_of_a_listed_vocabulary_are_counted_behind_it():
    rows = compile_added(table(token("<s>", 0), token("[M]", 2),
                               vocab=[["<s>", 0.0], ["b", -1.0]]))
    assert [row[:2] for row in rows] == [["<s>", 0], ["[M]", 2]]


@pytest.mark.parametrize("tokens,fault", [
    ({"a": 1}, "added_tokens is not a list"),
    (["a"], "holds 'a', not a token"),
    ([token("", 1)], "not a token with content"),
    ([token("m", -1)], "not a token with content"),
    ([token("m", True)], "not a token with content"),
    ([token("m", 1), token("m", 1)], "'m' is given twice"),
    ([token("x", 1)], "'x' has the id 1 as an added token and 0 in the vocabulary"),
    ([token("m", 5)], "'m' has the id 5 as an added token and 1 by the reference's count"),
    ([token("m", 1, lstrip=1)], "a flag of the added token 'm'"),
])
def test_added_tokens_faulty_file_is_refused(tokens, fault):
    with pytest.raises(CheckpointError, match=fault):
        compile_added({"model": {"vocab": {"x": 0}}, "added_tokens": tokens})
