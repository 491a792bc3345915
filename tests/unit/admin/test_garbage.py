"""What a vacuum makes of each object, from values alone."""

from __future__ import annotations

import uuid

import pytest

from txnformat import keys
from txnformat.admin.garbage import Fate, Garbage, Judge, Kind, Known, Limits, Why
from txnformat.core.operations import Checkpoint
from txnformat.core.state import LogState
from txnformat.core.wire.small_documents import CondemnedDocument
from txnformat.persistent import replace
from txnformat.store.base import ObjectInfo
from txnformat.store.unfinished import UnfinishedUpload

UUID = str(uuid.UUID(int=7, version=4))
SHA = "0" * 64
LIMITS = Limits(floor=10, old_entry=12, old_ms=1_000)


def file(born: int) -> str:
    return keys.data_key("orders-0a1b2c3d", born, UUID)


def lists(*entries: tuple[int, int, str]) -> dict[str, CondemnedDocument]:
    """Return lists of condemned objects by entry, time and key."""
    return {
        keys.condemned_key(entry, UUID): CondemnedDocument(1, UUID, entry, timestamp_ms, (key,))
        for entry, timestamp_ms, key in entries
    }


def judged(
    *keys_: str,
    live: set[str] | None = None,
    condemned: dict[str, CondemnedDocument] | None = None,
    uploads: tuple[UnfinishedUpload, ...] = (),
    named: tuple[int, ...] = (),
    sound: bool = True,
) -> tuple[dict[str, tuple[Fate, Kind, str]], Garbage]:
    state = replace(
        LogState("log", 20),
        checkpoints=tuple(Checkpoint(entry, keys.snapshot_key(entry, UUID), 1, SHA, SHA) for entry in named),
    )
    condemned = condemned or {}
    sizes = dict.fromkeys([*keys_, *condemned], 5)
    objects = [ObjectInfo(*one) for one in sizes.items()]
    judge = Judge(state, LIMITS, snapshots_sound=sound)
    known = Known(live or set())
    for key, document in condemned.items():
        number = judge.list_of(key, document)
        for named_key in document.keys:
            known.condemned.setdefault(named_key, []).append(number)
    gone_uploads = judge.uploads(uploads)
    garbage = judge.part(objects, known)
    done_lists = judge.done_lists()
    rows = judge.rows.sorted()
    found = {key: (row.fate, row.kind, row.why) for row in rows for key in row.examples}
    assert sum(row.objects for row in rows) == len(sizes) + len(uploads)
    assert sum(row.bytes for row in rows) == 5 * len(sizes)
    gone = {key for key, what in found.items() if what[0] is Fate.DELETED}
    assert gone == {*garbage.delete, *done_lists, *(upload.key for upload in gone_uploads)}
    assert {key for key, what in found.items() if what[0] is Fate.CONDEMNED} == set(garbage.condemn)
    return found, garbage


@pytest.mark.parametrize(
    ("born", "entry", "expected"),
    [
        (9, None, (Fate.CONDEMNED, Why.UNNAMED_NOW)),
        (10, None, (Fate.KEPT, Why.YOUNG)),
        (9, 12, (Fate.DELETED, Why.UNNAMED)),
        (9, 13, (Fate.KEPT, Why.WAITING)),
        (10, 12, (Fate.KEPT, Why.YOUNG)),
    ],
)
@pytest.mark.parametrize("kind", ["data", "table", "index", "markers", "txnindex"])
def test_an_object_goes_when_it_is_below_the_floor_and_was_condemned_by_an_old_entry(
    born: int, entry: int | None, expected: tuple[Fate, Why], kind: str
) -> None:
    key = {
        "data": file(born),
        "table": keys.table_key(born, UUID),
    }.get(kind) or keys.sidecar_key("orders-0a1b2c3d", born, UUID, kind)
    condemned = {} if entry is None else lists((entry, 0, key))
    found, _ = judged(key, condemned=condemned)
    assert (found[key][0], found[key][2]) == expected
    for name in condemned:
        assert (found[name][0] is Fate.DELETED) == (expected[0] is Fate.DELETED)


