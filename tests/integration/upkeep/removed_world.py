"""A log that was trimmed in the middle of its segments, whose files below the log start a vacuum has deleted;
and every operation of TxnLog on it."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.upkeep.vacuum_world import GRACE
from tests.model.groups import ManualClock, WhenAsked
from txnformat import keys
from txnformat.store.base import ObjectStore
from txnformat.store.memory import MemoryStore
from txnformat.types import OffsetRange
from txnlog import Consumer, Producer, Subscription, TxnLog, TxnLogError

__all__ = ["LAYOUTS", "OPERATIONS", "STARTS", "RemovedWorld", "Rows", "read_everywhere", "small_spills"]

ROWS = pa.schema([("k", pa.string()), ("n", pa.int64())])
STARTS = {0: 9, 1: 5}
"""Log starts, in the middle of segments."""
LAYOUTS = ("sealed", "compacted", "compacted keys", "compacted twice", "spilled")
WEEK_S = 7 * 24 * 3_600

Rows = dict[tuple[int, int], tuple[str, int]]


@pytest.fixture
def small_spills(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let spills take what little there is, and the compactor close a file after each source."""
    monkeypatch.setattr("txnformat.protocol.sealing.ROWS_SHARE", 1_000_000)
    monkeypatch.setattr("txnformat.verify.requests.THREADS", 1)


class RemovedWorld:
    """Objects and a clock. Files have records of two partitions, a segment many files; some transactions were
    aborted, one is prepared behind all that is sealed."""

    def __init__(self, layout: str, *, embedded: bool) -> None:
        self.layout = layout
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        log = TxnLog.create(
            self.store, clock=self.clock, embedding=embedded, max_transaction_timeout_ms=1_000 * WEEK_S
        )
        log = self.opened()
        policy: dict[str, int | str] = (
            {"cleanup.policy": "compact", "min.compaction.lag.ms": 0} if layout == "compacted keys" else {}
        )
        log.create_topic("t", ROWS, partitions=2, key_columns=["k"], settings=policy)
        log.subscriptions.create("t", "s")
        self.write(log, 8)
        log.maintain("seal")
        self.compact(log)
        self.write(log, 8)
        log.maintain("seal")
        if layout == "compacted twice":
            self.compact(log)
        self.write(log, 2)
        producer = Producer(log, "prepared", buffer="inline", transaction_timeout_ms=1_000 * WEEK_S)
        producer.init()
        producer.begin()
        producer.send("t", pa.table({"k": ["p"], "n": [1_000]}, ROWS), partition=0)
        producer.flush()
        TOKENS[log.log_id] = str(producer.prepare())
        producer.close()
        self.write(log, 3)
        if layout == "spilled":
            log.committer.seal()
        consumed(log, 4)
        ended = self.copied()
        ended.opened().abort_prepared(TOKENS[log.log_id])
        self.rows = ended.seen(ended.opened())

    def write(self, log: TxnLog, count: int) -> None:
        for number in range(count):
            with Producer(log, "writer", buffer="inline") as producer:
                producer.begin()
                for partition in (0, 1):
                    rows = {"k": [f"{number % 5}", "secret"], "n": [number, partition]}
                    producer.send("t", pa.table(rows, ROWS), partition=partition)
                producer.flush()
                producer.abort() if number % 4 == 2 else producer.commit()

    def compact(self, log: TxnLog) -> None:
        if self.layout.startswith("compacted"):
            log.compact("t", min_lag_ms=0)

    def opened(self, store: ObjectStore | None = None) -> TxnLog:
        """Return the log as another process opens it."""
        log = TxnLog.open(self.store if store is None else store, clock=self.clock)
        log.committer._background = WhenAsked()
        return log

    def copied(self) -> RemovedWorld:
        """Return another world in which everything is as in this one."""
        other = object.__new__(RemovedWorld)
        other.layout, other.rows = self.layout, dict(getattr(self, "rows", {}))
        other.clock = ManualClock()
        other.clock.ms = self.clock.ms
        other.store = MemoryStore(other.clock)
        other.store._objects = dict(self.store._objects)
        other.store._created_ms = dict(self.store._created_ms)
        other.store.renew()
        return other

    def remove(self) -> None:
        """Trim, and let vacuums delete what lies below."""
        self.opened().delete_records("t", STARTS)
        for _ in range(3):
            self.clock.sleep(GRACE.total_seconds() + 1)
            log = self.opened()
            log.create_topic(f"tick {int(self.clock.ms)}".replace(" ", "-"), ROWS)
            log.vacuum(GRACE)

    def lost(self) -> set[str]:
        """Return the objects that a live segment names, and that a vacuum has deleted."""
        log = self.opened()
        found: set[str] = set()
        for key, partition in log.state.partitions.items():
            within = OffsetRange(partition.log_start, partition.sealed_end)
            for part in log.sidecars.segments(log.state, key, within):
                index = log.sidecars.index(part.record.index)
                found |= {file.key for file in index.files.values()}
        return {key for key in found if keys.place_of(key) is None and self.store.get(key) is None}

    def seen(self, log: TxnLog) -> Rows:
        """Return what a committed reader sees."""
        found = log.read("t", columns=["_partition", "_offset", "k", "n"]).read_all().to_pylist()
        return {(row["_partition"], row["_offset"]): (row["k"], row["n"]) for row in found}

    def check(self, *, changes: str = "") -> None:
        """Every record that is left and stable is read, and no object is missed."""
        log = self.opened()
        if "t" in log.topics():
            rows = self.seen(log)
            ends = {one.partition: (one.earliest, one.last_stable_offset) for one in log.offsets("t")}
            left = {
                (number, at): row
                for (number, at), row in self.rows.items()
                if ends[number][0] <= at < ends[number][1]
            }
            if changes == "erase":
                assert "secret" not in {row[0] for row in rows.values()}
                left = {place: row for place, row in left.items() if row[0] != "secret"}
            if self.layout == "compacted keys":
                assert rows.items() <= left.items() | {
                    (place, row) for place, row in rows.items() if row[1] >= 1_000
                }
            else:
                assert {place: row for place, row in rows.items() if row[1] < 1_000} == left
        report = log.verify()
        assert report.ok, report.problems


