"""Published tables of a topic whose columns get other names, go, and come again: at each publication the rows
of the log, and no old value under another column."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.views.published import iceberg_table
from tests.integration.views.tables import ICEBERG_READERS, READERS, expected, opened, texts
from tests.older_logs import older_log
from tests.rounds import rounds
from txnformat.core.state import COLUMNS
from txnformat.views.iceberg_metadata import NAME_MAPPING
from txnformat.views.iceberg_names import SCHEMA_PROPERTY
from txnlog import ConflictError, Producer, TxnLog

SCHEMA = pa.schema(
    [("id", pa.int64()), ("note", pa.string()), ("x", pa.int32()), ("place", pa.struct([("lat", pa.int8())]))]
)
FORMATS = {"delta": READERS, "iceberg": ICEBERG_READERS}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[TxnLog]:
    log = TxnLog.create(tmp_path / "log", embedding=True)
    log.create_topic("t", SCHEMA)
    send(log, [{"id": n, "note": f"old {n}", "x": n, "place": {"lat": n}} for n in range(3)])
    yield log
    report = log.verify(deep=True)
    assert report.ok, report.problems
    log.close()


def send(log: TxnLog, rows: list[dict[str, Any]]) -> None:
    with Producer(log) as producer:
        producer.send("t", rows)


def published(log: TxnLog, formats: tuple[str, ...] = ("delta", "iceberg")) -> int:
    """Publish, and let every reader read what the log shows; return the parts that were written anew."""
    parts = 0
    for name in formats:
        report = log.publish("t", format=name)
        assert not report.held_back
        assert report.entry >= log.refresh().entry - 1 - 2 * len(formats)
        parts += report.compacted_parts
        table = log.published_tables(format=name)["t"]
        for reader, read in FORMATS[name].items():
            assert read(table) == expected(log, table), (name, reader)
    return parts


def snapshots(log: TxnLog) -> list[list[str]]:
    """Return the rows of each snapshot of the Iceberg table, the oldest first."""
    table = opened(log.published_tables(format="iceberg")["t"])
    return [texts(table.scan(snapshot_id=one.snapshot_id).to_arrow()) for one in table.snapshots()]


STEPS: dict[str, list[dict[str, Any]]] = {
    "drop": [{"drop": ["note"]}],
    "rename": [{"rename": {"x": "y", "place": "where"}}],
    "drop and add": [{"drop": ["note"]}, {"add_columns": [pa.field("note", pa.string())]}],
    "add in another letter case": [{"drop": ["note"]}, {"add_columns": [pa.field("NOTE", pa.string())]}],
    "names in turn": [{"rename": {"id": "key"}}, {"rename": {"x": "id"}}, {"rename": {"note": "x"}}],
    "nested": [{"drop": ["place"]}, {"add_columns": [pa.field("place", pa.struct([("lat", pa.int64())]))]}],
}


@pytest.mark.parametrize(
    "between", rounds([True], [True, False]), ids=rounds(["after each"], ["after each", "at the end"])
)
@pytest.mark.parametrize("case", STEPS)
def test_tables_show_the_rows_of_the_log_after_every_change(log: TxnLog, case: str, between: bool) -> None:
    published(log)
    for change in STEPS[case]:
        log.alter_topic("t", **change)
        if between:
            published(log)
            published(log)
    columns = log.state.topic("t").schema.arrow_schema
    row = {
        one.name: "new" if one.type == pa.string() else 9 if pa.types.is_integer(one.type) else {"lat": 9}
        for one in columns
    }
    published(log)
    send(log, [row])
    published(log)
    log.compact("t", min_lag_ms=0)
    published(log)


@pytest.mark.parametrize("case", STEPS)
def test_a_table_that_is_published_for_the_first_time_shows_the_rows_of_the_log(
    log: TxnLog, case: str
) -> None:
    for change in STEPS[case]:
        log.alter_topic("t", **change)
    published(log)


def test_a_rename_writes_files_anew_and_a_drop_does_not(log: TxnLog) -> None:
    published(log)
    log.alter_topic("t", drop=["note"])
    assert published(log) == 0
    log.alter_topic("t", rename={"x": "y"})
    assert published(log) > 0
    log.alter_topic("t", add_columns=[pa.field("note", pa.string())])
    assert published(log) == 0, "no file has the dropped column any more"


def test_files_that_have_the_name_of_another_column_hold_a_table_back_where_they_cannot_be_written_anew(
    tmp_path: Path,
) -> None:
    log = older_log(tmp_path / "log", COLUMNS)
    log.create_topic("t", SCHEMA)
    send(log, [{"id": 1, "note": "old", "x": 1, "place": None}])
    log.maintain("seal")
    before = log.publish("t")
    log.alter_topic("t", drop=["note"])
    log.alter_topic("t", add_columns=[pa.field("note", pa.string())])
    with pytest.raises(ConflictError) as caught:
        log.publish("t")
    assert caught.value.kind == "view-held-back"
    assert "renamed or dropped" in str(caught.value)
    assert log.published_tables()["t"].entry == before.entry
    log.upgrade()
    log.publish("t")
    table = log.published_tables()["t"]
    assert READERS["deltalake"](table) == expected(log, table)
    log.close()


def test_ids_of_an_iceberg_table_are_those_of_places_and_older_snapshots_stay(log: TxnLog) -> None:
    log.publish("t", format="iceberg")
    first = snapshots(log)[0]
    before = {one["name"]: one["id"] for one in _fields(log)}
    log.alter_topic("t", rename={"x": "y", "place": "where"}, drop=["note"])
    log.publish("t", format="iceberg")
    after = {one["name"]: one["id"] for one in _fields(log)}
    assert after == {"id": before["id"], "y": before["x"], "where": before["place"]}
    assert snapshots(log)[0] == first
    assert _property(log, SCHEMA_PROPERTY) == "1"
    mapping = _property(log, NAME_MAPPING)
    assert f'"field-id":{before["x"]},"names":["y","x"]' in mapping
    assert f'"field-id":{before["note"]},"names":["note"]' in mapping


def test_older_snapshots_go_when_a_name_gets_to_stand_for_another_column(log: TxnLog) -> None:
    log.publish("t", format="iceberg")
    log.alter_topic("t", drop=["note"])
    log.publish("t", format="iceberg")
    assert len(snapshots(log)) == 2
    log.alter_topic("t", add_columns=[pa.field("note", pa.string())])
    log.publish("t", format="iceberg")
    assert len(snapshots(log)) == 1
    ids = [one["id"] for one in _fields(log)]
    assert len(set(ids)) == len(ids)
    assert max(ids) > 5, "the new column has an id of its own"


def test_a_topic_without_renamed_columns_has_a_table_as_ever(log: TxnLog) -> None:
    log.publish("t", format="iceberg")
    metadata = iceberg_table(log).metadata
    assert metadata is not None
    assert SCHEMA_PROPERTY not in metadata.properties


def _fields(log: TxnLog) -> Any:
    metadata = iceberg_table(log).metadata
    assert metadata is not None
    assert metadata.schema is not None
    return metadata.schema.fields


def _property(log: TxnLog, name: str) -> str:
    metadata = iceberg_table(log).metadata
    assert metadata is not None
    return str(metadata.properties[name])
