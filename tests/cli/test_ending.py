"""transactions abort, force-terminate, abort-lingering, end-expired, maintain timeouts, consume
--end-expired."""

from __future__ import annotations

import os
import pty
import select
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.conftest import PROGRAM, Answer, Command
from tests.cli.left_open import HourAgo, left_open, prepare
from txnformat.core.transactions.state import TransactionStatus
from txnformat.store.local import LocalStore
from txnlog import Outcome, Producer, ProducerFencedError, TxnLog


@pytest.fixture
def busy(log: TxnLog) -> TxnLog:
    """Transactions of a job's workers 0 to 3 and of another id are open; that of ``bank`` is prepared."""
    log.create_topic("t", pa.schema([("id", pa.int64())]), partitions=2)
    left_open(log, "job-0", "job-1", "job-2", "job-3", "other", "bank")
    prepare(log, "bank")
    return log


def outcomes(answer: Answer) -> dict[str, str]:
    assert answer.code == 0, answer.err
    return {one["transactional_id"]: one["outcome"] for one in answer.json["transactions"]}


def is_open(log: TxnLog) -> list[str]:
    return sorted(log.refresh().undecided)


def test_abort_by_id_says_what_was_done(txnlog: Command, busy: TxnLog) -> None:
    assert txnlog("transactions", "abort", "other", "--dry-run").out.split()[-2:] == ["would-abort", "-"]
    assert "other" in is_open(busy)
    header, row = txnlog("transactions", "abort", "other").out.splitlines()
    assert header.split() == ["TransactionalId", "ProducerId", "ProducerEpoch", "Outcome", "Entry"]
    assert row.split() == ["other", "4", "0", "aborted", str(busy.refresh().entry)]
    assert outcomes(txnlog("transactions", "abort", "other", "--json")) == {"other": "not-open"}
    assert txnlog("transactions", "abort", "nobody").code == 3


def test_describe_shows_what_is_open_and_until_when(txnlog: Command, busy: TxnLog) -> None:
    rows = [line.split() for line in txnlog("describe").out.split("\n\n")[-1].splitlines()]
    assert rows[0] == ["TransactionalId", "State", "Buffer", "StagedRecords", "Started", "Expires"]
    assert [(row[0], row[1], row[2], row[3], row[5] == "-") for row in rows[1:]] == [
        ("bank", "Prepared", "inline", "0", True),
        *((f"job-{number}", "Ongoing", "inline", "0", False) for number in range(4)),
        ("other", "Ongoing", "inline", "0", False),
    ]
    assert "Expires" not in txnlog("describe", "t").out


def test_abort_by_a_prefix_asks_first(txnlog: Command, busy: TxnLog) -> None:
    refused = txnlog("transactions", "abort", "--prefix", "job-", "--json")
    assert (refused.code, refused.error["kind"]) == (2, "usage")
    assert "4 transactions" in refused.error["message"]
    assert "--yes" in refused.error["message"]
    assert len(is_open(busy)) == 6
    would = outcomes(txnlog("transactions", "abort", "--prefix", "job-", "--dry-run", "--json"))
    assert would == {f"job-{number}": "would-abort" for number in range(4)}
    done = outcomes(txnlog("transactions", "abort", "--prefix", "job-", "--yes", "--json"))
    assert done == {f"job-{number}": "aborted" for number in range(4)}
    assert is_open(busy) == ["bank", "other"]
    assert txnlog("transactions", "abort", "--prefix", "job-").out == "no such transaction is open\n"


