"""Histories of several producers on a real log, beside a model that does what Kafka's partitions do.

A :class:`Scene` is a log on a local disk and its producers. What happens to it, happens to a :class:`Model`
too, so that every test may compare rows, ends and last stable offsets at any moment; what the upstream test
states is asserted as literal rows besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from txnformat import keys
from txnformat.core.entry import OPERATIONS_MAX, CommitEntry, encode_entry
from txnformat.core.operations import InitProducer
from txnformat.store.base import CreateOutcome
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnlog import Producer, TxnLog

__all__ = [
    "AT_COMMIT",
    "BUFFERS",
    "INLINE",
    "NUMBERS",
    "Model",
    "Scene",
    "open_ids",
    "open_often",
    "read",
    "rows",
]

NUMBERS = pa.schema([("n", pa.int64())])
INLINE = "inline"
AT_COMMIT = ["auto", "deferred"]
"""Buffers whose records take their offsets when they are committed."""
ISOLATIONS = ("read_committed", "read_uncommitted")
BUFFERS = pytest.mark.parametrize("buffer", [INLINE, *AT_COMMIT])


def rows(first: int, count: int = 1) -> list[int]:
    """Return ``count`` numbers from ``first``."""
    return list(range(first, first + count))


def read(log: TxnLog, topic: str = "t", isolation: str = "read_committed", **options: Any) -> list[int]:
    """Return the numbers of a topic, as one reader of ``log`` sees them."""
    found: list[int] = (
        log.read(topic, isolation=isolation, columns=["n"], **options).read_all()["n"].to_pylist()
    )
    return found


def seen(
    log: TxnLog, other: TxnLog, partition: int, isolation: str = "read_committed", topic: str = "t"
) -> list[int]:
    """Return the numbers of one partition, on which all ways of reading must agree.

    By its writers' log at once, and by ``other``'s in two ranges, whose border may cut a batch or a
    transaction.
    """
    found = read(log, topic, isolation, partitions=[partition])
    ends = other.offsets(topic)[partition]
    end = ends.last_stable_offset if isolation == "read_committed" else ends.log_end
    middle = (ends.earliest + end) // 2
    first = read(other, topic, isolation, partitions=[partition], end=middle)
    assert first + read(other, topic, isolation, partitions=[partition], start=middle) == found
    return found


class Model:
    """What Kafka's partitions hold: (number, or None for a marker; transaction, or None without one)."""

    def __init__(self, at_commit: bool) -> None:
        self._at_commit = at_commit
        self.records: dict[int, list[tuple[int | None, object]]] = {}
        self._decided: dict[object, bool] = {None: True}
        self._held: dict[object, list[tuple[int, int]]] = {}

    def send(self, transaction: object, partition: int, numbers: Sequence[int]) -> None:
        """Buffer records."""
        self._held.setdefault(transaction, []).extend((partition, number) for number in numbers)

    def flush(self, transaction: object) -> None:
        """Append what is buffered, where that is what a flush does."""
        if transaction is None or not self._at_commit:
            self._append(transaction)

    def end(self, transaction: object, commits: bool) -> None:
        """Decide a transaction: a marker in each partition that has something of it."""
        if commits:
            self._append(transaction)
        self._held.pop(transaction, None)
        self._decided[transaction] = commits
        for log in self.records.values():
            if any(of == transaction for _, of in log):
                log.append((None, transaction))

    def _append(self, transaction: object) -> None:
        for partition, number in self._held.pop(transaction, []):
            self.records.setdefault(partition, []).append((number, transaction))

    def ends(self, partition: int) -> tuple[int, int]:
        """Return last stable offset and log end."""
        log = self.records.get(partition, [])
        unstable = (at for at, (_, of) in enumerate(log) if of not in self._decided)
        return next(unstable, len(log)), len(log)

    def committed(self, partition: int) -> list[int]:
        """Return what read_committed sees."""
        stable, _ = self.ends(partition)
        log = self.records.get(partition, [])[:stable]
        return [number for number, of in log if number is not None and self._decided[of]]

    def everything(self, partition: int) -> list[int]:
        """Return what read_uncommitted sees."""
        return [number for number, _ in self.records.get(partition, []) if number is not None]


