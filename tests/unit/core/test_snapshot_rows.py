"""The rows of a snapshot's JSON section: what their fields take."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import msgspec
import pytest

from tests.unit.core.full_state import FULL, LOG_ID, ORDERS, checkpoint_of
from txnformat.core.drafts import replace
from txnformat.core.entry import CommitEntry, encode_entry
from txnformat.core.groups.state import GroupState
from txnformat.core.records.state import PartitionState
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot
from txnformat.core.snapshot.rows import PartitionRow, StagedSequencesRow, StartRow
from txnformat.core.state import LogState
from txnformat.errors import CorruptDataError
from txnformat.keys import LOG_PREFIX, boundary_key, entry_key
from txnformat.log import TxnLog
from txnformat.store.memory import MemoryStore
from txnformat.types import TopicPartition
from txnformat.verify.log import verify_log
from txnformat.verify.report import ProblemKind


@pytest.mark.parametrize("row", [PartitionRow, StartRow, StagedSequencesRow])
def test_the_topic_of_a_row_is_a_uuid(row: type[msgspec.Struct]) -> None:
    given = {field.name: field.type for field in msgspec.structs.fields(row)}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert("orders", given["topic_id"])
    known = str(uuid.UUID(int=1, version=4))
    assert msgspec.convert(known, given["topic_id"]) == known


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
        timestamp_ms=state.timestamp_ms + 1,
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
