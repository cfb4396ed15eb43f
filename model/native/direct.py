"""Batches that come and go as bytes: one copy in, one call of machine code, one copy out.

After a batch little of Python's code is left in the core's caches: what numpy does to bytes on
their way, a dozen calls, then takes longer than a short text's network.
"""

from __future__ import annotations

import numpy as np

from model.native.memory import rows
from model.native.network import Network
from model.native.packed import PACK, UNPACK, Limits, emit_pack, emit_unpack
from model.native.tape import Kernels, Tape


class Direct:
    """A network with what unpacks its inputs and packs its logits."""

    def __init__(self, network: Network, labels: int, limits: Limits) -> None:
        body = rows(limits.most, 8 + limits.id_bytes, np.uint8)
        size = np.zeros(1, dtype=np.int64)
        packed = rows(limits.most, labels)
        given, kernels = network.inputs, Kernels()
        words = {name: getattr(given, name) for name in UNPACK.names if hasattr(given, name)}
        unpack = kernels.label(emit_unpack, limits), UNPACK.block(body=body, bytes=size, **words)
        pack = (kernels.label(emit_pack, labels, network.logits.strides[0]),
                PACK.block(logits=network.logits, packed=packed, texts=given.texts,
                           tokens=given.tokens))
        code = kernels.finish()
        self._run = Tape.joined(Tape(code, [unpack]), network.tape, Tape(code, [pack])).run
        self._row_bytes = 4 * labels
        self._body, self._logits = (memoryview(array).cast("B") for array in (body, packed))
        self._size, self._texts = memoryview(size), memoryview(given.texts)

    def run(self, texts: int, body: bytes) -> bytes | None:
        """The logits, float32 [B, C], of a body as packed.py tells; None where it is not sound or
        holds what it may not, or where a logit is not finite."""
        size = len(body)
        if size > len(self._body):
            return None
        self._body[:size] = body
        self._size[0], self._texts[0] = size, texts
        self._run()
        return bytes(self._logits[:self._row_bytes * texts]) if self._texts[0] else None
