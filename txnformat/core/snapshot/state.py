"""The JSON section of a snapshot: everything of a LogState but its large tables. Pure.

See :mod:`txnformat.core.snapshot.codec` for the format. Every list has one order, so that equal states have
equal JSON.
"""

from __future__ import annotations

from itertools import pairwise, zip_longest
from typing import Any, TypeVar

from msgspec import UNSET, structs

from txnformat.core.app_versions.state import VersionAt
from txnformat.core.lifecycle.truncation import ENTRY_AGE_MS_MIN, is_entry_age
from txnformat.core.operation_codec import (
    check_segment_keys,
    check_settings_order,
    check_table_key,
    decode_operation,
    stored_operation,
)
from txnformat.core.operations import DEFERRED_TIMEOUT_MS, TIMEOUT_MS, Checkpoint, CreateTopic
from txnformat.core.sealing.lists import LISTS_MAX
from txnformat.core.snapshot.groups import decode_group, encode_group
from txnformat.core.snapshot.partitions import Tables, decode_partitions, encode_partition
from txnformat.core.snapshot.rows import (
    AppVersionRow,
    FeaturesRow,
    NumberedRow,
    ProducerRow,
    SealedRow,
    SegmentRow,
    StagedSequencesRow,
    StartRow,
    StateRow,
    SubscriptionKeyRow,
    TopicRow,
    TransactionalIdRow,
    WindowRow,
)
from txnformat.core.snapshot.subscriptions import decode_subscription, encode_subscription
from txnformat.core.state import (
    DeletedTopic,
    Features,
    IntentWindow,
    LogState,
    ProducerIdBlock,
    TopicState,
    UsedAt,
    check_features,
)
from txnformat.core.topics.evolution import next_version
from txnformat.core.topics.schema import TopicSchema, fields_to_json
from txnformat.core.transactions.state import MAX_TRANSACTION_TIMEOUT_MS, UNDECIDED, TransactionalIdState
from txnformat.core.wire.document import plain_json
from txnformat.core.wire.small_documents import FormatVersion
from txnformat.core.wire.typed import Typed, check_version, fail
from txnformat.field_types import LOG_PARTITIONS_MAX
from txnformat.persistent import Vector
from txnformat.types import SegmentRecord, TopicPartition

__all__ = ["decode_state", "encode_state", "read_state"]

SNAPSHOT_VERSION = 1
_INTENTS_MAX = 2**31
"""Bound of an operation's index of its intent, where the entry's list of intents is not at hand."""

T = TypeVar("T")


def encode_state(state: LogState) -> StateRow:
    """Return the JSON section of a state: all of it without the rows of its tables."""
    return StateRow(
        format=SNAPSHOT_VERSION,
        log_id=state.log_id,
        entry=state.entry,
        entry_sha256=state.entry_sha256,
        timestamp_ms=state.timestamp_ms,
        features=FeaturesRow(*(tuple(sorted(names)) for names in state.features)),
        topics=tuple(_encode_topic(topic) for _, topic in sorted(state.topics.items())),
        transactional_ids=tuple(
            _encode_transactional_id(name, known) for name, known in sorted(state.transactional_ids.items())
        ),
        max_transaction_timeout_ms=_or_default(state.max_transaction_timeout_ms, MAX_TRANSACTION_TIMEOUT_MS),
        next_producer_id=state.next_producer_id,
        blocks=tuple(state.blocks.values()),
        producers=tuple(ProducerRow(known, *used) for known, used in sorted(state.producers.items())),
        retired_below=state.retired_below,
        groups=tuple(encode_group(name, group) for name, group in sorted(state.groups.items())),
        subscriptions=tuple(
            encode_subscription(key, one) for key, one in sorted(state.subscriptions.items())
        ),
        retired_generation=state.retired_generation,
        app_versions=tuple(
            AppVersionRow(*key, known.version, known.entry, known.instances, known.topics, known.gone)
            for key, known in sorted(state.app_versions.items())
        ),
        checkpoints=tuple(stored_operation(checkpoint) for checkpoint in state.checkpoints),
        window=WindowRow(state.window.first, state.window.entries),
        partitions=tuple(encode_partition(key, one) for key, one in sorted(state.partitions.items())),
        sealed=SealedRow(
            tuple(
                SegmentRow(*structs.astuple(record), number=number)
                for number, record in zip(state.segments.numbers(), state.segments, strict=True)
            ),
            state.segments.end,
        ),
        segment_list=state.segment_lists[-1] if state.segment_lists else None,
        older_lists=state.segment_lists[:-1],
        listed_segments=state.listed_segments,
        files=NumberedRow(len(state.files), state.files.end),
        tables=NumberedRow(len(state.tables), state.tables.end),
        vacuum_floor=state.vacuum_floor,
        truncate_older_than_ms=state.truncate_older_than_ms,
        deleted=tuple(one for _, one in sorted(state.deleted.items())),
        erasures=tuple(state.erasures.values()),
    )


def _or_default(value: int, default: int) -> int:
    """Return the default itself if ``value`` equals it: the encoder leaves out what is the same object."""
    return default if value == default else value


