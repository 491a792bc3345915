"""Options of reads, of DataFrames and of streams, parsed once into plain values.

Spark asks for a schema before it says which of the two it reads: everything is parsed and checked in one place, and
what only the other kind knows is refused as soon as the kind is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from spark_datasource.options.offsets import LATEST, StartOrEnd, parse_offsets
from spark_datasource.options.storage import NO_STORAGE, S3aSettings, Storage
from spark_datasource.options.topics import TopicChoice, parse_topics
from spark_datasource.options.values import READ, STREAM_WRITE, WRITE, OptionValues, path_of, storage_of
from txnformat.digits import whole
from txnformat.errors import InvalidInputError
from txnformat.protocol.cuts import check_version_options
from txnformat.types import IsolationLevel

__all__ = ["BYTES_PER_PARTITION_DEFAULT", "Order", "ReadOptions", "parse_read_options"]

BYTES_PER_PARTITION_DEFAULT = 128 * 2**20
"""Spark's own spark.sql.files.maxPartitionBytes."""

AT_END = StartOrEnd(LATEST)

_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "versionAsOf", "timestampAsOf")
_STREAM_ONLY = ("maxRowsPerTrigger", "maxOffsetsPerTrigger", "maxBytesPerTrigger")


class Order(StrEnum):
    """In which order the records of a partition are read."""

    OFFSET = "offset"
    """As a Kafka consumer does: up to the last stable offset, where the oldest open transaction begins."""
    COMMIT = "commit"
    """By the entry that committed them, then offset: held back by nothing, and no transaction is ever split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a read asks for."""

    path: str
    """Absolute path or URL of the log."""
    topics: TopicChoice
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    order: Order = Order.OFFSET
    starting: StartOrEnd | None = None
    """First offset (inclusive); None: not given."""
    ending: StartOrEnd = AT_END
    """End offset (exclusive)."""
    starting_timestamp_ms: int | None = None
    """Instead of ``starting``: the first offset whose record is at or after this time, ms since the epoch."""
    ending_timestamp_ms: int | None = None
    """Instead of ``ending``, likewise."""
    columns: tuple[str, ...] | None = None
    """The topic's own and metadata columns, in the wanted order; None: all of its own."""
    where: str | None = None
    """SQL condition on the records; only those for which it is true are read."""
    partitions_min: int | None = None
    """Splits to aim for at least; there are never more than batches."""
    bytes_per_partition_max: int = BYTES_PER_PARTITION_DEFAULT
    """Compressed bytes of a split at most, unless one batch alone is larger."""
    storage: Storage = NO_STORAGE
    """How to reach the store: ``storage.*``."""
    fail_on_data_loss: bool = True
    """Whether offsets that are not there fail the read; else they are clipped to what is there."""
    end_expired: bool = False
    """Whether the driver first ends the open transactions whose time is over, where it may write."""
    version_as_of: int | None = None
    """The entry of a snapshot; None: the newest, or the one of ``timestamp_as_of_ms``."""
    timestamp_as_of_ms: int | None = None
    """Instead of ``version_as_of``: the last entry at or before this time, ms since the epoch."""
    rows_per_trigger_max: int | None = None
    """Offsets that a micro-batch of a stream covers at most."""
    bytes_per_trigger_max: int | None = None
    """Compressed bytes of a micro-batch at most, about."""
    given: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    """Names of the options that were given and that not every kind of read knows."""

    def check_batch(self) -> None:
        """Raise when an option was given that only streams know (kind ``invalid-option``)."""
        self._refuse(_STREAM_ONLY, "option {} is for streaming reads only")

    def check_stream(self) -> None:
        """Raise when an option was given that streams do not know (kind ``invalid-option``)."""
        self._refuse(_BATCH_ONLY, "option {} is for batch reads only: a stream has no end")
        if self.isolation is IsolationLevel.SNAPSHOT and self.order is Order.OFFSET:
            raise InvalidInputError(
                "option isolation is snapshot; a stream reads read_committed or read_uncommitted",
                kind="invalid-option",
                hint='use option("order", "commit") to be held back by no open transaction',
            )

    def _refuse(self, names: tuple[str, ...], text: str) -> None:
        problems = [text.format(name) for name in names if name in self.given]
        if problems:
            raise InvalidInputError(problems, kind="invalid-option")


