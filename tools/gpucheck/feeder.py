"""A process in the dispatcher's place: keeps an engine fed and compares what it answers."""

from __future__ import annotations

import json
import select
import socket
import sys
import time

import numpy as np

from server import codec, link
from server.messages import LOW, Batch, Done, Row
from server.processes import Control

# As the dispatcher does: one that runs and one behind it.
OPEN = 2
# Of the time, before anything counts.
WARM_SHARE = 0.2
PATIENCE_S = 20.0
# Other places in a batch may go through other kernels' tails; these are the same batches.
TOLERANCE = 1e-3


def main() -> None:
    """`feeder LISTENER_FD CONTROL_FD BATCHES.npz SECONDS`: prints {"rate", "answered",
    "differing"} and tells the engine to leave."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    control = Control(socket.socket(fileno=int(sys.argv[2])))
    try:
        batches, wanted = read_batches(sys.argv[3])
        select.select((listener,), (), (), PATIENCE_S)
        print(json.dumps(feed(link.accept(listener), batches, wanted, float(sys.argv[4]))),
              flush=True)
    finally:
        control.send({"type": "leave", "reason": "done"})


def read_batches(path: str) -> tuple[list[list[Row]], np.ndarray]:
    """(rows of each batch as messages have them, logits [batches, texts, C])."""
    with np.load(path) as stored:
        splits = stored["splits"]
        batches = [[Row(len(ids), int(split), ids.tobytes()) for ids, split in (
            (stored[f"ids_{number}_{row}"], splits[number, row])
            for row in range(splits.shape[1]))] for number in range(len(splits))]
        return batches, stored["logits"]


def feed(peer: link.Link, batches: list[list[Row]], wanted: np.ndarray,
         seconds: float) -> dict[str, float]:
    """Sends batches until the time is over; what the engine does not answer by then is lost."""
    sent = answered = counted = differing = 0
    begun = warm_until = None
    while begun is None or time.monotonic() < begun + seconds:
        select.select((peer,), (peer,) if peer.waiting else (), (), PATIENCE_S)
        peer.flush()
        messages, has_ended = peer.receive()
        if has_ended:
            break
        for data in messages:
            message = codec.decode(data)
            if begun is None:       # its hello
                begun = time.monotonic()
                warm_until = begun + WARM_SHARE * seconds
                for _ in range(OPEN):
                    peer.send(codec.encode_batch(Batch(sent, LOW, batches[sent % len(batches)])))
                    sent += 1
                continue
            answered += 1
            differing += not is_right(message, wanted)
            if time.monotonic() >= warm_until:
                counted += len(batches[0])
            peer.send(codec.encode_batch(Batch(sent, LOW, batches[sent % len(batches)])))
            sent += 1
    return {"rate": counted / ((1 - WARM_SHARE) * seconds), "answered": answered,
            "differing": differing}


def is_right(message: object, wanted: np.ndarray) -> bool:
    """Whether a message is the answer to its batch."""
    if not isinstance(message, Done):
        return False
    right = wanted[message.batch % len(wanted)]
    found = np.frombuffer(message.logits, "<f4")
    return found.size == right.size and bool(
        (np.abs(found.reshape(right.shape) - right) <= TOLERANCE).all())


if __name__ == "__main__":
    main()
