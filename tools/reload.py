"""`python -m tools.reload`: asks a running server for a new model, and tells what came of it.

    python -m tools.reload [--model DIR] [--wait] [--socket PATH]

Without --model the folder that is served now is read anew, as with HUP. With --wait the exit status
is that of the reload: 0 the new model serves, 1 nothing has changed, and the sentence says why.
Without it 0 means that the request was taken. 2: no server was reached.
"""

import argparse
import glob
import json
import os
import socket
import sys
import time

from server.command_socket import PATTERN, peer_user, socket_folder
from server.processes import CONTROL_LIMIT_BYTES

TAKEN_WITHIN_S = 30.0


class Unreached(Exception):
    """No server could be asked; one sentence for stderr."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.reload", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="checkpoint folder (default: the one served)")
    parser.add_argument("--wait", action="store_true", help="until the reload has ended")
    parser.add_argument("--socket", help="path that the server printed at its start (default: the "
                        "one server of this user)")
    options = parser.parse_args(argv)
    try:
        server = _connect(options.socket or _only_socket())
        with server:
            return _ask(server, options.model and os.path.abspath(options.model), options.wait)
    except Unreached as refusal:
        print(refusal, file=sys.stderr)
        return 2


def _only_socket() -> str:
    found = [path for path in sorted(glob.glob(os.path.join(socket_folder(), PATTERN)))
             if _is_ours(path)]
    if len(found) != 1:
        raise Unreached("no server of this user runs here; name its socket with --socket"
                        if not found else "several servers run here; name one with --socket: "
                        + ", ".join(found))
    return found[0]


def _is_ours(path: str) -> bool:
    try:
        _connect(path).close()
    except Unreached:
        return False
    return True


def _connect(path: str) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        server.connect(path)
    except OSError as error:
        server.close()
        raise Unreached(f"{path}: {error.strerror or error}; is the server running, and is this "
                        "its user?") from None
    if peer_user(server) not in (os.geteuid(), 0) and os.geteuid() != 0:
        server.close()
        raise Unreached(f"{path} belongs to another user's process; it is not asked")
    return server


def _ask(server: socket.socket, model: str, waits: bool) -> int:
    asked_at = time.monotonic()
    server.settimeout(TAKEN_WITHIN_S)
    server.send(json.dumps({"type": "reload", "model": model}).encode())
    if _next(server) is None:
        raise Unreached("the server did not take the request; see its log")
    if not waits:
        print("the request was taken")
        return 0
    server.settimeout(None)
    outcome = _next(server)
    if outcome is None:
        raise Unreached("the server ended meanwhile")
    if outcome["ok"]:
        print(f"the new model serves, {time.monotonic() - asked_at:.1f} s after it was asked for")
        return 0
    print(f"nothing has changed: {outcome['reason']}", file=sys.stderr)
    return 1


def _next(server: socket.socket) -> dict | None:
    """The server's next message; None where it hung up or says nothing in time."""
    try:
        data = server.recv(CONTROL_LIMIT_BYTES)
    except OSError:
        return None
    return json.loads(data) if data else None


if __name__ == "__main__":
    sys.exit(main())
