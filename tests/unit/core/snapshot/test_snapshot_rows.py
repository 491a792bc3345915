"""The rows of a snapshot's JSON section: what their fields take."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import msgspec
import pytest

from tests.unit.core.full_state import AUDIT, FULL, LOG_ID, ORDERS, checkpoint_of
from txnformat.core.entry import CommitEntry, encode_entry
from txnformat.core.groups.state import GroupState
from txnformat.core.ranges import Ranges
from txnformat.core.records.state import PartitionState
from txnformat.core.snapshot import groups, rows, subscriptions
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot
from txnformat.core.snapshot.rows import PartitionRow, StagedSequencesRow, StartRow
from txnformat.core.state import LogState
from txnformat.core.subscriptions.state import PendingAcks
from txnformat.core.transactions.state import TransactionalIdState
from txnformat.errors import CorruptDataError
from txnformat.field_types import LOG_TIME_MS_MAX
from txnformat.keys import LOG_PREFIX, boundary_key, entry_key
from txnformat.log import TxnLog
from txnformat.persistent import Columns, Vector, replace
from txnformat.store.memory import MemoryStore
from txnformat.types import SegmentRecord, TopicPartition
from txnformat.verify.log import verify_log
from txnformat.verify.report import ProblemKind


@pytest.mark.parametrize("row", [PartitionRow, StartRow, StagedSequencesRow])
def test_the_topic_of_a_row_is_a_uuid(row: type[msgspec.Struct]) -> None:
    given = {field.name: field.type for field in msgspec.structs.fields(row)}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert("orders", given["topic_id"])
    known = str(uuid.UUID(int=1, version=4))
    assert msgspec.convert(known, given["topic_id"]) == known


ROWS = [
    row
    for module in (groups, rows, subscriptions)
    for row in vars(module).values()
    if isinstance(row, type) and issubclass(row, msgspec.Struct) and row.__module__ == module.__name__
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_a_row_leaves_out_what_has_its_default(row: type[msgspec.Struct]) -> None:
    """Else a field more would change the digest of every older snapshot."""
    if not issubclass(row, SegmentRecord):
        assert row.__struct_config__.omit_defaults


def test_null_is_written_where_every_version_has_written_it() -> None:
    nobody = groups.GroupRow(
        group="g", generation=0, member=None, commits=0, committed=(), pending=(), used_entry=0, used_ms=0
    )
    assert b'"member":null' in msgspec.json.encode(nobody)
    assert msgspec.json.encode(subscriptions.PendingAcksRow("t", (), None)) == (
        b'{"transactional_id":"t","ranges":[],"position":null}'
    )


def _with_partition(change: Callable[[PartitionState], PartitionState]) -> LogState:
    """Return the full state with one partition changed that has open transactions and sequences."""
    key = next(key for key, one in FULL.partitions.items() if one.open and one.sequences)
    return replace(FULL, partitions={**FULL.partitions, key: change(FULL.partitions[key])})


def _with_id_elsewhere() -> LogState:
    name, known = next((name, one) for name, one in FULL.transactional_ids.items() if one.partitions)
    (key, first), *_ = known.partitions.items()
    moved = replace(known, partitions={key._replace(partition=9_999): first})
    return replace(FULL, transactional_ids={**FULL.transactional_ids, name: moved})


def _with_group(change: Callable[[GroupState], GroupState]) -> LogState:
    return replace(FULL, groups={name: change(one) for name, one in FULL.groups.items()})


def _with_id(change: Callable[[str, TransactionalIdState], TransactionalIdState]) -> LogState:
    """Return the full state with what is known of each id changed that has positions and acknowledgements
    pending."""
    ids = {
        name: change(name, known) if known.groups and known.subscriptions else known
        for name, known in FULL.transactional_ids.items()
    }
    assert ids != FULL.transactional_ids
    return replace(FULL, transactional_ids=ids)


def _with_acks(pending: dict[str, PendingAcks]) -> LogState:
    return replace(
        FULL,
        subscriptions={
            key: replace(
                one,
                partitions={
                    number: replace(acks, pending=pending) for number, acks in one.partitions.items()
                },
            )
            for key, one in FULL.subscriptions.items()
        },
    )


def _with_rows(field: str, column: str, value: int) -> LogState:
    """Return the full state with a value in the rows of one kind of all partitions."""

    def changed(columns: Columns) -> Columns:
        found = columns.array().copy()
        found[column] = value
        return Columns(found.dtype, (found,) if len(found) else ())

    assert any(len(getattr(one, field)) for one in FULL.partitions.values())
    return replace(
        FULL,
        partitions={
            key: replace(one, **{field: changed(getattr(one, field))}) for key, one in FULL.partitions.items()
        },
    )


FULL_OTHER = {ORDERS.topic_id: AUDIT.topic_id, AUDIT.topic_id: ORDERS.topic_id}
LATE_MS = LOG_TIME_MS_MAX + 1
NO_TOPIC = str(uuid.UUID(int=1, version=4))

CONTRADICTIONS: dict[str, Callable[[], LogState]] = {
    "no appends": lambda: _with_partition(
        lambda one: replace(one, sequences=dict.fromkeys(one.sequences, ()))
    ),
    "another producer": lambda: _with_partition(
        lambda one: replace(one, open={(2**31, 0): next(iter(one.open.values()))})
    ),
    "another offset": lambda: _with_partition(
        lambda one: replace(one, open={key: first + 1 for key, first in one.open.items()})
    ),
    "sealed beyond the end": lambda: _with_partition(lambda one: replace(one, sealed_end=2**32)),
    "an id in a partition without it": _with_id_elsewhere,
    "blocks out of order": lambda: replace(
        FULL, blocks=dict(reversed({**FULL.blocks, 2**20: next(iter(FULL.blocks.values()))}.items()))
    ),
    "a topic that is not there": lambda: replace(
        FULL,
        partitions={**FULL.partitions, TopicPartition(NO_TOPIC, 0): PartitionState()},
    ),
    "a partition that is not there": lambda: replace(
        FULL,
        partitions={**FULL.partitions, TopicPartition(ORDERS.topic_id, 9_999): PartitionState()},
    ),
    "a group in a topic that is not there": lambda: _with_group(
        lambda one: replace(one, committed={TopicPartition(NO_TOPIC, 0): next(iter(one.committed.values()))})
    ),
    "a group in a partition that is not there": lambda: _with_group(
        lambda one: replace(
            one,
            pending={
                name: {TopicPartition(ORDERS.topic_id, 9_999): next(iter(found.values()))}
                for name, found in one.pending.items()
            },
        )
    ),
    "a subscription of a topic that is not there": lambda: replace(
        FULL,
        subscriptions={(NO_TOPIC, name): one for (_, name), one in FULL.subscriptions.items()},
    ),
    "a subscription in a partition that is not there": lambda: replace(
        FULL,
        subscriptions={
            key: replace(one, partitions={9_999: next(iter(one.partitions.values()))})
            for key, one in FULL.subscriptions.items()
        },
    ),
    "positions of an id that is not there": lambda: _with_group(
        lambda one: replace(one, pending={f"{name}?": found for name, found in one.pending.items()})
    ),
    "positions of an id that does not name the group": lambda: _with_id(
        lambda name, known: replace(known, groups=frozenset())
    ),
    "an id with positions in a group that has none": lambda: _with_group(
        lambda one: replace(one, pending={})
    ),
    "an id with positions in a group that is not there": lambda: replace(FULL, groups={}),
    "acknowledgements of an id that is not there": lambda: _with_acks(
        {"another": PendingAcks(Ranges.of([(9, 10)]))}
    ),
    "acknowledgements of an id that does not name the subscription": lambda: _with_id(
        lambda name, known: replace(known, subscriptions=frozenset())
    ),
    "an id with acknowledgements in a subscription that has none": lambda: _with_acks({}),
    "an id with acknowledgements in a subscription that is not there": lambda: replace(
        FULL, subscriptions={}
    ),
    "a segment that is not there": lambda: _with_rows("segments", "segment", 2**31),
    "a segment of another topic": lambda: replace(
        FULL,
        segments=Vector.numbered(
            list(FULL.segments.numbers()),
            [msgspec.structs.replace(one, topic_id=FULL_OTHER[one.topic_id]) for one in FULL.segments],
            FULL.segments.end,
        ),
    ),
    "an extent of the year 10000": lambda: _with_rows("extents", "timestamp_ms", LATE_MS),
    "a marker of the year 10000": lambda: _with_rows("markers", "timestamp_ms", LATE_MS),
    "an extent from before 1970": lambda: _with_rows("extents", "timestamp_ms", -1),
    "a group of the year 10000": lambda: _with_group(lambda one: replace(one, used_ms=LATE_MS)),
    "a position of the year 10000": lambda: _with_group(
        lambda one: replace(
            one, committed={key: at._replace(timestamp_ms=LATE_MS) for key, at in one.committed.items()}
        )
    ),
    "a subscription of the year 10000": lambda: replace(
        FULL, subscriptions={key: replace(one, used_ms=LATE_MS) for key, one in FULL.subscriptions.items()}
    ),
    "an id used in the year 10000": lambda: _with_id(lambda name, known: replace(known, used_ms=LATE_MS)),
    "a transaction of the year 10000": lambda: _with_id(
        lambda name, known: replace(known, started_ms=LATE_MS)
    ),
    "a block of the year 10000": lambda: replace(
        FULL, blocks={first: replace(one, timestamp_ms=LATE_MS) for first, one in FULL.blocks.items()}
    ),
    "a producer of the year 10000": lambda: replace(
        FULL, producers={number: one._replace(timestamp_ms=LATE_MS) for number, one in FULL.producers.items()}
    ),
    "a log of the year 10000": lambda: replace(FULL, timestamp_ms=LATE_MS),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_snapshot_whose_parts_contradict_each_other_is_corrupt(name: str) -> None:
    """Its digest and its hashes fit: it is another writer's work, not damage."""
    state = CONTRADICTIONS[name]()
    data = encode_snapshot(state)
    with pytest.raises(CorruptDataError) as caught:
        decode_snapshot(data, checkpoint_of(state, data), LOG_ID)
    assert "digest" not in str(caught.value)


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_log_that_begins_with_such_a_snapshot_is_verified_and_the_finding_names_it(name: str) -> None:
    store = MemoryStore()
    with TxnLog.create(store) as log:
        log_id = log.state.log_id
    state = replace(CONTRADICTIONS[name](), log_id=log_id)
    data = encode_snapshot(state)
    named = checkpoint_of(state, data)
    for key in list(store.list(LOG_PREFIX)):
        store.delete(key.key)
    store.put(named.key, data)
    first = state.entry + 1
    entry = CommitEntry(
        entry=first,
        log_id=log_id,
        write_id="w",
        previous=state.entry_sha256,
        timestamp_ms=min(state.timestamp_ms + 1, LOG_TIME_MS_MAX),
        engine="e",
        operations=(named,),
        intents=("i",),
    )
    store.put(entry_key(first), encode_entry(entry))
    store.put(boundary_key(first), b"{}")
    for deep in (False, True):
        report = verify_log(store, deep=deep)
        assert (ProblemKind.UNDECODABLE, named.key) in {(one.kind, one.object) for one in report.problems}
    with pytest.raises(CorruptDataError):
        TxnLog.open(store)
