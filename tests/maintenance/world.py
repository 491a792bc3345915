"""A log on which every task of maintenance has something to do, copies of it, and what clients see and do
there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Self

import pyarrow as pa
import pytest

from tests.maintenance.ledger import End, Ledger, Place, Row, Seen
from tests.model.groups import DrawnIds, ManualClock, WhenAsked
from txnformat.store.base import ObjectStore
from txnformat.store.memory import MemoryStore
from txnlog import Consumer, Producer, Subscription, TxnLog
from txnlog_testing.stores.latency import FarStore

__all__ = ["HOUR_S", "ISOLATIONS", "ROWS", "URL", "Bucket", "World", "small_lists"]

ROWS = pa.schema([("k", pa.string()), ("n", pa.int64())])
STAGED: list[Row] = [("k", 700), ("k", 701)]
"""Records of the prepared transactions."""
ISOLATIONS = ("read_committed", "snapshot", "read_uncommitted")
HOUR_S = 3_600
DAY_MS = 24 * HOUR_S * 1_000

_numbers = count()


@contextmanager
def small_lists() -> Iterator[None]:
    """Let writers make lists of segments at once and leave them to maintenance, divide lists into leaves, and
    let everything make one request at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("txnformat.protocol.sealing.LISTED_ROWS", 1)
        patch.setattr("txnformat.protocol.sealing.LIST_ROWS_MAX", 2)
        patch.setattr("txnformat.protocol.segment_lists.LEAF_BYTES", 3_000)
        patch.setattr("txnformat.client.driver.REQUESTS_IN_FLIGHT_MAX", 1)
        patch.setattr("txnformat.verify.requests.THREADS", 1)
        yield


URL = "s3://maintained/log"


class Bucket(MemoryStore):
    """A store in memory, each in a place of its own and with the same URL: paths of Iceberg tables are
    absolute."""

    @property
    def url(self) -> str:
        return URL

    @property
    def place(self) -> str:
        return super().url


