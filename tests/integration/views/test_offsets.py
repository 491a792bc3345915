"""Tables with offsets: compacted files only, with partition, offset and timestamp of each record, as the log
has them at the entry."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.integration.views.published import fresh, rows, slow
from tests.integration.views.tables import CASES, SCHEMA, path_of, texts, write
from txnformat import keys
from txnlog import ConflictError, TxnLog

OFFSETS = "delta-offsets"
PLACES = ["_partition", "_offset", "_timestamp"]


def seen(log: TxnLog, topic: str = "t") -> list[str]:
    """Return the rows of the table with offsets, by deltalake."""
    table = log.published_tables(format=OFFSETS)[topic]
    found = DeltaTable(path_of(table), version=table.version).to_pyarrow_table()
    assert found.column_names[-3:] == PLACES
    return texts(found)


def wanted(log: TxnLog, topic: str = "t") -> list[str]:
    """Return the same rows of the log, at the entry of the manifest."""
    table = log.published_tables(format=OFFSETS)[topic]
    columns = [*log.state.topic(topic).schema.arrow_schema.names, *PLACES]
    reader = log.read(topic, isolation="snapshot", version_as_of=table.entry, columns=columns)
    return texts(reader.read_all())


def check(log: TxnLog) -> int:
    """Compare them; return how many rows there are."""
    found = seen(log)
    assert found == wanted(log)
    return len(found)


def compacted(log: TxnLog) -> None:
    log.committer.seal()
    log.compact(min_lag_ms=0)


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_topic_shows_its_offsets_once_it_is_compacted(case: str, tmp_path: Path) -> None:
    log = CASES[case](tmp_path / "log")
    compacted(log)
    report = log.publish(format=OFFSETS)
    if not report.held_back:
        assert report.entry == log.state.entry
    assert check(log) == log.read("t").read_all().num_rows or report.held_back
    assert check(log) or case == "empty"


def test_the_entry_is_the_last_one_up_to_which_all_is_compacted(log: TxnLog) -> None:
    write(log, rows(1, 2))
    compacted(log)
    entry = log.refresh().entry
    write(log, rows(3))
    before = {info.key for info in log.store.list("")}
    report = log.publish(format=OFFSETS)
    assert entry <= report.entry < log.state.entry
    assert "compact" in report.held_back[0].waits_for or "open" in report.held_back[0].waits_for
    new = {info.key for info in log.store.list("")} - before
    assert all(keys.is_of_view(key) for key in new)  # nothing was sealed or written anew
    many = check(log)
    compacted(log)
    assert log.publish(format=OFFSETS).entry == log.state.entry
    assert check(log) == many + 1


def test_the_other_table_shows_all_meanwhile(log: TxnLog) -> None:
    write(log, rows(1, 2))
    compacted(log)
    write(log, rows(3))
    log.publish(format=OFFSETS)
    log.publish()
    plain, offsets = log.published_tables()["t"], log.published_tables(format=OFFSETS)["t"]
    assert plain.entry > offsets.entry
    assert path_of(offsets) == f"{path_of(plain)}/data"
    shown = DeltaTable(path_of(plain), version=plain.version).to_pyarrow_table()
    assert shown.column_names == SCHEMA.names
    assert shown.num_rows == check(log) + 1


def test_a_table_with_offsets_never_goes_back(log: TxnLog) -> None:
    """A compaction that takes newer records into the files of older ones, and one partition only: the table
    stays as it was."""
    write(log, rows(1, 2), partition=0)
    write(log, rows(3), partition=1)
    compacted(log)
    first = log.publish(format=OFFSETS)
    many = check(log)
    write(log, rows(4), partition=0)
    with slow(log) as producer:  # holds back what it has written to
        report = log.publish(format=OFFSETS)
        assert report.entry >= first.entry
        producer.abort()
    assert check(log) == many
    assert fresh(log).published_tables(format=OFFSETS)["t"].entry >= first.entry


def test_a_vacuum_keeps_the_files_of_the_table_with_offsets(log: TxnLog) -> None:
    """They are those of older versions of the topic, too."""
    write(log, rows(1, 2))
    compacted(log)
    log.publish(format=OFFSETS)
    first = seen(log)
    table = log.published_tables(format=OFFSETS)["t"]
    for number in (3, 4):
        write(log, rows(number))
        compacted(log)
    for _ in range(3):
        write(log, rows(5))
        log.vacuum(datetime.timedelta(milliseconds=1), allow_short_grace=True)
    assert texts(DeltaTable(path_of(table), version=table.version).to_pyarrow_table()) == first
    log.publish(format=OFFSETS)
    check(log)


def test_a_deleted_topic_takes_the_table_along(log: TxnLog) -> None:
    compacted(log)
    log.publish(format=OFFSETS)
    place = keys.delta_prefix(keys.offsets_location(log.state.topic("t").directory))
    assert list(log.store.list(place))
    log.delete_topic("t")
    for number in range(3):
        log.create_topic(f"later-{number}", pa.schema([("n", pa.int64())]))
        log.vacuum(datetime.timedelta(milliseconds=1), allow_short_grace=True)
    assert not list(log.store.list(place))


def test_maintenance_publishes_both_tables(log: TxnLog) -> None:
    log.alter_topic("t", settings={"publish.formats": "delta,delta-offsets"})
    write(log, rows(1, 2))
    compacted(log)
    reports = log.maintain("publish").published
    assert [one.format for one in reports] == ["delta", OFFSETS]
    check(log)


def test_deltalake_cannot_write_to_it(log: TxnLog) -> None:
    compacted(log)
    log.publish(format=OFFSETS)
    table = log.published_tables(format=OFFSETS)["t"]
    with pytest.raises(Exception, match=r"txnlog\.readOnly"):
        DeltaTable(path_of(table)).delete()
    check(log)


def test_a_file_that_lost_records_is_written_anew_and_one_that_is_not_compacted_is_left(log: TxnLog) -> None:
    write(log, rows(1, 2), partition=0)
    compacted(log)
    log.publish(format=OFFSETS)
    log.delete_records("t", {0: 1})
    entry = log.refresh().entry
    write(log, rows(3), partition=1)
    report = log.publish(format=OFFSETS)
    assert entry <= report.entry < log.state.entry
    assert report.compacted_parts
    check(log)


def test_an_entry_below_the_published_one_is_refused(log: TxnLog) -> None:
    """The records that are not compacted are older than records that were removed: no entry that the log
    still knows can be shown, and the table stays as it was."""
    compacted(log)
    log.publish(format=OFFSETS)
    before = seen(log)
    write(log, rows(3), partition=1)
    write(log, rows(4), partition=0)
    log.delete_records("t", {0: log.offsets("t")[0].log_end})
    with pytest.raises(ConflictError) as caught:
        log.publish(format=OFFSETS)
    assert caught.value.kind == "view-held-back"
    assert seen(log) == before
    compacted(log)
    log.publish(format=OFFSETS)
    check(log)
