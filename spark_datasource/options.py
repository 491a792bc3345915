"""Options of ``format("txnlog")``, parsed once into plain values.

Spark lower-cases the keys and turns every value into text. Every problem is found before anything else happens,
and all of them are in one error; an unknown option is an error that names the nearest known one.
"""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from spark_datasource.delegation import delegated_by
from spark_datasource.logs import absolute
from spark_datasource.offset_options import EARLIEST, LATEST, OffsetsOption, parse_offsets
from spark_datasource.storage import NO_STORAGE, PREFIX, S3aSettings, Storage, storage_for
from txnformat.codec_fields import PARTITIONS_MAX
from txnformat.cuts import check_version_options
from txnformat.errors import InvalidInputError, TxnLogError
from txnformat.intents import AppRef
from txnformat.keys import check_topic_name
from txnformat.moments import as_moment_ms
from txnformat.types import IsolationLevel
from writers.job import Delegation

__all__ = [
    "BATCH_NAMESPACE",
    "ROUTED",
    "STREAM_APP_NAMESPACE",
    "STREAM_NAMESPACE",
    "VERSION_MAX",
    "ReadOptions",
    "StreamWriteOptions",
    "WriteOptions",
    "parse_read_options",
    "parse_stream_write_options",
    "parse_write_options",
    "topic_app_id",
]

BATCH_NAMESPACE = "spark-batch"
"""Namespace of the application ids of batch writes."""

STREAM_NAMESPACE = "spark-stream"
"""Namespace of the ids of streaming queries; their versions are the numbers of batches."""

STREAM_APP_NAMESPACE = "spark-stream-app"
"""Namespace of the application ids that streams may be given besides."""

ROUTED = "*"
"""In application ids in place of a topic: a write whose rows name their topics."""

BYTES_PER_PARTITION_DEFAULT = 128 * 2**20
"""Spark's own spark.sql.files.maxPartitionBytes."""

VERSION_MAX = 2**63 - 1

_READ = (
    "path", "topic", "subscribe", "isolation", "isolationLevel", "startingOffsets", "endingOffsets",
    "startingTimestamp", "endingTimestamp", "columns", "where", "minPartitions", "maxBytesPerPartition", "failOnDataLoss",
    "endExpired", "versionAsOf", "timestampAsOf",
)  # fmt: skip
_WRITE = (
    "path", "topic", "txnAppId", "txnVersion", "partitions", "keyColumns", "timestampColumn", "createTopics",
)  # fmt: skip
_STREAM_WRITE = (
    "path", "topic", "txnAppId", "allowMissingBatches", "partitions", "keyColumns", "timestampColumn", "createTopics",
    "checkpointLocation", "queryName",
)  # fmt: skip
_LATER = (
    "order", "maxRowsPerTrigger", "maxOffsetsPerTrigger", "maxBytesPerTrigger",
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "subscribePattern", "assign",
)  # fmt: skip
_EMPTY_IS_MISSING = {"path", "topic"}
"""Options that have to be given, in lower case: an empty one has an error of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a batch read asks for."""

    path: str
    """Absolute path or URL of the log."""
    topic: str
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    starting: OffsetsOption = EARLIEST
    """First offset (inclusive)."""
    ending: OffsetsOption = LATEST
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What a write asks for."""

    path: str
    topic: str | None
    """None: column ``topic`` of the DataFrame names the topic of each row."""
    app: AppRef | None = None
    """The application version that the write stands for: it is applied once, to this topic or as a routed write."""
    partitions: int | None = None
    """Of the topic, when it is created (then 1 by default); an existing topic must have as many."""
    key_columns: tuple[str, ...] | None = None
    timestamp_column: str | None = None
    create_topics: bool = True
    """Whether topics that do not exist are created."""
    storage: Storage = NO_STORAGE
    delegation: Delegation | None = None
    """The write stages in the open transaction of a producer, in place of an append."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWriteOptions:
    """What a streaming write asks for."""

    write: WriteOptions
    app_id: str | None = None
    """Its batches are counted under this name besides, whatever query writes them."""
    allow_missing_batches: bool = False
    """Whether the log may lack batches that came before."""


