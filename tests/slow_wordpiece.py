"""WordPiece written straight down, a whole text at a time: what the loader's is held to."""

import re
import unicodedata

from loader.tokenizers import bert_code_points as tables
from loader.tokenizers.bert_normalizer import Casing


def code_points(table):
    """The characters of a table of ranges."""
    return {chr(code) for first, _, last in (span.partition("-") for span in table.split())
            for code in range(int(first, 16), int(last or first, 16) + 1)}


CLEANED, SPACES, IDEOGRAPHS, ACCENTS, PUNCTUATION, INDIVISIBLE = map(code_points, (
    tables.CLEANED, tables.SPACES, tables.IDEOGRAPHS, tables.ACCENTS, tables.PUNCTUATION,
    tables.INDIVISIBLE))
LOWER_CASE = {chr(int(one, 16)): "".join(chr(int(part, 16)) for part in other.split("+"))
              for one, _, other in (item.partition(":") for item in tables.LOWER_CASE.split())}


def decomposed(text):
    """NFD, in which the indivisible ones are like letters."""
    parts, run = [], ""
    for character in text:
        if character in INDIVISIBLE:
            parts += [unicodedata.normalize("NFD", run), character]
            run = ""
        else:
            run += character
    return "".join([*parts, unicodedata.normalize("NFD", run)])


def normalized(text, casing: Casing):
    """BertNormalizer."""
    text = "".join(" " if c in SPACES else c for c in text if c not in CLEANED)
    if casing.split_ideographs:
        text = "".join(f" {c} " if c in IDEOGRAPHS else c for c in text)
    if casing.strip_accents:
        text = "".join(c for c in decomposed(text) if c not in ACCENTS)
    if casing.lower_case:
        text = "".join(LOWER_CASE.get(c) or c.lower() for c in text)
    return text


def words(text, casing: Casing):
    """BertNormalizer and BertPreTokenizer."""
    text = normalized(text, casing)
    return "".join(f" {c} " if c in PUNCTUATION else c for c in text).split(" ")


def pieces(word, vocabulary, unknown, limit=100):
    """The ids of one word."""
    if len(word) > limit:
        return [unknown]
    ids, at = [], 0
    while at < len(word):
        ends = [end for end in range(len(word), at, -1)
                if ("##" if at else "") + word[at:end] in vocabulary]
        if not ends:
            return [unknown]
        ids.append(vocabulary[("##" if at else "") + word[at:ends[0]]])
        at = ends[0]
    return ids


def ids(text, vocabulary, casing: Casing, specials):
    """All ids of a text, without specials around it."""
    found = []
    for part in re.split("(" + "|".join(map(re.escape, specials)) + ")", text):
        if part in specials:
            found.append(vocabulary[part])
            continue
        for word in words(part, casing):
            if word:
                found += pieces(word, vocabulary, vocabulary["[UNK]"])
    return found


def share(first, second, budget):
    """How many ids of a pair are kept: reference's longest_first in its three cases."""
    n1, n2 = sorted((first, second))
    if n1 + n2 > budget:
        n2 = n1 if n1 > budget else max(n1, budget - n1)
        if n1 + n2 > budget:
            n1 = budget // 2
            n2 = n1 + budget % 2
    return (n2, n1) if first > second else (n1, n2)


def encoded(first, second, limit, cuts_left):
    """[CLS] first [SEP] (second [SEP]) with ids 2 and 3 for the two; `second` may be None."""
    def cut(found, count):
        return found[len(found) - count:] if cuts_left else found[:count]

    if second is None:
        return [2, *cut(first, min(len(first), limit - 2)), 3]
    ours, theirs = share(len(first), len(second), limit - 3)
    return [2, *cut(first, ours), 3, *cut(second, theirs), 3]
