"""Kafka's cases of kafka-transactions.sh, on the real command and real logs on disk.

What hangs is made by naming a damaged snapshot in a checkpoint: no writer can bring it about.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.conftest import Answer, Command
from tests.cli.left_open import HourAgo, left_open, prepare
from tests.conformance.cases import case
from txnformat import keys
from txnformat.core.entry import sha256_hex
from txnformat.core.intents import TakeCheckpoint
from txnformat.core.operations import Checkpoint
from txnformat.core.snapshot.codec import encode_snapshot, state_digest
from txnformat.core.state import LogState
from txnformat.persistent import replace
from txnformat.store.local import LocalStore
from txnformat.types import TopicPartition
from txnlog import Producer, TxnLog

HANGING_HEADERS = [
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
]


@pytest.fixture
def log(root: Path) -> TxnLog:
    """A log that was last written to an hour ago; its topic ``foo`` has ten partitions."""
    log = TxnLog.create(LocalStore(root, clock=HourAgo()), clock=HourAgo())
    for topic in ("foo", "t"):
        log.create_topic(topic, pa.schema([("id", pa.int64())]), partitions=10)
    return log


def begin(log: TxnLog, name: str, *partitions: int) -> Producer:
    """Leave a transaction of one record in each partition of ``foo`` open."""
    producer = Producer(log, name, buffer="inline")
    producer.init()
    producer.begin()
    for partition in partitions:
        producer.send("foo", [{"id": 1}], partition=partition)
    producer.flush()
    return producer


def table(answer: Answer) -> list[list[str]]:
    assert answer.code in (0, 1), answer.err
    return [line.split() for line in answer.out.split("\n\n")[0].splitlines()]


def damage(log: TxnLog, change: Callable[[LogState], LogState]) -> None:
    """Let everybody who opens the log from now on begin with a changed state."""
    state = change(log.refresh())
    data = encode_snapshot(state)
    key = keys.snapshot_key(state.entry, log.committer.ids.new())
    log.store.create(key, data)
    checkpoint = Checkpoint(state.entry, key, len(data), sha256_hex(data), state_digest(state))
    log.committer.commit(log.committer.intend(TakeCheckpoint(checkpoint)))


# --- producers of a partition -------------------------------------------------------------------------------


@case("TransactionsCommandTest", "testDescribeProducersTopicRequired")
def test_describe_producers_needs_a_topic(txnlog: Command, log: TxnLog) -> None:
    assert txnlog("transactions", "describe-producers", "--partition", 0).code == 2


@case("TransactionsCommandTest", "testDescribeProducersPartitionRequired")
def test_describe_producers_needs_a_partition(txnlog: Command, log: TxnLog) -> None:
    assert txnlog("transactions", "describe-producers", "--topic", "foo").code == 2


@case("TransactionsCommandTest", "testDescribeProducersLeader")
def test_describe_producers_shows_sequences_times_and_where_transactions_start(
    txnlog: Command, log: TxnLog
) -> None:
    """LatestCoordinatorEpoch is left out: there is no coordinator."""
    with Producer(log) as idempotent:
        idempotent.send("foo", [{"id": 1}, {"id": 2}], partition=5)
        idempotent.flush()
    first_ms = log.refresh().timestamp_ms
    begin(log, "etl", 5)
    header, *rows = table(txnlog("transactions", "describe-producers", "--topic", "foo", "--partition", 5))
    assert header == [
        *("ProducerId", "ProducerEpoch", "LastSequence", "LastTimestamp", "CurrentTransactionStartOffset"),
        "TransactionalId",
    ]
    etl = log.refresh().transactional_ids["etl"]
    assert rows == [
        ["0", "0", "1", str(first_ms), "None", "-"],
        [str(etl.producer_id), "0", "0", str(log.state.timestamp_ms), "2", "etl"],
    ]
    plain = txnlog("transactions", "describe-producers", "--topic", "foo", "--partition", 5, "--json").json
    assert [one["current_transaction_start_offset"] for one in plain["producers"]] == [None, 2]


# --- lists and descriptions ---------------------------------------------------------------------------------


@case("TransactionsCommandTest", "testListTransactions", "testListTransactionsWithTransactionalIdPattern")
def test_list_shows_ids_producer_ids_and_states_by_pattern_and_duration(txnlog: Command, log: TxnLog) -> None:
    """CoordinatorId is left out; PrepareAbort does not exist, Prepared does."""
    begin(log, "baz", 0).commit()
    begin(log, "foo", 0)
    begin(log, "bar", 0)
    prepare(log, "bar")
    expected = [
        ["TransactionalId", "ProducerId", "TransactionState"],
        ["bar", "2", "Prepared"],
        ["baz", "0", "CompleteCommit"],
        ["foo", "1", "Ongoing"],
    ]
    assert table(txnlog("transactions", "list")) == expected
    assert table(txnlog("transactions", "list", "--transactional-id-pattern", "ba.*")) == expected[:3]
    assert table(txnlog("transactions", "list", "--duration-filter", 60_000)) == [*expected[:2], expected[3]]
    assert table(txnlog("transactions", "list", "--duration-filter", 7_200_000)) == expected[:1]
    assert table(txnlog("transactions", "list", "--producer-id", 1, "--producer-id", 9)) == [
        *expected[:1],
        expected[3],
    ]


@case("TransactionsCommandTest", "testDescribeTransactionsTransactionalIdRequired")
def test_describe_needs_an_id(txnlog: Command, log: TxnLog) -> None:
    assert txnlog("transactions", "describe").code == 2


@case("TransactionsCommandTest", "testDescribeTransaction")
def test_describe_has_timeout_start_duration_up_to_now_and_partitions(txnlog: Command, log: TxnLog) -> None:
    """CoordinatorId is left out."""
    begin(log, "foo", 0, 3)
    header, row = table(txnlog("transactions", "describe", "foo"))
    shown = dict(zip(header, row, strict=True))
    known = log.refresh().transactional_ids["foo"]
    assert header[:8] == [
        *("TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs"),
        *("CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions"),
    ]
    assert row[:6] == ["foo", "0", "0", "Ongoing", "60000", str(known.started_ms)]
    assert int(shown["TransactionDurationMs"]) >= 3_590_000, "up to now, and not up to the log's last entry"
    assert shown["TopicPartitions"] == "foo-0,foo-3"


# --- ending -------------------------------------------------------------------------------------------------


@case("TransactionsCommandTest", "testForceTerminateTransaction")
def test_force_terminate_ends_the_ids_transaction(txnlog: Command, log: TxnLog) -> None:
    begin(log, "foo", 0)
    prepare(log, "foo")
    assert txnlog("transactions", "force-terminate", "foo").code == 0
    assert log.refresh().undecided == frozenset()


@case("TransactionsCommandTest", "testForceTerminateTransactionTransactionalIdRequired")
def test_force_terminate_needs_an_id(txnlog: Command, log: TxnLog) -> None:
    assert txnlog("transactions", "force-terminate").code == 2


@case(
    "TransactionsCommandTest",
    "testDescribeTransactionsStartOffsetOrProducerIdRequired",
    "testDescribeTransactionsTopicRequired",
    "testDescribeTransactionsPartitionRequired",
    "testDescribeTransactionsProducerEpochRequiredWithProducerId",
)
@pytest.mark.parametrize(
    "options",
    [
        ["--topic", "foo", "--partition", 0],
        ["--partition", 0, "--start-offset", 9990],
        ["--topic", "foo", "--start-offset", 9990],
        ["--topic", "foo", "--partition", 0, "--producer-id", 0],
        [],
    ],
)
def test_abort_needs_all_that_names_a_transaction(
    txnlog: Command, log: TxnLog, options: list[object]
) -> None:
    """A producer id alone names none: there is no such option, and the epoch is found by the command
    itself.
    """
    begin(log, "foo", 0)
    assert txnlog("transactions", "abort", *options).code == 2
    assert log.refresh().undecided == {"foo"}


@case("TransactionsCommandTest", "testNewBrokerAbortTransaction")
def test_abort_by_start_offset_ends_the_transaction_that_begins_there(txnlog: Command, log: TxnLog) -> None:
    begin(log, "first", 5)
    begin(log, "second", 5)
    place = ["--topic", "foo", "--partition", 5, "--start-offset"]
    assert txnlog("transactions", "abort", *place, 1).code == 0
    assert log.outcome("second", 0).cause == "operator"
    assert log.outcome("first", 0).cause == "timeout", "late: every commit ends what is, the abort's, too"
    missing = txnlog("transactions", "abort", *place, 1, "--json")
    assert (missing.code, missing.error["kind"]) == (3, "unknown-transaction")


# --- what hangs ---------------------------------------------------------------------------------------------


@case("TransactionsCommandTest", "testFindHangingRequiresEitherBrokerIdOrTopic")
def test_without_a_topic_the_whole_log_is_searched(txnlog: Command, log: TxnLog) -> None:
    """Kafka has to be told where to look; here the state is at hand as a whole."""
    begin(log, "lost", 5)
    damage(log, without("lost"))
    answer = txnlog("transactions", "find-hanging")
    assert answer.code == 1
    assert [row[:2] for row in table(answer)] == [["Topic", "Partition"], ["foo", "5"]]


@case("TransactionsCommandTest", "testFindHangingRequiresTopicIfPartitionIsSpecified")
def test_a_partition_needs_its_topic(txnlog: Command, log: TxnLog) -> None:
    assert txnlog("transactions", "find-hanging", "--partition", 5).code == 2


def without(name: str) -> Callable[[LogState], LogState]:
    """Return what takes a transactional id out of a state."""

    def change(state: LogState) -> LogState:
        ids = {key: known for key, known in state.transactional_ids.items() if key != name}
        return replace(state, transactional_ids=ids, undecided=state.undecided - {name})

    return change


def in_one_partition(name: str, number: int) -> Callable[[LogState], LogState]:
    """Return what lets an id's transaction forget its partitions but one."""

    def change(state: LogState) -> LogState:
        known = state.transactional_ids[name]
        key = TopicPartition(state.topic("foo").topic_id, number)
        return state.with_transactional_id(name, replace(known, partitions={key: known.partitions[key]}))

    return change


