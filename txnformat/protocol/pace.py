"""How long a process holds back after a commit, so that those it competes with get their turn. Pure.

The winner of a slot knows the new tip a round trip before the others, and would win the next slot, too, and
the one after: a process that commits without a break would starve all others. So a winner holds back about as
long as the others need to have a slot each: the entries of others that it met during its commits are an
estimate of their number. A process that always loses is not seen; so one that commits without a break and
meets no other waits a moment now and then, too. One that commits less often than that never waits.

No rule of the log depends on it: this is manners, not safety.
"""

from __future__ import annotations

from txnformat.protocol.effects import Times

__all__ = ["Pace"]

HOLD_SHARE = 0.75
"""Share of the others' turns that a winner waits for: below 1, so that some always compete, and no slot goes
unused."""
ROUND_TRIP_WEIGHT = 0.2
"""Weight of the newest round trip in the mean."""
OTHERS_WEIGHT = 0.25
"""Weight of the newest commit in the mean number of others."""
OTHERS_MIN = 0.2
"""A mean below this counts as no other process."""
OTHERS_MAX = 64
"""Most others that are waited for."""
ROUND_TRIP_MS_MAX = 1_000
"""A create that seems to have taken longer was a clock's jump, a suspended machine, or a store in distress.
"""
HOLD_MS_MAX = 10_000
"""Longest that a winner holds back."""
STREAK = 64
"""Commits without a break and without others after which a winner holds back to let those in who always lose.
"""
COURTESY_ROUND_TRIPS = 2
"""How long it then holds back."""


class Pace:
    """Times that a process has learned from its last commits.

    Not safe for threads: the user of the view uses it.
    """

    def __init__(self) -> None:
        self._round_trip_ms = 0.0
        self._others = 0.0
        self._streak = 0
        self._hold_ms = 0.0
        self._since: Times | None = None

    @property
    def others(self) -> int:
        """Entries of others that are likely to land while this process holds back."""
        return round(self._others)

    def hold_ms(self, now: Times) -> float:
        """Return how long to wait, in ms, before the first attempt of a commit that is called at ``now``."""
        return max(0.0, self._hold_ms - self._idle_ms(now))

    def _idle_ms(self, now: Times) -> int:
        return 0 if self._since is None else max(0, now.wall_ms - self._since.wall_ms)

    def won(self, called: Times, sent: Times, now: Times, others: int) -> None:
        """Note that a commit has landed: when it was called, when the create that landed was sent, and when
        it was answered.

        ``others`` are entries between what the process knew at ``called`` and its own. They may have been
        there for long, where this process did not follow the log: they count for no more than can have landed
        since the call.
        """
        took_ms = min(max(0, now.wall_ms - sent.wall_ms), ROUND_TRIP_MS_MAX)
        self._round_trip_ms += ROUND_TRIP_WEIGHT * (took_ms - self._round_trip_ms)
        round_trip_ms = max(self._round_trip_ms, 0.1)
        met = min(others, OTHERS_MAX, (now.wall_ms - called.wall_ms) / round_trip_ms)
        self._others += OTHERS_WEIGHT * (max(0.0, met) - self._others)
        is_busy = self._idle_ms(called) <= round_trip_ms
        self._streak = self._streak + 1 if is_busy and not others else 0
        turns_ms = self._others * round_trip_ms if self._others >= OTHERS_MIN else 0.0
        self._hold_ms = min(HOLD_SHARE * turns_ms, HOLD_MS_MAX)
        if self._streak >= STREAK:
            self._streak = 0
            self._hold_ms = max(self._hold_ms, COURTESY_ROUND_TRIPS * round_trip_ms)
        self._since = now
