"""The vacuum: what goes and when, what it says, what stops it, and the objects that are not named by
entries.
"""

from __future__ import annotations

import datetime
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clients.failing import ENTRY, NUMBERS, Plan, rows
from tests.integration.upkeep.vacuum_world import GRACE, Interposed, World, new_key, one_by_one, unnamed
from tests.model.groups import ManualClock
from tests.older_logs import older_log
from txnformat import keys
from txnformat.admin.garbage import Fate, Kind, VacuumReport
from txnformat.client.committer import UPLOAD_VIEW_MS_MAX
from txnformat.core.state import LIFECYCLE, Features, LogState
from txnformat.core.wire.small_documents import encode_condemned
from txnformat.persistent import replace
from txnformat.store.base import ObjectStore
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import READS, KeyClass, RequestKind, key_class
from txnformat.store.wrapped import WrappedStore
from txnlog import (
    CommitStateUnknownError,
    CorruptDataError,
    InvalidInputError,
    Producer,
    StorageError,
    TxnLog,
    TxnLogError,
    UnsupportedFeatureError,
)
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore


@pytest.fixture
def world() -> Iterator[World]:
    with one_by_one():
        yield World()


def counts(report: VacuumReport, fate: Fate) -> dict[Kind, int]:
    return {row.kind: row.objects for row in report.rows if row.fate is fate}


def changed(world: World, log: TxnLog | None = None) -> set[str]:
    """Return the keys of the root, to be compared later."""
    return {info.key for info in world.store.list("")}


def test_what_nothing_names_is_condemned_and_after_the_grace_deleted(world: World) -> None:
    garbage = unnamed(world.log)
    assert len(garbage) == 17
    world.wait()
    first = world.log.vacuum(GRACE)
    assert counts(first, Fate.CONDEMNED) == {Kind.FILE: 5, Kind.TABLE: 10, Kind.SIDECAR: 2}
    assert counts(first, Fate.DELETED) == {}
    assert (first.floor, first.entry) == (world.log.state.entry - 1, world.log.state.entry)
    assert unnamed(world.log) == garbage
    again = world.log.vacuum(GRACE)
    assert again.count(Fate.CONDEMNED) == again.count(Fate.DELETED) == 0, "the grace is not over"
    assert len(list(world.store.list(keys.CONDEMNED_PREFIX))) == 1, "each is condemned once"
    world.wait()
    second = world.log.vacuum(GRACE)
    assert counts(second, Fate.DELETED) == {**counts(first, Fate.CONDEMNED), Kind.CONDEMNED: 1}
    assert unnamed(world.log) == set()
    assert not world.store.list(keys.CONDEMNED_PREFIX)
    world.check()
    world.commit_open()


def test_before_the_grace_is_over_nothing_is_condemned(world: World) -> None:
    before = changed(world)
    report = world.log.vacuum(GRACE)
    assert {row.fate for row in report.rows} == {Fate.KEPT}
    assert (report.floor, changed(world)) == (0, before)


def test_a_dry_run_tells_all_of_it_and_changes_nothing(world: World) -> None:
    world.wait()
    for _ in range(2):
        before = changed(world)
        foretold = world.log.vacuum(GRACE, dry_run=True)
        assert (changed(world), foretold.dry_run) == (before, True)
        done = world.log.vacuum(GRACE)
        for fate in (Fate.CONDEMNED, Fate.DELETED):
            assert counts(foretold, fate) == counts(done, fate)
        world.wait()


def test_a_vacuum_without_garbage_writes_nothing(world: World) -> None:
    world.finish()
    world.wait()
    entry, before = world.log.refresh().entry, changed(world)
    store = Interposed(world.store)
    world.opened(store).vacuum(GRACE)
    assert (world.log.refresh().entry, changed(world)) == (entry, before)
    assert {operation for operation, _ in store.seen} <= READS


