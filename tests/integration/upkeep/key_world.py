"""A log with a topic that is compacted by key, and a clock that a test moves."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import pyarrow as pa

from tests.integration.clients.failing import QuickClock
from txnformat.store.memory import MemoryStore
from txnlog import Producer, TxnLog

__all__ = ["DAY", "HOUR", "TABLE", "Hours"]

TABLE = pa.schema([("k", pa.string()), ("v", pa.int64()), ("gone", pa.bool_())])
HOUR = 3_600_000
DAY = 24 * HOUR


class Hours:
    """A log with a topic that is compacted by key, and a clock that a test moves."""

    def __init__(
        self, schema: Any = TABLE, *, keys: Any = ("k",), partitions: int = 1, **settings: Any
    ) -> None:
        self.clock = QuickClock()
        self.log = TxnLog.create(MemoryStore(self.clock), clock=self.clock)
        given: dict[str, Any] = {"cleanup.policy": "compact", "min.compaction.lag.ms": 0}
        given |= {name.replace("_", "."): value for name, value in settings.items()}
        self.log.create_topic("t", schema, key_columns=keys, settings=given, partitions=partitions)

    def send(self, *rows: tuple[Any, ...], seal: bool = True) -> None:
        with Producer(self.log) as producer:
            names = self.log.refresh().topic("t").schema.arrow_schema.names
            producer.send("t", [dict(zip_longest(names, row)) for row in rows])
        if seal:
            self.log.maintain("seal")

    def hour(self, hours: float = 1) -> None:
        self.clock.sleep(3_600 * hours)

    def left(self) -> list[tuple[Any, ...]]:
        table = (
            TxnLog.open(self.log.store, clock=self.clock).read("t", columns=["k", "v", "_offset"]).read_all()
        )
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def verified(self) -> bool:
        report = self.log.verify(deep=True)
        assert report.ok, report.problems
        return True
