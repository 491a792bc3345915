"""Conditions, held against DuckDB: the same rows, whatever was pruned on the way to them.

DuckDB compares as Spark does: three-valued logic, NaN equal to itself and above everything, text by its
bytes. The one difference, floats of 32 bits against decimal literals, is spelled out for it as Spark does it:
both as doubles.
"""

from __future__ import annotations

import datetime
import decimal
import math
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txnformat.log import TxnLog
from txnformat.reading.plan import topic_predicate
from txnformat.reading.rows import METADATA_FIELDS
from txnformat.store.memory import MemoryStore
from writers.producer import Producer

UTC = datetime.UTC
DAY = datetime.timedelta(days=1)
START = datetime.datetime(2026, 1, 1, tzinfo=UTC)

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int64(), [0, 1, 2, 5, -7, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]),
    "small": (pa.int8(), [0, 1, 5, 127, -128]),
    "f": (pa.float64(), [0.0, -0.0, 0.1, 5.0, math.nan, math.inf, -math.inf, 1e300]),
    "g": (pa.float32(), [0.0, -0.0, 0.1, 0.5, 5.0, math.nan, math.inf]),
    "d": (pa.decimal128(12, 2), [decimal.Decimal(text) for text in ("0", "0.10", "1.50", "5", "-99999.99")]),
    "s": (pa.string(), ["", "a", "ab", "ab_c", "ab%", "abd", "\uffff", "\U00010000", "x" * 5_000]),
    "x": (pa.binary(), [b"", b"\0", b"a", b"a\0", b"\xff"]),
    "b": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [datetime.date(1969, 12, 31), datetime.date(2026, 1, 1), datetime.date(9999, 12, 31)]),
    "time": (pa.timestamp("us", "UTC"), [START, START + DAY / 3, START + datetime.timedelta(microseconds=1)]),
    "local": (pa.timestamp("us"), [datetime.datetime(2026, 1, 1), datetime.datetime(1960, 1, 1, 12)]),
}  # fmt: skip
SCHEMA = pa.schema([pa.field(name, type_) for name, (type_, _) in VALUES.items()])

NUMBERS = ["0", "1", "5", "-7", "0.1", "1.5", "5.5", "1e0", "0.1e0", "9007199254740993", "9007199254740992e0", "300",
           "99999999999999999999", "-0.0", "1e300"]  # fmt: skip
TEXTS = ["''", "'a'", "'ab'", "'ab_c'", "'\uffff'", "'b'"]
TIMES = ["TIMESTAMP '2026-01-01 00:00:00Z'", "TIMESTAMP '2026-01-01 09:00:00+01:00'", "DATE '2026-01-01'",
         "TIMESTAMP '2026-01-01T00:00:00.000001Z'"]  # fmt: skip
LITERALS = {
    **dict.fromkeys(
        ["i", "small", "f", "g", "d", "_offset", "_partition", "_entry", "_producer_id"], NUMBERS
    ),
    **dict.fromkeys(["s", "_topic"], TEXTS),
    **dict.fromkeys(["day", "time", "local", "_timestamp"], TIMES),
    "x": ["X''", "X'00'", "X'61'", "X'FF'"],
    "b": ["TRUE", "FALSE"],
}


def condition(random: Random, depth: int = 0) -> tuple[str, str]:
    """Return a condition as we take it, and as DuckDB does."""
    if depth < 3 and random.random() < 0.45:
        joiner = random.choice([" AND ", " OR "])
        parts = [condition(random, depth + 1) for _ in range(random.randint(2, 3))]
        ours, theirs = (joiner.join(f"({part[side]})" for part in parts) for side in (0, 1))
    else:
        ours, theirs = leaf(random)
    return (f"NOT ({ours})", f"NOT ({theirs})") if random.random() < 0.25 else (ours, theirs)


