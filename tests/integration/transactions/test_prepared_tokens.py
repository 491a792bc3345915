"""Tokens of prepared transactions: whoever has one ends what it names, from any process, also after a
crash.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.clients.failing import (
    BUFFERS,
    NUMBERS,
    read,
    rows,
)
from tests.integration.transactions.preparing import again, prepared, refused
from txnformat.store.memory import MemoryStore
from txnlog import (
    CommitInfo,
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    Outcome,
    PreparedTransaction,
    Producer,
    ProducerFencedError,
    ProducerStatus,
    TxnLog,
)
from txnlog_testing.stores.faulty import FaultKind
from txnlog_testing.stores.s3_server import seaweedfs_server

ROOT = Path(__file__).resolve().parents[3]
HOUR = 3_600_000

UNCLEAR = pytest.mark.parametrize(
    ("kind", "landed"), [(FaultKind.APPLIED_LOST_ANSWER, True), (FaultKind.FAIL_BEFORE, False)]
)


@pytest.fixture
def log() -> TxnLog:
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", NUMBERS)
    return log


# --- the token ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["p", "a:b:c", ":", "ü\n→", "x" * 249])
def test_a_token_names_what_it_was_made_of(name: str) -> None:
    named = PreparedTransaction("7d2b3c52-6c0b-4a43-9e39-5d9f9a1d0f10", name, 4, 2)
    assert str(named) == f"txnlog-prepared:7d2b3c52-6c0b-4a43-9e39-5d9f9a1d0f10:4:2:{name}"
    assert PreparedTransaction.parse(str(named)) == named
    assert pickle.loads(pickle.dumps(named)) == named


GOOD = "txnlog-prepared:7d2b3c52-6c0b-4a43-9e39-5d9f9a1d0f10:4:2:p"


@pytest.mark.parametrize(
    "token",
    [
        "",
        "p",
        None,
        7,
        GOOD.encode(),
        GOOD[:-1],
        GOOD[:-2],
        GOOD.replace("txnlog", "kafka"),
        " " + GOOD,
        GOOD.replace(":4:", ":-4:"),
        GOOD.replace(":4:", ":04:"),
        GOOD.replace(":4:", ":٤:"),
        GOOD.replace(":4:", f":{2**62}:"),
        GOOD.replace(":2:", f":{2**62}:"),
        GOOD.replace("7d2b", "7D2B"),
        GOOD.replace("7d2b", "7d2"),
        GOOD + "x" * 249,
    ],
)
def test_what_is_no_token_is_refused(log: TxnLog, token: object) -> None:
    before = log.refresh()
    for call in (PreparedTransaction.parse, log.commit_prepared, log.abort_prepared):
        refused("invalid-token", InvalidInputError, lambda call=call: call(token))  # type: ignore[misc]
    assert log.refresh() == before


# --- from another process -----------------------------------------------------------------------------------


@BUFFERS
@pytest.mark.parametrize("outcome", Outcome)
def test_ending_by_token_is_idempotent_and_the_opposite_is_refused(
    log: TxnLog, buffer: str, outcome: Outcome
) -> None:
    token = prepared(log, "p", buffer)
    same, opposite = "commit_prepared", "abort_prepared"
    if outcome is Outcome.ABORT:
        same, opposite = opposite, same
    done = getattr(again(log), same)(token)
    assert (done.transactional_id, done.epoch, done.outcome, done.entry) == (
        "p",
        0,
        outcome,
        log.refresh().entry,
    )
    kind = "transaction-committed" if outcome is Outcome.COMMIT else "transaction-aborted"
    for _ in range(2):
        assert getattr(again(log), same)(PreparedTransaction.parse(token)) == done
        refused(kind, InvalidTransactionStateError, lambda: getattr(again(log), opposite)(token))
    # Also when the id has gone on since: the answer is then in the history.
    for _ in range(2):
        with Producer(log, "p") as successor, successor.transaction() as txn:
            txn.send("t", rows(9))
    before = log.refresh().entry
    assert getattr(log, same)(token) == done
    refused(kind, InvalidTransactionStateError, lambda: getattr(log, opposite)(token))
    assert log.refresh().entry == before
    assert read(log) == ([1, 2] if outcome is Outcome.COMMIT else []) + [9, 9]


def test_tokens_that_name_nothing_prepared_are_refused_and_change_nothing(log: TxnLog) -> None:
    token = prepared(log)
    other = TxnLog.create(MemoryStore())
    refused("token-of-another-log", InvalidInputError, lambda: other.commit_prepared(token))
    named = PreparedTransaction.parse(token)
    with Producer(log, "open", buffer="inline") as open_one:
        open_one.begin()
        open_one.send("t", rows(5))
        open_one.flush()
        before = log.refresh()
        unknown = [
            PreparedTransaction(log.log_id, "q", 0, 0),
            PreparedTransaction(log.log_id, "p", named.producer_id + 1, 0),
            PreparedTransaction(log.log_id, "p", named.producer_id, 1),
        ]
        for one in unknown:
            for call in (log.commit_prepared, log.abort_prepared):
                refused("unknown-transaction", NotFoundError, lambda call=call, one=one: call(one))  # type: ignore[misc]
        guessed = PreparedTransaction(log.log_id, "open", before.transactional_ids["open"].producer_id, 0)
        for call in (log.commit_prepared, log.abort_prepared):
            refused("transaction-not-prepared", InvalidTransactionStateError, lambda call=call: call(guessed))  # type: ignore[misc]
        assert log.refresh() == before
        open_one.commit()
    assert log.commit_prepared(token).outcome is Outcome.COMMIT


def test_what_an_operator_gave_up_cannot_be_committed(log: TxnLog) -> None:
    token = prepared(log)
    log.transactions.force_terminate("p")
    before = log.refresh()
    for _ in range(2):
        refused("aborted-by-operator", ProducerFencedError, lambda: log.commit_prepared(token))
    assert log.abort_prepared(token).outcome is Outcome.ABORT
    assert log.refresh() == before
    assert read(log) == []


def test_a_producer_whose_prepared_transaction_others_end_learns_the_outcome(log: TxnLog) -> None:
    for outcome in Outcome:
        with Producer(log, outcome.value) as producer:
            producer.begin()
            producer.send("t", rows(1))
            token = str(producer.prepare())
            commits = outcome is Outcome.COMMIT
            done = (log.commit_prepared if commits else log.abort_prepared)(token)
            ends: list[Callable[[], CommitInfo | None]] = [producer.abort, producer.commit]
            wrong, right = ends if commits else reversed(ends)
            before = log.refresh().entry
            kind = "transaction-committed" if commits else "transaction-aborted"
            refused(kind, InvalidTransactionStateError, wrong)
            assert (producer.status, log.refresh().entry) == (ProducerStatus.READY, before)
            producer.begin()
            producer.send("t", rows(2))
            producer.prepare()
            done = (log.commit_prepared if commits else log.abort_prepared)(str(producer.prepared))
            info = right()
            assert info is None or (info.entry == done.entry and info.offsets)
            assert producer.epoch == 2
    assert read(log) == [1, 2]


def test_a_producer_that_an_operator_ended_is_fenced(log: TxnLog) -> None:
    with Producer(log, "p") as producer:
        producer.begin()
        producer.send("t", rows(1))
        producer.prepare()
        log.transactions.force_terminate("p")
        refused("aborted-by-operator", ProducerFencedError, producer.commit, producer.abort, producer.begin)
        assert producer.status is ProducerStatus.FENCED


# --- crashes ------------------------------------------------------------------------------------------------

CHILD = """
import json, signal, sys
from txnlog import Producer, TxnLog
url, buffer, options = sys.argv[1], sys.argv[2], json.loads(sys.stdin.readline())
producer = Producer(TxnLog.open(url, storage_options=options), "p", buffer=buffer)
producer.init()
producer.begin()
for number in range(3):
    producer.send("t", [{"n": number}])
    producer.flush()
