"""The JSON section of a snapshot: everything of a LogState but its large tables. Pure.

See :mod:`txnformat.snapshot` for the format. Every list has one order, so that equal states have equal JSON.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from msgspec import structs

from txnformat.app_versions import VersionAt
from txnformat.document import Document
from txnformat.errors import UnsupportedFeatureError
from txnformat.evolution import next_version
from txnformat.field_types import INT32_MAX, PARTITIONS_MAX, TIMEOUT_MS_MAX
from txnformat.operation_codec import (
    check_segment_keys,
    check_table_key,
    decode_operation,
    stored_operation,
)
from txnformat.operations import (
    DEFERRED_TIMEOUT_MS,
    TIMEOUT_MS,
    Cause,
    Checkpoint,
    CreateTopic,
    PendingPartition,
)
from txnformat.partition import PartitionState, SealedTotals, Transaction
from txnformat.persistent import Columns, Rows, Vector
from txnformat.producer_state import AppendedRange, SequenceWindow
from txnformat.schema import TopicSchema, fields_to_json
from txnformat.snapshot_groups import decode_group, encode_group
from txnformat.snapshot_subscriptions import decode_subscription, encode_subscription, subscription_key
from txnformat.state import (
    FEATURES,
    Features,
    IntentWindow,
    LogState,
    ProducerIdBlock,
    TopicState,
    UsedAt,
)
from txnformat.transactions import (
    MAX_TRANSACTION_TIMEOUT_MS,
    UNDECIDED,
    LastEnd,
    StagedFlush,
    TransactionalIdState,
    TransactionStatus,
)
from txnformat.typed import Typed
from txnformat.types import FileRecord, ObjectRecord, Outcome, SegmentRecord, TopicPartition

__all__ = ["SNAPSHOT_VERSION", "Tables", "decode_state", "encode_state"]

SNAPSHOT_VERSION = 1
_INTENTS_MAX = 2**31
"""Bound of an operation's index of its intent, where the entry's list of intents is not at hand."""

_SEGMENT, _OBJECT, _STAGED = (
    Typed[SegmentRecord](SegmentRecord),
    Typed[ObjectRecord](ObjectRecord),
    Typed[PendingPartition](PendingPartition),
)

Json = dict[str, Any]
T = TypeVar("T")


class Tables(NamedTuple):
    """The large tables of a state, of all partitions together."""

    extents: Rows
    markers: Rows
    aborted: Rows
    segments: Rows
    files: list[tuple[int, FileRecord]]
    """Number and record."""
    tables: list[tuple[int, ObjectRecord]]


def encode_state(state: LogState) -> Json:
    """Return the JSON object of a state, without the rows of its tables."""
    encoded = {
        "format": SNAPSHOT_VERSION,
        "log_id": state.log_id,
        "entry": state.entry,
        "entry_sha256": state.entry_sha256,
        "timestamp_ms": state.timestamp_ms,
        "features": {name: sorted(names) for name, names in state.features._asdict().items()},
        "topics": [_encode_topic(topic) for _, topic in sorted(state.topics.items())],
        "transactional_ids": [
            _encode_transactional_id(name, known) for name, known in sorted(state.transactional_ids.items())
        ],
        "next_producer_id": state.next_producer_id,
        "blocks": [block._asdict() for block in state.blocks],
        "app_versions": [
            _encode_app_version(*key, known) for key, known in sorted(state.app_versions.items())
        ],
        "checkpoints": [stored_operation(checkpoint) for checkpoint in state.checkpoints],
        "window": {"first": state.window.first, "entries": [list(ids) for ids in state.window.entries]},
        "partitions": [
            _encode_partition(key, partition) for key, partition in sorted(state.partitions.items())
        ],
        "sealed": {
            "segments": [
                {"number": number, **structs.asdict(record)}
                for number, record in zip(state.segments.numbers(), state.segments, strict=True)
            ],
            "end": state.segments.end,
        },
        "segment_list": state.segment_list,
        "listed_segments": state.listed_segments,
        "files": {"rows": len(state.files), "end": state.files.end},
        "tables": {"rows": len(state.tables), "end": state.tables.end},
    }
    if state.producers:
        encoded["producers"] = [
            {"producer_id": producer_id, **used._asdict()}
            for producer_id, used in sorted(state.producers.items())
        ]
    if state.retired_generation:
        encoded["retired_generation"] = state.retired_generation
    if state.groups:
        encoded["groups"] = [encode_group(name, group) for name, group in sorted(state.groups.items())]
    if state.subscriptions:
        encoded["subscriptions"] = [
            encode_subscription(key, subscription)
            for key, subscription in sorted(state.subscriptions.items())
        ]
    if state.retired_below:
        encoded["retired_below"] = state.retired_below
    if state.max_transaction_timeout_ms != MAX_TRANSACTION_TIMEOUT_MS:
        encoded["max_transaction_timeout_ms"] = state.max_transaction_timeout_ms
    return encoded


def _encode_app_version(namespace: str, app_id: str, known: VersionAt) -> Json:
    doc: Json = {"namespace": namespace, "app_id": app_id, "version": known.version, "entry": known.entry}
    return {**doc, "instances": list(known.instances)} if known.instances else doc


def _encode_topic(topic: TopicState) -> Json:
    encoded = {"created_entry": topic.created_entry, "create": stored_operation(topic.created)}
    if topic.partitions != topic.created.partitions:
        encoded["partitions"] = topic.partitions
    if topic.schema.earlier:
        later = (*topic.schema.earlier[1:], topic.schema.arrow_schema)
        encoded["schemas"] = [fields_to_json(version) for version in later]
    return encoded


def _encode_transactional_id(name: str, known: TransactionalIdState) -> Json:
    end = known.last_end
    encoded: Json = {
        "transactional_id": name,
        "producer_id": known.producer_id,
        "epoch": known.epoch,
        "status": known.status.value,
        "partitions": [
            {"topic_id": key.topic_id, "partition": key.partition, "first_offset": first}
            for key, first in sorted(known.partitions.items())
        ],
        "started_entry": known.started_entry,
        "started_ms": known.started_ms,
        "last_end": end
        and {"epoch": end.epoch, "outcome": end.outcome.value, "cause": end.cause.value, "entry": end.entry},
    }
    # What an earlier version did not have is left out as it was, so that the digests of its snapshots hold.
    rest = {
        "timeout_ms": (known.timeout_ms, TIMEOUT_MS),
        "deferred_timeout_ms": (known.deferred_timeout_ms, DEFERRED_TIMEOUT_MS),
        "used_entry": (known.used_entry, 0),
        "used_ms": (known.used_ms, 0),
        "groups": (sorted(known.groups), []),
        "subscriptions": (
            [{"topic_id": topic_id, "subscription": name} for topic_id, name in sorted(known.subscriptions)],
            [],
        ),
        "abort_only": (int(known.abort_only), 0),
    }
    encoded |= {field: value for field, (value, default) in rest.items() if value != default}
    if known.staged:
        encoded["staged"] = [_encode_flush(flush) for flush in known.staged]
        encoded["staged_sequences"] = [
            {
                "topic_id": key.topic_id,
                "partition": key.partition,
                "appends": [_encode_range(appended) for appended in window],
            }
            for key, window in sorted(known.staged_sequences.items())
        ]
    return encoded


def _encode_flush(flush: StagedFlush) -> Json:
    return {
        "topic_id": flush.topic_id,
        "table": flush.table,
        "section": flush.section,
        "first_file": flush.first_file,
        "file_count": flush.file_count,
        "partitions": flush.partitions,
    }


def _encode_partition(key: TopicPartition, partition: PartitionState) -> Json:
    return {
        "topic_id": key.topic_id,
        "partition": key.partition,
        "log_start": partition.log_start,
        "log_end": partition.log_end,
        "listed_end": partition.listed_end,
        "sealed_end": partition.sealed_end,
        "sealed": partition.sealed._asdict(),
        "open": [
            {"producer_id": producer_id, "epoch": epoch, "first_offset": first}
            for (producer_id, epoch), first in sorted(partition.open.items())
        ],
        "sequences": [
            {
                "producer_id": producer_id,
                "epoch": epoch,
                "appends": [_encode_range(known) for known in window],
            }
            for (producer_id, epoch), window in sorted(partition.sequences.items())
        ],
        "extents": len(partition.extents),
        "markers": len(partition.markers),
        "aborted": len(partition.aborted),
        "segments": len(partition.segments),
    }


def _encode_range(known: AppendedRange) -> Json:
    return {
        "first_sequence": known.first_sequence,
        "last_sequence": known.last_sequence,
        "digest": known.digest,
        "base_offset": known.base_offset,
        "entry": known.entry,
    }


def decode_state(doc: Document, tables: Tables) -> LogState:
    """Return the state that a JSON object and the tables say, checked.

    Raises
    ------
    CorruptDataError
        A field is missing or not what the format says, or the numbers of rows do not add up.
    UnsupportedFeatureError
        A newer format, or reader features that this version does not have.
    """
    if doc.integer("format", minimum=1) > SNAPSHOT_VERSION:
        raise UnsupportedFeatureError(
            "a snapshot has a newer format",
            kind="newer-format",
            hint="upgrade txnlog",
            object=doc.path,
            expected=f"at most {SNAPSHOT_VERSION}",
            got=doc.value["format"],
        )
    sealed = doc.document("sealed")
    segments = [(one.integer("number"), _segment(one)) for one in sealed.documents("segments")]
    topics = {topic.topic_id: topic for topic in map(_topic, doc.documents("topics"))}
    transactional_ids = {
        one.text("transactional_id"): _transactional_id(one) for one in doc.documents("transactional_ids")
    }
    return LogState(
        log_id=doc.text("log_id"),
        entry=doc.integer("entry"),
        entry_sha256=doc.hexadecimal("entry_sha256", 64),
        timestamp_ms=doc.integer("timestamp_ms"),
        features=_features(doc.document("features")),
        topics=topics,
        topic_ids={topic.name: topic.topic_id for topic in topics.values()},
        partitions=_partitions(doc, tables),
        transactional_ids=transactional_ids,
        undecided=frozenset(name for name, known in transactional_ids.items() if known.status in UNDECIDED),
        max_transaction_timeout_ms=_timeout(doc, "max_transaction_timeout_ms", MAX_TRANSACTION_TIMEOUT_MS),
        next_producer_id=doc.integer("next_producer_id"),
        blocks=tuple(
            ProducerIdBlock(
                one.text("owner"),
                one.integer("first"),
                one.integer("last"),
                one.integer("entry"),
                one.integer("timestamp_ms") if one.has("timestamp_ms") else 0,
            )
            for one in doc.documents("blocks")
        ),
        producers={
            one.integer("producer_id"): UsedAt(one.integer("entry"), one.integer("timestamp_ms"))
            for one in (doc.documents("producers") if doc.has("producers") else ())
        },
        retired_below=doc.integer("retired_below") if doc.has("retired_below") else 0,
        app_versions={
            (one.text("namespace"), one.text("app_id")): VersionAt(
                one.integer("version"),
                one.integer("entry"),
                one.texts("instances") if one.has("instances") else (),
            )
            for one in doc.documents("app_versions")
        },
        retired_generation=doc.integer("retired_generation") if doc.has("retired_generation") else 0,
        groups=dict(map(decode_group, doc.documents("groups"))) if doc.has("groups") else {},
        subscriptions=dict(map(decode_subscription, doc.documents("subscriptions")))
        if doc.has("subscriptions")
        else {},
        files=_vector(doc.document("files"), tables.files, "rows"),
        tables=_vector(doc.document("tables"), tables.tables, "rows"),
        segments=_vector(sealed, segments),
        segment_list=_segment_list(doc),
        listed_segments=doc.integer("listed_segments"),
        extents=len(tables.extents),
        checkpoints=tuple(_checkpoint(one) for one in doc.documents("checkpoints")),
        window=_window(doc.document("window")),
    )


def _vector(doc: Document, numbered: list[tuple[int, T]], count: str | None = None) -> Vector[T]:
    if count is not None and doc.integer(count) != len(numbered):
        doc.fail(count, f"{len(numbered)}, the number of rows")
    end = doc.integer("end")
    numbers = [number for number, _ in numbered]
    if any(later <= earlier for earlier, later in pairwise([-1, *numbers, end])):
        doc.fail("end", "number above those of all rows, which ascend")
    return Vector.numbered(numbers, [value for _, value in numbered], end)


def _features(doc: Document) -> Features:
    features = Features(*(frozenset(doc.texts(name)) for name in Features._fields))
    unknown = sorted(features.reader - FEATURES.reader)
    if unknown:
        raise UnsupportedFeatureError(
            "the log needs reader features that this version does not have",
            hint="upgrade txnlog",
            features=unknown,
        )
    return features


def _topic(doc: Document) -> TopicState:
    create = doc.document("create")
    created = decode_operation(create.value, _INTENTS_MAX, path=create.path)
    if not isinstance(created, CreateTopic):
        doc.fail("create", "create_topic operation")
    schema = TopicSchema.from_json(created.fields, created.key_columns, created.timestamp_column)
    for fields in doc.items("schemas") if doc.has("schemas") else ():
        schema = next_version(schema, fields) or doc.fail("schemas", "versions that follow each other")
    return TopicState(
        created.topic_id,
        created.name,
        created.directory,
        doc.integer("partitions", minimum=created.partitions, maximum=PARTITIONS_MAX)
        if doc.has("partitions")
        else created.partitions,
        schema,
        created,
        doc.integer("created_entry"),
    )


def _checkpoint(doc: Document) -> Checkpoint:
    operation = decode_operation(doc.value, _INTENTS_MAX, path=doc.path)
    if not isinstance(operation, Checkpoint):
        doc.fail("operation", "checkpoint")
    return operation


def _segment(doc: Document) -> SegmentRecord:
    segment = _SEGMENT.convert(doc.value, path=doc.path)
    check_segment_keys(segment, doc.path)
    return segment


def _segment_list(doc: Document) -> ObjectRecord | None:
    if not doc.has("segment_list"):
        return None
    named = doc.document("segment_list")
    found = _OBJECT.convert(named.value, path=named.path)
    check_table_key(found, named.path)
    return found


def _timeout(doc: Document, field: str, default: int) -> int:
    return doc.integer(field, minimum=1, maximum=TIMEOUT_MS_MAX) if doc.has(field) else default


def _window(doc: Document) -> IntentWindow:
    entries = []
    for ids in doc.items("entries"):
        if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
            doc.fail("entries", "list of lists of texts")
        entries.append(tuple(ids))
    return IntentWindow(doc.integer("first"), tuple(entries))


def _transactional_id(doc: Document) -> TransactionalIdState:
    if doc.text("status") not in set(TransactionStatus):
        doc.fail("status", "status of a transactional id")
    return TransactionalIdState(
        doc.integer("producer_id"),
        doc.integer("epoch"),
        TransactionStatus(doc.text("status")),
        {_topic_partition(one): one.integer("first_offset") for one in doc.documents("partitions")},
        doc.integer("started_entry") if doc.has("started_entry") else None,
        doc.integer("started_ms") if doc.has("started_ms") else None,
        _last_end(doc.document("last_end")) if doc.has("last_end") else None,
        tuple(map(_flush, doc.documents("staged"))) if doc.has("staged") else (),
        {_topic_partition(one): _sequences(one, -1) for one in doc.documents("staged_sequences")}
        if doc.has("staged_sequences")
        else {},
        _timeout(doc, "timeout_ms", TIMEOUT_MS),
        _timeout(doc, "deferred_timeout_ms", DEFERRED_TIMEOUT_MS),
        frozenset(doc.texts("groups")) if doc.has("groups") else frozenset(),
        frozenset(map(subscription_key, doc.documents("subscriptions")))
        if doc.has("subscriptions")
        else frozenset(),
        bool(doc.integer("abort_only", maximum=1)) if doc.has("abort_only") else False,
        doc.integer("used_entry") if doc.has("used_entry") else 0,
        doc.integer("used_ms") if doc.has("used_ms") else 0,
    )


def _flush(doc: Document) -> StagedFlush:
    return StagedFlush(
        doc.text("topic_id"),
        doc.integer("table"),
        doc.integer("section", maximum=INT32_MAX),
        doc.integer("first_file"),
        doc.integer("file_count", minimum=1),
        tuple(_STAGED.convert(one.value, path=one.path) for one in doc.documents("partitions")),
    )


def _last_end(doc: Document) -> LastEnd:
    if doc.text("outcome") not in set(Outcome):
        doc.fail("outcome", "commit or abort")
    if doc.text("cause") not in set(Cause):
        doc.fail("cause", "cause of an end")
    return LastEnd(
        doc.integer("epoch"), Outcome(doc.text("outcome")), Cause(doc.text("cause")), doc.integer("entry")
    )


def _topic_partition(doc: Document) -> TopicPartition:
    return TopicPartition(doc.text("topic_id"), doc.integer("partition", maximum=PARTITIONS_MAX - 1))


class _Cutter:
    """Hands out the rows of a table, one partition's after the other's."""

    def __init__(self, name: str, rows: Rows) -> None:
        self.name = name
        self.rows = rows
        self.position = 0

    def take(self, doc: Document) -> Columns:
        end = self.position + doc.integer(self.name)
        if end > len(self.rows):
            doc.fail(self.name, f"at most {len(self.rows) - self.position} rows that are left")
        cut = self.rows[self.position : end]
        self.position = end
        return Columns(self.rows.dtype, (cut,) if len(cut) else ())


def _partitions(doc: Document, tables: Tables) -> dict[TopicPartition, PartitionState]:
    extents = _Cutter("extents", tables.extents)
    markers = _Cutter("markers", tables.markers)
    aborted = _Cutter("aborted", tables.aborted)
    segments = _Cutter("segments", tables.segments)
    partitions = {
        _topic_partition(one): PartitionState(
            log_start=one.integer("log_start"),
            log_end=one.integer("log_end"),
            listed_end=one.integer("listed_end"),
            sealed_end=one.integer("sealed_end"),
            sealed=_totals(one.document("sealed")),
            open={_transaction(opened): opened.integer("first_offset") for opened in one.documents("open")},
            sequences={_transaction(known): _sequences(known) for known in one.documents("sequences")},
            extents=extents.take(one),
            markers=markers.take(one),
            aborted=aborted.take(one),
            segments=segments.take(one),
        )
        for one in doc.documents("partitions")
    }
    for cutter in (extents, markers, aborted, segments):
        if cutter.position != len(cutter.rows):
            doc.fail("partitions", f"{len(cutter.rows)} rows of {cutter.name} in all, not {cutter.position}")
    return partitions


def _totals(doc: Document) -> SealedTotals:
    return SealedTotals(*(doc.integer(name) for name in SealedTotals._fields))


def _transaction(doc: Document) -> Transaction:
    return doc.integer("producer_id"), doc.integer("epoch")


def _sequences(doc: Document, offset_min: int = 0) -> SequenceWindow:
    return tuple(
        AppendedRange(
            one.integer("first_sequence"),
            one.integer("last_sequence"),
            one.hexadecimal("digest", 16),
            one.integer("base_offset", minimum=offset_min),
            one.integer("entry"),
        )
        for one in doc.documents("appends")
    )
