"""The batch reader: plans on the driver, reads in tasks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_datasource.collector import settle
from spark_datasource.failures import clean_errors, clean_iterator
from spark_datasource.logs import open_log, sidecars_of
from spark_datasource.options import ReadOptions
from spark_datasource.pinning import Pin
from spark_datasource.spark_schema import Projection
from spark_datasource.splits import Split, cut, split_count
from spark_datasource.stores import kept_store
from txnformat.errors import ConflictError
from txnformat.persistent import Rows
from txnformat.predicate import Predicate
from txnformat.read_plan import Keep, open_range, plan_filter
from txnformat.reader import read_rows
from txnformat.scan import PartitionPlan
from txnformat.store.base import ObjectStore
from txnformat.types import FileRecord

__all__ = ["TxnLogBatchReader"]


class TxnLogBatchReader(DataSourceReader):
    """Reads what a pin covers.

    It goes pickled to every task, so it holds no more than the pin. It does not override ``pushFilters``: Spark
    4.1 to 4.3 give the filtered plan of one query to all others of the same DataFrame, which loses rows.
    """

    def __init__(
        self, options: ReadOptions, pin: Pin, projection: Projection, where: Predicate | None = None
    ) -> None:
        self._options = options
        self._pin = replace(pin, ranges=())  # tasks have no use for them
        self._projection = projection
        self._where = where
        self._ranges = pin.ranges

    @clean_errors
    def partitions(self) -> list[InputPartition]:
        """Return the splits. Requests: those of following the log, and 1 GET for each batch table in range."""
        options, pin = self._options, self._pin
        log = open_log(options.path, options.storage)
        state = log.state
        topic = state.topics.get(pin.topic_id)
        if state.log_id != pin.log_id or topic is None or state.entry < pin.entry:
            raise ConflictError(
                "the log is not the one that this DataFrame was loaded from",
                kind="log-replaced",
                hint="load it again",
                path=log.url,
                topic=options.topic,
            )
        plan = log.plan(
            topic.name,
            isolation=options.isolation,
            start={number: wanted.start for number, wanted in enumerate(self._ranges)},
            end={number: wanted.end for number, wanted in enumerate(self._ranges)},
            where=self._where,
            partitions=range(len(self._ranges)),  # the topic may have got more since
            state=state,
            open_sealed=False,
            as_of=pin.entry,
        )
        plans = [self._as_pinned(part) for part in plan.partitions]
        size = sum(int(part.rows["size"].sum()) for part in plans) + sum(part.size for part in plan.sealed)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        count = split_count(size, options.bytes_per_partition_max, options.partitions_min, cores)
        return list(cut(plans, count, plan.files, plan.sealed))

    def _as_pinned(self, plan: PartitionPlan) -> PartitionPlan:
        return replace(plan, rows=self._known(plan.rows))

    def _known(self, rows: Rows) -> Rows:
        """Return rows planned on a newer state with what the pinned entry knew: later commits are not yet there."""
        known = rows.copy()
        known["commit_entry"] = np.where(rows["commit_entry"] > self._pin.entry, -1, rows["commit_entry"])
        return known

    def _keep(self, where: Predicate, partition: int) -> Keep:
        """Return what tells which rows of a sidecar can hold what is wanted, as the pinned entry knew them."""
        may_match = plan_filter(where, self._options.topic, self._pin.schema, partition)
        return lambda rows: may_match(self._known(rows))

    @clean_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split in the order of the log. Requests: sidecars and those of the segment files."""
        if not isinstance(partition, Split):
            return  # Spark's stand-in when there is nothing to read
        settle()
        with kept_store(self._options.path, self._options.storage, self._pin.log_id) as store:
            for part in partition.sealed:
                keep = None
                if self._where is not None:
                    keep = self._keep(self._where, part.partition)
                rows, files = open_range(
                    sidecars_of(store, self._options.storage), part, self._options.isolation, keep
                )
                yield from self._read(store, part.partition, self._known(rows), files)
            for plain in partition.parts:
                yield from self._read(store, plain.partition, plain.planned(), partition.files)

    def _read(
        self, store: ObjectStore, partition: int, rows: Rows, files: dict[int, FileRecord]
    ) -> Iterator[pa.RecordBatch]:
        expected = self._projection.arrow_schema()
        for batch in read_rows(
            store,
            self._options.topic,
            self._pin.schema,
            partition,
            rows,
            files.__getitem__,
            self._projection.columns,
            where=self._where,
            files_ahead=0,  # each slot of an executor has a task of its own: more threads only get in their way
        ):
            yield self._projection.cast(batch, expected)