producer.send("t", [{"n": 3}])
print(producer.prepare(), flush=True)
signal.pause()
"""


def killed(url: str, buffer: str, options: dict[str, str] | None = None) -> str:
    """Let a process prepare a transaction, kill it, and return the token that it had written down."""
    command = [sys.executable, "-c", CHILD, url, buffer]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(options) + "\n")
        process.stdin.flush()
        token = process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
    return token


@BUFFERS
@pytest.mark.parametrize("outcome", Outcome)
def test_after_a_kill_between_prepare_and_end_another_process_decides(
    tmp_path: Path, buffer: str, outcome: Outcome
) -> None:
    root = tmp_path / "log"
    with TxnLog.create(root) as made:
        made.create_topic("t", NUMBERS)
    token = killed(str(root), buffer)
    log = TxnLog.open(root)
    assert read(log) == []
    commits = outcome is Outcome.COMMIT
    done = (log.commit_prepared if commits else log.abort_prepared)(token)
    assert done.outcome is outcome
    with Producer(log, "p", buffer=buffer) as successor, successor.transaction() as txn:
        txn.send("t", rows(9))
    assert read(log) == ([0, 1, 2, 3, 9] if commits else [9])
    assert log.verify(deep=True).ok


def test_after_a_kill_a_successor_of_the_same_id_decides(tmp_path: Path) -> None:
    root = tmp_path / "log"
    with TxnLog.create(root) as made:
        made.create_topic("t", NUMBERS)
    token = killed(str(root), "auto")
    with Producer(TxnLog.open(root), "p") as successor:
        assert str(successor.prepared) == token
        successor.commit()
    assert read(TxnLog.open(root)) == [0, 1, 2, 3]


def test_after_a_kill_another_process_decides_on_s3() -> None:
    with seaweedfs_server() as server:
        url, options = server.url("prepared"), server.storage_options
        with TxnLog.create(url, storage_options=options) as made:
            made.create_topic("t", NUMBERS)
        token = killed(url, "deferred", options)
        with TxnLog.open(url, storage_options=options) as log:
            assert read(log) == []
            done = log.commit_prepared(token)
            assert log.commit_prepared(token) == done
            assert read(log) == [0, 1, 2, 3]
