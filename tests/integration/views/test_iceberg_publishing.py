"""Publications as Iceberg tables: which files, how often, by how many at once; and beside Delta tables."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.upkeep.vacuum_world import Interposed
from tests.integration.views.published import (
    check,
    check_iceberg,
    counted,
    counted_kinds,
    data_keys,
    fresh,
    iceberg_table,
    rows,
)
from tests.integration.views.tables import SCHEMA, opened, write
from tests.rounds import rounds, telling
from txnformat import keys
from txnformat.store.local import LocalStore
from txnformat.store.requests import READS, KeyClass, RequestKind
from txnformat.views.iceberg_metadata import decode_metadata
from txnlog import Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore

PUBLISHER = """
import json, sys
from txnlog import Producer, TxnLog
from tests.integration.views.tables import row, write
with TxnLog.open(sys.argv[1]) as log:
    sys.stdin.readline()
    for number in range(int(sys.argv[3])):
        write(log, [row(int(sys.argv[2]) + number)], name=sys.argv[2])
        report = log.publish(format="iceberg")
        (one,) = report.topics
        print(json.dumps([report.entry, one.version, one.is_new, one.superseded_by]), flush=True)
"""


def test_no_file_of_parquet_is_copied(log: TxnLog) -> None:
    write(log, rows(1, 2), commit=False)
    before = data_keys(log)
    store = CountingStore(log.store)
    with TxnLog.open(store) as other:
        assert other.publish(format="iceberg").compacted_parts == 0
    assert store.counts.bytes_written(KeyClass.DATA) == 0
    assert store.counts.bytes_read(KeyClass.DATA) == 0
    assert data_keys(log) == before
    check_iceberg(log)


def test_a_repeated_publication_writes_nothing(log: TxnLog) -> None:
    first = log.publish(format="iceberg")
    seen = counted(log, lambda other: other.publish(format="iceberg"))
    assert not [one for one in seen if one[0] not in READS]
    again = fresh(log).publish(format="iceberg")
    assert (again.entry, again.manifest) == (first.entry, first.manifest)
    assert [(one.version, one.is_new) for one in again.topics] == [(1, False)]


def test_a_known_table_costs_few_requests(log: TxnLog) -> None:
    """6, apart from following and sealing: the listing, manifest, manifest list, metadata file and hint of
    the topic, and the manifest of the publication."""
    store = CountingStore(LocalStore(log.url.removeprefix("file://")))
    with TxnLog.open(store) as other:
        other.publish(format="iceberg")
        for number in range(30):
            write(other, rows(100 + number))
        other.committer.seal()
        other.plan("t", isolation="snapshot")  # reads the sidecars of the seal
        before = store.counts
        report = other.publish(format="iceberg")
        assert report.topics[0].added == 30
        spent = store.counts - before
        following = spent.count(RequestKind.GET, KeyClass.ENTRY)
        assert spent.count() - following <= 6, spent.requests
        before = store.counts
        assert not other.publish(format="iceberg").topics[0].is_new
        spent = store.counts - before
        following = spent.count(RequestKind.GET, KeyClass.ENTRY)
        assert spent.count() - following <= 2, spent.requests


def test_a_table_never_goes_back_and_of_two_publishers_one_makes_the_version(log: TxnLog) -> None:
    """At each request of a publication another process publishes, first the same entry, then a later one."""
    log.publish(format="iceberg")
    write(log, rows(60))
    kinds = counted_kinds(log, "iceberg")
    assert (RequestKind.CREATE, True) in {(operation, "_iceberg" in key) for operation, key in kinds}
    numbers = rounds(telling(kinds), list(range(len(kinds))))
    for later in (False, True):
        for number in numbers:
            write(log, rows(number + 60))
            before = fresh(log).published_tables(format="iceberg")["t"].version

            def other(later: bool = later) -> None:
                with fresh(log) as another:
                    if later:
                        write(another, rows(0))
                    another.publish(format="iceberg")

            store = Interposed(LocalStore(log.url.removeprefix("file://")), number, other)
            with TxnLog.open(store) as first:
                report = first.publish(format="iceberg")
            newest = fresh(log).published_tables(format="iceberg")["t"]
            assert newest.entry >= report.entry
            assert newest.version - before in (1, 2)
            assert fresh(log).publish(format="iceberg").topics[0].version == newest.version  # mends the hint
            metadata = iceberg_table(log).metadata
            assert metadata is not None
            entries = [one.entry for one in metadata.snapshots]
            assert entries == sorted(entries)
        check_iceberg(log)


def test_processes_that_publish_at_once_make_one_row_of_versions(log: TxnLog, tmp_path: Path) -> None:
    """Each version is made by one process, shows a later entry than the one before, and has all of its
    records."""
    log.publish(format="iceberg")
    root, turns = log.url.removeprefix("file://"), 6
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PUBLISHER, root, str(1_000 * number), str(turns)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        for number in (1, 2)
    ]
    try:
        for one in running:
            assert one.stdin is not None
            one.stdin.write("begin\n")
            one.stdin.flush()
        told = [json.loads(line) for one in running for line in one.communicate()[0].splitlines()]
    finally:
        for one in running:
            one.kill()
            one.wait()
    assert [one.returncode for one in running] == [0, 0]
    made = sorted(version for _, version, is_new, _ in told if is_new)
    assert made == list(range(2, len(made) + 2))
    assert fresh(log).publish(format="iceberg").topics[0].version == max(made)
    log.refresh()
    check_iceberg(log)
    directory = log.state.topic("t").directory
    entries = []
    for version in (1, *made):
        key = keys.iceberg_version_key(directory, version)
        metadata = decode_metadata(log.store.get(key) or b"", key)
        assert metadata.snapshot is not None
        entries.append(metadata.snapshot.entry)
        shown = log.read("t", isolation="snapshot", version_as_of=entries[-1]).read_all()
        assert metadata.snapshot.summary["total-records"] == str(len(shown))
    assert entries == sorted(set(entries))
    for entry, version, _, superseded_by in told:
        assert (superseded_by or entry) >= entry
        assert entries[version - 1] <= (superseded_by or entry)


def test_a_compaction_is_a_snapshot_that_replaces_and_new_records_one_that_appends(log: TxnLog) -> None:
    write(log, rows(10, 11))
    first = log.publish(format="iceberg")
    log.compact("t", min_lag_ms=0)
    write(log, rows(12))
    log.publish(format="iceberg")
    table = opened(log.published_tables(format="iceberg")["t"])
    assert [
        (one.summary.operation.value, one.summary["txnlog.entry"])
        for one in table.snapshots()
        if one.summary is not None
    ] == [("append", str(first.entry)), ("replace", str(first.entry)), ("append", str(log.state.entry))]
    (replaced,) = [
        one for one in table.snapshots() if one.summary and one.summary.operation.value == "replace"
    ]
    assert table.scan(snapshot_id=replaced.snapshot_id).to_arrow().num_rows == 12
    check_iceberg(log)


@pytest.mark.parametrize("how", ["trim", "erase"])
def test_removed_records_are_a_change_of_data(log: TxnLog, how: str) -> None:
    write(log, rows(50, 51))
    log.publish(format="iceberg")
    if how == "trim":
        log.delete_records("t", {0: 3})
    else:
        log.erase("t", "n = 50", requested_by="a test", key="ab" * 16)
    log.publish(format="iceberg")
    check_iceberg(log)
    snapshot = opened(log.published_tables(format="iceberg")["t"]).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "overwrite"


def test_tables_of_one_manifest_show_whole_transactions(log: TxnLog) -> None:
    log.create_topic("other", SCHEMA)
    for number in range(4):
        with Producer(log, "both") as producer:
            producer.begin()
            producer.send("t", rows(1_000 + number))
            producer.send("other", rows(1_000 + number))
            producer.commit()
        report = log.publish(format="iceberg")
        seen = [
            {n for n in opened(one).scan().to_arrow()["n"].to_pylist() if n >= 1_000}
            for one in log.published_tables(report.entry, "iceberg").values()
        ]
        assert seen[0] == seen[1] == set(range(1_000, 1_001 + number))


def test_a_hint_that_a_dead_or_late_publisher_left_behind_is_mended(log: TxnLog) -> None:
    log.publish(format="iceberg")
    write(log, rows(20))
    log.publish(format="iceberg")
    key = keys.iceberg_hint_key(log.state.topic("t").directory)
    for wrong in (b"1", b"7", b"x", None):
        if wrong is None:
            log.store.delete(key)
        else:
            log.store.put(key, wrong)
        fresh(log).publish(format="iceberg")
        assert log.store.get(key) == b"2"
    check_iceberg(log)


def test_maintenance_publishes_both_formats_at_one_entry_with_the_same_files(log: TxnLog) -> None:
    log.create_topic("other", SCHEMA)
    log.alter_topic("t", settings={"publish.formats": "delta,iceberg"})
    log.alter_topic("other", settings={"publish.formats": "iceberg"})
    write(log, rows(20, 21))
    delta, iceberg = log.maintain("publish").published
    assert (delta.format, iceberg.format) == ("delta", "iceberg")
    assert delta.entry == iceberg.entry
    assert [one.topic for one in delta.topics] == ["t"]
    assert [one.topic for one in iceberg.topics] == ["other", "t"]
    check(log)
    check_iceberg(log)
    check_iceberg(log, "other")
    directory = log.state.topic("t").directory
    added = {
        f"{directory}/{json.loads(line)['add']['path']}"
        for line in (log.store.get(keys.delta_version_key(directory, 0)) or b"").splitlines()
        if b'"add"' in line
    }
    assert added == {one.partition(f"{log.url}/")[2] for one in iceberg_table(log).files}


def test_a_damaged_table_leaves_the_other_format_and_the_other_topics(log: TxnLog) -> None:
    log.create_topic("other", SCHEMA)
    for topic in ("t", "other"):
        log.alter_topic(topic, settings={"publish.formats": "iceberg,delta"})
    log.maintain("publish")
    write(log, rows(22))
    log.store.create(keys.iceberg_version_key(log.state.topic("t").directory, 2), b"{}")
    report = log.maintain("publish")
    assert [(one.topic, one.kind) for one in report.damaged] == [("t", "corrupt-view")]
    assert [[one.topic for one in each.topics] for each in report.published] == [["other", "t"], ["other"]]
    check(log)


def test_old_versions_go_and_every_one_that_is_left_can_be_read(
    log: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txnformat.admin.publishing.iceberg.CLEAN_VERSIONS", 4)
    log.alter_topic("t", settings={"publish.hold.ms": 0})
    directory = log.state.topic("t").directory
    lost = keys.iceberg_manifest_key(directory, 2, "0" * 32)
    log.store.create(lost, b"of a publisher that lost version 2")
    entries = {}
    for number in range(8):
        if number == 5:
            log.compact("t", min_lag_ms=0)
        write(log, rows(number))
        log.publish(format="iceberg")
        one = log.published_tables(format="iceberg")["t"]
        entries[one.version] = one
    names = [keys.iceberg_name(info.key) for info in log.store.list(keys.iceberg_prefix(directory))]
    left = sorted(name.version for name in names if name is not None and name.is_metadata)
    assert left == [7, 8]
    assert log.store.head(lost) is None
    for version in left:
        table = opened(entries[version])
        shown = log.read("t", isolation="snapshot", version_as_of=entries[version].entry).read_all()
        assert table.scan().to_arrow().num_rows == len(shown)
    newest = opened(entries[8])
    assert [newest.scan(snapshot_id=one.snapshot_id).to_arrow().num_rows for one in newest.snapshots()]
    check_iceberg(log)
