"""Small transactions in their entries: one request to write, the same rows whoever reads them and when, and
nothing that keeps entries for ever."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.integration.producers.embedded_logs import ALL, SCHEMA, copy_of, log_on, rows, seen, write
from tests.older_logs import older_log
from txnformat import keys
from txnformat.client import committer
from txnformat.core.entry import decode_entry
from txnformat.core.intents import AllocateIds, SpillExtents
from txnformat.core.state import FEATURES, WITHOUT_EMBEDDING
from txnformat.errors import CommitStateUnknownError, ConflictError, CorruptDataError
from txnformat.protocol import commit as commit_steps
from txnformat.protocol import unembedding
from txnformat.protocol.commit import CommitSettings
from txnformat.protocol.spilling import write_spill
from txnformat.segments.payload import head_of, payload_of, with_payload
from txnformat.store.memory import MemoryStore
from txnformat.store.recent import recent_payloads
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import Consumer, Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore, RequestClass
from txnlog_testing.stores.faulty import FaultyStore
from writers.bulk import BulkAppend

DATA_PUT = RequestClass(RequestKind.OPEN_WRITE, KeyClass.DATA)
DATA_CREATE = RequestClass(RequestKind.CREATE, KeyClass.DATA)
ENTRY_PUT = RequestClass(RequestKind.CREATE, KeyClass.ENTRY)
ENTRY_GET = RequestClass(RequestKind.GET, KeyClass.ENTRY)


def version(log: TxnLog, entry: int) -> list[dict[str, Any]]:
    """Return a topic as it was after an entry."""
    found: list[dict[str, Any]] = log.read("t", columns=ALL, version_as_of=entry).read_all().to_pylist()
    return found


def data_keys(store: Any) -> list[str]:
    return [info.key for info in store.list("") if keys.parse_data_key(info.key)]


def test_one_request_commits_any_number_of_topics_and_partitions() -> None:
    store = CountingStore(MemoryStore())
    log = log_on(store)
    with Producer(log, "p") as producer:
        with store.measure() as measured, producer.transaction() as txn:
            for number in range(3):
                txn.send("t", rows(number), partition=number)
                txn.send("u", rows(number), partition=number)
        assert dict(measured.counts.requests) == {ENTRY_PUT: 1}
    with Producer(log) as plain, store.measure() as measured:
        plain.send("t", rows(3))
        plain.flush()
    assert measured.counts.count(RequestKind.CREATE) == measured.counts.count(None, KeyClass.ENTRY)
    with BulkAppend(log) as bulk, store.measure() as measured:
        bulk.send("t", rows(4))
        bulk.commit()
    assert dict(measured.counts.requests) == {ENTRY_PUT: 1}
    assert data_keys(store) == []
    assert log.verify(deep=True).ok


@pytest.mark.parametrize(
    ("why", "puts"),
    [
        ("settings", {DATA_PUT: 1}),
        ("topic", {DATA_PUT: 1}),
        ("log", {DATA_PUT: 1}),
        ("size", {DATA_PUT: 1}),
    ],
)
def test_what_is_not_to_be_embedded_is_uploaded(why: str, puts: dict[RequestClass, int]) -> None:
    store = CountingStore(MemoryStore())
    settings = {"embed": "false"} if why == "topic" else {}
    log = log_on(store, embedding=why != "log", settings=settings)
    limit = {"settings": 0, "size": 500}.get(why, 65_536)
    with (
        Producer(log, "p", embed_bytes=limit) as producer,
        store.measure() as measured,
        producer.transaction() as txn,
    ):
        txn.send("t", rows(1))
    assert dict(measured.counts.requests) == {ENTRY_PUT: 1, **puts}
    assert len(data_keys(store)) == 1
    assert [one["n"] for one in log.read("t").read_all().to_pylist()] == [1]


def test_a_seal_moves_rows_to_few_files_and_no_reader_sees_a_difference() -> None:
    store = MemoryStore()
    log = log_on(store)
    write(log)
    before, entry = seen(log), log.state.entry
    assert data_keys(store) == []
    assert len(log.state.files) > 10
    dataset = sorted(log.dataset("t").to_table()["n"].to_pylist())
    log.maintain("seal")
    assert len(data_keys(store)) == 2, "one file of what was committed, one of what was aborted"
    assert not len(log.state.files)
    for other in (log, TxnLog.open(store)):
        assert seen(other) == before
        assert version(other, entry) == before["snapshot"]
        assert sorted(other.dataset("t").to_table()["n"].to_pylist()) == dataset
    assert log.verify(deep=True).ok
    log.compact("t", target_bytes=1, min_lag_ms=0)
    assert seen(log)["read_committed"] == before["read_committed"]
    assert log.verify(deep=True).ok


def test_read_committed_fetches_nothing_of_an_aborted_batch_that_was_sealed() -> None:
    store = CountingStore(MemoryStore())
    log = log_on(store)
    write(log)
    log.maintain("seal")
    (aborted,) = (
        key
        for key in data_keys(store)
        if key not in {file.key for file in _files_of(log) if file is not None}
    )
    store.delete(aborted)
    assert len(log.read("t").read_all()) == 14
    with pytest.raises(Exception, match="gone"):
        log.read("t", isolation="read_uncommitted").read_all()


def _files_of(log: TxnLog) -> list[Any]:
    (record,) = log.state.segments
    index = log.sidecars.index(record.index)
    return [index.files[int(row["file"])] for row in index.rows if row["outcome"] != 2]


def test_what_is_embedded_is_sealed_and_left_behind_by_its_bytes_however_few_batches_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(committer, "SEAL_PAYLOAD_BYTES", 60_000)
    monkeypatch.setattr(committer, "SNAPSHOT_PAYLOAD_BYTES", 30_000)
    log = log_on(MemoryStore())
    with Producer(log, "p") as producer:
        for number in range(40):
            with producer.transaction() as txn:
                txn.send("t", rows(*range(1_000 * number, 1_000 * number + 1_000)))
    log.close()
    state = TxnLog.open(log.store).state
    assert state.segments
    assert state.checkpoints
    assert len(state.files) < 40


def test_whoever_follows_asks_for_nothing_twice() -> None:
    store = MemoryStore()
    log = log_on(store)
    counting = CountingStore(store)
    with Consumer(TxnLog.open(counting), "g") as consumer:
        consumer.subscribe(["t"])
        consumer.poll(0)
        with Producer(log, "p") as producer, producer.transaction() as txn:
            txn.send("t", rows(1, 2, 3))
        with counting.measure() as measured:
            got: list[dict[str, Any]] = []
            while len(got) < 3:
                batch = consumer.poll(10_000)
                got += [] if batch is None else batch.to_pylist()
        assert sorted(one["n"] for one in got) == [1, 2, 3]
        assert measured.counts.count(None, KeyClass.DATA) == 0


@pytest.mark.parametrize("what", ["payload gone", "other bytes", "slot gone"])
def test_a_damaged_payload_is_told_before_it_is_parsed(what: str) -> None:
    store = MemoryStore()
    log = log_on(store)
    with Producer(log, "p") as producer, producer.transaction() as txn:
        txn.send("t", rows(1))
    key = keys.entry_key(log.state.entry)
    data = store.get(key) or b""
    store.delete(key)
    if what != "slot gone":
        payload = payload_of(data)
        store.create(key, with_payload(head_of(data), b"" if what == "payload gone" else payload[::-1]))
    other = TxnLog.open(copy_of(store))
    if what == "slot gone":
        return  # the newest entry: to others it was never there
    with pytest.raises(CorruptDataError) as caught:
        other.read("t").read_all()
    assert caught.value.kind == "payload-missing"
    assert not other.verify().ok


def test_a_payload_of_another_entry_in_the_same_slot_is_not_believed() -> None:
    """A process may have read a deleted slot that a writer which slept has created again."""
    store = MemoryStore()
    log = log_on(store)
    with Producer(log, "p") as producer, producer.transaction() as txn:
        txn.send("t", rows(1))
    recent_payloads(store).keep(log.state.entry, b"rows of another entry")
    assert log.read("t").read_all()["n"].to_pylist() == [1]


def test_verify_finds_a_seal_that_mixes_what_was_aborted_with_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = log_on(MemoryStore())
    write(log)
    monkeypatch.setattr(unembedding, "BatchOutcome", SimpleNamespace(ABORTED=99))
    log.maintain("seal")
    problems = log.verify().problems
    assert any("batches of aborted transactions beside others" in one.what for one in problems), problems


def test_an_entry_that_was_torn_is_not_taken_for_another_writers() -> None:
    """Else the producer would append its rows a second time."""
    memory = MemoryStore()
    log_on(memory).close()

    class Tearing(FaultyStore):
        torn = False

        def create(self, key: str, data: bytes) -> Any:
            if payload_of(data) and not self.torn:
                self.torn = True
                memory.create(key, head_of(data))
            return super().create(key, data)

    log = TxnLog.open(Tearing(memory))
    producer = Producer(log, "p")
    producer.init()
    producer.begin()
    producer.send("t", rows(1))
    with pytest.raises(CommitStateUnknownError):
        producer.commit()


def test_what_loses_several_slots_is_uploaded_and_lands_once() -> None:
    memory = MemoryStore()
    log_on(memory).close()
    other = TxnLog.open(memory)
    left = [commit_steps.EMBEDDED_LOSSES_MAX]

    def compete(key: str) -> None:
        if keys.parse_entry_key(key) is not None and left[0] and racing:
            left[0] -= 1
            other.committer.commit(other.committer.intend(_allocate()))

    racing = False
    counting = CountingStore(memory)
    log = TxnLog.open(FaultyStore(counting, before_create=compete))
    with Producer(log, "p") as producer:
        racing = True
        with counting.measure() as measured, producer.transaction() as txn:
            txn.send("t", rows(1, 2))
            txn.send("u", rows(3))
    assert left == [0]
    assert measured.counts.requests[DATA_CREATE] == 2
    assert len(data_keys(memory)) == 2
    assert sorted(one["n"] for one in log.read("t").read_all().to_pylist()) == [1, 2]
    assert log.verify(deep=True).ok


def _allocate() -> Any:
    return AllocateIds("other", 1)


def test_a_repeat_of_an_unknown_commit_is_the_same_whether_embedded_or_uploaded() -> None:
    memory = MemoryStore()
    log = log_on(memory)
    with Producer(log) as plain:
        plain.send("t", rows(1))
        first = plain.flush()
        (append,) = (op for op in _operations(log, first.entry) if hasattr(op, "files"))
    part = append.partitions[0]
    assert part.digest
    with Producer(log_on(MemoryStore(), embedding=False)) as plain:
        plain.send("t", rows(1), partition=part.partition)
        second = plain.flush()
        (other,) = (op for op in _operations(plain._log, second.entry) if hasattr(op, "files"))
    assert other.partitions[0].digest == part.digest, "the digest is over the bytes, wherever they are"
    assert other.files[0].sha256 == append.files[0].sha256


def _operations(log: TxnLog, entry: int | None) -> Any:
    assert entry is not None
    return decode_entry(log.store.get(keys.entry_key(entry)) or b"", entry).operations


@pytest.mark.parametrize("embedding", [None, True])
@pytest.mark.parametrize("how", [TxnLog.create, TxnLog.open_or_create])
def test_a_log_embeds_from_its_first_entry_on(how: Any, embedding: bool | None) -> None:
    store = MemoryStore()
    log = how(store) if embedding is None else TxnLog.create(store, embedding=embedding)
    log.create_topic("t", SCHEMA, partitions=1)
    with Producer(log) as producer:
        producer.send("t", rows(1))
    assert not data_keys(store)
    assert [one["n"] for one in TxnLog.open(store).read("t").read_all().to_pylist()] == [1]


@pytest.mark.parametrize("is_older", [False, True])
def test_a_log_that_does_not_embed_does_so_once_it_is_upgraded(is_older: bool) -> None:
    store = MemoryStore()
    log = older_log(store) if is_older else TxnLog.create(store, embedding=False)
    log.create_topic("t", SCHEMA)
    with Producer(log) as producer:
        producer.send("t", rows(1))
    assert len(data_keys(store)) == 1
    assert log.state.features == (FEATURES if is_older else WITHOUT_EMBEDDING)
    assert log.upgrade(embedding=True)
    with Producer(log) as producer:
        producer.send("t", rows(2))
    assert len(data_keys(store)) == 1
    assert sorted(one["n"] for one in TxnLog.open(store).read("t").read_all().to_pylist()) == [1, 2]


@pytest.mark.parametrize("embedding", [True, False])
def test_a_log_of_another_creator_that_says_otherwise_is_refused(embedding: bool) -> None:
    """The caller's log would upload each small file, or show rows to accounts that may read the chain
    alone.
    """
    store = MemoryStore()
    armed = [True]

    def before_create(key: str) -> None:
        if "/log/" in key and armed:
            armed.clear()
            other = TxnLog.open(store, settings=CommitSettings(embedding=not embedding))
            other.create_topic("t", SCHEMA)

    with pytest.raises(ConflictError, match="it differs") as caught:
        TxnLog.create(FaultyStore(store, before_create=before_create), embedding=embedding)
    assert caught.value.kind == "log-exists"
    assert f"embedding=`{not embedding}`" in str(caught.value)


def test_records_that_wait_while_their_topic_grows_find_their_partitions() -> None:
    store = MemoryStore()
    log = TxnLog.create(store)
    log.create_topic("t", SCHEMA, partitions=1, key_columns=["n"])
    other = TxnLog.open(store)
    with Producer(log, "p") as producer, producer.transaction() as txn:
        for number in range(20):
            txn.send("t", rows(number))
        other.alter_topic("t", partitions=4)
    found = log.read("t", columns=["n", "_partition"]).read_all().to_pylist()
    assert sorted(one["n"] for one in found) == list(range(20))
    assert len({one["_partition"] for one in found}) > 1
    assert data_keys(store) == []


def test_a_transaction_that_stays_open_does_not_keep_its_entries() -> None:
    """A spill moves its rows to objects: they are read as before, and a truncation may go on."""
    store = MemoryStore()
    log = log_on(store)
    held = Producer(log, "held", buffer="inline")
    held.init()
    held.begin()
    held.send("t", rows(1, 2, 3))
    held.flush()
    with Producer(log, "p") as producer:
        for number in range(10, 40):
            with producer.transaction() as txn:
                txn.send("t", rows(number))
    before = seen(log)
    log.maintain("seal")
    spill = log.committer.read(write_spill(log.state, 1))
    assert spill is not None
    log.committer.commit(log.committer.intend(SpillExtents(spill)))
    assert not any(file.place for file in log.state.files)
    assert seen(log) == before == seen(TxnLog.open(store))
    assert log.verify(deep=True).ok
    held.commit()
    log.maintain("seal")
    assert [one["n"] for one in seen(log)["read_committed"]].count(1) == 1
    assert log.verify(deep=True).ok
