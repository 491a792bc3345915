"""The partitions a consumer reads, its positions in them, and how it waits: everything but the checks of its
public methods.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from txnformat.clock import Instant, steady_ms, waited_ms
from txnformat.consumers.fetching import Assigned, Fetched, Fetcher, Turns
from txnformat.consumers.handing import Handed, handed_out
from txnformat.consumers.looks import Looks
from txnformat.consumers.positions import Names, as_pairs, is_in_range, reset_position
from txnformat.consumers.settings import ConsumerSettings
from txnformat.core.records.scan import readable_end
from txnformat.core.records.state import PartitionState
from txnformat.core.state import LogState, TopicState
from txnformat.errors import InvalidInputError, OffsetOutOfRangeError, repr_of
from txnformat.log import TxnLog
from txnformat.reading.resolving import on_newest
from txnformat.reading.times import first_at
from txnformat.reading.visible import count_records
from txnformat.types import OffsetRange, TopicPartition

__all__ = ["Reading"]

LOOK_MS = 1_000
"""How long a consumer that has enough to hand out does not look at the log."""
JUST_NOW_MS = 50
"""A poll that begins so soon after a look does not look again at once."""

FILL_MS = 200
"""How long, at least, further partitions' records may join a batch: what is there is no matter of patience.
"""


class _Assignment(NamedTuple):
    """The assigned partitions: replaced as a whole."""

    topics: frozenset[str]
    assigned: Turns
    begun: dict[TopicPartition, int]
    later: dict[TopicPartition, int]


class Reading:
    """The partitions of a consumer and its place in each. Not safe for threads."""

    def __init__(self, log: TxnLog, settings: ConsumerSettings) -> None:
        self.log = log
        self._assignment = _Assignment(frozenset(), OrderedDict(), {}, {})
        self._handing: Handed | None = None
        self._settings = settings
        self._clock = log.committer.clock
        self._fetcher = Fetcher(log.sidecars, log.refresh, settings.isolation, settings.columns)
        self.looked: Instant | None = None
        """When the log was last looked at."""
        self._looks = Looks(settings.look_interval_ms, is_free=log.store.reads_in_flight == 1)
        self._asked_ms = steady_ms(self._clock.now())
        """When the last look began."""
        self._seen: Mapping[str, TopicState] | None = None
        """The topics among which those of all partitions were found: a mapping is replaced when a topic
        comes, goes or grows."""

    # --- what is read ---------------------------------------------------------------------------------------

    @property
    def topics(self) -> frozenset[str]:
        """Ids of the topics of which all partitions are read, also those that they get later."""
        return self._assignment.topics

    @property
    def assigned(self) -> Turns:
        """The assigned partitions, in the order of turns."""
        return self._assignment.assigned

    @property
    def begun(self) -> dict[TopicPartition, int]:
        """Where those were begun that had no position."""
        return self._assignment.begun

    @property
    def later(self) -> dict[TopicPartition, int]:
        """Where those were begun that came later, and are to be begun again: from their beginning on."""
        return self._assignment.later

    def check_columns(self, topics: Iterable[TopicState]) -> None:
        """Raise InvalidInputError (kind ``unknown-column``) if a topic lacks a column that is asked for."""
        for topic in topics:
            self._fetcher.schema(topic)

    def replace(
        self,
        topics: frozenset[str],
        wanted: Iterable[TopicPartition],
        state: LogState,
        starts: Mapping[TopicPartition, int] | None = None,
        *,
        places: bool = False,
    ) -> None:
        """Read exactly these; those that were read before go on where they are, others from ``starts``.

        Of ``topics`` (ids) all partitions are read. ``places`` begins those that have no position; if that
        fails, what is read is as before.
        """
        before, keys = self._assignment, dict.fromkeys(wanted)
        assigned: Turns = OrderedDict((key, one) for key, one in before.assigned.items() if key in keys)
        for key in keys:
            if key not in assigned:
                assigned[key] = _new(key, state, (starts or {}).get(key))
        begun = {key: offset for key, offset in before.begun.items() if key in keys}
        later = {key: offset for key, offset in before.later.items() if key in keys}
        if places:
            for one in assigned.values():
                self._place(one, state, begun)
        self._handing = None
        self._assignment = _Assignment(topics, assigned, begun, later)
        self._seen = None
        for key, one in before.assigned.items():
            if key not in keys:
                one.drop()

    def in_order(self) -> list[Assigned]:
        """Return all partitions by topic and number."""
        return sorted(self.assigned.values(), key=lambda one: one.names)

    def chosen(self, wanted: Iterable[Names]) -> list[Assigned]:
        """Return the named partitions; all, if none is named.

        Raises InvalidInputError (``invalid-partitions``, ``not-assigned``) about every wrong one.
        """
        names = as_pairs(wanted)
        if not names:
            return self.in_order()
        known = {one.names: one for one in self.assigned.values()}
        missing = [value for value in names if value not in known]
        if missing:
            raise InvalidInputError(
                [f"partition {repr_of(value, 80)} is not assigned" for value in missing[:20]],
                kind="not-assigned",
                hint="subscribe to its topic, or assign it",
            )
        return [known[value] for value in names]

    def positions(self) -> dict[TopicPartition, int]:
        """Return the positions that are known, begun or not."""
        return {key: one.position for key, one in self.assigned.items() if one.position is not None}

    # --- where ----------------------------------------------------------------------------------------------

    def ends(self, one: Assigned, state: LogState) -> tuple[int, int]:
        """Return the first offset that can be read, and the end (exclusive)."""
        partition = _partition(state, one.key)
        return partition.log_start, readable_end(partition, self._settings.isolation)

    def placed(self, one: Assigned, state: LogState) -> int:
        """Return a partition's position; begin it where it has none that is there.

        Raises OffsetOutOfRangeError when there is no policy for that.
        """
        return self._place(one, state, self.begun)

    def _place(self, one: Assigned, state: LogState, begun: dict[TopicPartition, int]) -> int:
        partition = _partition(state, one.key)
        if one.position is not None and not is_in_range(partition, one.position):
            # Its committer may know more of the log: it is out of range only if the newest state says so.
            partition = _partition(self.log.refresh(), one.key)
        if one.position is None or not is_in_range(partition, one.position):
            position = reset_position(
                partition, self._settings.isolation, self._settings.auto_offset_reset, one.names, one.position
            )
            if one.position is None:
                begun.setdefault(one.key, position)
            one.seek(position)
            return position
        return one.position

    def seek(self, one: Assigned, offset: int) -> None:
        """Go on from another offset.

        Requests: none, or a look when the offset is not known to be there. Raises OffsetOutOfRangeError.
        """
        earliest, latest = self.ends(one, self.log.state)
        if not earliest <= offset <= latest:
            earliest, latest = self.ends(one, self.look())
        if not earliest <= offset <= latest:
            raise OffsetOutOfRangeError(
                "the offset is outside the readable range",
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

        def found(state: LogState) -> int | None:
            partition = _partition(state, key)
            within = OffsetRange(partition.log_start, readable_end(partition, self._settings.isolation))
            topic = state.topics[key.topic_id]
            return first_at(self.log.sidecars, state, topic, key.partition, within, time_us)

        return on_newest(self.log.refresh, found, state)

    def lag(self) -> dict[Names, int]:
        """Return how many records each partition still has for the consumer."""
        state = self.look()
        found = {}
        for one in self.in_order():
            start, (_, end) = self.placed(one, state), self.ends(one, state)
            left = 0
            if start < end:
                counted = partial(
                    count_records,
                    self.log.sidecars,
                    key=one.key,
                    within=OffsetRange(start, end),
                    isolation=self._settings.isolation,
                )
                left = on_newest(self.log.refresh, counted, state)
            found[one.names] = left
        return found

    # --- the next records -----------------------------------------------------------------------------------

    def look(self, *, anew: bool = False) -> LogState:
        """Follow the log, and take in partitions that are new. Requests: 1 GET when nothing is new.

        Raises NotFoundError of kind ``topic-gone``, but for ``anew``: the caller is about to choose other
        topics.
        """
        self._asked_ms = steady_ms(self._clock.now())
        state = self.log.refresh()
        self.looked = self._clock.now()
        for topic_id in self.topics:
            if anew and topic_id not in state.topics:
                continue
            for number in range(state.topic_of(topic_id, "the consumer").partitions):
                key = TopicPartition(topic_id, number)
                if key not in self.assigned:
                    # The consumer never saw it empty: its first records came after the consumer.
                    start = self.later[key] = state.partition(key).log_start
                    self.assigned[key] = _new(key, state, start)
        return state

    def settle(self, taken: Handed | None) -> None:
        """Move the positions behind what was handed out, if it is the last batch that a caller has taken."""
        handing = self._handing
        if handing is not None and taken is not None and taken.fetched is handing.fetched:
            taken.move(self.assigned)
            self._handing = None

    def forget_handing(self) -> None:
        """Let what no caller has taken be fetched again, from where its partitions then are."""
        self._handing = None

    def poll(
        self,
        timeout_ms: int,
        records_max: int,
        *,
        cuts_ahead: bool = False,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Handed | None:
        """Return the next records; None when there are none by then. A call with ``timeout_ms`` 0 looks once.

        Between two looks it waits as :mod:`txnformat.consumers.looks` says. A batch that was handed out and
        not taken is handed out again. With ``cuts_ahead`` further batches may be cut from what lies ready;
        ``is_over`` says that there is no caller any more who waits for an answer.
        """
        if self._handing is not None and self._handing.batch.num_rows <= records_max:
            return self._handing
        self._handing = None
        start = self._clock.now()
        since_ms = LOOK_MS if self.looked is None else waited_ms(self.looked, start)
        # A consumer that polls without a break looks at the end of each wait, and not once more at the
        # beginning of the next.
        looked = bool(timeout_ms) and since_ms < JUST_NOW_MS
        if since_ms >= LOOK_MS:
            self.look()
            looked = True
        while True:
            fetched = self._fetch(start, timeout_ms, records_max)
            if fetched.batch is not None:
                self._looks.news(self.log.state.timestamp_ms, self._asked_ms)
                state = self.log.state if cuts_ahead else None
                self._handing = handed_out(fetched.batch, fetched, self.assigned, state)
                return self._handing
            fetched.move(self.assigned)
            if looked:
                left_ms = timeout_ms - waited_ms(start, self._clock.now())
                if left_ms <= 0 or is_over():
                    return None
                self._looks.nothing()
                self._clock.sleep(min(left_ms, self._looks.wait_ms(steady_ms(self._clock.now()))) / 1_000)
            self.look()
            looked = True

    def _fetch(self, start: Instant, timeout_ms: int, records_max: int) -> Fetched:
        state = self.log.state
        if self._seen is not state.topics:
            for one in self.assigned.values():
                _partition(state, one.key)
            self._seen = state.topics

        def fetched(state: LogState) -> Fetched:
            for one in self.assigned.values():
                if one.may_have_more(state):
                    self.placed(one, state)
            return self._fetcher.fetch(
                state,
                self.assigned,
                records_max,
                lambda: waited_ms(start, self._clock.now()) >= max(timeout_ms, FILL_MS),
            )

        try:
            return fetched(state)
        except OffsetOutOfRangeError:
            # A trim and a vacuum have overtaken the read: its partition goes on where the policy for that
            # says.
            if self.log.state.entry == state.entry:
                raise
            return fetched(self.log.state)


def _partition(state: LogState, key: TopicPartition) -> PartitionState:
    """Return a partition. Raises NotFoundError of kind ``topic-gone``: its topic was deleted."""
    state.topic_of(key.topic_id, "a partition that is read")
    return state.partition(key)


def _new(key: TopicPartition, state: LogState, start: int | None) -> Assigned:
    return Assigned(key, state.topics[key.topic_id].name, start)
