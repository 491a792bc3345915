"""The stream reader: what Spark asks of it on the driver, and in tasks.

On the driver it lives in one process for as long as a query runs. Tasks get a pickle of another one, and read
what their splits say. Nothing is raised, and nothing is looked up, before Spark asks for an offset: an error
of a constructor would be hidden behind one of Spark's own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_datasource.failures import clean_errors, clean_iterator, unsupported
from spark_datasource.options.declared import Order, ReadOptions
from spark_datasource.options.hadoop import HadoopSettings
from spark_datasource.options.read import parse_read_options
from spark_datasource.read.planning import plan_commits, plan_offsets, splits_of, topic_read
from spark_datasource.read.split_reader import read_split
from spark_datasource.read.splits import Split, TopicPlan, TopicRead
from spark_datasource.stream.followed_log import FollowedLog
from spark_datasource.stream.offsets import SeenEntry, StreamOffset, parse_stream_offset
from spark_datasource.stream.progress import (
    Limits,
    available,
    check_there,
    first_offset,
    next_offset,
    topic_gone,
    without_loss,
)
from spark_datasource.worker.logs import check_same, has_entry
from txnformat.core.state import LogState, TopicState
from txnformat.errors import ConflictError, InvalidInputError, TxnLogError
from txnformat.persistent import replace
from txnformat.spans import span
from txnformat.types import OffsetRange, TopicPartition

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as _AvailableNow

    HAS_LIMITS = True
except ImportError:  # pyspark 4.1: no limits, and Trigger.AvailableNow is one micro-batch
    HAS_LIMITS = False
    _AvailableNow = object  # type: ignore[assignment, misc]

__all__ = ["HAS_LIMITS", "TxnLogStreamReader"]

_NO_LIMITS: Limits = (None, None)


class TxnLogStreamReader(DataSourceStreamReader, _AvailableNow):
    """Reads topics as they grow. ``schema``: the one that Spark expects for as long as the query runs."""

    trace: str | None = None

    def __init__(
        self, raw_options: Mapping[str, str], hadoop: HadoopSettings | None, schema: StructType
    ) -> None:
        self._raw_options = dict(raw_options)
        self._hadoop = hadoop
        self._schema = schema
        self._parsed: ReadOptions | None = None
        self._followed: FollowedLog | None = None
        self._initial: StreamOffset | None = None
        self._last: dict[str, Any] | None = None  # what was last said to be the latest offset
        self._frozen: LogState | None = None
        self._is_idle = False
        self._recognized: deque[SeenEntry | None] = deque(maxlen=4)
        """Entries of the last offsets: they are this log's for sure."""
        self._reads: dict[tuple[str, int], TopicRead] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Tasks need no more than that; what is open stays in the driver's process.
        return {"args": (self._raw_options, self._hadoop, self._schema)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["args"])  # type: ignore[misc]

    # Spark's names from here on.

    @clean_errors
    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins; Spark asks twice, and again when it repeats the first batch."""
        if self._initial is None:
            state = self._state()
            topics = self._options.topics.chosen_any(state)
            self._initial = self._made(first_offset(self._open.log, state, self._options, topics), state)
        return self._initial.to_json()

    @clean_errors
    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """Return the end of the next micro-batch; ``start`` itself when there is nothing to read.

        Requests: 1 GET a look when nothing is new (:mod:`txnformat.consumers.looks`); with
        ``Trigger.AvailableNow`` none after the first.
        """
        if start is None:  # pyspark 4.1 does not say
            start = self._last or self.initialOffset()
        begin = parse_stream_offset(start)
        state = self._frozen or self._open.follow(is_idle=self._is_idle)
        found = self._next(begin, state, self._limits(limit))
        self._is_idle = found is None
        self._last = start if found is None else found.to_json()
        return self._last

    @clean_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the splits of a micro-batch: the same rows whenever it is asked for, also after a
        restart.
        """
        with span("plan", log=self._open.log.url):
            return list(self._splits(parse_stream_offset(start), parse_stream_offset(end)))

    def _splits(self, since: StreamOffset, until: StreamOffset) -> list[Split]:
        if since == self._initial:  # else it is what the checkpoint has: exact
            since = until.since(since)
        state = self._state()
        self._check(until, state)
        self._check(since, state)
        there = [state.topics[topic_id] for topic_id in until.topics if topic_id in state.topics]
        since = without_loss(state, since, there, fail_on_data_loss=self._options.fail_on_data_loss)
        plans = self._plans(since, until, state)
        return splits_of(until.log_id, until.entry, plans, self._options, self._open.log.store)

    @clean_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split. Requests: sidecars and those of the segment files."""
        if isinstance(partition, Split):
            yield from read_split(partition, self._options, self._schema, is_patient=True)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: how far the query is stands in its checkpoint."""

    def stop(self) -> None:
        """Let go of the log."""
        if self._followed is not None:
            self._followed.log.close()

    if HAS_LIMITS:

        @clean_errors
        def getDefaultReadLimit(self) -> ReadLimit:
            """Return the limit of a micro-batch; of two limits the one of rows stands for both."""
            options = self._options
            if options.rows_per_trigger_max is not None:
                return ReadMaxRows(options.rows_per_trigger_max)
            if options.bytes_per_trigger_max is not None:
                return ReadMaxBytes(options.bytes_per_trigger_max)
            return ReadAllAvailable()

        @clean_errors
        def prepareForTriggerAvailableNow(self) -> None:
            """From now on, what is in the log now is all that there is."""
            self._frozen = self._open.follow()

        def reportLatestOffset(self) -> dict[str, Any] | None:
            """Return what there is to read, and how far behind the query is, for its progress; None: not
            known now.
            """
            try:
                return self._report()
            except TxnLogError:  # no reason to fail a query: what is wrong, the next call says
                return None

    # Parts of the methods above.

    @property
    def _options(self) -> ReadOptions:
        if self._parsed is None:
            parsed = parse_read_options(self._raw_options, self._hadoop)
            parsed.check_stream()
            if not HAS_LIMITS and (parsed.rows_per_trigger_max or parsed.bytes_per_trigger_max):
                raise unsupported("a limit per trigger is", "it needs Spark 4.2 or later")
            self._parsed = parsed
        return self._parsed

    @property
    def _open(self) -> FollowedLog:
        if self._followed is None:
            self._followed = FollowedLog(self._options)
        return self._followed

    def _state(self) -> LogState:
        return self._frozen or self._open.state

    def _limits(self, limit: Any) -> Limits:
        if not HAS_LIMITS or limit is None or isinstance(limit, ReadAllAvailable):
            return _NO_LIMITS
        return self._options.rows_per_trigger_max, self._options.bytes_per_trigger_max

    def _next(self, start: StreamOffset, state: LogState, limits: Limits) -> StreamOffset | None:
        options = self._options
        self._check(start, state)
        if options.fail_on_data_loss:
            check_there(state, start)
        topics = self._topics(state, start)
        begin = without_loss(state, start, topics, fail_on_data_loss=options.fail_on_data_loss)
        found = next_offset(self._open.log.sidecars, state, begin, topics, options.isolation, limits)
        if found is None:
            return None
        return self._made(replace(found, began=start) if start.is_initial else found, state)

    def _made(self, offset: StreamOffset, state: LogState) -> StreamOffset:
        """Return a new offset, from which its history can be told."""
        made = replace(offset, seen=SeenEntry(state.entry, state.entry_sha256))
        self._recognized.append(made.seen)
        return made

    def _check(self, offset: StreamOffset, state: LogState) -> None:
        """Check that an offset is of this log and its history. Requests: 1 GET for one from a checkpoint."""
        log, order = self._open.log, self._options.order
        check_same(
            state,
            log.url,
            offset.log_id,
            offset.entry,
            "the checkpoint is not of this log, or the log was restored to an older state",
            kind="checkpoint-of-other-log",
            hint="use the log that the query read before, or a new checkpointLocation",
            read_to_entry=offset.entry,
        )
        if offset.order is not order:
            raise InvalidInputError(
                f"the query has read with order {offset.order} so far, and now has order {order}",
                kind="checkpoint-of-other-order",
                hint=f'use option("order", "{offset.order}"), or a new checkpointLocation',
            )
        seen = offset.seen
        if seen is None or seen in self._recognized:
            return
        if seen.entry > state.entry or has_entry(log.store, seen.entry, seen.sha256) is False:
            raise ConflictError(
                "the log was restored to an older state after the query had read from it",
                kind="checkpoint-of-other-log",
                hint="commits after that state belong to another history: use the log that the query read "
                "before, "
                "or a new checkpointLocation",
                path=log.url,
                read_to_entry=seen.entry,
                entry=state.entry,
            )
        self._recognized.append(seen)

    def _topics(self, state: LogState, start: StreamOffset) -> list[TopicState]:
        """Return the topics to read, each with the columns that Spark expects; without those that were read
        and are deleted.
        """
        gone = {one.name for topic_id, one in start.topics.items() if topic_id not in state.topics}
        topics = self._options.topics.chosen(state, without=gone)
        for topic in topics:
            self._read_of(topic)
        return topics

    def _read_of(self, topic: TopicState) -> TopicRead:
        key = topic.topic_id, topic.schema.schema_id
        if key not in self._reads:
            self._check_meaning(topic)
            try:
                self._reads[key] = topic_read(
                    self._options, topic.name, topic.topic_id, topic.schema, self._schema
                )
            except InvalidInputError as error:
                reload = (
                    "if the topic changed while the query ran, load() it again and start from the same "
                    "checkpoint; "
                    "else choose columns that all topics have"
                )
                raise InvalidInputError(
                    error.problems,
                    kind=error.kind,
                    hint=error.hint if error.kind == "invalid-where" else reload,
                    topic=topic.name,
                ) from None
        return self._reads[key]

    def _check_meaning(self, topic: TopicState) -> None:
        """Raise ConflictError of kind ``column-changed``: a name that the query reads stands for another
        column than before.
        """
        for (topic_id, schema_id), read in self._reads.items():
            if topic_id != topic.topic_id or schema_id > topic.schema.schema_id:
                continue
            before = topic.schema.of_version(schema_id)
            used = {*read.columns, *(read.where.columns if read.where is not None else ())}
            other = sorted(name for name in used & set(before.stored.names) if before.names.get(name) != name)
            if other:
                raise ConflictError(
                    "columns that the query reads were renamed or dropped while it ran",
                    kind="column-changed",
                    hint="load() it again and start from the same checkpoint",
                    topic=topic.name,
                    columns=other,
                )

    def _plans(self, since: StreamOffset, until: StreamOffset, state: LogState) -> list[TopicPlan]:
        plans = []
        for topic_id, position in until.topics.items():
            topic = state.topics.get(topic_id)
            if topic is None:
                if not self._options.fail_on_data_loss:
                    continue
                raise topic_gone("a topic of the micro-batch is no longer in the log", position, topic_id)
            read, before = self._read_of(topic), since.offsets(topic_id)
            if until.order is Order.COMMIT:
                plans.append(
                    plan_commits(self._open.log, state, read, topic_id, since.entry, until.entry, before)
                )
                continue
            ranges = self._ranges(state, topic, before, position.offsets)
            plans.append(plan_offsets(self._open.log, state, self._options, read, ranges, until.entry))
        return plans

    def _ranges(
        self, state: LogState, topic: TopicState, starts: Sequence[int], ends: Sequence[int]
    ) -> list[OffsetRange]:
        """Return the offsets of each partition; ``starts``: from :func:`without_loss`."""
        ranges = []
        for number, end in enumerate(ends):
            log_start = state.partition(TopicPartition(topic.topic_id, number)).log_start
            start = starts[number]
            if not self._options.fail_on_data_loss:
                end = max(end, log_start)
            ranges.append(OffsetRange(min(start, end), end))
        return ranges

    def _report(self) -> dict[str, Any] | None:
        if self._last is None:
            return None
        state, last = self._state(), parse_stream_offset(self._last)
        gone = {one.name for topic_id, one in last.topics.items() if topic_id not in state.topics}
        topics = self._options.topics.chosen(state, without=gone)
        if self._options.order is Order.COMMIT:
            newest = StreamOffset(state.log_id, last.order, state.entry, {})
            return {**newest.to_json(), "lag": {"entries": state.entry - last.entry}}
        newest = available(state, topics, self._options.isolation)
        by_topic = {
            position.name: max(0, sum(position.offsets) - sum(last.offsets(topic_id)))
            for topic_id, position in newest.topics.items()
        }
        return {**newest.to_json(), "lag": {"offsets": sum(by_topic.values()), "topics": by_topic}}
