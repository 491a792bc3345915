"""produce and consume: all or nothing, nothing lost between them."""

from __future__ import annotations

import datetime
import json
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.conftest import Command
from txnformat.columns.json_values import Binary, decoder, encoder
from txnlog import Consumer, Producer, TxnLog
from txnlog.cli.records.sources import _object

ORDERS = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("note", pa.string())])

BEFORE = 1
"""Entry that makes the topic."""


@pytest.fixture
def orders(log: TxnLog) -> TxnLog:
    log.create_topic("orders", ORDERS, partitions=2)
    return log


def _rows(log: TxnLog, topic: str = "orders") -> list[dict[str, Any]]:
    log.refresh()
    found: list[dict[str, Any]] = log.read(topic).read_all().to_pylist()
    return found


# --- produce ------------------------------------------------------------------------------------------------


def test_json_lines_from_stdin_are_one_entry(txnlog: Command, orders: TxnLog) -> None:
    answer = txnlog(
        "produce", "orders", "-p", 1, "--json", stdin='\ufeff{"id":1,"amount":2.5,"note":"ü"}\n\n{"id":2}\n'
    )
    assert answer.code == 0
    assert answer.json == {
        "topic": "orders",
        "records": 2,
        "entry": BEFORE + 1,
        "timestamp_ms": orders.refresh().timestamp_ms,
        "offsets": [{"partition": 1, "base_offset": 0}],
    }
    assert _rows(orders) == [
        {"id": 1, "amount": 2.5, "note": "ü"},
        {"id": 2, "amount": None, "note": None},
    ]


def test_many_records_are_one_entry_too(txnlog: Command, orders: TxnLog, tmp_path: Path) -> None:
    """More than one piece, over both partitions."""
    path = tmp_path / "many.jsonl"
    path.write_text("".join(f'{{"id":{number}}}\n' for number in range(25_000)))
    assert txnlog("produce", "orders", path).code == 0
    assert orders.refresh().entry == BEFORE + 1
    assert sorted(row["id"] for row in _rows(orders)) == list(range(25_000))


def test_csv_has_a_header_and_tells_null_from_empty(txnlog: Command, orders: TxnLog, tmp_path: Path) -> None:
    path = tmp_path / "some.csv"
    path.write_text('note,id,amount\n"",1,2.5\n,2,\n"a ""b""\nc",3,1e3\n')
    assert txnlog("produce", "orders", path).code == 0
    assert _rows(orders) == [
        {"id": 1, "amount": 2.5, "note": ""},
        {"id": 2, "amount": None, "note": None},
        {"id": 3, "amount": 1000.0, "note": 'a "b"\nc'},
    ]


def test_parquet_by_file_and_by_stdin(txnlog: Command, orders: TxnLog, tmp_path: Path) -> None:
    path = tmp_path / "some.parquet"
    pq.write_table(pa.table({"id": [7], "amount": [0.5], "note": ["x"]}), path)
    assert txnlog("produce", "orders", path).code == 0
    assert txnlog("produce", "orders", "--format", "parquet", stdin=path.read_bytes()).code == 0
    assert _rows(orders) == [{"id": 7, "amount": 0.5, "note": "x"}] * 2


def test_with_a_transactional_id_it_is_that_producers_transaction(txnlog: Command, orders: TxnLog) -> None:
    zombie = Producer(orders, "etl", buffer="inline")
    zombie.init()
    zombie.begin()
    zombie.send("orders", [{"id": 0, "amount": None, "note": None}])
    zombie.flush()
    assert txnlog("produce", "orders", "--transactional-id", "etl", stdin='{"id":1}').code == 0
    assert [row["id"] for row in _rows(orders)] == [1], "what the id had left open is aborted"
    assert orders.outcome("etl", 1).outcome == "commit"


def test_one_record_is_called_one(txnlog: Command, orders: TxnLog) -> None:
    assert txnlog("produce", "orders", stdin='{"id":1}').out.startswith("1 record to orders, ")
    assert txnlog("produce", "orders", stdin='{"id":1}\n{"id":2}').out.startswith("2 records to orders, ")


