"""Orders and payments in txnlog: two topics of one log."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow.compute as pc

from demo.cdc.changes import Change
from demo.cdc.systems import COLUMNS, SCHEMAS, Both, System, Way, both
from txnlog import Producer, TxnLog

__all__ = ["Topics"]


class Topics(System):
    """Two topics.

    The rows of a transaction go into the log before it is decided, as Kafka's producers do it.
    """

    def __init__(self, path: str) -> None:
        self._log = TxnLog.open_or_create(path)
        for name, schema in SCHEMAS.items():
            self._log.create_topic(name, schema, exist_ok=True)
        self._producer: Producer | None = None

    def done(self) -> int:
        """Open the producer, which aborts what a killed one has left open, and look how far the topic is."""
        self._producer = Producer(self._log, "shop", buffer="inline")
        self._producer.init()
        numbers = self._log.read("orders", columns=["source"]).read_all()["source"]
        return pc.max(numbers).as_py() or 0

    def apply(self, change: Change) -> None:
        """Send the orders, let them go into the log, send the payments, and commit or abort."""
        producer = self._producer
        if producer is None:
            raise RuntimeError("call done() first")
        producer.begin()
        producer.send("orders", list(change.orders))
        producer.flush()
        producer.send("payments", list(change.payments))
        if change.rolled_back:
            producer.flush()
            producer.abort()
        else:
            producer.commit()

    @property
    def ways(self) -> Mapping[str, Way]:
        """At one entry, or one topic after the other."""
        return {"one snapshot": self._snapshot, "two reads": self._two_reads}

    def _snapshot(self, orders_first: bool) -> Both:
        """Read both topics at one entry."""
        moment = self._log.snapshot()
        return both(lambda name: moment.read(name, columns=COLUMNS[name]).read_all(), orders_first)

    def _two_reads(self, orders_first: bool) -> Both:
        """Read each topic as it is at that time: nothing makes these two one moment."""
        return both(lambda name: self._log.read(name, columns=COLUMNS[name]).read_all(), orders_first)

    def everything(self) -> Both:
        """Read both topics at one entry."""
        moment = self._log.snapshot()
        return both(lambda name: moment.read(name).read_all(), orders_first=True)
