"""A log whose files a vacuum may free, with a clock that waits for the test."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa

from tests.model.groups import ManualClock
from txnformat import keys
from txnformat.store.local import LocalStore
from txnlog import Producer, TxnLog

__all__ = ["DAY_S", "GRACE", "NUMBERS", "World"]

GRACE = datetime.timedelta(hours=2)
DAY_S = 24 * 3_600
NUMBERS = pa.schema([("n", pa.int64())])


class World:
    """A log on disk with a clock that waits for the test."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        self.store = LocalStore(str(path), clock=self.clock)
        self.log = TxnLog.create(self.store, clock=self.clock, embedding=False)
        self.log.create_topic("t", NUMBERS, settings={"publish.hold.ms": 3 * DAY_S * 1_000})
        for number in range(4):
            self.write(number)

    def write(self, number: int, topic: str = "t") -> None:
        with Producer(self.log) as producer:
            producer.send(topic, pa.table({"n": [number]}))

    def vacuums(self, count: int = 3) -> str:
        """Let vacuums run, each a grace after the other; return what the last one says."""
        shown = ""
        for _ in range(count):
            self.clock.sleep(GRACE.total_seconds() + 1)
            self.write(99)
            shown = str(self.log.vacuum(GRACE))
        return shown

    def files(self) -> set[str]:
        return {info.key for info in self.store.list("") if keys.parse_data_key(info.key) is not None}
