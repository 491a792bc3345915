"""Publications: which entry, which files, how often; what holds them back, what they refuse, and what other programs may do to a table."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.integration.upkeep.vacuum_world import Interposed
from tests.integration.views.tables import CASES, READERS, SCHEMA, expected, path_of, row, write
from tests.rounds import rounds, telling
from txnformat import keys
from txnformat.store.local import LocalStore
from txnformat.store.requests import READS, KeyClass, RequestKind
from txnlog import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    Producer,
    StorageError,
    TxnLog,
)
from txnlog_testing.stores.counting import CountingStore

READ = READERS["deltalake"]


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [row(n) for n in numbers]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[TxnLog]:
    log = TxnLog.create(tmp_path / "log")
    log.upgrade()
    log.create_topic("t", SCHEMA, partitions=2, settings={"embed": "false"})
    write(log, rows(*range(10)), partition=0)
    yield log
    log.close()
    report = log.verify()
    assert report.ok, report.problems


def data_keys(log: TxnLog) -> set[str]:
    return {info.key for info in log.store.list("") if keys.parse_data_key(info.key) is not None}


def actions(log: TxnLog, version: int, kind: str, topic: str = "t") -> list[dict[str, Any]]:
    key = keys.delta_version_key(log.state.topic(topic).directory, version)
    lines = [json.loads(line) for line in (log.store.get(key) or b"").splitlines()]
    return [line[kind] for line in lines if kind in line]


def check(log: TxnLog, topic: str = "t") -> None:
    """The table shows the snapshot at the manifest's entry."""
    table = log.published_tables()[topic]
    assert READ(table) == expected(log, table)


def fresh(log: TxnLog, store: Any = None) -> TxnLog:
    return TxnLog.open(LocalStore(log.url.removeprefix("file://")) if store is None else store)


def counted(log: TxnLog, call: Callable[[TxnLog], Any]) -> list[tuple[RequestKind, str]]:
    """Return the requests of a call by a process that has just opened the log."""
    store = Interposed(LocalStore(log.url.removeprefix("file://")))
    other = TxnLog.open(store)
    store.seen.clear()
    call(other)
    other.close()
    return store.seen


def counted_kinds(log: TxnLog) -> list[tuple[RequestKind, str]]:
    """Return the kinds of the requests of a publication in a process of its own, with those that open the log; it happens."""
    store = Interposed(LocalStore(log.url.removeprefix("file://")))
    with TxnLog.open(store) as other:
        other.publish()
    return store.kinds


def test_no_file_of_parquet_is_copied(log: TxnLog) -> None:
    write(log, rows(1, 2), commit=False)
    before = data_keys(log)
    store = CountingStore(log.store)
    with TxnLog.open(store) as other:
        assert other.publish().compacted_parts == 0
    assert store.counts.bytes_written(KeyClass.DATA) == 0
    assert store.counts.bytes_read(KeyClass.DATA) == 0
    assert data_keys(log) == before
    check(log)


def test_a_repeated_publication_writes_nothing(log: TxnLog) -> None:
    first = log.publish()
    seen = counted(log, lambda other: other.publish())
    assert not [one for one in seen if one[0] not in READS]
    again = fresh(log).publish()
    assert (again.entry, again.manifest) == (first.entry, first.manifest)
    assert [(one.version, one.is_new) for one in again.topics] == [(0, False)]


def test_a_topic_without_changes_keeps_its_version_in_the_manifest_of_a_later_entry(log: TxnLog) -> None:
    log.create_topic("quiet", SCHEMA)
    log.publish()
    write(log, rows(20, 21))
    report = log.publish()
    assert {one.topic: (one.version, one.is_new) for one in report.topics} == {
        "quiet": (0, False),
        "t": (1, True),
    }
    tables = log.published_tables()
    assert {table.entry for table in tables.values()} == {report.entry}
    for topic in tables:
        check(log, topic)


def test_a_known_table_costs_few_requests(log: TxnLog) -> None:
    """4 for a topic at most, apart from following and sealing."""
    store = CountingStore(LocalStore(log.url.removeprefix("file://")))
    with TxnLog.open(store) as other:
        other.publish()
        for number in range(30):
            write(other, rows(100 + number))
        other.committer.seal()
        other.plan("t", isolation="snapshot")  # reads the sidecars of the seal
        before = store.counts
        report = other.publish()
        assert report.topics[0].added == 30
        spent = store.counts - before
    following = spent.count(RequestKind.GET, KeyClass.ENTRY)
    assert spent.count() - following <= 4, spent.requests