@case("TransactionsCommandTest", "testFindHangingLookupTopicPartitionsForTopic")
def test_a_topic_is_searched_in_all_its_partitions_and_no_other(txnlog: Command, log: TxnLog) -> None:
    begin(log, "lost", 0, 5)
    damage(log, without("lost"))
    assert [row[:2] for row in table(txnlog("transactions", "find-hanging", "--topic", "foo"))[1:]] == [
        ["foo", "0"],
        ["foo", "5"],
    ]
    other = txnlog("transactions", "find-hanging", "--topic", "t")
    assert (other.code, table(other)) == (0, [HANGING_HEADERS])


@case("TransactionsCommandTest", "testFindHangingSpecifiedTopicPartition")
def test_what_appended_lately_does_not_hang(txnlog: Command, log: TxnLog) -> None:
    begin(log, "lost", 5)
    damage(log, without("lost"))
    place = ["--topic", "foo", "--partition", 5]
    for more in (["--max-transaction-timeout", 600], ["--partition", 4]):
        young = txnlog("transactions", "find-hanging", *place, *more)
        assert (young.code, table(young)) == (0, [HANGING_HEADERS])


@case(
    "TransactionsCommandTest",
    "testFindHangingNoMappedTransactionalId",
    "testFindHangingWithNoTransactionDescription",
)
def test_a_transaction_whose_id_is_not_there_hangs_and_cannot_be_aborted(
    txnlog: Command, log: TxnLog
) -> None:
    """What lists ids also describes them here, so that Kafka's two cases are one."""
    begin(log, "lost", 5)
    known = log.refresh().transactional_ids["lost"]
    appended_ms = log.state.timestamp_ms
    damage(log, without("lost"))
    answer = txnlog("transactions", "find-hanging", "--topic", "foo", "--partition", 5)
    assert answer.code == 1
    header, row = table(answer)
    assert header == HANGING_HEADERS
    assert row[:6] == ["foo", "5", str(known.producer_id), "0", "0", str(appended_ms)]
    assert int(row[6]) in (59, 60, 61)
    place = ["--topic", "foo", "--partition", 5, "--start-offset", 0]
    refused = txnlog("transactions", "abort", *place, "--json")
    assert (refused.code, refused.error["kind"]) == (4, "hanging-transaction")
    assert "verify" in refused.error["hint"]
    assert txnlog("verify").code == 1, "the damage is found from the entries, too"