def leaf(random: Random) -> tuple[str, str]:
    name = random.choice(list(LITERALS))
    negation = random.choice(["", " NOT"])
    column = "CAST(g AS DOUBLE)" if name == "g" else name
    shape = random.randrange(6)
    if shape == 0:
        return f"{name} IS{negation} NULL", f"{name} IS{negation} NULL"
    if shape == 1 and name in ("s", "_topic"):
        pattern = random.choice(["ab%", "%", "a", r"ab\_%", r"ab\%%", "\uffff%"])
        escaped = pattern.replace("\\", "!")
        return f"{name}{negation} LIKE '{pattern}'", f"{name}{negation} LIKE '{escaped}' ESCAPE '!'"
    if shape == 2:
        chosen = random.choices([*LITERALS[name], "NULL"], k=random.randint(1, 5))
        doubles = LITERALS[name] is NUMBERS and any("e" in text for text in chosen)
        each = [f"{column} = {theirs(name, text)}" for text in chosen]
        if doubles:  # Spark finds one type for the whole list
            each = [f"CAST({name} AS DOUBLE) = CAST({text} AS DOUBLE)" for text in chosen]
        # Never as IN: DuckDB makes a join of a long list, and a join has no order.
        return f"{name}{negation} IN ({', '.join(chosen)})", f"{negation} ({' OR '.join(each)})"
    if shape == 3:
        low, high = random.choices(LITERALS[name], k=2)
        return (
            f"{name}{negation} BETWEEN {low} AND {high}",
            f"{column}{negation} BETWEEN {theirs(name, low)} AND {theirs(name, high)}",
        )
    op, literal = random.choice(["=", "<>", "<", "<=", ">", ">="]), random.choice(LITERALS[name])
    if shape == 4:
        return f"{literal} {op} {name}", f"{theirs(name, literal)} {op} {column}"
    return f"{name.upper()} {op} {literal}", f"{column} {op} {theirs(name, literal)}"


def theirs(name: str, literal: str) -> str:
    """Return a literal as DuckDB has to be told it."""
    if literal == "NULL":
        return literal
    if name in ("f", "g"):
        return f"CAST({literal} AS DOUBLE)"
    if literal.startswith("X'"):
        return f"from_hex('{literal[2:-1]}')"
    if literal.startswith(("TIMESTAMP", "DATE")):
        return f"CAST(CAST('{literal.split(chr(39))[1]}' AS TIMESTAMPTZ) AS TIMESTAMP)"
    return literal


def history(random: Random) -> TxnLog:
    """Return a log with many small row groups, some of aborted transactions, in two partitions."""
    log = TxnLog.create(MemoryStore())
    log.create_topic("ab", SCHEMA, partitions=2, timestamp_column=random.choice([None, "time"]))
    with Producer(log, "p", buffer=random.choice(["inline", "auto"]), batch_bytes=1) as producer:
        for _ in range(random.randint(1, 4)):
            producer.begin()
            for _ in range(random.randint(1, 4)):
                size = random.randint(1, 4)
                # Few different values in a batch: else statistics exclude nothing.
                data = {
                    name: pa.array(
                        random.choices([*random.choices(values, k=2), *random.choices([None, values[0]], k=1)], k=size), type_
                    )
                    for name, (type_, values) in VALUES.items()
                }  # fmt: skip
                producer.send("ab", pa.table(data, schema=SCHEMA), partition=random.randrange(2))
                producer.flush()
            producer.abort() if random.random() < 0.3 else producer.commit()
    return log


@pytest.fixture(scope="module")
def database() -> Any:
    with duckdb.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        yield connection


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_a_condition_keeps_what_duckdb_keeps(database: Any, seed: int) -> None:
    random = Random(seed)
    log = history(random)
    columns = [*SCHEMA.names, *METADATA_FIELDS]
    whole = log.read("ab", columns=columns).read_all()
    times = ("time", "_timestamp")
    naive = {name: whole[name].cast(pa.timestamp("us")) if name in times else whole[name] for name in columns}
    database.register("naive", pa.table(naive))
    for _ in range(8):
        ours, theirs = condition(random)
        kept = database.execute(f"SELECT coalesce(({theirs}), false) FROM naive").fetchall()
        expected = whole.filter(pa.array([bool(row[0]) for row in kept], pa.bool_()))
        chosen = random.sample(columns, random.randint(1, len(columns)))
        found = log.read("ab", columns=chosen, where=ours).read_all()
        assert repr(found.to_pylist()) == repr(expected.select(chosen).to_pylist()), ours
        # The same as an expression, with Arrow's own pruning by it.
        predicate = topic_predicate(ours, log.state.topic("ab").schema)
        scanned = pa.dataset.dataset(whole).to_table(columns=chosen, filter=predicate.expression())
        assert scanned.equals(expected.select(chosen)) or repr(scanned.to_pylist()) == repr(
            expected.select(chosen).to_pylist()
        )
