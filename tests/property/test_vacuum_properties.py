"""Random histories with uploads that fail, aborts, trims and vacuums: no record is ever lost, and in the end
nothing is left that no state names."""

from __future__ import annotations

import datetime
import uuid
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import event

from tests.integration.upkeep.vacuum_world import unnamed
from tests.model.groups import ManualClock
from tests.property.cut_histories import TOPICS, CutHistory, Row, cut_histories, offsets_of, small_pieces
from txnformat import keys
from txnformat.admin.garbage import Fate, Kind, VacuumReport
from txnformat.core.invariants import check_whole
from txnformat.store.memory import MemoryStore
from txnlog import TxnLog, UploadExpiredError

GRACE = datetime.timedelta(hours=2)
WEEK_MS = 7 * 24 * 3_600_000
FOREIGN = ("notes.txt", "orders/data/part-0.parquet", "_txnlog/other", "orders-00000000/data/x.parquet")


class Patient(CutHistory):
    """A history whose producers give up a transaction when it has waited too long between an upload and its
    commit."""

    def _transact(self, what: str, number: int) -> None:
        try:
            super()._transact(what, number)
        except UploadExpiredError:
            event("an upload expired")
            self._producers[number].abort()
            self._open[number] = None


class Vacuums:
    """Vacuums of a history whose clock goes when it is told to."""

    def __init__(self, random: Random, log: TxnLog, clock: ManualClock) -> None:
        self.random, self.log, self.clock = random, log, clock
        self.starts: dict[tuple[str, int], int] = {}
        self.rows: dict[tuple[str, int, int], Row] = {}
        """Everything that was ever read."""
        self.plans: list[tuple[int, Any, list[Any]]] = []
        """When a read was planned, the read, and what it has to give."""
        for key in FOREIGN:
            log.store.create(key, b"not ours")

    def step(self) -> None:
        chance = self.random.random()
        if chance < 0.15:
            self.clock.sleep(self.random.choice([60, 2_400, 6_000]))
        elif chance < 0.3:
            self.orphan()
        elif chance < 0.4:
            self.trim()
        elif chance < 0.5:
            self.plan()
        elif chance < 0.6:
            self.read_planned()
        elif chance < 0.85:
            self.vacuum()
        elif chance < 0.92:
            self.compact()

    def orphan(self) -> None:
        """Leave an object as a writer does that dies before its commit."""
        state = self.log.refresh()
        directory = self.random.choice([state.topic("orders").directory, "lost-0a1b2c3d"])
        name = (directory, max(state.entry, 0), str(uuid.UUID(int=self.random.getrandbits(128), version=4)))
        kind = self.random.choice(["data", "table", "markers", "index", "probe"])
        match kind:
            case "data":
                key = keys.data_key(*name)
            case "table":
                key = keys.table_key(*name[1:])
            case "probe":
                key = keys.probe_key(name[2])
            case _:
                key = keys.sidecar_key(*name, kind)
        self.log.store.create(key, b"given up")

    def compact(self) -> None:
        """Write files together, but for those with aborted records, which stay in the ledger."""
        done = self.log.compact(target_bytes=self.random.choice([1, 2_000, 10**6]), min_lag_ms=10**15)
        event("compacted some" if any(one.partitions for one in done) else "compacted none")
        self.check()

    def trim(self) -> None:
        self.rows |= offsets_of(self.log)
        topic = self.random.choice(TOPICS)
        for one in self.log.offsets(topic):
            offset = self.random.randint(0, one.last_stable_offset)
            self.log.delete_records(topic, {one.partition: offset})
            place = (topic, one.partition)
            self.starts[place] = max(self.starts.get(place, 0), offset)

    def plan(self) -> None:
        """Plan a read, as a job that takes long does."""
        topic = self.random.choice(TOPICS)
        isolation = self.random.choice(["read_committed", "read_uncommitted", "snapshot"])
        columns = ["_partition", "_offset", "value"]
        expected = self.log.read(topic, isolation=isolation, columns=columns).read_all().to_pylist()
        reader = TxnLog.open(self.log.store, clock=self.clock).read(
            topic, isolation=isolation, columns=columns
        )
        self.plans.append((self.clock.now().wall_ms, reader, expected))

    def read_planned(self) -> None:
        """Read by the plans of the grace: all that they promised is there."""
        now = self.clock.now().wall_ms
        for planned_ms, reader, expected in self.plans:
            if now - planned_ms <= GRACE.total_seconds() * 1_000:
                event("read by an old plan")
                assert reader.read_all().to_pylist() == expected
        self.plans.clear()

    def vacuum(self) -> VacuumReport:
        foretold = self.log.vacuum(GRACE, dry_run=True)
        log = self.log if self.random.random() < 0.5 else TxnLog.open(self.log.store, clock=self.clock)
        report = log.vacuum(GRACE)
        self.log.refresh()
        # The mark of the second is no earlier, so that it condemns no less.
        assert report.count(Fate.DELETED) == foretold.count(Fate.DELETED)
        assert report.count(Fate.CONDEMNED) == foretold.count(Fate.CONDEMNED)
        assert report.count(Fate.KEPT, Kind.FOREIGN) == len(FOREIGN)
        event("deleted some" if report.count(Fate.DELETED) else "deleted none")
        self.check()
        return report

    def check(self) -> None:
        """Everything that was there and was not removed is there."""
        now: dict[tuple[str, int, int], Row] = {}
        for log in (self.log, TxnLog.open(self.log.store, clock=self.clock)):
            now = offsets_of(log)
            kept = {
                place: row for place, row in self.rows.items() if place[2] >= self.starts.get(place[:2], 0)
            }
            assert kept.items() <= now.items()
        self.rows |= now
        assert check_whole(self.log.refresh()) == []