def test_no_input_is_no_entry(txnlog: Command, orders: TxnLog) -> None:
    assert txnlog("produce", "orders", "--json").json["entry"] is None
    assert orders.refresh().entry == BEFORE


class _Name(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        _Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_name_that_appears_twice_among_very_many_is_found_at_once() -> None:
    names = [_Name(number) for number in range(2_000)]
    with pytest.raises(ValueError, match="'1999' appears twice"):
        _object([(name, None) for name in [*names, _Name(1999)]])
    assert _Name.compared < 10_000


BAD = [
    ('{"id":1}\nnot json\n', [], "line 2: not JSON"),
    ('{"id":1}\n[1]\n', [], "line 2: [1] is not an object"),
    ('{"id":"1"}\n', [], "line 1, column 'id': '1' is not a value of int64"),
    ('{"id":true}\n', [], "line 1, column 'id': true is not a value of int64"),
    ('{"id":{"a":[null,false,1.5]}}\n', [], """'id': {"a": [null, false, 1.5]} is not a value of int64"""),
    ("null\n", [], "line 1: null is not an object with the topic's columns"),
    ('{"id":1.0}\n', [], "line 1, column 'id': 1.0 is not a value of int64"),
    (
        '{"id":9223372036854775808}\n',
        [],
        "column 'id': 9223372036854775808 is not a value of int64: out of range",
    ),
    ('\n{"amount":"1"}\n', [], "line 2, column 'amount': '1' is not a value of double"),
    ('{"amount":1e999}\n', [], "column 'amount': Infinity is not a value of double: out of range"),
    ('{"amount":' + "9" * 400 + "}\n", [], "is not a value of double: out of range"),
    ('{"id":1,"id":2}\n', [], "line 1: 'id' appears twice"),
    ('{"note":"\\ud800"}\n', [], "line 1, column 'note'"),
    ('{"ident":1}\n', [], "line 1, column 'ident': the topic has no such column"),
    ('{"ID":1}\n', [], "line 1, column 'ID': the topic has no such column; did you mean 'id'?"),
    ("ID,amount,note\n1,1,x\n", ["--format", "csv"], "'ID' is not in the topic; did you mean 'id'?"),
    ("[" * 100_000, [], "line 1: not JSON"),
    (
        "id,amount,note\n1,2,x\nx,1,y\n",
        ["--format", "csv"],
        "row 3, column 'id': 'x' is not a value of int64",
    ),
    ("id,note\n1,x\n", ["--format", "csv"], "column 'amount' is missing"),
    ("id,amount,note,more\n1,1,x,2\n", ["--format", "csv"], "column 'more' is not in the topic"),
    ("id,amount,note\n1,x\n", ["--format", "csv"], "row 2: it has 2, not 3 values: '1,x'"),
    ("", ["--format", "csv"], "Empty CSV file"),
    ("no parquet", ["--format", "parquet"], "this is not a Parquet file"),
    ('{"id":1}\n', ["--partition", "2"], "no such partition"),
    ('{"id":1\n', [], "line 1: not JSON: Expecting ',' delimiter at character 8"),
    ('{"id":' + "9" * 5000 + "}\n", [], "line 1: not JSON: a number has more than 4300 digits"),
    ("[" * 100_000, [], "line 1: not JSON: values are nested too deeply"),
    (b'{"note":"\xff"}\n', [], "line 1: not UTF-8: byte 0xff at byte 10"),
    ('{"id":1}\n', ["--transactional-id", ""], "is not a valid transactional id"),
]


@pytest.mark.parametrize(("stdin", "options", "message"), BAD, ids=range(len(BAD)))
def test_bad_input_names_its_place_and_nothing_is_written(
    txnlog: Command, orders: TxnLog, stdin: str | bytes, options: list[str], message: str
) -> None:
    good = "" if options else '{"id":1}\n' * 10_000
    data = stdin.encode() if isinstance(stdin, str) else stdin
    answer = txnlog("produce", "orders", *options, stdin=good.encode() + data)
    assert answer.code in (2, 3)
    assert (
        message.replace("line 1", f"line {good.count(chr(10)) + 1}").replace(
            "line 2", f"line {good.count(chr(10)) + 2}"
        )
        in answer.err
    )
    assert "Traceback" not in answer.err
    assert answer.out == ""
    assert orders.refresh().entry == BEFORE


@pytest.mark.parametrize("type_", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_a_float_holds_what_its_type_holds_and_nothing_becomes_infinity(type_: pa.DataType) -> None:
    largest = {"halffloat": 65504, "float": 3.4028234663852886e38, "double": 1.7976931348623157e308}[
        str(type_)
    ]
    decode = decoder(type_, Binary.UTF8)
    assert [pa.array([decode(value)], type_)[0].as_py() for value in (largest, -largest)] == [
        largest,
        -largest,
    ]
    assert decode("-Infinity") == -math.inf
    for value in (largest * 2, -largest * 2, 10**400, Decimal("1e400")):
        with pytest.raises(ValueError, match="out of range"):
            decode(value)


def test_bad_input_of_a_transactional_producer_leaves_its_opening_only(
    txnlog: Command, orders: TxnLog
) -> None:
    answer = txnlog("produce", "orders", "--transactional-id", "etl", stdin='{"id":1}\n{"id":"x"}\n')
    assert answer.code == 2
    assert "nothing was written" not in answer.err
    assert "hint: no record was written" in answer.err
    assert "note: the log holds the opening of producer 'etl'" in answer.err
    assert [entry.operations for entry in orders.history(limit=1)] == [("init_producer",)]
    assert _rows(orders) == []


def test_records_of_the_kafka_schema_get_the_time_that_their_line_leaves_out(
    txnlog: Command, log: TxnLog
) -> None:
    """As ``send(key=, value=)`` does: else reads by time pass them over."""
    log.create_topic("events", "kafka")
    before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=1)
    lines = '{"key":"a","value":"1"}\n{"value":"2","timestamp":null}\n{"value":"3","timestamp":"2026-01-02T00:00:00"}\n'
    assert txnlog("produce", "events", stdin=lines).code == 0
    first, second, third = (row["timestamp"] for row in _rows(log, "events"))
    assert before < first < datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=1)
    assert second is None, "the line says so"
    assert third == datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    with Consumer(log, "late") as consumer:
        assert consumer.offsets_for_times({("events", 0): before}) == {("events", 0): 0}


