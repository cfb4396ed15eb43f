"""FastAPI under uvicorn, one process a core: a peer's server, in the peers' environment.

    FIREBRICK_PEER=JSON PYTHON -m bench.peers.fastapi_server

With a batch of 1 a request is computed where its handler runs; else requests that came in one turn
of the event loop are computed together, at most so many: who waits for a process that computes
anyway costs nothing more.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

from bench.peers.classifier import Classifier, setup_of_process

fastapi = importlib.import_module("fastapi")
Request = fastapi.Request


class Together:
    """Bodies that wait for the end of this turn of the loop."""

    def __init__(self, classifier: Classifier, batch: int) -> None:
        self._classifier, self._batch = classifier, batch
        self._waiting: list[tuple[bytes, asyncio.Future[bytes]]] = []

    def submit(self, body: bytes) -> asyncio.Future[bytes]:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._compute)
        self._waiting.append((body, answer))
        return answer

    def _compute(self) -> None:
        now, self._waiting = self._waiting[:self._batch], self._waiting[self._batch:]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._compute)
        try:
            found = self._classifier.answer([body for body, _ in now])
        except Exception as error:  # whatever it is, each handler answers 500
            for _, answer in now:
                if not answer.cancelled():
                    answer.set_exception(error)
            return
        for (_, answer), body in zip(now, found):
            if not answer.cancelled():  # by a client that left
                answer.set_result(body)


def make_app() -> Any:
    """The application of one worker process."""
    setup = setup_of_process()
    app, classifier = fastapi.FastAPI(), Classifier(setup)
    together = Together(classifier, setup["batch"])

    @app.post("/infer")
    async def infer(request: Request) -> Any:
        body = await request.body()
        answer = classifier.answer([body])[0] if setup["batch"] == 1 \
            else await together.submit(body)
        return fastapi.Response(answer, media_type="application/json")

    return app


def main() -> None:
    setup = setup_of_process()
    importlib.import_module("uvicorn").run(
        "bench.peers.fastapi_server:make_app", factory=True, host="127.0.0.1",
        port=setup["port"], workers=setup["workers"], loop="uvloop", http="httptools",
        access_log=False, log_level="warning")


if __name__ == "__main__":
    main()
