"""create, topics, create-topic, describe, offsets."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Command
from txnlog import Producer, TxnLog


def test_a_log_is_created_once(txnlog: Command, root: Path) -> None:
    created = txnlog("create", "--json")
    assert created.code == 0
    assert created.json.keys() == {"url", "log_id", "entry"}
    assert created.json["log_id"] == TxnLog.open(root).log_id
    again = txnlog("create", "--json")
    assert (again.code, again.error["kind"]) == (4, "log-exists")
    assert txnlog("create", "--exist-ok", "--json").json["log_id"] == created.json["log_id"]


def test_a_log_without_topics_says_so_beside_the_output(txnlog: Command, log: TxnLog) -> None:
    shown = txnlog("topics")
    assert (shown.code, shown.out) == (0, "")
    assert shown.err == "the log has no topics: `txnlog create-topic` makes one\n"
    assert txnlog("describe").out.startswith(f"Log: {log.url}  LogId: {log.log_id}  Entry: -  Timestamp: -")
    assert txnlog("describe", "--json").json["entry"] == -1


def test_topics_are_listed_by_name_one_a_line(txnlog: Command, log: TxnLog) -> None:
    log.create_topic("orders", "kafka")
    log.create_topic("audit", "kafka")
    assert txnlog("topics").out == "audit\norders\n"
    assert txnlog("topics", "--json").json == {"topics": ["audit", "orders"]}


COLUMNS = {
    "a:bigint": pa.int64(),
    "b:decimal(10, 2)": pa.decimal128(10, 2),
    "c:list<string>": pa.list_(pa.field("element", pa.string())),
    "d:map<string,struct<x:double,y:list<int>>>": pa.map_(
        pa.string(),
        pa.struct({"x": pa.float64(), "y": pa.list_(pa.field("element", pa.int32()))}),
    ),
    "e:timestamp": pa.timestamp("us", tz="UTC"),
    "f:timestamp_ntz": pa.timestamp("us"),
    "g:boolean": pa.bool_(),
    "h:Date": pa.date32(),
    "i:decimal(5)": pa.decimal128(5, 0),
}


def test_columns_are_written_with_sqls_or_arrows_names(txnlog: Command, log: TxnLog) -> None:
    options = [part for column in COLUMNS for part in ("--column", column)]
    answer = txnlog(
        "create-topic", "t", *options, "-p", 3, "--key-column", "a", "--timestamp-column", "e", "--json"
    )
    assert answer.code == 0
    assert answer.json["partitions"] == 3
    assert answer.json["key_columns"] == ["a"]
    assert answer.json["timestamp_column"] == "e"
    schema = log.refresh().topic("t").schema.arrow_schema
    assert schema.names == [column.partition(":")[0] for column in COLUMNS]
    for field, type_ in zip(schema, COLUMNS.values(), strict=True):
        assert field.type.equals(type_), field


def test_a_schema_is_kafkas_or_that_of_a_parquet_file(txnlog: Command, log: TxnLog, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1], "y": ["a"]}), tmp_path / "some.parquet")
    assert txnlog("create-topic", "clicks", "--schema", "kafka").code == 0
    assert txnlog("create-topic", "copy", "--schema", tmp_path / "some.parquet").code == 0
    state = log.refresh()
    assert state.topic("clicks").schema.key_columns == ("key",)
    assert state.topic("copy").schema.arrow_schema.names == ["x", "y"]


def test_a_schema_of_another_system_makes_a_topic_and_comes_out_again(
    txnlog: Command, log: TxnLog, tmp_path: Path
) -> None:
    (tmp_path / "orders.sql").write_text("id BIGINT NOT NULL, tags ARRAY<STRING>")
    arguments = ["--schema", tmp_path / "orders.sql", "--key-column", "id"]
    assert txnlog("create-topic", "orders", *arguments).code == 0
    assert txnlog("schema", "orders").out == "`id` BIGINT,\n`tags` ARRAY<STRING>\n"
    for form, suffix in (
        ("avro", "avsc"),
        ("json-schema", "json"),
        ("protobuf", "proto"),
        ("arrow", "arrow"),
    ):
        path = tmp_path / f"orders.{suffix}"
        assert "bytes" in txnlog("schema", "orders", "--as", form, "--output", path).out
        assert txnlog("create-topic", f"as-{form}", "--schema", path).code == 0
        assert (
            log.refresh().topic(f"as-{form}").schema.arrow_schema
            == log.state.topic("orders").schema.arrow_schema
        )
    assert "message some_name {" in txnlog("schema", "orders", "--as", "protobuf", "--name", "some-name").out
    assert txnlog("schema", "orders", "--as", "spark", "--json").json["schema_id"] == 0
    piped = txnlog("schema", "orders", "--as", "arrow", "--json").json["schema"]
    assert base64.b64decode(piped) == (tmp_path / "orders.arrow").read_bytes()


def test_forms_and_messages_are_named_where_the_file_does_not_say_them(
    txnlog: Command, log: TxnLog, tmp_path: Path
) -> None:
    (tmp_path / "orders").write_text("id int")
    assert txnlog("create-topic", "a", "--schema", tmp_path / "orders", "--schema-format", "ddl").code == 0
    path = tmp_path / "two.proto"
    path.write_text('syntax = "proto3"; message A { int32 a = 1; } message B { int32 b = 1; }')
    error = txnlog("create-topic", "b", "--schema", path, "--json").error
    assert (error["kind"], error["values"]) == ("invalid-schema", {"file": str(path)})
    assert txnlog("create-topic", "b", "--schema", path, "--message", "B").code == 0
    assert log.refresh().topic("b").schema.arrow_schema.names == ["b"]
    assert txnlog("create-topic", "c", "-c", "a:int8", "--message", "B").code == 2


def test_a_topic_grows_to_a_newer_schema(txnlog: Command, log: TxnLog, tmp_path: Path) -> None:
    (tmp_path / "old.sql").write_text("id INT, price DECIMAL(9,2), gone STRING")
    (tmp_path / "new.sql").write_text("id BIGINT, price DECIMAL(11,2), note STRING")
    (tmp_path / "odd.sql").write_text("id STRING, more INT")
    assert txnlog("create-topic", "t", "--schema", tmp_path / "old.sql").code == 0
    before = log.refresh().entry
    odd = txnlog("alter-topic", "t", "--schema", tmp_path / "odd.sql", "--json")
    assert (odd.code, odd.error["kind"]) == (2, "invalid-alter")
    assert "column 'id' is int32 and cannot become string" in odd.error["message"]
    for arguments in (["--schema", tmp_path / "new.sql", "--add-column", "a:int8"], ["--message", "M"]):
        assert txnlog("alter-topic", "t", *arguments).code == 2
    missing = txnlog("alter-topic", "t", "--schema", tmp_path / "none.sql", "--json").error
    assert (missing["kind"], "kafka" in str(missing)) == ("no-file", False)
    assert log.refresh().entry == before
    assert txnlog("alter-topic", "t", "--schema", tmp_path / "new.sql", "--partitions", "2").code == 0
    topic = log.refresh().topic("t")
    expected = [
        ("id", pa.int64()),
        ("price", pa.decimal128(11, 2)),
        ("gone", pa.string()),
        ("note", pa.string()),
    ]
    assert (topic.partitions, topic.schema.arrow_schema) == (2, pa.schema(expected))
    assert "nothing to change" in txnlog("alter-topic", "t", "--schema", tmp_path / "new.sql").err


def test_a_schema_that_cannot_be_mapped_names_every_field_and_creates_nothing(
    txnlog: Command, log: TxnLog, tmp_path: Path
) -> None:
    fields = [{"name": "u", "type": ["int", "string"]}, {"name": "n", "type": "null"}]
    path = tmp_path / "r.avsc"
    path.write_text(json.dumps({"type": "record", "name": "r", "fields": fields}))
    answer = txnlog("create-topic", "t", "--schema", path, "--json")
    assert (answer.code, answer.error["kind"], answer.error["values"]) == (
        2,
        "unsupported-schema",
        {"file": str(path)},
    )
    assert [problem[:9] for problem in answer.error["problems"]] == ["field 'u'", "field 'n'"]
    assert log.refresh().entry == -1
    txnlog("create-topic", "t", "-c", "price:decimal(9,2)")
    answer = txnlog("schema", "t", "--as", "protobuf", "--output", tmp_path / "t.proto", "--json")
    assert (answer.code, answer.error["kind"]) == (2, "unsupported-schema")
    assert not (tmp_path / "t.proto").exists()


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["--column", "a"], "invalid-column"),
        (["--column", "a:nix"], "invalid-column"),
        (["--column", "a:list<int64"], "invalid-column"),
        (["--column", "a:decimal(99,2)"], "invalid-column"),
        (["--column", "a:int64 b"], "invalid-column"),
        (["--column", "a:" + "list<" * 3000], "invalid-column"),
        (["--column", "a:int64", "--key-column", "b"], "invalid-schema"),
        (["--column", "a:int64", "--partitions", "0"], "invalid-input"),
        (["--schema", __file__], "invalid-file"),
        ([], "usage"),
        (["--column", "a:int64", "--schema", "kafka"], "usage"),
        (["--column", "a:int64", "--partitions", "x"], "usage"),
    ],
)
def test_a_bad_topic_is_refused_and_nothing_is_written(
    txnlog: Command, log: TxnLog, arguments: list[str], kind: str
) -> None:
    answer = txnlog("create-topic", "t", *arguments, "--json")
    assert (answer.code, answer.error["kind"], answer.out) == (2, kind, "")
    assert log.refresh().entry == -1


@pytest.mark.parametrize("type_", ["decimal(99,2)", "decimal(0)", "decimal(4,5)", "list<decimal(39,1)>"])
def test_a_decimal_out_of_range_names_the_range(txnlog: Command, log: TxnLog, type_: str) -> None:
    error = txnlog("create-topic", "new", "-c", f"id:{type_}", "--json").error
    assert error["kind"] == "invalid-column"
    assert "a precision from 1 to 38 and a scale from 0 to the precision" in error["message"]


def test_columns_and_a_schema_exclude_each_other(txnlog: Command, log: TxnLog) -> None:
    answer = txnlog("create-topic", "new", "-c", "id:int64", "--schema", "kafka")
    assert answer.code == 2
    assert "give either --column or --schema, not both" in answer.err


def test_every_bad_column_is_named_at_once(txnlog: Command, log: TxnLog) -> None:
    answer = txnlog("create-topic", "t", "-c", "a:nix", "-c", "b:int64", "-c", "c:", "--json")
    assert [problem[:8] for problem in answer.error["problems"]] == ["'a:nix' ", "'c:' is "]


def test_a_topic_exists_once_and_a_missing_file_is_not_found(txnlog: Command, log: TxnLog) -> None:
    assert txnlog("create-topic", "t", "-c", "a:int64").code == 0
    assert txnlog("create-topic", "t", "-c", "a:int64", "--json").error["kind"] == "topic-exists"
    assert txnlog("create-topic", "t", "-c", "a:int64", "--exist-ok").code == 0
    missing = txnlog("create-topic", "u", "--schema", "nowhere.parquet", "--json")
    assert (missing.code, missing.error["kind"]) == (3, "no-file")


@pytest.fixture
def shop(log: TxnLog) -> TxnLog:
    """Two topics, of which one is held back by an open transaction."""
    log.create_topic("orders", pa.schema([("id", pa.int64())]), partitions=2, key_columns=["id"])
    log.create_topic("audit", pa.schema([("text", pa.string())]))
    with Producer(log) as producer:
        producer.send("orders", [{"id": 1}, {"id": 2}], partition=0)
        producer.send("audit", [{"text": "one"}])
    held = Producer(log, "feed\x1b[2J", buffer="inline")
    held.init()
    held.begin()
    held.send("orders", [{"id": 3}], partition=0)
    held.flush()
    return log


def test_describe_prints_what_kafka_topics_prints(txnlog: Command, shop: TxnLog) -> None:
    lines = txnlog("describe", "orders").out.splitlines()
    assert re.fullmatch(r"Topic: orders  TopicId: [0-9a-f-]{36}  PartitionCount: 2", lines[1])
    assert lines[2:] == [
        "KeyColumns: id  TimestampColumn: -",
        "Columns: id:int64",
        "Topic   Partition  EarliestOffset  LastStableOffset  LatestOffset  HeldBy",
        "orders          0               0                 2             3  feed\\x1b[2J",
        "orders          1               0                 0             0  -",
    ]
    whole = txnlog("describe").out
    assert whole.startswith(f"Log: {shop.url}  LogId: {shop.log_id}  Entry: {shop.state.entry}")
    assert "Topic: audit" in whole


def test_describe_as_json_is_the_description(txnlog: Command, shop: TxnLog) -> None:
    document = txnlog("describe", "--json").json
    assert document.keys() == {
        "url",
        "log_id",
        "entry",
        "timestamp_ms",
        "topics",
        "transactions",
        "groups",
        "producer_id_blocks",
        "max_transaction_timeout_ms",
        "growing",
        "boundary",
        "truncate_older_than_ms",
    }
    assert [topic["name"] for topic in document["topics"]] == ["audit", "orders"]
    assert [topic["name"] for topic in txnlog("describe", "audit", "--json").json["topics"]] == ["audit"]


def test_offsets_as_a_table_and_as_json(txnlog: Command, shop: TxnLog) -> None:
    lines = txnlog("offsets").out.splitlines()
    assert [line.split() for line in lines[:2]] == [
        ["Topic", "Partition", "EarliestOffset", "LastStableOffset", "LatestOffset", "HeldBy"],
        ["audit", "0", "0", "1", "1", "-"],
    ]
    first = txnlog("offsets", "orders", "--json").json["offsets"][0]
    assert {name: value for name, value in first.items() if name != "held_by"} == {
        "topic": "orders",
        "partition": 0,
        "earliest": 0,
        "last_stable_offset": 2,
        "log_end": 3,
        "aborted_transactions": 0,
        "lag": 1,
    }
    assert first["held_by"]["first_offset"] == 2


def test_a_topic_grows_in_one_step(txnlog: Command, shop: TxnLog) -> None:
    before = shop.refresh().entry
    answer = txnlog(
        "alter-topic", "orders", "-p", 5, "--add-column", "note:string", "--add-column", "n:int", "--json"
    )
    assert answer.code == 0
    assert (answer.json["partitions"], list(answer.json["columns"])) == (5, ["id", "note", "n"])
    assert shop.refresh().entry == before + 1
    assert txnlog("alter-topic", "orders", "--widen", "n:bigint", "--json").json["columns"]["n"] == "int64"
    assert txnlog("consume", "orders", "--limit", 1).lines == [{"id": 1, "note": None, "n": None}]


@pytest.mark.parametrize(
    ("options", "code", "kind"),
    [
        ([], 2, "invalid-alter"),
        (["--partitions", "1"], 2, "invalid-alter"),
        (["--add-column", "id:int64"], 2, "invalid-alter"),
        (["--add-column", "x"], 2, "invalid-column"),
        (["--widen", "id:int8"], 2, "invalid-alter"),
        (["--widen", "nix:int64"], 2, "invalid-alter"),
        (["--widen", "id:int64", "--widen", "id:int32"], 2, "usage"),
    ],
)
def test_what_is_no_growth_is_refused_and_nothing_is_written(
    txnlog: Command, shop: TxnLog, options: list[str], code: int, kind: str
) -> None:
    before = shop.refresh().entry
    answer = txnlog("alter-topic", "orders", *options, "--json")
    assert (answer.code, answer.error["kind"], answer.out) == (code, kind, "")
    assert shop.refresh().entry == before


@pytest.mark.parametrize("command", ["describe", "offsets", "consume", "produce", "alter-topic"])
def test_an_unknown_topic_is_answered_with_the_nearest(txnlog: Command, shop: TxnLog, command: str) -> None:
    entry = shop.refresh().entry
    answer = txnlog(command, "order", stdin='{"id":1}\n')
    assert (answer.code, answer.out) == (3, "")
    assert "did you mean 'orders'?" in answer.err
    assert shop.refresh().entry == entry


@pytest.mark.parametrize("command", ["topics", "describe", "offsets", "transactions", "history"])
def test_where_there_is_no_log_that_is_said(txnlog: Command, root: Path, command: str) -> None:
    answer = txnlog(command, "--json")
    assert (answer.code, answer.error["kind"]) == (3, "no-log")
    assert not root.exists()


@pytest.fixture
def orders(log: TxnLog) -> TxnLog:
    """Return a log with three records in each of two partitions."""
    log.create_topic("orders", pa.schema([("id", pa.int64())]), partitions=2)
    with Producer(log) as producer:
        for number in range(2):
            producer.send("orders", pa.table({"id": [1, 2, 3]}), partition=number)
    return log


def test_records_are_deleted_up_to_an_offset(txnlog: Command, orders: TxnLog) -> None:
    wanted = {"topic": "orders", "partition": 0, "previous_earliest": 0, "earliest": 2}
    wanted |= {"aborted": [], "given_up": []}
    dry = txnlog("delete-records", "orders", "--before", "0:2", "--dry-run", "--json").json
    assert dry == {"partitions": [wanted], "dry_run": True}
    assert orders.offsets("orders")[0].earliest == 0
    shown = txnlog("delete-records", "orders", "--before", "0:2", "--dry-run").out
    assert shown.splitlines()[-1] == "this is the effect; nothing was changed"
    done = txnlog("delete-records", "orders", "--before", "0:2,1:3")
    assert done.code == 0
    assert done.out.splitlines()[1].split() == ["orders", "0", "0", "2"]
    assert [one.earliest for one in orders.offsets("orders")] == [2, 3]
    assert txnlog("delete-records", "orders", "--before", "3").code == 0
    assert txnlog("delete-records", "orders", "--before", "latest").code == 0
    assert [one.earliest for one in orders.offsets("orders")] == [3, 3]


@pytest.mark.parametrize("before", ["", "0:", ":1", "x:1", "0:-1", "0:1.5", "-1", "\u0661:1"])
def test_a_bad_place_to_delete_to_is_a_usage_error(txnlog: Command, orders: TxnLog, before: str) -> None:
    answer = txnlog("delete-records", "orders", "--before", before, "--json")
    assert (answer.code, answer.error["kind"]) == (2, "usage")
    assert before in answer.error["message"]


def test_a_topic_is_deleted_by_its_name(txnlog: Command, orders: TxnLog) -> None:
    answer = txnlog("delete-topic", "orders", "--json")
    assert (answer.code, answer.error["kind"]) == (2, "usage")
    assert "add --yes" in answer.error["message"]
    assert orders.topics() == ["orders"]
    answer = txnlog("delete-topic", "nothing", "--yes", "--json")
    assert (answer.code, answer.error["kind"]) == (3, "unknown-topic")
    done = txnlog("delete-topic", "orders", "--yes")
    assert (done.code, done.out) == (0, "deleted topic orders with 2 partitions\n")
    assert orders.topics() == []


def test_transactions_that_hold_a_topic_are_told_and_forced(txnlog: Command, orders: TxnLog) -> None:
    with (
        Producer(orders, "open", buffer="inline") as producer,
        Producer(orders, "prepared", buffer="inline") as other,
    ):
        for one in (producer, other):
            one.begin()
            one.send("orders", pa.table({"id": [1]}))
            one.flush()
        other.prepare()
        answer = txnlog("delete-topic", "orders", "--yes", "--force", "--json")
        assert (answer.code, answer.error["kind"]) == (4, "transaction-prepared")
        answer = txnlog("delete-topic", "orders", "--yes", "--prepared", "prepared")
        assert answer.out.splitlines()[1:] == [
            "aborted the open transaction open",
            "discarded the records of the prepared transaction prepared",
        ]


def test_records_are_deleted_by_force_and_what_it_ends_is_told(txnlog: Command, shop: TxnLog) -> None:
    answer = txnlog("delete-records", "orders", "--before", "0:3", "--json")
    assert answer.error["kind"] == "offset-out-of-range"
    assert "--force" in answer.error["hint"]
    planned = txnlog("delete-records", "orders", "--before", "0:3", "--force", "--dry-run", "--json").json
    assert [(one["earliest"], len(one["aborted"])) for one in planned["partitions"]] == [(3, 1)]
    answer = txnlog("delete-records", "orders", "--before", "0:3", "--prepared", "none-such", "--json")
    assert answer.error["kind"] == "invalid-force"
    out = txnlog("delete-records", "orders", "--before", "0:3", "--force").out
    assert out.splitlines()[-1].startswith("aborted the open transaction feed")
    assert shop.offsets("orders")[0].earliest == 3


def test_types_are_shown_as_they_are_given(txnlog: Command, log: TxnLog) -> None:
    texts = {
        "amount": "decimal(10,2)",
        "at": "timestamp",
        "here": "timestamp_ntz",
        "day": "date32",
        "lists": "list<map<string,struct<x:float64,y:list<time>>>>",
        "length": "duration",
    }
    words = [word for name, type_ in texts.items() for word in ("-c", f"{name}:{type_}")]
    assert txnlog("create-topic", "typed", *words, "--json").json["columns"] == texts
    assert (
        f"Columns: {', '.join(f'{name}:{type_}' for name, type_ in texts.items())}\n"
        in txnlog("describe", "typed").out
    )


def test_history_says_that_there_are_older_entries(txnlog: Command, log: TxnLog) -> None:
    log.create_topic("t", pa.schema([("id", pa.int64())]))
    log.create_topic("u", pa.schema([("id", pa.int64())]))
    newest = log.refresh().entry
    answer = txnlog("history", "--limit", 1)
    assert (
        answer.err
        == f"older entries are not shown: --start {newest - 1} shows the next ones, --all shows all\n"
    )
    assert txnlog("history", "--start", newest - 1, "--limit", newest).err == ""
    assert txnlog("history", "--all").err == ""
    assert txnlog("history", "--limit", 1, "--json").err == ""
