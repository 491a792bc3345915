"""A process's view of a log: a state, and when it was last proven to be the tip.

The age of a view runs from *sending* the request that proved the next slot empty. Deleted slots can be
created again by a writer that slept; so beyond a bounded age nothing counts before the boundary was read.
Safety rests on bounded clock rates, never on clocks that agree (specification, section "Old entries").
"""

from __future__ import annotations

from dataclasses import dataclass

from txnformat.core.state import LogState
from txnformat.protocol.effects import Times

__all__ = ["View", "age_of"]

VIEW_AGE_MS_MAX = 60_000
"""Oldest view that proves anything without reading the boundary."""
LOOK_AGE_MS_MAX = 1_000
"""Oldest view with which a commit is tried at once, where others commit as well."""


@dataclass(frozen=True, slots=True)
class View:
    """The knowledge of one process about a log."""

    state: LogState
    proof: Times | None = None
    """Clocks just before the request that proved slot ``state.entry + 1`` empty; None when nothing did."""
    behind: int = 0
    """Entries of others that a look may be expected to find: as many as the last looks did. A guess, of which
    only the number of requests depends."""

    def is_fresh(self, now: Times) -> bool:
        """Return whether the view's proof is recent enough at ``now`` to do without the boundary."""
        if self.proof is None:
            return False
        age = elapsed_ms(self.proof, now)
        return age is not None and age <= VIEW_AGE_MS_MAX

    def supersedes(self, known: View) -> bool:
        """Return whether to go on from this view rather than from ``known``: it knows more, or the same more
        recently.

        Both were proven; so of two views of one log the longer one goes on from the shorter.
        """
        if self.state.log_id != known.state.log_id:
            return True
        if self.state.entry != known.state.entry:
            return self.state.entry > known.state.entry
        return _proven_at(self.proof) >= _proven_at(known.proof)

    def is_behind(self, now: Times) -> bool:
        """Return whether others have probably committed since the view was proven: a look is cheaper than an
        attempt that loses its slot.
        """
        if self.proof is None or not self.behind:
            return False
        age = elapsed_ms(self.proof, now)
        return age is None or age > LOOK_AGE_MS_MAX


def _proven_at(proof: Times | None) -> tuple[int, int]:
    return (-1, -1) if proof is None else (proof.boot_ms or 0, proof.wall_ms)


def elapsed_ms(start: Times, end: Times) -> int | None:
    """Return the time between two readings: the larger of what both clocks say.

    None when no clock counts suspended time: then no age can be trusted.
    """
    if start.boot_ms is None or end.boot_ms is None:
        return None
    return max(end.boot_ms - start.boot_ms, end.wall_ms - start.wall_ms)


def age_of(start: Times, end: Times) -> int:
    """Return the milliseconds between two readings, too many rather than too few: for what must not be too
    old.
    """
    elapsed = elapsed_ms(start, end)
    return end.wall_ms - start.wall_ms if elapsed is None else elapsed
