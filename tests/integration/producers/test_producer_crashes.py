"""Producers that end in the middle: whole transactions stay, and a successor goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.clients.failing import (
    BUFFERS,
    NUMBERS,
    read,
    rows,
)
from txnformat.store.base import ObjectStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import RequestKind
from txnlog import (
    Producer,
    TxnLog,
)
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore, SimulatedCrash

ROOT = Path(__file__).resolve().parents[3]

# --- crashes ------------------------------------------------------------------------------------------------


def _history(store: ObjectStore, buffer: str) -> None:
    log = TxnLog.open(store)
    producer = Producer(log, "p", buffer=buffer)
    producer.init()
    for number in range(2):
        producer.begin()
        producer.send("t", rows(10 * number))
        producer.flush()
        producer.send("t", rows(10 * number + 1))
        producer.commit()
    log.close()


@BUFFERS
@pytest.mark.parametrize("kind", [FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER])
def test_a_crash_at_any_request_leaves_whole_transactions_and_a_successor_goes_on(
    buffer: str, kind: FaultKind
) -> None:
    crashes = 0
    while True:
        store = MemoryStore()
        TxnLog.create(store).create_topic("t", NUMBERS)
        plan = _CrashAt(crashes, kind)
        try:
            _history(FaultyStore(store, plan), buffer)
        except SimulatedCrash:
            crashes += 1
        else:
            break
        log = TxnLog.open(store)
        assert read(log) in ([], [0, 1], [0, 1, 10, 11])
        seen = read(log)
        with Producer(log, "p", buffer=buffer) as successor, successor.transaction() as txn:
            txn.send("t", rows(99))
        assert read(log) == [*seen, 99]
    assert crashes > 8


class _CrashAt:
    def __init__(self, request: int, kind: FaultKind) -> None:
        self._left = request
        self._kind = kind

    def __call__(self, operation: RequestKind, key: str, nth: int) -> Fault | None:
        self._left -= 1
        return Fault(self._kind) if self._left == -1 else None


CHILD = """
import signal, sys
import pyarrow as pa
from txnlog import Producer, TxnLog
producer = Producer(TxnLog.open(sys.argv[1]), "p", buffer="inline")
producer.init()
with producer.transaction() as txn:
    txn.send("t", pa.table({"n": [1]}))
    txn.flush()
    print("flushed", flush=True)
    signal.pause()
"""


def test_a_killed_process_holds_the_last_stable_offset_until_its_successor_opens(tmp_path: Path) -> None:
    log = TxnLog.create(tmp_path / "log")
    log.create_topic("t", NUMBERS)
    command = [sys.executable, "-c", CHILD, str(tmp_path / "log")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "flushed\n"
        process.send_signal(signal.SIGKILL)
    with Producer(log, "other") as other, other.transaction() as txn:
        txn.send("t", rows(2))
    assert read(log) == []  # committed, but behind the open transaction
    assert log.offsets("t")[0].last_stable_offset == 0
    with Producer(log, "p") as successor:
        assert read(log) == [2]
        with successor.transaction() as txn:
            txn.send("t", rows(3))
    assert read(log) == [2, 3]
    assert read(log, "read_uncommitted") == [1, 2, 3]
    assert log.outcome("p", 0).cause == "init"
