"""What every option of ``format("txnlog")`` is for: the one place that describes them.

:mod:`spark_datasource.options.write` parses them. ``python -m tests.meta.options_reference`` makes docs/options.md and the
tables of docs/spark.md of what is here; tests hold names, defaults and examples against the parsers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["OPTION_DOCS", "OptionDoc"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionDoc:
    """One option in one use. Texts are Markdown; links are relative to docs/."""

    type: str
    """What it takes, for people."""
    default: str = ""
    """What is used without it; in backquotes where it can be given as it is. Empty: nothing."""
    example: str
    """A value that is accepted, and does something."""
    meaning: str
    """One sentence, or a few joined by semicolons, without a full stop."""
    alias_of: str | None = None
    """The option that this is another name of."""


_READ: Mapping[str, OptionDoc] = {
    "path": OptionDoc(
        type="path or URL",
        default="the argument of `load()`",
        example="/data/log",
        meaning="root of the log; relative to the directory in which the driver was started",
    ),
    "topic": OptionDoc(
        type="comma list",
        default="required",
        example="orders",
        meaning=(
            "the topic, or several: of all of them the columns that are read have the same names and types, "
            "and `_topic` tells them apart"
        ),
    ),
    "subscribe": OptionDoc(
        type="comma list",
        example="orders,payments",
        meaning="another name of `topic`, for those who come from the Kafka source",
        alias_of="topic",
    ),
    "subscribePattern": OptionDoc(
        type="regular expression",
        example="orders-.*",
        meaning=(
            "instead of `topic`: all topics whose whole name matches; a stream takes in those that are created "
            "later. The syntax is that of RE2: no look-around, no references to groups"
        ),
    ),
    "order": OptionDoc(
        type="name",
        default="`offset`",
        example="commit",
        meaning=(
            "`offset`: as a Kafka consumer reads; `commit`: by the entry that committed a record, then by "
            "offset, see [Reading streams](spark.md#reading-streams)"
        ),
    ),
    "isolation": OptionDoc(
        type="name",
        default="`read_committed`",
        example="read_uncommitted",
        meaning=(
            "`read_committed` ends at the last stable offset and leaves aborted records out; "
            "`read_uncommitted` gives open and aborted ones too; `snapshot` gives what one entry and "
            "those before it committed, see [Snapshots](spark.md#snapshots)"
        ),
    ),
    "isolationLevel": OptionDoc(
        type="name",
        example="read_uncommitted",
        meaning="another name of `isolation`",
        alias_of="isolation",
    ),
    "startingOffsets": OptionDoc(
        type="`earliest`, `latest` or JSON",
        default="earliest; of a stream latest",
        example='{"orders": {"0": 5, "1": -2}}',
        meaning=(
            "first offset (inclusive), for all partitions or by partition; -2 is the earliest, -1 the "
            "latest; of a single topic its level may be left out; partitions that are not named begin at the "
            'earliest; with `order` `commit` the first entry: `{"entry": 17}`'
        ),
    ),
    "endingOffsets": OptionDoc(
        type="`earliest`, `latest` or JSON",
        default="`latest`",
        example='{"0": 50}',
        meaning="end offset (exclusive), likewise; partitions that are not named end at the latest; "
        "with `order` `commit` the last entry (inclusive); batch only",
    ),
    "startingTimestamp": OptionDoc(
        type="ISO 8601 with a zone, or ms",
        example="2026-01-31T12:00:00Z",
        meaning="instead of `startingOffsets`: the first offset whose record is at or after this time",
    ),
    "endingTimestamp": OptionDoc(
        type="ISO 8601 with a zone, or ms",
        example="1769860800000",
        meaning="instead of `endingOffsets`: end there (exclusive); batch only",
    ),
    "columns": OptionDoc(
        type="comma list",
        default="all of the topic's own",
        example="id,_offset",
        meaning="the topic's and metadata columns, in this order; others are not fetched; [names](spark.md#names-of-columns)",
    ),
    "where": OptionDoc(
        type="SQL condition",
        default="all records",
        example="amount > 100 AND _offset < 1000",
        meaning="only records for which it is true; see [Conditions](spark.md#conditions)",
    ),
    "minPartitions": OptionDoc(
        type="integer from 1",
        default="by cores and bytes",
        example="8",
        meaning="splits to aim for at least; one batch is never cut in two",
    ),
    "maxBytesPerPartition": OptionDoc(
        type="bytes",
        default="`128m`",
        example="64m",
        meaning="compressed bytes of a split, unless one batch is larger; `k`, `m`, `g` are binary",
    ),
    "failOnDataLoss": OptionDoc(
        type="boolean",
        default="`true`",
        example="false",
        meaning="`false` clips offsets that are not there to those that are, instead of failing; entries are not clipped",
    ),
    "endExpired": OptionDoc(
        type="boolean",
        default="`false`",
        example="true",
        meaning=(
            "the driver first ends open transactions whose time is over, which hold the read back; where "
            "it may not write, it logs one warning and reads on"
        ),
    ),
    "versionAsOf": OptionDoc(
        type="entry",
        default="the newest",
        example="0",
        meaning="the entry of the snapshot; by itself it means `isolation` `snapshot`; batch only",
    ),
    "timestampAsOf": OptionDoc(
        type="ISO 8601, or ms",
        example="2026-01-31T12:00:00",
        meaning="instead of `versionAsOf`: the last entry at or before this time; without a zone it is UTC; "
        "batch only",
    ),
    "maxRowsPerTrigger": OptionDoc(
        type="integer from 1",
        default="no limit",
        example="100000",
        meaning=(
            "offsets of a micro-batch at most, see [Reading streams](spark.md#reading-streams); streams only, "
            "Spark 4.2 or later"
        ),
    ),
    "maxOffsetsPerTrigger": OptionDoc(
        type="integer from 1",
        example="100000",
        meaning="another name of `maxRowsPerTrigger`, for those who come from the Kafka source",
        alias_of="maxRowsPerTrigger",
    ),
    "maxBytesPerTrigger": OptionDoc(
        type="bytes",
        default="no limit",
        example="256m",
        meaning="compressed bytes of a micro-batch at most, about; streams only, Spark 4.2 or later",
    ),
}

_WRITE: Mapping[str, OptionDoc] = {
    "path": OptionDoc(
        type="path or URL",
        default="the argument of `save()`",
        example="/data/log",
        meaning="root of the log",
    ),
    "topic": OptionDoc(
        type="name",
        default="by column",
        example="orders",
        meaning="one topic; without it column `topic` of the rows",
    ),
    "txnAppId": OptionDoc(
        type="text",
        example="nightly-load",
        meaning="with `txnVersion`: name of the job",
    ),
    "txnVersion": OptionDoc(
        type="integer from 0",
        example="20261121",
        meaning="with `txnAppId`: which of its runs this is; must grow, in each topic",
    ),
    "allowDifferentRepeat": OptionDoc(
        type="boolean",
        default="`false`",
        example="true",
        meaning=(
            "go on, with a warning, although the log holds this `txnVersion` with other rows: those stay, and the ones "
            "of this run are left out"
        ),
    ),
    "partitions": OptionDoc(
        type="integer, 1 to 10,000",
        default="`1`",
        example="4",
        meaning="of a topic that is created; must agree with one that exists, or with what that began with",
    ),
    "keyColumns": OptionDoc(
        type="comma list",
        default="none",
        example="id",
        meaning="of a topic that is created: equal keys go to one partition (Kafka's murmur2)",
    ),
    "timestampColumn": OptionDoc(
        type="name",
        default="none",
        example="moment",
        meaning="of a topic that is created: the column that is the records' time",
    ),
    "createTopics": OptionDoc(
        type="boolean",
        default="`true`",
        example="false",
        meaning="`false` makes a topic that does not exist an error",
    ),
}

_STREAM_WRITE: Mapping[str, OptionDoc] = {
    "path": OptionDoc(
        type="path or URL",
        default="the argument of `start()`",
        example="/data/log",
        meaning="root of the log",
    ),
    "topic": OptionDoc(
        type="name",
        default="by column",
        example="orders",
        meaning="one topic; without it column `topic` of the rows",
    ),
    "txnAppId": OptionDoc(
        type="text",
        example="clicks",
        meaning=(
            "a name for what the query does that outlives its checkpoint: batches of another checkpoint "
            "must have numbers above those in the log; one query at a time"
        ),
    ),
    "createTopics": OptionDoc(
        type="boolean",
        default="`true`",
        example="false",
        meaning=(
            "whether a topic that does not exist is created; with rows that name their topics the default"
            " is `false`"
        ),
    ),
    "allowMissingBatches": OptionDoc(
        type="boolean",
        default="`false`",
        example="true",
        meaning="go on although the log lacks batches before this one",
    ),
    "allowDifferentRepeat": OptionDoc(
        type="boolean",
        default="`false`",
        example="true",
        meaning=(
            "go on, with a warning, although the log holds this batch with other rows: those stay, and the ones of "
            "this run are left out"
        ),
    ),
    "partitions": OptionDoc(
        type="integer, 1 to 10,000",
        default="`1`",
        example="4",
        meaning="of a topic that is created, as in batch writes",
    ),
    "keyColumns": OptionDoc(
        type="comma list",
        default="none",
        example="id",
        meaning="likewise",
    ),
    "timestampColumn": OptionDoc(
        type="name",
        default="none",
        example="moment",
        meaning="likewise",
    ),
    "checkpointLocation": OptionDoc(
        type="path or URL",
        default="Spark's own",
        example="/data/checkpoint",
        meaning="Spark's",
    ),
    "queryName": OptionDoc(
        type="text",
        default="Spark's own",
        example="clicks",
        meaning="Spark's",
    ),
}
OPTION_DOCS: Mapping[str, Mapping[str, OptionDoc]] = {
    "read": _READ,
    "write": _WRITE,
    "stream write": _STREAM_WRITE,
}
"""By use, then by name, in the order of the tables."""
