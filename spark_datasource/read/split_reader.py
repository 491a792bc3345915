"""Reading a split in a task: sidecars of sealed segments, then data, as Spark expects it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import StructType

from spark_datasource.options.declared import ReadOptions
from spark_datasource.read.planning import known_at
from spark_datasource.read.splits import Split, TopicRead
from spark_datasource.schema import Projection
from spark_datasource.worker.collector import settle
from spark_datasource.worker.logs import sidecars_of
from spark_datasource.worker.stores import kept_store
from txnformat.clock import SystemClock
from txnformat.persistent import Rows
from txnformat.predicates.tree import Predicate
from txnformat.reading.plan import Keep, open_range, plan_filter
from txnformat.reading.rows import read_rows
from txnformat.store.base import ObjectStore
from txnformat.store.patient import PatientStore
from txnformat.types import FileRecord

__all__ = ["read_split"]


def read_split(
    split: Split, options: ReadOptions, schema: StructType, *, is_patient: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split in the order of the read. Requests: sidecars and those of the segment files.

    ``schema``: Spark's. ``is_patient``: wait while the store fails for now; a task that often fails ends its query.
    """
    settle()
    with kept_store(options.path, options.storage, split.log_id) as kept:
        store: ObjectStore = PatientStore(kept, SystemClock()) if is_patient else kept
        reading = _Reading(store, split, schema)
        for topic, part in split.sealed:
            read = split.topics[topic]
            keep = None if read.where is None else reading.keep(read, read.where, part.partition)
            rows, files = open_range(sidecars_of(store, options.storage), part, options.isolation, keep)
            yield from reading.rows(read, part.partition, known_at(rows, split.entry), files)
        for plain in split.parts:
            yield from reading.rows(split.topics[plain.topic], plain.partition, plain.planned(), split.files)


class _Reading:
    def __init__(self, store: ObjectStore, split: Split, schema: StructType) -> None:
        self._store = store
        self._entry = split.entry
        self._schema = schema
        self._expected = Projection((), schema).arrow_schema()

    def keep(self, read: TopicRead, where: Predicate, partition: int) -> Keep:
        """Return what tells which rows of a sidecar can hold what is wanted, as the pinned entry knew them."""
        may_match = plan_filter(where, read.name, read.schema, partition)
        return lambda rows: may_match(known_at(rows, self._entry))

    def rows(
        self, read: TopicRead, partition: int, rows: Rows, files: dict[int, FileRecord]
    ) -> Iterator[pa.RecordBatch]:
        projection = Projection(read.columns, self._schema)
        for batch in read_rows(
            self._store,
            read.name,
            read.schema,
            partition,
            rows,
            files.__getitem__,
            read.columns,
            where=read.where,
            files_ahead=0,  # each slot of an executor has a task of its own: more threads only get in their way
        ):
            yield projection.cast(batch, self._expected)
