"""Events on stderr: one key=value line each, one write, never in anyone's way."""

import os
import select
import sys
import time

# A pipe takes this much in one piece (PIPE_BUF, pipe(7)).
LONGEST_LINE_BYTES = 4096
_dropped = 0


def event(name: str, /, **fields: object) -> None:
    """Writes `time event=name key=value …`; a value with spaces or quotes is quoted.

    A line that cannot be written at once is dropped and counted in the next one: a blocked
    terminal or a full pipe must not stop a process of the house.
    """
    global _dropped
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    words = [f"{stamp}.{int(now % 1 * 1000):03}Z", f"event={name}"]
    words += [f"{key}={_shown(value)}" for key, value in fields.items() if value is not None]
    if _dropped:
        words.append(f"dropped_lines={_dropped}")
    line = " ".join(words).encode("utf-8", "backslashreplace")[:LONGEST_LINE_BYTES - 1] + b"\n"
    _dropped = 0 if _write(line) else _dropped + 1


def _shown(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    if text and not any(mark in text for mark in ' "=\n\r\t\\'):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + '"'


def _write(line: bytes) -> bool:
    try:
        descriptor = sys.stderr.fileno()
        if not select.select((), (descriptor,), (), 0)[1]:
            return False
        os.write(descriptor, line)
    except (OSError, ValueError, AttributeError):
        return False
    return True
