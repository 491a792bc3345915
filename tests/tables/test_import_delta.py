"""A Delta table in the log: its rows once, its commits whole, its changes as rows; what cannot be imported is
one clear error."""

from __future__ import annotations

import datetime
import decimal
import itertools
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.rounds import rounds
from txnformat.errors import InvalidInputError, NotFoundError, ProducerFencedError, TxnLogError
from txnformat.segments.writer import chunk_range
from txnformat.store.local import LocalStore
from txnformat.store.requests import RequestKind
from txnlog import Producer, TxnLog
from txnlog.tables import import_delta
from txnlog.tables.importing import TableProgress
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore, SimulatedCrash

ROOT = Path(__file__).parents[2]
FEED = {"delta.enableChangeDataFeed": "true"}


def _rows(*numbers: int, part: str | None = "a b") -> pa.Table:
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "text": [f"row {n}" for n in numbers],
            "part": pa.array([part] * len(numbers), pa.string()),
        }
    )


def _table(place: Path, *, feed: bool = False) -> str:
    write_deltalake(str(place), _rows(1, 2), partition_by=["part"], configuration=FEED if feed else None)
    return str(place)


def _large_rows(*numbers: int) -> pa.Table:
    """Rows whose file is taken as it is: large enough, and without columns that only paths have."""
    texts = [random.Random(number).randbytes(60_000).hex() for number in numbers]
    return pa.table({"id": pa.array(numbers, pa.int64()), "text": texts})


def _data_sizes(log: TxnLog) -> list[int]:
    """Bytes before the footers of the log's files."""
    return sorted(file.size - file.footer_bytes for file in log.refresh().files)


