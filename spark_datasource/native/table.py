"""A pinned read of a topic as one DataFrame of two parts: whole files by Spark's own Parquet reader, the rest
by the DataSource.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_datasource.datasource import register_source
from spark_datasource.failures import cause_of
from spark_datasource.native.columns import (
    as_now,
    condition,
    contains_time,
    is_translated,
    named,
    spark_types,
)
from spark_datasource.native.division import Division, Reason, WholeFile, divide
from spark_datasource.native.parameters import TableOptions, problems_of
from spark_datasource.native.positions import (
    BATCHES_MAX,
    BATCHES_PER_FILE_MAX,
    by_batch,
    file_name,
    joined,
    value,
)
from spark_datasource.native.rest import PIN, Rest, RestReader, TxnLogRest
from spark_datasource.native.small_rests import DRIVER_BYTES_MAX, MEMORY_BYTES_MAX, is_small, local_frame
from spark_datasource.native.supported import check_spark
from spark_datasource.options.declared import ReadOptions
from spark_datasource.options.offsets import EARLIEST, END, LATEST, StartOrEnd
from spark_datasource.options.storage import PREFIX, hadoop_settings, storage_for
from spark_datasource.options.topics import TopicChoice
from spark_datasource.read.pinning import Pin, TopicPin, pin_read
from spark_datasource.read.planning import topic_read
from spark_datasource.read.splits import TopicRead
from spark_datasource.schema import Projection, spark_schema
from spark_datasource.worker.logs import absolute, open_log
from spark_datasource.write.transaction_settings import place_problems
from txnformat.core.state import LogState
from txnformat.errors import ConflictError, InvalidInputError, StorageError
from txnformat.file_urls import unescaped
from txnformat.log import TxnLog
from txnformat.predicates.tree import Predicate
from txnformat.protocol.cuts import check_version_options
from txnformat.reading.plan import ReadPlan, plan_filter
from txnformat.reading.resolving import on_newest
from txnformat.reading.rows import METADATA_FIELDS
from txnformat.reading.stored_rows import STORED_FIELDS, stored_schema
from txnformat.store.base import is_encrypted
from txnformat.store.open import check_options, is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "NATIVE_BYTES_MIN",
    "NATIVE_BYTES_MIN_AT_HAND",
    "TablePlan",
    "plan_table",
    "plan_tables",
]

NATIVE_BYTES_MIN = 4 * 2**20
"""Smallest file that goes natively where a request has a latency: Spark's driver asks for the status of each
explicit path, about twice."""

NATIVE_BYTES_MIN_AT_HAND = 512 * 1024
"""The same on a local disk."""

READ_OPTIONS: Mapping[str, str] = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "parquet.page.verify-checksum.enabled": "true",
}
"""Options of Spark's Parquet reader; they win over settings of the session, some of which drop rows or change
values."""

GLOB = frozenset("{}[]*?\\")


@dataclass(frozen=True, slots=True, eq=False)
class TablePlan:
    """The plan of a read of one topic: made by :func:`plan_table`, fixed for good."""

    spark: SparkSession
    path: str
    options: ReadOptions
    log_id: str
    entry: int
    pinned: TopicPin
    read: TopicRead
    schema: StructType
    """Columns of the DataFrame."""
    base: str
    """The root, as Spark calls it."""
    division: Division
    log: TxnLog
    """The log, at the entry of the read or a later one."""
    driver_bytes_max: int = DRIVER_BYTES_MAX

    @property
    def is_by_driver(self) -> bool:
        """Whether the driver reads the rest; more than ``small_rests.MEMORY_BYTES_MAX`` of rows it leaves to
        the DataSource even so.
        """
        return is_small(self.division, self.schema, self.driver_bytes_max)

    def frame(self) -> DataFrame:
        """Return the DataFrame.

        Raises StorageError of kind ``spark-cannot-read``: Spark cannot get at the files.
        """
        frames = [self._native(files) for files in _groups(self.division.native)]
        if self.division.rest:
            frames.append(self._rest())
        if not frames:
            return local_frame(
                self.spark, Projection((), self.schema).arrow_schema().empty_table(), self.schema
            )
        return reduce(lambda left, right: left.union(right), frames)

    def _rest(self) -> DataFrame:
        rest = Rest(
            log_id=self.log_id,
            entry=self.entry,
            topic_id=self.pinned.topic_id,
            name=self.pinned.name,
            schema_id=self.pinned.schema.schema_id,
            isolation=self.options.isolation.value,
            ranges=self.division.rest,
            where=self.options.where,
        )
        if self.is_by_driver:
            here = RestReader(rest, self.path, self.options.storage, self.schema, self.log)
            rows = here.rows(self.log, MEMORY_BYTES_MAX)
            if rows is not None:
                return local_frame(self.spark, rows, self.schema)
        register_source(self.spark, TxnLogRest)
        reader = self.spark.read.format(TxnLogRest.name()).option(PIN, rest.to_json()).schema(self.schema)
        for name, text in self.options.storage.pairs:
            reader = reader.option(f"{PREFIX}{name}", text)
        return reader.load(self.path)

    def _native(self, files: Sequence[WholeFile]) -> DataFrame:
        topic, where = self.pinned.schema, self.read.where
        is_stored = files[0].is_stored
        own, meta = _needed(self.read)
        columns = topic.of_file(files[0].record)
        stored = stored_schema(topic, files[0].record) if is_stored else columns
        batches = [] if is_stored else by_batch(meta, topic.timestamp_column)
        time = topic.timestamp_column
        if "_timestamp" in meta and not is_stored and time is not None and time not in own:
            own = [*own, time]
        fetched = [stored.names[name] for name in stored.held(own)]  # the names in the file
        if is_stored:
            fetched += [name for name in meta if name in STORED_FIELDS]
        if not fetched:
            fetched = [next(field.name for field in columns.stored if not contains_time(field.type))]
        schema = spark_types(pa.schema([stored.stored.field(name) for name in fetched]))
        frame = _parquet(self.spark, schema, [f"{self.base}/{one.record.key}" for one in files])
        now = {field.name: field for field in spark_types(topic.arrow_schema).fields}
        found = [
            as_now(name, stored, topic.arrow_schema.field(name).type, now[name].dataType).alias(name)
            for name in own
        ]
        if is_stored:
            found += [_stored(name, self.entry).alias(name) for name in meta if name in STORED_FIELDS]
        place = _free("_place", topic.arrow_schema.names)
        if batches:
            inner = frame.metadataColumn("_metadata")
            found.append(
                F.struct(
                    inner.getField("file_name").alias("file_name"),
                    inner.getField("row_index").alias("row_index"),
                ).alias(place)
            )
        if found:
            frame = frame.select(*found)
        if batches:
            frame = joined(self.spark, frame, files, batches, place)
        others = [name for name in meta if name not in frame.columns or not found]
        if others:
            kept = [named(name) for name in frame.columns] if found else []
            frame = frame.select(*kept, *[value(name, self.read.name, time).alias(name) for name in others])
        if where is not None:
            frame = frame.where(condition(where))
        pairs = zip(self.read.columns, self.schema.fields, strict=True)
        return frame.select(*[named(name).alias(field.name) for name, field in pairs])

    @property
    def _way(self) -> str:
        """The way of the rest, for people."""
        return "read by the driver when it plans" if self.is_by_driver else "by the DataSource"

    def describe(self) -> str:
        """Return what goes which way, and why, for people."""
        native = self.division.native_amount
        lines = [
            f"topic {self.pinned.name} at entry {self.entry}, {self.options.isolation.value}",
            f"natively, by Spark's Parquet reader: {_amount(native)}",
            f"{self._way}: {_amount(_sum(self.division))}",
        ]
        lines += [f"  {reason}: {_amount(amount)}" for reason, amount in self.division.reasons.items()]
        if native.files:
            lines += [
                (
                    "natively the checksums of pages are verified, but neither page headers nor footers, nor "
                    "the hash of a file"
                ),
                (
                    "the native part names files: it can be read until a vacuum deletes them, a grace after "
                    "they were replaced; then read again"
                ),
            ]
        return "\n".join(lines)


def plan_table(
    spark: SparkSession,
    root: str | os.PathLike[str],
    topic: str,
    *,
    columns: Sequence[str] | None = None,
    topic_ids: tuple[str, str] | None = None,
    **options: Unpack[TableOptions],
) -> TablePlan:
    """Plan what :func:`txnlog.spark.read_table` reads; parameters and errors as there.

    ``topic_ids``: the ids of log and topic that are meant, where they are known. Raises ConflictError of kind
    ``log-replaced``: others are there.
    """
    (plan,) = plan_tables(spark, root, {topic: columns}, **options)
    if topic_ids is not None and topic_ids != (plan.log_id, plan.pinned.topic_id):
        raise ConflictError(
            "the log at this path, or its topic, is not the one in the checkpoint",
            kind="log-replaced",
            hint="pass the root that the stream reads",
            path=plan.path,
            topic=topic,
        )
    return plan


def plan_tables(
    spark: SparkSession,
    root: str | os.PathLike[str],
    topics: Mapping[str, Sequence[str] | None],
    **given: Unpack[TableOptions],
) -> list[TablePlan]:
    """Plan reads of several topics at one entry; ``topics`` has the columns of each."""
    problems = place_problems(spark, root) + problems_of(topics, given)
    if problems:
        raise InvalidInputError(problems, kind="invalid-table")
    driver_max = given.get("driver_bytes_max", DRIVER_BYTES_MAX)
    bytes_min = given.get("native_bytes_min")
    check_spark(spark)
    storage_options = given.get("storage_options")
    check_options(storage_options)
    path = absolute(os.fspath(root))
    hadoop = hadoop_settings(spark) if is_remote(path) else None
    storage = storage_for(path, storage_options or {}, hadoop)
    log = open_log(path, storage)
    start, end = given.get("start"), given.get("end")
    version, time = given.get("version_as_of"), given.get("timestamp_as_of")
    options = ReadOptions(
        path=path,
        topics=TopicChoice(tuple(sorted(topics))),
        isolation=check_version_options(given.get("isolation"), version, time),
        starting=None if start is None else _spec(start, EARLIEST),
        ending=END if end is None else _spec(end, LATEST),
        where=given.get("where"),
        version_as_of=version,
        timestamp_as_of_ms=time,
        storage=storage,
    )
    native = given.get("native", True)
    pin = pin_read(log, options)
    found = {}
    for pinned in pin.topics:
        columns = topics[pinned.name]
        wanted = replace(options, columns=None if columns is None else tuple(columns))
        plan = _planned(spark, log, wanted, pin, pinned, native=native, bytes_min=bytes_min)
        found[pinned.name] = replace(plan, driver_bytes_max=driver_max if native else 0)
    return [found[name] for name in topics]


def _spec(given: Any, default: int) -> StartOrEnd:
    if isinstance(given, Mapping):
        return StartOrEnd(default, {"": dict(given)})
    return StartOrEnd(given)


def _planned(
    spark: SparkSession,
    log: TxnLog,
    options: ReadOptions,
    pin: Pin,
    pinned: TopicPin,
    *,
    native: bool,
    bytes_min: int | None,
) -> TablePlan:
    is_exact = spark.conf.get("spark.sql.caseSensitive", "false") == "true"
    schema = spark_schema(pinned.schema, options.columns, case_sensitive=is_exact)

    def plan(state: LogState) -> ReadPlan:
        topic = state.topic_of(pinned.topic_id, "the table")
        bounds = range(len(pinned.ranges))
        return log.plan(
            topic.name,
            isolation=options.isolation,
            start={number: pinned.ranges[number].start for number in bounds},
            end={number: pinned.ranges[number].end for number in bounds},
            partitions=bounds,
            state=state,
            as_of=pin.entry,
        )

    made = on_newest(log.refresh, plan, log.state)
    newest = log.state.topic_of(pinned.topic_id, "the table").schema
    pinned = replace(pinned, schema=pinned.schema.beside(newest))
    read = topic_read(replace(options, columns=None), pinned.name, pinned.topic_id, pinned.schema, schema)
    base, reason = _base(log.store.url)
    if not native:
        reason = Reason.OFF
    if is_encrypted(log.store):
        reason = Reason.ENCRYPTED
    at_hand = log.store.reads_in_flight == 1
    smallest = NATIVE_BYTES_MIN_AT_HAND if at_hand else NATIVE_BYTES_MIN
    division = divide(
        made.partitions,
        made.files,
        bytes_min=smallest if bytes_min is None else bytes_min,
        refuse=_Refusals(pinned, read, reason),
    )
    if read.where is not None:
        division = replace(division, native=_possible(division.native, pinned, read.where))
    return TablePlan(
        spark, options.path, options, pin.log_id, pin.entry, pinned, read, schema, base, division, log
    )


class _Refusals:
    """Says of a whole file why it does not go natively."""

    def __init__(self, pinned: TopicPin, read: TopicRead, reason: Reason | None) -> None:
        self._schema = pinned.schema
        self._own, self._meta = _needed(read)
        self._always = reason
        time = pinned.schema.timestamp_column
        self._has_zone = time is None or pinned.schema.arrow_schema.field(time).type.tz is not None
        self._by_batch = by_batch(self._meta, time)
        self._batches = 0
        self._names: set[str] = set()
        if reason is None and read.where is not None and not is_translated(read.where):
            self._always = Reason.CONDITION

    def __call__(self, file: WholeFile) -> Reason | None:
        if self._always is not None:
            return self._always
        columns = self._schema.of_file(file.record)
        types = [columns.type_of(name) for name in columns.held(self._own)]
        types += [self._schema.arrow_schema.field(name).type for name in self._own]
        if any(map(contains_time, types)) or all(contains_time(field.type) for field in columns.stored):
            return Reason.TYPE
        if file.is_stored:
            return None
        if "_timestamp" in self._meta and not self._has_zone:
            return Reason.TIME
        if self._by_batch:
            name, count = file_name(file), len(file.rows)
            if count > BATCHES_PER_FILE_MAX or self._batches + count > BATCHES_MAX or name in self._names:
                return Reason.SPANS
            self._batches += count
            self._names.add(name)
        return None


def _needed(read: TopicRead) -> tuple[list[str], list[str]]:
    """Return the topic's own columns, and the metadata columns, that a read needs."""
    needed = dict.fromkeys([*read.columns, *(read.where.columns if read.where is not None else ())])
    own = [name for name in needed if name not in METADATA_FIELDS]
    return own, [name for name in needed if name in METADATA_FIELDS]