def test_foreign_objects_are_named_and_stay(world: World) -> None:
    foreign = {
        "notes.txt",
        "orders-0a1b2c3d/data/mine.parquet",
        "orders-0a1b2c3d/data/00000000000000000001.parquet",
        "_txnlog/tables/readme",
        "sub/" + new_key("orders-0a1b2c3d", 0),
        f"_orders-0a1b2c3d/data/00000000000000000000-{uuid.uuid4()}.parquet",
        f"orders-0a1b2c3d/data/00000000000000000000-{uuid.uuid4()}.parquet.bak",
        "_txnlog/void/00000000000000000001",
    }
    for key in foreign:
        world.store.create(key, b"1234")
    for _ in range(3):
        world.wait()
        report = world.log.vacuum(GRACE)
        (row,) = (row for row in report.rows if row.kind is Kind.FOREIGN)
        assert (row.fate, row.objects, row.bytes) == (Fate.KEPT, len(foreign), 4 * len(foreign))
        assert set(row.examples) <= foreign
        assert report.to_dict()["rows"][-1]["kind"]
    assert foreign <= changed(world)


def test_old_snapshots_go_but_for_the_two_newest(world: World) -> None:
    for number in range(4):
        world.append(1_000 + number, world.log)
        world.log.committer._write_snapshot()
    world.log.refresh()
    named = [one.key for one in world.log.state.checkpoints]
    world.store.create(keys.snapshot_key(1, str(uuid.uuid4())), b"never named")
    assert len(world.store.list(keys.SNAPSHOT_PREFIX)) == 5
    world.log.vacuum(GRACE)
    assert len(world.store.list(keys.SNAPSHOT_PREFIX)) == 5, "they are not old"
    world.wait()
    report = world.log.vacuum(GRACE)
    assert counts(report, Fate.DELETED) == {Kind.SNAPSHOT: 3}
    assert [info.key for info in world.store.list(keys.SNAPSHOT_PREFIX)] == named
    assert world.opened().verify().ok


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("damaged", [None, b"damaged"])
def test_old_snapshots_stay_while_a_newer_one_is_not_sound(
    world: World, number: int, damaged: bytes | None
) -> None:
    for at in range(3):
        world.append(1_000 + at, world.log)
        world.log.committer._write_snapshot()
    world.wait()
    world.store.delete(key := world.log.refresh().checkpoints[number].key)
    if damaged:
        world.store.create(key, damaged)
    before = len(world.store.list(keys.SNAPSHOT_PREFIX))
    assert Kind.SNAPSHOT not in counts(world.log.vacuum(GRACE), Fate.DELETED)
    assert len(world.store.list(keys.SNAPSHOT_PREFIX)) == before


def test_a_probe_that_was_left_goes_when_it_was_there_for_the_grace(world: World) -> None:
    world.finish()
    key = keys.probe_key(str(uuid.uuid4()))
    world.wait()
    world.wait()
    world.store.create(key, b"left")
    assert counts(world.log.vacuum(GRACE), Fate.CONDEMNED) == {Kind.PROBE: 1}
    assert counts(world.log.vacuum(GRACE), Fate.DELETED) == {}, "however quiet the log is"
    world.wait()
    assert counts(world.log.vacuum(GRACE), Fate.DELETED) == {Kind.PROBE: 1, Kind.CONDEMNED: 1}
    assert key not in changed(world)


def test_temporary_files_of_killed_uploads_go_when_they_are_old(tmp_path: Path) -> None:
    clock = ManualClock()
    store = LocalStore(tmp_path, clock)
    log = TxnLog.create(store, clock=clock)
    directory = log.create_topic("t", NUMBERS).directory
    with Producer(log) as producer:
        producer.send("t", rows(1))
    names = {
        name: tmp_path / place / f".tmp-{name}"
        for name, place in {
            str(uuid.uuid4()): place
            for place in ("_txnlog", "_txnlog/log", f"{directory}/data", f"{directory}/segments")
        }.items()
    }
    kept = [tmp_path / "_txnlog/log/.tmp-mine", tmp_path / ".tmp-x", tmp_path / "a/b/.tmp-y"]
    young = tmp_path / f"{directory}/data/.tmp-{uuid.uuid4()}"
    for path in (*names.values(), *kept, young):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")
        seconds = clock.now().wall_ms / 1_000 - (10 if path is young else 7_201)
        os.utime(path, (seconds, seconds))
    report = log.vacuum(GRACE)
    assert counts(report, Fate.DELETED) == {Kind.UPLOAD: 4}
    assert not any(path.exists() for path in names.values())
    assert all(path.exists() for path in (*kept, young))
    strange = [row for row in report.rows if row.kind is Kind.UPLOAD and row.fate is Fate.KEPT]
    assert [row.objects for row in strange] == [3]
    assert [row["n"] for row in log.read("t").read_all().to_pylist()] == [1]


