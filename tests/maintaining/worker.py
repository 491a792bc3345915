"""One process: ``python -m tests.maintaining.worker ROLE ROOT NUMBER STEPS``. It prints a line after each
step, and ends by itself or by a kill."""

from __future__ import annotations

import datetime
import sys
from typing import Any

import pyarrow as pa

from txnformat.admin import maintenance
from txnformat.admin.vacuum import vacuum
from txnformat.store.local import LocalStore
from txnlog import Producer, Subscription, TxnLog, TxnLogError

__all__ = ["GRACE", "ROWS", "WORK", "main", "opened"]

ROWS = pa.schema([("key", pa.int64()), ("name", pa.string())])
WORK = "work"
GRACE = datetime.timedelta(seconds=3)
HOURS_MS = 2 * 3_600_000


class _AgedStore(LocalStore):
    """A local disk on which every object seems to be two hours older: the log's old entries end long before
    every process's first view."""

    def created_ms(self, key: str) -> int | None:
        made = super().created_ms(key)
        return None if made is None else made - HOURS_MS


def opened(root: str, grace: datetime.timedelta = GRACE) -> TxnLog:
    """Return the log; its maintenance does every task in every round, and vacuums with a short grace."""

    def short(committer: Any, *_: Any) -> Any:
        return vacuum(committer, grace, allow_short_grace=True)

    for name, task in maintenance.TASKS.items():
        maintenance.TASKS[name] = task._replace(rest_ms=0, run=short if name == "vacuum" else task.run)
    return TxnLog.open(_AgedStore(root))


def produce(log: TxnLog, number: int, steps: int) -> None:
    """Commit a row to each topic in each step, and abort some in between; an instance after a kill goes on
    behind what was committed."""
    while True:
        try:
            with Producer(log, f"producer-{number}", buffer="inline" if number % 2 else "auto") as producer:
                mine = log.read("kept", where=f"name LIKE 'keep-{number}-%'").read_all().num_rows
                for step in range(mine, steps):
                    if step % 3 == 0:
                        producer.begin()
                        for topic in ("kept", "short"):
                            producer.send(topic, [{"key": step, "name": "aborted"}], partition=number)
                        producer.flush()
                        producer.abort()
                    with producer.transaction() as transaction:
                        row = {"key": step, "name": f"keep-{number}-{step:04}"}
                        transaction.send("kept", [row], partition=number)
                        transaction.send("short", [row], partition=number)
                        transaction.send("latest", [{"key": step % 4, "name": row["name"]}], partition=number)
                    print("step", step, flush=True)
            return
        except TxnLogError as error:  # a vacuum with a short grace has passed an upload, or a fenced instance
            print("again", error.kind, flush=True)


def maintain(log: TxnLog) -> None:
    """Do whole rounds. What the store or another process refuses is left to the next round, as by the
    service."""
    upkeep = maintenance.Upkeep(log.maintain, log.committer.clock)
    while True:
        report = upkeep.round()
        if report is not None:
            assert (report.skipped, report.damaged) == ((), ()), report
        print("round" if report is not None else f"failed {upkeep.failure}", flush=True)


def work(log: TxnLog) -> None:
    """Receive and acknowledge."""
    while True:
        try:
            subscription = Subscription(log, "short", WORK)
            while True:
                batch = subscription.receive(5, timeout_ms=100)
                if batch is not None:
                    subscription.acknowledge(batch)
                print("received", flush=True)
        except TxnLogError as error:
            print("again", error.kind, flush=True)


def main(role: str, root: str, number: int, steps: int) -> None:
    """Do the work of a role."""
    log = opened(root)
    match role:
        case "produce":
            produce(log, number, steps)
        case "maintain":
            maintain(log)
        case _:
            work(log)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:5]))
