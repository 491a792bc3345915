"""Verification: a sound log of every shape has no problem; every kind of damage to every object is found and
named."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from tests.integration.clients.failing import QuickClock
from tests.integration.upkeep.checkpoints import take_snapshot
from txnformat import keys
from txnformat.core.intents import AllocateIds
from txnformat.store.base import ObjectStore
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind, key_class
from txnformat.verify.log import verify_log
from txnlog import NotFoundError, Producer, TxnLog, VerifyProgress, VerifyReport
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

NUMBERS = pa.schema([("n", pa.int64())])
MANY = 1_001  # batches in one append: one more than an entry names itself


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"n": range(first, first + count)}, schema=NUMBERS)


def build(store: ObjectStore) -> None:
    """Make a log with everything: one-shot, inline, aborted, without transaction, batch table, open,
    snapshots."""
    log = TxnLog.create(store, embedding=False)
    log.create_topic("t", NUMBERS, partitions=2)
    log.create_topic("empty", NUMBERS)
    with Producer(log, "one-shot") as producer, producer.transaction() as transaction:
        transaction.send("t", rows(0, 1000), partition=0)
        transaction.send("t", rows(10, 5), partition=1)
    inline = Producer(log, "inline", buffer="inline")
    inline.init()
    for end in ("commit", "abort", "commit", "abort"):
        inline.begin()
        for first in (100, 200):
            inline.send("t", rows(first, 3), partition=0)
            inline.flush()
        getattr(inline, end)()
    take_snapshot(log)
    for _ in range(80):  # to more than a hundred entries: there is a bundle
        log.committer.commit(log.committer.intend(AllocateIds("build", 1)))
    with Producer(log) as plain:
        plain.send("t", rows(0, 7))
    with Producer(log, "many", batch_bytes=1) as many, many.transaction() as transaction:
        for index in range(MANY):
            transaction.send("t", rows(index, 1), partition=index % 2)
    log.maintain("seal")
    take_snapshot(log)
    holder = Producer(log, "open", buffer="inline")
    holder.init()
    holder.begin()
    holder.send("t", rows(900, 2), partition=1)
    holder.flush()
    inline.begin()
    inline.send("t", rows(950, 2), partition=1)
    inline.flush()
    inline.abort()  # the last stable offset of its index entry is where the open transaction began
    log.close()


@pytest.fixture(scope="module")
def template() -> dict[str, bytes]:
    store = MemoryStore()
    build(store)
    return {info.key: store.get(info.key) or b"" for info in store.list("")}


@pytest.fixture
def store(template: dict[str, bytes]) -> MemoryStore:
    store = MemoryStore()
    for key, data in template.items():
        store.put(key, data)
    return store


def found(report: VerifyReport) -> set[tuple[str, str]]:
    return {(problem.kind.value, problem.object) for problem in report.problems}


# --- a sound log --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deep", [False, True])
def test_a_sound_log_has_no_problem(store: MemoryStore, template: dict[str, bytes], deep: bool) -> None:
    report = TxnLog.open(store).verify(deep=deep)
    assert report.problems == ()
    assert report.notes == ()
    assert report.ok
    entries = [key for key in template if key_class(key) is KeyClass.ENTRY]
    files = [key for key in template if key_class(key) is KeyClass.DATA]
    assert report.last_entry == len(entries) - 1
    assert {
        name: report.checked[name] for name in ("entries", "snapshots", "tables", "files", "partitions")
    } == {
        "entries": len(entries),
        "snapshots": 2,
        "tables": 1,
        "files": len(files),
        "partitions": 3,
    }
    assert report.checked["file_bytes"] == sum(len(template[key]) for key in files)
    if deep:
        assert report.checked["records"] == 1005 + 8 * 3 + 7 + MANY + 4
        assert report.checked["bytes_read"] == report.checked["file_bytes"]
    assert report.to_dict()["ok"] is True


def test_an_empty_log_has_no_problem() -> None:
    store = MemoryStore()
    report = TxnLog.create(store).verify()
    assert report.ok
    assert report.last_entry == -1


def test_where_there_is_no_log_says_so() -> None:
    with pytest.raises(NotFoundError) as caught:
        verify_log(MemoryStore())
    assert caught.value.kind == "no-log"


def test_verifying_costs_one_request_per_object_and_three_listings(template: dict[str, bytes]) -> None:
    store = CountingStore(MemoryStore())
    for key, data in template.items():
        store.put(key, data)
    store.reset()
    verify_log(store)
    assert store.counts.count(RequestKind.LIST) == 3
    named = sum(key_class(key) is not KeyClass.DATA for key in template)
    assert store.counts.count(RequestKind.GET) == named + 1  # the slot after the last entry
    assert store.counts.count(RequestKind.GET_RANGE) == sum(
        key_class(key) is KeyClass.DATA for key in template
    )
    assert store.counts.count(RequestKind.PUT) + store.counts.count(RequestKind.CREATE) == 0


def test_progress_says_how_far_it_is(store: MemoryStore) -> None:
    told: list[VerifyProgress] = []
    report = verify_log(store, progress=told.append)
    for stage, total in (("entries", report.checked["entries"]), ("files", report.checked["files"])):
        mine = [progress for progress in told if progress.stage == stage]
        assert [progress.done for progress in mine] == list(range(1, total + 1))
        assert {progress.total for progress in mine} == {total}


def test_what_no_entry_names_is_told_and_no_problem(store: MemoryStore, template: dict[str, bytes]) -> None:
    uuid = "00000000-0000-4000-8000-000000000000"
    directory = next(key for key in template if key_class(key) is KeyClass.DATA).split("/", maxsplit=1)[0]
    store.put(keys.data_key(directory, 3, uuid), b"12345")
    store.put(keys.snapshot_key(2, uuid), b"123")
    store.put("notes.txt", b"mine")
    report = verify_log(store)
    assert report.ok
    assert [(note.kind, note.count, note.bytes) for note in report.notes] == [
        ("orphans", 2, 8),
        ("strange", 1, 4),
    ]
    assert report.notes[1].examples == ("notes.txt",)


def test_a_log_that_is_written_to_has_no_problem(store: MemoryStore) -> None:
    """Writers commit, upload and take snapshots at every moment of the verification."""
    log = TxnLog.open(store)
    stop, written = threading.Event(), threading.Event()

    def write() -> None:
        with Producer(log, "busy") as producer:
            while not stop.is_set():
                with producer.transaction() as transaction:
                    transaction.send("t", rows(0, 2))
                take_snapshot(log)
                written.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reports = []
        for _ in range(3):
            written.clear()
            assert written.wait(300)  # else a busy machine may give the writer no turn
            reports.append(verify_log(store, deep=True))
    finally:
        stop.set()
        writer.join()
    assert [problem for report in reports for problem in report.problems] == []
    assert reports[-1].last_entry > reports[0].last_entry


# --- damage -------------------------------------------------------------------------------------------------


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def pick(template: dict[str, bytes], kind: KeyClass, which: int) -> str:
    """Return one object of a class: the first, the last, or one in the middle."""
    mine = sorted(key for key in template if key_class(key) is kind)
    return mine[which] if which < len(mine) else mine[-1]


OBJECTS = [
    (KeyClass.FORMAT, 0),
    (KeyClass.ENTRY, 0),
    (KeyClass.ENTRY, 7),
    (KeyClass.ENTRY, -2),
    (KeyClass.SNAPSHOT, 0),
    (KeyClass.SNAPSHOT, 1),
    (KeyClass.LATEST, 0),
    (KeyClass.BUNDLE, 0),
    (KeyClass.TABLE, 0),
    (KeyClass.SIDECAR, 0),
    (KeyClass.SIDECAR, 1),
    (KeyClass.SIDECAR, 2),
    (KeyClass.DATA, 0),
    (KeyClass.DATA, -1),
]


@pytest.mark.parametrize(("kind", "which"), OBJECTS)
@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "delete", "append"])
def test_damage_is_found_and_named(
    store: MemoryStore, template: dict[str, bytes], kind: KeyClass, which: int, damage: str
) -> None:
    key = pick(template, kind, which)
    data = template[key]
    if damage == "delete":
        store.delete(key)
    else:
        # Of a file the footer: what lies before it is for ``deep``.
        at = len(data) - 20 if kind is KeyClass.DATA else len(data) // 2
        store.put(
            key, {"flip": flip(data, at), "truncate": data[:at], "empty": b"", "append": data + b"x"}[damage]
        )
    report = verify_log(store)
    if (kind, damage) == (KeyClass.LATEST, "delete"):
        assert report.ok  # only a hint
        assert [note.kind for note in report.notes] == ["hint-missing"]
        return
    if (kind, damage) == (KeyClass.BUNDLE, "delete"):
        assert report.ok  # nobody relies on it
        return
    mine = [problem for problem in report.problems if problem.object == key]
    assert mine, report.problems
    assert all(problem.what and problem.hint for problem in mine)
    assert {problem.object for problem in report.problems} == {key}, report.problems
    if damage == "delete":
        assert mine[0].kind == "missing"
    if kind is KeyClass.ENTRY and which == 7:
        assert "its bytes, without a payload, are in _txnlog/bundles/" in mine[0].hint


@pytest.mark.parametrize(("kind", "which"), [one for one in OBJECTS if one[0] is not KeyClass.LATEST])
def test_objects_that_are_swapped_are_found_and_named(
    store: MemoryStore, template: dict[str, bytes], kind: KeyClass, which: int
) -> None:
    key = pick(template, kind, which)
    others = [other for other in template if other != key and key_class(other) is kind]
    other = others[0] if others else keys.entry_key(3)
    store.put(key, template[other])
    store.put(other, template[key])
    named = {problem.object for problem in verify_log(store).problems}
    assert {key, other} <= named


@pytest.mark.parametrize("kind", [KeyClass.FORMAT, KeyClass.ENTRY, KeyClass.LATEST])
def test_no_flipped_bit_of_a_document_goes_unseen(
    store: MemoryStore, template: dict[str, bytes], kind: KeyClass
) -> None:
    key = pick(template, kind, 5)
    data = template[key]
    for at in range(0, len(data), 17 if kind is KeyClass.ENTRY else 5):
        store.put(key, flip(data, at))
        assert key in {problem.object for problem in verify_log(store).problems}, (at, flip(data, at))


@pytest.mark.parametrize("which", [0, 2, -1])
def test_damage_inside_a_file_is_found_by_reading_it(
    store: MemoryStore, template: dict[str, bytes], which: int
) -> None:
    key = pick(template, KeyClass.DATA, which)
    data = len(template[key]) - 8 - int.from_bytes(template[key][-8:-4], "little")  # bytes before the footer
    for at in (5, data // 2, data - 1):
        store.put(key, flip(template[key], at))
        assert verify_log(store).ok
        assert ("wrong-hash", key) in found(verify_log(store, deep=True))


def test_several_kinds_of_damage_are_all_reported(store: MemoryStore, template: dict[str, bytes]) -> None:
    data, table = pick(template, KeyClass.DATA, 0), pick(template, KeyClass.TABLE, 0)
    store.delete(data)
    store.put(table, template[table][:-1])
    store.delete(keys.entry_key(4))
    store.delete(keys.entry_key(9))
    store.put(keys.LATEST_KEY, b"?")
    assert found(verify_log(store)) == {
        ("missing", keys.entry_key(4)),
        ("missing", keys.entry_key(9)),
        ("missing", data),
        ("wrong-size", table),
        ("hint-wrong", keys.LATEST_KEY),
    }


def test_lost_newest_entries_are_told_by_what_was_made_after_them(
    store: MemoryStore, template: dict[str, bytes]
) -> None:
    newest = keys.parse_snapshot_key(pick(template, KeyClass.SNAPSHOT, -1))
    assert newest is not None
    for key in template:
        number = keys.parse_entry_key(key)
        if number is not None and number >= newest.born:
            store.delete(key)
    assert ("missing", keys.entry_key(newest.born)) in found(verify_log(store))


def test_after_a_lost_entry_the_fold_goes_on_from_the_next_snapshot(
    store: MemoryStore, template: dict[str, bytes]
) -> None:
    """Damage behind the snapshot is found by its meaning, not only by its hash."""
    snapshots = sorted(key for key in template if key_class(key) is KeyClass.SNAPSHOT)
    first = keys.parse_snapshot_key(snapshots[0])
    assert first is not None
    store.delete(keys.entry_key(3))
    report = verify_log(store)
    assert found(report) == {("missing", keys.entry_key(3))}
    assert report.checked["partitions"] == 3


def test_a_truncated_log_is_verified_from_its_boundary(
    store: MemoryStore, template: dict[str, bytes]
) -> None:
    snapshots = sorted(key for key in template if key_class(key) is KeyClass.SNAPSHOT)
    first = keys.parse_snapshot_key(snapshots[0])
    assert first is not None
    store.create(keys.boundary_key(first.born), b"{}")
    for number in range(first.born - 2):
        store.delete(keys.entry_key(number))
    report = verify_log(store, deep=True)
    assert report.problems == ()
    assert report.first_entry == first.born
    assert report.checked["bundles"] == 1  # the deleted entries in it too
    assert report.checked["partitions"] == 3
    assert report.checked["files"] == sum(key_class(key) is KeyClass.DATA for key in template)
    assert [note.kind for note in report.notes] == ["deleted-entries", "below-boundary"]
    assert report.notes[0].count == first.born
    # A change of a deleted entry, of which only the bundle is left, breaks the chain to the entries that are
    # there.
    bundle = pick(template, KeyClass.BUNDLE, 0)
    at = template[bundle].index(b'"engine":"txnlog') + 11
    store.put(bundle, flip(template[bundle], at))
    assert found(verify_log(store)) == {("wrong-hash", bundle)}
    store.put(bundle, template[bundle])
    # What only the snapshot names is looked at too.
    oldest = pick(template, KeyClass.DATA, 0)
    store.delete(oldest)
    assert found(verify_log(store)) == {("missing", oldest)}
    store.delete(snapshots[0])
    store.delete(snapshots[1])
    assert {("missing", key) for key in snapshots} <= found(verify_log(store))


def test_a_log_that_is_truncated_meanwhile_has_no_problem(
    store: MemoryStore, template: dict[str, bytes]
) -> None:
    first = keys.parse_snapshot_key(pick(template, KeyClass.SNAPSHOT, 0))
    assert first is not None

    def truncate(operation: RequestKind, key: str, call: int) -> None:
        if operation is RequestKind.GET and key == keys.entry_key(0):
            store.create(keys.boundary_key(first.born), b"{}")
            for number in range(first.born):
                store.delete(keys.entry_key(number))

    report = verify_log(FaultyStore(store, truncate))
    assert report.problems == ()
    assert report.first_entry == first.born
    assert report.checked["partitions"] == 3


def test_a_store_that_denies_an_object_is_told_from_damage(
    store: MemoryStore, template: dict[str, bytes]
) -> None:
    denied = {pick(template, kind, -1) for kind in (KeyClass.TABLE, KeyClass.DATA, KeyClass.SNAPSHOT)}
    faulty = FaultyStore(
        store, lambda operation, key, call: Fault(FaultKind.PERMISSION_DENIED) if key in denied else None
    )
    assert found(verify_log(faulty)) == {("unreadable", key) for key in denied}


@pytest.mark.parametrize("deep", [False, True])
def test_directories_that_are_links_are_gone_through_or_told_as_links(
    tmp_path: Path, template: dict[str, bytes], deep: bool
) -> None:
    """As docs/storage.md has it: a topic's directory on another disk."""
    plain = LocalStore(tmp_path / "root")
    for key, data in template.items():
        plain.put(key, data)
    data_keys = {key for key in template if key_class(key) is KeyClass.DATA}
    snapshots = {key for key in template if key_class(key) is KeyClass.SNAPSHOT}
    for number, directory in enumerate(sorted({key.rpartition("/")[0] for key in data_keys | snapshots})):
        moved = (tmp_path / "root" / directory).rename(tmp_path / f"disk{number}")
        (tmp_path / "root" / directory).symlink_to(moved)
    followed = LocalStore(tmp_path / "root", follow_symlinks=True)
    assert [info.key for info in followed.list("")] == sorted(template)
    assert followed.list(keys.LOG_PREFIX) == plain.list(keys.LOG_PREFIX)
    report = verify_log(followed, deep=deep, clock=QuickClock())
    assert report.problems == ()
    assert report.checked["files"] == len(data_keys)
    # Without the option they are not read, and nothing of them is lost.
    report = verify_log(plain, deep=deep, clock=QuickClock())
    unreadable = {key for kind, key in found(report) if kind == "unreadable"}
    assert data_keys | snapshots <= unreadable
    assert not [one for one in report.problems if one.kind == "missing"]
    assert all("follow_symlinks" in str(one) and "restore" not in str(one) for one in report.problems)