def _encode_topic(topic: TopicState) -> TopicRow:
    later = (*topic.schema.earlier[1:], topic.schema.arrow_schema) if topic.schema.earlier else ()
    return TopicRow(
        topic.created_entry,
        stored_operation(topic.created),
        topic.partitions if topic.partitions != topic.created.partitions else None,
        tuple(map(fields_to_json, later)),
        topic.settings if topic.settings != topic.created.settings else None,
        topic.schema.stated_places(),
    )


def _encode_transactional_id(name: str, known: TransactionalIdState) -> TransactionalIdRow:
    return TransactionalIdRow(
        name,
        known.producer_id,
        known.epoch,
        known.status,
        tuple(StartRow(*key, first) for key, first in sorted(known.partitions.items())),
        known.started_entry,
        known.started_ms,
        known.last_end,
        timeout_ms=_or_default(known.timeout_ms, TIMEOUT_MS),
        deferred_timeout_ms=_or_default(known.deferred_timeout_ms, DEFERRED_TIMEOUT_MS),
        used_entry=known.used_entry,
        used_ms=known.used_ms,
        abort_only=int(known.abort_only),
        staged=known.staged,
        staged_sequences=tuple(
            StagedSequencesRow(*key, window) for key, window in sorted(known.staged_sequences.items())
        )
        if known.staged
        else UNSET,
        groups=tuple(sorted(known.groups)),
        subscriptions=tuple(SubscriptionKeyRow(*key) for key in sorted(known.subscriptions)),
    )


_VERSION, _STATE = Typed[FormatVersion](FormatVersion), Typed[StateRow](StateRow)


def read_state(text: bytes, name: str) -> StateRow:
    """Return the JSON section of a snapshot, each field as declared.

    Raises CorruptDataError, and UnsupportedFeatureError of a newer format.
    """
    check_version("a snapshot", SNAPSHOT_VERSION, _VERSION.decode(text, name=name).format, name=name)
    return _STATE.decode(text, name=name)


def decode_state(row: StateRow, tables: Tables, name: str) -> LogState:
    """Return the state that the JSON section and the tables of snapshot ``name`` say, checked.

    Raises CorruptDataError (fields contradict each other, numbers of rows do not add up) and
    UnsupportedFeatureError (unknown reader features).
    """
    segments = []
    for index, segment in enumerate(row.sealed.segments):
        check_segment_keys(segment, f"{name}.sealed.segments[{index}]")
        record = SegmentRecord(segment.topic_id, segment.index, segment.markers, segment.txnindex)
        segments.append((segment.number, record))
    lists = (*row.older_lists, *((row.segment_list,) if row.segment_list else ()))
    for one in lists:
        check_table_key(one, f"{name}.segment_list")
    if len(lists) > LISTS_MAX:
        fail(name, "older_lists", f"at most {LISTS_MAX} lists", len(lists))
    bounds = [one.first for one in lists] + [row.listed_segments]
    if (lists or row.listed_segments) and (bounds[0] != 0 or any(b <= a for a, b in pairwise(bounds))):
        fail(name, "listed_segments", "end of lists that follow each other from segment 0 on", bounds)
    if row.vacuum_floor >= max(row.entry, 1):
        fail(name, "vacuum_floor", f"below {row.entry}", row.vacuum_floor)
    if not is_entry_age(row.truncate_older_than_ms):
        expected = f"-1, or at least {ENTRY_AGE_MS_MIN}"
        fail(name, "truncate_older_than_ms", expected, row.truncate_older_than_ms)
    schemas: dict[bytes, TopicSchema] = {}  # topics may be many and alike: each schema is made once
    topics = {
        topic.topic_id: topic
        for index, one in enumerate(row.topics)
        for topic in (_topic(one, schemas, f"{name}.topics[{index}]"),)
    }
    partition_count = sum(topic.partitions for topic in topics.values())
    if partition_count > LOG_PARTITIONS_MAX:
        fail(name, "topics", f"at most {LOG_PARTITIONS_MAX} partitions of all topics", partition_count)
    transactional_ids = {one.transactional_id: _transactional_id(one) for one in row.transactional_ids}
    return LogState(
        log_id=row.log_id,
        entry=row.entry,
        entry_sha256=row.entry_sha256,
        timestamp_ms=row.timestamp_ms,
        features=_features(row.features),
        topics=topics,
        topic_ids={topic.name: topic.topic_id for topic in topics.values()},
        deleted=_deleted(row.deleted, topics, name),
        partition_count=partition_count,
        partitions=decode_partitions(row.partitions, tables, name),
        transactional_ids=transactional_ids,
        owners={one.producer_id: known for known, one in transactional_ids.items()},
        undecided=frozenset(known for known, one in transactional_ids.items() if one.status in UNDECIDED),
        max_transaction_timeout_ms=row.max_transaction_timeout_ms,
        next_producer_id=row.next_producer_id,
        blocks=_blocks(row.blocks, name),
        producers={one.producer_id: UsedAt(one.entry, one.timestamp_ms) for one in row.producers},
        retired_below=row.retired_below,
        app_versions={
            (one.namespace, one.app_id): VersionAt(
                one.version, one.entry, one.instances, one.topics, one.gone
            )
            for one in row.app_versions
        },
        retired_generation=row.retired_generation,
        groups=dict(decode_group(one, f"{name}.groups[{index}]") for index, one in enumerate(row.groups)),
        subscriptions=dict(
            decode_subscription(one, f"{name}.subscriptions[{index}]")
            for index, one in enumerate(row.subscriptions)
        ),
        files=_vector(row.files.end, tables.files, f"{name}.files", row.files.rows),
        tables=_vector(row.tables.end, tables.tables, f"{name}.tables", row.tables.rows),
        segments=_vector(row.sealed.end, segments, f"{name}.sealed"),
        segment_lists=lists,
        listed_segments=row.listed_segments,
        extents=len(tables.extents),
        checkpoints=tuple(
            _checkpoint(one, f"{name}.checkpoints[{index}]") for index, one in enumerate(row.checkpoints)
        ),
        window=IntentWindow(row.window.first, row.window.entries),
        vacuum_floor=row.vacuum_floor,
        truncate_older_than_ms=row.truncate_older_than_ms,
        erasures={one.erasure_id: one for one in row.erasures},
    )


