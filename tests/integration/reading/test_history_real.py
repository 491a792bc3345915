"""What real producers, consumers and transactions show of a real log: clean; with a guard taken away, not."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from txnformat.store.local import LocalStore
from txnformat.store.requests import KeyClass, RequestKind, key_class
from txnformat.types import IsolationLevel
from txnlog import Consumer, NotFoundError, Producer, ProducerFencedError, TxnLog, TxnLogError
from txnlog_testing.checker import (
    AnomalyClass,
    CommitOffsets,
    Event,
    HistoryWriter,
    Poll,
    ReadOffsets,
    Report,
    Send,
    StableOffset,
    TransactionTag,
    check_history,
    partition_key,
    read_history,
    records_of,
)
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

SCHEMA = pa.schema([("name", pa.string())])
TOPICS = {"in": 2, "out": 3}
KEYS = [partition_key(topic, number) for topic, count in TOPICS.items() for number in range(count)]
META = ["name", "_topic", "_partition", "_offset"]
ROUNDS = 12


class Scene:
    """A log on the disk, and what its clients say of it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.path = str(folder / "log")
        self.rng = random.Random(seed)
        log = TxnLog.create(self.path)
        for topic, count in TOPICS.items():
            log.create_topic(topic, SCHEMA, partitions=count)
        self.history = HistoryWriter.in_directory(folder / "history")
        self.failed: list[BaseException] = []

    def run(self, *clients: Callable[[Scene, random.Random], None]) -> None:
        def guarded(client: Callable[[Scene, random.Random], None], seed: int) -> None:
            try:
                client(self, random.Random(seed))
            except BaseException as error:  # noqa: BLE001  # the test tells it
                self.failed.append(error)

        threads = [
            threading.Thread(target=guarded, args=(client, self.rng.randrange(10**9))) for client in clients
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert self.failed == []

    def end(self) -> list[Event]:
        """Read all that is there, and return the history."""
        self.history.event("operator", "quiesce")
        log = TxnLog.open(self.path)
        with self.history.operation("final", "poll") as op:
            op.add(_whole(log))
        with self.history.operation("final", "observe") as op:
            op.add(*_looks(log, random.Random(0)))
        self.history.close()
        return read_history(self.folder / "history")

    def check(self) -> Report:
        return check_history(self.end())


def _whole(log: TxnLog) -> Poll:
    """Read both topics as of one entry."""
    snapshot = log.snapshot()
    rows = [row for topic in TOPICS for row in snapshot.read(topic, columns=META).read_all().to_pylist()]
    records = dict.fromkeys(KEYS, ()) | records_of(rows, "name")
    return Poll(records, isolation=IsolationLevel.SNAPSHOT, whole=True)


def _looks(log: TxnLog, rng: random.Random) -> list[StableOffset | ReadOffsets]:
    log.refresh()
    found: list[StableOffset | ReadOffsets] = [
        StableOffset(partition_key(topic, one.partition), one.last_stable_offset, one.log_end)
        for topic in TOPICS
        for one in log.offsets(topic)
    ]
    try:
        positions = {one.partition: one.current_offset for one in log.groups.describe("copier").positions}
    except NotFoundError:
        positions = {}
    return [*found, ReadOffsets("copier", {f"in/{number}": positions.get(number) for number in range(2)})]


def _sends(rng: random.Random, prefix: str, topics: list[str]) -> list[tuple[str, int, str]]:
    return [
        (topic, rng.randrange(TOPICS[topic]), f"{prefix}-{number}")
        for number in range(rng.randint(1, 4))
        for topic in [rng.choice(topics)]
    ]


def _as_sends(sends: list[tuple[str, int, str]]) -> list[Send]:
    """Return them with their sequences: those of an epoch begin at 0 in each partition."""
    counts: dict[str, int] = {}
    found = []
    for topic, partition, name in sends:
        key = partition_key(topic, partition)
        counts[key] = counts.get(key, -1) + 1
        found.append(Send(key, name, sequence=counts[key]))
    return found


def plain(scene: Scene, rng: random.Random) -> None:
    with Producer(TxnLog.open(scene.path)) as producer:
        for number in range(ROUNDS):
            name = f"plain-{number}"
            with scene.history.operation("plain", "send", [Send("in/0", name)]) as op:
                producer.send("in", [{"name": name}], partition=0)
                offset = producer.flush().offsets.get(("in", 0))
                op.add(Send("in/0", name, offset=offset))


def transactions(name: str, buffer: str) -> Callable[[Scene, random.Random], None]:
    """Return a client with a transactional id that aborts some, and flushes some before their end."""

    def client(scene: Scene, rng: random.Random) -> None:
        log = TxnLog.open(scene.path)
        with scene.history.operation(name, "init", transaction=TransactionTag(name)) as op:
            producer = Producer(log, name, buffer=buffer)
            producer.init()
            op.transaction = TransactionTag(name, epoch=producer.epoch)
        for number in range(ROUNDS):
            tag = TransactionTag(name, epoch=producer.epoch)
            sends = _sends(rng, f"{name}-{number}", list(TOPICS))
            said = _as_sends(sends)
            flushes = buffer == "inline"
            with scene.history.operation(name, "txn", said, transaction=tag, interleaved=flushes) as op:
                producer.begin()
                for topic, partition, value in sends:
                    producer.send(topic, [{"name": value}], partition=partition)
                    if flushes:
                        producer.flush()
                if rng.random() < 0.3:
                    producer.abort()
                    op.fail("aborted")
                else:
                    producer.commit()
        producer.close()

    return client


def zombies(scene: Scene, rng: random.Random) -> None:
    """Fence oneself again and again: the older instance goes on, and is told so."""
    log = TxnLog.open(scene.path)
    older: Producer | None = None
    for number in range(ROUNDS):
        process = f"zombie-{number}"
        with scene.history.operation(process, "init", transaction=TransactionTag("zombie")) as op:
            producer = Producer(log, "zombie")
            producer.init()
            op.transaction = TransactionTag("zombie", epoch=producer.epoch)
        for one, who in ((older, f"zombie-{number - 1}"), (producer, process)):
            if one is None:
                continue
            value = f"{who}-{number}"
            tag = TransactionTag("zombie", epoch=one.epoch)
            try:
                with scene.history.operation(
                    who, "txn", [Send("out/0", value)], transaction=tag, fails=(ProducerFencedError,)
                ):
                    one.begin()
                    one.send("out", [{"name": value}], partition=0)
                    one.commit()
            except ProducerFencedError:
                assert one is older
        older = producer


def unsure(scene: Scene, rng: random.Random) -> None:
    """Write through a store that loses answers and fails: what nobody knows is info."""

    def schedule(operation: RequestKind, key: str, nth: int) -> Fault | None:
        if (operation, key_class(key)) == (RequestKind.CREATE, KeyClass.ENTRY) and rng.random() < 0.5:
            return Fault(rng.choice([FaultKind.APPLIED_LOST_ANSWER, FaultKind.FAIL_BEFORE]))
        return None

    log = TxnLog.open(FaultyStore(LocalStore(scene.path), schedule))
    for number in range(ROUNDS // 2):
        process = f"unsure-{number}"
        value = [{"name": f"{process}-{place}"} for place in range(3)]
        sends = [Send("out", row["name"]) for row in value]
        with (
            suppress(TxnLogError),
            Producer(log, "unsure") as producer,
            scene.history.operation(process, "txn", sends),
        ):
            producer.begin()
            producer.send("out", value)
            producer.commit()


def copier(scene: Scene, rng: random.Random) -> None:
    """Consume, transform, produce; now and then give up and go back."""
    log = TxnLog.open(scene.path)
    keys = {"in/0", "in/1"}
    with Producer(log, "copier") as producer, Consumer(log, "copier", max_poll_records=5) as consumer:
        consumer.subscribe(["in"])
        scene.history.event("copier", "subscribe", keys=tuple(sorted(keys)))
        for _ in range(ROUNDS):
            before = consumer.positions()
            rows = consumer.poll_dicts(timeout_ms=50)
            after = consumer.positions()
            poll = _poll(rows, before, after, consumer)
            sends = [(rng.randrange(3), f"copy-of-{row['name']}") for row in rows]
            said = [Send(f"out/{partition}", name) for partition, name in sends]
            moved = CommitOffsets("copier", {partition_key(*key): offset for key, offset in after.items()})
            tag = TransactionTag("copier", epoch=producer.epoch)
            gives_up = not rows or rng.random() < 0.3
            with scene.history.operation("copier", "txn", [*said, moved], transaction=tag) as op:
                op.add(poll)
                producer.begin()
                for partition, name in sends:
                    producer.send("out", [{"name": name}], partition=partition)
                if gives_up:
                    producer.abort()
                    op.fail("gave up")
                else:
                    producer.send_offsets(consumer)
                    producer.commit()
            if gives_up:
                consumer.seek_to_committed()
                scene.history.event("copier", "seek")


def _poll(
    rows: list[dict[str, object]],
    before: dict[tuple[str, int], int],
    after: dict[tuple[str, int], int],
    consumer: Consumer,
    *,
    says: IsolationLevel | None = None,
) -> Poll:
    ranges = {partition_key(*key): (before[key], end) for key, end in after.items() if key in before}
    isolation = says or consumer.settings.isolation
    return Poll(records_of(rows, "name"), isolation=IsolationLevel(isolation), ranges=ranges)


def reader(
    name: str, isolation: str, says: IsolationLevel | None = None
) -> Callable[[Scene, random.Random], None]:
    """Return a reader that follows all partitions, and is set anew now and then."""

    def client(scene: Scene, rng: random.Random) -> None:
        log = TxnLog.open(scene.path)
        with Consumer(log, isolation=isolation, max_poll_records=7) as consumer:
            consumer.assign([(topic, number) for topic, count in TOPICS.items() for number in range(count)])
            scene.history.event(name, "assign", keys=tuple(KEYS))
            for _ in range(ROUNDS * 3):
                if rng.random() < 0.1:
                    consumer.seek_to_beginning()
                    scene.history.event(name, "seek")
                with scene.history.operation(name, "poll") as op:
                    before = consumer.positions()
                    rows = consumer.poll_dicts(timeout_ms=20)
                    op.add(_poll(rows, before, consumer.positions(), consumer, says=says))

    return client


def onlooker(scene: Scene, rng: random.Random) -> None:
    log = TxnLog.open(scene.path)
    for _ in range(ROUNDS):
        with scene.history.operation("onlooker", "observe") as op:
            op.add(*_looks(log, rng))
        with scene.history.operation("onlooker", "poll") as op:
            op.add(_whole(log))


WRITERS = (
    plain,
    transactions("auto", "auto"),
    transactions("inline", "inline"),
    transactions("late", "deferred"),
)
READERS = (reader("committed", "read_committed"), reader("uncommitted", "read_uncommitted"), onlooker)


@pytest.mark.parametrize("seed", range(2))
def test_what_real_clients_see_is_clean(seed: int, tmp_path: Path) -> None:
    scene = Scene(tmp_path, seed)
    scene.run(*WRITERS, zombies, unsure, copier, *READERS)
    scene.run(reader("afterwards", "read_committed"))
    report = scene.check()
    assert report.ok, str(report)
    assert report.unjudged == {}
    assert report.records_read > 150
    assert report.values > 100


# --- with a guard taken away --------------------------------------------------------------------------------


def test_uncommitted_reads_that_are_called_committed_are_found(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 1)
    scene.run(transactions("inline", "inline"), transactions("other", "inline"))
    scene.run(reader("liar", "read_uncommitted", IsolationLevel.READ_COMMITTED))
    assert scene.check().counts[AnomalyClass.G1A] > 0


def test_sends_that_are_called_a_transaction_are_found(tmp_path: Path) -> None:
    """An idempotent producer that dies between two flushes."""
    scene = Scene(tmp_path, 1)
    with Producer(TxnLog.open(scene.path)) as producer:
        scene.history.operation("w", "txn", [Send("in/0", "a"), Send("out/0", "b")])
        producer.send("in", [{"name": "a"}], partition=0)
        producer.flush()
    assert scene.check().counts == {AnomalyClass.TORN: 1}


def test_positions_outside_of_the_transaction_are_found(tmp_path: Path) -> None:
    """Outputs are committed, and the process dies before its positions are."""
    scene = Scene(tmp_path, 1)
    log = TxnLog.open(scene.path)
    with Producer(log) as producer:
        scene.history.operation("w", "send", [Send("in/0", "a")])
        producer.send("in", [{"name": "a"}], partition=0)
    with Producer(log, "p") as producer, Consumer(log, "copier") as consumer:
        consumer.subscribe(["in"])
        assert [row["name"] for row in consumer.poll_dicts()] == ["a"]
        scene.history.operation(
            "copier", "txn", [Send("out/0", "copy"), CommitOffsets("copier", {"in/0": 1})]
        )
        with producer.transaction() as txn:
            txn.send("out", [{"name": "copy"}], partition=0)
    with scene.history.operation("final", "poll") as op:
        op.add(_whole(log))
    assert scene.check().counts == {AnomalyClass.OFFSET_ATOMICITY: 1}
