"""From an outline and weights to a tape: which kernels run on which arrays.

Rows are the tokens of all texts of a batch, packed; the last layer works on each text's first token
only, of which alone the head reads. Where a product's weight has 8 bits, whatever made its inputs
has made codes of them too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from model.families.shapes import LayerNames
from model.native.arguments import Fields
from model.native.attention import emit_attention
from model.native.attention_rows import Attention, scratch_floats
from model.native.codes import Coding, codes_stride, emit_quantise_rows
from model.native.memory import aligned, rows
from model.native.norms import Norm, emit_norm_rows
from model.native.outline import Outline
from model.native.positions import Positions
from model.native.products import INPUT_REACHES, Product, emit_product
from model.native.rows import EMBED, emit_embed, emit_finish_all, emit_firsts
from model.native.sums import ROWS, TILE
from model.native.tape import Kernels, Tape
from model.native.texts import TEXTS, Places, emit_texts
from model.native.tiles import (KEPT_PALETTE, PALETTE_BYTES, emit_tiles_begin,
                                emit_tiles_end)
from model.native.weights import Weight, Weights
from model.programs.parts import LEAST


class Finish(NamedTuple):
    """A routine that takes the rows of a block: its emitter's arguments, names and words."""

    emit: Callable[..., None]
    arguments: tuple
    words: dict[str, Any]


class Rows:
    """float32 rows `x` of `width` columns, and room for their codes and reaches. A product makes x
    where it is: there is room for all columns that one makes."""

    def __init__(self, count: np.ndarray, most: int, width: int) -> None:
        self.count, self.width = count, width
        self.x = rows(most, _filled(width))
        self.codes = rows(most, codes_stride(width), np.uint8)
        self.reaches = rows(most, 1)


class Inputs:
    """What a batch of at most `most` tokens is told by, int64: each token's id; each text's length
    and how many of its tokens are of the first segment; how many tokens and texts there are. The
    first step adds each text's first token and the rows of the table of places that are added to
    words; it sets both counts to 0 where an id is not one of the vocabulary."""

    def __init__(self, most: int) -> None:
        self.ids, self.where, self.starts, self.lengths, self.splits = (
            rows(most, 1, np.int64)[:, 0] for _ in range(5))
        self.tokens, self.texts = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)


