"""The promises of read_table beside the rows: push-down without wrong rows, settings of the session, replaced
files, views, errors."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_datasource.native.division import Reason
from spark_datasource.native.table import plan_table
from spark_datasource.read.pinning import Pin, pin_read
from tests.spark.histories import NUMBERS, Transactions, append, numbers
from tests.spark.native.tables import META, native_and_rest, plan_of, same_rows
from tests.spark.sessions import BOTH_SESSIONS
from txnformat.errors import InvalidInputError, NotFoundError, StorageError
from txnformat.log import TxnLog
from txnformat.types import Outcome
from txnlog.spark import create_view, describe, read_table, read_tables, renew_view


@pytest.fixture
def floats(log: TxnLog) -> pa.Table:
    """A file whose statistics say nothing of its NaN, and do not tell its zeros apart."""
    inner = pa.struct([("y", pa.float64())])
    schema = pa.schema([("n", pa.int64()), ("x", pa.float64()), ("f", pa.float32()), ("s", inner)])
    values = [float("nan"), -0.0, 1.0]
    rows = pa.table([[1, 2, 3], values, values, [{"y": value} for value in values]], schema=schema)
    log.create_topic("floats", schema)
    append(log, "floats", {0: [rows]})
    log.alter_topic("floats", widen={"f": pa.float64()})
    return rows


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x > 5", [1]),
        ("x = 0.0", [2]),
        ("x = 'NaN'", [1]),
        ("x < 0.5", [2]),
        ("x <> 1", [1, 2]),
        ("f > 5", [1]),
        ("f = 0", [2]),
        ("s.y > 5", [1]),
        ("s.y = 0", [2]),
        ("n > 2", [3]),
    ],
)
def test_conditions_on_floats_find_nan_and_both_zeros(
    spark: Any, path: str, floats: pa.Table, text: str, wanted: list[int]
) -> None:
    frame = read_table(spark, path, "floats", native_bytes_min=0)
    assert sorted(row.n for row in frame.where(text).collect()) == wanted
    if "s." not in text and "'" not in text:
        given = read_table(spark, path, "floats", where=text, native_bytes_min=0)
        assert sorted(row.n for row in given.collect()) == wanted


def test_conditions_on_others_are_pushed_down_and_those_on_floats_are_not(
    spark: Any, path: str, floats: pa.Table
) -> None:
    frame = read_table(spark, path, "floats", native_bytes_min=0)
    assert "GreaterThan(n,2)" in plan_of(frame.where("n > 2"))
    for text in ("x > 5", "f > 5", "s.y > 5"):
        assert "GreaterThan" not in plan_of(frame.where(text))
    assert "ReadSchema: struct<n:bigint>" in plan_of(frame.select("n"))


@BOTH_SESSIONS
def test_settings_of_the_session_change_no_old_times(spark: Any, log: TxnLog, path: str) -> None:
    """Spark's LEGACY takes times before 1582 for those of another calendar: 1200-01-01 would be
    1199-12-25.
    """
    schema = pa.schema(
        [("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us"))]
    )
    days = (datetime.date(1200, 1, 1) - datetime.date(1970, 1, 1)).days
    micros = days * 86_400_000_000
    log.create_topic("old", schema)
    append(log, "old", {0: [pa.table([[days], [micros], [micros]], schema=schema)]})
    name = "spark.sql.parquet.datetimeRebaseModeInRead"
    spark.conf.set(name, "LEGACY")
    try:
        frame = read_table(spark, path, "old", native_bytes_min=0)
        assert "FileScan parquet" in plan_of(frame)
        same_rows(frame, log.read("old").read_all())
        assert frame.selectExpr("string(day)", "string(local)").collect() == [
            ("1200-01-01", "1200-01-01 00:00:00")
        ]
    finally:
        spark.conf.unset(name)


def test_settings_of_the_session_drop_no_rows(spark: Any, log: TxnLog, path: str) -> None:
    log.create_topic("numbers", NUMBERS)
    append(log, "numbers", {0: [numbers(0, 5_000)]})
    append(log, "numbers", {0: [numbers(5_000, 10_000)]})
    first, second = sorted(Path(path).glob("numbers-*/data/*.parquet"))
    settings = {
        "spark.sql.files.ignoreCorruptFiles": "true",
        "spark.sql.files.ignoreMissingFiles": "true",
        "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
        "parquet.page.verify-checksum.enabled": "false",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        frame = read_table(spark, path, "numbers", native_bytes_min=0)
        assert frame.count() == 10_000
        data = bytearray(first.read_bytes())
        data[len(data) // 2] ^= 1
        first.write_bytes(data)
        with pytest.raises(Exception, match=r"(?i)corrupt|checksum|FAILED_READ_FILE"):
            frame.toArrow()
        second.unlink()
        with pytest.raises(Exception, match="FILE_NOT_EXIST"):
            frame.where("n >= 5000").toArrow()
    finally:
        for name in settings:
            spark.conf.unset(name)


def test_rows_are_there_once_though_files_are_replaced_before_they_are_read(
    spark: Any, log: TxnLog, path: str
) -> None:
    """The native part has its files, and the rest finds its offsets in the new ones, which also have rows of
    the native part."""
    log.create_topic("numbers", NUMBERS, partitions=2)
    for number in range(6):
        count = 2_000 if number % 2 else 10
        append(log, "numbers", {0: [numbers(0, count)], 1: [numbers(count, 2 * count)]})
    columns = ["n", *META]
    expected = log.read("numbers", columns=columns).read_all()
    plan = plan_table(spark, path, "numbers", columns=columns, native_bytes_min=4_000, driver_bytes_max=0)
    assert plan.division.native_amount.files == 3
    assert sum(map(len, plan.division.rest.values())) == 6
    frame = plan.frame()
    log.maintain("seal")
    log.compact("numbers", min_lag_ms=0)
    native = {file.record.key for file in plan.division.native}
    for file in Path(path).glob("numbers-*/data/*.parquet"):
        if file.stat().st_size < 4_000 and str(file.relative_to(path)) not in native:
            file.unlink()  # as a vacuum does
    same_rows(frame, expected)


@BOTH_SESSIONS
def test_topics_are_read_at_one_entry(spark: Any, log: TxnLog, path: str) -> None:
    for topic in ("left", "right"):
        log.create_topic(topic, NUMBERS)
    open_one = Transactions(log, "open")
    open_one.send("right", {0: [numbers(-1, 0)]})  # read_committed would end here
    both = Transactions(log, "both")
    for topic in ("left", "right"):
        both.send(topic, {0: [numbers(0, 5)]})
    entry = both.end(Outcome.COMMIT).entry
    append(log, "left", {0: [numbers(5, 9)]})
    found = read_tables(spark, path, {"left": ["n"], "right": None}, version_as_of=entry)
    assert {name: frame.count() for name, frame in found.items()} == {"left": 5, "right": 5}
    assert found["left"].columns == ["n"]
    now = read_tables(spark, path, ["left", "right"], native_bytes_min=0)
    assert {name: frame.count() for name, frame in now.items()} == {"left": 9, "right": 5}


def commit_after_the_pin(monkeypatch: pytest.MonkeyPatch, commit: Callable[[], object]) -> None:
    """Let a commit fall behind each pin of a read, and be seen by the log that plans."""

    def pinned(planning: TxnLog, options: Any) -> Pin:
        found = pin_read(planning, options)
        commit()
        planning.refresh()
        return found

    monkeypatch.setattr("spark_datasource.native.table.pin_read", pinned)


@pytest.mark.parametrize(
    "ways", [{}, {"native_bytes_min": 0}, {"driver_bytes_max": 0}], ids=["driver", "native", "source"]
)
def test_a_commit_between_the_plans_of_two_topics_is_in_neither(
    spark: Any, log: TxnLog, path: str, monkeypatch: pytest.MonkeyPatch, ways: dict[str, int]
) -> None:
    for topic in ("left", "right"):
        log.create_topic(topic, NUMBERS)

    def both(first: int) -> None:
        producer = Transactions(log, "both")
        for topic in ("left", "right"):
            producer.send(topic, {0: [numbers(first, first + 5)]})
        producer.end(Outcome.COMMIT)

    both(0)
    commit_after_the_pin(monkeypatch, lambda: both(5))
    found = read_tables(spark, path, ["left", "right"], **ways)
    assert {name: sorted(row.n for row in frame.collect()) for name, frame in found.items()} == {
        "left": [0, 1, 2, 3, 4],
        "right": [0, 1, 2, 3, 4],
    }
    assert log.read("left").read_all().num_rows == 10


@pytest.mark.parametrize("native_bytes_min", [0, 2**30])
def test_a_commit_after_the_pin_is_not_told_by_compacted_files(
    spark: Any, log: TxnLog, path: str, monkeypatch: pytest.MonkeyPatch, native_bytes_min: int
) -> None:
    """Rows that were open when the read was pinned have no commit entry in it, though the file that has them
    by now stores one."""
    log.create_topic("numbers", NUMBERS)
    append(log, "numbers", {0: [numbers(0, 5)]})
    producer = Transactions(log, "tx")
    producer.send("numbers", {0: [numbers(5, 10)]})

    def commit() -> None:
        producer.end(Outcome.COMMIT)
        log.maintain("seal")
        log.compact("numbers", min_lag_ms=0)

    commit_after_the_pin(monkeypatch, commit)
    columns = ["n", "_commit_entry"]
    plan = plan_table(
        spark,
        path,
        "numbers",
        columns=columns,
        isolation="read_uncommitted",
        native_bytes_min=native_bytes_min,
    )
    assert plan.division.native_amount.rows == (0 if native_bytes_min else 10)
    found = {row.n: row["_commit_entry"] for row in plan.frame().collect()}
    assert sorted(found) == list(range(10))
    assert [n for n, entry in found.items() if entry is None] == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("ways", [{}, {"driver_bytes_max": 0}], ids=["driver", "source"])
def test_unsealed_files_at_the_edges_give_only_what_is_in_the_range(
    spark: Any, log: TxnLog, path: str, ways: dict[str, int]
) -> None:
    log.create_topic("numbers", NUMBERS, partitions=2)
    for first in range(0, 40, 10):
        append(log, "numbers", {0: [numbers(first, first + 10)], 1: [numbers(first, first + 10)]})
    columns = ["n", *META]
    bounds: dict[str, Any] = {"start": {0: 3, 1: 12}, "end": {0: 38, 1: 33}}
    frame = read_table(spark, path, "numbers", columns=columns, native_bytes_min=0, **bounds, **ways)
    assert "FileScan parquet" in plan_of(frame)
    assert ("txnlog_rest" in plan_of(frame)) is bool(ways)
    same_rows(frame, log.read("numbers", columns=columns, **bounds).read_all())


@BOTH_SESSIONS
def test_the_plan_of_a_mixed_topic_says_which_rows_go_which_way(spark: Any, log: TxnLog, path: str) -> None:
    log.create_topic("numbers", NUMBERS)
    append(log, "numbers", {0: [numbers(0, 500)]})
    append(log, "numbers", {0: [numbers(500, 505)]})
    size = max(file.stat().st_size for file in Path(path).glob("numbers-*/data/*.parquet"))
    ways = {"native_bytes_min": size}
    text = plan_of(read_table(spark, path, "numbers", **ways))
    assert text.count("FileScan parquet") == 1
    assert text.count("LocalTableScan") == 1
    assert "txnlog_rest" not in text
    text = plan_of(read_table(spark, path, "numbers", **ways, driver_bytes_max=0))
    assert text.count("FileScan parquet") == 1
    assert text.count("BatchScan txnlog_rest") == 1


@BOTH_SESSIONS
def test_a_view_is_pinned_until_it_is_renewed(spark: Any, log: TxnLog, path: str) -> None:
    log.create_topic("numbers", NUMBERS)
    append(log, "numbers", {0: [numbers(0, 5)]})
    create_view(spark, "some_numbers", path, "numbers", columns=["n", "_offset"], native_bytes_min=0)
    append(log, "numbers", {0: [numbers(5, 9)]})
    query = "SELECT count(*) AS c, max(_offset) AS o FROM some_numbers"
    assert spark.sql(query).collect() == [(5, 4)]
    renew_view(spark, "SOME_numbers")
    assert spark.sql(query).collect() == [(9, 8)]
    with pytest.raises(NotFoundError, match="this session has made no such view") as caught:
        renew_view(spark, "other")
    assert caught.value.kind == "unknown-view"
    spark.catalog.dropTempView("some_numbers")


@pytest.mark.parametrize("columns", [None, ["_offset"], ["_topic"], ["n", "_timestamp"]])
def test_a_topic_without_rows_has_its_columns(
    spark: Any, log: TxnLog, path: str, columns: list[str] | None
) -> None:
    log.create_topic("numbers", NUMBERS)
    expected = log.read("numbers", columns=columns).read_all()
    same_rows(read_table(spark, path, "numbers", columns=columns), expected)
    producer = Transactions(log, "tx")
    producer.send("numbers", {0: [numbers(0, 5)]})
    producer.end(Outcome.ABORT)
    same_rows(read_table(spark, path, "numbers", columns=columns, native_bytes_min=0), expected)
    append(log, "numbers", {0: [numbers(0, 5)]})
    expected = log.read("numbers", columns=columns).read_all()
    same_rows(read_table(spark, path, "numbers", columns=columns, native_bytes_min=0), expected)


@pytest.mark.parametrize(
    ("name", "is_native"),
    [("a b%20c#d", True), ("k=v", True), ("n=7", True), ("with[ab]", False), ("with*", False)],
)
def test_roots_with_strange_names(spark: Any, tmp_path: Path, name: str, is_native: bool) -> None:
    with TxnLog.create(tmp_path / name / "log") as log:
        log.create_topic("numbers", NUMBERS)
        append(log, "numbers", {0: [numbers(0, 5)]})
        expected = log.read("numbers", columns=["n", "_offset"]).read_all()
        root = str(tmp_path / name / "log")
        plan, native, rest = native_and_rest(spark, root, "numbers", columns=["n", "_offset"])
        assert (native, rest) == ((5, 0) if is_native else (0, 5))
        same_rows(plan.frame(), expected)
        if not is_native:
            assert list(plan.division.reasons) == [Reason.PATH]


def test_what_spark_reads_otherwise_goes_through_the_data_source(spark: Any, log: TxnLog, path: str) -> None:
    schema = pa.schema([("n", pa.int64()), ("at", pa.time64("us")), ("local", pa.timestamp("us"))])
    log.create_topic("times", schema, timestamp_column="local")
    append(log, "times", {0: [pa.table([[1, 2], [0, 86_399_999_999], [0, None]], schema=schema)]})
    for columns, reason in (
        (["n", "at"], Reason.TYPE),
        (["n", "_timestamp"], Reason.TIME),
        (["n", "local"], None),
    ):
        plan, native, _ = native_and_rest(spark, path, "times", columns=columns)
        assert list(plan.division.reasons) == ([] if reason is None else [reason])
        assert native == (0 if reason else 2)
        same_rows(plan.frame(), log.read("times", columns=columns).read_all())
    plan, _, _ = native_and_rest(spark, path, "times", columns=["n"], where="local < '2000-01-01'")
    assert list(plan.division.reasons) == [Reason.CONDITION]
    assert [row.n for row in plan.frame().collect()] == [1]


def test_conditions_keep_the_rows_that_python_keeps(spark: Any, log: TxnLog, path: str) -> None:
    schema = pa.schema(
        [("n", pa.int32()), ("t", pa.string()), ("d", pa.decimal128(6, 2)), ("day", pa.date32()),
         ("at", pa.timestamp("us", "UTC")), ("b", pa.binary()), ("ok", pa.bool_()), ("x", pa.float64())]
    )  # fmt: skip
    rows = [
        {
            "n": n,
            "t": f"t{n}",
            "d": n,
            "day": n,
            "at": n * 10**6,
            "b": bytes([n]),
            "ok": n % 2 == 0,
            "x": n / 2,
        }
        for n in range(10)
    ]
    table = pa.Table.from_pylist([*rows, dict.fromkeys(schema.names), {**rows[0], "x": float("nan")}], schema)
    log.create_topic("rows", schema)
    append(log, "rows", {0: [table]})
    for where in (
        "n > 5", "n IN (1, 3) OR t LIKE 't4%'", "NOT (t LIKE 't%')", "d >= 3.5", "day < '1970-01-04'",
        "at = '1970-01-01T00:00:05Z'", "b = X'03'", "ok", "x > 2", "NOT (x < 2)", ("x NOT IN (1.0, "
                                                                                  "2.0)"), "n IS NULL",
        "_offset >= 3 AND _partition = 0", "_partition = 7",
    ):  # fmt: skip
        expected = log.read("rows", columns=["t", "_offset"], where=where).read_all()
        same_rows(
            read_table(spark, path, "rows", columns=["t", "_offset"], where=where, native_bytes_min=0),
            expected,
        )


def test_small_topics_are_broadcast(spark: Any, log: TxnLog, path: str) -> None:
    log.create_topic("numbers", NUMBERS)
    append(log, "numbers", {0: [numbers(0, 5)]})
    frame = read_table(spark, path, "numbers", native_bytes_min=0)
    assert "BroadcastHashJoin" in plan_of(frame.join(frame.select("n"), "n"))


def test_a_description_says_what_goes_which_way(spark: Any, log: TxnLog, path: str) -> None:
    log.create_topic("numbers", NUMBERS)
    append(log, "numbers", {0: [numbers(0, 5)]})
    producer = Transactions(log, "tx")
    producer.send("numbers", {0: [numbers(5, 7)]})
    producer.end(Outcome.COMMIT)
    text = describe(spark, path, "numbers", native_bytes_min=0, start={0: 2})
    assert "natively, by Spark's Parquet reader: 1 file, 2 rows" in text
    assert "read by the driver when it plans: 1 file, 3 rows" in text
    assert f"{Reason.PARTLY}: 1 file, 3 rows" in text
    assert "neither page headers nor footers" in text
    assert f"{Reason.OFF}: 2 files" in describe(spark, path, "numbers", native=False, native_bytes_min=0)


def test_errors_name_what_is_wrong(spark: Any, log: TxnLog, path: str) -> None:
    log.create_topic("numbers", NUMBERS)
    append(log, "numbers", {0: [numbers(0, 5)]})
    with pytest.raises(NotFoundError, match="other"):
        read_table(spark, path, "other")
    with pytest.raises(InvalidInputError, match="there is no column") as unknown:
        read_table(spark, path, "numbers", columns=["m"])
    assert unknown.value.kind == "unknown-column"
    with pytest.raises(InvalidInputError, match="not a SparkSession"):
        read_table(None, path, "numbers")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="native_bytes_min is 'x'"):
        read_table(spark, path, "numbers", native_bytes_min="x")
    with pytest.raises(InvalidInputError, match="driver_bytes_max is -1, not a number of bytes from 0"):
        read_table(spark, path, "numbers", driver_bytes_max=-1)
    with pytest.raises(
        InvalidInputError, match="there is no parameter 'sorted_by', expected one of columns, "
    ):
        read_table(spark, path, "numbers", sorted_by=["n"])
    for wrong, told in (
        ({"columns": "n,_offset"}, "columns is 'n,_offset', not a list of names"),
        ({"columns": []}, "columns is empty: name at least one"),
        ({"start": '{"0": 3}'}, "start is .*, neither an offset nor a mapping"),
        ({"end": {0: "3"}}, "end is .*, neither an offset nor a mapping"),
        ({"start": True}, "start is True, neither"),
        ({"start": {"0": 3}}, "start is .*, neither an offset nor a mapping of partitions"),
    ):
        with pytest.raises(InvalidInputError, match=told) as refused:
            read_table(spark, path, "numbers", **wrong)
        assert refused.value.kind == "invalid-table"
    with pytest.raises(InvalidInputError, match="topics is 'numbers', not a list of names"):
        read_tables(spark, path, "numbers")
    with pytest.raises(InvalidInputError, match="topics is empty: name at least one"):
        read_tables(spark, path, [])
    with pytest.raises(InvalidInputError, match="not the path or URL of a log: pass its url"):
        read_table(spark, log, "numbers")  # type: ignore[arg-type]
    plan = plan_table(spark, path, "numbers", native_bytes_min=0)
    for file in Path(path).glob("numbers-*/data/*.parquet"):
        file.unlink()
    with pytest.raises(StorageError, match="PATH_NOT_FOUND") as caught:
        plan.frame()
    assert caught.value.kind == "spark-cannot-read"
    read_table(spark, path, "numbers", native=False)  # the session knows the format from here on
    with pytest.raises(Exception, match="TXNLOG_INVALID_OPTION"):
        spark.read.format("txnlog_rest").load(path)
