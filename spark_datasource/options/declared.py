"""Every option of ``format("txnlog")``, declared once: the field that holds its value, its names, kind,
default and text.

The parsers, the hints about unknown options, docs/options.md derive from here. The string
below a field is the text of its option, in Markdown, with links relative to docs/; ``python -m
tests.meta.options_reference`` writes the pages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from spark_datasource.options.offsets import END, StartOrEnd
from spark_datasource.options.storage import NO_STORAGE, Storage
from spark_datasource.options.topics import TopicChoice
from spark_datasource.options.values import Kind, Option, OptionValues
from txnformat.consumers.looks import LOOK_INTERVAL_BOUNDS, LOOK_INTERVAL_MS
from txnformat.core.intents import AppRef
from txnformat.errors import InvalidInputError
from txnformat.field_types import PARTITIONS_MAX
from txnformat.types import IsolationLevel

if TYPE_CHECKING:
    from writers.job import Delegation

__all__ = [
    "BYTES_PER_PARTITION_DEFAULT",
    "LATER",
    "READ",
    "STREAM_WRITE",
    "VERSION_MAX",
    "WRITE",
    "Order",
    "ReadOptions",
    "StreamWriteOptions",
    "WriteOptions",
    "field_values",
]

BYTES_PER_PARTITION_DEFAULT = 128 * 2**20
"""Spark's own spark.sql.files.maxPartitionBytes."""

VERSION_MAX = 2**63 - 1

