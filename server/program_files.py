"""Whether the program's own files are still those that this server was started from.

A generation that is loaded later imports modules that its master never needed; from another version
of the program they may not fit to what runs.
"""

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("server", "loader", "model")


def digest(root: Path = ROOT) -> str:
    """A hash of every Python file of the program, by name and content."""
    found = hashlib.sha256()
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            data = path.read_bytes()
            found.update(f"{path.relative_to(root)} {len(data)}\n".encode() + data)
    return found.hexdigest()


STARTED_FROM = digest()