def parse_read_options(options: Mapping[str, str], s3a: S3aSettings | None = None) -> ReadOptions:
    """Return the options of a read.

    Raises
    ------
    InvalidInputError
        Kind ``invalid-option``: every problem.
    """
    found = _Options(options, _READ, {"writes": _WRITE, "streaming writes": _STREAM_WRITE})
    topic = _topic(found, found.one_of("topic", "subscribe"))
    starting_ms, ending_ms = found.timestamp("startingTimestamp"), found.timestamp("endingTimestamp")
    for name in ("starting", "ending"):
        if found.text(f"{name}Offsets") is not None and found.text(f"{name}Timestamp") is not None:
            found.problems.append(f"give {name}Offsets or {name}Timestamp, not both")
    if starting_ms is not None and ending_ms is not None and ending_ms < starting_ms:
        found.problems.append("endingTimestamp is before startingTimestamp")
    version, as_of_ms = found.integer("versionAsOf", 0), found.moment("timestampAsOf")
    path = _path(found)
    parsed = ReadOptions(
        path=path,
        storage=_storage(found, path, s3a),
        topic=topic,
        isolation=_isolation(found, version, as_of_ms),
        starting=parse_offsets(
            found.text("startingOffsets"), "startingOffsets", topic, EARLIEST, found.problems
        ),
        ending=parse_offsets(found.text("endingOffsets"), "endingOffsets", topic, LATEST, found.problems),
        starting_timestamp_ms=starting_ms,
        ending_timestamp_ms=ending_ms,
        columns=found.names("columns"),
        where=found.text("where"),
        partitions_min=found.integer("minPartitions", 1),
        bytes_per_partition_max=_bytes(found),
        fail_on_data_loss=found.boolean("failOnDataLoss", default=True),
        end_expired=found.boolean("endExpired", default=False),
        version_as_of=version,
        timestamp_as_of_ms=as_of_ms,
    )
    found.finish()
    return parsed


def parse_write_options(
    options: Mapping[str, str], columns: Sequence[str] = (), *, s3a: S3aSettings | None = None
) -> WriteOptions:
    """Return the options of a write.

    Parameters
    ----------
    columns : sequence of str
        The DataFrame's: one called ``topic`` routes the rows when the option of that name is absent.

    Raises
    ------
    InvalidInputError
        Kind ``invalid-option``: every problem.
    """
    others, delegation = delegated_by(options)
    found = _Options(others, _WRITE, {"reads": _READ, "streaming writes": _STREAM_WRITE})
    parsed = _write_options(found, columns, s3a, creates_routed=True)
    parsed = replace(parsed, app=_app(found, parsed.topic), delegation=delegation)
    found.finish()
    return parsed


def parse_stream_write_options(
    options: Mapping[str, str], columns: Sequence[str] = (), *, s3a: S3aSettings | None = None
) -> StreamWriteOptions:
    """Return the options of a streaming write; otherwise as :func:`parse_write_options`."""
    found = _Options(options, _STREAM_WRITE, {"reads": _READ, "batch writes": _WRITE})
    parsed = StreamWriteOptions(
        # A column may hold anything at any time, and nobody watches a stream: a name mistyped once makes no topic.
        write=_write_options(found, columns, s3a, creates_routed=False),
        app_id=found.text("txnAppId"),
        allow_missing_batches=found.boolean("allowMissingBatches", default=False),
    )
    found.finish()
    return parsed


def _write_options(
    found: _Options, columns: Sequence[str], s3a: S3aSettings | None, *, creates_routed: bool
) -> WriteOptions:
    partitions = found.integer("partitions", 1)
    if partitions is not None and partitions > PARTITIONS_MAX:
        found.problems.append(f"option partitions is {partitions}; a topic has at most {PARTITIONS_MAX}")
    routed = not found.has("topic") and [name.lower() for name in columns].count("topic") == 1
    path = _path(found)
    return WriteOptions(
        path=path,
        storage=_storage(found, path, s3a),
        topic=None if routed else _topic(found, found.text("topic"), _OR_ROUTE),
        partitions=partitions,
        key_columns=found.names("keyColumns"),
        timestamp_column=found.text("timestampColumn"),
        create_topics=found.boolean("createTopics", default=creates_routed or not routed),
    )