@cut_histories(examples=25)
def test_no_record_is_lost_and_nothing_stays_that_no_state_names(
    random: Random, steps: int, listed_rows: int, batches_max: int
) -> None:
    """While transactions of all buffers are open, segments of any size are sealed and listed, and records are
    removed."""
    with small_pieces(listed_rows, batches_max):
        clock = ManualClock()
        store = MemoryStore(clock)
        log = TxnLog.create(store, clock=clock, max_transaction_timeout_ms=WEEK_MS)
        timeouts: dict[str, Any] = {"transaction_timeout_ms": WEEK_MS, "deferred_timeout_ms": WEEK_MS}
        history = Patient(random, log, batch_bytes=1, **timeouts)
        vacuums = Vacuums(random, log, clock)
        for _ in range(steps):
            history.step()
            vacuums.step()
        history.close()
        entries = history.commit_entries()
        log.maintain("seal")
        for _ in range(2):
            vacuums.trim()
            log.maintain("seal")
        log.create_topic("later", pa.schema([("n", pa.int64())]))
        for _ in range(3):
            clock.sleep(GRACE.total_seconds() + 1)
            vacuums.vacuum()
        assert unnamed(log) == set()
        last = vacuums.vacuum()
        assert last.count(Fate.DELETED) == last.count(Fate.CONDEMNED) == 0
        assert last.entry == log.state.entry, "a vacuum that finds nothing writes nothing"
        assert not list(store.list(keys.CONDEMNED_PREFIX))
        shown = {
            (topic, *row)
            for topic in TOPICS
            for row in zip(
                *(
                    log.read(topic, isolation="snapshot", columns=["_partition", "value"])
                    .read_all()
                    .column(name)
                    .to_pylist()
                    for name in ("_partition", "value")
                ),
                strict=True,
            )
        }
        gone = {row for place, row in vacuums.rows.items() if place[2] < vacuums.starts.get(place[:2], 0)}
        assert shown == entries.keys() - gone
        report = log.verify(deep=True)
        assert report.ok, report.problems
