"""Blocks of producer ids, whose they are, and what an idempotent producer does with its numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.clients.failing import ENTRY, Plan, faulty, read, rows, unclear_commit
from txnformat.core.entry import decode_entry
from txnformat.core.intents import AllocateIds
from txnformat.core.operations import Append
from txnformat.core.producers.ids import IdBlock
from txnformat.errors import (
    CommitStateUnknownError,
    CorruptDataError,
    InvalidInputError,
    InvalidTransactionStateError,
    StorageError,
)
from txnformat.keys import entry_key
from txnformat.store.memory import MemoryStore
from txnlog import Producer, TxnLog
from txnlog_testing.stores.faulty import Fault, FaultKind

GOLDEN = Path(__file__).parents[2] / "golden" / "data" / "producer_id_block.json"


# --- the form -----------------------------------------------------------------------------------------------


def test_a_block_is_written_and_read_as_kafka_does() -> None:
    data = GOLDEN.read_bytes().rstrip()
    assert IdBlock.decode(data) == IdBlock(35, 4_000, 4_999)
    assert IdBlock(35, 4_000, 4_999).encode() == data


@pytest.mark.parametrize("owner", ["a process", "35", "ü", 35, 0])
@pytest.mark.parametrize(("first", "last"), [(0, 999), (7, 7), (2**63 - 1, 2**63 - 1)])
def test_whose_it_is_and_both_ends_survive(owner: str | int, first: int, last: int) -> None:
    block = IdBlock(owner, first, last)
    assert IdBlock.decode(block.encode()) == block


@pytest.mark.parametrize(
    "changed",
    [
        {"version": 2}, {"version": "1"}, {"broker": None}, {"broker": -1}, {"block_start": 4000},
        {"block_start": "04000"}, {"block_start": "-1"}, {"block_start": "٤"}, {"block_start": "²"}, {"block_start": ""},
        {"block_end": "3999"}, {"block_end": str(2**63)}, {"block_end": None}, {"block_end": "4 999"},
    ],
)  # fmt: skip
def test_what_is_no_block_is_refused_as_bytes(changed: dict[str, Any]) -> None:
    fields = json.loads(GOLDEN.read_bytes()) | changed
    with pytest.raises(CorruptDataError):
        IdBlock.decode(json.dumps(fields).encode())


@pytest.mark.parametrize(("first", "last"), [(-1, 9), (5, 4), (0, 2**63)])
def test_what_is_no_block_is_refused_as_values(first: int, last: int) -> None:
    with pytest.raises(InvalidInputError) as caught:
        IdBlock("x", first, last)
    assert caught.value.kind == "invalid-id-block"


def test_a_log_tells_whose_its_ids_are() -> None:
    log = TxnLog.create(MemoryStore())
    for owner in ("one", "two"):
        log.committer.commit(log.committer.intend(AllocateIds(owner)))
    Producer(log, "etl").init()  # one id, of no block
    log.committer.commit(log.committer.intend(AllocateIds("three")))
    described = log.describe()
    assert described.producer_id_blocks == (
        IdBlock("one", 0, 999),
        IdBlock("two", 1_000, 1_999),
        IdBlock("three", 2_001, 3_000),
    )
    shown = json.loads(json.dumps(described.to_dict()))["producer_id_blocks"]
    assert shown[1] == {"version": 1, "broker": "two", "block_start": "1000", "block_end": "1999"}


# --- numbers ------------------------------------------------------------------------------------------------


def appended(log: TxnLog) -> list[tuple[int, int, int]]:
    """Return producer id, base sequence and records of each append of partition 0, in the order of the
    log.
    """
    found = []
    state = TxnLog.open(log.store, clock=log.committer.clock).state
    for number in range(1, state.entry + 1):
        data = log.store.get(entry_key(number))
        assert data is not None
        for operation in decode_entry(data, number).operations:
            if isinstance(operation, Append):
                (part,) = operation.partitions
                found.append((operation.producer_id, part.base_sequence, part.records))
    return found


def test_numbers_are_given_when_records_leave_the_buffer() -> None:
    """However they were sent; and what the log is known not to have does not spend them."""
    plan = Plan()
    log = faulty(plan)
    producer = Producer(log, linger_ms=10**9)
    producer.init()
    producer.send("t", rows(1, 2))
    plan.always(*ENTRY, Fault(FaultKind.DISK_FULL))
    with pytest.raises(StorageError):
        producer.flush()
    plan.clear()
    producer.send("t", rows(3))
    producer.flush()
    producer.send("t", rows(4))
    producer.close()
    assert appended(log) == [(0, 0, 3), (0, 3, 1)]
    assert read(log) == [1, 2, 3, 4]


@pytest.mark.parametrize("kind", [FaultKind.APPLIED_LOST_ANSWER, FaultKind.FAIL_BEFORE])
def test_numbers_that_may_be_in_the_log_are_never_given_to_other_records(kind: FaultKind) -> None:
    """In Kafka a batch that expires resets the id. Here it keeps its numbers until the log says what became
    of it."""
    plan = Plan()
    log = faulty(plan)
    producer = Producer(log, linger_ms=10**9)
    producer.init()
    producer.send("t", rows(1, 2))
    unclear_commit(plan, kind)
    for _ in range(2):
        with pytest.raises((CommitStateUnknownError, StorageError)):
            producer.flush()
    plan.clear()
    with pytest.raises(InvalidTransactionStateError) as caught:
        producer.send("t", rows(3))
    assert caught.value.kind == "outcome-unknown", "nothing new before that is settled"
    producer.flush()
    producer.send("t", rows(3))
    producer.close()
    assert appended(log) == [(0, 0, 2), (0, 2, 1)]
    assert read(log) == [1, 2, 3]


def test_no_id_is_none_and_an_empty_one_is_an_error() -> None:
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", pa.schema([("n", pa.int64())]))
    with Producer(log, None) as plain:
        plain.send("t", rows(1))
        assert plain.producer_id == 0
    with pytest.raises(InvalidInputError) as caught:
        Producer(log, "")
    assert caught.value.kind == "invalid-settings"
    with pytest.raises(InvalidInputError) as caught:
        Producer(log, "p", enable_idempotence=False)
    assert "needs idempotence" in str(caught.value)
    with Producer(log, enable_idempotence=False) as unnumbered:
        unnumbered.send("t", rows(2))
        assert unnumbered.producer_id is None
    assert read(log) == [1, 2]
