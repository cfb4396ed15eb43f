"""How far a long job is: a line rewritten on a terminal, or one now and then in a log."""

import sys
import time

TERMINAL_S, LOG_S = 0.2, 10.0


class Progress:
    """Texts, rate and time left, on stderr."""

    def __init__(self) -> None:
        self._started = self._shown = time.monotonic()
        self._is_terminal = sys.stderr.isatty()

    def show(self, texts: int, done: float | None) -> None:
        """`done` is the share of the work that is done; None where that is not known."""
        now = time.monotonic()
        if now - self._shown < (TERMINAL_S if self._is_terminal else LOG_S):
            return
        self._shown = now
        seconds = now - self._started
        line = f"{texts:,} texts, {texts / seconds:,.0f} texts/s"
        if done:
            line += f", {100 * done:.0f} %, {_duration(seconds / done - seconds)} left"
        self._print(line, "" if self._is_terminal else "\n")

    def finish(self, texts: int, bad: int, deaths: int) -> None:
        """The last line: what was done, and what not."""
        seconds = time.monotonic() - self._started
        died = f", {deaths} engines died and were replaced" if deaths else ""
        self._print(f"{texts:,} texts in {_duration(seconds)}, {texts / max(seconds, 1e-9):,.0f} "
                    f"texts/s, {bad:,} bad{died}", "\n")

    def _print(self, line: str, end: str) -> None:
        print(("\r\x1b[K" if self._is_terminal else "") + line, end=end, file=sys.stderr,
              flush=True)


def _duration(seconds: float) -> str:
    """Example: 3725 s is 1:02:05, 7.25 s is 7.2 s."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, whole = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{whole:02}" if hours else f"{minutes}:{whole:02} min"
