"""A small rest is read by the driver: joins are broadcast by default, and the rows are those of
format("txnlog")."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_datasource.native import small_rests
from spark_datasource.native.table import plan_table
from tests.spark.histories import NUMBERS, Transactions, append, numbers
from tests.spark.native.tables import EVERY_TYPE, META, block, multiset, plan_of, same_rows
from tests.spark.sessions import BOTH_SESSIONS
from txnformat.columns.variants import VARIANT
from txnformat.errors import CorruptDataError
from txnformat.log import TxnLog
from txnformat.types import Outcome
from txnlog import Producer
from txnlog.spark import describe, read_table


def size_of(frame: Any) -> int:
    """Return how many bytes Spark expects of a frame of a classic session."""
    return int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())


def embed(log: TxnLog, topic: str, rows: pa.Table) -> None:
    """Append rows that travel in an entry."""
    with Producer(log, embed_bytes=65_536) as producer:
        producer.send(topic, rows)


@pytest.fixture(params=["embedded", "file", "aborted beside"])
def small(log: TxnLog, request: pytest.FixtureRequest) -> str:
    """A topic of ten rows."""
    log.create_topic("small", NUMBERS)
    if request.param == "embedded":
        embed(log, "small", numbers(0, 10))
    else:
        append(log, "small", {0: [numbers(0, 10)]})
    if request.param == "aborted beside":
        producer = Transactions(log, "tx")
        producer.send("small", {0: [numbers(50, 60)]})
        producer.end(Outcome.ABORT)
    return "small"


@BOTH_SESSIONS
def test_a_join_with_a_topic_of_ten_rows_is_broadcast(spark: Any, path: str, small: str) -> None:
    frame = read_table(spark, path, small)
    joined = frame.join(spark.range(5).selectExpr("id AS n"), "n")
    other = spark.read.format("txnlog").option("topic", small).load(path)  # 8 EiB
    for one in (joined, frame.join(other, "n")):
        assert "BroadcastHashJoin" in plan_of(one)
    assert joined.count() == 5
    assert "BroadcastHashJoin" not in plan_of(other.join(other.select("n"), "n"))


def test_the_size_of_a_small_rest_is_near_the_truth(spark: Any, log: TxnLog, path: str, small: str) -> None:
    assert 10 * 8 <= size_of(read_table(spark, path, small)) <= 10 * 100
    generator = random.Random(1)
    texts = [generator.randbytes(16).hex() for _ in range(50_000)]
    append(log, small, {0: [pa.table([range(50_000), texts], schema=NUMBERS)]})
    (file,) = (file for file in Path(path).glob("small-*/data/*.parquet") if file.stat().st_size > 512 * 1024)
    plan = plan_table(spark, path, small)
    assert [one.record.size for one in plan.division.native] == [file.stat().st_size]
    assert 1 <= size_of(plan.frame()) / file.stat().st_size <= 1.1


@BOTH_SESSIONS
def test_no_rows_are_small_too(spark: Any, log: TxnLog, path: str) -> None:
    """Of a topic without rows, with aborted ones only, and with none that a condition keeps."""
    log.create_topic("numbers", NUMBERS)
    producer = Transactions(log, "tx")
    other = spark.range(5).selectExpr("id AS n")
    for number in range(3):
        frame = read_table(spark, path, "numbers", where="n > 1000" if number == 2 else None)
        assert frame.columns == ["n", "text"]
        assert "txnlog_rest" not in plan_of(frame)
        assert "ExistingRDD" not in plan_of(frame)
        assert frame.join(other, "n", "right").count() == 5
        producer.send("numbers", {0: [numbers(0, 10)]})
        producer.end(Outcome.COMMIT if number else Outcome.ABORT)


@pytest.mark.parametrize(
    "options",
    [{"driver_bytes_max": 0}, {"driver_bytes_max": 10}, {"native": False}],
    ids=lambda options: "-".join(options),
)
def test_what_is_not_small_goes_through_the_data_source(
    spark: Any, log: TxnLog, path: str, options: dict[str, Any]
) -> None:
    log.create_topic("numbers", NUMBERS)
    append(log, "numbers", {0: [numbers(0, 10)]})
    assert "read by the driver when it plans: 1 file, 10 rows" in describe(spark, path, "numbers")
    assert "LocalTableScan" in plan_of(read_table(spark, path, "numbers"))
    assert "by the DataSource: 1 file, 10 rows" in describe(spark, path, "numbers", **options)
    frame = read_table(spark, path, "numbers", **options)
    assert "LocalTableScan" not in plan_of(frame)
    assert frame.count() == 10


def test_many_files_and_large_rows_go_through_the_data_source(
    spark: Any, log: TxnLog, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create_topic("numbers", NUMBERS)
    for number in range(3):
        append(log, "numbers", {0: [numbers(number, number + 1)]})
    monkeypatch.setattr(small_rests, "FILES_MAX", 3)
    assert "LocalTableScan" in plan_of(read_table(spark, path, "numbers"))
    monkeypatch.setattr(small_rests, "FILES_MAX", 2)
    assert "LocalTableScan" not in plan_of(read_table(spark, path, "numbers"))
    # A megabyte of one letter is a few bytes in its file.
    log.create_topic("letters", NUMBERS)
    append(log, "letters", {0: [pa.table([[1] * 17, ["x" * 2**20] * 17], schema=NUMBERS)]})
    frame = read_table(spark, path, "letters")
    assert "LocalTableScan" not in plan_of(frame)
    assert frame.count() == 17


def test_a_small_rest_keeps_its_rows_when_their_files_are_gone(spark: Any, path: str, small: str) -> None:
    frame = read_table(spark, path, small)
    for file in Path(path).glob("small-*/data/*.parquet"):
        file.unlink()
    assert sorted(row.n for row in frame.collect()) == list(range(10))


def test_damage_of_a_small_rest_is_found_when_the_table_is_made(spark: Any, log: TxnLog, path: str) -> None:
    log.create_topic("numbers", NUMBERS)
    append(log, "numbers", {0: [numbers(0, 10)]})
    (file,) = Path(path).glob("numbers-*/data/*.parquet")
    data = bytearray(file.read_bytes())
    data[10] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptDataError):
        read_table(spark, path, "numbers")


MORE_TYPES = pa.schema(
    [
        *EVERY_TYPE,
        ("tiny", pa.int8()),
        ("short", pa.int16()),
        ("nothing", pa.string()),
        ("wide", pa.decimal128(38, 18)),
        ("m", pa.map_(pa.string(), pa.float64())),
        ("deep", pa.list_(pa.struct([("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us"))]))),
        ("dm", pa.map_(pa.int32(), pa.list_(pa.decimal128(6, 3)))),
    ]
)


def rows_of(generator: random.Random, rows: int) -> pa.Table:
    """Return rows of every type, the ends of their ranges among them."""
    table = block(generator, EVERY_TYPE, rows)
    low, high = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 to 9999
    old = pa.array([low, high, *([-24_299_308_800_000_000] * (rows - 2))])
    for name in ("at", "local"):
        table = table.set_column(
            table.schema.get_field_index(name), name, old.cast(EVERY_TYPE.field(name).type)
        )
    more: dict[str, list[Any]] = {
        "tiny": [-128, 127, *[None] * (rows - 2)],
        "short": [-(2**15), 2**15 - 1, *[None] * (rows - 2)],
        "nothing": [None] * rows,
        "wide": [Decimal("1" * 20 + "." + "9" * 18), Decimal("-0.000000000000000001"), *[None] * (rows - 2)],
        "m": [[("a", float("nan")), ("b", None)], [], *[None] * (rows - 2)],
        "deep": [[{"at": low, "local": high}, None], [{"at": None, "local": 0}], *[[]] * (rows - 2)],
        "dm": [[(1, [Decimal("1.500"), None])], *[None] * (rows - 1)],
    }
    for name, values in more.items():
        type_ = MORE_TYPES.field(name).type
        table = table.append_column(pa.field(name, type_), pa.array(values, type_))
    return table


@BOTH_SESSIONS
@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/New_York"])
def test_each_type_is_that_of_the_data_source(spark: Any, log: TxnLog, path: str, zone: str) -> None:
    log.create_topic("all", MORE_TYPES)
    expected = rows_of(random.Random(1), 9)
    append(log, "all", {0: [expected]})
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        columns = [*MORE_TYPES.names, *META]
        frame = read_table(spark, path, "all", columns=columns)
        assert "LocalTableScan" in plan_of(frame)
        other = read_table(spark, path, "all", columns=columns, driver_bytes_max=0)
        assert "LocalTableScan" not in plan_of(other)
        assert frame.schema == other.schema
        assert multiset(frame.toArrow()) == multiset(other.toArrow())
        same_rows(frame, log.read("all", columns=columns).read_all())
        texts = ["at", "local", "took", "day", "wide", "deep"]
        assert [tuple(row) for row in frame.selectExpr(*[f"string({name})" for name in texts]).collect()] == [
            tuple(row) for row in other.selectExpr(*[f"string({name})" for name in texts]).collect()
        ]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@BOTH_SESSIONS
@pytest.mark.parametrize("type_", [pa.time64("us"), VARIANT], ids=["time", "variant"])
def test_types_that_a_local_relation_does_not_carry_go_through_the_data_source(
    spark: Any, log: TxnLog, path: str, type_: pa.DataType
) -> None:
    log.create_topic("odd", pa.schema([("n", pa.int64()), ("inner", pa.list_(type_))]))
    append(log, "odd", {0: [pa.table([[1], [None]], schema=log.refresh().topic("odd").schema.arrow_schema)]})
    frame = read_table(spark, path, "odd")
    assert "LocalTableScan" not in plan_of(frame)
    assert frame.select("n").collect() == [(1,)]
