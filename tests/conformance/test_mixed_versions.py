"""kafkatest-transactions: clients of two versions in one log, and an upgrade while transactions run.

The second version of the log is one with the reader feature ``lifecycle-1``. The older client is a process of
its own (``older_client.py``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.cases import ROOT, case
from tests.conformance.scenes import NUMBERS, read
from tests.older_logs import older_log
from txnformat.store.local import LocalStore
from txnlog import Producer, TxnLog


class Older:
    """The process of a client that does not know the feature."""

    def __init__(self, root: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("older_client.py")), str(root)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, word: str, *numbers: int) -> dict[str, Any]:
        """Let it do one thing; return its whole answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(" ".join([word, *map(str, numbers)]) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def do(self, word: str, *numbers: int) -> Any:
        """Let it do one thing that succeeds; return the result."""
        answer = self.ask(word, *numbers)
        assert "error" not in answer, answer
        return answer["result"]

    def refused(self, word: str, *numbers: int) -> None:
        """Let it do one thing; it says that the log needs a feature, which one, and what to do."""
        answer = self.ask(word, *numbers)
        assert answer.get("error") == "UnsupportedFeatureError", answer
        assert "lifecycle-1" in answer["message"]
        assert "upgrade txnlog" in answer["message"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def log(root: Path) -> TxnLog:
    log = older_log(LocalStore(root))
    log.create_topic("t", NUMBERS)
    return log


@pytest.fixture
def older(root: Path, log: TxnLog) -> Iterator[Older]:
    older = Older(root)
    older.do("open")
    older.do("init")
    try:
        yield older
    finally:
        older.process.kill()
        older.process.communicate()


def producer(log: TxnLog, name: str) -> Producer:
    made = Producer(log, name, buffer="inline")
    made.init()
    return made


def send(producer: Producer, *numbers: int) -> None:
    producer.send("t", [{"n": number} for number in numbers], partition=0)
    producer.flush()


@case("kafkatest-transactions", "test_transactions_mixed_versions")
def test_clients_of_both_versions_write_and_read_one_log_until_it_is_upgraded(
    log: TxnLog, older: Older
) -> None:
    """Transactions of both lie within each other; sealed segments, snapshots and maintenance of the newer
    client are in between."""
    newer = producer(log, "newer")
    expected = []
    for number in range(0, 40, 10):
        newer.begin()
        send(newer, number)
        older.do("begin", number + 1)
        send(newer, number + 2)
        older.do("send", number + 3)
        kept = [number, number + 2] if number % 20 else [number + 1, number + 3]
        if number % 20:
            older.do("abort")
            newer.commit()
        else:
            newer.abort()
            older.do("commit")
        expected += kept
        log.maintain()  # what needs an upgrade is left out, so that a job that runs it does not lock older clients out
        log.committer._write_snapshot()
        assert read(log) == expected
        assert older.do("read") == expected
        older.do("open")  # from that snapshot
    assert "lifecycle-1" not in log.refresh().features.reader
    assert log.verify(deep=True).ok


@case("kafkatest-transactions", "test_transactions_upgrade")
@pytest.mark.parametrize("first", ["commit", "send", "read", "init"])
def test_an_upgrade_under_running_transactions_loses_nothing_and_older_clients_say_what_they_need(
    log: TxnLog, older: Older, root: Path, first: str
) -> None:
    """Transactions of newer clients go on over it. What the older client had not committed is aborted when
    its id is opened by a newer one."""
    newer = [producer(log, "a"), producer(log, "b")]
    older.do("begin", 1)
    older.do("commit")
    for number, one in enumerate(newer, 10):
        one.begin()
        send(one, number)
    older.do("begin", 2)
    assert TxnLog.open(LocalStore(root)).upgrade()
    entry = log.refresh().entry
    older.refused(first, *([3] if first == "send" else []))
    assert "error" in older.ask("commit")
    older.refused("read")
    older.refused("open")
    assert log.refresh().entry == entry, "the older client wrote no entry"
    for number, one in enumerate(newer, 20):
        send(one, number)
    newer[0].commit()
    newer[1].abort()
    opened = producer(TxnLog.open(LocalStore(root)), "older")
    opened.begin()
    send(opened, 4)
    opened.commit()
    assert read(log) == [1, 10, 20, 4]
    log.maintain("seal")
    log.delete_records("t", 1)
    log.compact("t", min_lag_ms=0)
    assert read(TxnLog.open(LocalStore(root))) == [10, 20, 4]
    log.committer._write_snapshot()
    older.refused("open")  # from a snapshot that names the feature
    assert log.verify(deep=True).ok