def test_a_column_named_timestamp_of_another_schema_stays_null(txnlog: Command, log: TxnLog) -> None:
    schema = pa.schema([("id", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC"))])
    log.create_topic("others", schema, timestamp_column="timestamp")
    assert txnlog("produce", "others", stdin='{"id":1}').code == 0
    assert _rows(log, "others") == [{"id": 1, "timestamp": None}]


def test_a_file_that_is_missing_or_of_unknown_form(txnlog: Command, orders: TxnLog, tmp_path: Path) -> None:
    missing = txnlog("produce", "orders", tmp_path / "none.jsonl", "--json")
    assert (missing.code, missing.error["kind"]) == (3, "no-file")
    (tmp_path / "some.txt").write_text("{}")
    unknown = txnlog("produce", "orders", tmp_path / "some.txt", "--json")
    assert (unknown.code, unknown.error["kind"]) == (2, "unknown-format")
    nowhere = txnlog("produce", "orders", tmp_path / "none.txt", "--json")
    assert (nowhere.code, nowhere.error["kind"]) == (3, "no-file"), "its form is the smaller problem"
    for options in ([], ["--format", "json"]):
        folder = txnlog("produce", "orders", tmp_path, *options, "--json")
        assert (folder.code, folder.error["kind"]) == (2, "invalid-file")
    assert orders.refresh().entry == BEFORE


def test_columns_that_a_form_cannot_hold_are_refused(txnlog: Command, log: TxnLog) -> None:
    log.create_topic("nested", pa.schema([("tags", pa.list_(pa.string()))]))
    answer = txnlog("produce", "nested", "--format", "csv", "--json", stdin="tags\nx\n")
    assert answer.error["kind"] == "unsupported-column"
    assert txnlog("consume", "nested", "--format", "csv", "--json").error["kind"] == "usage"
    assert txnlog("consume", "nested", "--format", "csv").code == 2


# --- consume ------------------------------------------------------------------------------------------------


@pytest.fixture
def filled(orders: TxnLog) -> TxnLog:
    """Offsets 0 to 4 of partition 0 (2 and 3 aborted, 3 the marker), 0 of partition 1."""
    with Producer(orders, "p", buffer="inline") as producer:
        producer.begin()
        producer.send(
            "orders", [{"id": number, "amount": 0.5, "note": None} for number in (0, 1)], partition=0
        )
        producer.send("orders", [{"id": 10, "amount": math.nan, "note": "n"}], partition=1)
        producer.commit()
        producer.begin()
        producer.send("orders", [{"id": 2, "amount": None, "note": None}], partition=0)
        producer.flush()
        producer.abort()
    return orders


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ([], [0, 1, 10]),
        (["--isolation", "read_uncommitted"], [0, 1, 2, 10]),
        (["--partition", "1"], [10]),
        (["--partition", "0,1"], [0, 1, 10]),
        (["--from", "1"], [1]),
        (["--from", "0:1", "--to", "0:2,1:1"], [1, 10]),
        (["--from", "0:1", "-p", "0"], [1]),
        (["--limit", "2"], [0, 1]),
        (["--where", "id > 0"], [1, 10]),
        (["--where", "note IS NULL AND _offset >= 1"], [1]),
        (["--where", "id > 0", "--limit", "1"], [1]),
        (["--limit", "0"], []),
        (["--isolation", "snapshot"], [0, 1, 10]),
        (["--version-as-of", str(BEFORE)], []),
        (["--version-as-of", str(BEFORE + 2), "--isolation", "snapshot", "--from", "1"], [1]),
    ],
)
def test_what_is_asked_for_is_read(
    txnlog: Command, filled: TxnLog, options: list[str], ids: list[int]
) -> None:
    answer = txnlog("consume", "orders", *options)
    assert answer.code == 0, answer.err
    assert [row["id"] for row in answer.lines] == ids


def test_columns_and_metadata(txnlog: Command, filled: TxnLog) -> None:
    (row,) = txnlog("consume", "orders", "--columns", "note, id", "--metadata", "-p", 1).lines
    time = row.pop("_timestamp")
    assert row == {"_partition": 1, "_offset": 0, "note": "n", "id": 10}
    assert datetime.datetime.fromisoformat(time).tzinfo is not None
    assert list(row) == ["_partition", "_offset", "note", "id"]
    (row,) = txnlog("consume", "orders", "--columns", "_entry,_topic,amount", "-p", 1).lines
    assert row == {"_entry": BEFORE + 2, "_topic": "orders", "amount": "NaN"}


def test_a_table_that_is_cut_off_says_so(txnlog: Command, log: TxnLog) -> None:
    log.create_topic("many", pa.schema([("id", pa.int64())]))
    txnlog("produce", "many", stdin='{"id":1}\n' * 100)
    whole = txnlog("consume", "many", "--format", "table")
    assert (len(whole.out.splitlines()), whole.err) == (101, "")
    txnlog("produce", "many", stdin='{"id":1}')
    cut = txnlog("consume", "many", "--format", "table")
    assert cut.out == whole.out
    assert cut.err == (
        "txnlog: note: there are more than 100 records: set --limit, or show all with --format json or csv\n"
    )
    more = txnlog("consume", "many", "--format", "table", "--limit", 101)
    assert (len(more.out.splitlines()), more.err) == (102, "")
    fewer = txnlog("consume", "many", "--format", "table", "--limit", 1)
    assert (len(fewer.out.splitlines()), fewer.err) == (2, ""), "that is what was asked for"


def test_a_table_is_plain_in_a_pipe(txnlog: Command, filled: TxnLog) -> None:
    assert txnlog("consume", "orders", "--format", "table", "--columns", "_offset,id,note").out == (
        "_offset  id  note\n"
        "      0   0  -\n"
        "      1   1  -\n"
        "      0  10  n\n"
    )  # fmt: skip


def test_csv_and_parquet_come_back_as_they_went(txnlog: Command, filled: TxnLog, tmp_path: Path) -> None:
    before = txnlog("consume", "orders").out
    for name in ("some.csv", "some.parquet", "some.jsonl"):
        kind = name.partition(".")[2].replace("jsonl", "json")
        path = tmp_path / name
        assert txnlog("consume", "orders", "--format", kind, "-o", path).code == 0
        topic = f"copy-{kind}"
        filled.create_topic(topic, ORDERS)
        assert txnlog("produce", topic, path).code == 0
        assert txnlog("consume", topic).out == before
        assert not list(tmp_path.glob("*.partial"))


def test_a_file_appears_whole_or_not_at_all(txnlog: Command, log: TxnLog, tmp_path: Path) -> None:
    log.create_topic("raw", pa.schema([("bytes", pa.binary())]))
    with Producer(log) as producer:
        producer.send("raw", [{"bytes": b"fine"}, {"bytes": b"\xff"}])
    path = tmp_path / "out.jsonl"
    path.write_text("what was there")
    answer = txnlog("consume", "raw", "-o", path, "--json")
    assert (answer.code, answer.error["kind"]) == (2, "not-utf8")
    assert path.read_text() == "what was there"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["log", "out.jsonl"]
    assert txnlog("consume", "raw", "--binary", "base64").lines == [{"bytes": "ZmluZQ=="}, {"bytes": "/w=="}]


@pytest.mark.parametrize(
    ("options", "code", "kind"),
    [
        (["--columns", "id,nix"], 2, "unknown-column"),
        (["--columns", "id,id"], 2, "repeated-column"),
        (["--from", "99"], 2, "offset-out-of-range"),
        (["--from", "x"], 2, "usage"),
        (["--where", "id >"], 2, "invalid-where"),
        (["--where", "nix = 1"], 2, "invalid-where"),
        (["--from", "0:1,0:2"], 2, "usage"),
        (["--from", "0:2", "--to", "0:1"], 2, "end-before-start"),
        (["--partition", "7"], 3, "unknown-partition"),
        (["--partition", "x"], 2, "usage"),
        (["--limit", "-1"], 2, "usage"),
        (["--format", "parquet"], 2, "usage"),
        (["--isolation", "serializable"], 2, "usage"),
        (["--version-as-of", "-1"], 3, "unknown-version"),
        (["--version-as-of", "x"], 2, "usage"),
        (["--version-as-of", "1", "--isolation", "read_committed"], 2, "invalid-version"),
        (["--timestamp-as-of", "1999-12-31"], 3, "timestamp-before-log"),
        (["--timestamp-as-of", "2999-12-31T00:00Z"], 3, "timestamp-in-future"),
        (["--timestamp-as-of", "yesterday"], 2, "invalid-timestamp"),
        (["-o", "/nowhere/file.jsonl"], 5, "output-failed"),
    ],
)
def test_a_bad_question_is_answered_on_stderr(
    txnlog: Command, filled: TxnLog, options: list[str], code: int, kind: str
) -> None:
    answer = txnlog("consume", "orders", "--json", *options)
    assert (answer.code, answer.out) == (code, "")
    assert answer.error["kind"] == ("usage" if "parquet" in options else kind)


# --- values -------------------------------------------------------------------------------------------------

_ELEMENT = pa.struct({"a": pa.int8(), "b": pa.list_(pa.decimal128(6, 2))})
VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(st.characters(exclude_categories=["Cs"]))),
    (pa.binary(), st.binary()),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", tz="UTC"), st.datetimes(timezones=st.just(datetime.UTC))),
    (pa.timestamp("us"), st.datetimes()),
    (pa.decimal128(6, 2), st.decimals("-9999.99", "9999.99", places=2)),
    (
        _ELEMENT,
        st.fixed_dictionaries(
            {"a": st.none() | st.integers(-128, 127), "b": st.lists(st.decimals(-10, 10, places=2))}
        ),
    ),
    (
        pa.map_(pa.string(), pa.int64()),
        st.dictionaries(st.text("abc"), st.integers(0, 9)).map(lambda d: [*d.items()]),
    ),
    (pa.map_(pa.int64(), pa.string()), st.lists(st.tuples(st.integers(0, 9), st.text("abc")))),
]


