"""Files of records: the form that their names say, and CSV, which comes back as it went."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.cli.conftest import Command
from txnlog import Producer, TxnLog

ORDERS = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("note", pa.string())])


@pytest.fixture
def filled(log: TxnLog) -> TxnLog:
    log.create_topic("orders", ORDERS)
    with Producer(log) as producer:
        producer.send("orders", [{"id": 1, "amount": 0.5, "note": None}])
    return log


SCALARS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "double": (pa.float64(), [1.5, math.inf, -math.inf, None, 0.1]),
    "float": (pa.float32(), [1.5, None, 0.25]),
    "bool": (pa.bool_(), [True, False, None]),
    "string": (pa.string(), ["", None, "NaN", ' a,"b"\n', "\u00fc", "true"]),
    "binary": (pa.binary(), [b"\xff\x00", b"", None, b"plain"]),
    "date": (pa.date32(), [datetime.date(2026, 1, 31), None, datetime.date(1, 1, 1)]),
    "time": (pa.time64("us"), [datetime.time(1, 2, 3, 4), None]),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        [datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), None],
    ),
    "timestamp_ntz": (pa.timestamp("us"), [datetime.datetime(1969, 1, 1, 0, 0, 0, 1), None]),
    "decimal": (pa.decimal128(10, 2), [Decimal("-9.50"), None]),
}


@pytest.mark.parametrize("binary", ["base64", "hex"])
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "with another"])
@pytest.mark.parametrize("name", SCALARS)
def test_what_consume_writes_as_csv_produce_takes(
    txnlog: Command, log: TxnLog, tmp_path: Path, name: str, alone: bool, binary: str
) -> None:
    type_, values = SCALARS[name]
    columns: dict[str, pa.Array] = {"x": pa.array(values, type_)}
    if not alone:
        columns["n"] = pa.array(range(len(values)), pa.int32())
    table = pa.table(columns)
    for topic in ("one", "two"):
        log.create_topic(topic, table.schema)
    with Producer(log) as producer:
        producer.send("one", table)
    path = tmp_path / "some.csv"
    answer = txnlog("consume", "one", "-o", path, "--binary", binary)
    assert answer.code == 0, answer.err
    answer = txnlog("produce", "two", path, "--binary", binary)
    assert answer.code == 0, answer.err
    log.refresh()
    assert log.read("two").read_all() == log.read("one").read_all() == table


@pytest.mark.parametrize(
    ("name", "options", "begins"),
    [
        ("out.json", [], b'{"id":'),
        ("out.jsonl", [], b'{"id":'),
        ("out.ndjson", ["--format", "json"], b'{"id":'),
        ("out.csv", [], b'"id","amount","note"\n'),
        ("OUT.CSV", [], b'"id","amount","note"\n'),
        ("out.parquet", [], b"PAR1"),
        ("out.parquet", ["--format", "parquet"], b"PAR1"),
        ("out.txt", [], b'{"id":'),
        ("out", [], b'{"id":'),
        ("out.txt", ["--format", "csv"], b'"id","amount","note"\n'),
        ("out.jsonl", ["--json"], b'{"id":'),
    ],
)
def test_the_suffix_of_the_file_decides_its_form(
    txnlog: Command, filled: TxnLog, tmp_path: Path, name: str, options: list[str], begins: bytes
) -> None:
    answer = txnlog("consume", "orders", "-o", tmp_path / name, *options)
    assert answer.code == 0, answer.err
    assert (tmp_path / name).read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("out.parquet", ["--format", "csv"]),
        ("out.csv", ["--format", "json"]),
        ("out.json", ["--format", "parquet"]),
        ("out.csv", ["--json"]),
        ("out.csv", ["--format", "table"]),
    ],
)
def test_a_form_that_contradicts_the_suffix_is_refused(
    txnlog: Command, filled: TxnLog, tmp_path: Path, name: str, options: list[str]
) -> None:
    path = tmp_path / name
    path.write_text("what was there")
    answer = txnlog("consume", "orders", "-o", path, *options)
    assert (answer.code, answer.out) == (2, "")
    assert options[-1] in answer.err
    assert path.read_text() == "what was there"


def test_decimals_of_csv_that_do_not_fit_are_all_named_with_their_row(
    txnlog: Command, log: TxnLog, tmp_path: Path
) -> None:
    log.create_topic("prices", pa.schema([("price", pa.decimal128(4, 2)), ("raw", pa.binary())]))
    path = tmp_path / "some.csv"
    path.write_text("raw,price\n00,1.50\nzz,x\n00,1_0\n00,1.234\n")
    answer = txnlog("produce", "prices", path, "--binary", "hex", "--json")
    assert (answer.code, answer.error["kind"]) == (2, "invalid-record")
    assert sorted(answer.error["problems"]) == [
        "row 3, column 'price': 'x' is not a value of decimal128(4, 2)",
        "row 3, column 'raw': 'zz' is not hex",
        "row 4, column 'price': '1_0' is not a value of decimal128(4, 2)",
        "row 5, column 'price': '1.234' is not a value of decimal128(4, 2): too many digits",
    ]
    assert log.read("prices").read_all().num_rows == 0


def test_a_decimal_is_shown_as_it_was_written(txnlog: Command, log: TxnLog) -> None:
    log.create_topic(
        "small", pa.schema([("n", pa.int8()), ("l", pa.list_(pa.int8())), ("d", pa.decimal128(4, 2))])
    )
    answer = txnlog("produce", "small", "--json", stdin='{"n":1e400,"l":[[1.5]]}\n')
    assert answer.error["problems"] == [
        "line 1, column 'n': 1E+400 is not a value of int8",
        "line 1, column 'l': [1.5] is not a value of int8",
    ]


def test_times_of_csv_without_a_zone_are_in_utc(txnlog: Command, log: TxnLog) -> None:
    """As those of JSON are."""
    log.create_topic("t", pa.schema([("at", pa.timestamp("us", tz="UTC")), ("id", pa.int64())]))
    times = [
        "2026-01-02 03:04:05",
        "2026-01-02T03:04:05.000001",
        "2026-01-02 03:04",
        "2026-01-02 04:04:05+01:00",
        "2026-01-02T03:04:05Z",
        "2026-01-02T02:04:05-0100",
        "",
    ]
    for lines in (times, [*times, "2026-01-02"]):  # a date alone makes Python read all of them
        data = "at,id\n" + "".join(f"{time},{number}\n" for number, time in enumerate(lines))
        answer = txnlog("produce", "t", "--format", "csv", stdin=data)
        assert answer.code == 0, answer.err
    found = [row["at"] for row in txnlog("consume", "t").lines]
    second = "2026-01-02T03:04:05Z"
    first = [second, "2026-01-02T03:04:05.000001Z", "2026-01-02T03:04:00Z", second, second, second, None]
    assert found == [*first, *first, "2026-01-02T00:00:00Z"]


def test_a_time_of_csv_that_is_none_names_row_column_and_form(txnlog: Command, log: TxnLog) -> None:
    log.create_topic("t", pa.schema([("at", pa.timestamp("us", tz="UTC")), ("id", pa.int64())]))
    lines = "at,id\n2026-01-02 03:04:05,1\n02.01.2026 03:04,2\n2026-01-02 03:04:05.1234567,3\n"
    error = txnlog("produce", "t", "--format", "csv", "--json", stdin=lines).error
    assert error["problems"] == [
        "row 3, column 'at': '02.01.2026 03:04' is not a value of timestamp[us, tz=UTC]; write ISO 8601",
        (
            "row 4, column 'at': '2026-01-02 03:04:05.1234567' is not a value of timestamp[us, tz=UTC]: finer "
            "than a microsecond"
        ),
    ]


# --- CSV: every wrong row, and other characters between values ----------------------------------------------


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ('id,s\n1,"abc\n2,d\n', 2),
        ('id,s\n1,a\n2,"cut he', 3),
        ('id,s\n1,a\n2,"', 3),
        ('id,s\n1,a\n2,"ends ""', 3),
        ('"id","s"\r\n1,"a\r\nb"\r\n2,"c\r\n', 3),
        ('id,s\n1,"a\n2\n3,b\n', 2),
    ],
)
def test_csv_that_is_cut_off_in_a_quoted_value_is_refused(
    txnlog: Command, log: TxnLog, text: str, row: int
) -> None:
    log.create_topic("t", pa.schema([("id", pa.int64()), ("s", pa.string())]))
    answer = txnlog("produce", "t", "--format", "csv", "--json", stdin=text)
    assert (answer.code, answer.error["kind"]) == (2, "invalid-record")
    assert answer.error["problems"][-1].startswith(f"row {row}: its quote is not closed")
    assert txnlog("consume", "t").out == ""


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\r"])
def test_csv_may_end_without_a_line_break(txnlog: Command, log: TxnLog, end: str) -> None:
    log.create_topic("t", pa.schema([("s", pa.string())]))
    assert txnlog("produce", "t", "--format", "csv", stdin='s\na\n\n"b""c\n"' + end).code == 0
    assert [row["s"] for row in txnlog("consume", "t").lines] == ["a", None, 'b"c\n']


def test_long_values_of_csv_are_read_up_to_a_bound(txnlog: Command, log: TxnLog) -> None:
    log.create_topic("t", pa.schema([("s", pa.string())]))
    assert txnlog("produce", "t", "--format", "csv", stdin=f"s\n{'x' * 5_000_000}\n").code == 0
    assert [len(row["s"]) for row in txnlog("consume", "t").lines] == [5_000_000]
    answer = txnlog("produce", "t", "--format", "csv", stdin=f"s\n{'x' * 40_000_000}\n")
    assert answer.code == 2
    assert "a row is larger than 16,777,216 bytes: use JSON lines or Parquet" in answer.err


def test_every_wrong_row_of_csv_is_named(txnlog: Command, log: TxnLog) -> None:
    types = {
        "n": pa.int8(),
        "f": pa.float64(),
        "b": pa.bool_(),
        "s": pa.string(),
        "d": pa.date32(),
        "t": pa.time64("us"),
        "at": pa.timestamp("us"),
    }
    log.create_topic("t", pa.schema(list(types.items())))
    entry = log.refresh().entry
    right = b"1,0.5,true,x,2026-01-02,01:02:03.5,2026-01-02 03:04:05\n"
    rows = [
        right,
        right.replace(b"1,", b"300,", 1),
        right.replace(b"0.5", b"half"),
        b"1,2\n",
        right.replace(b"true", b"yes"),
        right.replace(b"x", b"\xff"),
        b",,,,,,\n",
        right.replace(b"2026-01-02,", b"2026-13-02,"),
        right.replace(b"01:02:03.5", b"24:00"),
        right.replace(b" 03:04:05", b" noon"),
        right.replace(b"\n", b",more\n"),
    ]
    answer = txnlog("produce", "t", "--format", "csv", "--json", stdin=b"n,f,b,s,d,t,at\n" + b"".join(rows))
    assert answer.error["problems"] == [
        "row 3, column 'n': '300' is not a value of int8",
        "row 4, column 'f': 'half' is not a value of double",
        "row 5: it has 2, not 7 values: '1,2'",
        "row 6, column 'b': 'yes' is not a value of bool",
        "row 7, column 's': not UTF-8: byte 0xff at byte 1",
        "row 9, column 'd': '2026-13-02' is not a value of date32[day]",
        "row 10, column 't': '24:00' is not a value of time64[us]",
        "row 11, column 'at': '2026-01-02 noon' is not a value of timestamp[us]",
        "row 12: it has 8, not 7 values: '1,0.5,true,x,2026-01-02,01:02:03.5,2026-01-02 03:04:05,more'",
    ]
    assert (answer.code, answer.error["kind"]) == (2, "invalid-record")
    assert log.refresh().entry == entry
    assert txnlog("produce", "t", "--format", "csv", stdin=b"n,f,b,s,d,t,at\n" + right * 2).code == 0


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"n,\xed\n1,2\n", "row 1, the header: not UTF-8: byte 0xed at byte 1"),
        (b"n,s\n1,\xed\x01\n", "row 2, column 's': not UTF-8: byte 0xed at byte 1"),
        (b"n,s\n1,\xed\x01,3\n", r"row 2: it has 3, not 2 values: '1,\xed\x01,3'"),
    ],
)
def test_csv_that_is_not_utf8_is_one_clear_error(
    process: Command, root: Path, tmp_path: Path, data: bytes, problem: str
) -> None:
    TxnLog.create(root).create_topic("t", pa.schema([("n", pa.int64()), ("s", pa.string())]))
    path = tmp_path / "some.csv"
    path.write_bytes(data)
    answer = process("produce", "t", path, "--json")
    assert (answer.code, len(answer.err.splitlines())) == (2, 1)
    assert problem in answer.error["message"]


def test_integers_of_csv_are_decimal_digits(txnlog: Command, log: TxnLog) -> None:
    log.create_topic("t", pa.schema([("n", pa.int64()), ("s", pa.string())]))
    texts = ("0x10", "-0x1", "1_0", "+1", "\u0663", "1.0", "1e3", "- 1", "")
    rows = "n,s\n" + "".join(f"{text},x\n" for text in texts)
    assert txnlog("produce", "t", "--format", "csv", "--json", stdin=rows).error["problems"] == [
        f"row {row}, column 'n': '{text}' is not a value of int64; write digits, such as 42 or -42"
        for row, text in enumerate(texts[:-1], start=2)
    ]
    assert txnlog("produce", "t", "--format", "csv", stdin="n,s\n-7,x\n 08 ,x\n,x\n").code == 0
    assert sorted(row["n"] or 0 for row in txnlog("consume", "t").lines) == [-7, 0, 8]


def test_rows_that_are_not_utf8_are_named_among_the_other_wrong_rows(txnlog: Command, log: TxnLog) -> None:
    """Also those with too many values or too few, which pyarrow cannot hand on."""
    log.create_topic("t", pa.schema([("n", pa.int64()), ("s", pa.string())]))
    rows = [b"n,s", b"x,y", b"2\xff", b"3,z", b"\xc3,\xa9,4", b"5,\xfe", b'"\xff\n",6,7', b"w,\xc3\xa9"]
    wanted = [
        "row 2, column 'n': 'x' is not a value of int64; write digits, such as 42 or -42",
        r"row 3: it has 1, not 2 values: '2\xff'",
        r"row 5: it has 3, not 2 values: '\xc3,\xa9,4'",
        "row 6, column 's': not UTF-8: byte 0xfe at byte 1",
        r"row 7: it has 3, not 2 values: '" + '"' + r"\xff\n" + '"' + r",6,7'",
        "row 8, column 'n': 'w' is not a value of int64; write digits, such as 42 or -42",
    ]
    answer = txnlog("produce", "t", "--format", "csv", "--json", stdin=b"\n".join(rows) + b"\n")
    assert (answer.code, answer.error["problems"]) == (2, wanted)
    answer = txnlog("produce", "t", "--format", "csv", "--json", stdin=b"\n".join(rows))
    assert answer.error["problems"] == wanted


def test_bytes_of_csv_come_in_as_they_are_also_those_that_stand_for_others(
    txnlog: Command, log: TxnLog
) -> None:
    log.create_topic("t", pa.schema([("raw", pa.binary()), ("s", pa.string())]))
    values = [bytes([byte]) * 3 for byte in range(128, 256)] + [
        "\U0010ff00".encode(),
        "\U0010ffff".encode() + b"\xff",
        "é€😀".encode(),
        b"\xc3",
    ]
    lines = [b"raw,s", *(value + b',"\xf4\x8f\xbd\x81\xc3\xa9"' for value in values)]
    answer = txnlog("produce", "t", "--format", "csv", stdin=b"\n".join(lines))
    assert answer.code == 0, answer.err
    found = log.read("t").read_all()
    assert found.column("raw").to_pylist() == values
    assert set(found.column("s").to_pylist()) == {"\U0010ff41é"}


def test_rows_of_csv_are_counted_through_all_of_a_long_file(txnlog: Command, log: TxnLog) -> None:
    log.create_topic("t", pa.schema([("n", pa.int64()), ("s", pa.string())]))
    lines = [f"{number},{'x' * 40}" for number in range(2, 60_001)]
    lines[30_000 - 2] = "short"
    lines[59_000 - 2] = "y,z"
    text = "n,s\n" + "\n".join(lines) + "\n"
    problems = txnlog("produce", "t", "--format", "csv", "--json", stdin=text).error["problems"]
    assert problems == [
        "row 30000: it has 1, not 2 values: 'short'",
        "row 59000, column 'n': 'y' is not a value of int64; write digits, such as 42 or -42",
    ]
    many = "n,s\n" + "".join(f"a{number},b\n" for number in range(1_000))
    problems = txnlog("produce", "t", "--format", "csv", "--json", stdin=many).error["problems"]
    assert len(problems) == 21
    assert problems[:1] == [
        "row 2, column 'n': 'a0' is not a value of int64; write digits, such as 42 or -42"
    ]
    assert problems[-1] == "and 980 more"
    assert txnlog("consume", "t").out == ""


@pytest.mark.parametrize(("option", "between"), [(";", ";"), ("|", "|"), ("tab", "\t"), (r"\t", "\t")])
def test_another_character_stands_between_values(
    txnlog: Command, log: TxnLog, option: str, between: str
) -> None:
    log.create_topic("t", pa.schema([("n", pa.int64()), ("s", pa.string())]))
    text = f'"n"{between}"s"\n1{between}"a,b{between}c"\n'
    assert txnlog("produce", "t", "--format", "csv", "--delimiter", option, stdin=text).code == 0
    assert txnlog("consume", "t").lines == [{"n": 1, "s": f"a,b{between}c"}]
    assert txnlog("consume", "t", "--format", "csv", "--delimiter", option).out == text


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_values_of_other_forms_have_no_delimiter(txnlog: Command, filled: TxnLog, command: str) -> None:
    before = filled.refresh().entry
    answer = txnlog(command, "orders", "--format", "json", "--delimiter", ";", stdin="{}\n")
    assert answer.code == 2
    assert "--delimiter needs --format csv" in answer.err
    assert filled.refresh().entry == before


@pytest.mark.parametrize("option", ["", ";;", '"', "\n", "\u00b7"])
@pytest.mark.parametrize("command", ["produce", "consume"])
def test_what_cannot_stand_between_values(txnlog: Command, filled: TxnLog, command: str, option: str) -> None:
    answer = txnlog(command, "orders", "--format", "csv", "--delimiter", option, "--json")
    assert (answer.code, answer.error["kind"]) == (2, "usage")
    assert "is not one character" in answer.error["message"]