class World:
    """Objects, a clock, and a ledger.

    Topics: ``t`` (two partitions, aborted transactions, small segments and a tail that is not sealed), ``k``
    (compacted by key), ``old`` (retention), and ``keep``, which no task touches: a group and a subscription
    have read half of it, a prepared transaction is in its partition 1, and another one is staged for
    partition 0.
    """

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = Bucket(self.clock, f"maintained-{next(_numbers)}")
        self.ledger = Ledger()
        self.tokens: tuple[str, ...] = ()
        """Of prepared transactions."""
        self.is_far = False
        """Whether processes find the store far away: they write payload bundles, and read by them."""
        self.position = 0
        """Of the group ``g`` in partition 0 of ``keep``; the subscription ``s`` has acknowledged the records
        below, too."""
        # Rows in entries would go with a seal and a truncation only: erasures and truncations would each be
        # several tasks here.
        log = TxnLog.create(self.store, clock=self.clock, ids=DrawnIds(0), embedding=False)
        log.close()
        log = self.opened()
        log.create_topic("t", ROWS, partitions=2, key_columns=["k"])
        compact: dict[str, int | str] = {"cleanup.policy": "compact", "min.compaction.lag.ms": 0}
        log.create_topic("k", ROWS, key_columns=["k"], settings=compact)
        log.create_topic("old", ROWS, settings={"retention.ms": 2 * DAY_MS, "cleanup.policy": "delete"})
        log.create_topic("keep", ROWS, partitions=2)
        for number in range(3):
            base = 100 * number
            self.write(log, {("t", 0): [("a", base), ("secret", base + 1)], ("t", 1): [("b", base)]})
            self.write(log, {("t", 0): [("secret", base + 2)]}, End.ABORTED)
            self.write(log, {("k", 0): [("x", base), ("y", base), (f"z{number}", base)]})
            self.write(log, {("old", 0): [("o", base), ("o", base + 1)]})
            self.write(log, {("keep", 0): [("k", base), ("k", base + 1)]})
            log.maintain("seal")
            self.clock.sleep(HOUR_S)
        self.read_half(log)
        self.tokens = (self.prepare(log, "inline"), self.prepare(log, "deferred"))
        self.prepared = self.ledger.wrote([(("keep", 1), STAGED)], End.PREPARED)
        self.write(
            log, {("t", 0): [("a", 900), ("secret", 901)], ("k", 0): [("y", 900)], ("keep", 1): [("k", 900)]}
        )
        log.committer.write_snapshot()
        log.close()

    # Copies, and processes.

    def copied(self) -> Self:
        """Return another world in which everything is as in this one."""
        other = object.__new__(type(self))
        other.clock = ManualClock()
        other.clock.ms = self.clock.ms
        other.store = Bucket(other.clock, f"maintained-{next(_numbers)}")
        other.store._objects = dict(self.store._objects)
        other.store._created_ms = dict(self.store._created_ms)
        other.store.renew()
        other.ledger = self.ledger.copied()
        other.position, other.tokens, other.prepared = self.position, self.tokens, self.prepared
        other.is_far = self.is_far
        return other

    def opened(self, store: ObjectStore | None = None, seed: int | None = None) -> TxnLog:
        """Return the log as a process opens it that remembers nothing; its background work waits for
        ``close``."""
        ids = DrawnIds(1_000 + next(_numbers) if seed is None else seed)
        store = self.store if store is None else store
        log = TxnLog.open(FarStore(store) if self.is_far else store, clock=self.clock, ids=ids)
        log.committer._background = WhenAsked()
        return log

    def fingerprint(self) -> bytes:
        """Return a hash of all objects, and of what else the next process can see: the time."""
        digest = hashlib.sha256(str(self.clock.ms).encode())
        for key in sorted(self.store._objects):
            digest.update(key.encode() + b"\0" + hashlib.sha256(self.store._objects[key]).digest())
        return digest.digest()

    # Writes of clients.

    def write(
        self,
        log: TxnLog,
        parts: Mapping[Place, Sequence[Row]],
        end: End = End.COMMITTED,
        name: str = "writer",
    ) -> None:
        """Write one transaction, and note it."""
        with Producer(log, name, buffer="inline") as producer:
            producer.begin()
            for (topic, number), rows in parts.items():
                producer.send(topic, table(rows), partition=number)
            producer.flush()
            producer.commit() if end is End.COMMITTED else producer.abort()
        self.ledger.wrote(parts.items(), end)

    def prepare(self, log: TxnLog, buffer: str) -> str:
        """Prepare a transaction, as a process that ends there; return its token."""
        producer = Producer(log, f"prepared-{buffer}", buffer=buffer)
        producer.init()
        producer.begin()
        producer.send("keep", table(STAGED), partition=1 if buffer == "inline" else 0)
        producer.flush()
        token = str(producer.prepare())
        producer.close()
        return token

    def end_prepared(self) -> None:
        """Commit the prepared transactions, if that was not done; the staged one gets its offsets now."""
        for token in self.tokens:
            self.opened().commit_prepared(token)
        if self.tokens:
            self.ledger.ended(self.prepared, End.COMMITTED)
            self.ledger.wrote([(("keep", 0), STAGED)], End.COMMITTED)
            self.tokens = ()

    def read_half(self, log: TxnLog) -> None:
        """Let the group and the subscription read three records of ``keep``."""
        log.subscriptions.create("keep", "s")
        with Consumer(log, "g") as consumer:
            consumer.assign([("keep", 0)])
            batch = consumer.poll(0, 3)
            assert batch is not None
            consumer.commit()
            self.position = consumer.positions()["keep", 0]
        with Subscription(log, "keep", "s") as subscription:
            batch = subscription.receive(3, timeout_ms=0)
            assert batch is not None
            subscription.acknowledge(batch)

    def read_on(self) -> None:
        """Let the group commit where it is: it is in use."""
        with Consumer(self.opened(), "g") as consumer:
            consumer.assign([("keep", 0)])
            consumer.poll(0, 1)
            consumer.seek("keep", 0, self.position)
            consumer.commit()

    # Reads of clients.

    def seen(self, log: TxnLog, topic: str, isolation: str) -> Seen:
        """Return what a reader sees; each offset once, in ascending order."""
        columns = ["_partition", "_offset", "k", "n"]
        rows = log.read(topic, isolation=isolation, columns=columns).read_all().to_pylist()
        places = [(row["_partition"], row["_offset"]) for row in rows]
        assert places == sorted(set(places)), (topic, isolation, places)
        return {place: (row["k"], row["n"]) for place, row in zip(places, rows, strict=True)}

    def go_on(self) -> None:
        """Let writers and readers do what they did before: every record lands at the offset that comes
        next.
        """
        log = self.opened()
        log.maintain("timeouts")
        self.ledger.abort_open()
        self.end_prepared()
        written = {place: [("new", 1_000), ("k", 1_001)] for place in (("keep", 0), ("keep", 1))}
        for topic in sorted({"t", "k", "old"} & set(log.topics())):
            written[topic, 0] = [("new", 1_000)]
        self.write(log, written)
        with Producer(log) as plain:
            plain.send("keep", table([("plain", 1_002)]), partition=0)
        self.ledger.wrote_plain(("keep", 0), [("plain", 1_002)])
        expected = [row for at, row in self.ledger.committed_below(("keep", 0), 2**62) if at >= self.position]
        with Consumer(log, "g") as consumer:
            consumer.assign([("keep", 0)])
            assert [row for batch in consumer.batches() for row in rows_of(batch)] == expected
            consumer.commit()
        with Subscription(log, "keep", "s") as subscription:
            found: list[Row] = []
            while (batch := subscription.receive(100, timeout_ms=0)) is not None:
                found += rows_of(batch)
                subscription.acknowledge(batch)
        left = [row for _, row in self.ledger.committed_below(("keep", 1), 2**62)]
        assert sorted(found) == sorted(expected + left)
        assert log.subscriptions.describe("keep", "s").unacknowledged == 0
        log.close()


def table(rows: Sequence[Row]) -> pa.Table:
    """Return records."""
    return pa.table({"k": [row[0] for row in rows], "n": [row[1] for row in rows]}, ROWS)


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """Return the records of a batch."""
    return [(row["k"], row["n"]) for row in batch.select(["k", "n"]).to_pylist()]
