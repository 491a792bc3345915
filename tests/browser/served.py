"""A log with everything that a page shows, some of it under hostile names, and ``txnlog ui`` that
serves it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.cli.left_open import prepare
from txnlog import Consumer, Producer, TxnLog

__all__ = ["HOSTILE", "KILLED", "UNSEEN", "busy_log", "leave_open", "left_behind", "served"]

UNSEEN = "a\u202eb\u200bc\x00"
"""What a page would not show, and what would turn its line around."""
HOSTILE = "</script><img src=x onerror=alert(1)><b>'\"&amp;</b>"
"""A transactional id and a column that would run a script or add an element."""
KILLED = "killed-producer"
SCHEMA = pa.schema([(HOSTILE, pa.int64())])

PRODUCER = """
import sys
from txnlog import Producer, TxnLog
producer = Producer(TxnLog.open(sys.argv[1]), sys.argv[2], buffer="inline")
producer.init()
producer.begin()
producer.send("orders", [{sys.argv[3]: 1}] * 5, partition=1)
producer.flush()
print("open", flush=True)
sys.stdin.read()
"""


def busy_log(root: Path, *, rounds: int = 12) -> TxnLog:
    """Create a log: committed and aborted transactions, a prepared one, one under a hostile id, a group."""
    log = TxnLog.create(root)
    log.create_topic("orders", SCHEMA, partitions=3, key_columns=[HOSTILE])
    log.create_topic("payments", pa.schema([("id", pa.int64())]), partitions=2)
    producers = [Producer(log, f"worker-{number}", buffer="inline") for number in range(3)]
    for producer in producers:
        producer.init()
    for number in range(rounds):
        producer = producers[number % 3]
        producer.begin()
        for partition in range(3):
            producer.send(
                "orders", [{HOSTILE: number}] * (2 + (number * 7 + partition * 3) % 8), partition=partition
            )
        producer.send("payments", [{"id": number}] * 3, partition=number % 2)
        producer.flush()
        if number % 5 == 3:
            producer.abort()
        else:
            producer.commit()
    with Consumer(log, "readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["payments"])
        consumer.poll()
        consumer.commit()
    leave_open(log, "import-7", "payments")
    prepare(log, "import-7")
    leave_open(log, HOSTILE, "orders")
    leave_open(log, UNSEEN, "orders")
    for number in range(4):
        with producers[number % 3].transaction() as txn:
            txn.send("payments", [{"id": number}] * 2, partition=0)
            txn.send("orders", [{HOSTILE: number}] * 4, partition=2)
    return log


def leave_open(log: TxnLog, name: str, topic: str, **settings: Any) -> None:
    """Leave a transaction open that has records in partition 0."""
    producer = Producer(log, name, buffer="inline", **settings)
    producer.init()
    producer.begin()
    producer.send(topic, [{HOSTILE if topic == "orders" else "id": 1}] * 4, partition=0)
    producer.flush()


def left_behind(root: Path) -> None:
    """Let a process open a transaction, and kill it (SIGKILL)."""
    process = subprocess.Popen(
        [sys.executable, "-c", PRODUCER, str(root), KILLED, HOSTILE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    process.kill()
    process.communicate()


@contextmanager
def served(root: Path, *arguments: str) -> Iterator[str]:
    """Run ``txnlog ui`` at a free port; yields the page's URL."""
    command = [sys.executable, "-m", "txnlog", "ui", "--root", str(root), "--port", "0", "--json", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield str(json.loads(process.stdout.readline())["url"])
    finally:
        process.kill()
        process.communicate()
