"""Unigram written straight down, a whole text at a time: what the loader's is held to."""

import re

from loader.tokenizers import grapheme_code_points as tables
from loader.tokenizers.added import AddedTokens, compile_added
from loader.tokenizers.charsmap import read_charsmap
from loader.tokenizers.code_points import SPACES, code_points
from loader.tokenizers.unicode_forms import lower_case, normal_form, without_marks

WHITE = code_points(SPACES)
CONTROLS, EXTENDERS, SPACING, PREPENDED, CONSONANTS, LINKERS, PICTOGRAPHS, REGIONAL = map(
    code_points, (f"{tables.CONTROLS} A D", f"{tables.EXTENDERS} 200D", tables.SPACING_MARKS,
                  tables.PREPENDED, tables.CONSONANTS, tables.LINKERS, tables.PICTOGRAPHS,
                  tables.REGIONAL))
LEADING, VOWELS, TRAILING = map(code_points, (
    tables.HANGUL_LEADING, tables.HANGUL_VOWELS, tables.HANGUL_TRAILING))


def hangul(letter):
    """"L", "V", "T", "LV", "LVT" or ""."""
    for name, members in (("L", LEADING), ("V", VOWELS), ("T", TRAILING)):
        if letter in members:
            return name
    if "\uac00" <= letter <= "\ud7a3":
        return "LVT" if (ord(letter) - 0xAC00) % 28 else "LV"
    return ""


def breaks(text, at):
    """Whether a cluster ends in front of text[at], by the rules of UAX 29 in their order."""
    before, after = text[at - 1], text[at]
    if before == "\r" and after == "\n":
        return False
    if before in CONTROLS or after in CONTROLS:
        return True
    if (hangul(before), hangul(after)) in {
            ("L", "L"), ("L", "V"), ("L", "LV"), ("L", "LVT"), ("LV", "V"), ("LV", "T"),
            ("V", "V"), ("V", "T"), ("LVT", "T"), ("T", "T")}:
        return False
    if after in EXTENDERS or after in SPACING or before in PREPENDED:
        return False
    if after in CONSONANTS:
        start = at
        while start and text[start - 1] in EXTENDERS and text[start - 1] != "\u200c":
            start -= 1
        return not (start and text[start - 1] in CONSONANTS
                    and not LINKERS.isdisjoint(text[start:at]))
    if after in PICTOGRAPHS and before == "\u200d":
        start = at - 1
        while start and text[start - 1] in EXTENDERS and text[start - 1] != "\u200d":
            start -= 1
        return not (start and text[start - 1] in PICTOGRAPHS)
    if before in REGIONAL and after in REGIONAL:
        return (len(text[:at]) - len(text[:at].rstrip("".join(REGIONAL)))) % 2 == 0
    return True


def clusters(text):
    """The text's extended grapheme clusters."""
    ends = [at for at in range(1, len(text)) if breaks(text, at)]
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)]) if text]


def replaced(text, charsmap):
    """The text after a Precompiled normaliser."""
    def shortest(part):
        found = [key for key in charsmap if part.startswith(key)]
        return charsmap[min(found, key=len)] if found else None

    out = ""
    for cluster in clusters(text):
        whole = shortest(cluster) if len(cluster.encode()) < 6 else None
        if whole is None:
            for letter in cluster:
                form = shortest(letter)
                out += letter if form is None else form
        else:
            out += whole
    return out


def normalized(text, part):
    """The text after a part of tokenizer.json's normalizer."""
    kind = part and part["type"]
    if kind == "Sequence":
        for inner in part["normalizers"]:
            text = normalized(text, inner)
    elif kind == "Strip":
        text = text.lstrip("".join(WHITE)) if part["strip_left"] else text
        text = text.rstrip("".join(WHITE)) if part["strip_right"] else text
    elif kind == "Replace":
        sought = part["pattern"].get("Regex") or re.escape(part["pattern"]["String"])
        text = re.sub(sought.replace(r"\s", f"[{''.join(WHITE)}]"), part["content"], text)
    elif kind == "Precompiled":
        text = replaced(text, read_charsmap(part["precompiled_charsmap"]))
    elif kind is not None:
        text = {"Lowercase": lower_case, "StripAccents": without_marks}.get(
            kind, lambda whole: normal_form(kind, whole))(text)
    return text


def words(text, part):
    """The words of a normalised text, by tokenizer.json's pre_tokenizer."""
    parts, found = part.get("pretokenizers", [part]), [text]
    if parts[0]["type"] == "WhitespaceSplit":
        found = re.split(f"[{''.join(WHITE)}]+", text)
    prepends = parts[-1].get("prepend_scheme", "always") == "always" \
        and parts[-1].get("add_prefix_space", True)
    for piece in filter(None, found):
        piece = piece.replace(" ", "▁")
        if prepends and not piece.startswith("▁"):
            piece = "▁" + piece
        yield from re.findall("▁[^▁]*|[^▁]+", piece)


def best(word, model):
    """The ids of the best pieces of a word."""
    pieces = {piece: number for number, (piece, _) in enumerate(model["vocab"]) if piece}
    unknown_score = min(score for _, score in model["vocab"]) - 10
    paths = [(0.0, [], [])]            # (score, ids, pieces) of the best way to each place
    for end in range(1, len(word) + 1):
        options = []
        for start in range(end):
            part, known = word[start:end], word[start:end] in pieces
            if known or end - start == 1:
                number = pieces[part] if known else model["unk_id"]
                score = model["vocab"][number][1] if known else unknown_score
                score, ids, parts = paths[start][0] + score, *paths[start][1:]
                options.append((score, [*ids, number], [*parts, part]))
        paths.append(max(options, key=lambda option: option[0]))    # the first of equals
    out, run = [], ""
    for number, part in [*zip(*paths[-1][1:]), (None, "")]:
        if number == model["unk_id"]:
            run += part
            continue
        if run:
            out.append(pieces.get(run, model["unk_id"]))
        run = ""
        out += [] if number is None else [number]
    return out


def ids(text, table):
    """The ids of a text under a parsed tokenizer.json, without specials around it."""
    def normal(part):
        return normalized(part, table["normalizer"])

    added, out = AddedTokens(compile_added(table), normal), []
    for raw in added.raw(text):
        for piece in added.normalized(normal(raw)) if isinstance(raw, str) else [raw]:
            out += [piece] if isinstance(piece, int) else [
                number for word in words(piece, table["pre_tokenizer"])
                for number in best(word, table["model"])]
    return out