@pytest.mark.parametrize(("type_", "values"), VALUES, ids=lambda value: str(value)[:20])
def test_every_value_comes_back_from_its_json(type_: pa.DataType, values: st.SearchStrategy[Any]) -> None:
    encode, decode = encoder(type_, Binary.BASE64), decoder(type_, Binary.BASE64)

    @given(values)
    def check(value: Any) -> None:
        (stored,) = pa.array([value], type_).to_pylist()
        text = json.dumps(encode(stored), allow_nan=False)
        assert pa.array([decode(json.loads(text))], type_).to_pylist() == [stored]

    check()


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.decimal128(4, 2), "1.234"),
        (pa.decimal128(4, 2), "123"),
        (pa.decimal128(4, 2), "NaN"),
        (pa.decimal128(4, 2), "x"),
        (pa.int8(), 128),
        (pa.timestamp("us"), "2026-01-01T00:00:00Z"),
        (pa.timestamp("us", tz="UTC"), "2026-01-01T00:00:00.1234567Z"),
        (pa.timestamp("us", tz="UTC"), 1_700_000_000_000),
        (pa.date32(), "2026-02-30"),
        (pa.binary(), 5),
        (pa.bool_(), 1),
        (pa.struct({"a": pa.int8()}), {"b": 1}),
        (pa.map_(pa.string(), pa.int8()), 5),
        (pa.map_(pa.int64(), pa.int8()), [[None, 1]]),
        (pa.list_(pa.int8()), {"a": 1}),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_refused(type_: pa.DataType, value: Any) -> None:
    with pytest.raises(ValueError, match="is not a value of"):
        decoder(type_, Binary.UTF8)(value)