def _possible(files: Sequence[WholeFile], pinned: TopicPin, where: Predicate) -> tuple[WholeFile, ...]:
    """Return the files that the plan alone does not rule out."""

    def is_possible(file: WholeFile) -> bool:
        numbers: AbstractSet[int] = set(file.partitions.tolist())
        return any(
            plan_filter(where, pinned.name, pinned.schema, number)(file.rows[file.partitions == number]).any()
            for number in numbers
        )

    return tuple(file for file in files if is_possible(file))


def _groups(files: Sequence[WholeFile]) -> list[list[WholeFile]]:
    """Return files by what columns they have."""
    groups: dict[tuple[int, bool], list[WholeFile]] = {}
    for file in files:
        groups.setdefault((file.record.schema_id, file.is_stored), []).append(file)
    return [groups[key] for key in sorted(groups)]


def _base(url: str) -> tuple[str, Reason | None]:
    """Return what Spark calls the root of a log, and why it cannot read there."""
    scheme, _, rest = url.partition("://")
    base = f"s3a://{rest}" if scheme == "s3" else unescaped(url)
    return base.rstrip("/"), Reason.PATH if GLOB.intersection(base) else None


def _parquet(spark: SparkSession, schema: StructType, paths: Sequence[str]) -> DataFrame:
    reader = spark.read.schema(schema)
    for name, text in READ_OPTIONS.items():
        reader = reader.option(name, text)
    try:
        frame = reader.parquet(*paths)
        frame.schema  # noqa: B018  # Spark Connect looks at the files only when it is asked something
    except Exception as error:  # noqa: BLE001  # Spark has many, and what it says is in the cause
        raise StorageError(
            "Spark cannot read the files of the log, though this process can",
            kind="spark-cannot-read",
            hint="give Spark the connector of Hadoop and the rights for this path, or pass native=False "
            "to read all of it by the DataSource",
            path=paths[0],
            cause=cause_of(error),
        ) from None
    return frame


def _stored(name: str, entry: int) -> Any:
    """Return a metadata column that a compacted file stores; commits after the entry of the read are not
    known yet.
    """
    column = named(name)
    return F.when(column <= entry, column) if name == "_commit_entry" else column


def _free(name: str, taken: Sequence[str]) -> str:
    while any(one.lower().startswith(name) for one in taken):
        name += "_"
    return name


def _sum(division: Division) -> tuple[int, int, int]:
    amounts = list(division.reasons.values())
    files, rows, size = (sum(one[number] for one in amounts) for number in range(3))
    return files, rows, size


def _amount(amount: tuple[int, int, int]) -> str:
    return ", ".join(
        f"{number:,} {what}{'s' * (number != 1)}"
        for number, what in zip(amount, ("file", "row", "byte"), strict=True)
    )
