"""`make kafka-diff`: random transactional histories on a log and on a Kafka broker: the same offsets,
visibility, last stable offsets and abort indexes.

A history is drawn first, as a list of steps; then each step is done on both sides, and after each one the log
ends and last stable offsets of all partitions are compared. Kafka writes markers after it has answered: its
ends are asked for until they are those of the log.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import OffsetSpec

from tests.kafka.broker import Broker
from txnformat.core.transactions.abort_index import ENTRY_BYTES
from txnformat.types import TopicPartition
from txnlog import Producer, ProducerFencedError, TxnLog
from txnlog_testing.temporary import own_temporary_directory

__all__ = ["Step", "compare", "history"]

PARTITIONS = 3
IDS = ("a", "b", "c")
PLAIN = "plain"
"""The producer without transactions."""
SETTLE_S = 60
"""Longest wait for Kafka's markers."""


class Step(NamedTuple):
    """One step of a history."""

    what: str
    """``begin``, ``send``, ``commit``, ``abort``, ``init`` (a new instance), ``zombie`` (the instance before
    sends, and is refused)."""
    who: str
    partition: int = 0
    records: int = 0


def history(seed: int, steps: int) -> list[Step]:
    """Return a history: legal steps only, besides those of zombies."""
    rng = random.Random(seed)
    is_open = dict.fromkeys(IDS, False)
    has_older: set[str] = set()
    found: list[Step] = []
    while len(found) < steps:
        who = rng.choice((*IDS, PLAIN))
        if who == PLAIN:
            found.append(Step("send", who, rng.randrange(PARTITIONS), rng.randint(1, 3)))
            continue
        draw = rng.random()
        if draw < 0.06:
            found.append(Step("init", who))
            is_open[who] = False
            has_older.add(who)
        elif draw < 0.1 and who in has_older:
            found.append(Step("zombie", who))
            has_older.discard(who)
        elif not is_open[who]:
            found.append(Step("begin", who))
            is_open[who] = True
        elif draw < 0.7:
            found.append(Step("send", who, rng.randrange(PARTITIONS), rng.randint(1, 3)))
        else:
            found.append(Step("commit" if draw < 0.85 else "abort", who))
            is_open[who] = False
    return found


class Aborted(NamedTuple):
    """An entry of an abort index; the producer by its transactional id, for the numbers differ."""

    who: str
    first: int
    marker: int
    last_stable: int


@dataclass
class Seen:
    """The visible facts of a partition."""

    uncommitted: list[tuple[int, bytes]]
    committed: list[tuple[int, bytes]]
    aborted: list[Aborted]


class OurSide:
    """The log: producers with ``buffer="inline"``, which gives offsets with each flush as Kafka does."""

    def __init__(self, root: Path, topic: str) -> None:
        self.log = TxnLog.create(root)
        self.topic = topic
        self.log.create_topic(topic, "kafka", partitions=PARTITIONS)
        self._now: dict[str, Producer] = {}
        self._before: dict[str, Producer] = {}
        for who in IDS:
            self.init(who)
        self._plain = Producer(self.log, linger_ms=60_000)
        self._plain.init()

    def init(self, who: str) -> None:
        if who in self._now:
            self._before[who] = self._now[who]
        self._now[who] = Producer(self.log, who, buffer="inline")
        self._now[who].init()

    def begin(self, who: str) -> None:
        self._now[who].begin()

    def send(self, who: str, partition: int, values: Sequence[bytes]) -> None:
        producer = self._plain if who == PLAIN else self._now[who]
        producer.send(self.topic, [{"key": b"k", "value": value} for value in values], partition)
        producer.flush()

    def commit(self, who: str) -> None:
        self._now[who].commit()

    def abort(self, who: str) -> None:
        self._now[who].abort()

    def zombie(self, who: str) -> bool:
        """Return whether the instance before is refused."""
        producer = self._before.pop(who)
        try:
            if producer.status.value != "in-transaction":
                producer.begin()
            producer.send(self.topic, [{"key": b"k", "value": b"zombie"}], 0)
            producer.flush()
        except ProducerFencedError:
            return True
        return False

    def ends(self) -> list[tuple[int, int]]:
        return [(one.log_end, one.last_stable_offset) for one in self.log.offsets(self.topic)]

    def seen(self, partition: int) -> Seen:
        state = self.log.refresh()
        topic = state.topic(self.topic)
        names = {self._now[who].producer_id: who for who in IDS}
        rows: Any = state.partition(TopicPartition(topic.topic_id, partition)).aborted.array()
        aborted = [
            Aborted(
                names[int(row["producer_id"])],
                *(int(row[name]) for name in ("first_offset", "last_offset", "last_stable_offset")),
            )
            for row in rows
        ]
        return Seen(
            self._rows(partition, "read_uncommitted"), self._rows(partition, "read_committed"), aborted
        )

    def _rows(self, partition: int, isolation: str) -> list[tuple[int, bytes]]:
        table = self.log.read(
            self.topic, columns=["_offset", "value"], partitions=[partition], isolation=isolation
        ).read_all()
        return [(row["_offset"], row["value"]) for row in table.to_pylist()]

    def close(self) -> None:
        for producer in (*self._now.values(), self._plain):
            producer.close()


