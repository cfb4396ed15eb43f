"""The errors that leave the server: one kind for clients, one for the operator who started it."""

from collections.abc import Mapping


class ClientError(Exception):
    """A request that is answered with an error instead of a classification.

    `status` and `code` are those of the contract's table (status 400 to 505, code a stable word),
    `message` is one sentence that tells the client what to do, `headers` go out with the answer,
    and `close` says that the connection cannot be used after it (a fault of framing).
    """

    def __init__(self, status: int, code: str, message: str,
                 headers: Mapping[str, str] | None = None, close: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})
        self.close = close


class OperatorError(Exception):
    """A reason not to start or to end: one sentence for stderr and the process's exit code.

    Exit codes: 2 wrong flag or a checkpoint that cannot be served, 3 a part died before the server
    was ever ready, 4 the port is taken, 5 no engine for `--give-up-s`.
    """

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