def test_embedded_records_behind_an_open_transaction_lower_the_entry(log: TxnLog) -> None:
    log.upgrade(embedding=True)
    log.alter_topic("t", settings={"embed": "true"})
    write(log, rows(30), partition=0)
    with slow(log) as producer:
        before = log.refresh().entry
        write(log, rows(32), partition=0)
        write(log, rows(33), partition=1)
        report = log.publish()
        assert before <= report.entry < log.state.entry
        assert "entry" in report.held_back[0].reason
        check(log)
        producer.abort()
    assert not log.publish().held_back
    check(log)


@contextmanager
def slow(log: TxnLog, *numbers: int) -> Iterator[Producer]:
    """A transaction that is open in partition 0, in files of its own."""
    with Producer(log, "slow", buffer="inline") as producer:
        producer.begin()
        producer.send("t", rows(*numbers or (31,)), partition=0)
        producer.flush()
        yield producer


def test_a_file_that_cannot_be_written_anew_lowers_the_entry(log: TxnLog) -> None:
    """Its column was widened, and it is behind an open transaction, so that it cannot be sealed."""
    with slow(log) as producer:
        before = log.refresh().entry
        write(log, rows(32), partition=0)
        write(log, rows(33), partition=1)
        log.alter_topic("t", widen={"n": pa.int64()})
        report = log.publish()
        assert before <= report.entry < log.state.entry
        (held,) = report.held_back
        assert "slow" in held.waits_for
        assert "widened" in held.reason
        check(log)
        assert log.publish().entry == report.entry
        producer.commit()
    report = log.publish()
    assert report.entry == log.state.entry
    assert not report.held_back
    check(log)


def test_a_table_never_goes_back_to_an_older_entry(log: TxnLog) -> None:
    with slow(log) as producer:
        write(log, rows(32), partition=0)
        entry = log.publish().entry
        log.alter_topic("t", widen={"n": pa.int64()})
        write(log, rows(33), partition=1)
        with pytest.raises(ConflictError, match="slow") as caught:
            log.publish()
        assert caught.value.kind == "view-held-back"
        assert log.published_tables()["t"].entry == entry
        producer.abort()
    assert log.publish().entry > entry
    check(log)


def test_without_an_upgrade_files_that_need_writing_anew_are_named(tmp_path: Path) -> None:
    log = TxnLog.create(tmp_path / "log")
    log.create_topic("t", pa.schema([("n", pa.int16())]))
    write(log, [{"n": 1}])
    log.alter_topic("t", widen={"n": pa.int32()})
    write(log, [{"n": 70_000}])
    report = log.publish()
    assert "txnlog upgrade" in report.held_back[0].waits_for
    assert report.entry < log.state.entry
    check(log)
    log.upgrade()
    report = log.publish()
    assert report.compacted_parts == 1
    assert not report.held_back
    check(log)


def test_a_compaction_is_published_as_no_change_of_data(log: TxnLog) -> None:
    write(log, rows(10, 11))
    log.publish()
    log.compact("t", min_lag_ms=0)
    write(log, rows(12))
    report = log.publish()
    assert report.topics[0].removed >= 2
    assert {one["dataChange"] for one in actions(log, 1, "remove")} == {False}
    by_rows = {json.loads(one["stats"])["numRecords"]: one["dataChange"] for one in actions(log, 1, "add")}
    assert by_rows == {12: False, 1: True}
    check(log)


@pytest.mark.parametrize("how", ["trim", "erase", "keys"])
def test_removed_records_are_a_change_of_data(log: TxnLog, how: str) -> None:
    if how == "keys":
        log.create_topic(
            "k", SCHEMA, key_columns=["n"], settings={"cleanup.policy": "compact", "embed": "false"}
        )
        write(log, rows(1, 2), topic="k")
        write(log, rows(1), topic="k")
        topic = "k"
    else:
        topic = "t"
        write(log, rows(50, 51))
    log.publish(topic)
    if how == "trim":
        log.delete_records("t", {0: 3})
    elif how == "erase":
        log.erase("t", "n = 50", requested_by="a test", key="ab" * 16)
    else:
        log.compact("k", min_lag_ms=0)
    log.publish(topic)
    check(log, topic)
    assert {one["dataChange"] for one in actions(log, 1, "remove", topic)} == {True}


def test_of_two_publishers_one_makes_the_version_and_both_end(log: TxnLog) -> None:
    """At each request of a publication another process publishes, first the same entry, then a later one."""
    log.publish()
    write(log, rows(60))
    kinds = counted_kinds(log)
    assert (RequestKind.CREATE, True) in {(operation, "_delta_log" in key) for operation, key in kinds}
    numbers = rounds(telling(kinds), list(range(len(kinds))))
    for later in (False, True):
        for number in numbers:
            write(log, rows(number + 60))
            before = fresh(log).published_tables()["t"].version

            def other(later: bool = later) -> None:
                with fresh(log) as another:
                    if later:
                        write(another, rows(0))
                    another.publish()

            store = Interposed(LocalStore(log.url.removeprefix("file://")), number, other)
            with TxnLog.open(store) as first:
                report = first.publish()
            newest = fresh(log).published_tables()["t"]
            assert newest.entry >= report.entry
            assert newest.version - before in (1, 2)
            entries = [actions(log, version, "txn")[0]["version"] for version in range(newest.version + 1)]
            assert entries == sorted(set(entries))
        check(log)


