"""What a new user does wrong is told with what to do about it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.conftest import Command
from txnformat.errors import InvalidInputError, TxnLogError
from txnlog import Producer, TxnLog
from txnlog.cli.failures import report

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def shop(log: TxnLog, txnlog: Command) -> TxnLog:
    """A log with one topic of two partitions, and a record in the first."""
    log.create_topic("orders", COLUMNS, partitions=2)
    assert txnlog("produce", "orders", "-p", 0, stdin='{"id":1,"name":"ann"}').code == 0
    return log.open(log.url)


def _first(root: Path, pattern: str) -> Path:
    return min(root.glob(pattern))


@pytest.mark.parametrize("name", ["_txnlog/log/*2.json", "_txnlog/format.json"])
def test_a_damaged_object_of_the_log_is_to_be_restored(
    txnlog: Command, shop: TxnLog, root: Path, name: str
) -> None:
    _first(root, name).write_text("garbage")
    error = txnlog("topics", "--json").error
    assert (error["kind"], error["exit_code"]) == ("corrupt-data", 6)
    assert error["hint"] == "restore the object from a copy; txnlog verify lists all that is damaged"


@pytest.mark.parametrize(
    "command", [["topics"], ["consume", "orders"], ["create", "--exist-ok"]], ids=" ".join
)
def test_a_log_that_has_lost_its_format_is_not_to_be_created(
    txnlog: Command, shop: TxnLog, root: Path, command: list[str]
) -> None:
    (root / "_txnlog/format.json").unlink()
    error = txnlog(*command, "--json").error
    assert (error["kind"], error["exit_code"]) == ("format-missing", 6)
    assert "restore it from a copy" in error["hint"]
    assert "txnlog create" not in error["hint"]
    found = [one for one in txnlog("doctor", "--json").json["checks"] if one["status"] == "problem"]
    assert any("format.json is missing" in str(one) for one in found), found


def test_a_data_file_that_is_gone_is_damage_and_not_a_wrong_name(
    txnlog: Command, shop: TxnLog, root: Path
) -> None:
    shop.maintain("seal")
    _first(root, "*/data/*.parquet").unlink()
    answer = txnlog("consume", "orders", "--json")
    assert (answer.code, answer.error["kind"], answer.error["exit_code"]) == (6, "segment-file-missing", 6)


@pytest.mark.parametrize(
    ("schema", "hint"),
    [("kafak", "did you mean 'kafka'?"), ("Kafka", "did you mean"), ("none", "give kafka, or the path")],
)
def test_a_schema_that_is_no_file(txnlog: Command, shop: TxnLog, schema: str, hint: str) -> None:
    error = txnlog("create-topic", "t", "--schema", schema, "--json").error
    assert (error["kind"], error["values"]) == ("no-file", {"file": schema})
    assert error["hint"].startswith(hint)


def test_a_schema_in_a_file_that_is_not_parquet(txnlog: Command, shop: TxnLog, tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("id,name\n")
    assert txnlog("create-topic", "t", "--schema", path, "--json").error["hint"].startswith("give kafka, or")


@pytest.mark.parametrize("type_", ["decimal", "list<decimal>", "map<string,decimal>"])
def test_a_decimal_needs_its_digits(txnlog: Command, shop: TxnLog, type_: str) -> None:
    message = txnlog("create-topic", "t", "--column", f"price:{type_}", "--json").error["message"]
    assert "decimal needs a precision and a scale, as in decimal(10,2)" in message


def test_objects_and_entries_that_are_not_there(txnlog: Command, shop: TxnLog) -> None:
    assert "txnlog dump" in txnlog("dump", "object", "nokey", "--json").error["hint"]
    assert "txnlog history" in txnlog("dump", "entries", "-e", 99, "--json").error["hint"]


def test_a_version_before_the_topic_says_when_it_came(txnlog: Command, shop: TxnLog) -> None:
    error = txnlog("consume", "orders", "--version-as-of", 0, "--json").error
    assert error["kind"] == "unknown-topic"
    assert error["hint"] == "it was created at entry 1: read that version or a later one"


def test_a_version_as_text_is_told_as_a_number(shop: TxnLog) -> None:
    with pytest.raises(InvalidInputError) as caught:
        shop.read("orders", version_as_of="1")  # type: ignore[arg-type]
    assert caught.value.hint == "pass a number in place of text: version_as_of=1"
    with pytest.raises(InvalidInputError) as caught:
        shop.read("orders", version_as_of="newest")  # type: ignore[arg-type]
    assert caught.value.hint is None


def test_a_root_in_the_home_directory(
    txnlog: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert txnlog("create", "--root=~/shop").code == 0
    assert (tmp_path / "shop/_txnlog/format.json").exists()
    monkeypatch.setenv("TXNLOG_ROOT", "~/shop")
    assert txnlog("topics").code == 0
    assert "no-such-user-at-all" in txnlog("topics", "--root", "~no-such-user-at-all/shop").err


def test_one_is_counted_as_one_and_all_partitions_count(txnlog: Command, shop: TxnLog) -> None:
    checked = txnlog("verify").out.partition("checked ")[2].split(", ")
    assert {"2 partitions", "1 file", "1 row group"} <= {one.strip() for one in checked}
    reset = ["groups", "reset-offsets", "g", "--topic", "orders", "--partition", 0, "--to-earliest"]
    assert txnlog(*reset, "--create", "--execute").code == 0
    assert "the group and 1 position\n" in txnlog("groups", "delete", "g", "--dry-run").out


def test_a_text_without_quotes_is_told_as_one(txnlog: Command, shop: TxnLog) -> None:
    for where in ("name = ann", "ann = name"):
        message = txnlog("consume", "orders", "--where", where, "--json").error["message"]
        assert message == "there is no column 'ann'; a text is written in single quotes: 'ann'"
    assert (
        "compares two columns" in txnlog("consume", "orders", "--where", "id = id", "--json").error["message"]
    )


def test_arguments_of_python_are_told_as_options(txnlog: Command, shop: TxnLog) -> None:
    versions = ["--version-as-of", 1, "--timestamp-as-of", "2026-01-01"]
    assert txnlog("consume", "orders", *versions, "--json").error["problems"] == [
        "give --version-as-of or --timestamp-as-of, not both"
    ]
    wrong = txnlog(
        "consume", "orders", "--version-as-of", 1, "--isolation", "read_uncommitted", "--json"
    ).error
    assert wrong["message"].startswith("--version-as-of and --timestamp-as-of are for isolation snapshot")
    late = txnlog("consume", "orders", "--timestamp-as-of", "yesterday").err
    assert late.startswith("txnlog: --timestamp-as-of is 'yesterday'\n")


def test_people_see_durations(capsys: pytest.CaptureFixture[str]) -> None:
    error = TxnLogError("x", timeout_ms=5_400_000, waited_ms=1_500, age_ms=-90_061_000, count=60_000)
    report(error, as_json=False)
    assert capsys.readouterr().err.splitlines()[1:5] == [
        "  timeout_ms: 5400000 (1 h 30 min)",
        "  waited_ms: 1500 (1.5 s)",
        "  age_ms: -90061000 (-1 d 1 h)",
        "  count: 60000",
    ]


def test_people_see_times_and_programs_numbers(txnlog: Command, shop: TxnLog) -> None:
    read = ["consume", "orders", "--timestamp-as-of", "2001-02-03"]
    assert "  timestamp_ms: 981158400000 (2001-02-03T00:00:00.000Z)\n" in txnlog(*read).err
    assert txnlog(*read, "--json").error["values"] == {"timestamp_ms": 981158400000}


def test_a_new_group_is_made_with_create(txnlog: Command, shop: TxnLog) -> None:
    hint = txnlog("groups", "reset-offsets", "g", "--to-earliest", "--json").error["hint"]
    assert hint.startswith("add --create and --topic TOPIC for a new group")
    hint = txnlog("groups", "reset-offsets", "g", "--topic", "orders", "--to-earliest", "--json").error[
        "hint"
    ]
    assert hint.startswith("add --create for a new group")


def test_from_takes_partition_and_offset(txnlog: Command, shop: TxnLog) -> None:
    shop.create_topic("single", COLUMNS)
    swapped = txnlog("consume", "single", "--from", "1:0", "--json").error
    assert swapped["hint"] == "the topic has one partition, 0; --from and --to take partition:offset"
    time = txnlog("consume", "orders", "--from", "2026-01-31", "--json").error["message"]
    condition = time.rpartition("--where ")[2].strip('"')
    assert txnlog("consume", "orders", "--where", condition).code == 0
    assert "--where" not in txnlog("delete-records", "orders", "--before", "1e3", "--json").error["message"]


def test_a_reader_who_sees_nothing_learns_what_holds_it_back(txnlog: Command, shop: TxnLog) -> None:
    assert txnlog("consume", "orders").err == ""
    producer = Producer(shop, "stuck", buffer="inline")
    producer.init()
    producer.begin()
    producer.send("orders", [{"id": 2, "name": "bob"}], partition=1)
    producer.flush()
    try:
        held = "1 offset of orders held back by open transactions; txnlog offsets orders says by which"
        assert txnlog("consume", "orders").err == f"txnlog: note: {held}\n"
        assert json.loads(txnlog("consume", "orders", "--json").err) == {"notes": [held]}
        twice = txnlog("consume", "orders", "-p", "1,1", "-p", "1")
        assert twice.err == f"txnlog: note: {held}\n"
        for other in (["-p", 0], ["--isolation", "snapshot"], ["--version-as-of", 1]):
            assert txnlog("consume", "orders", *other).err == "", other
    finally:
        producer.abort()
        producer.close()
    assert txnlog("consume", "orders").err == ""