def answer_on_a_terminal(
    root: Path, answer: bytes, *arguments: str, question: bytes = b"[y/N]"
) -> tuple[int, bytes]:
    """Run a command whose stdin and stderr are a terminal, and answer its question. Return its code, and all
    that was shown."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*PROGRAM, *arguments], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, env=os.environ
    ) as process:
        os.close(theirs)
        shown = b""
        while question not in shown:
            assert select.select([ours], [], [], 60)[0], shown
            shown += os.read(ours, 4096)
        os.write(ours, answer)
        while True:
            assert select.select([ours], [], [], 60)[0], shown
            try:
                more = os.read(ours, 4096)
            except OSError:  # Linux says so when the other end is closed
                break
            if not more:
                break
            shown += more
        process.communicate(timeout=300)
    os.close(ours)
    return process.returncode, shown


NO = b"txnlog: the answer was no, so nothing was changed\r\n"
AWAY = b"txnlog: interrupted; nothing was changed\r\n"


@pytest.mark.parametrize(
    ("answer", "code", "left", "said"),
    [(b"y\n", 0, 2, b""), (b"n\n", 2, 6, NO), (b"\n", 2, 6, NO), (b"\x04", 130, 6, AWAY)],
    ids=["yes", "no", "the default", "the end of the input"],
)
def test_on_a_terminal_the_question_is_asked(
    root: Path, busy: TxnLog, answer: bytes, code: int, left: int, said: bytes
) -> None:
    found, shown = answer_on_a_terminal(root, answer, "transactions", "abort", "--prefix", "job-")
    assert found == code
    assert b"Abort 4 transactions: job-0, job-1, job-2, job-3?" in shown
    assert shown.endswith(said)
    assert (b"interrupted" in shown) == (said == AWAY)
    assert len(is_open(busy)) == left


def test_a_prepared_transaction_is_refused_and_force_terminate_ends_it(txnlog: Command, busy: TxnLog) -> None:
    refused = txnlog("transactions", "abort", "bank", "--json")
    assert (refused.code, refused.error["kind"]) == (4, "transaction-prepared")
    assert "force" in refused.error["hint"]
    assert outcomes(txnlog("transactions", "force-terminate", "bank", "--dry-run", "--json")) == {
        "bank": "would-abort"
    }
    assert busy.refresh().transactional_ids["bank"].status is TransactionStatus.PREPARED
    assert outcomes(txnlog("transactions", "force-terminate", "bank", "--json")) == {"bank": "aborted"}
    assert busy.refresh().transactional_ids["bank"].status is TransactionStatus.COMPLETE_ABORT


def test_after_force_terminate_the_token_commits_nothing(txnlog: Command, busy: TxnLog) -> None:
    (producer,) = left_open(busy, "ledger")
    token = str(producer.prepare())
    assert txnlog("transactions", "abort", "ledger").code == 4
    assert txnlog("transactions", "force-terminate", "ledger").code == 0
    with pytest.raises(ProducerFencedError) as error:
        TxnLog.open(busy.store).commit_prepared(token)
    assert error.value.kind == "aborted-by-operator"
    assert busy.outcome("ledger", 0).outcome is Outcome.ABORT


def test_abort_lingering_takes_a_workers_part(txnlog: Command, busy: TxnLog) -> None:
    command = ["transactions", "abort-lingering", "--prefix", "job", "--parallelism", 2, "--worker", 1]
    assert txnlog(*command).code == 2
    assert outcomes(txnlog(*command, "--dry-run", "--json")) == {
        "job-1": "would-abort",
        "job-3": "would-abort",
    }
    assert outcomes(txnlog(*command, "--restored", "--yes", "--json")) == {"job-1": "aborted"}
    assert outcomes(txnlog(*command, "--opened-before-entry", 1, "--yes", "--json")) == {
        "job-1": "not-open",
        "job-3": "younger",
    }
    assert outcomes(txnlog(*command, "--yes", "--json")) == {"job-1": "not-open", "job-3": "aborted"}
    assert is_open(busy) == ["bank", "job-0", "job-2", "other"]


def test_abort_lingering_lists_what_is_beyond_the_factor(txnlog: Command, busy: TxnLog) -> None:
    listing = ["transactions", "abort-lingering", "--prefix", "job", "--list"]
    header, *rows = txnlog(*listing, "--parallelism", 1, "--safe-scale-down-factor", 2).out.splitlines()
    assert header.split()[-1] == "Worker"
    assert [(row.split()[0], row.split()[-1]) for row in rows] == [
        ("job-0", "0"),
        ("job-1", "0"),
        ("job-2", "-"),
        ("job-3", "-"),
    ]
    found = txnlog(*listing, "--json").json["transactions"]
    assert [one["number"] for one in found] == [0, 1, 2, 3]
    assert txnlog(*listing[:-1]).code == 2
    bad = txnlog(*listing[:-1], "--parallelism", 2, "--worker", 2, "--json")
    assert (bad.code, bad.error["kind"]) == (2, "invalid-lingering")


def expired(root: Path) -> None:
    """Make a log in which a transaction has been open for an hour."""
    log = TxnLog.create(LocalStore(str(root), clock=HourAgo()), clock=HourAgo())
    log.create_topic("t", pa.schema([("id", pa.int64())]))
    left_open(log, "slow")
    with Producer(log) as producer:
        producer.send("t", [{"id": 2}])
    log.close()


@pytest.mark.parametrize(
    ("command", "key"),
    [(["transactions", "end-expired"], "transactions"), (["maintain", "timeouts"], "timed_out")],
)
def test_expired_transactions_are_ended(txnlog: Command, root: Path, command: list[str], key: str) -> None:
    expired(root)
    assert txnlog("consume", "t").out == "", "the late transaction holds everything back"
    (found,) = txnlog(*command, "--json").json[key]
    assert found == "slow" or found["transactional_id"] == "slow"
    assert txnlog("consume", "t").out == '{"id":2}\n'
    assert txnlog(*command, "--json").json[key] == []
    assert TxnLog.open(root).outcome("slow", 0).cause == "timeout"


def test_maintain_timeouts_names_whom_it_ended(txnlog: Command, root: Path) -> None:
    expired(root)
    assert txnlog("maintain", "timeouts").out == "ended 1 transaction: slow\n"
    assert txnlog("maintain", "timeouts").out == "ended 0 transactions\n"
    assert txnlog("transactions", "end-expired").out == "no such transaction is open\n"


def test_a_reader_that_may_ends_what_holds_it_back(txnlog: Command, root: Path) -> None:
    expired(root)
    assert txnlog("consume", "t", "--end-expired").out == '{"id":2}\n'
    entries = TxnLog.open(root).state.entry
    assert txnlog("consume", "t", "--end-expired").out == '{"id":2}\n'
    assert TxnLog.open(root).state.entry == entries, "nothing is left to be ended"


@pytest.mark.parametrize(("answer", "code"), [(b"orders\n", 0), (b"order\n", 2), (b"y\n", 2), (b"\x04", 130)])
def test_a_topic_is_deleted_when_its_name_is_typed_again(
    root: Path, log: TxnLog, answer: bytes, code: int
) -> None:
    log.create_topic("orders", pa.schema([("id", pa.int64())]))
    found, shown = answer_on_a_terminal(root, answer, "delete-topic", "orders", question=b"Type its name")
    assert found == code
    assert b"deletes topic orders with 1 partition for good" in shown
    assert code != 130 or shown.endswith(AWAY)
    assert log.topics() == ([] if code == 0 else ["orders"])
