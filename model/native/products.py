"""Products of rows with weights, and what is done to their results at once.

inputs [T, K] · Wᵀ → float32 [T, N]: of 8-bit codes sum · scale[n] · reach[t] + bias[n], of float32
sum + bias[n]; then an activation, or a residual. A block of 32 rows goes through all columns, 32 by
32; where the caller wants whole rows for more (a norm, codes for the next product), a `finish`
routine takes the block from the core's cache. Weights lie in the order in which they are read, once
for each block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from model.native.activations import Activation, activation_of
from model.native.arguments import Fields
from model.native.assembler import Assembler
from model.native.memory import aligned
from model.native.operands import (R8, R9, R11, R12, R13, R14, R15, RAX, RBP, RBX, RCX, RDX, RSI,
                                   RSP, ZMM, at)
from model.native.sums import (GROUP_BYTES, ROWS, STEP, SUMS_BYTES, SUMS_STRIDE, TILE, AmxSums,
                               Sums, sums_of)
from model.native.tanh import Tanh

COLUMN_BYTES = 3 * 4 * ROWS  # of a group: corrections, scales, biases
KEPT = (RBX, RBP, R12, R13, R14, R15)
PAIR = 2  # rows that are completed side by side, as each waits for its own results
# On the stack, past the sums.
CALLER, FIRST_ROW = (at(RSP, SUMS_BYTES + 8 * place) for place in range(2))
FRAME_BYTES = SUMS_BYTES + STEP

PRODUCT = ("rows", "inputs", "weight", "columns", "wide")
INPUT_REACHES = "input_reaches"


@dataclass(frozen=True)
class Product:
    """One kind of product by `unit` ("amx", "vnni" or "avx512", sums.sums_of), with N `outputs`.

    Rows of inputs are `row_bytes` long, a multiple of 64, and begin `stride` bytes from each other;
    those of the result begin `wide_stride` bytes from each other and have room for 32 · groups.
    `activation` is one of activations.py or empty; with `residual` the result is added to what is
    there. `finish` is the label of a routine that takes the block's rows; without a residual `wide`
    is then room for one block and not for all of the result.
    """

    unit: str
    row_bytes: int
    stride: int
    outputs: int
    wide_stride: int
    activation: str = ""
    residual: bool = False
    finish: str = ""

    @property
    def steps(self) -> int:
        return self.row_bytes // STEP

    @property
    def groups(self) -> int:
        return -(-self.outputs // ROWS)

    @property
    def is_one_block(self) -> bool:
        """Whether `wide` is room for one block, and not all of the result."""
        return bool(self.finish) and not self.residual

    @property
    def fields(self) -> tuple[str, ...]:
        """What a block must name, besides what `finish` reads."""
        return (*PRODUCT, *([] if self.unit == "avx512" else [INPUT_REACHES]))


def packed_weight(values: np.ndarray) -> np.ndarray:
    """int8 or float32 [N, K] → the bytes of all groups of 32 columns, of each its steps, of each
    its two tiles, uint8 on a boundary of vectors."""
    outputs, size = len(values), values[0].nbytes
    filled = -outputs % ROWS, -size % STEP
    whole = np.ascontiguousarray(values).view(np.uint8)
    if any(filled):
        whole = np.pad(whole, [(0, missing) for missing in filled])
    # Moved by 4 bytes: by single ones it takes nine times as long.
    tiles = whole.view(np.int32).reshape(-1, 2, TILE, whole.shape[1] // STEP, TILE)
    return aligned(tiles.transpose(0, 3, 1, 4, 2)).reshape(-1).view(np.uint8)


def packed_columns(bias: np.ndarray, scales: np.ndarray | None = None,
                   corrections: np.ndarray | None = None) -> np.ndarray:
    """What completes the sums of each column, by groups, int32 [groups, 3, 32]: what is added to
    sums of integers for the inputs' zero point (int32 [N]), the scale, the bias (float32 [N])."""
    found = np.zeros((3, -(-len(bias) // ROWS) * ROWS), dtype=np.int32)
    if corrections is not None:
        found[0, :len(bias)] = corrections
    if scales is not None:
        found[1, :len(bias)] = np.asarray(scales, dtype=np.float32).view(np.int32)
    found[2, :len(bias)] = np.asarray(bias, dtype=np.float32).view(np.int32)
    return np.ascontiguousarray(found.reshape(3, -1, ROWS).transpose(1, 0, 2))


def emit_product(a: Assembler, label: str, fields: Fields, product: Product) -> None:
    """`fields` are the product's and the finish routine's. By "amx" it runs between the kernels of
    tiles.py.

    R12 is how many rows are left, R13 those of this block, R14 their inputs, R15 the group's
    weights, R8 its columns, R9 its first place in the result, R11 the groups left; RBX and RBP are
    the unit's. RSP points at the sums, int32 or float32 [32, 32].
    """
    sums = sums_of(product.unit, a, product.steps, product.stride)
    block, finished = a.fresh(label), a.fresh(label)
    a.align()
    a.label(label)
    a.push(*KEPT)
    a.mov(RAX, RSP)
    a.sub(RSP, FRAME_BYTES)
    a.and_(RSP, -STEP)
    a.mov(CALLER, RAX)
    sums.begin()
    a.mov(FIRST_ROW, 0)
    a.mov(RAX, fields.of("rows"))
    a.mov(R12, at(RAX))
    a.cmp(R12, 0)
    a.jle(finished)

    a.label(block)
    _emit_block_start(a, fields, product)
    _emit_block(a, fields, product, sums)
    if product.finish:
        a.mov(RSI, FIRST_ROW)
        a.mov(RDX, R13)
        a.lea(RCX, at(R9, -4 * ROWS * product.groups))
        a.call(product.finish)
    a.add(FIRST_ROW, ROWS)
    a.sub(R12, ROWS)
    a.jg(block)

    a.label(finished)
    a.mov(RSP, CALLER)
    a.pop(*reversed(KEPT))
    a.ret()


def _emit_block_start(a: Assembler, fields: Fields, product: Product) -> None:
    """How many rows this block has, and where it begins."""
    a.mov(R13, R12)
    a.mov(RAX, ROWS)
    a.cmp(R13, RAX)
    a.cmovg(R13, RAX)
    a.imul(R14, FIRST_ROW, product.stride)
    a.add(R14, fields.of("inputs"))
    a.mov(R9, fields.of("wide"))
    if not product.is_one_block:
        a.imul(RAX, FIRST_ROW, product.wide_stride)
        a.add(R9, RAX)
    a.mov(R8, fields.of("columns"))
    a.mov(R15, fields.of("weight"))
    a.mov(R11, product.groups)


def _emit_block(a: Assembler, fields: Fields, product: Product, sums: Sums) -> None:
    """All groups of a block, by its number of rows."""
    if not sums.works_alone:
        _emit_groups(a, fields, product, sums)
        return
    few, complete = a.fresh("few"), a.fresh("complete")
    a.cmp(R13, TILE)
    a.jle(few)
    _emit_overlapping_groups(a, fields, product, sums)
    a.jmp(complete)
    a.label(few)
    _emit_groups(a, fields, product, sums)
    a.label(complete)


def _emit_groups(a: Assembler, fields: Fields, product: Product, sums: Sums) -> None:
    """All groups of columns of a block, one after the other; by tiles a block of up to 16 rows."""
    group = a.fresh("group")
    a.label(group)
    sums.compute()
    a.add(R15, product.steps * GROUP_BYTES)
    _emit_completion(a, fields, product)
    a.sub(R11, 1)
    a.jg(group)


def _emit_overlapping_groups(a: Assembler, fields: Fields, product: Product, sums: AmxSums
                             ) -> None:
    """All groups of a block of more than a tile of rows. The unit computes their sums while those
    of the group before are completed: its instructions stand among those of the first rows, few
    at a time, since the core looks only some hundred instructions ahead."""
    group, last = a.fresh("group"), a.fresh("last")
    instructions = sums.instructions(2)
    for instruction in instructions:
        instruction()
    a.label(group)
    sums.store(2)
    a.add(R15, product.steps * GROUP_BYTES)
    a.sub(R11, 1)
    a.je(last)
    _emit_completion(a, fields, product, instructions)
    a.jmp(group)
    a.label(last)
    _emit_completion(a, fields, product)


def _emit_completion(a: Assembler, fields: Fields, product: Product,
                     between: Sequence[Callable[[], None]] = ()) -> None:
    """From the sums at RSP to the R13 rows of the result at R9; then R8 and R9 go on to the next
    group. The code in `between` is spread over the first 16 rows, of which there are more.

    RCX counts rows; RAX, RDX and RSI point at a row's sums, result and reach. ZMM 0 to 5 hold the
    group's columns, 27 to 31 are the activation's, the rest is for rows.
    """
    is_integer = product.unit != "avx512"
    for place in range(0 if is_integer else 4, 6):
        a.vmovups(ZMM[place], at(R8, place * STEP))
    activation = activation_of(product.activation) if product.activation else None
    if activation:
        activation.load(a, ZMM[27:])
    a.mov(RAX, RSP)
    a.mov(RDX, R9)
    if is_integer:
        a.mov(RCX, FIRST_ROW)
        a.mov(RSI, fields.of(INPUT_REACHES))
        a.lea(RSI, at(RSI, 0, RCX, 4))
    a.mov(RCX, R13)
    if between:
        parts = TILE // PAIR
        for part in range(parts):
            for emit in between[part * len(between) // parts:(part + 1) * len(between) // parts]:
                emit()
            _emit_rows(a, product, activation, PAIR)
        a.sub(RCX, TILE)
    _emit_rows_left(a, product, activation)
    a.add(R8, COLUMN_BYTES)
    a.add(R9, 4 * ROWS)


def _emit_rows_left(a: Assembler, product: Product, activation: Activation | Tanh | None) -> None:
    """RCX rows, 1 or more: by pairs, and the last alone where it is."""
    pair, single, done = a.fresh("pair"), a.fresh("single"), a.fresh("done")
    a.sub(RCX, PAIR)
    a.jl(single)
    a.label(pair)
    _emit_rows(a, product, activation, PAIR)
    a.sub(RCX, PAIR)
    a.jge(pair)
    a.label(single)
    a.cmp(RCX, -PAIR)
    a.je(done)
    _emit_rows(a, product, activation, 1)
    a.label(done)


def _emit_rows(a: Assembler, product: Product, activation: Activation | Tanh | None, count: int
               ) -> None:
    """So many rows of a group side by side; the pointers go on to the next."""
    columns, reaches, results = ZMM[0:6], ZMM[6:8], ZMM[8:12][:2 * count]
    is_integer = product.unit != "avx512"
    places = [(row, half) for row in range(count) for half in range(2)]
    if is_integer:
        for row in range(count):
            a.vbroadcastss(reaches[row], at(RSI, 4 * row))
        for (row, half), result in zip(places, results):
            a.vpaddd(result, columns[half], at(RAX, row * SUMS_STRIDE + half * STEP))
        for result in results:
            a.vcvtdq2ps(result, result)
        for (row, half), result in zip(places, results):
            a.vmulps(result, result, columns[2 + half])
        for (row, half), result in zip(places, results):
            a.vfmadd213ps(result, reaches[row], columns[4 + half])
    else:
        for (row, half), result in zip(places, results):
            a.vaddps(result, columns[4 + half], at(RAX, row * SUMS_STRIDE + half * STEP))
    if activation:
        activation.apply(a, results, (*reaches[:1], *ZMM[12:27]))  # reaches have done
    for (row, half), result in zip(places, results):
        if product.residual:
            a.vaddps(result, result, at(RDX, row * product.wide_stride + half * STEP))
        a.vmovups_to(at(RDX, row * product.wide_stride + half * STEP), result)
    if is_integer:
        a.add(RSI, 4 * count)
    a.add(RAX, count * SUMS_STRIDE)
    a.add(RDX, count * product.wide_stride)
