"""A directory of Parquet files in the log: its rows once, in the order of the files; what cannot be imported
is one clear error."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txnformat.errors import InvalidInputError, NotFoundError
from txnlog import TxnLog
from txnlog.tables import import_parquet


def _write(path: Path, *numbers: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": pa.array(numbers, pa.int32())}), path)
    return path


def _numbers(log: TxnLog) -> list[int]:
    return [int(number) for number in log.read("t", columns=["n"]).read_all()["n"].to_pylist()]


def test_files_are_copied_in_order_and_followed(tmp_path: Path) -> None:
    files, log = tmp_path / "files", TxnLog.create(tmp_path / "log")
    for name in ("b", "a", "c"):
        _write(files / f"{name}.parquet", ord(name), ord(name) + 100)
    _write(files / "_temporary/0.parquet", 0)
    (files / "_SUCCESS").touch()
    first = import_parquet(log, str(files), "t", step_bytes=1)
    assert (first.created, first.rows, first.files, first.commits) == (True, 6, 3, 3)
    assert _numbers(log) == [97, 197, 98, 198, 99, 199]
    _write(files / "d.parquet", 1)
    assert import_parquet(log, str(files), "t").rows == 1
    assert import_parquet(log, str(files), "t").commits == 0
    assert _numbers(log) == [97, 197, 98, 198, 99, 199, 1]


def test_names_and_values_in_a_path_are_columns(tmp_path: Path) -> None:
    files, log = tmp_path / "files", TxnLog.create(tmp_path / "log")
    _write(files / "day=2026-01-01/_kind=a%2Fb/x.parquet", 1)
    _write(files / "day=__HIVE_DEFAULT_PARTITION__/_kind=c/x.parquet", 2)
    import_parquet(log, str(files), "t")
    rows = log.read("t", columns=["n", "day", "_kind"]).read_all().to_pylist()
    assert rows == [
        {"n": 2, "day": None, "_kind": "c"},
        {"n": 1, "day": "2026-01-01", "_kind": "a/b"},
    ] or rows == [
        {"n": 1, "day": "2026-01-01", "_kind": "a/b"},
        {"n": 2, "day": None, "_kind": "c"},
    ]


def test_one_file_is_a_source(tmp_path: Path) -> None:
    log = TxnLog.create(tmp_path / "log")
    import_parquet(log, str(_write(tmp_path / "one.parquet", 1, 2)), "t")
    assert _numbers(log) == [1, 2]


@pytest.mark.parametrize("what", ["changed", "gone", "before"])
def test_a_directory_that_does_not_only_grow_stops_the_import(what: str, tmp_path: Path) -> None:
    files, log = tmp_path / "files", TxnLog.create(tmp_path / "log")
    for name in ("b", "c"):
        _write(files / f"{name}.parquet", 1)
    import_parquet(log, str(files), "t")
    if what == "changed":
        _write(files / "b.parquet", *range(1_000))
    elif what == "gone":
        (files / "b.parquet").unlink()
    else:
        _write(files / "a.parquet", 1)
    with pytest.raises(InvalidInputError) as caught:
        import_parquet(log, str(files), "t")
    assert caught.value.kind == "files-changed"
    assert _numbers(log) == [1, 1]


def test_a_damaged_file_stops_the_import_before_its_step(tmp_path: Path) -> None:
    files, log = tmp_path / "files", TxnLog.create(tmp_path / "log")
    _write(files / "a.parquet", 1)
    damaged = _write(files / "b.parquet", 2)
    sound = damaged.read_bytes()
    damaged.write_bytes(b"PAR1" + sound[4:-20])
    with pytest.raises(InvalidInputError) as caught:
        import_parquet(log, str(files), "t", step_bytes=1)
    assert caught.value.kind == "invalid-file"
    assert "b.parquet" in str(caught.value)
    assert _numbers(log) == [1]


def test_values_that_the_topic_cannot_hold_are_refused(tmp_path: Path) -> None:
    files, log = tmp_path / "files", TxnLog.create(tmp_path / "log")
    log.create_topic("t", pa.schema([("n", pa.int16())]))
    _write(files / "a.parquet", 1)
    import_parquet(log, str(files), "t")
    _write(files / "b.parquet", 1_000_000)
    with pytest.raises(InvalidInputError, match="'n'") as caught:
        import_parquet(log, str(files), "t")
    assert caught.value.kind == "unmappable-schema"
    assert _numbers(log) == [1]


def test_a_place_without_files_is_an_error(tmp_path: Path) -> None:
    log = TxnLog.create(tmp_path / "log")
    for place in (tmp_path / "none", tmp_path / "log"):
        with pytest.raises(NotFoundError) as caught:
            import_parquet(log, str(place), "t")
        assert caught.value.kind == "no-table"
    assert not log.refresh().topic_ids
