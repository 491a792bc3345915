"""What a producer is told wrongly, through every buffer: the error says what to do, and nothing has
changed.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.clients.failing import BUFFERS, NUMBERS, read, rows
from txnformat.persistent import replace
from txnformat.store.memory import MemoryStore
from txnlog import (
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    Producer,
    ProducerFencedError,
    ProducerStatus,
    TxnLog,
    TxnLogError,
    read_values,
)


@pytest.fixture
def log() -> TxnLog:
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", NUMBERS)
    return log


def refused(log: TxnLog, error: type[TxnLogError], kind: str, *calls: Callable[[], Any]) -> None:
    """Each call raises the error; it pickles, has a hint, and the log is as it was."""
    for call in calls:
        before = log.refresh()
        with pytest.raises(error) as caught:
            call()
        assert type(caught.value) is error
        assert caught.value.kind == kind
        assert caught.value.hint or isinstance(caught.value, InvalidInputError)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        assert log.refresh() == before


@BUFFERS
def test_calls_without_a_transaction_and_after_its_end(log: TxnLog, buffer: str) -> None:
    with Producer(log, "p", buffer=buffer) as producer:
        calls = (
            producer.commit,
            producer.abort,
            producer.prepare,
            producer.flush,
            lambda: producer.send("t", rows(1)),
        )
        refused(log, InvalidTransactionStateError, "no-transaction", *calls)
        for end in (producer.commit, producer.abort):
            producer.begin()
            producer.send("t", rows(1))
            producer.flush()
            end()
            refused(log, InvalidTransactionStateError, "no-transaction", *calls)
    assert read(log) == [1]


@BUFFERS
def test_the_end_of_a_transaction_that_a_newer_instance_has_ended(log: TxnLog, buffer: str) -> None:
    for end in ("commit", "abort"):
        old = Producer(log, "p", buffer=buffer)
        old.init()
        old.begin()
        old.send("t", rows(1))
        old.flush()
        old.send("t", rows(2))
        Producer(log, "p").init()
        if end == "abort" and buffer == "auto":
            old.abort()  # the log has nothing of it, and is not asked
            old.begin()
            old.send("t", rows(3))
            refused(log, ProducerFencedError, "producer-fenced", old.commit)
        else:
            refused(log, ProducerFencedError, "producer-fenced", getattr(old, end), old.begin, old.commit)
        assert old.status is ProducerStatus.FENCED
    assert read(log) == []


@BUFFERS
def test_the_end_of_a_transaction_that_the_log_does_not_know(log: TxnLog, buffer: str) -> None:
    """Its log was replaced by a copy from before the producer opened: what it sends must not land there."""
    other = TxnLog.create(MemoryStore())
    other.create_topic("t", NUMBERS)
    with Producer(log, "p", buffer=buffer) as producer:
        lost = Producer(other, "p", buffer=buffer)
        lost._session.at = replace(
            lost._session.at, ref=producer._session.at.ref, status=ProducerStatus.READY
        )
        lost.begin()
        lost.send("t", rows(1))
        refused(other, InvalidTransactionStateError, "unknown-transactional-id", lost.commit, lost.abort)
    assert lost.status is ProducerStatus.FENCED
    assert read(other, "read_uncommitted") == []


@BUFFERS
def test_two_processes_that_open_one_id(log: TxnLog, tmp_path: Path, buffer: str) -> None:
    """The later one has it; the earlier one hears so at its next call that asks the log, whatever it is."""
    one, two = Producer(log, "p", buffer=buffer), Producer(TxnLog.open(log.store), "p", buffer=buffer)
    one.init()
    two.init()
    for producer in (one, two):
        producer.begin()
        producer.send("t", rows(1 if producer is one else 2))
    with pytest.raises(ProducerFencedError) as caught:
        one.commit()
    assert caught.value.values["epoch"] < caught.value.values["current_epoch"]
    two.commit()
    assert read(log) == [2]
    two.close()
    one.close()


class _Opaque: ...


UNSERIALISABLE = (
    [{"n": 1}, {"n": _Opaque()}, {"n": 3}],
    [{"n": 1}, {"n": "two"}],
    [{"n": 1}, {"n": 2**63}],
    [{"n": 1}, object()],
    [{"n": 1}, {"m": 1}],
    pa.table({"n": ["x"]}),
    object(),
)


@BUFFERS
@pytest.mark.parametrize("data", UNSERIALISABLE, ids=lambda data: type(data).__name__)
def test_a_row_in_the_middle_of_a_send_that_cannot_be_written(log: TxnLog, buffer: str, data: object) -> None:
    """Nothing of that send is kept, the records before it are, and the transaction goes on."""
    with Producer(log, "p", buffer=buffer) as producer, producer.transaction() as txn:
        txn.send("t", rows(10))
        with pytest.raises(InvalidInputError) as caught:
            txn.send("t", data)
        pickle.loads(pickle.dumps(caught.value))
        assert producer.status is ProducerStatus.IN_TRANSACTION
        txn.flush()
        with pytest.raises(InvalidInputError):
            txn.send("t", data)
        txn.send("t", rows(11))
    assert read(log) == [10, 11]


@pytest.mark.parametrize("name", ["", "x" * 250, "ü" * 125, 7, b"p", "\ud800"])
def test_ids_that_cannot_be(log: TxnLog, name: Any) -> None:
    refused(log, InvalidInputError, "invalid-settings", lambda: Producer(log, name))


def test_settings_that_exclude_each_other(log: TxnLog) -> None:
    bad: list[dict[str, Any]] = [
        {"transactional_id": "p", "enable_idempotence": False},
        {"buffer": "deferred"},
        {"buffer": "inline"},
        {"transactional_id": "p", "buffer": "sidecar"},
        {"transactional_id": "p", "buffer": None},
        {"transactional_id": "p", "transaction_timeout_ms": 0},
        {"transactional_id": "p", "deferred_timeout_ms": -1},
    ]
    for settings in bad:
        refused(log, InvalidInputError, "invalid-settings", partial(Producer, log, **settings))


@BUFFERS
def test_a_transaction_that_is_over_takes_nothing_into_the_next_one(log: TxnLog, buffer: str) -> None:
    with Producer(log, "p", buffer=buffer) as producer:
        with producer.transaction() as first:
            first.send("t", rows(1))
        with producer.transaction() as second:
            calls = (lambda: first.send("t", rows(2)), first.flush, first.prepare)
            refused(log, InvalidTransactionStateError, "no-transaction", *calls)
            second.send("t", rows(3))
        with pytest.raises(ZeroDivisionError), producer.transaction() as failed:
            failed.send("t", rows(1 // 0))
        with producer.transaction():
            refused(log, InvalidTransactionStateError, "no-transaction", lambda: failed.send("t", rows(2)))
    assert read(log) == [1, 3]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_block_that_ends_its_transaction_itself_is_told_so(log: TxnLog, end: str) -> None:
    def ends_it_itself() -> None:
        with producer.transaction() as txn:
            txn.send("t", rows(1))
            getattr(producer, end)()

    with Producer(log, "p") as producer:
        with pytest.raises(InvalidTransactionStateError, match="its outcome stands") as caught:
            ends_it_itself()
        assert caught.value.kind == "no-transaction"
        with producer.transaction() as txn:
            txn.send("t", rows(2))
    assert read(log) == ([1, 2] if end == "commit" else [2])


@pytest.mark.parametrize("stamp", [0, 1_795_286_994_169, 1.5, "2026-01-01"])
def test_a_timestamp_that_is_no_datetime(log: TxnLog, stamp: Any) -> None:
    """A number would be taken for microseconds, and mean milliseconds."""
    log.create_topic("k", "kafka")
    with Producer(log) as producer:
        send = partial(producer.send, "k", value=b"v", timestamp=stamp)
        refused(log, InvalidInputError, "schema-mismatch", send)
        producer.flush()
    assert log.read("k").read_all().num_rows == 0


def test_what_looks_like_a_partition_is_shown_as_it_was_given(log: TxnLog) -> None:
    with Producer(log) as producer:
        bad: tuple[Any, ...] = ("0", True, 0.0)
        for given in bad:
            for call in (
                partial(producer.send, "t", rows(1), given),
                partial(log.transactions.describe_producers, "t", given),
            ):
                with pytest.raises(NotFoundError) as caught:
                    call()
                assert caught.value.values["partition"] == repr(given)


def test_an_id_that_cannot_be_says_what_can(log: TxnLog) -> None:
    with pytest.raises(InvalidInputError, match="1 to 249 UTF-8 bytes"):
        Producer(log, "x" * 250)


def test_a_producer_that_is_sent_to_another_process(log: TxnLog) -> None:
    with Producer(log, "p") as producer, producer.transaction() as txn:
        txn.send("t", rows(1))
        calls = (lambda: pickle.dumps(producer), lambda: copy.copy(producer), lambda: pickle.dumps(txn))
        refused(log, InvalidInputError, "not-picklable", *calls)
    assert read(log) == [1]


def test_large_values_of_what_is_no_log(log: TxnLog) -> None:
    bad: Any = "./log"
    refused(log, InvalidInputError, "not-a-log", lambda: list(read_values(bad, "t")))
    log.create_topic("k", "kafka")
    with Producer(log) as producer:
        producer.send("k", value=b"v")
    (record,) = read_values(log, "k")
    assert "function" not in repr(record)