def consumed(log: TxnLog, most: int = 1_000) -> None:
    with Consumer(log, "g", auto_offset_reset="earliest", max_poll_records=2) as consumer:
        consumer.subscribe(["t"])
        while most > 0 and (batch := consumer.poll(0)) is not None:
            most -= batch.num_rows
            consumer.commit()


def received(log: TxnLog) -> None:
    with Subscription(log, "t", "s") as subscription:
        while (batch := subscription.receive(7, 0)) is not None:
            subscription.acknowledge(batch)
        subscription.backlog()


def produced(log: TxnLog) -> None:
    with Producer(log, "writer") as producer:
        producer.begin()
        producer.send("t", pa.table({"k": ["new"], "n": [1_000]}, ROWS), partition=1)
        producer.commit()
    log.close()


def versions(log: TxnLog) -> None:
    """Read each version: those before the trim are refused."""
    for entry in range(log.state.entry + 1):
        for read in (log.read, log.dataset):
            try:
                found = read("t", version_as_of=entry)
                found.read_all() if read == log.read else found.to_table()
            except TxnLogError as error:
                if error.kind not in (
                    "version-trimmed",
                    "unknown-topic",
                    "version-before-topic",
                    "topic-not-found",
                ):
                    raise


def read_everywhere(log: TxnLog) -> None:
    """Read from each offset that is there to each other, also what is not committed."""
    for isolation in ("read_committed", "read_uncommitted", "snapshot"):
        log.read("t", isolation=isolation).read_all()
    for one in log.offsets("t"):
        for start in range(one.earliest, one.last_stable_offset, 3):
            for end in (start + 1, one.last_stable_offset):
                number = one.partition
                log.read("t", partitions=[number], start={number: start}, end={number: end}).read_all()


def sound(report: Any) -> None:
    assert report.ok, report.problems


