"""mosec with its dynamic batching, one worker a core: a server in the peers' environment.

    FIREBRICK_PEER=JSON PYTHON -m bench.peers.mosec_server --address 127.0.0.1 --port PORT

The flags are mosec's own.
"""

from __future__ import annotations

import importlib

from bench.peers.classifier import Classifier, setup_of_process

mosec = importlib.import_module("mosec")


class Inference(mosec.Worker):
    """Bodies as they came, so that reading JSON is the classifier's as elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self._classifier = Classifier(setup_of_process())

    def deserialize(self, data: bytes) -> bytes:
        return bytes(data)

    def serialize(self, data: bytes) -> bytes:
        return data

    def forward(self, data: list[bytes] | bytes) -> list[bytes] | bytes:
        """A list where batches may have more than one, as mosec does it."""
        if isinstance(data, list):
            return self._classifier.answer(data)
        return self._classifier.answer([data])[0]


def main() -> None:
    setup = setup_of_process()
    server = mosec.Server()
    server.append_worker(Inference, num=setup["workers"], max_batch_size=setup["batch"],
                         max_wait_time=setup["wait_ms"], route="/infer")
    server.run()


if __name__ == "__main__":
    main()