class Network:
    """The steps that make `logits`, float32 [B, C filled up], of `inputs`, and what they work on.

    `vocab` is how many words there are; `places` is the table whose rows are added to them, float32
    [P, E], in which a second segment's begin `segment_step` rows after the first's.
    """

    def __init__(self, weights: Weights, outline: Outline, settings: dict[str, Any], labels: int,
                 most: int) -> None:
        hidden, inner = settings["hidden_size"], settings["intermediate"]
        self.inputs = Inputs(most)
        self.kernels: dict[str, str] = {}
        self._weights, self._settings = weights, settings
        self._hidden, self._most = hidden, most
        self._kernels = Kernels()
        self._steps: list[tuple[str, np.ndarray]] = []
        self._held: list[dict[str, Any]] = []  # what the steps' blocks point at
        self._tokens = Rows(self.inputs.tokens, most, hidden)
        self._firsts = Rows(self.inputs.texts, most, hidden)
        self._inner_block = _block(inner)
        self._inner = rows(most, _filled(inner))
        self._inner_codes = rows(most, codes_stride(inner), np.uint8)
        self._inner_reaches = rows(most, 1)
        self._query_key_value = rows(most, _filled(3 * hidden))
        self._queries = rows(most, _filled(hidden))
        # What attention makes of queries takes their place, and the last layer's keys and values
        # that of other layers': what a batch works on then stays in the core's second cache.
        self._mixed = self._query_key_value[:, :hidden]
        self._key_value = self._query_key_value[:, hidden:]
        self._scratch = rows(0, 0)
        self._positions = Positions(weights, outline, settings)
        self._add_all(outline, labels)
        if "amx" in self.kernels.values():
            self._add_palette()
        self.tape = Tape(self._kernels.finish(), self._steps)

    def _add_all(self, outline: Outline, labels: int) -> None:
        *layers, last = outline.layers
        made = [self._product_of(names.query, names.key, names.value) for names in layers]
        if outline.is_last_shared:
            whole = made[layers.index(last)]
            last_query = whole.part(0, self._hidden)
            last_key_value = whole.part(self._hidden, 3 * self._hidden)
        else:
            last_query = self._product_of(last.query)
            last_key_value = self._product_of(last.key, last.value)
        self._add_embeddings(outline, [*made, last_key_value][0])
        for place, names in enumerate(layers):
            self._add_attention(names, made[place])
            self._add_after(names, self._tokens, [*made, last_key_value][place + 1])
        self._add_last_attention(last, last_query, last_key_value)
        dense, out = self._product_of(outline.dense), self._product_of(outline.out)
        self._add_after(last, self._firsts, dense)
        top = rows(len(self._firsts.x), _filled(dense.outputs))
        self.logits = rows(len(self._firsts.x), _filled(labels))
        self._add_product(dense, self._firsts.count, self._firsts.x, None, top,
                          activation=outline.head_activation)
        self._add_product(out, self._firsts.count, top, None, self.logits)

    def _add_palette(self) -> None:
        """Before the first step and after the last."""
        kept = aligned(np.zeros(PALETTE_BYTES, dtype=np.uint8))
        for emit in (emit_tiles_begin, emit_tiles_end):
            self._add(self._kernels.label(emit), KEPT_PALETTE, palette=kept)
        self._steps.insert(0, self._steps.pop(-2))

    # ---- parts of a network ---------------------------------------------------------------------

    def _add_embeddings(self, outline: Outline, following: Weight) -> None:
        """`following` reads the tokens' rows."""
        words = self._weights.table(f"{outline.embeddings}word_embeddings.weight")
        self.places = self._weights.table(f"{outline.embeddings}position_embeddings.weight") \
            if outline.has_places \
            else rows(self._settings["max_position_embeddings"], words.shape[1])
        self.segment_step = 0
        if outline.has_segments:
            segments = self._weights.table(f"{outline.embeddings}token_type_embeddings.weight")
            self.segment_step = len(self.places)
            count = len(segments) * len(self.places)
            sums = rows(count, words.shape[1])[:count]
            np.add(segments[:, None], self.places[None],
                   out=sums.reshape(len(segments), *self.places.shape))
            self.places = sums
        self.vocab = len(words)
        step = self.segment_step if outline.pad_id is None else 0
        self._add(self._kernels.label(emit_texts, Places(self.vocab, step, outline.pad_id)), TEXTS,
                  **{name: getattr(self.inputs, name) for name in TEXTS.names})
        if outline.projection:
            projection = self._product_of(outline.projection)
            narrow = Rows(self.inputs.tokens, self._most, words.shape[1])
            self._add_sums(outline, words, narrow, projection)
            self._add_product(projection, narrow.count, *_source(projection, narrow),
                              self._tokens.x)
            if following.is_coded:
                self._add_codes(following, self._tokens, self._tokens.x)
        else:
            self._add_sums(outline, words, self._tokens, following)

    def _add_sums(self, outline: Outline, words: np.ndarray, at: Rows, following: Weight) -> None:
        """Normalised sums of words and places."""
        width = words.shape[1]
        finish = self._norm(f"{outline.embeddings}LayerNorm", at, following)
        fields = Fields(*EMBED, *finish.words)
        label = self._kernels.label(emit_embed, fields, width, at.x.strides[0],
                                    self._label(finish, fields))
        self._add(label, fields, words=words, places=self.places, ids=self.inputs.ids,
                  where=self.inputs.where, rows=self.inputs.tokens, x=at.x, **finish.words)

    def _add_attention(self, names: LayerNames, weight: Weight) -> None:
        """Of all tokens: from their rows to `mixed`."""
        self._add_product(weight, self._tokens.count, *_source(weight, self._tokens),
                          self._query_key_value)
        query, key, value = (self._query_key_value[:, begin * self._hidden:]
                             for begin in range(3))
        self._add_mixing(names, query, key, value, False)

    def _add_last_attention(self, names: LayerNames, query: Weight, key_value: Weight) -> None:
        """Of first tokens: from all tokens' rows to those of `firsts` and to `mixed`."""
        tokens, firsts, hidden = self._tokens, self._firsts, self._hidden
        self._add_product(key_value, tokens.count, *_source(key_value, tokens), self._key_value)
        words = {"starts": self.inputs.starts, "texts": firsts.count, "x": tokens.x,
                 "x_first": firsts.x}
        fields = Fields(*words)
        label = self._kernels.label(emit_firsts, fields, hidden, tokens.x.strides[0])
        self._add(label, fields, **words)
        if query.is_coded:  # its factors are its own
            self._add_codes(query, firsts, firsts.x)
        self._add_product(query, firsts.count, *_source(query, firsts), self._queries)
        self._add_mixing(names, self._queries, self._key_value, self._key_value[:, hidden:], True)

    def _add_mixing(self, names: LayerNames, queries: np.ndarray, keys: np.ndarray,
                    values: np.ndarray, is_first: bool) -> None:
        """Attention to `mixed`; the arrays begin at the first row and the first head's column."""
        heads = self._settings["heads"]
        positions = self._positions.words(names, is_first)
        shape = Attention(heads, self._hidden // heads, _floats(queries), _floats(keys),
                          _floats(self._mixed), self._settings["max_position_embeddings"],
                          is_first, "biases" in positions, "terms" in positions)
        if scratch_floats(shape) > self._scratch.size:
            self._scratch = aligned(np.zeros(scratch_floats(shape), dtype=np.float32))
        words = {"texts": self.inputs.texts, "starts": self.inputs.starts,
                 "lengths": self.inputs.lengths, "queries": queries, "keys": keys,
                 "values": values, "out": self._mixed, "scratch": self._scratch, **positions}
        self._add(self._kernels.label(emit_attention, shape), shape.fields, **words)

    def _add_after(self, names: LayerNames, at: Rows, following: Weight) -> None:
        """A layer from `mixed` on; `following` reads its output."""
        activation = self._settings["activation"]
        project, widen = self._product_of(names.project), self._product_of(names.widen)
        narrow = self._product_of(names.narrow, least=LEAST[activation])
        mixed = self._mixed, None
        if project.is_coded:
            mixed = at.codes, at.reaches
            self._add_codes(project, at, self._mixed)
        self._add_product(project, at.count, *mixed, at.x, is_residual=True,
                          finish=self._norm(names.norm_attention, at, widen))
        if narrow.is_coded:
            inner = self._inner_codes, self._inner_reaches
            wide = self._inner_block
            finish = self._coding(narrow, wide, *inner)
        else:
            inner = self._inner, None
            wide, finish = self._inner, None
        self._add_product(widen, at.count, *_source(widen, at), wide, activation=activation,
                          finish=finish)
        self._add_product(narrow, at.count, *inner, at.x, is_residual=True,
                          finish=self._norm(names.norm_output, at, following))

    def _add_codes(self, weight: Weight, at: Rows, source: np.ndarray) -> None:
        """Of float32 rows without gaps, for a product with this weight."""
        finish = self._coding(weight, source, at.codes, at.reaches)
        words = {"rows": at.count, "source": source, **finish.words}
        fields = Fields(*words)
        self._add(self._kernels.label(emit_finish_all, fields, "source", source.strides[0],
                                      self._label(finish, fields)), fields, **words)

    def _add_product(self, weight: Weight, count: np.ndarray, inputs: np.ndarray,
                     reaches: np.ndarray | None, wide: np.ndarray, *, activation: str = "",
                     is_residual: bool = False, finish: Finish | None = None) -> None:
        """`wide` is one block of rows where there is a finish routine and no residual, else all of
        them."""
        product = Product(weight.unit, weight.row_bytes, inputs.strides[0], weight.outputs,
                          wide.strides[0], activation, is_residual)
        words = {"rows": count, "inputs": inputs, "weight": weight.packed,
                 "columns": weight.columns, "wide": wide, **(finish.words if finish else {})}
        if reaches is not None:
            words[INPUT_REACHES] = reaches
        fields = Fields(*words)
        if finish:
            product = replace(product, finish=self._label(finish, fields))
        self._add(self._kernels.label(emit_product, fields, product), fields, **words)

    # ---- their makings --------------------------------------------------------------------------

    def _product_of(self, *names: str, least: float = 0.0) -> Weight:
        weight = self._weights.product(*names, least=least)
        self.kernels[weight.layer_class] = weight.unit
        return weight

    def _norm(self, name: str, at: Rows, following: Weight) -> Finish:
        """For a product with `following`."""
        coding = _coding_of(following) if following.is_coded else None
        words = {"gain": self._weights.vector(f"{name}.weight"),
                 "shift": self._weights.shift(name)}
        if coding:
            words |= {"codes": at.codes, "reaches": at.reaches, **_factors(following)}
        norm = Norm(at.width, self._settings["layer_norm_eps"], coding)
        return Finish(emit_norm_rows, (norm, at.x.strides[0]), words)

    def _coding(self, weight: Weight, wide: np.ndarray, codes: np.ndarray, reaches: np.ndarray
                ) -> Finish:
        """Codes of wide rows, for a product with this weight."""
        words = {"codes": codes, "reaches": reaches, **_factors(weight)}
        return Finish(emit_quantise_rows, (_coding_of(weight), wide.strides[0]), words)

    def _label(self, finish: Finish, fields: Fields) -> str:
        return self._kernels.label(finish.emit, fields, *finish.arguments)

    def _add(self, label: str, fields: Fields, **words: Any) -> None:
        self._steps.append((label, fields.block(**words)))
        self._held.append(words)


def _coding_of(weight: Weight) -> Coding:
    return Coding(weight.inputs, weight.least, weight.factors is not None)


def _factors(weight: Weight) -> dict[str, np.ndarray]:
    return {} if weight.factors is None else {"factors": weight.factors}


def _source(weight: Weight, at: Rows) -> tuple[np.ndarray, np.ndarray | None]:
    """What a product with this weight reads of the rows."""
    return (at.codes, at.reaches) if weight.is_coded else (at.x, None)


def _block(width: int) -> np.ndarray:
    """Room for what a product makes of a block of rows, float32, of at least so many columns: an
    odd number of vectors from row to row, since by powers of two all rows would crowd into a few
    sets of the core's first cache."""
    return rows(0, (_filled(width) // TILE | 1) * TILE)


def _filled(width: int) -> int:
    """Columns that a product makes where so many are wanted."""
    return -(-width // ROWS) * ROWS


def _floats(array: np.ndarray) -> int:
    """From one row to the next."""
    return array.strides[0] // array.itemsize
