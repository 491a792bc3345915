"""transactions list and describe, history: read only."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.cli.conftest import Command
from txnlog import Producer, TxnLog


@pytest.fixture
def busy(log: TxnLog) -> TxnLog:
    """``done`` has committed, ``slow`` holds partition 0 back, ``late`` is open behind it."""
    log.create_topic("t", pa.schema([("id", pa.int64())]), partitions=2)
    with Producer(log, "done") as done, done.transaction() as txn:
        txn.send("t", [{"id": 1}], partition=0)
    for name, partition in (("slow", 0), ("late", 0)):
        producer = Producer(log, name, buffer="inline")
        producer.init()
        producer.begin()
        producer.send("t", [{"id": 2}, {"id": 3}], partition=partition)
        producer.flush()
    return log


def test_list_has_kafkas_columns(txnlog: Command, busy: TxnLog) -> None:
    expected = (
        "TransactionalId  ProducerId  TransactionState\n"
        "done                      0  CompleteCommit\n"
        "late                      2  Ongoing\n"
        "slow                      1  Ongoing\n"
    )
    assert txnlog("transactions").out == expected
    assert txnlog("transactions", "list").out == expected


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--state", "ongoing"], ["late", "slow"]),
        (["--state", "Ongoing", "--state", "CompleteCommit"], ["done", "late", "slow"]),
        (["--state", "CompleteAbort"], []),
        (["--transactional-id-pattern", ".o.+"], ["done"]),
        (["--transactional-id-pattern", "o"], []),
    ],
)
def test_list_can_be_narrowed(txnlog: Command, busy: TxnLog, options: list[str], names: list[str]) -> None:
    found = txnlog("transactions", *options, "--json").json["transactions"]
    assert [item["transactional_id"] for item in found] == names


def test_describe_says_what_an_open_transaction_holds_back(txnlog: Command, busy: TxnLog) -> None:
    first, *others = txnlog("transactions", "describe", "slow", "late", "--json").json["transactions"]
    assert first["state"] == "Ongoing"
    assert first["start_timestamp_ms"] <= busy.state.timestamp_ms
    assert first["last_end"] is None
    assert first["partitions"] == [
        {
            "topic": "t",
            "partition": 0,
            "start_offset": 2,
            "staged_records": 0,
            "last_stable_offset": 2,
            "latest_offset": 6,
            "holds_back": 4,
        }
    ]
    assert [part["holds_back"] for part in others[0]["partitions"]] == [0], "the older one holds the offset"


def test_describe_says_how_the_last_transaction_ended(txnlog: Command, busy: TxnLog) -> None:
    answer = txnlog("transactions", "describe", "done")
    header, row = answer.out.splitlines()
    described = dict(zip(header.split(), row.split(), strict=True))
    assert list(described)[:8] == [
        "TransactionalId",
        "ProducerId",
        "ProducerEpoch",
        "TransactionState",
        "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs",
        "TransactionDurationMs",
        "TopicPartitions",
    ]
    assert (described["LastEpoch"], described["LastOutcome"], described["LastCause"]) == (
        "0",
        "commit",
        "producer",
    )
    open_table = txnlog("transactions", "describe", "slow").out.split("\n\n")[1]
    assert open_table.split() == [
        *("TransactionalId", "Topic", "Partition", "StartOffset", "StagedRecords"),
        *("LastStableOffset", "LatestOffset", "HoldsBack"),
        *("slow", "t", "0", "2", "0", "2", "6", "4"),
    ]


def test_nothing_here_writes(txnlog: Command, busy: TxnLog) -> None:
    before = busy.refresh().entry
    for arguments in (["transactions"], ["transactions", "describe", "slow"], ["history"], ["offsets"]):
        assert txnlog(*arguments).code == 0
    assert busy.refresh().entry == before


def test_bad_questions(txnlog: Command, busy: TxnLog) -> None:
    unknown = txnlog("transactions", "describe", "nobody", "--json")
    assert (unknown.code, unknown.error["kind"]) == (3, "unknown-transactional-id")
    pattern = txnlog("transactions", "list", "--transactional-id-pattern", "(", "--json")
    assert (pattern.code, pattern.error["kind"]) == (2, "invalid-pattern")
    assert txnlog("transactions", "abrot", "slow").code == 2


def test_history_is_newest_first(txnlog: Command, busy: TxnLog) -> None:
    header, *rows = txnlog("history", "--all").out.splitlines()
    columns = ["Entry", "Timestamp", "Engine", "Operations", "Records", "Transactions", "Groups"]
    assert header.split() == columns
    assert [int(row.split()[0]) for row in rows] == list(range(busy.state.entry, -1, -1))
    done = next(row for row in rows if "done commit" in row)
    assert "append, end_txn" in done
    assert "t +1" in done


def test_history_as_json_lines(txnlog: Command, busy: TxnLog) -> None:
    newest, second = txnlog("history", "--limit", 2, "--json").lines
    assert (newest["entry"], second["entry"]) == (busy.state.entry, busy.state.entry - 1)
    assert {
        "entry",
        "timestamp",
        "timestamp_ms",
        "engine",
        "operations",
        "topics",
        "transactions",
    } <= newest.keys()
    assert newest["topics"][0]["topic"] == "t"
    assert [item["entry"] for item in txnlog("history", "--start", 1, "--json").lines] == [1, 0]
    beyond = txnlog("history", "--start", 99, "--json")
    assert (beyond.code, beyond.error["kind"]) == (2, "invalid-history-range")
