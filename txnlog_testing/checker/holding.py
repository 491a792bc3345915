"""Open transactions hold readers of committed records back: which may be open when, and what a whole read
must show.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from txnformat.types import IsolationLevel
from txnlog_testing.checker.evidence import Evidence, Operation, Polled, Written
from txnlog_testing.checker.vocabulary import EventType, Function, Key

__all__ = ["OpenTransactions", "WholeReads"]


class OpenTransactions:
    """The transactions of each partition that may hold its last stable offset.

    Parameters
    ----------
    counts : callable
        Whether a transaction is one of them.
    """

    def __init__(self, evidence: Evidence, counts: Callable[[Operation], bool] = lambda _: True) -> None:
        over = _overs(evidence)
        self._of: dict[Key, _Intervals] = {}
        for one in evidence.operations:
            if one.f is Function.TXN and counts(one):
                for key in {key for send in one.sends for key in evidence.keys.get(send.key, {send.key})}:
                    self._of.setdefault(key, _Intervals()).add(one, over[one])

    def may_hold(self, key: Key, look: Operation, stall_ns: int = 0) -> bool:
        """Return whether one may have been open while a reader looked, or ended less than a time before."""
        found = self._of.get(key)
        return found is not None and found.overlaps(look, stall_ns)


class _Intervals:
    """Transactions in the order in which they began, with the latest end of those up to each."""

    def __init__(self) -> None:
        self._began: list[int] = []
        self._over: list[int] = []
        self._ended_ns: list[int] = []

    def add(self, one: Operation, over: int) -> None:
        ended_ns = -1 if one.completed_ns is None else one.completed_ns
        self._began.append(one.invoked)
        self._over.append(max(over, self._over[-1] if self._over else -1))
        self._ended_ns.append(max(ended_ns, self._ended_ns[-1] if self._ended_ns else -1))

    def overlaps(self, look: Operation, stall_ns: int) -> bool:
        place = bisect_left(self._began, look.told) - 1
        if place < 0:
            return False
        return self._over[place] > look.invoked or look.invoked_ns - self._ended_ns[place] < stall_ns


def _overs(evidence: Evidence) -> dict[Operation, int]:
    """Return where each transaction was over for certain: ended, aborted by the next instance, or
    quiesced.
    """
    opened: dict[str, list[Operation]] = {}
    for one in evidence.operations:
        if one.f is Function.INIT and one.outcome is EventType.OK and one.transaction is not None:
            opened.setdefault(one.transaction.id, []).append(one)
    over: dict[Operation, int] = {}
    for one in evidence.operations:
        over[one] = one.settled
        if one.transaction is not None and one.transaction.id in opened:
            later = opened[one.transaction.id]
            place = bisect_left(later, one.invoked, key=lambda init: init.invoked)
            if place < len(later):
                over[one] = min(one.settled, later[place].completed)
    return over


class WholeReads:
    """The reads of all that there is, and what each of them must show.

    Parameters
    ----------
    writes_isolated : bool
        Whether only interleaved transactions hold the last stable offset.
    """

    def __init__(self, evidence: Evidence, *, writes_isolated: bool) -> None:
        self._open = OpenTransactions(evidence, lambda one: one.interleaved or not writes_isolated)
        self.polls = [polled for polled in evidence.polls if polled.poll.whole and polled.is_committed_only]
        self._covered = {id(polled): evidence.covered(polled.poll.records) for polled in self.polls}
        self._held: dict[tuple[int, Key], bool] = {}
        self._evidence = evidence

    def covers(self, polled: Polled, key: Key) -> bool:
        """Return whether a read is of a partition, or of all partitions of a topic."""
        return key in self._covered[id(polled)]

    def must_show(self, polled: Polled, key: Key, found: Written) -> bool:
        """Return whether a committed record would be there: it is where the read was, and no open transaction
        is before it.
        """
        if not self.covers(polled, key):
            return False
        if polled.poll.isolation is IsolationLevel.SNAPSHOT:
            return True  # nothing holds it back
        for place_key, offset in found.places:
            if place_key == key and key in polled.poll.ranges:
                return offset < polled.poll.ranges[key][1]
        return not any(self._is_held(polled, one) for one in self._evidence.keys.get(key, {key}))

    def _is_held(self, polled: Polled, key: Key) -> bool:
        which = (id(polled), key)
        if which not in self._held:
            self._held[which] = self._open.may_hold(key, polled.operation)
        return self._held[which]
