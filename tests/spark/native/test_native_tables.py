"""Tables of two parts, natively and by the DataSource: the rows are those of Python and of
format("txnlog").
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from tests.rounds import rounds
from tests.spark.histories import NUMBERS, Transactions, append, numbers
from tests.spark.native.tables import EVERY_TYPE, META, block, native_and_rest, same_rows
from tests.spark.sessions import BOTH_SESSIONS
from txnformat.log import TxnLog
from txnformat.types import Outcome
from txnlog import Producer
from txnlog.spark import read_table


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
    for driver_bytes_max in (0, 2**20):
        same_rows(
            read_table(spark, path, "numbers", columns=columns, driver_bytes_max=driver_bytes_max), expected
        )
    same_rows(
        read_table(spark, path, "numbers", columns=columns, native_bytes_min=0, start={0: 7}),
        log.read("numbers", columns=columns, start={0: 7}).read_all(),
    )


@pytest.mark.parametrize("seed", range(rounds(1, 3)))
def test_random_histories(spark: Any, log: TxnLog, path: str, seed: int) -> None:
    """Aborts, open transactions, seals, compactions, embedded rows and a newer schema; every type, every kind
    of NaN."""
    generator = random.Random(seed)
    log.create_topic("all", EVERY_TYPE, partitions=3)
    producers = [Transactions(log, f"tx{number}") for number in range(2)]
    for step in range(24):
        if step == 12:
            log.alter_topic(
                "all",
                widen={"i": pa.int64(), "f": pa.float64(), "d": pa.decimal128(14, 2)},
                add_columns=[pa.field("new", pa.float32())],
            )
        schema = log.refresh().topic("all").schema.arrow_schema
        parts = {
            number: [
                block(generator, schema, generator.randrange(1, 9)) for _ in range(generator.randrange(1, 3))
            ]
            for number in generator.sample(range(3), generator.randrange(1, 4))
        }
        choice = generator.random()
        if choice < 0.3:
            append(log, "all", parts)
        elif choice < 0.7:
            producer = generator.choice(producers)
            producer.send("all", parts)
            if generator.random() < 0.8:
                producer.end(generator.choice([Outcome.COMMIT, Outcome.ABORT]))
        elif choice < 0.8:
            with Producer(log, embed_bytes=65_536) as small:
                small.send("all", parts[min(parts)][0])
        elif choice < 0.9:
            log.maintain("seal")
        else:
            log.compact("all", min_lag_ms=0)
    columns = [*log.refresh().topic("all").schema.arrow_schema.names, *META]
    cases: list[dict[str, Any]] = [
        {},
        {"isolation": "read_uncommitted"},
        {"version_as_of": log.state.entry // 2 + 5},
        {"start": {0: 3}, "end": {1: 9}},
    ]
    natively = []
    for options in cases:
        plan, native, rest = native_and_rest(spark, path, "all", columns=columns, **options)
        expected = log.read("all", columns=columns, **options).read_all()
        assert native + rest >= expected.num_rows
        same_rows(plan.frame(), expected)
        natively.append(native)
        # Between the smallest and the largest file both ways are used, and ranges of the rest lie between
        # native files.
        sizes = sorted(file.record.size for file in plan.division.native)
        middle = sizes[len(sizes) // 2] if sizes else 0
        for driver_bytes_max in (0, 2**22):
            ways = {"native_bytes_min": middle, "driver_bytes_max": driver_bytes_max}
            same_rows(read_table(spark, path, "all", columns=columns, **ways, **options), expected)
    assert any(natively)