LATER = ("startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "assign")
"""Options of Spark's Kafka source that are not supported yet."""

_REQUIRED = dataclasses.MISSING

_OFFSETS = Kind("`earliest`, `latest` or JSON")
_PATH = Kind("path or URL", OptionValues.path)
_TEXT = Kind("text", OptionValues.text)
_NAME = Kind("name", OptionValues.name)
_NAMES = Kind("comma list", OptionValues.names)
_BOOLEAN = Kind("boolean", OptionValues.boolean)
_BYTES = Kind("bytes", OptionValues.bytes)
_TIMESTAMP = Kind("ISO 8601 with a zone, or ms", OptionValues.timestamp)
_MOMENT = Kind("ISO 8601, or ms", OptionValues.moment)
_ENTRY = Kind("entry", lambda found, name: found.integer(name, 0))


def _integer(minimum: int, maximum: int | None = None, advice: str = "") -> Kind:
    """Return the kind of integers from ``minimum`` on; ``advice``: what to do about one above ``maximum``
    (inclusive).
    """
    bounds = f"from {minimum}" if maximum is None or maximum > 10**9 else f"from {minimum} to {maximum:,}"
    return Kind(f"integer {bounds}", lambda found, name: found.integer(name, minimum, maximum, advice))


class Order(StrEnum):
    """In which order the records of a partition are read."""

    OFFSET = "offset"
    """As a Kafka consumer does: up to the last stable offset, where the oldest open transaction begins."""
    COMMIT = "commit"
    """Order of the entries that committed the records, then of offsets: held back by nothing, and no
    transaction is ever split."""


def _option(name: str, kind: Kind, example: str, *more: Option, value: Any = None, **others: Any) -> Any:
    """Return the field of an option.

    ``more``: others that the field's value is made of. ``value``: the field's without the option. ``others``:
    of :class:`Option`.
    """
    if isinstance(value, bool | StrEnum):
        others["default"] = f"`{str(value).lower()}`"
    options = (Option(name, kind, example, **others), *more)
    return dataclasses.field(default=value, metadata={"options": options})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options of a read."""

    path: str = _option("path", _PATH, "/data/log", default="the argument of `load()`", value=_REQUIRED)
    """Root of the log; relative to the directory in which the driver was started."""
    topics: TopicChoice = _option(
        "topic",
        Kind("comma list"),
        "orders",
        Option(
            "subscribePattern",
            Kind("regular expression"),
            "orders-.*",
            text="Instead of `topic`: all topics whose whole name matches; a stream takes in those that "
            "are created later. "
            "The syntax is that of RE2: no look-around, no references to groups.",
        ),
        default="required",
        alias="subscribe",
        value=_REQUIRED,
    )
    """The topic, or several: of all of them the columns that are read have the same names and types, and
    `_topic` tells them apart."""
    order: Order = _option("order", Kind("name"), "commit", value=Order.OFFSET)
    """`offset`: as a Kafka consumer reads; `commit`: by the entry that committed a record, then by offset,
    see [Reading streams](spark-streams.md#reading-streams)."""
    isolation: IsolationLevel = _option(
        "isolation",
        Kind("name"),
        "read_uncommitted",
        value=IsolationLevel.READ_COMMITTED,
        alias="isolationLevel",
    )
    """`read_committed` ends at the last stable offset and leaves aborted records out; `read_uncommitted`
    gives open and aborted ones too; `snapshot` gives what one entry and those before it committed, see
    [Snapshots](spark-read.md#snapshots)."""
    starting: StartOrEnd | None = _option(
        "startingOffsets", _OFFSETS, '{"orders": {"0": 5, "1": -2}}', default="earliest; of a stream latest"
    )
    """First offset (inclusive), for all partitions or by partition; -2 is the earliest, -1 the latest; of a
    single topic its level may be left out; partitions that are not named begin at the earliest; with `order`
    `commit` the first entry: `{"entry": 17}`."""
    ending: StartOrEnd = _option(
        "endingOffsets", _OFFSETS, '{"0": 50}', value=END, default="`latest`", only="batch"
    )
    """End offset (exclusive), likewise; partitions that are not named end at the latest; with `order`
    `commit` the last entry (inclusive)."""
    starting_timestamp_ms: int | None = _option("startingTimestamp", _TIMESTAMP, "2026-01-31T12:00:00Z")
    """Instead of `startingOffsets`: the first offset whose record is at or after this time."""
    ending_timestamp_ms: int | None = _option("endingTimestamp", _TIMESTAMP, "1769860800000", only="batch")
    """Instead of `endingOffsets`: end there (exclusive)."""
    columns: tuple[str, ...] | None = _option(
        "columns", _NAMES, "id,_offset", default="all of the topic's own"
    )
    """The topic's and metadata columns, in this order; others are not fetched;
    [names](spark-read.md#names-of-columns)."""
    where: str | None = _option(
        "where",
        Kind("SQL condition", OptionValues.text),
        "amount > 100 AND _offset < 1000",
        default="all records",
    )
    """Only records for which it is true; see [Conditions](spark-read.md#conditions)."""
    partitions_min: int | None = _option("minPartitions", _integer(1), "8", default="by cores and bytes")
    """Splits to aim for at least; one batch is never cut in two; see [Splits](spark-read.md#splits)."""
    bytes_per_partition_max: int = _option(
        "maxBytesPerPartition", _BYTES, "64m", value=BYTES_PER_PARTITION_DEFAULT, default="`128m`"
    )
    """Compressed bytes of a split, with the cost of opening its files, unless one batch is larger; `k`, `m`,
    `g` are binary."""
    fail_on_data_loss: bool = _option("failOnDataLoss", _BOOLEAN, "false", value=True)
    """`false` clips offsets that are not there to those that are, instead of failing; entries are not
    clipped."""
    end_expired: bool = _option("endExpired", _BOOLEAN, "true", value=False)
    """The driver first ends open transactions whose time is over, which hold the read back; where it may not
    write, it logs one warning and reads on."""
    version_as_of: int | None = _option("versionAsOf", _ENTRY, "0", default="the newest", only="batch")
    """The entry of the snapshot; by itself it means `isolation` `snapshot`."""
    timestamp_as_of_ms: int | None = _option("timestampAsOf", _MOMENT, "2026-01-31T12:00:00", only="batch")
    """Instead of `versionAsOf`: the last entry at or before this time; without a zone it is UTC."""
    rows_per_trigger_max: int | None = _option(
        "maxRowsPerTrigger",
        _integer(1),
        "100000",
        default="no limit",
        alias="maxOffsetsPerTrigger",
        only="stream",
    )
    """Offsets of a micro-batch at most, see [Reading streams](spark-streams.md#reading-streams); Spark 4.2 or
    later."""
    bytes_per_trigger_max: int | None = _option(
        "maxBytesPerTrigger", _BYTES, "256m", default="no limit", only="stream"
    )
    """Compressed bytes of a micro-batch at most, about; Spark 4.2 or later."""
    look_interval_ms: int = _option(
        "lookIntervalMs",
        _integer(*LOOK_INTERVAL_BOUNDS),
        "250",
        value=LOOK_INTERVAL_MS,
        default=f"`{LOOK_INTERVAL_MS}`",
        only="stream",
    )
    """Longest wait between two looks at a log without news, ms: each look is a request, see [Latency and its
    price](operate.md#latency-and-its-price)."""
    storage: Storage = NO_STORAGE
    given: frozenset[str] = dataclasses.field(default=frozenset(), repr=False, compare=False)
    """Names of the options that were given."""

    def check_batch(self) -> None:
        """Raise when an option was given that only streams know (kind ``invalid-option``)."""
        self._refuse("stream", "option {} is for streaming reads only")

    def check_stream(self) -> None:
        """Raise when an option was given that streams do not know (kind ``invalid-option``)."""
        self._refuse("batch", "option {} is for batch reads only: a stream has no end")
        if self.isolation is IsolationLevel.SNAPSHOT and self.order is Order.OFFSET:
            raise InvalidInputError(
                "option isolation is snapshot; a stream reads read_committed or read_uncommitted",
                kind="invalid-option",
                hint='use option("order", "commit"): then open transactions do not hold the stream back',
            )

    def _refuse(self, only: str, text: str) -> None:
        problems = [
            text.format(name)
            for one in READ.values()
            if one.only == only
            for name in (one.name, one.alias)
            if name in self.given
        ]
        if problems:
            raise InvalidInputError(problems, kind="invalid-option")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of a write: of a DataFrame, or of one batch of a stream."""

    path: str = _option(
        "path", _PATH, "/data/log", default="the argument of `save()` or `start()`", value=_REQUIRED
    )
    """Root of the log."""
    topic: str | None = _option("topic", Kind("name"), "orders", default="by column", value=_REQUIRED)
    """One topic; without it column `topic` of the rows."""
    app: AppRef | None = _option(
        "txnAppId",
        _TEXT,
        "nightly-load",
        Option(
            "txnVersion",
            _integer(0, VERSION_MAX, "use at most 2^63 - 1"),
            "20261121",
            only="batch",
            text="With `txnAppId`: which of its runs this is; must grow, in each topic.",
        ),
        only="batch",
    )
    """With `txnVersion`: name of the job."""
    allow_different: bool = _option("allowDifferentRepeat", _BOOLEAN, "true", value=False)
    """Go on, with a warning, although the log holds this `txnVersion`, or this batch of a stream, with other
    rows: those stay, and the ones of this run are left out."""
    partitions: int | None = _option(
        "partitions", _integer(1, PARTITIONS_MAX, f"a topic has at most {PARTITIONS_MAX}"), "4", default="`1`"
    )
    """Number of partitions of a topic that is created; must agree with a topic that exists, and with the
    number that the stream began with."""
    key_columns: tuple[str, ...] | None = _option("keyColumns", _NAMES, "id", default="none")
    """Key columns of a topic that is created: equal keys go to one partition (Kafka's murmur2)."""
    timestamp_column: str | None = _option("timestampColumn", _NAME, "moment", default="none")
    """Time column of a topic that is created: it holds the records' time."""
    create_topics: bool = _option("createTopics", _BOOLEAN, "false", value=True)
    """`false` makes a topic that does not exist an error; it is the default in a stream whose rows name their
    topics."""
    case_sensitive: bool = False
    """Whether names of columns have to be written in the letter case of the columns."""
    storage: Storage = NO_STORAGE
    delegation: Delegation | None = None
    """The write stages in the open transaction of a producer, in place of an append."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWriteOptions:
    """Options of a streaming write, besides those of :class:`WriteOptions`."""

    write: WriteOptions
    app_id: str | None = _option("txnAppId", _TEXT, "clicks")
    """A name for what the query does that outlives its checkpoint: batches of another checkpoint must have
    numbers above those in the log; one query at a time."""
    allow_missing_batches: bool = _option("allowMissingBatches", _BOOLEAN, "true", value=False)
    """Go on although the log lacks batches before this one."""


_OF_SPARK = tuple(
    Option(name, Kind(kind), example, default="Spark's own", text="Spark's.")
    for name, kind, example in (
        ("checkpointLocation", "path or URL", "/data/checkpoint"),
        ("queryName", "text", "clicks"),
    )
)


def _declared(cls: type[Any]) -> list[Option]:
    return [option for field in dataclasses.fields(cls) for option in field.metadata.get("options", ())]


def _by_name(*options: Option) -> Mapping[str, Option]:
    return {option.name: option for option in options}


READ = _by_name(*_declared(ReadOptions))
"""Options of reads by name, in the order of the page."""

WRITE = _by_name(*_declared(WriteOptions))

STREAM_WRITE = _by_name(
    *(option for option in WRITE.values() if option.only != "batch"),
    *_declared(StreamWriteOptions),
    *_OF_SPARK,
)


def field_values(found: OptionValues, cls: type[Any]) -> dict[str, Any]:
    """Return the fields of ``cls`` that one option alone decides, as far as it was given."""
    values = {
        field.name: options[0].kind.parse(found, options[0].name)
        for field in dataclasses.fields(cls)
        if len(options := field.metadata.get("options", ())) == 1 and options[0].kind.parse is not None
    }
    return {name: value for name, value in values.items() if value is not None}
