"""The pieces of a large vocabulary as a trie in flat arrays, which processes can share.

A double array: a node is a cell, and its child by a symbol is the cell `base + symbol` if that
names it as its parent. Symbols are the code points that pieces are made of, numbered from 1 by how
many pieces hold them, so that children lie close together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

# Longer pieces are refused by who builds: each place of a text is compared that far at worst.
LONGEST_PIECE = 1024
ROOT = 0
# A base as it is stored where a piece ends: base ^ ENDS, which is negative.
ENDS = -1


def build_trie(pieces: Sequence[str]) -> dict[str, numpy.ndarray]:
    """The arrays of a trie of distinct pieces, none of them empty.

    `symbols`: int32, by code point, 0 for none, 0 at the end too; `parents` and `bases`: int32, by
    cell, ROOT's first; `cells`: int32, by piece, where it ends. A cell that is no node has a parent
    of −1. Every `base + symbol` is a cell.
    """
    lengths = numpy.array([len(piece) for piece in pieces], dtype=numpy.int64)
    codes = numpy.frombuffer("".join(pieces).encode("utf-32-le"), dtype="<u4")
    symbols, text = _symbols(codes)                             # int64 [sum of lengths]
    parents, edges, ends = _nodes(text, lengths)
    bases, cells = _place(parents, edges, int(symbols.max()))
    size = int(bases.max()) + int(symbols.max()) + 1
    parent_cells = numpy.full(size, -1, dtype=numpy.int32)
    parent_cells[cells[1:]] = cells[parents[1:]]
    stored = numpy.zeros(size, dtype=numpy.int32)
    stored[cells] = bases
    stored[cells[ends]] ^= ENDS
    return {"symbols": symbols, "parents": parent_cells, "bases": stored,
            "cells": cells[ends].astype(numpy.int32)}


def _symbols(codes: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """(symbols by code point, the codes as symbols)."""
    counts = numpy.bincount(codes)
    order = numpy.argsort(-counts, kind="stable")
    used = order[:numpy.count_nonzero(counts)]
    symbols = numpy.zeros(len(counts) + 1, dtype=numpy.int32)
    symbols[used] = numpy.arange(1, len(used) + 1)
    return symbols, symbols[codes].astype(numpy.int64)


def _nodes(text: numpy.ndarray, lengths: numpy.ndarray
           ) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """(parent of each node, symbol that leads to it, node where each piece ends), level by level;
    node 0 is the root. Children of one node are neighbours."""
    starts = numpy.cumsum(lengths) - lengths
    alphabet = int(text.max()) + 1
    ends = numpy.zeros(len(lengths), dtype=numpy.int64)
    active = numpy.arange(len(lengths))
    at = numpy.zeros(len(lengths), dtype=numpy.int64)           # the node each active piece is at
    parents, edges, count = [numpy.zeros(1, numpy.int64)], [numpy.zeros(1, numpy.int64)], 1
    for depth in range(int(lengths.max())):
        keys, at = numpy.unique(at * alphabet + text[starts[active] + depth], return_inverse=True)
        at += count
        parents.append(keys // alphabet)
        edges.append(keys % alphabet)
        count += len(keys)
        is_over = lengths[active] == depth + 1
        ends[active[is_over]] = at[is_over]
        active, at = active[~is_over], at[~is_over]
    return numpy.concatenate(parents), numpy.concatenate(edges), ends


def _place(parents: numpy.ndarray, edges: numpy.ndarray, largest: int
           ) -> tuple[numpy.ndarray, numpy.ndarray]:
    """(base of each node, cell of each node).

    Nodes with several children go first, those with most of them before others, each where the
    next cells are free; nodes with one child take what is left between.
    """
    count = len(parents)
    firsts = numpy.searchsorted(parents[1:], numpy.arange(count)) + 1   # first child of each node
    children = numpy.bincount(parents[1:], minlength=count)
    bases = numpy.zeros(count, dtype=numpy.int64)
    cells = numpy.zeros(count, dtype=numpy.int64)               # the root's is 0
    several = numpy.flatnonzero(children > 1)
    several = several[numpy.argsort(-children[several], kind="stable")]
    used = bytearray(b"\1") * (largest + 1) + bytearray(4 * count + 2 * largest)
    cursor, edge_list = largest + 1, edges.tolist()
    for node, first, size in zip(several.tolist(), firsts[several].tolist(),
                                 children[several].tolist()):
        own = edge_list[first:first + size]
        lowest = own[0]
        cell = used.find(0, cursor)
        while True:
            if cell + largest >= len(used):
                used += bytes(len(used))
            base = cell - lowest
            if not any([used[base + edge] for edge in own]):
                break
            cell = used.find(0, cell + 1)
        cursor = cell       # what was passed is left to nodes with one child
        bases[node] = base
        for edge in own:
            used[base + edge] = 1
    several_of_parent = children[parents] > 1
    placed = numpy.flatnonzero(several_of_parent)
    placed = placed[placed > 0]
    cells[placed] = bases[parents[placed]] + edges[placed]
    alone = numpy.flatnonzero(~several_of_parent)
    alone = alone[alone > 0]
    free = numpy.flatnonzero(numpy.frombuffer(used, dtype=numpy.uint8) == 0)
    cells[alone] = free[:len(alone)]
    bases[parents[alone]] = cells[alone] - edges[alone]
    return bases, cells
