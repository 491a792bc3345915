"""When a follower looks at the log next: a consumer, a subscription, a streaming query. Pure.

A log does not push, so a follower asks. The longest wait between two looks is the user's choice, because each
look costs a request. Three rules shorten the wait where that costs little:

* On a store where a look is a system call (a local disk) the follower looks every 20 ms.
* After news a follower begins with a short wait; each look that finds nothing doubles it.
* Commits often come regularly: a job every 10 s, a producer every 200 ms. Then the next one is expected: the
  follower looks closely around that time, a few looks for each commit, and as seldom as the user chose before
  it and after it.

Times of commits are log times, which the clock of the store made; only differences of them are used. The
shortest time from a commit to the look that found it leads from log time to the follower's own clock,
whatever both show.

No rule of the log depends on any of this: a follower that looks late sees the same records later.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from statistics import median

from txnformat.errors import InvalidInputError, repr_of

__all__ = ["LOOK_INTERVAL_BOUNDS", "LOOK_INTERVAL_MS", "Looks", "check_look_interval"]

LOOK_INTERVAL_MS = 1_000
"""Longest wait between two looks unless the user chooses another: on S3 Standard about a dollar a month for a
follower that never rests."""
LOOK_INTERVAL_BOUNDS = (10, 60_000)
"""Both inclusive, ms. A follower tells within a minute that its log is gone."""

FREE_MS = 20
"""Between two looks that cost nothing."""
CLOSE_MS = 50
"""First wait after news; and between two looks around an expected commit, at least."""
CLOSE_LOOKS = 6
"""Looks around an expected commit, about at most; of one that is late the next look waits for half of the
time by which it is late."""
KNOWN = 8
"""Commits that the next one is expected by."""
KNOWN_MIN = 4
"""Fewer of them are no rhythm."""
SPREAD_MAX = 0.25
"""A rhythm's intervals differ from their median by less than this share of it, in the median."""
SLACK_MS = 20
"""Added to the spread, for looks and clocks take time, too."""
MISSED_MAX = 3
"""Expected commits that did not come, after which no more are expected."""


def check_look_interval(value: object) -> None:
    """Raise InvalidInputError (kind ``invalid-settings``) unless ``value`` is a whole number within
    LOOK_INTERVAL_BOUNDS.
    """
    least, most = LOOK_INTERVAL_BOUNDS
    if type(value) is not int or not least <= value <= most:
        raise InvalidInputError(
            f"look_interval_ms is {repr_of(value)}, not a whole number from {least} to {most}",
            kind="invalid-settings",
        )


class Looks:
    """The rhythm of the news that one follower has seen, and its next look. Not safe for threads.

    Parameters
    ----------
    interval_ms : int
        Longest wait between two looks, ms, within LOOK_INTERVAL_BOUNDS.
    is_free : bool
        Whether a look costs nothing.
    """

    def __init__(self, interval_ms: int, *, is_free: bool) -> None:
        self._longest_ms = min(interval_ms, FREE_MS) if is_free else interval_ms
        self._growing_ms = 0
        # Of the last commits that brought news: log time, and the time until the look that found it (clocks
        # may differ).
        self._commits: deque[tuple[int, int]] = deque(maxlen=KNOWN)

    def news(self, log_time_ms: int, asked_ms: int) -> None:
        """Note that a look has found something to read.

        Parameters
        ----------
        log_time_ms : int
            Log time of the newest entry that was seen.
        asked_ms : int
            When the look began, by the follower's own clock; the same one in all calls. Its end would not do:
            the next commit would be expected when the last one was read, ever later.
        """
        self._growing_ms = 0
        if not self._commits or log_time_ms > self._commits[-1][0]:
            self._commits.append((log_time_ms, asked_ms - log_time_ms))

    def nothing(self) -> None:
        """Note that a look has found nothing to read."""
        self._growing_ms = min(max(CLOSE_MS, 2 * self._growing_ms), self._longest_ms)

    def wait_ms(self, now_ms: int) -> int:
        """Return how long to wait before the next look, ms, after a look that found nothing: at least 1, at
        most the interval.
        """
        close_ms = self._until_close_look(now_ms)
        return max(1, self._growing_ms if close_ms is None else min(self._longest_ms, close_ms))

    def _until_close_look(self, now_ms: int) -> int | None:
        """Return the time until the next look around an expected commit; None where none is expected."""
        rhythm = self._rhythm()
        if rhythm is None:
            return None
        interval_ms, reach_ms = rhythm
        due_ms = self._commits[-1][0] + min(delay for _, delay in self._commits)
        # The last one that may have come by now; if none may, the next one.
        missed = max(0, (now_ms + reach_ms - due_ms) // interval_ms - 1)
        if missed >= MISSED_MAX:
            return None
        expected_ms = due_ms + (missed + 1) * interval_ms
        if now_ms < expected_ms - reach_ms:
            return expected_ms - reach_ms - now_ms
        late_ms = now_ms - expected_ms
        wait_ms = max(CLOSE_MS, 2 * reach_ms // CLOSE_LOOKS if late_ms < reach_ms else late_ms // 2)
        return min(wait_ms, expected_ms + interval_ms - reach_ms - now_ms)

    def _rhythm(self) -> tuple[int, int] | None:
        """Return the interval of the last commits, and how far from the expected time the next one may come,
        both ms; None without a rhythm.
        """
        times = [time for time, _ in self._commits]
        between = [later - earlier for earlier, later in pairwise(times)]
        if len(between) < KNOWN_MIN - 1:
            return None
        interval = median(between)
        spread = median(abs(one - interval) for one in between)
        if spread > SPREAD_MAX * interval:
            return None
        reach = min(2 * spread, interval / 2) + SLACK_MS
        return max(1, round(interval)), round(reach)