def _deleted(
    rows: tuple[DeletedTopic, ...], topics: dict[str, TopicState], name: str
) -> dict[str, DeletedTopic]:
    taken = {topic.directory for topic in topics.values()}
    found = {one.directory: one for one in rows}
    if len(found) < len(rows) or taken & found.keys():
        fail(name, "deleted", "directories of no other topic", sorted(taken & found.keys()))
    return found


def _vector(end: int, numbered: list[tuple[int, T]], path: str, count: int | None = None) -> Vector[T]:
    if count not in (None, len(numbered)):
        fail(path, "rows", f"{len(numbered)}, the number of rows", count)
    numbers = [number for number, _ in numbered]
    if any(later <= earlier for earlier, later in pairwise([-1, *numbers, end])):
        fail(path, "end", "number above those of all rows, which ascend", end)
    return Vector.numbered(numbers, [value for _, value in numbered], end)


def _features(row: FeaturesRow) -> Features:
    check_features("reader", row.reader)
    return Features(frozenset(row.reader), frozenset(row.writer), frozenset(row.maintenance))


def _topic(row: TopicRow, known: dict[bytes, TopicSchema], path: str) -> TopicState:
    created = decode_operation(row.create, _INTENTS_MAX, path=f"{path}.create")
    if not isinstance(created, CreateTopic):
        fail(path, "create", "create_topic operation", row.create)
    described = (created.fields, created.key_columns, created.timestamp_column)
    text = plain_json(described)
    schema = known.get(text) or known.setdefault(text, TopicSchema.from_json(*described))
    if row.places and len(row.places) != len(row.schemas):
        fail(path, "places", f"{len(row.schemas)} lists, one for each of schemas", row.places)
    for fields, places in zip_longest(row.schemas, row.places, fillvalue=()):
        schema = next_version(schema, fields, places) or fail(
            path, "schemas", "versions that follow each other", row.schemas
        )
    partitions = created.partitions if row.partitions is None else row.partitions
    if partitions < created.partitions:
        fail(path, "partitions", f"at least {created.partitions}", partitions)
    settings = created.settings if row.settings is None else row.settings
    check_settings_order(settings, path)
    return TopicState(
        created.topic_id,
        created.name,
        created.directory,
        partitions,
        schema,
        created,
        row.created_entry,
        settings,
    )


def _checkpoint(value: dict[str, Any], path: str) -> Checkpoint:
    operation = decode_operation(value, _INTENTS_MAX, path=path)
    if not isinstance(operation, Checkpoint):
        fail(path, "operation", "checkpoint", value["operation"])
    return operation


def _transactional_id(row: TransactionalIdRow) -> TransactionalIdState:
    return TransactionalIdState(
        row.producer_id,
        row.epoch,
        row.status,
        {TopicPartition(one.topic_id, one.partition): one.first_offset for one in row.partitions},
        None if row.started_entry is UNSET else row.started_entry,
        None if row.started_ms is UNSET else row.started_ms,
        None if row.last_end is UNSET else row.last_end,
        row.staged,
        {TopicPartition(one.topic_id, one.partition): one.appends for one in row.staged_sequences or ()},
        row.timeout_ms,
        row.deferred_timeout_ms,
        frozenset(row.groups),
        frozenset((one.topic_id, one.subscription) for one in row.subscriptions),
        bool(row.abort_only),
        row.used_entry,
        row.used_ms,
    )


def _blocks(rows: tuple[ProducerIdBlock, ...], name: str) -> dict[int, ProducerIdBlock]:
    for index, (one, other) in enumerate(pairwise(rows)):
        if other.first <= one.first:
            fail(f"{name}.blocks[{index + 1}]", "first", f"above {one.first}", other.first)
    return {one.first: one for one in rows}
