"""When refused requests should come back: one after the other, at the rate of answers (pure).

Told to come back after the same second they would all do so at once, and most would be refused
again. So each is given a time after those that were given to others, as far apart as requests have
been answered of late. Example: 50 answers a second; 100 refusals at once are spread over 2 s.
"""

import math

# The rate is that of the last seconds, forgotten with this time constant.
MEMORY_S = 2.0
# Nobody is sent away for longer: what was refused may never come back, and its time is free then.
LONGEST_S = 30.0


class Returns:
    """Of one front; times are monotonic seconds."""

    def __init__(self, now: float) -> None:
        self._given_until = now
        self._rate = 0.0            # answers a second
        self._rate_at = now

    def answered(self, now: float, requests: int = 1) -> None:
        """So many requests were answered."""
        self._decay(now)
        self._rate += requests / MEMORY_S

    def give_ms(self, least_ms: int, now: float) -> int:
        """After how long a request that is refused now should come back; at least `least_ms`,
        at most LONGEST_S unless that is less."""
        self._decay(now)
        given = max(self._given_until, now + least_ms / 1e3)
        latest = max(now + LONGEST_S, now + least_ms / 1e3)
        self._given_until = min(given + 1.0 / max(self._rate, 1.0), latest)
        return max(int((min(given, latest) - now) * 1e3), least_ms)

    def _decay(self, now: float) -> None:
        self._rate *= math.exp(min(self._rate_at - now, 0.0) / MEMORY_S)
        self._rate_at = now
