"""`python -m server`: flags in, exit code out."""

import os
import sys

# Before numpy is imported anywhere: its threads would not survive a fork.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from server import master  # noqa: E402
from server.errors import OperatorError  # noqa: E402
from server.settings import parse  # noqa: E402


def main() -> int:
    """Runs the server; a refusal is one sentence on stderr and its exit code."""
    _open_standard_streams()
    try:
        return master.run(parse(sys.argv[1:], os.environ))
    except OperatorError as refusal:
        print(refusal.message, file=sys.stderr)
        return refusal.exit_code


def _open_standard_streams() -> None:
    """Where the server was started without one, a socket would get its number, and our words."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)


if __name__ == "__main__":
    sys.exit(main())
