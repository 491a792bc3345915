"""The batch reader: plans on the driver, reads in tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_datasource.failures import clean_errors, clean_iterator
from spark_datasource.options.declared import Order, ReadOptions
from spark_datasource.read.pinning import Pin, TopicPin, log_starts
from spark_datasource.read.planning import plan_commits, plan_offsets, splits_of, topic_read
from spark_datasource.read.split_reader import read_split
from spark_datasource.read.splits import Split, TopicPlan
from spark_datasource.worker.logs import check_same, open_log
from txnformat.core.state import LogState
from txnformat.errors import NotFoundError
from txnformat.log import TxnLog
from txnformat.spans import span
from txnformat.types import OffsetRange

__all__ = ["TxnLogBatchReader"]


class TxnLogBatchReader(DataSourceReader):
    """Reads what a pin covers.

    It goes pickled to every task, so it holds no more than the pin. It does not override ``pushFilters``:
    Spark 4.1 to 4.3 give the filtered plan of one query to all others of the same DataFrame, which loses
    rows.
    """

    trace: str | None = None

    def __init__(self, options: ReadOptions, pin: Pin, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._pin = pin
        self._reads = [topic_read(options, one.name, one.topic_id, one.schema, schema) for one in pin.topics]

    @clean_errors
    def partitions(self) -> list[InputPartition]:
        """Return the splits.

        Requests: those of following the log, and 1 GET for each batch table in range.
        """
        with span("plan") as one:
            log = open_log(self._options.path, self._options.storage)
            one.set(log=log.url)
            return list(self._splits(log))

    def _splits(self, log: TxnLog) -> list[Split]:
        options, pin, state = self._options, self._pin, log.state
        what, hint = "the log is not the one that this DataFrame was loaded from", "load it again"
        check_same(state, log.url, pin.log_id, pin.entry, what, hint=hint, topic=str(options.topics))
        if gone := [one.name for one in pin.topics if one.topic_id not in state.topics]:
            what = "topics of this DataFrame are no longer in the log: they were deleted or recreated"
            raise NotFoundError(what, kind="topic-gone", hint=hint, path=log.url, topics=gone)
        reads = [
            replace(read, schema=read.schema.beside(state.topics[topic.topic_id].schema))
            for read, topic in zip(self._reads, pin.topics, strict=True)
        ]
        if options.order is Order.COMMIT:
            plans = [
                plan_commits(
                    log, state, read, topic.topic_id, pin.since, pin.entry, self._floors(state, topic)
                )
                for read, topic in zip(reads, pin.topics, strict=True)
            ]
        else:
            plans = [
                self._planned(plan_offsets(log, state, options, read, self._ranges(state, topic), pin.entry))
                for read, topic in zip(reads, pin.topics, strict=True)
            ]
        return splits_of(pin.log_id, pin.entry, plans, options, log.store)

    def _planned(self, plan: TopicPlan) -> TopicPlan:
        """Return what to read of a plan in offset order: all of it."""
        return plan

    def _floors(self, state: LogState, topic: TopicPin) -> Sequence[int]:
        """Return where to look from in each partition, for a read in commit order."""
        if self._options.fail_on_data_loss:
            return topic.floors
        return log_starts(state, state.topics[topic.topic_id])

    def _ranges(self, state: LogState, topic: TopicPin) -> Sequence[OffsetRange]:
        """Return the offsets to read; those that were removed since the read was pinned are an error, or left
        out.
        """
        if self._options.fail_on_data_loss:
            return topic.ranges
        starts = log_starts(state, state.topics[topic.topic_id])
        return [
            OffsetRange(max(one.start, first), max(one.end, first))
            for one, first in zip(topic.ranges, starts, strict=False)  # it may have more partitions by now
        ]

    @clean_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split in the order of the read.

        Requests: sidecars and those of the segment files.
        """
        if isinstance(partition, Split):  # else Spark's stand-in when there is nothing to read
            yield from read_split(partition, self._options, self._schema)