def test_tables_of_one_manifest_show_whole_transactions(log: TxnLog) -> None:
    log.create_topic("other", SCHEMA)
    for number in range(5):
        with Producer(log, "both") as producer:
            producer.begin()
            producer.send("t", rows(1_000 + number))
            producer.send("other", rows(1_000 + number))
            producer.commit()
        report = log.publish()
        tables = log.published_tables(report.entry)
        seen = [
            {
                n
                for n in DeltaTable(path_of(one), version=one.version).to_pyarrow_table()["n"].to_pylist()
                if n >= 1_000
            }
            for one in tables.values()
        ]
        assert seen[0] == seen[1] == set(range(1_000, 1_001 + number))


def test_a_manifest_of_some_topics_is_joined_by_one_of_all(log: TxnLog) -> None:
    log.create_topic("other", SCHEMA)
    first = log.publish("t")
    second = log.publish()
    assert first.entry == second.entry
    assert first.manifest != second.manifest
    assert set(log.published_tables(first.entry)) == {"t", "other"}
    assert log.publish("t").manifest == second.manifest or log.published_tables()


def test_there_is_a_clear_answer_before_the_first_publication(log: TxnLog) -> None:
    with pytest.raises(NotFoundError, match="txnlog publish") as caught:
        log.published_tables()
    assert caught.value.kind == "not-published"
    report = log.publish()
    with pytest.raises(NotFoundError, match=str(report.entry)):
        log.published_tables(report.entry + 1)


def append(path: str) -> None:
    write_deltalake(path, pa.Table.from_pylist(rows(1), SCHEMA), mode="append")


def overwrite(path: str) -> None:
    write_deltalake(path, pa.Table.from_pylist(rows(1), SCHEMA), mode="overwrite")


FOREIGN: dict[str, Callable[[str], Any]] = {
    "append": append,
    "overwrite": overwrite,
    "optimize": lambda path: DeltaTable(path).optimize.compact(),
    "z-order": lambda path: DeltaTable(path).optimize.z_order(["n"]),
    "delete": lambda path: DeltaTable(path).delete("n > 3"),
    "update": lambda path: DeltaTable(path).update({"text": "'x'"}),
    "restore": lambda path: DeltaTable(path).restore(0),
    "properties": lambda path: DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "true"}),
    "vacuum": lambda path: DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False),
    "checkpoint": lambda path: DeltaTable(path).create_checkpoint(),
    "cleanup": lambda path: DeltaTable(path).cleanup_metadata(),
}


HARMLESS = ("checkpoint", "cleanup")


@pytest.mark.parametrize("what", FOREIGN)
def test_what_another_program_does_is_refused_or_harmless(log: TxnLog, what: str) -> None:
    log.publish()
    log.compact("t", min_lag_ms=0)
    write(log, rows(10, 11))
    log.publish()
    before = {info.key for info in log.store.list("")}
    path = path_of(log.published_tables()["t"])
    if what in HARMLESS:
        FOREIGN[what](path)
    else:
        with pytest.raises(Exception, match=r"(?i)txnlog.readOnly|feature|writer"):
            FOREIGN[what](path)
    after = {info.key for info in log.store.list("")}
    assert before <= after
    assert not {key for key in after - before if "_delta_log" not in key}
    check(log)
    write(log, rows(12))
    log.publish()
    check(log)
    assert fresh(log).publish().topics[0].version == 2


def test_a_version_of_another_program_is_refused_and_named_and_a_rebuild_states_everything_anew(
    log: TxnLog,
) -> None:
    log.publish()
    directory = log.state.topic("t").directory
    (path,) = (
        {one["path"] for one in actions(log, 0, "add")}
        if len(actions(log, 0, "add")) == 1
        else {actions(log, 0, "add")[0]["path"]}
    )
    foreign = (
        {"commitInfo": {"engineInfo": "other/1.0", "operation": "DELETE"}},
        {"remove": {"path": path, "dataChange": True, "deletionTimestamp": 1}},
    )
    key = keys.delta_version_key(directory, 1)
    log.store.create(key, "\n".join(map(json.dumps, foreign)).encode())
    write(log, rows(20))
    for one in (log, fresh(log)):
        with pytest.raises(ConflictError, match=key) as caught:
            one.publish()
        assert caught.value.kind == "view-changed"
    report = log.publish(rebuild=True)
    assert report.topics[0].version == 2
    check(log)
    write(log, rows(21))
    assert fresh(log).publish().topics[0].version == 3
    check(log)


