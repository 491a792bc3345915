"""What a subscription hands out next. Not safe for threads.

Visible records that nobody has acknowledged, that are not pending, and that this instance has not handed out before.
Nothing of this is in the log: there is no lease on records. A record that was handed out and not acknowledged is handed
out again by the next instance; one whose acknowledgement was in a transaction that aborted, or that was given back, by this.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from txnformat.ranges import NO_RANGES, Ranges
from txnformat.state import LogState
from txnformat.types import IsolationLevel, TopicPartition
from txnformat.visible_records import Visible
from writers.fetching import Assigned, Fetcher, Turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from txnformat.log import TxnLog
    from txnformat.subscription_state import PartitionAcks, SubscriptionState

__all__ = ["Delivery"]

ROWS_READ = 4_096
"""Most records that are read at once to find some that are to be handed out."""


@dataclass(slots=True)
class _Partition:
    """One partition of the subscription."""

    visible: Visible
    delivered: Ranges = field(default_factory=lambda: NO_RANGES)
    """Handed out by this instance."""
    passed: Ranges = field(default_factory=lambda: NO_RANGES)
    """Passed over, since they were pending."""


class Delivery:
    """The records of one subscription on their way to one instance of it."""

    def __init__(self, log: TxnLog, topic_id: str, columns: Sequence[str] | None) -> None:
        self._log = log
        self._topic_id = topic_id
        self._fetcher = Fetcher(log.sidecars, IsolationLevel.READ_COMMITTED, columns)
        self._turns: Turns = OrderedDict()
        self._partitions: dict[int, _Partition] = {}
        self._rest: pa.RecordBatch | None = None

    def partition(self, number: int) -> _Partition:
        """Return what is known of a partition."""
        if number not in self._partitions:
            self._partitions[number] = _Partition(Visible(TopicPartition(self._topic_id, number)))
        return self._partitions[number]

    def next_batch(
        self, state: LogState, subscription: SubscriptionState, rows_max: int
    ) -> pa.RecordBatch | None:
        """Return the next records to hand out; None when there are none now."""
        topic = state.topics[self._topic_id]
        for number in range(topic.partitions):
            self._place(state, number, subscription.partition(number))
        while True:
            batch = self._fetcher.next_batch(state, self._turns, min(rows_max, ROWS_READ), lambda: False)
            if batch is None:
                return None
            kept = self._wanted(batch, subscription)
            if kept.num_rows:
                self._hand_out(kept)
                return kept

    def _place(self, state: LogState, number: int, acks: PartitionAcks) -> None:
        """Go on behind what is not to be handed out, or back to what has become free."""
        key = TopicPartition(self._topic_id, number)
        known = self.partition(number)
        if key not in self._turns:
            self._turns[key] = Assigned(key, state.topics[self._topic_id].name, acks.mark)
        one = self._turns[key]
        position = max(one.position or 0, acks.mark)
        known.delivered = known.delivered.above(acks.mark)
        free = known.passed.above(acks.mark) - acks.held() - acks.acked
        known.passed = known.passed.above(acks.mark) - free
        if len(free):
            position = min(position, int(free.starts[0]))
        taken = acks.acked | acks.held() | known.delivered
        index = int(np.searchsorted(taken.starts, position, side="right")) - 1
        if index >= 0 and position < taken.ends[index]:
            pending = acks.held()
            known.passed = known.passed | pending.above(position).below(int(taken.ends[index]))
            position = int(taken.ends[index])
        end = state.partition(key).last_stable_offset
        position = min(position, end)
        if position != one.position:
            one.seek(position)

    def _wanted(self, batch: pa.RecordBatch, subscription: SubscriptionState) -> pa.RecordBatch:
        """Return the records of a batch that are to be handed out."""
        partitions = batch.column("_partition").to_numpy(zero_copy_only=False)
        offsets = batch.column("_offset").to_numpy(zero_copy_only=False).astype(np.int64)
        wanted = np.ones(len(offsets), np.bool_)
        for number in np.unique(partitions).tolist():
            here = partitions == number
            known, acks = self.partition(number), subscription.partition(number)
            held = acks.held().holds(offsets[here])
            passed = offsets[here][held & ~acks.acked.holds(offsets[here])]
            known.passed = known.passed | Ranges.between(passed, passed + 1)
            wanted[here] = ~(
                held
                | acks.acked.holds(offsets[here])
                | known.delivered.holds(offsets[here])
                | (offsets[here] < acks.mark)
            )
        return batch if wanted.all() else batch.filter(pa.array(wanted))

    def _hand_out(self, batch: pa.RecordBatch) -> None:
        partitions = batch.column("_partition").to_numpy(zero_copy_only=False)
        offsets = batch.column("_offset").to_numpy(zero_copy_only=False).astype(np.int64)
        for number in np.unique(partitions).tolist():
            known = self.partition(number)
            here = offsets[partitions == number]
            known.delivered = known.delivered | Ranges.between(here, here + 1)

    def give_back(self, ranges: dict[int, Ranges]) -> None:
        """Let records be handed out again."""
        for number, given in ranges.items():
            known = self.partition(number)
            known.delivered = known.delivered - given
            one = self._turns.get(TopicPartition(self._topic_id, number))
            if one is not None and one.position is not None and len(given) and given.starts[0] < one.position:
                one.seek(int(given.starts[0]))

    def restart(self) -> None:
        """Hand out everything again that is not acknowledged or pending."""
        for one in self._turns.values():
            one.drop()
        self._turns.clear()
        self._partitions.clear()