class _Options:
    """The texts that Spark passed on, and what is wrong with them.

    Parameters
    ----------
    others : mapping of str to sequence of str
        Options that are for something else, by what that is.
    """

    def __init__(
        self, options: Mapping[str, str], known: Sequence[str], others: Mapping[str, Sequence[str]]
    ) -> None:
        self._values = {key.lower(): str(value).strip() for key, value in options.items()}
        self.problems: list[str] = []
        names = {name.lower(): name for name in known}
        later = {name.lower(): name for name in _LATER}
        elsewhere = {name.lower(): (name, what) for what in reversed(list(others)) for name in others[what]}
        if "provider" in self._values:  # CREATE TABLE: Spark passes properties of its own, not the options
            raise InvalidInputError(
                "tables of a catalog are not supported by this version",
                kind="unsupported-operation",
                hint="use CREATE TEMPORARY VIEW name USING txnlog OPTIONS (topic '...', path '...')",
            )
        for key in sorted(self._values.keys() & names.keys() - _EMPTY_IS_MISSING):
            # Often a variable that was not set. A default in its place would be a guess: without txnAppId, not once.
            if not self._values[key]:
                self.problems.append(f"option {names[key]} is empty; give it a value, or leave it out")
        for key in sorted(self._values.keys() - names.keys()):
            if key == "paths":
                self.problems.append("load one path: a read covers one log")
            elif key.startswith(PREFIX):
                pass  # looked at with the path
            elif key in later:
                self.problems.append(f"option {later.get(key, key)} is not supported by this version")
            elif key in elsewhere:
                name, what = elsewhere[key]
                self.problems.append(f"option {name} is for {what} only")
            else:
                nearest = difflib.get_close_matches(key, names, n=1)
                advice = f"did you mean {names[nearest[0]]}?" if nearest else f"there are {', '.join(known)}"
                self.problems.append(f"there is no option {key!r:.100}; {advice}")

    def finish(self) -> None:
        """Raise when there was any problem."""
        if self.problems:
            raise InvalidInputError(self.problems, kind="invalid-option")

    def has(self, name: str) -> bool:
        """Whether an option was given, known or not."""
        return name.lower() in self._values

    def text(self, name: str) -> str | None:
        """Return an option's text; None when it is absent or empty."""
        return self._values.get(name.lower()) or None

    def storage(self) -> dict[str, str]:
        """Return the options ``storage.<name>``, without the prefix."""
        return {
            key.removeprefix(PREFIX): value for key, value in self._values.items() if key.startswith(PREFIX)
        }

    def one_of(self, name: str, alias: str) -> str | None:
        """Return the text of an option that has two names."""
        value, other = self.text(name), self.text(alias)
        if value is not None and other is not None and value != other:
            self.problems.append(f"options {name} and {alias} mean the same and differ")
        return value if value is not None else other

    def names(self, name: str) -> tuple[str, ...] | None:
        """Return a comma-separated list of names."""
        text = self.text(name)
        if text is None:
            return None
        names = tuple(part.strip() for part in text.split(","))
        if not all(names):
            self.problems.append(f"option {name} has an empty name in it: {text!r:.100}")
        return names

    def integer(self, name: str, minimum: int) -> int | None:
        """Return an integer of at least ``minimum``."""
        text = self.text(name)
        if text is None:
            return None
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if value < minimum:
            self.problems.append(f"option {name} is {text!r:.100}; use an integer from {minimum} on")
            return None
        return value

    def boolean(self, name: str, *, default: bool) -> bool:
        """Return "true" or "false"."""
        text = self.text(name)
        if text is not None and text.lower() not in ("true", "false"):
            self.problems.append(f"option {name} is {text!r:.100}; use true or false")
        return default if text is None else text.lower() == "true"

    def timestamp(self, name: str) -> int | None:
        """Return milliseconds since the epoch: given as such, or as ISO 8601 with a zone."""
        text = self.text(name)
        if text is None:
            return None
        try:
            if text.lstrip("-").isdecimal():
                return int(text)
            moment = datetime.datetime.fromisoformat(text)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            self.problems.append(
                f"option {name} is {text!r:.100}; use milliseconds since the epoch, or ISO 8601 with a zone, "
                "such as 2026-01-31T12:00:00Z"
            )
            return None
        # In integers: a float of seconds is a millisecond off for some times. Rounded up: "at or after".
        since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return -(-since // datetime.timedelta(milliseconds=1))

    def moment(self, name: str) -> int | None:
        """Return milliseconds since the epoch, as Python's ``timestamp_as_of`` takes them."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return as_moment_ms(text, f"option {name}")
        except InvalidInputError as error:
            self.problems.append(f"{error.problems[0]}; {error.hint}")
            return None


def _path(found: _Options) -> str:
    text = found.text("path")
    if text is None:
        if not found.has("paths"):  # load([...]), a problem already
            found.problems.append(
                "the path of the log is missing; pass it to load(), save(), start() or option path"
            )
        return ""
    return absolute(text)


def _storage(found: _Options, path: str, s3a: S3aSettings | None) -> Storage:
    try:
        return storage_for(path, found.storage(), s3a)
    except InvalidInputError as error:
        found.problems.extend(error.problems)
        return NO_STORAGE


_OR_ROUTE = "; give it, or leave it out and name the topic of each row in a column topic"


def _topic(found: _Options, text: str | None, advice: str = "") -> str:
    if text is None:
        found.problems.append(f"option topic is missing{advice}")
        return ""
    if "," in text:
        found.problems.append(
            f"option topic is {text!r:.100}; this version reads and writes one topic at a time"
        )
        return ""
    try:
        return check_topic_name(text)
    except TxnLogError as error:
        found.problems.append(str(error))
        return ""


def _isolation(found: _Options, version: int | None, timestamp_ms: int | None) -> IsolationLevel:
    text = found.one_of("isolation", "isolationLevel")
    try:
        level = IsolationLevel(text.lower()) if text else None
    except ValueError:
        *others, last = IsolationLevel
        found.problems.append(f"option isolation is {text!r:.100}; use {', '.join(others)} or {last}")
        return IsolationLevel.READ_COMMITTED
    try:
        return check_version_options(level, version, timestamp_ms, ("versionAsOf", "timestampAsOf"))
    except InvalidInputError as error:
        found.problems.extend(error.problems)
        return IsolationLevel.READ_COMMITTED


_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30}


def _bytes(found: _Options) -> int:
    """Return maxBytesPerPartition: bytes, or with one of Spark's suffixes (``64m``, ``64mb``)."""
    text = found.text("maxBytesPerPartition")
    if text is None:
        return BYTES_PER_PARTITION_DEFAULT
    number = text.lower().removesuffix("b")
    unit = _UNITS.get(number[-1:], 1)
    digits = number[:-1] if unit > 1 else number
    if not digits.isdecimal() or int(digits) < 1:
        found.problems.append(
            f"option maxBytesPerPartition is {text!r:.100}; use a number of bytes, such as 64m"
        )
        return BYTES_PER_PARTITION_DEFAULT
    return int(digits) * unit


def topic_app_id(topic: str, app_id: str) -> str:
    """Return the id under which versions of an application are counted: by topic, ``*`` for routed writes.

    By topic as Delta Lake counts by table: a job that writes two topics under one name and version would otherwise
    find its second write "done". No topic's name has a slash or an asterisk in it.
    """
    return f"{topic}/{app_id}"


def _app(found: _Options, topic: str | None) -> AppRef | None:
    """Return the application version of a write."""
    app_id, version = found.text("txnAppId"), found.integer("txnVersion", 0)
    if (app_id is None) != (found.text("txnVersion") is None):
        found.problems.append("give txnAppId and txnVersion both, or neither")
    if version is not None and version > VERSION_MAX:
        found.problems.append(f"option txnVersion is {version}; use at most 2^63 - 1")
    if app_id is None or version is None:
        return None
    return AppRef(BATCH_NAMESPACE, topic_app_id(ROUTED if topic is None else topic, app_id), version)