@case("TransactionsCommandTest", "testFindHangingDoesNotFilterByTransactionInProgressWithDifferentPartitions")
def test_a_transaction_that_its_id_has_elsewhere_only_hangs(txnlog: Command, log: TxnLog) -> None:
    begin(log, "foo", 5, 7)
    damage(log, in_one_partition("foo", 7))
    answer = txnlog("transactions", "find-hanging", "--topic", "foo", "--partition", 5, "--json")
    (found,) = answer.json["hanging"]
    assert (answer.code, found["partition"]) == (1, 5)
    assert "is not in this partition" in found["reason"]


@case("TransactionsCommandTest", "testFindHangingFilterByTransactionInProgressWithSamePartition")
def test_a_transaction_that_its_id_has_does_not_hang_and_is_reported_as_late(
    txnlog: Command, log: TxnLog
) -> None:
    begin(log, "foo", 5)
    answer = txnlog("transactions", "find-hanging", "--topic", "foo", "--partition", 5)
    assert answer.code == 0
    assert table(answer) == [HANGING_HEADERS]
    assert "late" in answer.out
    assert "end-expired" in answer.out
    (held,) = txnlog("transactions", "find-hanging", "--json").json["held"]
    assert (held["transactional_id"], held["cause"], held["holds_back"]) == ("foo", "late", 1)


def test_prepared_transactions_are_reported_with_how_to_give_them_up(txnlog: Command, log: TxnLog) -> None:
    left_open(log, "bank")
    prepare(log, "bank")
    answer = txnlog("transactions", "find-hanging")
    assert answer.code == 0
    assert "prepared" in answer.out
    assert "force-terminate 'bank'" in answer.out