class Scene:
    """A log, its producers by name, and the model.

    Parameters
    ----------
    root : Path or None
        Where the log is; None: in memory.
    buffer : str
        Of all transactional producers.
    seals : bool
        Whether all that is decided is moved into sidecars after every step.
    """

    def __init__(
        self,
        root: Path | None = None,
        buffer: str = INLINE,
        *,
        partitions: int = 1,
        topics: Sequence[str] = ("t",),
        seals: bool = False,
    ) -> None:
        self.log = TxnLog.create(MemoryStore() if root is None else LocalStore(str(root / "log")))
        for topic in topics:
            self.log.create_topic(topic, NUMBERS, partitions=partitions)
        self.buffer = buffer
        self.seals = seals
        self.partitions = partitions
        self.model = Model(at_commit=buffer in AT_COMMIT)
        self._producers: dict[str, Producer] = {}
        self._transactions: dict[str, tuple[str, int]] = {}

    def opened(self, name: str) -> Producer:
        """Return a new instance of a transactional producer, initialised."""
        producer = Producer(self.log, name, buffer=self.buffer)
        producer.init()
        return producer

    def settle(self) -> None:
        """Seal what can be sealed, if this scene does."""
        if self.seals:
            self.log.maintain("seal")

    # --- steps, on the log and on the model -----------------------------------------------------------------

    def plain(self, numbers: Sequence[int], partition: int = 0) -> None:
        """Append outside transactions."""
        if "" not in self._producers:
            self._producers[""] = Producer(self.log, linger_ms=10**9)
            self._producers[""].init()
        self._send("", None, numbers, partition)
        self._producers[""].flush()
        self.model.flush(None)
        self.settle()

    def begin(
        self, name: str, numbers: Sequence[int] = (), partition: int = 0, *, flush: bool = True
    ) -> None:
        """Begin a transaction of the producer ``name``, and send."""
        if name not in self._producers:
            self._producers[name] = self.opened(name)
        producer = self._producers[name]
        producer.begin()
        number = self._transactions.get(name, (name, -1))[1] + 1
        self._transactions[name] = (name, number)
        self.go_on(name, numbers, partition, flush=flush)

    def go_on(self, name: str, numbers: Sequence[int], partition: int = 0, *, flush: bool = True) -> None:
        """Send more in the open transaction of ``name``."""
        self._send(name, self._transactions[name], numbers, partition)
        if flush:
            self._producers[name].flush()
            self.model.flush(self._transactions[name])
        self.settle()

    def commit(self, name: str) -> None:
        """Commit the transaction of ``name``."""
        self._producers[name].commit()
        self.model.end(self._transactions[name], commits=True)
        self.settle()

    def abort(self, name: str) -> None:
        """Abort the transaction of ``name``."""
        self._producers[name].abort()
        self.model.end(self._transactions[name], commits=False)
        self.settle()

    def _send(self, name: str, transaction: object, numbers: Sequence[int], partition: int) -> None:
        for number in numbers:
            self._producers[name].send("t", [{"n": number}], partition=partition)
        self.model.send(transaction, partition, numbers)

    # --- what must hold at any moment -----------------------------------------------------------------------

    def check(self) -> dict[tuple[int, str], list[int]]:
        """Compare the log with the model; return what each partition holds at each isolation level."""
        other = TxnLog.open(self.log.store, clock=self.log.committer.clock)  # somebody who knows nothing
        found = {}
        for partition, ends in enumerate(self.log.offsets("t")):
            assert (ends.last_stable_offset, ends.log_end) == self.model.ends(partition)
            for isolation in ISOLATIONS:
                found[partition, isolation] = seen(self.log, other, partition, isolation)
            assert found[partition, "read_committed"] == self.model.committed(partition)
            assert found[partition, "read_uncommitted"] == self.model.everything(partition)
        return found

    def check_sealed(self) -> dict[tuple[int, str], list[int]]:
        """Compare, seal all that is decided, and compare again: the same rows."""
        before = self.check()
        self.log.maintain("seal")
        if all(ends.last_stable_offset == ends.log_end for ends in self.log.offsets("t")):
            assert self.log.state.extents == 0
        assert self.check() == before
        return before


def open_often(log: TxnLog, transactional_id: str, times: int) -> None:
    """Let a transactional id that is new be opened ``times`` times: what commits make one by one, in large
    entries."""
    producer_id = log.refresh().next_producer_id
    _write(log, [InitProducer(transactional_id, producer_id, epoch) for epoch in range(times)])


def open_ids(log: TxnLog, transactional_ids: Sequence[str]) -> None:
    """Open many transactional ids that are new."""
    first = log.refresh().next_producer_id
    _write(log, [InitProducer(name, first + number, 0) for number, name in enumerate(transactional_ids)])


def _write(log: TxnLog, operations: Sequence[InitProducer]) -> None:
    for start in range(0, len(operations), OPERATIONS_MAX):
        state = log.refresh()
        entry = CommitEntry(
            entry=state.entry + 1,
            log_id=state.log_id,
            write_id=log.committer.ids.new(),
            previous=state.entry_sha256,
            timestamp_ms=state.timestamp_ms + 1,
            engine="conformance",
            intents=(log.committer.ids.new(),),
            operations=tuple(operations[start : start + OPERATIONS_MAX]),
        )
        created = log.store.create(keys.entry_key(entry.entry), encode_entry(entry))
        assert created.outcome is CreateOutcome.CREATED