class KafkaSide:
    """The broker."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.broker, self.topic = broker, topic
        broker.create_topic(topic, PARTITIONS)
        self._admin = broker.admin()
        self._now: dict[str, KafkaProducer] = {}
        self._before: dict[str, KafkaProducer] = {}
        for who in IDS:
            self.init(who)
        self._plain = broker.producer(None, **{"enable.idempotence": True})

    def init(self, who: str) -> None:
        if who in self._now:
            self._before[who] = self._now[who]
        self._now[who] = self.broker.producer(f"{self.topic}-{who}")

    def begin(self, who: str) -> None:
        self._now[who].begin_transaction()

    def send(self, who: str, partition: int, values: Sequence[bytes]) -> None:
        producer = self._plain if who == PLAIN else self._now[who]
        for value in values:
            producer.produce(self.topic, value, b"k", partition)
        assert producer.flush(60) == 0

    def commit(self, who: str) -> None:
        self._now[who].commit_transaction(60)

    def abort(self, who: str) -> None:
        self._now[who].abort_transaction(60)

    def zombie(self, who: str) -> bool:
        """Return whether the instance before is refused."""
        producer = self._before.pop(who)
        try:
            try:
                producer.begin_transaction()
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE:  # it has one open
                    raise
            producer.produce(self.topic, b"zombie", b"k", 0)
            producer.commit_transaction(60)
        except KafkaException:
            return True
        return False

    def ends(self) -> list[tuple[int, int]]:
        places = [KafkaPartition(self.topic, number) for number in range(PARTITIONS)]
        found = []
        for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
            futures = self._admin.list_offsets(
                dict.fromkeys(places, OffsetSpec.latest()), isolation_level=level, request_timeout=60
            )
            by_number = {at.partition: one.result(60).offset for at, one in futures.items()}
            found.append([by_number[number] for number in range(PARTITIONS)])
        return list(zip(*found, strict=True))

    def seen(self) -> list[Seen]:
        uncommitted, committed = (
            self.broker.records(self.topic, isolation=level)
            for level in ("read_uncommitted", "read_committed")
        )
        return [
            Seen(
                [(one.offset(), one.value()) for one in uncommitted if one.partition() == number],
                [(one.offset(), one.value()) for one in committed if one.partition() == number],
                self._abort_index(number, uncommitted),
            )
            for number in range(PARTITIONS)
        ]

    def _abort_index(self, partition: int, records: Sequence[Any]) -> list[Aborted]:
        """Return the abort index as the broker's file has it; the value of its first record says whose a
        transaction is."""
        values = {one.offset(): one.value() for one in records if one.partition() == partition}
        path = self.broker.data / f"{self.topic}-{partition}" / "00000000000000000000.txnindex"
        data = path.read_bytes() if path.exists() else b""  # the broker makes it with the first abort
        found = []
        for at in range(0, len(data), ENTRY_BYTES):
            version, _, first, marker, last_stable = struct.unpack_from(">hqqqq", data, at)
            assert version == 0
            found.append(Aborted(values[first].split(b"/")[0].decode(), first, marker, last_stable))
        return found


def compare(broker: Broker, folder: Path, topic: str, steps: Sequence[Step]) -> list[str]:
    """Do a history on both sides; return the first difference, or nothing."""
    ours, theirs = OurSide(folder / topic, topic), KafkaSide(broker, topic)
    try:
        for number, step in enumerate(steps):
            problem = _do(ours, theirs, step, number) or _ends_differ(ours, theirs)
            if problem:
                return [f"step {number}, {step}: {problem}"]
        here = [ours.seen(partition) for partition in range(PARTITIONS)]
        problems = []
        for partition, (one, other) in enumerate(zip(here, theirs.seen(), strict=True)):
            for name in ("uncommitted", "committed", "aborted"):
                got, expected = getattr(one, name), getattr(other, name)
                if got != expected:
                    problems.append(f"partition {partition}, {name}: Kafka {expected}, the log {got}")
        return problems
    finally:
        ours.close()


def _do(ours: OurSide, theirs: KafkaSide, step: Step, number: int) -> str | None:
    """Do a step on both sides; return a problem, if there is one."""
    values = [f"{step.who}/{number}/{index}".encode() for index in range(step.records)]
    for side in (ours, theirs):
        if step.what == "send":
            side.send(step.who, step.partition, values)
        elif getattr(side, step.what)(step.who) is False:
            return f"{type(side).__name__} took what the older instance sent"
    return None


def _ends_differ(ours: OurSide, theirs: KafkaSide) -> str | None:
    expected = ours.ends()
    deadline = time.monotonic() + SETTLE_S
    while (got := theirs.ends()) != expected:
        if time.monotonic() > deadline or any(
            end > wanted for (end, _), (wanted, _) in zip(got, expected, strict=True)
        ):
            return f"log ends and last stable offsets: Kafka {got}, the log {expected}"
        time.sleep(0.005)
    return None


def main(arguments: list[str] | None = None) -> int:
    """Compare histories; return 1 when one differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.diff", description=__doc__)
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--steps", type=int, default=60, help="of each history (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="of the first history; the next have the next")
    options = parser.parse_args(arguments)
    begun, differing, aborts = time.perf_counter(), 0, 0
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "broker") as broker:
        for seed in range(options.seed, options.seed + options.histories):
            steps = history(seed, options.steps)
            aborts += sum(step.what in ("abort", "init") for step in steps)
            problems = compare(broker, Path(folder) / "logs", f"history-{seed}", steps)
            differing += bool(problems)
            for problem in problems:
                print(f"seed {seed}: {problem}")
                print(f"again: make kafka-diff SEED={seed} HISTORIES=1 ARGS='--steps {options.steps}'")
    print(
        f"{options.histories} histories of {options.steps} steps, {aborts} aborts and new instances: "
        f"{differing} differ; {time.perf_counter() - begun:.0f} s"
    )
    return 1 if differing else 0


if __name__ == "__main__":
    with own_temporary_directory():
        sys.exit(main())
