"""Tables of two parts, natively and by the DataSource: the rows are those of Python and of format("txnlog")."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.spark.conftest import Read
from tests.spark.histories import NUMBERS, Transactions, append, numbers
from tests.spark.native.tables import native_and_rest, same_rows
from tests.spark.sessions import BOTH_SESSIONS
from txnformat.log import TxnLog
from txnformat.types import Outcome
from txnlog.spark import read_table

META = [
    "_partition",
    "_offset",
    "_timestamp",
    "_producer_id",
    "_producer_epoch",
    "_entry",
    "_commit_entry",
    "_topic",
]


@BOTH_SESSIONS
def test_rows_and_offsets_are_those_of_python(spark: Any, log: TxnLog, path: str) -> None:
    log.create_topic("numbers", NUMBERS, partitions=2)
    append(log, "numbers", {0: [numbers(0, 50)] * 2, 1: [numbers(50, 60)]})
    producer = Transactions(log, "tx")
    producer.send("numbers", {0: [numbers(-5, 0)]})
    producer.end(Outcome.ABORT)
    append(log, "numbers", {1: [numbers(100, 130)]})
    _, native, rest = native_and_rest(spark, path, "numbers")
    assert (native, rest) == (140, 0)
    columns = ["n", "text", *META]
    expected = log.read("numbers", columns=columns).read_all()
    same_rows(read_table(spark, path, "numbers", columns=columns, native_bytes_min=0), expected)
    same_rows(read_table(spark, path, "numbers", columns=columns), expected)
    same_rows(
        read_table(spark, path, "numbers", columns=columns, native_bytes_min=0, start={0: 7}),
        log.read("numbers", columns=columns, start={0: 7}).read_all(),
    )


NAN = np.array(
    [0x7FF8000000000000, 0x7FF0000000000001, 0xFFF8000000000123, 0x8000000000000000, 0], np.uint64
).view(np.float64)
NAN32 = np.array([0x7FC00000, 0x7F800001, 0xFFC00123, 0x80000000, 0], np.uint32).view(np.float32)
STORED = pa.schema(
    [
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("i", pa.int32()),
        ("s", pa.struct([("x", pa.float64()), ("t", pa.struct([("y", pa.float32())]))])),
        ("l", pa.list_(pa.float64())),
        ("d", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("b", pa.binary()),
        ("local", pa.timestamp("us")),
        ("ok", pa.bool_()),
        ("took", pa.duration("us")),
        ("a.b`c", pa.string()),
    ]
)


def block(generator: random.Random, names: pa.Schema, rows: int) -> pa.Table:
    """Return random rows: NaN of several kinds and both zeros among the floats, nulls everywhere."""

    def values(type_: pa.DataType) -> pa.Array:
        mask = np.array([generator.random() < 0.2 for _ in range(rows)])
        if pa.types.is_float64(type_):
            pool = np.concatenate([NAN, [1.5, 7.25, -3.0]])
            return pa.array(pool[[generator.randrange(len(pool)) for _ in range(rows)]], mask=mask)
        if pa.types.is_float32(type_):
            pool = np.concatenate([NAN32, np.array([1.5, 7.25], np.float32)])
            return pa.array(pool[[generator.randrange(len(pool)) for _ in range(rows)]], mask=mask)
        if pa.types.is_struct(type_):
            return pa.StructArray.from_arrays(
                [values(f.type) for f in type_], fields=list(type_), mask=pa.array(mask)
            )
        if pa.types.is_list(type_):
            return pa.array(
                [None if m else [1.0, float("nan"), -0.0][: generator.randrange(4)] for m in mask], type_
            )
        if pa.types.is_string(type_):
            return pa.array([f"t{generator.randrange(9)}" for _ in range(rows)], mask=mask)
        if pa.types.is_binary(type_):
            return pa.array([bytes([generator.randrange(256)]) for _ in range(rows)], type_, mask=mask)
        if pa.types.is_boolean(type_):
            return pa.array([generator.random() < 0.5 for _ in range(rows)], mask=mask)
        small = pa.array([generator.randrange(-100, 100) for _ in range(rows)], pa.int32(), mask=mask)
        if pa.types.is_decimal(type_):
            return small.cast(pa.decimal128(12, 2)).cast(type_)
        if pa.types.is_date(type_):
            return small.cast(type_)
        return small.cast(pa.int64()).cast(type_)

    return pa.table([values(field.type) for field in names], schema=names)


@pytest.mark.parametrize("seed", range(3))
def test_random_histories(spark: Any, log: TxnLog, path: str, seed: int, read: Read) -> None:
    generator = random.Random(seed)
    log.create_topic("all", STORED, partitions=3)
    log.upgrade()
    producers = [Transactions(log, f"tx{n}") for n in range(2)]
    schema = log.state.topic("all").schema.arrow_schema
    for step in range(24):
        parts = {
            p: [block(generator, schema, generator.randrange(1, 9)) for _ in range(generator.randrange(1, 3))]
            for p in range(3)
            if generator.random() < 0.6
        }
        choice = generator.random()
        if choice < 0.35 and parts:
            append(log, "all", parts)
        elif choice < 0.8 and parts:
            producer = generator.choice(producers)
            producer.send("all", parts)
            if generator.random() < 0.8:
                producer.end(generator.choice([Outcome.COMMIT, Outcome.ABORT]))
        elif choice < 0.9:
            log.maintain("seal")
        else:
            log.compact("all", min_lag_ms=0)
    columns = [*schema.names, *META]
    entries = [log.state.entry, log.state.entry // 2 + 5]
    for options in ({}, {"isolation": "read_uncommitted"}, *({"version_as_of": entry} for entry in entries)):
        try:
            expected = log.read("all", columns=columns, **options).read_all()
        except Exception as error:
            with pytest.raises(type(error)):
                read_table(spark, path, "all", columns=columns, **options)
            continue
        frame = read_table(spark, path, "all", columns=columns, native_bytes_min=0, **options)
        _, native, rest = native_and_rest(spark, path, "all", columns=columns, **options)
        print(options, native, rest)
        assert native + rest >= expected.num_rows
        same_rows(frame, expected)
        for text in (
            "x > 5",
            "x = 0.0",
            "x = 'NaN'",
            "f < 1",
            "s.x > 5",
            "s.t.y = 0",
            "isnan(x)",
            "i > 20",
            "at >= timestamp'1970-01-01'",
        ):
            want = (
                read(
                    "all",
                    columns=",".join("`" + name.replace("`", "``") + "`" for name in columns),
                    **{"versionAsOf" if k == "version_as_of" else k: str(v) for k, v in options.items()},
                )
                .where(text)
                .toArrow()
            )
            assert frame.where(text).count() == want.num_rows, text
