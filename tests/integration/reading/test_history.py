"""The history of a log: what each entry did, newest first, and only the chain itself."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest

from txnformat import keys
from txnformat.admin.history import BATCH_MIN
from txnformat.core.intents import AllocateIds
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import CorruptDataError, InvalidInputError, NotFoundError, Producer, TxnLog
from txnlog_testing.entries import replaced_in_entry
from txnlog_testing.stores.counting import CountingStore

NUMBERS = pa.schema([("n", pa.int64())])


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": numbers}, schema=NUMBERS)


@pytest.fixture
def store() -> CountingStore:
    """Entries: 0 upgrade, 1 topic, 2 init, 3 one-shot commit, 4 append, 5 abort."""
    store = CountingStore(MemoryStore())
    log = TxnLog.create(store)
    log.create_topic("t", NUMBERS, partitions=2)
    with Producer(log, "p") as producer, producer.transaction() as transaction:
        transaction.send("t", rows(1, 2, 3), partition=0)
        transaction.send("t", rows(4), partition=1)
    with Producer(log, "q", buffer="inline") as producer:
        producer.begin()
        producer.send("t", rows(5), partition=0)
        producer.flush()
        producer.abort()
    return store


def test_history_says_what_each_entry_did(store: CountingStore) -> None:
    found = list(TxnLog.open(store).history())
    assert [entry.entry for entry in found] == [6, 5, 4, 3, 2, 1, 0]
    assert [entry.operations for entry in found] == [
        ("end_txn",),
        ("append",),
        ("init_producer",),
        ("append", "end_txn"),
        ("init_producer",),
        ("create_topic",),
        ("upgrade",),
    ]
    assert all(later.timestamp_ms > earlier.timestamp_ms for later, earlier in pairwise(found))
    commit = found[3]
    (change,) = commit.topics
    assert (change.topic, change.partitions, change.rows, change.batches) == ("t", 2, 4, 2)
    assert change.bytes > 0
    assert commit.rows == 4
    (ended,) = commit.transactions
    assert (ended.transactional_id, ended.outcome, ended.cause) == ("p", "commit", "producer")
    assert [entry.outcome for entry in found[0].transactions] == ["abort"]
    assert commit.to_dict()["topics"][0]["topic"] == "t"
    data = store.get(keys.entry_key(3))
    assert data is not None
    assert commit.size == len(data)


def test_history_of_a_part(store: CountingStore) -> None:
    log = TxnLog.open(store)
    assert [entry.entry for entry in log.history(limit=2)] == [6, 5]
    assert [entry.entry for entry in log.history(start=3)] == [3, 2, 1, 0]
    assert [entry.entry for entry in log.history(limit=2, start=3)] == [3, 2]
    assert [entry.entry for entry in log.history(start=0)] == [0]


def test_history_reads_no_more_than_asked_for(store: CountingStore) -> None:
    log = TxnLog.open(store)
    for _ in range(3 * BATCH_MIN):
        log.committer.commit(log.committer.intend(AllocateIds("p", 1)))
    with store.measure() as measured:
        assert len(list(log.history(limit=5))) == 5
    assert measured.counts.count(RequestKind.GET, KeyClass.ENTRY) == 5 + 1  # the refresh
    with store.measure() as measured:
        next(log.history())
    assert measured.counts.count() == BATCH_MIN + 1


@pytest.mark.parametrize(
    ("limit", "start"), [(0, None), (-1, None), (None, -1), (None, 7), (True, None), (None, 2.0)]
)
def test_a_range_that_cannot_be_is_refused_at_the_call(store: CountingStore, limit: int, start: int) -> None:
    with pytest.raises(InvalidInputError) as caught:
        TxnLog.open(store).history(limit=limit, start=start)
    assert caught.value.kind == "invalid-history-range"


def test_an_exchanged_entry_is_no_line_of_the_history(store: CountingStore) -> None:
    log = TxnLog.open(store)
    data = store.get(keys.entry_key(1))
    assert data is not None
    store.put(keys.entry_key(1), replaced_in_entry(data, b'"partitions":2', b'"partitions":3'))
    for start in (None, 1):
        with pytest.raises(CorruptDataError) as caught:
            list(log.history(start=start))
        assert caught.value.kind == "broken-chain"
        assert caught.value.values["object"] == keys.entry_key(1)


def test_history_ends_where_older_entries_are_deleted(store: CountingStore) -> None:
    log = TxnLog.open(store)
    store.delete(keys.entry_key(0))
    with pytest.raises(CorruptDataError) as caught:
        list(log.history())
    assert caught.value.kind == "missing-entry"
    store.create(keys.boundary_key(1), b"{}")
    told = log.history()
    assert [next(told).entry for _ in range(6)] == [6, 5, 4, 3, 2, 1]
    with pytest.raises(NotFoundError) as gone:
        next(told)
    assert (gone.value.kind, gone.value.values["earliest"]) == ("history-gone", 1)


# --- through bundles ----------------------------------------------------------------------------------------


@pytest.fixture
def long_log() -> CountingStore:
    """A log of 1,050 entries and its ten bundles."""
    store = CountingStore(MemoryStore())
    with TxnLog.create(store) as log:
        while log.state.entry < 1_049:
            log.committer.commit(log.committer.intend(AllocateIds("p", 1)))
            if log.state.entry % 50 == 0:
                log.close()  # waits for the bundle that is being written
    return store


def test_a_long_history_takes_one_request_per_hundred_entries(long_log: CountingStore) -> None:
    log = TxnLog.open(long_log)
    newest = log.state.entry
    with long_log.measure() as measured:
        found = list(log.history())
    assert [entry.entry for entry in found] == list(range(newest, -1, -1))
    assert measured.counts.count(RequestKind.GET) <= 1 + BATCH_MIN + 2 * BATCH_MIN + 100 + 128 + 10
    assert measured.counts.count(RequestKind.GET, KeyClass.BUNDLE) >= 7


def test_a_bad_bundle_changes_nothing_in_the_history(long_log: CountingStore) -> None:
    log = TxnLog.open(long_log)
    expected = list(log.history())
    bundles = [info.key for info in long_log.list(keys.BUNDLE_PREFIX)]
    long_log.put(bundles[2], b"?")
    long_log.put(bundles[3], long_log.get(bundles[4]) or b"")
    data = long_log.get(bundles[5])
    assert data is not None
    long_log.put(bundles[5], data.replace(b'"count":', b'"kount":').replace(b"txnlog-py/", b"txnlog-xx/"))
    assert list(log.history()) == expected


def test_deleted_entries_are_shown_out_of_their_bundles(long_log: CountingStore) -> None:
    log = TxnLog.open(long_log)
    expected = list(log.history())
    for number in range(450):
        long_log.delete(keys.entry_key(number))
    long_log.create(keys.boundary_key(450), b"{}")
    assert list(log.history()) == expected
    assert list(log.history(limit=5, start=449)) == expected[-450:-445]
    long_log.delete(keys.bundle_key(200, 299))
    newest = expected[0].entry
    assert list(log.history(limit=newest + 1 - 300)) == expected[: newest + 1 - 300]
    with pytest.raises(NotFoundError, match="no bundle has it"):
        list(log.history(limit=newest + 2 - 300))
