"""Random histories of several topics by real producers, beside a ledger of what each unit wrote and when it
committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.older_logs import older_log
from tests.rounds import rounds
from txnformat.reading.commits import CommitWindow
from txnformat.reading.rows import read_rows
from txnlog import Producer, TxnLog
from writers.bulk import BulkAppend
from writers.settings import ProducerSettings

__all__ = [
    "COLUMNS",
    "PARTITIONS",
    "SCHEMA",
    "TOPICS",
    "CutHistory",
    "Row",
    "any_log",
    "cut_histories",
    "offsets_of",
    "read_records",
    "small_pieces",
]

TOPICS = ("orders", "payments")
PARTITIONS = 2
SCHEMA = pa.schema([("value", pa.int64())])
COLUMNS = ["_partition", "value", "_commit_entry"]
BUFFERS = ("inline", "inline", "auto", "deferred")

Row = tuple[str, int, int]
"""Topic, partition, value: every value is there once."""


@dataclass
class Unit:
    """A transaction, or one plain append: what is visible together."""

    rows: list[Row] = field(default_factory=list)
    committed: int | None = None
    """The entry that committed it."""


def any_log(random: Random, store: Any, *, may_be_older: bool = False) -> TxnLog:
    """Create a log that embeds small transactions or not; if it may be, in some histories one of an older
    version."""
    if may_be_older and random.random() < 0.4:
        return older_log(store)
    return TxnLog.create(store, embedding=random.random() < 0.6)


class CutHistory:
    """Writes step by step; :meth:`shown` says what a snapshot at an entry has to show, and nothing else.

    Four transactional producers (two inline, one that is one-shot unless it flushes, one deferred), one
    idempotent, and bulk appends; transactions are flushed, committed, aborted, prepared, left open, or ended
    by the next instance. Small ones are embedded in their entries: from the beginning, from some step on, or
    never.

    Parameters
    ----------
    grows : bool
        Topics get more partitions as well.
    settings
        Of the transactional producers and bulk appends.
    """

    def __init__(self, random: Random, log: TxnLog, *, grows: bool = False, **settings: Any) -> None:
        self.random, self.log = random, log
        self._grows, self._settings = grows, settings
        self._partitions = dict.fromkeys(TOPICS, PARTITIONS)
        for topic in TOPICS:
            log.create_topic(topic, SCHEMA, partitions=PARTITIONS)
        self.units: list[Unit] = []
        self._value = 0
        self._names = [f"tx-{number}" for number in range(len(BUFFERS))]
        self._producers = [self._opened(number) for number in range(len(BUFFERS))]
        self._open: list[Unit | None] = [None] * len(BUFFERS)
        # Nothing is flushed but by the steps: a thread that came in between would make two units of one.
        self._plain = Producer(log, linger_ms=3_600_000)
        self._plain.init()

    def _opened(self, number: int) -> Producer:
        producer = Producer(self.log, self._names[number], buffer=BUFFERS[number], **self._settings)
        producer.init()
        return producer

    def shown(self, entry: int) -> set[Row]:
        """Return what is committed at an entry."""
        units = [unit for unit in self.units if unit.committed is not None and unit.committed <= entry]
        return {row for unit in units for row in unit.rows}

    def commit_entries(self) -> dict[Row, int]:
        """Return the entry that committed each row."""
        return {row: unit.committed for unit in self.units if unit.committed is not None for row in unit.rows}

    def step(self) -> None:
        """Do one thing."""
        whats = ["send"] * 5 + ["end"] * 3 + ["plain", "bulk", "prepare", "again", "seal"]
        if self.random.random() < 0.03:
            self.log.upgrade(embedding=True)
        what = self.random.choice(whats + ["grow"] * self._grows)
        number = self.random.randrange(len(BUFFERS))
        if what == "plain":
            unit = self._unit()
            self._send(self._plain, unit)
            unit.committed = self._plain.flush().entry
        elif what == "bulk":
            unit = self._unit()
            with BulkAppend(self.log, ProducerSettings(**self._settings)) as bulk:
                self._send(bulk, unit)
                unit.committed = bulk.commit().entry
        elif what == "seal":
            self.log.maintain("seal")
        elif what == "grow":
            topic = self.random.choice(TOPICS)
            self._partitions[topic] += 1
            self.log.alter_topic(topic, partitions=self._partitions[topic])
        else:
            self._transact(what, number)

    def _transact(self, what: str, number: int) -> None:
        producer, unit = self._producers[number], self._open[number]
        is_prepared = producer.prepared is not None
        if what == "send" and not is_prepared:
            if unit is None:
                producer.begin()
                unit = self._open[number] = self._unit()
            self._send(producer, unit)
            if self.random.random() < 0.6:
                producer.flush()
        elif what == "prepare" and unit is not None and not is_prepared:
            producer.prepare()
        elif what == "again":
            if is_prepared:  # the next instance finds it as it is
                self._producers[number] = self._opened(number)
            elif unit is not None:
                self._producers[number], self._open[number] = self._opened(number), None
        elif what == "end" and unit is not None:
            if self.random.random() < 0.6:
                unit.committed = producer.commit().entry
            else:
                producer.abort()
            self._open[number] = None

    def _unit(self) -> Unit:
        self.units.append(Unit())
        return self.units[-1]

    def _send(self, producer: Producer | BulkAppend, unit: Unit) -> None:
        for _ in range(self.random.randint(1, 3)):
            topic = self.random.choice(TOPICS)
            partition = self.random.randrange(self._partitions[topic])
            values = list(range(self._value, self._value + self.random.randint(1, 3)))
            self._value += len(values)
            producer.send(topic, pa.table({"value": values}, schema=SCHEMA), partition=partition)
            unit.rows += [(topic, partition, value) for value in values]

    def close(self) -> None:
        """Close the producers, which aborts what is open and not prepared."""
        for producer in [*self._producers, self._plain]:
            producer.close()


def offsets_of(log: TxnLog) -> dict[tuple[str, int, int], Row]:
    """Return what stands at each (topic, partition, offset)."""
    found: dict[tuple[str, int, int], Row] = {}
    for topic in TOPICS:
        table = log.read(
            topic, isolation="read_uncommitted", columns=["_partition", "_offset", "value"]
        ).read_all()
        for partition, offset, value in zip(*(column.to_pylist() for column in table.columns), strict=True):
            found[topic, partition, offset] = (topic, partition, value)
    return found


def read_records(log: TxnLog, topic: str, window: CommitWindow) -> Iterator[tuple[int, int, int]]:
    """Yield the COLUMNS of each record of a window, in its order."""
    for part in window.partitions:
        schema = log.state.topic(topic).schema
        for batch in read_rows(
            log.store, topic, schema, part.partition, part.rows, window.files.__getitem__, COLUMNS
        ):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def cut_histories(
    *, examples: int, steps_max: int = 50
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test on ``examples`` random histories, on a third of them in the short round: it gets a Random,
    the number of steps (5 to ``steps_max``, inclusive), and both arguments of :func:`small_pieces`."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        drawn = given(
            st.randoms(use_true_random=False),
            st.integers(5, steps_max),
            st.sampled_from([2, 1_000]),
            st.sampled_from([1, 3, 100_000]),
        )(test)
        return settings(
            max_examples=rounds(max(examples // 3, 5), examples),
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )(drawn)

    return decorate


@contextmanager
def small_pieces(listed_rows: int, batches_max: int) -> Iterator[None]:
    """Let seals take few batches, and lists begin and divide early; nothing is written but by the steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("txnformat.protocol.sealing.LISTED_ROWS", listed_rows)
        patch.setattr("txnformat.protocol.segment_lists.LEAF_BYTES", 1_500)
        patch.setattr("txnformat.protocol.sealing.BATCHES_MAX", batches_max)
        # Entries that a thread makes when it comes to it would make what is drawn another in each run.
        patch.setattr("txnformat.protocol.snapshots.TAIL_ENTRIES_MIN", 1_000_000)
        yield
