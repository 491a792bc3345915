"""Reading a split in a task: sidecars of sealed segments, then data, as Spark expects it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from spark_datasource.options.declared import ReadOptions
from spark_datasource.read.splits import SealedPart, Split, TopicRead
from spark_datasource.schema import Projection
from spark_datasource.worker.collector import settle
from spark_datasource.worker.logs import check_same, open_log, sidecars_of
from spark_datasource.worker.stores import kept_store
from txnformat.clock import SystemClock
from txnformat.core.state import LogState
from txnformat.errors import CorruptDataError
from txnformat.log import TxnLog
from txnformat.persistent import Rows
from txnformat.predicates.tree import Predicate
from txnformat.reading.open_files import OpenFiles
from txnformat.reading.plan import Keep, open_range, plan_filter
from txnformat.reading.resolving import PartitionRead, Resolver, known_at, read_resolved
from txnformat.reading.rows import files_of_runs, has_data
from txnformat.reading.sealed import SidecarCache
from txnformat.spans import counted, span
from txnformat.store.base import ObjectStore
from txnformat.store.patient import PatientStore
from txnformat.types import FileRecord

__all__ = ["read_here", "read_split"]

FILES_AHEAD = 2
"""Larger files on their way while the one before is read, where a request has a latency."""


def read_split(
    split: Split, options: ReadOptions, schema: StructType, *, is_patient: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split in the order of the read.

    A segment that was compacted since the split was planned is read from its new place. ``schema``: Spark's.
    ``is_patient``: wait while the store fails for now; a task that often fails ends its query. Requests:
    sidecars and those of the segment files; where one of them is gone also those of opening the log.
    """
    settle()
    with kept_store(options.path, options.storage, split.log_id) as kept:
        store: ObjectStore = PatientStore(kept, SystemClock()) if is_patient else kept
        sidecars = sidecars_of(store, options.storage)
        yield from _counted(_Task(store, kept, split, options, schema, sidecars))


def read_here(
    log: TxnLog, split: Split, options: ReadOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Yield what :func:`read_split` does, in a process that has the log open: by its store, and with the
    sidecars that it has read.
    """
    yield from _counted(_Task(log.store, log.store, split, options, schema, log.sidecars))


def _counted(task: _Task) -> Iterator[pa.RecordBatch]:
    split = task.split
    topics = [topic.name for topic in split.topics]
    one = span("read", is_current=False, parent=split.trace, log=task.kept.url, topics=topics)
    yield from counted(one, task.all_rows())


class _Planned(NamedTuple):
    """Rows of one partition."""

    read: TopicRead
    partition: int
    rows: Rows
    files: Mapping[int, FileRecord]


class _Task:
    """``kept``: the same store, without patience."""

    def __init__(
        self,
        store: ObjectStore,
        kept: ObjectStore,
        split: Split,
        options: ReadOptions,
        schema: StructType,
        sidecars: SidecarCache,
    ) -> None:
        self._store = store
        self.kept = kept
        self.split = split
        self._options = options
        self._schema = schema
        self._expected = Projection((), schema).arrow_schema()
        self._sidecars = sidecars

    def all_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the split."""
        split = self.split
        for _, segment in groupby(split.sealed, lambda one: (one.topic, one.range.index.key)):
            yield from self.sealed_rows(list(segment))
        yield from self.rows(
            [
                _Planned(split.topics[plain.topic], plain.partition, plain.planned(), split.files)
                for plain in split.parts
            ]
        )

    def sealed_rows(self, segment: Sequence[SealedPart]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of parts of one sealed segment: of all of them the sidecar is the same."""
        together: list[_Planned] = []
        for topic, part in segment:
            read = self.split.topics[topic]
            keep = None if read.where is None else self._keep_of(read, read.where, part.partition)
            try:
                rows, files = open_range(self._sidecars, part, self._options.isolation, keep)
            except CorruptDataError:  # it may be gone; if the newest state names it, that is the answer again
                plan = self._resolver(read).plan(part.partition, part.range)
                rows, files = plan.partitions[0].rows, dict(plan.files)
                read = replace(read, schema=read.schema.beside(plan.topic.schema))
                yield from self.rows(together)
                together = []
                yield from self.rows(
                    [_Planned(read, part.partition, known_at(rows, self.split.entry), files)]
                )
                continue
            together.append(_Planned(read, part.partition, known_at(rows, self.split.entry), files))
        yield from self.rows(together)

    def rows(self, parts: Sequence[_Planned]) -> Iterator[pa.RecordBatch]:
        """Yield planned rows of partitions, one after the other.

        Their files have the same numbers; each small one is fetched once.
        """
        if not parts:
            return
        named = {number: file for part in parts for number, file in part.files.items()}
        expected = [
            files_of_runs(part.rows, part.read.where, part.read.name, part.read.schema, part.partition)
            for part in parts
        ]
        needs_data = any(
            has_data(part.rows, part.read.schema, part.read.columns, part.read.where) for part in parts
        )
        with OpenFiles(self._store, has_data=needs_data, ahead=self.kept) as files:
            files.expect(np.concatenate(expected), named.__getitem__)
            # Each slot of an executor has a task of its own: where a request takes no time, threads only get
            # in their way.
            options = {"files": files, "files_ahead": min(FILES_AHEAD, self._store.reads_in_flight - 1)}
            for read, partition, rows, _ in parts:
                projection = Projection(read.columns, self._schema)
                reading = PartitionRead(
                    self._resolver(read), read.name, read.schema, partition, read.columns, read.where, options
                )
                for batch in read_resolved(reading, rows, named.__getitem__):
                    yield projection.cast(batch, self._expected)

    def _keep_of(self, read: TopicRead, where: Predicate, partition: int) -> Keep:
        """Return what tells which rows of a sidecar can hold what is wanted, as the pinned entry knew
        them.
        """
        may_match = plan_filter(where, read.name, read.schema, partition)
        return lambda rows: may_match(known_at(rows, self.split.entry))

    def _resolver(self, read: TopicRead) -> Resolver:
        return Resolver(
            self._sidecars, self._newest, read.topic_id, self._options.isolation, self.split.entry
        )

    def _newest(self) -> LogState:
        """Return the newest state of the log, which no task needs unless a file is gone."""
        log = open_log(self._options.path, self._options.storage)
        check_same(
            log.state,
            log.url,
            self.split.log_id,
            self.split.entry,
            "the log was replaced, or restored to an older state, after the read began",
            hint="read it again",
        )
        return log.state