def test_a_store_that_cannot_list_its_uploads_is_vacuumed_nevertheless(world: World) -> None:
    class Lacking(MemoryStore):
        def unfinished_uploads(self, before_ms: int) -> list[object]:
            raise StorageError("permission denied", kind="permission-denied")

    store = Lacking(world.clock)
    for info in world.store.list(""):
        store.create(info.key, world.store.get(info.key) or b"")
    world.wait()
    report = TxnLog.open(store, clock=world.clock).vacuum(GRACE)
    assert report.count(Fate.CONDEMNED)
    (note,) = report.notes
    assert "permission denied" in note


# --- what stops it ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grace", "kind"),
    [
        (datetime.timedelta(minutes=119), "grace-too-short"),
        (datetime.timedelta(0), "grace-too-short"),
        (datetime.timedelta(seconds=-1), "invalid-grace"),
        (3_600, "invalid-grace"),
        (None, "invalid-grace"),
    ],
)
def test_a_grace_that_is_too_short_or_none_is_refused(world: World, grace: object, kind: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        world.log.vacuum(grace)  # type: ignore[arg-type]
    assert caught.value.kind == kind


def test_a_short_grace_needs_consent(world: World) -> None:
    short = datetime.timedelta(0)
    for _ in range(3):
        world.clock.sleep(1)
        world.log.vacuum(short, allow_short_grace=True)
    assert unnamed(world.log) == set()
    world.commit_open()


def test_an_older_log_must_be_upgraded_first() -> None:
    log = older_log(MemoryStore())
    with pytest.raises(UnsupportedFeatureError) as caught:
        log.vacuum()
    assert caught.value.kind == "upgrade-required"


def test_a_log_whose_maintenance_needs_more_is_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older program must not delete what it does not know to be in use."""
    state = world.log.refresh()
    base = frozenset({"base-1", LIFECYCLE})
    other: LogState = replace(state, features=Features(base, base, base | {"views-1"}))
    monkeypatch.setattr(type(world.log.committer), "refresh", lambda _: other)
    world.wait()
    before = changed(world)
    with pytest.raises(UnsupportedFeatureError, match="maintenance features"):
        world.log.vacuum(GRACE)
    assert changed(world) == before


def metadata(world: World) -> list[str]:
    """Return what a vacuum has to read: lists, their leaves, indexes of live segments, lists of condemned
    objects, and the entries that it asks for times."""
    store = Interposed(world.store)
    world.opened(store).vacuum(GRACE, dry_run=True)
    classes = {KeyClass.TABLE, KeyClass.SIDECAR, KeyClass.CONDEMNED}
    return sorted(
        {key for operation, key in store.seen if operation is RequestKind.GET and key_class(key) in classes}
    )


def test_metadata_that_cannot_be_read_stops_it_before_the_first_deletion(world: World) -> None:
    world.wait()
    world.log.vacuum(GRACE)
    world.wait()
    wanted = metadata(world)
    assert {key.split("/")[1] for key in wanted} == {"tables", "segments", "condemned"}
    for key in wanted:
        data = world.store.get(key)
        assert data is not None
        for damaged in (None, b"", data[:-1], data[:-9] + bytes(9)):
            if damaged is None and keys.parse_condemned_key(key):
                continue  # another vacuum has finished with it
            other = world.copied()
            other.store.delete(key)
            if damaged is not None:
                other.store.create(key, damaged)
            store = Interposed(other.store)
            with pytest.raises(CorruptDataError):
                other.opened(store).vacuum(GRACE)
            assert store.deletes == []
        plan = Plan()
        faulty = FaultyStore(world.store, plan)
        log = world.opened(faulty)
        plan.always(RequestKind.GET, key_class(key), Fault(FaultKind.PERMISSION_DENIED))
        with pytest.raises(StorageError):
            log.vacuum(GRACE)
        assert not plan.seen[RequestKind.DELETE, KeyClass.DATA]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"log_id": "3e0f7d52-5f0b-4a0a-8f3c-2b0a3c4d5e6f"}, "log_id"),
        ({"entry": 4}, "entry"),
        ({"keys": ["a/b"]}, "not one that a txnlog writer makes"),
        ({"keys": [keys.FORMAT_KEY]}, "not one that a txnlog writer makes"),
        ({"keys": [new_key("t-0a1b2c3d", 5), new_key("t-0a1b2c3d", 4)]}, "ascending"),
        ({"keys": []}, "keys"),
    ],
)
def test_a_list_that_no_vacuum_writes_stops_it(world: World, changes: dict[str, object], what: str) -> None:
    values = {"log_id": world.log.log_id, "entry": 3, "timestamp_ms": 5, "keys": [new_key("t-0a1b2c3d", 0)]}
    data = encode_condemned(**{**values, **changes})  # type: ignore[arg-type]
    world.store.create(keys.condemned_key(3, str(uuid.uuid4())), data)
    world.wait()
    before = changed(world)
    with pytest.raises(CorruptDataError, match=what):
        world.log.vacuum(GRACE, dry_run=True)
    store = Interposed(world.store)
    with pytest.raises(CorruptDataError, match=what):
        world.opened(store).vacuum(GRACE)
    assert (store.deletes, changed(world) - before) == ([], {keys.entry_key(world.log.refresh().entry)})


def test_a_list_of_what_is_in_use_deletes_nothing(world: World) -> None:
    """Condemned objects are judged again: a list alone is no reason."""
    named = sorted(one.key for one in (*world.log.state.files, *world.log.state.tables))
    data = encode_condemned(world.log.log_id, 3, 5, named)
    world.store.create(keys.condemned_key(3, str(uuid.uuid4())), data)
    world.finish()
    world.commit_open()


@pytest.mark.parametrize("kind", [FaultKind.APPLIED_LOST_ANSWER, FaultKind.FAIL_BEFORE])
def test_a_mark_of_which_nobody_knows_whether_it_landed_deletes_nothing(
    world: World, kind: FaultKind
) -> None:
    world.wait()
    world.log.vacuum(GRACE)
    world.append(9, world.log)
    world.wait()
    plan = Plan()

    def fail(key: str) -> None:
        if keys.parse_entry_key(key) is not None:
            plan.always(RequestKind.GET, KeyClass.ENTRY, Fault(FaultKind.FAIL_BEFORE))

    log = world.opened(FaultyStore(world.store, plan, before_create=fail))
    before = changed(world)
    plan.next(*ENTRY, Fault(kind))
    plan.always(*ENTRY, Fault(FaultKind.FAIL_BEFORE))
    with pytest.raises(CommitStateUnknownError):
        log.vacuum(GRACE)
    assert before <= changed(world)
    plan.clear()
    assert world.opened().vacuum(GRACE).count(Fate.DELETED)


def test_a_mark_that_is_known_not_to_have_landed_stops_it(world: World) -> None:
    world.wait()
    plan = Plan()
    log = world.opened(FaultyStore(world.store, plan))
    plan.always(*ENTRY, Fault(FaultKind.PERMISSION_DENIED))
    before = changed(world)
    with pytest.raises(TxnLogError):
        log.vacuum(GRACE)
    assert changed(world) == before


# --- writers ------------------------------------------------------------------------------------------------


def test_a_writer_whose_view_is_old_looks_for_news_before_it_uploads(world: World) -> None:
    log = world.opened()
    other = world.opened()
    for waited_ms, news in ((0, False), (UPLOAD_VIEW_MS_MAX, False), (UPLOAD_VIEW_MS_MAX + 1, True)):
        log.refresh()
        world.append(100, other)
        world.clock.sleep(waited_ms / 1_000)
        before = log.state.entry
        assert log.committer.born() == (other.state.entry if news else before)


def test_a_writer_uploads_with_an_old_view_while_the_store_cannot_be_asked(world: World) -> None:
    plan = Plan()
    log = world.opened(FaultyStore(world.store, plan))
    world.append(100, world.opened())
    world.clock.sleep(UPLOAD_VIEW_MS_MAX)
    plan.always(RequestKind.GET, KeyClass.ENTRY, Fault(FaultKind.FAIL_BEFORE))
    assert log.committer.born() == log.state.entry


def test_verify_says_what_a_vacuum_took_and_misses_what_it_could_not_take(world: World) -> None:
    world.finish()
    report = world.opened().verify()
    (note,) = (note for note in report.notes if note.kind == "vacuumed")
    assert note.count >= 10
    assert report.ok
    for key in metadata(world):
        other = world.copied()
        other.store.delete(key)
        problems = other.opened().verify().problems
        assert key in {problem.object for problem in problems}
    files = {one.key for one in world.log.state.files}
    live = [info.key for info in world.store.list("t-") if keys.parse_data_key(info.key)]
    for key in {*live} | files:
        other = world.copied()
        other.store.delete(key)
        assert key in {problem.object for problem in other.opened().verify().problems}


@pytest.mark.parametrize("sealed", [True, False])
def test_all_objects_of_a_deleted_topic_go_and_none_of_another(world: World, sealed: bool) -> None:
    world.log.create_topic("gone", NUMBERS)
    for number in range(3):
        with Producer(world.log) as producer:
            producer.send("gone", rows(number))
        if sealed:
            world.log.maintain("seal")
    prefix = world.log.state.topic("gone").directory
    world.wait()
    world.log.vacuum(GRACE)
    reader = world.opened().read("gone")
    world.log.delete_topic("gone")
    world.store.create(new_key(prefix, world.log.state.entry - 1), b"uploaded, and too late")
    assert world.opened().verify().ok
    world.append(9, world.log)
    world.log.vacuum(GRACE)
    assert reader.read_all()["n"].to_pylist() == [0, 1, 2], "what was planned goes on"
    for _ in range(3):
        world.wait()
        world.log.vacuum(GRACE)
    assert not world.store.list(prefix)
    assert unnamed(world.log) == set()
    report = world.opened().verify(deep=True)
    assert report.ok, report.problems
    assert world.log.create_topic("gone", NUMBERS).directory != prefix


def test_maintenance_vacuums_once_in_a_day_or_when_it_is_asked_for(world: World) -> None:
    log = world.opened()
    first = log.maintain()
    assert first.vacuum is not None
    assert first.vacuum.grace_ms == 7 * 24 * 3_600_000
    assert log.maintain().vacuum is None
    assert log.maintain("seal").vacuum is None
    assert log.maintain("vacuum").vacuum is not None
    world.clock.sleep(24 * 3_600 - 1)
    assert log.maintain().vacuum is None
    world.clock.sleep(1)
    assert log.maintain().vacuum is not None
    for _ in range(3):
        world.clock.sleep(7 * 24 * 3_600 + 1)
        log.maintain()
    assert unnamed(log) == set()


def test_maintenance_of_an_older_log_deletes_nothing() -> None:
    log = older_log(MemoryStore())
    for report in (log.maintain(), log.maintain("vacuum")):
        assert report.vacuum is None
        assert "vacuum" in {one.task for one in report.skipped}


class Settling(WrappedStore):
    """A store whose time is estimated: each look finds the estimate too high by a few ms, as Date headers
    narrow it down."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._looks = 0

    def store_time_ms(self) -> int:
        self._looks += 1
        return self._inner.store_time_ms() - 5 * self._looks


def test_an_estimate_of_the_time_that_falls_stops_no_vacuum_and_no_truncation(world: World) -> None:
    world.wait()
    store = Settling(world.store)
    log = world.opened(store)
    at_once = datetime.timedelta(0)
    condemned = log.vacuum(at_once, allow_short_grace=True)
    assert counts(condemned, Fate.CONDEMNED) == {Kind.FILE: 5, Kind.TABLE: 10, Kind.SIDECAR: 2}
    assert condemned.floor == log.state.entry - 1, "the newest entry that it had seen"
    world.append(9, log)
    world.clock.sleep(1)
    deleted = log.vacuum(at_once, allow_short_grace=True)
    assert sum(counts(deleted, Fate.DELETED).values()) >= 17
    assert log.truncate(datetime.timedelta(days=7), dry_run=True).entry == log.state.entry
    assert log.verify(deep=True).ok
