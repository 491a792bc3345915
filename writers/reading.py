"""What a consumer reads, where it stands in it, and how it waits: everything but the checks of its public methods."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

import pyarrow as pa

from txnformat.clock import Instant, waited_ms
from txnformat.errors import InvalidInputError, OffsetOutOfRangeError
from txnformat.log import TxnLog
from txnformat.record_counts import count_records
from txnformat.scan import readable_end
from txnformat.state import LogState, TopicState
from txnformat.time_lookup import first_at
from txnformat.types import OffsetRange, TopicPartition
from writers.consumer_settings import ConsumerSettings
from writers.fetching import Assigned, Fetcher, Turns
from writers.positions import Names, as_pairs, is_in_range, reset_position

__all__ = ["Reading"]

LOOK_MS = 1_000
"""How long a consumer that has enough to hand out does not look at the log."""
WAIT_MS_MIN = 50
"""Wait after the first look that finds nothing; each further one doubles it."""
WAIT_MS_MAX = 1_000
"""Longest wait between looks of an idle consumer."""

FILL_MS = 200
"""How long, at least, further partitions' records may join a batch: what is there is no matter of patience."""


class Reading:
    """The partitions of a consumer and its place in each. Not safe for threads."""

    def __init__(self, log: TxnLog, settings: ConsumerSettings) -> None:
        self.log = log
        self.topics: frozenset[str] = frozenset()
        """Ids of the topics of which all partitions are read, also those that they get later."""
        self.assigned: Turns = OrderedDict()
        self.begun: dict[TopicPartition, int] = {}
        """Where those were begun that had no position."""
        self.later: dict[TopicPartition, int] = {}
        """Where those were begun that came later, and are to be begun again: from their beginning on."""
        self._settings = settings
        self._clock = log.committer.clock
        self._fetcher = Fetcher(log.sidecars, settings.isolation, settings.columns)
        self._looked: Instant | None = None
        self._wait_ms = WAIT_MS_MIN

    # --- what is read ------------------------------------------------------------------------------------------------

    def check_columns(self, topics: Iterable[TopicState]) -> None:
        """Raise InvalidInputError (kind ``unknown-column``) if a topic lacks a column that is asked for."""
        for topic in topics:
            self._fetcher.schema(topic)

    def replace(
        self,
        wanted: Iterable[TopicPartition],
        state: LogState,
        starts: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Read exactly these; those that were read before go on where they are, others from ``starts``."""
        keys = dict.fromkeys(wanted)
        for key in [key for key in self.assigned if key not in keys]:
            self.assigned.pop(key).drop()
            self.begun.pop(key, None)
            self.later.pop(key, None)
        for key in keys:
            if key not in self.assigned:
                self._add(key, state, (starts or {}).get(key))

    def _add(self, key: TopicPartition, state: LogState, start: int | None = None) -> Assigned:
        one = self.assigned[key] = Assigned(key, state.topics[key.topic_id].name, start)
        return one

    def in_order(self) -> list[Assigned]:
        """Return all partitions by topic and number."""
        return sorted(self.assigned.values(), key=lambda one: one.names)

    def chosen(self, wanted: Iterable[Names]) -> list[Assigned]:
        """Return the named partitions; all, if none is named.

        Raises
        ------
        InvalidInputError
            Kinds ``invalid-partitions`` and ``not-assigned``: every one that is wrong.
        """
        names = as_pairs(wanted)
        if not names:
            return self.in_order()
        known = {one.names: one for one in self.assigned.values()}
        missing = [value for value in names if value not in known]
        if missing:
            raise InvalidInputError(
                [f"partition {value!r:.80} is not assigned" for value in missing[:20]],
                kind="not-assigned",
                hint="subscribe to its topic, or assign it",
            )
        return [known[value] for value in names]

    def positions(self) -> dict[TopicPartition, int]:
        """Return the positions that are known, begun or not."""
        return {key: one.position for key, one in self.assigned.items() if one.position is not None}

    # --- where -------------------------------------------------------------------------------------------------------

    def ends(self, one: Assigned, state: LogState) -> tuple[int, int]:
        """Return the first offset that can be read, and the end (exclusive)."""
        partition = state.partition(one.key)
        return partition.log_start, readable_end(partition, self._settings.isolation)

    def placed(self, one: Assigned, state: LogState) -> int:
        """Return a partition's position; begin it where it has none, or none that is there.

        Raises
        ------
        OffsetOutOfRangeError
            It has none that is there, and there is no policy for that.
        """
        partition = state.partition(one.key)
        if one.position is not None and not is_in_range(partition, one.position):
            # Whoever committed it may know more of the log: it is out of range only if the newest state says so.
            partition = self.log.refresh().partition(one.key)
        if one.position is None or not is_in_range(partition, one.position):
            position = reset_position(
                partition, self._settings.isolation, self._settings.auto_offset_reset, one.names, one.position
            )
            if one.position is None:
                self.begun.setdefault(one.key, position)
            one.seek(position)
            return position
        return one.position

    def seek(self, one: Assigned, offset: int) -> None:
        """Go on from another offset. Requests: none, or a look when the offset is not known to be there.

        Raises
        ------
        OffsetOutOfRangeError
        """
        earliest, latest = self.ends(one, self.log.state)
        if not earliest <= offset <= latest:
            earliest, latest = self.ends(one, self.look())
        if not earliest <= offset <= latest:
            raise OffsetOutOfRangeError(
                "the offset is outside what can be read",
                hint="use an offset from earliest to latest",
                got=offset,
                topic=one.topic,
                partition=one.key.partition,
                earliest=earliest,
                latest=latest,
                isolation=self._settings.isolation.value,
            )
        one.seek(offset)

    def first_at(self, key: TopicPartition, state: LogState, time_us: int) -> int | None:
        """Return the first offset at or after a time, of those that can be read."""
        partition = state.partition(key)
        within = OffsetRange(partition.log_start, readable_end(partition, self._settings.isolation))
        return first_at(self.log.sidecars, state, state.topics[key.topic_id], key.partition, within, time_us)

    def lag(self) -> dict[Names, int]:
        """Return how many records each partition still has for the consumer."""
        state = self.look()
        found = {}
        for one in self.in_order():
            start, (_, end) = self.placed(one, state), self.ends(one, state)
            left = 0
            if start < end:
                within = OffsetRange(start, end)
                left = count_records(self.log.sidecars, state, one.key, within, self._settings.isolation)
            found[one.names] = left
        return found

    # --- the next records --------------------------------------------------------------------------------------------

    def look(self) -> LogState:
        """Follow the log, and take in partitions that are new. Requests: 1 GET when nothing is new."""
        state = self.log.refresh()
        self._looked = self._clock.now()
        for topic_id in self.topics:
            for number in range(state.topics[topic_id].partitions):
                key = TopicPartition(topic_id, number)
                if key not in self.assigned:
                    # Nobody had a chance to see it empty: its first records came after the consumer.
                    one = self._add(key, state)
                    one.seek(state.partition(key).log_start)
                    self.later[key] = state.partition(key).log_start
        return state

    def poll(self, timeout_ms: int, records_max: int) -> pa.RecordBatch | None:
        """Return the next records; None when there are none by then. A call with ``timeout_ms`` 0 looks once.

        Waits grow with every look that finds nothing, from call to call, until records come.
        """
        start = self._clock.now()
        since_ms = LOOK_MS if self._looked is None else waited_ms(self._looked, start)
        # Who polls without a break looks at the end of each wait, and not once more at the beginning of the next.
        looked = bool(timeout_ms) and since_ms < WAIT_MS_MIN
        if since_ms >= LOOK_MS:
            self.look()
            looked = True
        while True:
            batch = self._next_batch(start, timeout_ms, records_max)
            if batch is not None:
                self._wait_ms = WAIT_MS_MIN
                return batch
            if looked:
                left_ms = timeout_ms - waited_ms(start, self._clock.now())
                if left_ms <= 0:
                    return None
                self._clock.sleep(min(left_ms, self._wait_ms) / 1_000)
                self._wait_ms = min(2 * self._wait_ms, WAIT_MS_MAX)
            self.look()
            looked = True

    def _next_batch(self, start: Instant, timeout_ms: int, records_max: int) -> pa.RecordBatch | None:
        state = self.log.state
        for one in self.assigned.values():
            if one.may_have_more(state):
                self.placed(one, state)
        return self._fetcher.next_batch(
            state,
            self.assigned,
            records_max,
            lambda: waited_ms(start, self._clock.now()) >= max(timeout_ms, FILL_MS),
        )