@pytest.mark.parametrize("kind", [KeyClass.DATA, KeyClass.SNAPSHOT])
def test_what_is_gone_is_asked_for_again_where_the_store_fails(
    store: MemoryStore, template: dict[str, bytes], kind: KeyClass
) -> None:
    gone = pick(template, kind, -1)
    store.delete(gone)
    heads = [1]

    def fail(operation: RequestKind, key: str, call: int) -> Fault | None:
        if operation is not RequestKind.HEAD or key != gone or not heads:
            return None
        heads.pop()
        return Fault(FaultKind.FAIL_BEFORE)

    assert ("missing", gone) in found(verify_log(FaultyStore(store, fail), clock=QuickClock()))
    assert not heads
    heads += [1] * 100
    assert ("unreadable", gone) in found(verify_log(FaultyStore(store, fail), clock=QuickClock()))


def test_a_store_that_fails_now_and_then_is_no_damage(store: MemoryStore) -> None:
    faulty = FaultyStore(
        store, lambda operation, key, call: Fault(FaultKind.FAIL_BEFORE) if call in (1, 2) else None
    )
    assert verify_log(faulty, clock=QuickClock()).problems == ()


def test_what_is_in_the_way_of_the_next_entry_is_a_problem(
    tmp_path: Path, template: dict[str, bytes]
) -> None:
    store = LocalStore(tmp_path / "root")
    for key, data in template.items():
        store.put(key, data)
    last = max(number for key in template if (number := keys.parse_entry_key(key)) is not None)
    blocked = keys.entry_key(last + 1)
    (tmp_path / "root" / blocked).mkdir()
    assert found(verify_log(store, clock=QuickClock())) == {("unreadable", blocked)}
