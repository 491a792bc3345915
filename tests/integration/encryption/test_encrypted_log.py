"""A log whose objects are encrypted: a whole life of it, its keys, and what does not open."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.encryption.rows import (
    CANARY,
    CLEAR,
    TOPIC,
    kind_of,
    numbers,
    rows,
    send,
    stored,
)
from tests.killing.rounds import run_history
from tests.killing.workers import Nursery
from txnformat import keys
from txnformat.errors import StorageError, UnsupportedFeatureError
from txnformat.store.base import ObjectStore, is_encrypted, list_each
from txnformat.store.encrypted.key_client import KeySource
from txnformat.store.encrypted.key_file import new_key_file
from txnformat.store.encrypted.store import EncryptedStore
from txnformat.store.memory import MemoryStore
from txnformat.store.object_sizes import NOT_AUTHENTIC
from txnformat.store.open import open_store
from txnformat.store.requests import RequestKind
from txnlog import Consumer, Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore


def test_no_object_of_a_log_shows_what_was_written(root: Path, log: TxnLog, options: dict[str, str]) -> None:
    """Rows in entries and in files, groups, seals, compacted files, erasures, snapshots, batch tables: all of
    it."""
    log.rotate_key()
    for first in range(0, 20, 2):
        send(log, first, 2)
    send(log, 20, 30_000, embed_bytes=0)
    with Consumer(log, f"{CANARY}-group") as consumer:
        consumer.subscribe(["t"])
        consumer.poll()
        consumer.commit()
    log.maintain("seal")
    log.compact("t")
    log.erase("t", f"{CANARY}_column = '{CANARY}-7'", requested_by=CANARY)
    log.maintain()
    for first in range(40_000, 40_090):  # up to a snapshot and a bundle
        send(log, first)
    log.close()

    raw = stored(root)
    kinds = Counter(key.split("/")[1] for key in raw)
    assert {"log", "snapshots", "bundles", "data", "segments", "tables", "latest"} <= set(kinds), kinds
    for key, data in raw.items():
        assert CANARY.encode() not in data, key
        if not key.startswith(CLEAR):
            assert data.startswith(b"TXNS"), key
    again = open_store(root, storage_options=options)
    assert is_encrypted(again)
    found = {info.key: again.get(info.key, 2**30) or b"" for info in again.list("")}
    sizes = {info.key: info.size for info in again.list("") if info.key != keys.FORMAT_KEY}
    assert all(len(found[key]) == size for key, size in sizes.items())
    assert any(key.startswith(keys.KEYS_PREFIX) for key in raw)
    each: list[str] = []
    list_each(again, "", lambda info: each.append(info.key))
    assert sorted(each) == sorted(found)
    assert found.keys() == {key for key in raw if not key.startswith(keys.KEYS_PREFIX)}
    assert sum(CANARY.encode() in data for data in found.values()) > 50  # it is there to be found

    with TxnLog.open(root, storage_options=options) as opened:
        assert opened.verify(deep=True).ok
        assert numbers(opened) == [*range(7), *range(8, 30_020), *range(40_000, 40_090)]
        assert opened.dataset("t").count_rows() == 30_109
        assert len(opened.vacuum(dry_run=True).rows) > 0
        assert kind_of(lambda: opened.publish("t")) == "view-of-encrypted-log"


def test_a_process_without_the_key_gets_one_clear_error(
    root: Path, log: TxnLog, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(log, 0)
    other = new_key_file("one")  # another key of the same name
    calls: list[Callable[[dict[str, str] | None], object]] = [
        lambda given: TxnLog.open(root, storage_options=given),
        lambda given: TxnLog.open_or_create(root, storage_options=given),
        lambda given: TxnLog(open_store(root, storage_options=given)).verify(),
        lambda given: TxnLog(open_store(root, storage_options=given)).read("t"),
    ]
    for call in calls:
        with pytest.raises(UnsupportedFeatureError) as without:
            call(None)
        assert without.value.kind == "log-encrypted"
        assert "key_client" in str(without.value)
        for text in (other, "{}", json.dumps({"current": "x", "keys": json.loads(other)["keys"]}), ""):
            monkeypatch.setenv("TXNLOG_TEST_KEYS", text)
            with pytest.raises(StorageError) as refused:
                call({"key_client": "env:TXNLOG_TEST_KEYS"})
            assert refused.value.kind == "key-refused"
            assert refused.value.transient is False
            assert json.loads(other)["keys"]["one"] not in str(refused.value)
        missing = {"key_client": f"file:{key_file}.not"}
        assert kind_of(lambda call=call, given=missing: call(given)) == "key-refused"  # type: ignore[misc]
    assert kind_of(lambda: TxnLog.create(root)) == "log-exists"


def test_versions_before_encryption_refuse_the_log(root: Path, log: TxnLog) -> None:
    """They take no format beyond 1, and look at it before anything else."""
    assert json.loads((root / keys.FORMAT_KEY).read_bytes())["format"] == 2


def test_a_log_without_encryption_stays_one(root: Path, options: dict[str, str]) -> None:
    with TxnLog.create(root) as log:
        log.create_topic("t", TOPIC)
        assert kind_of(lambda: log.rotate_key()) == "log-not-encrypted"
    before = stored(root)
    assert kind_of(lambda: TxnLog.open(root, storage_options=options)) == "log-not-encrypted"
    assert kind_of(lambda: TxnLog.open_or_create(root, storage_options=options)) == "log-not-encrypted"
    assert kind_of(lambda: TxnLog.create(root, storage_options=options)) in (
        "log-exists",
        "log-not-encrypted",
    )
    assert open_store(root, storage_options=options).create("t/x", b"x").outcome == "refused"
    assert stored(root).keys() - before.keys() <= {key for key in stored(root) if key.startswith(CLEAR)}


def test_objects_that_change_places_do_not_open(root: Path, log: TxnLog, options: dict[str, str]) -> None:
    send(log, 0, 10, embed_bytes=0)
    send(log, 10, 10, embed_bytes=0)
    log.close()
    one, other = sorted(root.rglob("*.parquet"))
    held = one.read_bytes()
    shutil.copy(other, one)
    with TxnLog.open(root, storage_options=options) as opened:
        assert kind_of(lambda: opened.read("t").read_all()) == NOT_AUTHENTIC
        (problem,) = opened.verify(deep=True).problems
        assert problem.object == str(one.relative_to(root))
    one.write_bytes(held)
    entries = sorted((root / keys.LOG_PREFIX).iterdir())
    shutil.copy(entries[2], entries[1])
    assert kind_of(lambda: TxnLog.open(root, storage_options=options)) == NOT_AUTHENTIC


def test_a_damaged_hint_is_passed_over(root: Path, log: TxnLog, options: dict[str, str]) -> None:
    for first in range(120):
        send(log, first)
    log.close()
    hints = [root / keys.LATEST_KEY, *(root / keys.SNAPSHOT_PREFIX).iterdir()]
    assert len(hints) > 1
    for hint in hints:
        hint.write_bytes(hint.read_bytes()[:-1] + b"x")
    with TxnLog.open(root, storage_options=options) as opened:
        assert numbers(opened) == list(range(120))


@pytest.mark.parametrize(
    "kind",
    [
        FaultKind.APPLIED_LOST_ANSWER,
        FaultKind.EXISTS_AFTER_OWN_SUCCESS,
        FaultKind.FAIL_BEFORE,
        FaultKind.CONFLICT_409,
        FaultKind.APPLIED_LATE,
    ],
)
@pytest.mark.parametrize("rotates", [False, True])
def test_a_commit_whose_answer_is_lost_is_there_once(
    kind: FaultKind, rotates: bool, options: dict[str, str]
) -> None:
    """The writer compares what comes back after it was decrypted; with a new data key a repeat sends other
    bytes."""
    shared = MemoryStore()
    source = KeySource(options["key_client"])
    armed: list[str] = []
    struck: list[str] = []

    def schedule(operation: RequestKind, key: str, nth: int) -> Fault | None:
        if operation is not RequestKind.CREATE or key not in armed:
            return None
        armed.remove(key)
        struck.append(key)
        if rotates:
            EncryptedStore(shared, source).rotate_key(master=False)
            log.store.read_keys_again()  # type: ignore[attr-defined]  # as after an object with the new key
        return Fault(kind, late_by=2 if kind is FaultKind.APPLIED_LATE else None)

    with TxnLog.create(EncryptedStore(FaultyStore(shared, schedule), source)) as log:
        log.create_topic("t", TOPIC)
        for first in range(4):
            armed.append(keys.entry_key(log.refresh().entry + 1))
            send(log, first)
        assert numbers(log) == [0, 1, 2, 3]
        assert len(struck) >= 4
        assert log.verify(deep=True).ok
    with TxnLog.open(EncryptedStore(shared, source)) as again:
        assert numbers(again) == [0, 1, 2, 3]


def test_an_upload_whose_answer_is_lost_is_there_once(options: dict[str, str]) -> None:
    shared = MemoryStore()
    source = KeySource(options["key_client"])
    struck: list[str] = []

    def schedule(operation: RequestKind, key: str, nth: int) -> Fault | None:
        if operation is RequestKind.OPEN_WRITE and nth == 1:
            struck.append(key)
            return Fault(FaultKind.APPLIED_LOST_ANSWER)
        return None

    with TxnLog.create(EncryptedStore(FaultyStore(shared, schedule), source)) as log:
        log.create_topic("t", TOPIC)
        send(log, 0, 20_000, embed_bytes=0)
        assert struck
        assert numbers(log) == list(range(20_000))


def test_a_creation_whose_answer_is_lost_is_ours(options: dict[str, str]) -> None:
    def schedule(operation: RequestKind, key: str, nth: int) -> Fault | None:
        is_format = operation is RequestKind.CREATE and key == keys.FORMAT_KEY
        return Fault(FaultKind.APPLIED_LOST_ANSWER) if is_format else None

    shared = MemoryStore()
    source = KeySource(options["key_client"])
    with TxnLog.create(EncryptedStore(FaultyStore(shared, schedule), source)) as log:
        log.create_topic("t", TOPIC)
        other = EncryptedStore(shared, source)
        assert kind_of(lambda: TxnLog.create(other)) == "log-exists"
        send(log, 1)
        with TxnLog.open(other) as again:
            assert numbers(again) == [1]


def test_encryption_costs_a_get_and_a_listing_at_the_start_and_no_request_after_it(
    options: dict[str, str],
) -> None:
    def requests(wrap: Callable[[ObjectStore], ObjectStore]) -> tuple[Counter[str], Counter[str]]:
        counted = CountingStore(MemoryStore())
        with TxnLog.create(wrap(counted)) as log:
            log.create_topic("t", TOPIC)
        with counted.measure() as opening, TxnLog.open(wrap(counted)) as log:
            log.refresh()
        log = TxnLog.open(wrap(counted))
        with counted.measure() as working:
            with Producer(log) as producer:
                producer.send("t", rows(0, 1))
            with Producer(log, embed_bytes=0) as producer:
                producer.send("t", rows(1, 100_000))
            assert len(numbers(log)) == 100_001
            log.close()

        def by_kind(counts: object) -> Counter[str]:
            return Counter({str(one): count for one, count in counts.requests.items()})  # type: ignore[attr-defined]

        return by_kind(opening.counts), by_kind(working.counts)

    source = KeySource(options["key_client"])
    opening, working = requests(lambda store: EncryptedStore(store, source))
    plain_opening, plain_working = requests(lambda store: store)
    assert working == plain_working
    more = opening - plain_opening
    assert sorted(more.values()) == [1, 1], more
    assert not plain_opening - opening


def test_killed_workers_lose_and_double_nothing(tmp_path: Path, options: dict[str, str]) -> None:
    with Nursery() as nursery:
        history = run_history(
            nursery, str(tmp_path / "logs"), 41, 2, notes=tmp_path, buffer="inline", storage_options=options
        )
    assert history.problems == []
    assert history.kills >= 2
