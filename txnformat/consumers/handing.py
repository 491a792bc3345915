"""Handing records to a caller who may be interrupted before having them.

A poll is over when the caller has the batch, and only the caller can say so: its last step is the assignment
of what it was handed. So positions wait: they are moved behind a batch by the next call, if by then the
caller is known to have it. If it is not, the caller was interrupted, and the next poll hands out the same
batch.

    poll, on a library thread     fetches a batch, and notes it: :class:`Handed`
    poll, in the caller's thread  takes it, as its very last step
    the next call                 moves the positions behind what was taken

Records that are decoded already are cut from what lies ready in the caller's thread
(:meth:`Handed.following`): that changes nothing, so it needs no library thread, and can be interrupted
anywhere.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from txnformat.clock import Instant
from txnformat.consumers.fetching import Assigned, Fetched, Turns
from txnformat.core.state import LogState

__all__ = ["Front", "Handed", "handed_out"]


class _Open(NamedTuple):
    """A partition that has more, and what lies ready of it."""

    one: Assigned
    rest: pa.RecordBatch | None
    """The rest of the fetched records. If None, the consumer must fetch."""
    taken: int = 0
    """Records of it that were handed out since it was fetched."""
    offset: int = 0
    """The position behind these."""


class Handed:
    """A batch on its way to the caller.

    ``fetched`` is what the chain of batches began with that this one belongs to; ``turns`` the partitions
    that have more, in the order of their turns, none where nothing may be cut in advance.
    """

    __slots__ = ("_turns", "batch", "fetched")

    def __init__(self, batch: pa.RecordBatch, fetched: Fetched, turns: tuple[_Open, ...]) -> None:
        self.batch = batch
        self.fetched = fetched
        self._turns = turns

    def following(self, rows_max: int) -> Handed | None:
        """Return the batch after this one, if it lies ready and is that of one partition; change nothing."""
        if not self._turns:
            return None
        one, rest, taken, _ = self._turns[0]
        if rest is None or rest.num_rows - taken <= rows_max:
            return None  # the end of what is decoded is the matter of a fetch
        batch = rest.slice(taken, rows_max)
        offset = batch.column("_offset")[-1].as_py() + 1
        assert self.fetched.schema is not None
        asked = one.read.asked if one.read is not None else self.fetched.schema
        turns = (*self._turns[1:], _Open(one, rest, taken + rows_max, offset))
        return Handed(batch.select(asked.names), self.fetched, turns)

    def move(self, assigned: Turns) -> None:
        """Move the positions behind this batch and all of the chain before it. Can be repeated."""
        self.fetched.move(assigned)
        for one, _, taken, offset in self._turns:
            if taken and one.read is not None:
                if one.read.offset != offset:
                    one.read.go_on(taken, offset)
                one.position = offset
                assigned.move_to_end(one.key)


class Front(NamedTuple):
    """The newest chain of batches, and until when it may be gone on with without a look at anything else."""

    fetched: Fetched
    looked: Instant
    """When the log was last looked at."""
    state: LogState
    """The state as it was known then."""
    group_state: LogState | None
    """The state, as it was known then, of the log that has the group."""


def handed_out(batch: pa.RecordBatch, fetched: Fetched, assigned: Turns, state: LogState | None) -> Handed:
    """Return a batch that was fetched, on its way to the caller.

    ``state`` is that of the fetch, if more may be cut in advance from what it has left; else None.
    """
    if state is None:
        return Handed(batch, fetched, ())
    served = dict.fromkeys(fetched.served)
    order = [one for key, one in assigned.items() if key not in served]
    order += [assigned[key] for key in served]
    turns = tuple(
        _Open(one, _ready(one, fetched))
        for one in order
        if one.may_have_more(state) and one.key not in fetched.drained
    )
    return Handed(batch, fetched, turns)


def _ready(one: Assigned, fetched: Fetched) -> pa.RecordBatch | None:
    """Return what is decoded of a partition and comes next."""
    position = fetched.positions.get(one.key, one.position)
    return one.read.rest if one.read is not None and one.read.offset == position else None
