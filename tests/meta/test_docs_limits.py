"""The limits that docs/internals/limits.md lists are the constants and defaults of the code."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import pytest

from spark_datasource.options.read import parse_read_options
from tests.meta.markdown import ROOT, codes, tables
from txnformat.protocol.commit import CommitSettings

LIMITS = (ROOT / "docs" / "internals" / "limits.md").read_text(encoding="utf-8")

UNITS = {"KiB": 2**10, "MiB": 2**20, "s": 1_000, "ms": 1}

# Text of a row of docs/internals/limits.md, and the constants (module:name) that its numbers are, in order.
LIMIT_CONSTANTS: dict[str, tuple[str, ...]] = {
    "commit entry, as stored": ("txnformat.core.entry:ENTRY_BYTES_MAX",),
    "operations in one entry": ("txnformat.core.entry:OPERATIONS_MAX",),
    "items that operations of one entry list together, each counted by its longest list": (
        "txnformat.core.entry:ITEMS_MAX",
    ),
    "columns of a topic, with the fields of structs": ("txnformat.columns.arrow_types:COLUMNS_MAX",),
    "batches that an entry names itself; more go to a batch table": (
        "txnformat.core.records.batch_table:BATCHES_IN_ENTRY_MAX",
    ),
    "bundle of 100 entries; more are read one by one": ("txnformat.core.wire.bundle:BUNDLE_BYTES_MAX",),
    "payload bundle of 10 or 100 entries; more are read by tens, or one by one": (
        "txnformat.core.wire.bundle:BUNDLE_BYTES_MAX",
    ),
    "partitions of one topic": ("txnformat.field_types:PARTITIONS_MAX",),
    "partitions of all topics of a log": ("txnformat.field_types:LOG_PARTITIONS_MAX",),
    "versions of one topic's schema": ("txnformat.field_types:SCHEMAS_MAX",),
    "JSON of a snapshot, and its tables: [what fits](#what-fits-into-a-snapshot)": (
        "txnformat.core.wire.document:METADATA_BYTES_MAX",
    ),
    "snapshot as stored": ("txnformat.store.object_sizes:SNAPSHOT_BYTES_MAX",),
    "`format.json`, `latest`, a boundary": ("txnformat.core.wire.document:SMALL_BYTES_MAX",),
    "any other object that a reader asks for without its size": (
        "txnformat.store.object_sizes:OTHER_BYTES_MAX",
    ),
    "decompressed metadata object": ("txnformat.core.wire.document:METADATA_BYTES_MAX",),
    "JSON of an entry or a snapshot, for each byte as stored (at least 1 MiB)": (),
    "the same, above 4 MiB: memory by the number of its values, for each byte as stored": (),
    "intents in one entry": ("txnformat.core.entry:OPERATIONS_MAX",),
    "decompressed sidecar, segment list or batch table; or 64 times what is stored, if that is more": (
        "txnformat.columns.arrow_messages:WHOLE_BYTES_MAX",
    ),
    (
        "decompressed page of a data file, and pages and dictionaries that are decompressed side by side; or "
        "100 times what is stored, if that is more"
    ): ("txnformat.segments.pages:PAGE_BYTES_MAX",),
    "what a decoder needs for the lists of a row group, beyond some times the stored bytes of each column": (
        "txnformat.segments.footer_shape:LISTS_BYTES_MAX",
        "txnformat.segments.footer_shape:LISTS_RATIO_MAX",
    ),
    (
        "objects in one listing of S3: an erasure's certificate and `txnlog verify` list the whole root, in "
        "about 0.4 kB of memory for each object"
    ): ("txnformat.store.remote.store:LISTED_KEYS_MAX",),
    "objects that a vacuum lists, which holds only some of them": (
        "txnformat.store.s3.store:LISTED_EACH_MAX",
    ),
    "what a vacuum knows of keys in memory, beyond that in a temporary file": (
        "txnformat.verify.spool:MEMORY_BYTES",
    ),
    "segment lists of a state": ("txnformat.core.sealing.lists:LISTS_MAX",),
    "string in metadata": ("txnformat.field_types:TEXT_BYTES_MAX",),
    "regular expression of names (`subscribePattern`, `--pattern`)": (),
    "topic name": ("txnformat.keys:NAME_CHARS_MAX",),
    "column name": ("txnformat.columns.arrow_types:COLUMN_NAME_CHARS_MAX",),
    "transactional id": ("txnformat.keys:TRANSACTIONAL_ID_BYTES_MAX",),
    "SQL condition of a read": (
        "txnformat.predicates.sql:WHERE_CHARS_MAX",
        "txnformat.predicates.sql:WHERE_NESTING_MAX",
    ),
    "nesting of a column's type": ("txnformat.columns.arrow_types:NESTING_MAX",),
    "levels of a column in Parquet: a list or a map counts two, a struct and a value one": (
        "txnformat.columns.arrow_types:PARQUET_LEVELS_MAX",
    ),
    "topics that one Spark write may route rows to": ("spark_datasource.write.routing:ROUTED_TOPICS_MAX",),
    "producer ids, epochs, sequences, offsets": (),
    "intents remembered": ("txnformat.core.state:INTENT_WINDOW_ENTRIES",),
    "appends remembered per producer and partition": ("txnformat.core.producers.state:WINDOW_APPENDS",),
    "age of a view that proves the tip by itself": ("txnformat.protocol.view:VIEW_AGE_MS_MAX",),
    "an unused transactional id": ("txnformat.core.lifecycle.idle:TRANSACTIONAL_ID_RETENTION_MS",),
    "an unused consumer group": ("txnformat.core.lifecycle.idle:GROUP_RETENTION_MS",),
    "session timeout of a group's member": ("txnformat.core.groups.checks:SESSION_TIMEOUT_MS_MAX",),
    "separate ranges of acknowledged and pending records, per partition of a subscription": (
        "txnformat.core.subscriptions.state:ACK_RANGES_MAX",
    ),
    "a producer without one that appends nothing": ("txnformat.core.lifecycle.idle:PRODUCER_RETENTION_MS",),
    "how many times as many workers a parallel job had before, at most, when its leftovers are cleaned": (
        "txnformat.core.transactions.lingering:SAFE_SCALE_DOWN_FACTOR",
    ),
    "a writer's clock against store time": ("txnformat.core.assemble:CLOCK_SKEW_MS_MAX",),
    "isolation level": (),
    "extents in the state before a writer seals them": (
        "txnformat.protocol.commit:CommitSettings.seal_extents",
    ),
    "decoded sidecars that a process keeps for its next reads of a log": (
        "txnformat.reading.sealed:KEPT_BYTES",
    ),
    "entries with [rows in them](../operate.md#small-transactions) that a process writes before it seals": (
        "txnformat.client.committer:SEAL_PAYLOADS",
        "txnformat.client.committer:SEAL_PAYLOAD_BYTES",
    ),
    "file that a seal makes of rows in entries": (
        "txnformat.protocol.unembedding:FILE_BATCHES_MAX",
        "txnformat.protocol.unembedding:FILE_BYTES_MAX",
    ),
    "partitions that one seal takes": ("txnformat.protocol.sealing:PARTITIONS_MAX",),
    "batches that one seal takes, unless a single append has more in a partition": (
        "txnformat.protocol.sealing:BATCHES_MAX",
    ),
    "batches of one append in one partition that can be sealed": (
        "txnformat.protocol.sealing:UNSEALABLE_BATCHES",
    ),
    "sealed segments in the state before they go to a segment list": (
        "txnformat.protocol.sealing:LISTED_SEGMENTS",
        "txnformat.protocol.sealing:LISTED_ROWS",
    ),
    "rows of a segment list that a writer makes; `maintain` makes larger ones": (
        "txnformat.protocol.sealing:LIST_ROWS_MAX",
    ),
    "rows of the largest segment list; beyond it there are several of this size": (
        "txnformat.core.sealing.lists:ROWS_MAX",
    ),
    "rows of a record batch when reading": ("txnformat.reading.rows:ROWS_PER_BATCH",),
    "lost slots before `ConflictError` (`commit-contention`)": (
        "txnformat.protocol.commit:CommitSettings.attempts_max",
    ),
    "time before an unclear commit answers `CommitStateUnknownError`": (
        "txnformat.protocol.commit:CommitSettings.deadline_ms",
    ),
    "times that a Spark write hands in one commit while its outcome is unknown, each with that time": (
        "spark_datasource.worker.logs:COMMIT_TRIES_MAX",
    ),
    "producer id block": ("txnformat.core.intents:AllocateIds.count",),
    "snapshot": (
        "txnformat.protocol.snapshots:TAIL_ENTRIES_MIN",
        "txnformat.protocol.snapshots:BYTES_PER_ENTRY",
    ),
    "S3: attempts of a request that may be repeated": (
        "txnformat.store.s3.requests:ATTEMPTS_MAX",
        "txnformat.store.remote.store:BACKOFF_MS_MAX",
    ),
    "S3, Azure, Google: part of an upload, and largest single PUT": ("txnformat.store.uploads:PART_BYTES",),
    "what a decoder needs for the lists of a row group that is written; more if a single row needs more": (
        "txnformat.segments.writer:LISTS_DECODED_BYTES_MAX",
    ),
    "row group": (
        "txnformat.segments.writer:ROW_GROUP_BYTES_MAX",
        "txnformat.segments.writer:LISTS_ROW_GROUP_BYTES_MAX",
    ),
    "value that is sent as one record; a larger one becomes several, in a transaction only": (
        "writers.settings:ProducerSettings.chunk_bytes",
    ),
    "chunks of large values that a reader holds; more are read again when they are asked for": (
        "txnformat.values:HELD_BYTES_MAX",
    ),
    "what a reader decodes in one go, at least a row group; up to three more are on their way": (
        "txnformat.segments.reader:WINDOW_BYTES",
        "txnformat.segments.reader:WINDOW_DECODED_BYTES",
    ),
    "row groups that decode to more are read by rows, in pieces of about 16 MiB": (
        "txnformat.segments.reader:WHOLE_BYTES_MAX",
    ),
    "segment file before the next is begun": ("writers.upload:ROLL_BYTES",),
    "file that readers fetch whole": ("txnformat.segments.segment_object:SMALL_FILE_BYTES",),
    "such files kept by a read": ("txnformat.reading.open_files:KEPT_BYTES_MAX",),
    "such files kept by a consumer": ("txnformat.consumers.fetching:FILES_BYTES_MAX",),
    "split of a Spark read": ("spark_datasource.options.declared:BYTES_PER_PARTITION_DEFAULT",),
    "records of one poll": ("txnformat.consumers.settings:ConsumerSettings.max_poll_records",),
    "wait between two looks of an idle consumer": ("txnformat.consumers.looks:LOOK_INTERVAL_MS",),
    "time between commits that a consumer makes by itself, if it is told to": (
        "txnformat.consumers.settings:ConsumerSettings.auto_commit_interval_ms",
    ),
    "time after the last use of its group that a member counts as live for resets and deletion; at most": (
        "txnformat.consumers.settings:ConsumerSettings.session_timeout_ms",
        "txnformat.core.groups.checks:SESSION_TIMEOUT_MS_MAX",
    ),
    "time that a consumer waits for positions that are pending in a transaction": (
        "txnformat.consumers.settings:ConsumerSettings.default_api_timeout_ms",
    ),
    "compressed data that a consumer holds over all partitions": (
        "txnformat.consumers.fetching:OPEN_BYTES_MAX",
    ),
    "linger of a producer without transactions": ("writers.settings:ProducerSettings.linger_ms",),
    "time of a transaction whose records have offsets, from its first flush": (
        "writers.settings:ProducerSettings.transaction_timeout_ms",
    ),
    "longest such time that a producer may ask for, unless the log was created with another": (
        "txnformat.core.transactions.state:MAX_TRANSACTION_TIMEOUT_MS",
    ),
    "time of a transaction whose records have none yet, from its last flush": (
        "writers.settings:ProducerSettings.deferred_timeout_ms",
    ),
    "longest such time, and longest that a log can be created with": (
        "txnformat.core.transactions.state:DEFERRED_TIMEOUT_MS_MAX",
    ),
    'time after its first upload beyond which a transaction with `buffer="auto"` goes on as deferred': (
        "writers.session:UNNAMED_MS_MAX",
    ),
    "batches beyond which it does so": ("txnformat.core.records.batch_table:BATCHES_IN_ENTRY_MAX",),
    "others' transactions, whose time is over, that a writer ends with an entry of its own": (
        "txnformat.protocol.expiry:PIGGYBACK_MAX",
    ),
    "buffer of one partition before it is written as a batch": (
        "writers.settings:ProducerSettings.batch_bytes",
    ),
    "buffers of a producer over all partitions": ("writers.settings:ProducerSettings.buffer_bytes",),
}


def _constant(place: str) -> int:
    module, _, path = place.partition(":")
    owner, _, attribute = path.partition(".")
    found: Any = getattr(importlib.import_module(module), owner)
    if not attribute:
        return int(found)
    return int(inspect.signature(found).parameters[attribute].default)


def _numbers(cell: str) -> list[int]:
    """Return the numbers of a cell, with their units applied."""
    found = re.findall(r"(?<![\w-])(\d[\d,]*)(?: (KiB|MiB|s|ms)\b)?", re.sub(r"`[^`]*`", "", cell))
    return [int(number.replace(",", "")) * UNITS.get(unit, 1) for number, unit in found]


LIMIT_ROWS = {row[0]: row for table in tables(LIMITS) for row in table.rows}


def test_every_limit_has_a_row_and_every_row_its_constant() -> None:
    assert set(LIMIT_ROWS) == set(LIMIT_CONSTANTS)


@pytest.mark.parametrize("name", [name for name, places in LIMIT_CONSTANTS.items() if places])
def test_every_number_of_the_limits_is_that_of_the_code(name: str) -> None:
    places = LIMIT_CONSTANTS[name]
    assert _numbers(LIMIT_ROWS[name][1]) == [_constant(place) for place in places]


@pytest.mark.parametrize("name", [name for name, places in LIMIT_CONSTANTS.items() if places])
def test_the_limits_name_the_place_of_the_constant(name: str) -> None:
    for named in codes(LIMIT_ROWS[name][2]) if len(LIMIT_ROWS[name]) == 3 else []:
        module, _, path = LIMIT_CONSTANTS[name][0].partition(":")
        assert named in (module.replace(".", "/") + ".py", path) or not named.endswith(".py"), named


def test_the_default_isolation_level_is_named() -> None:
    read = parse_read_options({"path": "/log", "topic": "orders"})
    assert codes(LIMIT_ROWS["isolation level"][1]) == [str(read.isolation)]
    assert CommitSettings().attempts_max == _constant("txnformat.protocol.commit:CommitSettings.attempts_max")