def _table_data_sizes(table: str) -> list[int]:
    """Bytes up to the end of the last column chunk of each of the table's files."""
    groups = [
        [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        for metadata in map(pq.read_metadata, Path(table).glob("*.parquet"))
    ]
    return sorted(
        max(sum(chunk_range(group.column(number))) for group in found for number in range(group.num_columns))
        for found in groups
    )


Rows = Callable[..., pa.Table]
BOTH = pytest.mark.parametrize("rows", [_rows, _large_rows], ids=["encoded", "whole"])
"""Rows that are encoded anew, and files that are taken as they are."""


def _read(log: TxnLog, topic: str = "t", *columns: str) -> list[Any]:
    rows = log.read(topic, columns=list(columns) or None).read_all().to_pylist()
    return [tuple(row.values()) if len(columns) > 1 else row[columns[0]] for row in rows] if columns else rows


def _ids(log: TxnLog) -> list[int]:
    return sorted(_read(log, "t", "id"))


def test_a_table_is_copied_and_followed(tmp_path: Path) -> None:
    table, log = _table(tmp_path / "table"), TxnLog.create(tmp_path / "log")
    write_deltalake(table, _rows(3, part="x/y=%"), mode="append")
    first = import_delta(log, table, "t")
    assert (first.created, first.rows, first.position) == (True, 3, {"version": 1})
    assert sorted(_read(log, "t", "id", "text", "part")) == [
        (1, "row 1", "a b"),
        (2, "row 2", "a b"),
        (3, "row 3", "x/y=%"),
    ]
    write_deltalake(table, _rows(4, 5), mode="append")
    write_deltalake(table, _rows(6, part=None), mode="append")
    DeltaTable(table).optimize.compact()  # no change of data
    second = import_delta(log, table, "t")
    assert (second.rows, second.commits, second.position) == (3, 3, {"version": 4})
    assert _ids(log) == [1, 2, 3, 4, 5, 6]
    again = import_delta(log, table, "t")
    assert (again.rows, again.commits) == (0, 0)
    assert _ids(log) == [1, 2, 3, 4, 5, 6]


def test_it_follows_until_it_is_stopped(tmp_path: Path) -> None:
    """Each commit of the import is answered by a new version of the table."""
    table, log, stop = _table(tmp_path / "table"), TxnLog.create(tmp_path / "log"), threading.Event()

    def more(at: TableProgress) -> None:
        if at.rows < 6:
            write_deltalake(table, _rows(at.rows + 1), mode="append")
        else:
            stop.set()

    report = import_delta(log, table, "t", follow=True, poll_ms=1, progress=more, stop=stop)
    assert (report.rows, report.commits, report.position) == (6, 5, {"version": 4})
    assert _ids(log) == [1, 2, 3, 4, 5, 6]


def test_following_ends_when_the_log_is_gone(tmp_path: Path) -> None:
    table, log = _table(tmp_path / "table"), TxnLog.create(tmp_path / "log")

    def moved(at: TableProgress) -> None:
        (tmp_path / "log").rename(tmp_path / "aside")

    with pytest.raises(NotFoundError) as refused:
        import_delta(log, table, "t", follow=True, poll_ms=1, progress=moved)
    assert refused.value.kind == "log-gone"


def test_values_of_partitions_are_the_same_from_a_snapshot_and_from_a_commit(tmp_path: Path) -> None:
    """A snapshot has them typed, a commit as texts."""
    utc = datetime.UTC
    values: dict[str, tuple[pa.DataType, Any]] = {
        "whole": (pa.int64(), -5),
        "real": (pa.float64(), 0.5),
        "is": (pa.bool_(), True),
        "text": (pa.string(), "ü/= %"),
        "day": (pa.date32(), datetime.date(1969, 7, 20)),
        "exact": (pa.decimal128(10, 2), decimal.Decimal("1.50")),
        "at": (pa.timestamp("us", "UTC"), datetime.datetime(2026, 1, 2, 3, 4, 5, 600_000, tzinfo=utc)),
        "local": (pa.timestamp("us"), datetime.datetime(2026, 1, 2, 3, 4, 5)),
    }

    def rows(number: int, *, are_null: bool) -> pa.Table:
        columns = {
            name: pa.array([None if are_null else value], type_) for name, (type_, value) in values.items()
        }
        return pa.table({"id": pa.array([number], pa.int64()), **columns})

    place, log = str(tmp_path / "table"), TxnLog.create(tmp_path / "log")
    for number in range(4):
        write_deltalake(
            place, rows(number, are_null=number % 2 == 1), mode="append", partition_by=list(values)
        )
        if number == 1:
            import_delta(log, place, "t")
    import_delta(log, place, "t")
    found = sorted(_read(log, "t", "id", *values))
    want = tuple(value for _, value in values.values())
    assert [row[1:] for row in found] == [want, (None,) * len(want)] * 2


def test_a_commit_of_delta_is_one_transaction(tmp_path: Path) -> None:
    table, log = _table(tmp_path / "table"), TxnLog.create(tmp_path / "log")
    import_delta(log, table, "t", partitions=3, key_columns=["id"])
    both = pa.concat_tables([_rows(*range(10, 30)), _rows(*range(30, 50), part="other")])
    write_deltalake(table, both, mode="append")
    before = log.refresh().entry
    import_delta(log, table, "t")
    seen = [
        len(log.read("t", version_as_of=entry).read_all()) for entry in range(before, log.refresh().entry + 1)
    ]
    assert set(seen) == {2, 42}


@BOTH
def test_files_are_taken_as_they_are_unless_told_otherwise(rows: Rows, tmp_path: Path) -> None:
    """Where they can: not with columns of paths, nor with columns that say of each row which change it is."""
    table, log = str(tmp_path / "table"), TxnLog.create(tmp_path / "log")
    for numbers in ((1, 2), (3,)):
        write_deltalake(table, rows(*numbers), mode="append")
    taken = 2 if rows is _large_rows else 0
    assert import_delta(log, table, "t").as_they_are == taken
    assert import_delta(log, table, "again", rewrite=True).as_they_are == 0
    assert import_delta(log, table, "changes", changes=True).as_they_are == 0
    write_deltalake(table, rows(4), mode="append")
    assert import_delta(log, table, "t").as_they_are == taken // 2
    import_delta(log, table, "again", rewrite=True)
    assert sorted(_read(log, "t", "id", "text")) == sorted(_read(log, "again", "id", "text"))
    assert _ids(log) == [1, 2, 3, 4]


def test_a_vacuum_of_the_table_takes_nothing_from_the_log(tmp_path: Path) -> None:
    """Why files are copied, and not named where they are."""
    table, log = str(tmp_path / "table"), TxnLog.create(tmp_path / "log")
    write_deltalake(table, _large_rows(1, 2))
    assert import_delta(log, table, "t").as_they_are == 1
    write_deltalake(table, _large_rows(3), mode="overwrite")
    gone = DeltaTable(table).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert len(gone) == 1
    assert _ids(log) == [1, 2]


def test_it_begins_and_ends_at_a_version(tmp_path: Path) -> None:
    table, log = _table(tmp_path / "table"), TxnLog.create(tmp_path / "log")
    for number in range(3, 8):
        write_deltalake(table, _rows(number), mode="append")
    assert import_delta(log, table, "t", version=2).position == {"version": 2}
    assert _ids(log) == [1, 2, 3, 4]
    import_delta(log, table, "t", version=4)
    assert _ids(log) == [1, 2, 3, 4, 5, 6]
    with pytest.raises(NotFoundError, match="no such version") as caught:
        import_delta(log, table, "t", version=99)
    assert caught.value.kind == "no-version"


def test_changes_come_as_rows(tmp_path: Path) -> None:
    """Oracle: the table itself, which the rows of the changes give again."""
    table, log = _table(tmp_path / "table", feed=True), TxnLog.create(tmp_path / "log")
    import_delta(log, table, "t", changes=True)
    dice = random.Random(7)
    for step in range(8):
        at = DeltaTable(table)
        kind = dice.choice(["append", "update", "delete", "overwrite"])
        if kind == "append":
            write_deltalake(
                table, _rows(100 + step, 200 + step, part=dice.choice(["a b", None, "ü/&"])), mode="append"
            )
        elif kind == "update":
            at.update(updates={"text": f"'changed {step}'"}, predicate=f"id % 2 = {step % 2}")
        elif kind == "delete":
            at.delete(f"id % 3 = {step % 3}")
        else:
            write_deltalake(table, _rows(300 + step), mode="overwrite")
        import_delta(log, table, "t", changes=True)
        count: Counter[Any] = Counter()
        for id_, text, part, change, version in _read(
            log, "t", "id", "text", "part", "change_type", "table_version"
        ):
            assert version <= DeltaTable(table).version()
            count[id_, text, part] += {
                "insert": 1,
                "update_postimage": 1,
                "delete": -1,
                "update_preimage": -1,
            }[change]
        now = DeltaTable(table).to_pyarrow_table().select(["id", "text", "part"]).to_pylist()
        assert +count == Counter(tuple(row.values()) for row in now)
        assert not -count


def test_changed_rows_stop_an_import_that_does_not_want_them(tmp_path: Path) -> None:
    table, log = _table(tmp_path / "table"), TxnLog.create(tmp_path / "log")
    import_delta(log, table, "t")
    write_deltalake(table, _rows(3), mode="append")
    DeltaTable(table).delete("id = 1")
    with pytest.raises(InvalidInputError, match="--changes") as caught:
        import_delta(log, table, "t")
    assert caught.value.kind == "table-changes-rows"
    assert _ids(log) == [1, 2, 3], "versions before it are imported"


@BOTH
def test_a_death_at_any_request_loses_and_doubles_nothing(rows: Rows, tmp_path: Path) -> None:
    """The process dies before each of its requests that write, and after it, until one comes through."""
    table = str(tmp_path / "table")
    for numbers in ((1, 2), (3,), (4,), (5,)):
        write_deltalake(table, rows(*numbers), mode="append")
    deaths = 0
    for kind in (FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER):
        root = tmp_path / kind.value
        TxnLog.create(root).close()
        number = 0
        while True:
            seen = 0

            def plan(operation: RequestKind, key: str, nth: int, number: int = number) -> Fault | None:
                nonlocal seen
                if operation not in (RequestKind.CREATE, RequestKind.OPEN_WRITE):
                    return None
                seen += 1
                return Fault(kind) if seen == number % 4 + 1 else None  # noqa: B023

            store = FaultyStore(LocalStore(root), plan)
            number += 1
            try:
                import_delta(TxnLog.open(store), table, "t", step_bytes=1)
            except SimulatedCrash:
                deaths += 1
                assert len(set(_all_ids(root))) == len(_all_ids(root))
            else:
                break
            if number > 20:
                import_delta(TxnLog.open(root), table, "t", step_bytes=1)
                break
        assert _all_ids(root) == [1, 2, 3, 4, 5]
        if rows is _large_rows:
            assert _data_sizes(TxnLog.open(root)) == _table_data_sizes(table)
    assert deaths >= 6


IMPORTER = """
import sys
from txnlog import TxnLog
from txnlog.tables import import_delta
import_delta(TxnLog.open(sys.argv[1]), sys.argv[2], "t", step_bytes=1, progress=lambda at: print(at.rows, flush=True))
"""


@BOTH
def test_an_import_that_is_killed_again_and_again_has_each_row_once(rows: Rows, tmp_path: Path) -> None:
    """``kill -9`` behind a commit that has just been answered: somewhere in the next one. More than 100 times
    with all rounds."""
    versions, least = rounds((16, 3), (400, 100))
    table = str(tmp_path / "table")
    for numbers in ((1, 2), *((number,) for number in range(3, versions))):
        write_deltalake(table, rows(*numbers), mode="append")
    TxnLog.create(tmp_path / "log").close()
    command = [sys.executable, "-c", IMPORTER, str(tmp_path / "log"), table]
    dice, kills = random.Random(3), 0
    while True:
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
            assert process.stdout is not None
            lines = sum(1 for _ in itertools.islice(process.stdout, dice.randint(2, 4)))
            if lines < 2:
                assert process.wait() == 0
                break
            process.kill()
            kills += 1
        found = _all_ids(tmp_path / "log")
        assert len(found) == len(set(found))
    assert kills >= least
    assert _all_ids(tmp_path / "log") == [*range(1, versions)]
    if rows is _large_rows:
        assert _data_sizes(TxnLog.open(tmp_path / "log")) == _table_data_sizes(table)


def _all_ids(root: Path) -> list[int]:
    log = TxnLog.open(root)
    found = _ids(log) if "t" in log.refresh().topic_ids else []
    log.close()
    return found


def test_a_newer_import_fences_the_older_one(tmp_path: Path) -> None:
    table, log = _table(tmp_path / "table"), TxnLog.create(tmp_path / "log")
    for number in range(3, 6):
        write_deltalake(table, _rows(number), mode="append")
    begun: list[int] = []

    def overtake(_: object) -> None:
        if not begun:
            begun.append(1)
            import_delta(TxnLog.open(tmp_path / "log"), table, "t", step_bytes=1)

    with pytest.raises((ProducerFencedError, TxnLogError)):
        import_delta(log, table, "t", step_bytes=1, progress=overtake)
    assert _ids(TxnLog.open(tmp_path / "log")) == [1, 2, 3, 4, 5]


def test_a_topic_with_records_needs_to_be_told(tmp_path: Path) -> None:
    table, log = _table(tmp_path / "table"), TxnLog.create(tmp_path / "log")
    log.create_topic("t", _rows(1).schema)
    with Producer(log) as producer:
        producer.send("t", [{"id": 0, "text": "own", "part": None}])
    with pytest.raises(InvalidInputError) as caught:
        import_delta(log, table, "t")
    assert caught.value.kind == "import-without-position"
    import_delta(log, table, "t", start="latest")
    write_deltalake(table, _rows(3), mode="append")
    import_delta(log, table, "t")
    assert _ids(log) == [0, 3]


def test_a_table_that_was_made_anew_is_another_one(tmp_path: Path) -> None:
    log = TxnLog.create(tmp_path / "log")
    import_delta(log, _table(tmp_path / "table"), "t", group="g")
    with pytest.raises(InvalidInputError, match="another table") as caught:
        import_delta(log, _table(tmp_path / "other"), "t", group="g")
    assert caught.value.kind == "other-table"
    assert _ids(log) == [1, 2]


def test_history_and_files_that_are_gone_are_named(tmp_path: Path) -> None:
    table, log = _table(tmp_path / "table"), TxnLog.create(tmp_path / "log")
    import_delta(log, table, "t")
    write_deltalake(table, _rows(3), mode="append")
    write_deltalake(table, _rows(4), mode="append")
    commit = tmp_path / "table/_delta_log" / f"{1:020d}.json"
    data = commit.read_bytes()
    file = Path(*{*_paths(table, 1)} - {*_paths(table, 0)})
    file.rename(tmp_path / "kept")
    with pytest.raises(NotFoundError) as caught:
        import_delta(log, table, "t")
    assert caught.value.kind == "table-file-gone"
    (tmp_path / "kept").rename(file)
    DeltaTable(table).create_checkpoint()
    commit.unlink()
    with pytest.raises(NotFoundError) as caught:
        import_delta(log, table, "t")
    assert caught.value.kind == "table-history-gone"
    assert _ids(log) == [1, 2]
    commit.write_bytes(data)
    import_delta(log, table, "t")
    assert _ids(log) == [1, 2, 3, 4]


def _paths(table: str, version: int) -> list[str]:
    return [uri.removeprefix("file://") for uri in DeltaTable(table, version=version).file_uris()]


def test_new_columns_need_a_topic_that_has_them(tmp_path: Path) -> None:
    table, log = _table(tmp_path / "table"), TxnLog.create(tmp_path / "log")
    import_delta(log, table, "t")
    wider = _rows(3).append_column("more", pa.array([True]))
    write_deltalake(table, wider, mode="append", schema_mode="merge")
    with pytest.raises(InvalidInputError, match="no column 'more'") as caught:
        import_delta(log, table, "t")
    assert caught.value.kind == "unmappable-schema"
    log.alter_topic("t", add_columns=[pa.field("more", pa.bool_())])
    import_delta(log, table, "t")
    assert sorted(_read(log, "t", "id", "more"), key=str) == [(1, None), (2, None), (3, True)]


@pytest.mark.parametrize(
    "arguments", [{"version": -1}, {"version": "1"}, {"poll_ms": 0}, {"start": "now"}, {"step_bytes": 0}]
)
def test_arguments_are_checked_before_anything_is_done(arguments: dict[str, Any], tmp_path: Path) -> None:
    log = TxnLog.create(tmp_path / "log")
    before = log.refresh().entry
    with pytest.raises(InvalidInputError) as caught:
        import_delta(log, str(tmp_path / "none"), "t", **arguments)
    assert caught.value.kind == "invalid-argument"
    with pytest.raises(NotFoundError) as missing:
        import_delta(log, str(tmp_path / "none"), "t")
    assert missing.value.kind == "no-table"
    assert log.refresh().entry == before