def sealed_behind(log: TxnLog) -> None:
    """End the transaction, so that what was held back is sealed."""
    log.abort_prepared(TOKENS[log.log_id])
    log.maintain("seal")
    log.compact("t", min_lag_ms=0)


def erased(log: TxnLog) -> None:
    log.erase("t", "k = 'secret'", requested_by="a test", key="0123456789abcdef" * 2)
    log.erasures(look=True)


TOKENS: dict[str, str] = {}
"""Of the prepared transaction, by log."""

Operation = Callable[[TxnLog], Any]

OPERATIONS: dict[str, Operation] = {
    "refresh": lambda log: log.refresh(),
    "read": read_everywhere,
    "read where": lambda log: log.read("t", where="k = 'secret' AND n >= 0").read_all(),
    "read columns": lambda log: log.read("t", columns=["_offset"]).read_all(),
    "read versions": versions,
    "plan": lambda log: log.plan("t"),
    "snapshot": lambda log: log.snapshot().read("t").read_all(),
    "dataset": lambda log: log.dataset("t").to_table(),
    "dataset where": lambda log: log.dataset("t", where="k = 'secret'").count_rows(),
    "describe": lambda log: log.describe(),
    "metrics": lambda log: log.metrics(),
    "offsets": lambda log: log.offsets("t"),
    "topics": lambda log: log.topics(),
    "history": lambda log: list(log.history()),
    "verify": lambda log: sound(log.verify()),
    "verify deep": lambda log: sound(log.verify(deep=True)),
    "consume": consumed,
    "receive": received,
    "groups": lambda log: log.groups.describe_all(),
    "reset_offsets": lambda log: log.groups.reset_offsets("g", "t", to="earliest"),
    "commit_prepared": lambda log: log.commit_prepared(TOKENS[log.log_id]),
    "abort_prepared": lambda log: log.abort_prepared(TOKENS[log.log_id]),
    "outcome": lambda log: log.outcome("prepared", 0),
    "lift marks": lambda log: log.maintain("subscriptions"),
    "subscriptions": lambda log: log.subscriptions.describe("t", "s"),
    "produce": produced,
    "alter": lambda log: log.alter(truncate_older_than=None),
    "alter_topic": lambda log: log.alter_topic("t", add_columns=[pa.field("more", pa.int64())], partitions=3),
    "create_topic": lambda log: log.create_topic("more", ROWS),
    "upgrade": lambda log: log.upgrade(),
    "write_snapshot": lambda log: log.committer.write_snapshot(),
    "seal": lambda log: log.committer.seal(),
    "seal behind": sealed_behind,
    "compact": lambda log: log.compact("t", min_lag_ms=0),
    "compact to small files": lambda log: log.compact("t", min_lag_ms=0, target_bytes=1),
    "compact a partition": lambda log: log.compact("t", partitions=[1], min_lag_ms=0),
    "compact dry": lambda log: log.compact("t", min_lag_ms=0, dry_run=True),
    "delete_records": lambda log: log.delete_records("t", {0: 12, 1: 11}),
    "delete_records all": lambda log: log.delete_records("t", -1),
    "delete_records dry": lambda log: log.delete_records("t", {0: 12}, dry_run=True),
    "delete_records force": lambda log: log.delete_records("t", -1, force=["prepared"]),
    "delete_topic": lambda log: log.delete_topic("t", force=["prepared"]),
    "erase": erased,
    "erase dry": lambda log: log.erase("t", "k = 'secret'", requested_by="a test", dry_run=True),
    "erasures": lambda log: log.erasures(look=True),
    "vacuum": lambda log: log.vacuum(GRACE),
    "vacuum dry": lambda log: log.vacuum(GRACE, dry_run=True),
    "truncate": lambda log: log.truncate(),
    "maintain": lambda log: log.maintain(),
    "maintain truncate": lambda log: log.maintain("truncate", truncate_older_than=datetime.timedelta(days=7)),
    "transactions": lambda log: log.transactions.list(),
}
"""By name."""
