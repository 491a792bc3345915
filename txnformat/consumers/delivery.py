"""Which records a subscription hands out next. Not safe for threads.

Visible records that are neither acknowledged nor pending, and that this instance has not handed out before.
Nothing of this is in the log: there is no lease on records. A record that was handed out and not acknowledged
is handed out again by the next instance; by this one, if it was given back, or if it has become free again:
the transaction that had acknowledged it was aborted, by any process, or a seek has moved the subscription
back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from txnformat.consumers.fetching import Assigned, Fetcher, Turns
from txnformat.core.ranges import NO_RANGES, Ranges
from txnformat.core.state import LogState
from txnformat.reading.visible import Visible
from txnformat.types import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from txnformat.core.subscriptions.state import PartitionAcks, SubscriptionState
    from txnformat.log import TxnLog

__all__ = ["Delivery"]

ROWS_READ = 4_096
"""Most records that are read at once to find some that are to be handed out."""


@dataclass(slots=True)
class _Partition:
    """One partition of the subscription."""

    visible: Visible
    passed: Ranges = field(default_factory=lambda: NO_RANGES)
    """Read by this instance: handed out, or passed over since it was not to be, or nothing to be read."""
    taken: Ranges = field(default_factory=lambda: NO_RANGES)
    """The offsets known as acknowledged or pending; an offset that no longer is has become free."""
    seen: PartitionAcks | None = None
    """The state that ``taken`` is from. If None, it is from more than one."""


class Delivery:
    """The records of one subscription on their way to one instance of it."""

    def __init__(self, log: TxnLog, topic_id: str, columns: Sequence[str] | None) -> None:
        self._log = log
        self._topic_id = topic_id
        self._fetcher = Fetcher(log.sidecars, log.refresh, IsolationLevel.READ_COMMITTED, columns)
        self._turns: Turns = OrderedDict()
        self._partitions: dict[int, _Partition] = {}
        self._created_entry: int | None = None

    def partition(self, number: int) -> _Partition:
        """Return what is known of a partition."""
        if number not in self._partitions:
            self._partitions[number] = _Partition(Visible(TopicPartition(self._topic_id, number)))
        return self._partitions[number]

    def next_batch(
        self,
        state: LogState,
        subscription: SubscriptionState,
        rows_max: int,
        announce: Callable[[pa.RecordBatch], None],
    ) -> pa.RecordBatch | None:
        """Return the next records to hand out; None when there are none now.

        ``announce`` gets them before they count as handed out.
        """
        if self._created_entry != subscription.created_entry:
            self.restart()  # another one of the same name: what was handed out was of the one before
            self._created_entry = subscription.created_entry
        places: Iterable[int] = range(state.topics[self._topic_id].partitions)
        while True:
            for number in places:
                self._place(state, number, state.acks(subscription, TopicPartition(self._topic_id, number)))
            fetched = self._fetcher.fetch(state, self._turns, min(rows_max, ROWS_READ), lambda: False)
            kept = None if fetched.batch is None else self._wanted(fetched.batch)
            if kept is not None and kept.num_rows:
                announce(kept)
            places = []
            for key, reached in fetched.positions.items():
                if (position := self._turns[key].position) != reached:
                    known = self.partition(key.partition)
                    known.passed = known.passed | Ranges.of([(position or 0, reached)])
                    places.append(key.partition)
            fetched.move(self._turns)
            if kept is None or kept.num_rows:
                return kept

    def _place(self, state: LogState, number: int, acks: PartitionAcks) -> None:
        """Go on behind what is not to be handed out, or back to what has become free."""
        key = TopicPartition(self._topic_id, number)
        known = self.partition(number)
        if key not in self._turns:
            self._turns[key] = Assigned(key, state.topics[self._topic_id].name, acks.mark)
        if known.seen is not acks:
            taken = _taken(acks)
            self.give_back(number, known.taken - taken)
            known.taken, known.seen = taken, acks
        one = self._turns[key]
        known.passed = known.passed.above(acks.mark)
        position = max(one.position or 0, acks.mark)
        taken = known.taken | known.passed
        index = int(np.searchsorted(taken.starts, position, side="right")) - 1
        if index >= 0:
            position = max(position, int(taken.ends[index]))
        one.go_on(min(position, state.partition(key).last_stable_offset))

    def _wanted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records of a batch that are to be handed out."""
        partitions = batch.column("_partition").to_numpy(zero_copy_only=False)
        offsets = batch.column("_offset").to_numpy(zero_copy_only=False).astype(np.int64)
        wanted = np.ones(len(offsets), np.bool_)
        for number in np.unique(partitions).tolist():
            here = partitions == number
            known = self.partition(number)
            taken = known.taken | known.passed
            wanted[here] = ~taken.holds(offsets[here])
        return batch if wanted.all() else batch.filter(pa.array(wanted))

    def acknowledged(self, number: int, ranges: Ranges) -> None:
        """Take note of what is acknowledged: should it be free when the log is next looked at, it is handed
        out again.
        """
        known = self.partition(number)
        known.taken, known.seen = known.taken | ranges, None

    def give_back(self, number: int, given: Ranges) -> None:
        """Let records of a partition be handed out again."""
        if not len(given):
            return
        known = self.partition(number)
        known.passed = known.passed - given
        one = self._turns.get(TopicPartition(self._topic_id, number))
        if one is not None and one.position is not None and given.starts[0] < one.position:
            one.seek(int(given.starts[0]))

    def restart(self) -> None:
        """Hand out everything again that is not acknowledged or pending."""
        turns, self._turns, self._partitions = self._turns, OrderedDict(), {}
        for one in turns.values():
            one.drop()


def _taken(acks: PartitionAcks) -> Ranges:
    """Return what is acknowledged or pending."""
    return acks.whole() | acks.held()