def parse_read_options(options: Mapping[str, str], s3a: S3aSettings | None = None) -> ReadOptions:
    """Return the options of a read.

    Raises
    ------
    InvalidInputError
        Kind ``invalid-option``: every problem.
    """
    found = OptionValues(options, READ, {"writes": WRITE, "streaming writes": STREAM_WRITE})
    topics = parse_topics(found)
    order = _order(found)
    starting_ms, ending_ms = found.timestamp("startingTimestamp"), found.timestamp("endingTimestamp")
    for name in ("starting", "ending"):
        if found.text(f"{name}Offsets") is not None and found.text(f"{name}Timestamp") is not None:
            found.problems.append(f"give {name}Offsets or {name}Timestamp, not both")
    if starting_ms is not None and ending_ms is not None and ending_ms < starting_ms:
        found.problems.append("endingTimestamp is before startingTimestamp")
    version, as_of_ms = found.integer("versionAsOf", 0), found.moment("timestampAsOf")
    path = path_of(found)
    by_entry = order is Order.COMMIT
    parsed = ReadOptions(
        path=path,
        storage=storage_of(found, path, s3a),
        topics=topics,
        isolation=_isolation(found, version, as_of_ms, order),
        order=order,
        starting=parse_offsets(found, "startingOffsets", topics.names, None, by_entry=by_entry),
        ending=parse_offsets(found, "endingOffsets", topics.names, LATEST, by_entry=by_entry) or AT_END,
        starting_timestamp_ms=starting_ms,
        ending_timestamp_ms=ending_ms,
        columns=found.names("columns"),
        where=found.text("where"),
        partitions_min=found.integer("minPartitions", 1),
        bytes_per_partition_max=_bytes(found, "maxBytesPerPartition") or BYTES_PER_PARTITION_DEFAULT,
        fail_on_data_loss=found.boolean("failOnDataLoss", default=True),
        end_expired=found.boolean("endExpired", default=False),
        version_as_of=version,
        timestamp_as_of_ms=as_of_ms,
        rows_per_trigger_max=_rows(found),
        bytes_per_trigger_max=_bytes(found, "maxBytesPerTrigger"),
        given=frozenset(name for name in (*_BATCH_ONLY, *_STREAM_ONLY) if found.has(name)),
    )
    if (
        by_entry
        and (ending_ms is not None or found.has("endingOffsets"))
        and (version, as_of_ms) != (None, None)
    ):
        found.problems.append(
            "with order commit the end is endingOffsets, endingTimestamp, versionAsOf or timestampAsOf: one of them"
        )
    found.finish()
    return parsed


def _order(found: OptionValues) -> Order:
    text = found.text("order")
    try:
        return Order(text.lower()) if text else Order.OFFSET
    except ValueError:
        found.problems.append(f"option order is {text!r:.100}; use {' or '.join(Order)}")
        return Order.OFFSET


def _isolation(
    found: OptionValues, version: int | None, timestamp_ms: int | None, order: Order
) -> IsolationLevel:
    text = found.one_of("isolation", "isolationLevel")
    try:
        level = IsolationLevel(text.lower()) if text else None
    except ValueError:
        *others, last = IsolationLevel
        found.problems.append(f"option isolation is {text!r:.100}; use {', '.join(others)} or {last}")
        return IsolationLevel.READ_COMMITTED
    if order is Order.COMMIT:
        if level is IsolationLevel.READ_UNCOMMITTED:
            found.problems.append(
                "option isolation is read_uncommitted; order commit reads what is committed"
            )
        level = IsolationLevel.SNAPSHOT
    try:
        return check_version_options(level, version, timestamp_ms, ("versionAsOf", "timestampAsOf"))
    except InvalidInputError as error:
        found.problems.extend(error.problems)
        return IsolationLevel.READ_COMMITTED


def _rows(found: OptionValues) -> int | None:
    names = ("maxRowsPerTrigger", "maxOffsetsPerTrigger")
    found.one_of(*names)  # a problem when they differ
    limits = [found.integer(name, 1) for name in names]
    return limits[0] if limits[0] is not None else limits[1]


_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30}


def _bytes(found: OptionValues, name: str) -> int | None:
    """Return a number of bytes, given as such or with one of Spark's suffixes (``64m``, ``64mb``)."""
    text = found.text(name)
    if text is None:
        return None
    number = text.lower().removesuffix("b")
    unit = _UNITS.get(number[-1:], 1)
    digits = number[:-1] if unit > 1 else number
    count = whole(digits, 18)
    if count is None or count < 1:
        found.problems.append(f"option {name} is {text!r:.100}; use a number of bytes, such as 64m")
        return None
    return count * unit
