"""The worst that names can do: a column is dropped, and another one gets its name. No reader shows old values
under it, wherever the old records lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.older_logs import older_log
from txnformat.core import state
from txnformat.core.state import EMBEDDING
from txnformat.reading import dataset
from txnformat.store.memory import MemoryStore
from txnlog import ConflictError, Consumer, InvalidInputError, Producer, TxnLog, UnsupportedFeatureError
from txnlog_testing.stores.counting import CountingStore

SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string()), ("x", pa.int32())])
NOW = [{"id": n, "x": n, "note": None} for n in range(4)]
NEW = [{"id": 4, "x": 4, "note": "new"}]


def send(log: TxnLog, rows: list[dict[str, Any]], topic: str = "t", **settings: Any) -> None:
    with Producer(log, **settings) as producer:
        producer.send(topic, rows)


def another_note(log: TxnLog) -> None:
    log.alter_topic("t", drop=["note"])
    log.alter_topic("t", add_columns=[pa.field("note", pa.string())])


def _old(log: TxnLog, **settings: Any) -> None:
    """Two batches: one whose notes sort behind the new one, one whose notes sort before it."""
    send(log, [{"id": n, "x": n, "note": f"zzz {n}"} for n in range(2)], **settings)
    send(log, [{"id": n, "x": n, "note": f"aaa {n}"} for n in range(2, 4)], **settings)


def _in_files(log: TxnLog) -> None:
    _old(log, embed_bytes=0)


def _sealed(log: TxnLog) -> None:
    _in_files(log)
    log.maintain("seal")


def _embedded(log: TxnLog) -> None:
    _old(log)
    assert any(file.place is not None for file in log.state.files)


def _unembedded(log: TxnLog) -> None:
    _old(log)
    log.maintain("seal")
    assert all(file.place is None for file in log.state.files)


def _compacted(log: TxnLog) -> None:
    _old(log)
    log.compact("t", min_lag_ms=0)


PLACES: dict[str, Callable[[TxnLog], None]] = {
    "in files": _in_files,
    "sealed": _sealed,
    "in entries": _embedded,
    "from entries to files": _unembedded,
    "compacted": _compacted,
}
AFTER: dict[str, Callable[[TxnLog], object]] = {
    "as they are": lambda log: None,
    "sealed later": lambda log: log.maintain("seal"),
    "compacted later": lambda log: log.compact("t", min_lag_ms=0),
}


@pytest.fixture(params=PLACES)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TxnLog]:
    log = TxnLog.create(tmp_path / "log", embedding=True)
    log.create_topic("t", SCHEMA)
    PLACES[request.param](log)
    yield log
    report = log.verify(deep=True)
    assert report.ok, report.problems
    log.close()


def polled(consumer: Consumer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while some := consumer.poll_dicts(0):
        found += [{name: row[name] for name in ("id", "x", "note")} for row in some]
    return found


@pytest.mark.parametrize("after", AFTER)
def test_another_column_of_a_name_is_null_in_all_older_records(log: TxnLog, after: str) -> None:
    another_note(log)
    AFTER[after](log)
    send(log, NEW)
    rows = NOW + NEW
    for one in (log, TxnLog.open(log.store)):
        assert one.read("t").read_all().to_pylist() == rows
        assert one.read("t", columns=["note"]).read_all().to_pylist() == [
            {"note": row["note"]} for row in rows
        ]
        assert one.read("t", isolation="snapshot").read_all().to_pylist() == rows
        assert one.read("t", version_as_of=one.state.entry).read_all().to_pylist() == rows
        assert one.read("t", where="note IS NULL").read_all().to_pylist() == NOW
        assert one.read("t", where="note IS NOT NULL").read_all().to_pylist() == NEW
        assert one.read("t", where="note = 'new'", columns=["id"]).read_all().to_pylist() == [{"id": 4}]
        assert one.read("t", where="note >= 'zzz'").read_all().to_pylist() == []
        assert one.read("t", where="note < 'b'").read_all().to_pylist() == []
        assert one.dataset("t").to_table().to_pylist() == rows
        assert one.dataset("t", where="note IS NOT NULL").to_table().to_pylist() == NEW
        assert one.dataset("t", columns=["id", "x"]).to_table().num_rows == 5
    with Consumer(log) as consumer:
        consumer.subscribe(["t"])
        assert polled(consumer) == rows


def test_a_consumer_that_reads_again_has_the_columns_of_now(log: TxnLog) -> None:
    """Its open files are those that it had before: they are opened anew for the new names."""
    reader = TxnLog.open(log.store)
    with Consumer(reader) as consumer:
        consumer.subscribe(["t"])
        assert [row["note"] for row in polled(consumer)] == ["zzz 0", "zzz 1", "aaa 2", "aaa 3"]
        another_note(log)
        log.alter_topic("t", rename={"id": "key"})
        log.alter_topic("t", rename={"x": "id"})
        log.alter_topic("t", rename={"key": "x"})
        send(log, [{"x": 40, "id": 4, "note": "new"}])
        reader.refresh()
        assert polled(consumer) == [{"x": 40, "id": 4, "note": "new"}]
        consumer.seek("t", 0, 0)
        assert polled(consumer)[:4] == NOW


def test_a_batch_of_a_consumer_has_no_two_columns_of_one_name() -> None:
    """Of one partition records are planned already when the column is dropped; those of the other one come in
    a batch of their own."""
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", pa.schema([("id", pa.int64()), ("note", pa.string())]), partitions=2)
    for partition in range(2):
        with Producer(log) as producer:
            producer.send("t", [{"id": n, "note": "old"} for n in range(3)], partition=partition)
    with Consumer(log) as consumer:
        consumer.subscribe(["t"])
        first = consumer.poll(0, max_records=1)
        assert first is not None
        another_note(log)
        batches = []
        while (batch := consumer.poll(0)) is not None:
            batches.append(batch)
    assert [set(batch.column("note").to_pylist()) for batch in batches if batch.num_rows == 3] == [{None}]
    assert all(len(set(batch.column("note").to_pylist())) == 1 for batch in batches)
    assert sum(batch.num_rows for batch in batches) == 5
    log.close()


def test_columns_that_change_their_names_keep_their_values(log: TxnLog) -> None:
    log.alter_topic("t", rename={"id": "key", "x": "id_was"})
    log.alter_topic("t", rename={"note": "x", "id_was": "id"})
    send(log, [{"key": 4, "x": "new", "id": 40}])
    rows = [(n, ("zzz" if n < 2 else "aaa") + f" {n}", n) for n in range(4)] + [(4, "new", 40)]
    wanted = [{"key": key, "x": x, "id": id_} for key, x, id_ in rows]
    for later in AFTER.values():
        later(log)
        fresh = TxnLog.open(log.store)
        assert fresh.read("t").read_all().to_pylist() == wanted
        assert fresh.read("t", where="x >= 'zzz'").read_all().to_pylist() == wanted[:2]
        assert fresh.read("t", where="id > 2", columns=["_offset", "key"]).read_all().to_pylist() == [
            {"_offset": 3, "key": 3},
            {"_offset": 4, "key": 4},
        ]
        assert fresh.dataset("t").to_table().to_pylist() == wanted
        assert fresh.dataset("t", columns=["id"]).to_table().column("id").to_pylist() == [0, 1, 2, 3, 40]


def test_a_snapshot_from_before_keeps_its_names_and_says_what_a_compaction_took(log: TxnLog) -> None:
    before = log.snapshot()
    rows = before.read("t").read_all().to_pylist()
    assert rows[0] == {"id": 0, "note": "zzz 0", "x": 0}
    another_note(log)
    log.alter_topic("t", rename={"x": "y"})
    assert before.read("t").read_all().to_pylist() == rows
    assert before.read("t", where="note >= 'zzz'").read_all().num_rows == 2
    send(log, [{"id": n, "y": n, "note": "new"} for n in range(4, 10)])
    assert before.read("t").read_all().to_pylist() == rows
    log.compact("t", min_lag_ms=0)
    assert before.read("t", columns=["x", "id"]).read_all().to_pylist() == [
        {"x": row["x"], "id": row["id"]} for row in rows
    ]
    for arguments in ({"columns": ["note"]}, {"columns": ["id"], "where": "note IS NULL"}, {}):
        with pytest.raises(ConflictError) as caught:
            before.read("t", **arguments).read_all()
        assert (caught.value.kind, caught.value.values["column"]) == ("column-dropped", "note")
    with pytest.raises(ConflictError):
        before.dataset("t")
    assert before.dataset("t", columns=["id"]).to_table().num_rows == 4


# --- producers ----------------------------------------------------------------------------------------------


@pytest.fixture
def plain() -> Iterator[TxnLog]:
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", SCHEMA, partitions=2, key_columns=["id"])
    yield log
    report = log.verify(deep=True)
    assert report.ok, report.problems
    log.close()


@pytest.mark.parametrize("buffer", ["auto", "inline", "deferred"])
@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("grows", [False, True])
def test_rows_that_wait_are_written_by_place(plain: TxnLog, buffer: str, flush: bool, grows: bool) -> None:
    """They were sent under names that are others at the commit, or were distributed anew since."""
    other = TxnLog.open(plain.store)
    with Producer(plain, "p", buffer=buffer, linger_ms=3_600_000) as producer:
        producer.begin()
        producer.send("t", [{"id": 1, "note": "old", "x": 10}])
        producer.send("t", pa.table({"id": [2], "note": ["old"], "x": [20]}))
        if flush:
            producer.flush()
        another_note(other)
        other.alter_topic("t", rename={"id": "key"})
        other.alter_topic("t", rename={"x": "id"}, partitions=7 if grows else None)
        plain.refresh()
        producer.send("t", [{"key": 3, "note": "new", "id": 30}])
        with pytest.raises(InvalidInputError) as caught:
            producer.send("t", [{"id": 4, "note": "old", "x": 40}])
        assert caught.value.kind == "schema-mismatch"
        producer.send("t", [{"key": 5, "id": 50}])
        producer.commit()
    found = sorted(plain.read("t").read_all().to_pylist(), key=lambda row: int(row["key"]))
    assert found == [
        {"key": 1, "id": 10, "note": None},
        {"key": 2, "id": 20, "note": None},
        {"key": 3, "id": 30, "note": "new"},
        {"key": 5, "id": 50, "note": None},
    ]


def test_keys_stay_where_they_are_when_their_column_gets_another_name(plain: TxnLog) -> None:
    for number in range(3):
        name = ("id", "key", "k")[number]
        send(plain, [{name: key, "x": number} | ({"note": None}) for key in range(20)])
        plain.alter_topic("t", rename={name: ("id", "key", "k", "last")[number + 1]})
    rows = plain.read("t", columns=["last", "_partition"]).read_all().to_pylist()
    places = {(row["last"], row["_partition"]) for row in rows}
    assert len(rows) == 60
    assert len(places) == 20


def test_only_the_latest_record_of_a_key_stays_whatever_the_key_is_called(plain: TxnLog) -> None:
    settings: dict[str, int | str] = {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": 0,
        "min.cleanable.dirty.ratio": "0",
    }
    plain.create_topic(
        "keys", pa.schema([("k", pa.string()), ("gone", pa.bool_()), ("v", pa.int64())]),
        key_columns=["k"], settings={**settings, "tombstone.column": "gone", "delete.retention.ms": 0},
    )  # fmt: skip
    send(plain, [{"k": f"k{n}", "gone": False, "v": n} for n in range(4)], "keys")
    plain.maintain("seal")
    with pytest.raises(InvalidInputError):
        plain.alter_topic("keys", rename={"gone": "dead"})
    plain.alter_topic("keys", rename={"k": "v2", "gone": "dead"}, settings={"tombstone.column": "dead"})
    plain.alter_topic("keys", rename={"v": "k", "v2": "key"})
    send(plain, [{"key": "k1", "dead": False, "k": 10}, {"key": "k2", "dead": True, "k": None}], "keys")
    plain.compact("keys", min_lag_ms=0)
    rows = plain.read("keys").read_all().to_pylist()
    assert [(row["key"], row["dead"], row["k"]) for row in rows] == [
        ("k0", False, 0),
        ("k3", False, 3),
        ("k1", False, 10),
        ("k2", True, None),
    ]
    plain.compact("keys", min_lag_ms=0)
    send(plain, [{"key": "k9", "dead": False, "k": 9}], "keys")
    plain.compact("keys", min_lag_ms=0)
    assert "k2" not in plain.read("keys").read_all().column("key").to_pylist()


# --- erasures, upkeep ---------------------------------------------------------------------------------------


def test_an_erasure_finds_records_by_the_columns_of_now_and_holds_their_names(plain: TxnLog) -> None:
    send(plain, [{"id": n, "note": "secret" if n == 1 else "x", "x": n} for n in range(4)])
    plain.alter_topic("t", rename={"note": "text"})
    plain.alter_topic("t", add_columns=[pa.field("note", pa.string())])
    send(plain, [{"id": 9, "text": "x", "x": 9, "note": "secret"}])
    report = plain.erase("t", "text = 'secret'", requested_by="me")
    left = {row["id"]: row for row in plain.read("t").read_all().to_pylist()}
    assert sorted(left) == [0, 2, 3, 9]
    assert left[9]["note"] == "secret"
    for change in ({"rename": {"text": "other"}}, {"drop": ["text"]}):
        with pytest.raises(InvalidInputError, match="in the condition of an erasure"):
            plain.alter_topic("t", **change)
    assert report.status is not None
    plain.abandon_erasure(report.status.erasure_id, requested_by="me")
    plain.alter_topic("t", drop=["text"])


def test_an_erasure_whose_condition_is_about_another_column_by_now_stops(plain: TxnLog) -> None:
    """The names change between its first look and its request."""
    send(plain, [{"id": n, "note": "secret", "x": n} for n in range(2)])
    send(plain, [{"id": n, "note": "x", "x": n} for n in range(2, 4)])
    eraser = TxnLog.open(plain.store)
    commit = eraser.committer.commit

    def after_a_rename(intent: Any) -> Any:
        if type(intent.action).__name__ == "RequestErasure":
            plain.alter_topic("t", rename={"note": "text"})
            plain.alter_topic("t", add_columns=[pa.field("note", pa.string())])
        return commit(intent)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eraser.committer, "commit", after_a_rename)
        with pytest.raises(ConflictError) as caught:
            eraser.erase("t", "note = 'secret'", requested_by="me")
    assert caught.value.kind == "column-changed"
    assert plain.read("t").read_all().num_rows == 4


def test_the_time_of_records_is_their_column_whatever_that_is_called() -> None:
    log = TxnLog.create(MemoryStore(), embedding=True)
    log.create_topic(
        "t", pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))]), timestamp_column="at"
    )
    send(log, [{"n": 1, "at": 1_000_000}])
    log.alter_topic("t", rename={"at": "moment"})
    log.alter_topic("t", rename={"n": "at"})
    send(log, [{"at": 2, "moment": 2_000_000}])
    for later in AFTER.values():
        later(log)
        found = log.read(
            "t", columns=["_timestamp", "at"], where="_timestamp < TIMESTAMP '1970-01-01 00:00:02Z'"
        )
        assert [(row["at"], row["_timestamp"].timestamp()) for row in found.read_all().to_pylist()] == [
            (1, 1.0)
        ]
    assert log.state.topic("t").schema.timestamp_column == "moment"
    assert log.verify(deep=True).ok
    log.close()


def test_names_do_not_change_before_an_older_log_is_upgraded() -> None:
    log = older_log(MemoryStore(), EMBEDDING)
    log.create_topic("t", SCHEMA)
    with pytest.raises(UnsupportedFeatureError) as caught:
        log.alter_topic("t", drop=["note"])
    assert caught.value.kind == "upgrade-required"
    assert "upgrade --columns" in str(caught.value)
    assert log.upgrade(columns=True)
    assert not log.upgrade(columns=True)
    log.alter_topic("t", drop=["note"])
    log.close()


def test_a_client_that_does_not_know_places_refuses_the_log_by_the_name_of_the_feature(
    plain: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = state.KNOWN_FEATURES
    monkeypatch.setattr(state, "KNOWN_FEATURES", type(known)(*(names - {"columns-1"} for names in known)))
    with pytest.raises(UnsupportedFeatureError) as caught:
        TxnLog.open(plain.store)
    assert caught.value.values["features"] == ["columns-1"]
    monkeypatch.undo()


def test_a_description_has_the_places_and_what_was_dropped(plain: TxnLog) -> None:
    another_note(plain)
    plain.alter_topic("t", rename={"x": "y"})
    (topic,) = plain.describe().topics
    assert topic.places == {"id": 0, "y": 2, "note": 3}
    assert [(one.place, one.name, one.type) for one in topic.dropped] == [(1, "note", "string")]


def test_a_dataset_does_not_take_any_number_of_renamed_files_into_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dataset, "RENAMED_BYTES_MAX", 100)
    store = CountingStore(MemoryStore())
    log = TxnLog.create(store)
    log.create_topic("t", SCHEMA)
    send(log, [{"id": n, "note": "old", "x": n} for n in range(10)], embed_bytes=0)
    log.alter_topic("t", rename={"x": "y"})
    assert log.dataset("t", columns=["id", "note"]).to_table().num_rows == 10
    with pytest.raises(ConflictError) as caught:
        log.dataset("t")
    assert caught.value.kind == "renamed-columns"
    log.compact("t", min_lag_ms=0)
    assert log.dataset("t").to_table().column("y").to_pylist() == list(range(10))
    log.close()