@pytest.mark.parametrize("entry", [None, 1])
def test_what_is_live_stays_whatever_a_list_says(entry: int | None) -> None:
    key = file(1)
    found, _ = judged(key, live={key}, condemned={} if entry is None else lists((entry, 0, key)))
    assert found[key] == (Fate.KEPT, Kind.FILE, Why.LIVE)


def test_a_list_goes_when_none_of_its_objects_is_left() -> None:
    gone, left = file(3), keys.table_key(4, UUID)
    found, _ = judged(left, condemned=lists((11, 0, gone), (14, 0, left)))
    assert [found[name][0] for name in lists((11, 0, gone), (14, 0, left))] == [Fate.DELETED, Fate.KEPT]


@pytest.mark.parametrize(
    ("entry", "timestamp_ms", "expected"),
    [(12, 1_000, Fate.DELETED), (12, 1_001, Fate.KEPT), (99, 1_000, Fate.DELETED), (None, 0, Fate.CONDEMNED)],
)
def test_a_probe_goes_by_the_time_of_its_list(entry: int | None, timestamp_ms: int, expected: Fate) -> None:
    """The log may be quiet for long: its entries do not tell how old a probe is."""
    key = keys.probe_key(UUID)
    found, _ = judged(key, condemned={} if entry is None else lists((entry, timestamp_ms, key)))
    assert found[key][:2] == (expected, Kind.PROBE)


@pytest.mark.parametrize(
    ("named", "sound", "gone"),
    [
        ((), True, set()),
        ((5,), True, set()),
        ((5, 8), True, {3}),
        ((8, 15), True, {3, 5}),
        ((15, 18), True, {3, 5, 8}),  # the floor is 10
        ((8, 15), False, set()),
    ],
)
def test_snapshots_go_below_the_two_newest_and_the_floor(
    named: tuple[int, ...], sound: bool, gone: set[int]
) -> None:
    born = (3, 5, 8, 11, 15)
    found, _ = judged(*(keys.snapshot_key(entry, UUID) for entry in born), named=named, sound=sound)
    assert {entry for entry in born if found[keys.snapshot_key(entry, UUID)][0] is Fate.DELETED} == gone


def test_the_log_itself_and_what_is_foreign_stay() -> None:
    ours = (keys.FORMAT_KEY, keys.LATEST_KEY, keys.entry_key(0), keys.bundle_key(0, 99), keys.boundary_key(3))
    foreign = ("a.txt", file(1) + ".bak", "_txnlog/tables/x", "_txnlog/void/1", "sub/" + file(1))
    found, _ = judged(*ours, *foreign)
    assert {found[key][:2] for key in ours} == {(Fate.KEPT, Kind.LOG)}
    assert {found[key][:2] for key in foreign} == {(Fate.KEPT, Kind.FOREIGN)}


@pytest.mark.parametrize(
    ("upload", "ours"),
    [
        (UnfinishedUpload(file(1), "id", 0), True),
        (UnfinishedUpload(keys.snapshot_key(1, UUID), "id", 0), True),
        (UnfinishedUpload("photos/holiday.jpg", "id", 0), False),
        (UnfinishedUpload(f"_txnlog/log/.tmp-{UUID}", "", 0), True),
        (UnfinishedUpload(f"_txnlog/.tmp-{UUID}", "", 0), True),
        (UnfinishedUpload(f"orders-0a1b2c3d/data/.tmp-{UUID}", "", 0), True),
        (UnfinishedUpload(f"orders-0a1b2c3d/.tmp-{UUID}", "", 0), False),
        (UnfinishedUpload(f"orders/data/.tmp-{UUID}", "", 0), False),
        (UnfinishedUpload("_txnlog/log/.tmp-mine", "", 0), False),
        (UnfinishedUpload(f".tmp-{UUID}", "", 0), False),
    ],
)
def test_unfinished_uploads_go_if_they_are_to_keys_of_txnlog(upload: UnfinishedUpload, ours: bool) -> None:
    found, _ = judged(uploads=(upload,))
    assert found[upload.key][0] is (Fate.DELETED if ours else Fate.KEPT)
