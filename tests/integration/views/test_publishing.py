"""Publications: which entry, which files, how often; and what holds them back."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.integration.upkeep.vacuum_world import Interposed
from tests.integration.views.published import (
    actions,
    check,
    counted,
    counted_kinds,
    data_keys,
    fresh,
    rows,
    slow,
)
from tests.integration.views.tables import CASES, SCHEMA, path_of, write
from tests.older_logs import older_log
from tests.rounds import rounds, telling
from txnformat import keys
from txnformat.core.state import EMBEDDING
from txnformat.segments.payload import head_of, payload_of, with_payload
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import READS, KeyClass, RequestKind
from txnlog import (
    ConflictError,
    Producer,
    TxnLog,
)
from txnlog_testing.stores.counting import CountingStore


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


FOLLOWING = (KeyClass.ENTRY, KeyClass.BUNDLE, KeyClass.PAYLOADS)


def test_a_thousand_commits_cost_a_topic_four_requests() -> None:
    """Apart from following and sealing: a listing, a sidecar, the version, and the manifest, which both
    topics share. No footer is read."""
    memory = MemoryStore()
    store = CountingStore(memory)
    with TxnLog.create(memory) as log, TxnLog.open(store) as publisher, Producer(log, "many") as producer:
        schema = pa.schema([("n", pa.int64())])
        log.create_topic("embedded", schema)
        log.create_topic("files", schema, settings={"embed": "false"})

        def commit(number: int) -> None:
            with producer.transaction() as txn:
                txn.send("embedded", [{"n": number}])
                if number % 5 == 0:
                    txn.send("files", [{"n": number}])

        commit(0)
        publisher.publish()
        for number in range(1_000):
            commit(number)
        log.maintain("seal")
        publisher.refresh()
        with store.measure() as measured:
            report = publisher.publish()
        added = {one.topic: one.added for one in report.topics}
        assert added["files"] == 200
        assert 1 <= added["embedded"] <= 3
        spent = measured.counts
        following = sum(spent.count(RequestKind.GET, one) for one in FOLLOWING)
        assert spent.count() - following <= 4 * len(added), spent.requests
        assert not spent.count(None, KeyClass.DATA), spent.requests


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_embedded_records_behind_an_open_transaction_become_files_and_are_shown(
    log: TxnLog, outcome: str
) -> None:
    """Else one transaction that waits for its outcome would keep the tables of all topics at an old entry."""
    log.alter_topic("t", settings={"embed": "true"})
    write(log, rows(30), partition=0)
    with slow(log) as producer:
        for number in (32, 34):
            write(log, rows(number), partition=0)
            write(log, rows(number + 1), partition=1)
            assert any(file.place for file in log.refresh().files)
            report = fresh(log).publish()
            assert not report.held_back
            assert report.entry >= log.state.entry
            assert not any(file.place for file in log.refresh().files)
            check(log)
        getattr(producer, outcome)()
    assert not log.publish().held_back
    check(log)
    assert log.verify(deep=True).ok


def test_in_an_older_log_embedded_records_behind_an_open_transaction_lower_the_entry(tmp_path: Path) -> None:
    """It cannot spill them."""
    with older_log(tmp_path / "log", EMBEDDING) as log:
        log.create_topic("t", SCHEMA, partitions=2)
        write(log, rows(30), partition=0)
        with slow(log) as producer:
            write(log, rows(32), partition=0)
            write(log, rows(33), partition=1)
            report = log.publish()
            assert 0 <= report.entry < log.state.entry
            assert "entry" in report.held_back[0].reason
            check(log)
            producer.abort()
        assert not log.publish().held_back
        check(log)


def test_embedded_records_that_cannot_be_read_lower_the_entry(log: TxnLog) -> None:
    log.alter_topic("t", settings={"embed": "true"})
    with slow(log) as producer:
        before = log.refresh().entry
        write(log, rows(32), partition=0)
        key = keys.entry_key(log.refresh().entry)
        store = LocalStore(log.url.removeprefix("file://"))
        data = store.get(key) or b""
        store.put(key, with_payload(head_of(data), payload_of(data)[::-1]))
        report = fresh(log).publish()
        assert before <= report.entry < log.state.entry
        assert report.held_back
        check(log)
        store.put(key, data)
        report = fresh(log).publish()
        assert not report.held_back
        check(log)
        producer.abort()


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


def test_files_of_an_older_log_that_need_writing_anew_are_named(tmp_path: Path) -> None:
    log = older_log(tmp_path / "log", EMBEDDING)
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
    assert log.maintain("publish").published == ()
    log.create_topic("other", SCHEMA)
    log.alter_topic("t", settings={"publish.formats": "delta"})
    (published,) = log.maintain().published
    assert [one.topic for one in published.topics] == ["t"]
    check(log)
    log.store.create(keys.delta_version_key(log.state.topic("t").directory, 1), b"{}")
    log.alter_topic("other", settings={"publish.formats": "delta"})
    report = log.maintain("publish")
    assert [one.kind for one in report.damaged] == ["view-changed"]
    (published,) = report.published
    assert [one.topic for one in published.topics] == ["other"]


def test_paths_of_tables_have_no_escapes(tmp_path: Path) -> None:
    """Hadoop and clients of Iceberg take a percent sign as it is; deltalake opens no such path at all."""
    root = tmp_path / "x%20y"
    log = TxnLog.create(root)
    log.create_topic("t", pa.schema([("n", pa.int64())]))
    with Producer(log) as producer:
        producer.send("t", [{"n": 1}])
    log.publish()
    log.publish(format="iceberg")
    directory = log.state.topic("t").directory
    assert log.published_tables()["t"].path == f"file://{root}/{directory}"
    table = log.published_tables(format="iceberg")["t"]
    assert table.path.startswith(f"file://{root}/{directory}/")
    assert table.metadata is not None
    assert Path(table.metadata.removeprefix("file://")).exists()