@pytest.mark.parametrize(("binary", "value"), [(Binary.BASE64, "a"), (Binary.HEX, "xy")])
def test_text_that_is_not_bytes_is_refused(binary: Binary, value: str) -> None:
    with pytest.raises(ValueError, match=f"is not {binary}"):
        decoder(pa.binary(), binary)(value)


@pytest.mark.parametrize("number", ["1E-999999999999999999999", "9e999999999999999999999", "1e400"])
def test_numbers_beyond_any_column_are_named(txnlog: Command, log: TxnLog, number: str) -> None:
    log.create_topic("prices", pa.schema([("price", pa.decimal128(20, 10)), ("ratio", pa.float64())]))
    for column in ("price", "ratio"):
        answer = txnlog("produce", "prices", stdin=f'{{"{column}":{number}}}')
        assert answer.code == 2
        assert "line 1" in answer.err
    assert _rows(log, "prices") == []


def test_decimals_of_json_numbers_are_exact(txnlog: Command, log: TxnLog) -> None:
    log.create_topic("prices", pa.schema([("price", pa.decimal128(20, 10)), ("ratio", pa.float64())]))
    numbers = [random.Random(seed).randrange(10**19) for seed in range(50)]
    lines = [f'{{"price":{number // 10**10}.{number % 10**10:010},"ratio":0.1}}' for number in numbers]
    assert txnlog("produce", "prices", stdin="\n".join(lines)).code == 0
    assert [row["price"] for row in _rows(log, "prices")] == [
        Decimal(number).scaleb(-10) for number in numbers
    ]
    assert {row["ratio"] for row in _rows(log, "prices")} == {0.1}


def test_an_import_of_one_file_says_what_it_did_and_no_place(
    txnlog: Command, log: TxnLog, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "one.parquet")
    answer = txnlog("import", "parquet", tmp_path / "one.parquet", "fresh")
    assert answer.out == "created topic fresh\nimported 1 row of 1 file in 1 commit\n"
