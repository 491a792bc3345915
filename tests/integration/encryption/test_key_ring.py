"""The key ring against accounts that may write into the store, key clients that err, and processes that were
open meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.integration.encryption.key_service import Service
from tests.integration.encryption.rows import TOPIC, kind_of, numbers, send
from txnformat import keys
from txnformat.errors import StorageError
from txnformat.store.encrypted.documents import RingDocument, WrappedRecord, decode_ring, encode, ring_key
from txnformat.store.encrypted.envelope import DataKey
from txnformat.store.encrypted.key_client import KeySource
from txnformat.store.encrypted.store import EncryptedStore
from txnformat.store.memory import MemoryStore
from txnlog import TxnLog
from txnlog_testing.stores.faulty import FaultyStore

SOURCE = KeySource("tests.integration.encryption.key_service:Service")


@pytest.fixture(autouse=True)
def service(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("names", ["one"]), ("is_down", False), ("asked", 0), ("answer", None)):
        monkeypatch.setattr(Service, name, value)


@pytest.fixture
def shared() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def filled(shared: MemoryStore) -> TxnLog:
    log = TxnLog.create(EncryptedStore(shared, SOURCE))
    log.create_topic("t", TOPIC)
    send(log, 1)
    return log


def opened(shared: MemoryStore) -> TxnLog:
    return TxnLog.open(EncryptedStore(shared, SOURCE))


def planted(log_id: str, generation: int, secret: bytes, proof: str) -> bytes:
    made = DataKey(log_id, generation, secret)
    record = WrappedRecord(made.check(), generation, *Service("").wrap(secret, ""))
    return encode(RingDocument(1, record, log_id, proof))


@pytest.mark.parametrize("generation", [1, 2])
def test_an_account_that_creates_objects_and_wraps_keys_puts_no_key_into_the_ring(
    shared: MemoryStore, filled: TxnLog, generation: int
) -> None:
    data = planted(filled.log_id, generation, os.urandom(32), "0" * 64)
    shared.create(ring_key(generation, 0 if generation > 1 else 1), data)
    with pytest.raises(StorageError) as caught:
        opened(shared)
    assert caught.value.kind == "key-missing"
    assert caught.value.values["object"].startswith(keys.KEYS_PREFIX)
    send(filled, 2)  # as before


def test_a_wrapping_counts_in_its_place_only(shared: MemoryStore, filled: TxnLog) -> None:
    filled.rotate_key()
    document = decode_ring(shared.get(ring_key(2, 0)) or b"")
    shared.create(ring_key(2, 7), encode(document))
    assert kind_of(lambda: opened(shared)) == "key-missing"


@pytest.mark.parametrize(
    "answer",
    [
        ("one", b"one"),
        ("one", b""),
        ("", b"x"),
        ("one", 32),
        ("one", "text"),
        (1, b"x"),
        ("one", b"x" * 20_000),
        5,
    ],
)
@pytest.mark.parametrize("act", [False, True, None], ids=["new key", "new master key", "new log"])
def test_a_wrapped_key_that_does_not_open_is_not_stored(
    shared: MemoryStore, filled: TxnLog, monkeypatch: pytest.MonkeyPatch, answer: Any, act: bool | None
) -> None:
    monkeypatch.setattr(Service, "answer", answer)
    before = dict(shared._objects)
    calls: dict[bool | None, Callable[[], object]] = {
        None: lambda: TxnLog.create(EncryptedStore(MemoryStore(), SOURCE)),
        False: filled.rotate_key,
        True: lambda: filled.rotate_key(master=True),
    }
    assert kind_of(calls[act]) in ("key-refused", "key-client-failed")
    assert shared._objects == before
    monkeypatch.setattr(Service, "answer", None)
    send(filled, 2)
    assert numbers(opened(shared)) == [1, 2]


@pytest.mark.parametrize("given", [None, 32, "x" * 32])
def test_a_client_that_gives_no_bytes_is_refused(
    shared: MemoryStore, filled: TxnLog, monkeypatch: pytest.MonkeyPatch, given: Any
) -> None:
    monkeypatch.setattr(Service, "unwrap", lambda *_: given)
    assert kind_of(lambda: opened(shared)) == "key-refused"


def test_a_process_that_has_its_keys_goes_on_while_the_key_service_is_down(
    shared: MemoryStore, filled: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Service, "is_down", True)
    asked = Service.asked
    name = keys.entry_key(1)
    held = shared._objects[name]
    shared._objects[name] = held[:-1] + bytes([held[-1] ^ 1])
    assert kind_of(lambda: filled.store.get(name)) == "object-not-authentic"
    assert kind_of(filled.rotate_key) == "key-client-failed"
    shared._objects[name] = held
    send(filled, 2)
    assert numbers(filled) == [1, 2]
    assert Service.asked == asked + 1  # the rotation's own


def test_a_key_service_that_hangs_stops_only_who_needs_a_key_that_is_not_at_hand(
    shared: MemoryStore, filled: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = opened(shared)
    other.rotate_key()
    send(other, 2)
    entry = max(name for name in shared._objects if name.startswith(keys.LOG_PREFIX))
    asked, answers, unwrap = threading.Event(), threading.Event(), Service.unwrap

    def hang(service: Service, *request: Any) -> bytes:
        asked.set()
        assert answers.wait(300)
        return unwrap(service, *request)

    monkeypatch.setattr(Service, "unwrap", hang)
    with ThreadPoolExecutor(2) as pool:
        try:
            newer = pool.submit(filled.store.get, entry)
            assert asked.wait(300)
            older = pool.submit(filled.store.get, keys.entry_key(1))
            assert older.result(300) is not None
            assert pool.submit(filled.store.get, keys.FORMAT_KEY).result(300) is not None
            assert not newer.done()
        finally:
            answers.set()
        assert newer.result(300) == other.store.get(entry)


def test_a_key_that_is_stored_no_more_is_not_made_anew_and_encrypts_nothing(
    shared: MemoryStore, filled: TxnLog
) -> None:
    filled.rotate_key()
    send(filled, 2)
    gone = shared._objects.pop(ring_key(2, 0))
    filled.store.read_keys_again()  # type: ignore[attr-defined]
    assert numbers(filled) == [1, 2]
    assert kind_of(lambda: filled.store.put("_txnlog/latest", b"x")) == "key-missing"
    filled.rotate_key()
    assert ring_key(3, 0) in shared._objects
    assert ring_key(2, 0) not in shared._objects
    shared._objects[ring_key(2, 0)] = gone
    send(filled, 3)
    assert numbers(opened(shared)) == [1, 2, 3]


def test_a_process_that_was_open_while_keys_were_wrapped_again_reads_all(
    shared: MemoryStore, filled: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.rotate_key()
    send(filled, 2)
    store = EncryptedStore(shared, SOURCE)
    assert store.ring().current.generation == 2
    store.ring()._keys.pop(1)  # as where only the newer one was needed
    monkeypatch.setattr(Service, "names", ["one", "two"])
    assert filled.rotate_key(master=True) == 2
    monkeypatch.setattr(Service, "names", ["two"])
    assert store.get(keys.entry_key(0)) is not None
    assert numbers(opened(shared)) == [1, 2]


def test_what_others_add_while_keys_are_wrapped_again_is_wrapped_too(
    shared: MemoryStore, filled: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = opened(shared)
    done: list[bool] = []

    def meanwhile(key: str) -> None:
        if key.startswith(keys.KEYS_PREFIX) and not done:
            done.append(True)
            monkeypatch.setattr(Service, "names", ["two", "one"])
            other.rotate_key()
            monkeypatch.setattr(Service, "names", ["one", "two"])

    monkeypatch.setattr(Service, "names", ["one", "two"])
    rotating = EncryptedStore(FaultyStore(shared, before_create=meanwhile), SOURCE)
    assert rotating.rotate_key(master=True) == 2
    monkeypatch.setattr(Service, "names", ["two"])
    assert numbers(opened(shared)) == [1]


def test_keys_that_an_older_log_has_left_are_told_before_a_log_is_made(
    shared: MemoryStore, filled: TxnLog
) -> None:
    filled.rotate_key()
    for key in [key for key in shared._objects if not key.startswith(keys.KEYS_PREFIX)]:
        shared.delete(key)
    assert kind_of(lambda: TxnLog.create(EncryptedStore(shared, SOURCE))) == "keys-left-over"
    assert list(shared._objects) == [ring_key(2, 0)]


def test_an_upload_of_which_a_part_was_lost_is_given_up(
    shared: MemoryStore, filled: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of a chunk is out, so that what would follow opens no more."""
    writer = EncryptedStore(shared, SOURCE).open_write("_txnlog/boundary/x")
    inner = writer._out  # type: ignore[attr-defined]
    usual = inner.write

    def write(data: bytes) -> int:
        usual(data[:100])
        raise StorageError("no space left")

    monkeypatch.setattr(inner, "write", write)
    with pytest.raises(StorageError, match="no space left"):
        writer.write(b"x" * 200_000)
    monkeypatch.setattr(inner, "write", usual)
    assert kind_of(writer.close) == "upload-ended"
    assert shared.get("_txnlog/boundary/x") is None


def test_keys_at_hand_stay_where_the_format_is_gone(shared: MemoryStore, filled: TxnLog) -> None:
    held = shared._objects.pop(keys.FORMAT_KEY)
    assert kind_of(filled.rotate_key) == "key-missing"
    assert numbers(filled) == [1]
    shared._objects[keys.FORMAT_KEY] = held
