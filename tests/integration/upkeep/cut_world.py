"""A log on which upkeep of every kind happens, step by step, and which a truncation may cut to its tip
between any two steps."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import pyarrow as pa
import pytest

from tests.integration.upkeep.truncation_world import EIGHT_DAYS_S, HOUR_S, entries_in
from tests.model.groups import ManualClock
from txnformat.store.memory import MemoryStore
from txnlog import Producer, TxnLog

__all__ = ["STEPS", "CutWorld", "small_parts"]

PEOPLE = pa.schema([("name", pa.string()), ("n", pa.int64())])
GRACE = datetime.timedelta(hours=2)
SECRET = "secret"

Places = dict[tuple[str, int], list[tuple[str, int]]]

_numbers = count()


@contextmanager
def small_parts() -> Iterator[None]:
    """Let a bundle have one entry, so that a boundary may lie at any entry, and lists of segments be made at
    once and be divided."""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in sorted(sys.modules.items()):
            if name.startswith("txnformat.") and hasattr(module, "BUNDLE_ENTRIES"):
                patch.setattr(module, "BUNDLE_ENTRIES", 1)
        patch.setattr("txnformat.protocol.sealing.LISTED_ROWS", 1)
        patch.setattr("txnformat.protocol.segment_lists.LEAF_BYTES", 2_000)
        yield


class CutWorld:
    """A log, its clock, and the records that a reader must see.

    Topics: ``t`` keeps all records in two partitions, ``k`` the latest of each key, ``gone`` is deleted by a
    step.
    """

    def __init__(self, *, embedding: bool = False) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock, f"cut-{next(_numbers)}")
        self.rows: Places = {("t", 0): [], ("t", 1): [], ("k", 0): [], ("gone", 0): []}
        self.number = 0
        log = TxnLog.create(self.store, clock=self.clock, embedding=embedding)
        log.create_topic("t", PEOPLE, partitions=2)
        log.create_topic(
            "k",
            PEOPLE,
            key_columns=["name"],
            settings={"cleanup.policy": "compact", "min.compaction.lag.ms": 0},
        )
        log.create_topic("gone", PEOPLE)
        log.close()

    def copied(self) -> CutWorld:
        """Return another world with the same objects, as old as they are here."""
        other = object.__new__(CutWorld)
        other.clock = ManualClock()
        other.clock.ms = self.clock.ms
        other.store = MemoryStore(other.clock, f"cut-{next(_numbers)}")
        other.store._objects = dict(self.store._objects)
        other.store._created_ms = dict(self.store._created_ms)
        other.store.renew()
        other.rows = {place: [*rows] for place, rows in self.rows.items()}
        other.number = self.number
        return other

    def opened(self) -> TxnLog:
        """Return the log as another process opens it."""
        return TxnLog.open(self.store, clock=self.clock)

    def cut(self) -> None:
        """Let the log name two snapshots, and delete every entry that may go then."""
        log = self.opened()
        for _ in range(2):
            log.committer.write_snapshot()
        log.close()
        self.clock.sleep(EIGHT_DAYS_S)
        for _ in range(2):
            log = self.opened()
            log.truncate()
            log.close()
            self.clock.sleep(HOUR_S + 1)
        left, older = entries_in(self.store), self.opened().state.checkpoints[0].entry
        assert left[0] == older

    # Steps.

    def write(self, *, secret: bool = True) -> None:
        """Commit a record to every partition, perhaps a secret one, too, abort others, and seal."""
        log = self.opened()
        with Producer(log, "writer", buffer="inline") as producer:
            for commits in (True, False, True):
                self.number += 1
                producer.begin()
                for place in self.rows:
                    names = ["x", SECRET] if secret and place == ("t", 0) else ["x"]
                    rows = [(name, self.number) for name in names]
                    producer.send(
                        place[0],
                        pa.table({"name": [row[0] for row in rows], "n": [row[1] for row in rows]}, PEOPLE),
                        partition=place[1],
                    )
                    if commits:
                        self.rows[place] += rows
                producer.flush()
                producer.commit() if commits else producer.abort()
        log.maintain("seal")
        log.close()

    def write_unsealed(self) -> None:
        """Commit records that stay in the state."""
        log = self.opened()
        with Producer(log) as producer:
            producer.send("t", pa.table({"name": ["late"], "n": [self.number]}, PEOPLE), partition=0)
        self.rows["t", 0].append(("late", self.number))
        log.close()

    def compact(self) -> None:
        """Write everything together, and of ``k`` only the latest of each key."""
        log = self.opened()
        log.compact(min_lag_ms=0)
        latest = {row[0]: row for row in self.rows["k", 0]}
        self.rows["k", 0] = [row for row in self.rows["k", 0] if latest[row[0]] == row]
        log.close()

    def erase(self) -> None:
        """Erase the secrets, as far as one call does it: of the partitions only files that have some are
        written anew."""
        log = self.opened()
        log.erase("t", f"name = '{SECRET}'", requested_by="a test", key=f"{self.number:032}")
        self.rows = {
            place: [row for row in rows if place[0] != "t" or row[0] != SECRET]
            for place, rows in self.rows.items()
        }
        log.close()

    def trim(self) -> None:
        """Remove the oldest record of each partition of ``t``."""
        log = self.opened()
        for number in (0, 1):
            rows = log.read("t", partitions=[number], columns=["_offset"]).read_all()["_offset"].to_pylist()
            log.delete_records("t", {number: rows[0] + 1})
            del self.rows["t", number][0]
        log.close()

    def trim_all(self) -> None:
        """Remove all records of ``t`` that can be read."""
        log = self.opened()
        ends = {one.partition: one.last_stable_offset for one in log.offsets("t")}
        log.delete_records("t", ends)
        self.rows |= {("t", number): [] for number in ends}
        log.close()

    def vacuum(self) -> None:
        """Delete what a vacuum may."""
        for _ in range(3):
            self.clock.sleep(GRACE.total_seconds() + 1)
            log = self.opened()
            log.vacuum(GRACE)
            log.maintain("erasures")
            log.close()

    def publish(self) -> None:
        """Publish all topics as tables."""
        log = self.opened()
        log.publish()
        log.close()

    def delete_topic(self) -> None:
        """Delete a topic."""
        log = self.opened()
        log.delete_topic("gone")
        del self.rows["gone", 0]
        log.close()

    # These must hold.

    def check(self, *, deep: bool = False) -> None:
        """Verify, and compare what readers see with what must be there."""
        log = self.opened()
        report = log.verify(deep=deep)
        assert report.problems == ()
        for topic in {place[0] for place in self.rows}:
            for isolation in ("read_committed", "snapshot"):
                columns = ["_partition", "name", "n"]
                found = log.read(topic, isolation=isolation, columns=columns).read_all().to_pylist()
                seen: Places = {place: [] for place in self.rows if place[0] == topic}
                for row in found:
                    seen[topic, row["_partition"]].append((row["name"], row["n"]))
                assert seen == {place: rows for place, rows in self.rows.items() if place[0] == topic}
        log.close()

    def look(self) -> None:
        """Ask for everything else that can be asked for."""
        log = self.opened()
        log.timeline()
        assert [one.entry for one in log.history()] == list(range(log.state.entry, -1, -1))
        assert log.vacuum(GRACE, dry_run=True).notes == ()
        log.compact(min_lag_ms=0, dry_run=True)
        log.truncate(dry_run=True)
        log.erasures(look=True)
        log.describe()
        log.metrics()
        log.close()


STEPS: tuple[Callable[[CutWorld], None], ...] = (
    CutWorld.write,
    lambda world: world.write(secret=False),
    CutWorld.erase,
    CutWorld.write,
    CutWorld.compact,
    CutWorld.publish,
    CutWorld.write,
    CutWorld.trim,
    CutWorld.write_unsealed,
    CutWorld.write,
    CutWorld.erase,
    CutWorld.vacuum,
    CutWorld.write,
    CutWorld.delete_topic,
    CutWorld.compact,
    CutWorld.trim,
    CutWorld.publish,
    CutWorld.vacuum,
)
"""In this order the erasures rewrite some of the parts that a later compaction writes together."""