def test_a_damaged_version_is_named_and_a_rebuild_writes_a_checkpoint_behind_it(log: TxnLog) -> None:
    log.publish()
    directory = log.state.topic("t").directory
    log.store.create(keys.delta_version_key(directory, 1), b"{no json")
    from txnlog import CorruptDataError

    with pytest.raises(CorruptDataError) as caught:
        fresh(log).publish()
    assert caught.value.kind == "corrupt-view"
    assert log.publish(rebuild=True).topics[0].version == 2
    check(log)
    assert log.store.head(keys.delta_checkpoint_key(directory, 2)) is not None


def test_one_in_fifty_versions_has_a_checkpoint(log: TxnLog) -> None:
    for number in range(52):
        write(log, rows(number))
        log.publish()
    directory = log.state.topic("t").directory
    found = {
        name.version
        for info in log.store.list(keys.delta_prefix(directory))
        if (name := keys.delta_name(info.key)) is not None and name.is_checkpoint
    }
    assert found == {50}
    hint = json.loads(log.store.get(keys.delta_hint_key(directory)) or b"")
    assert hint["version"] == 50
    check(log)
    seen = counted(log, lambda other: other.publish())
    assert (
        len([one for one in seen if "_delta_log" in one[1]]) == 3
    )  # the listing, the checkpoint, version 51
    for version in range(50):
        log.store.delete(keys.delta_version_key(directory, version))
    check(log)
    write(log, rows(99))
    assert fresh(log).publish().topics[0].version == 52
    check(log)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.field("c", pa.time64("us")), "time64"),
        (pa.field("c", pa.duration("us")), "duration"),
        (pa.field("c", pa.list_(pa.field("element", pa.duration("us")))), "c.element"),
        (pa.field("a b", pa.int64()), "a b"),
    ],
)
def test_a_column_that_delta_does_not_have_is_refused_by_name(
    log: TxnLog, column: pa.Field, words: str
) -> None:
    log.create_topic("odd", pa.schema([column]))
    with pytest.raises(InvalidInputError, match=words) as caught:
        log.publish("odd")
    assert caught.value.kind == "unsupported-view-schema"
    report = log.publish()
    assert [name for name, _ in report.refused] == ["odd"]
    assert [one.topic for one in report.topics] == ["t"]


@pytest.mark.parametrize("format_", ["iceberg", "", 1, None])
def test_an_unknown_format_is_refused(log: TxnLog, format_: Any) -> None:
    with pytest.raises(InvalidInputError, match="delta") as caught:
        log.publish(format=format_)
    assert caught.value.kind == "unknown-view-format"


def test_nothing_to_publish_and_unknown_topics_are_refused(tmp_path: Path) -> None:
    log = TxnLog.create(tmp_path / "log")
    with pytest.raises(InvalidInputError) as caught:
        log.publish()
    assert caught.value.kind == "nothing-to-publish"
    with pytest.raises(NotFoundError) as missing:
        log.publish("nothing")
    assert missing.value.kind == "unknown-topic"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_root_that_cannot_be_written_to_is_a_clear_error(log: TxnLog) -> None:
    log.committer.seal()
    directory = Path(log.url.removeprefix("file://")) / log.state.topic("t").directory
    mode = directory.stat().st_mode
    directory.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="_delta_log"):
            fresh(log).publish()
    finally:
        directory.chmod(mode)
    assert log.publish().topics[0].version == 0


def test_tables_need_no_more_than_the_first_reader_version_unless_a_column_does(tmp_path: Path) -> None:
    log = CASES["nested"](tmp_path / "log")
    log.create_topic("plain", SCHEMA)
    log.publish()
    plain, nested = (actions(log, 0, "protocol", topic)[0] for topic in ("plain", "t"))
    assert plain == {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["txnlog.readOnly"]}
    assert nested == {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["timestampNtz"],
        "writerFeatures": ["timestampNtz", "txnlog.readOnly"],
    }


def test_maintenance_publishes_the_topics_that_ask_for_it(log: TxnLog) -> None:
    assert log.maintain("publish").published is None
    log.create_topic("other", SCHEMA)
    log.alter_topic("t", settings={"publish.formats": "delta"})
    report = log.maintain()
    assert report.published is not None
    assert [one.topic for one in report.published.topics] == ["t"]
    check(log)
    log.store.create(keys.delta_version_key(log.state.topic("t").directory, 1), b"{}")
    log.alter_topic("other", settings={"publish.formats": "delta"})
    report = log.maintain("publish")
    assert [one.kind for one in report.damaged] == ["view-changed"]
    assert report.published is not None
    assert [one.topic for one in report.published.topics] == ["other"]
