"""How long to wait so that no more than so many records or bytes pass in a second. Pure."""

from __future__ import annotations

from txnformat.errors import InvalidInputError, repr_of

__all__ = ["Pace", "pace"]


class Pace:
    """A limit for a rate; times are milliseconds of a clock that does not jump.

    Time in which nothing passed is not saved up for later.
    """

    def __init__(self, per_second: float | None) -> None:
        self.per_second = per_second
        self._free_ms = 0.0

    def wait_ms(self, now_ms: int) -> float:
        """Return how long to wait before more may pass; 0 without a limit."""
        return max(0.0, self._free_ms - now_ms)

    def passed(self, count: int, now_ms: int) -> None:
        """Take note of what has passed."""
        if self.per_second is not None:
            self._free_ms = max(self._free_ms, now_ms) + 1000 * count / self.per_second


def pace(name: str, per_second: object) -> Pace:
    """Return the limit of a rate; None: no limit. Raises InvalidInputError (``invalid-argument``)."""
    if per_second is None:
        return Pace(None)
    if not isinstance(per_second, int | float) or isinstance(per_second, bool) or not per_second > 0:
        raise InvalidInputError(
            f"{name} is {repr_of(per_second, 80)}, not a number above 0", kind="invalid-argument"
        )
    return Pace(float(per_second))
