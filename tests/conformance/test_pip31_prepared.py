"""What a transaction buffer must keep beyond its producer: PIP-31's first demand, with an outcome that comes
from elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.cases import ROOT, case
from tests.conformance.pulsar import BUFFERS, again, new_log, opened, plain, read, send, stable
from txnformat.store.local import LocalStore
from txnlog import InvalidTransactionStateError, Producer, TxnLog
from writers.settings import Buffer

CHILD = """
import signal, sys
from txnlog import Producer, TxnLog
producer = Producer(TxnLog.open(sys.argv[1]), "p", buffer=sys.argv[2])
producer.init()
producer.begin()
producer.send("t", [{"n": 1}])
producer.flush()
producer.send("t", [{"n": 2}])
print(producer.prepare(), flush=True)
signal.pause()
"""


@BUFFERS
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
@case("TransactionEndToEndTest", "txnMetadataHandlerRecoverTest")
def test_what_a_killed_process_had_prepared_is_committed_or_aborted_by_another(
    tmp_path: Path, buffer: Buffer, commits: bool
) -> None:
    """All of it, once, whoever decides and however often he says so; before that nobody sees any of it."""
    root = tmp_path / "log"
    new_log(LocalStore(root))
    command = [sys.executable, "-c", CHILD, str(root), buffer]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        token = process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
    log = TxnLog.open(root)
    plain(log, 3)
    assert read(log) == ([] if buffer is Buffer.INLINE else [3]), "inline: what was prepared stands before it"
    assert log.transactions.end_expired() == ()
    for _ in range(2):
        outcome = log.commit_prepared(token) if commits else log.abort_prepared(token)
        assert outcome.outcome == ("commit" if commits else "abort")
    with pytest.raises(InvalidTransactionStateError):
        log.abort_prepared(token) if commits else log.commit_prepared(token)
    assert sorted(read(TxnLog.open(root))) == ([1, 2, 3] if commits else [3])
    assert stable(log) == log.offsets("t")[0].log_end
    with Producer(log, "p", buffer=buffer) as successor, successor.transaction() as txn:
        txn.send("t", [{"n": 4}])
    assert sorted(read(TxnLog.open(root))) == ([1, 2, 3, 4] if commits else [3, 4])
    assert log.verify(deep=True).ok


@BUFFERS
@case("TransactionEndToEndTest", "txnMetadataHandlerRecoverTest")
@case("ExactlyOnceKafkaWriterITCase", "shouldNotAbortPrecommittedTransactions")
def test_many_prepared_transactions_wait_for_one_who_commits_all_of_them(buffer: Buffer) -> None:
    """Upstream's twenty transactions of ten messages; a job that starts again leaves them alone."""
    log = new_log()
    tokens = []
    for number in range(20):
        producer = opened(log, f"job-{number}", buffer)
        for n in range(10):
            producer.send("t", [{"n": 100 * number + n}])
        tokens.append(str(producer.prepare()))
    again(log).transactions.abort_lingering("job", 1, 0, safe_scale_down_factor=20)
    assert read(log) == []
    for token in tokens:
        again(log).commit_prepared(token)
    assert sorted(read(log)) == sorted(100 * number + n for number in range(20) for n in range(10))


@BUFFERS
def test_nothing_joins_what_was_prepared(buffer: Buffer) -> None:
    """Neither of its own producer nor of a successor; the end is decided on exactly what was prepared."""
    log = new_log()
    producer = opened(log, "p", buffer)
    send(producer, 1)
    token = str(producer.prepare())
    with pytest.raises(InvalidTransactionStateError):
        producer.send("t", [{"n": 2}])
    with pytest.raises(InvalidTransactionStateError) as caught:
        opened(log, "p", buffer)
    assert caught.value.kind == "transaction-prepared"
    again(log).commit_prepared(token)
    assert read(log) == [1]
