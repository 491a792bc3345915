"""`make kafka-kills`: imports and exports are killed 100 times, and the broker with them; every record must
be there once.

Each history prints nothing but its problems. A worker dies before or after a request that writes to the log
or to Kafka, or when a timer of the system goes off, wherever it is then.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.kafka.broker import Broker
from tests.kafka.workers import Job, Nursery
from txnlog import Producer, TxnLog
from txnlog_testing.temporary import own_temporary_directory

__all__ = ["Story", "export_story", "import_story"]

PARTITIONS = 2
ROUND = 120
"""Records that each round adds to each partition."""
BATCH = 40
PATIENCE_MS = 200_000
"""For a broker that is started again on a machine that does much else."""
POINTS = 24
"""A run of one round reaches about so many points."""


@dataclass
class Story:
    """Rounds on one topic, each with a worker that may be killed."""

    kind: str
    topic: str
    rounds: int = 0
    kills: int = 0
    broker_kills: int = 0
    records: int = 0
    lost: int = 0
    doubled: int = 0
    problems: list[str] = field(default_factory=list)

    def compare(self, expected: list[tuple[int, bytes | None]], got: list[tuple[int, bytes | None]]) -> None:
        """Hold what has arrived against what was sent, by partition and in its order."""
        wanted, have = Counter(expected), Counter(got)
        self.records = len(expected)
        self.lost = sum((wanted - have).values())
        self.doubled = sum((have - wanted).values())
        if self.lost or self.doubled:
            self.problems.append(f"{self.lost} lost, {self.doubled} doubled of {len(expected)}")
        elif expected != got:
            self.problems.append("another order")


def import_story(
    broker: Broker, nursery: Nursery, folder: Path, topic: str, seed: int, kills: int, broker_kills: int = 0
) -> Story:
    """Import a topic that grows, in workers that are killed."""
    story, rng = Story("import", topic), random.Random(seed)
    broker.create_topic(topic, PARTITIONS)
    log = TxnLog.create(folder / topic)
    settings = {"batch_records": BATCH, "commit_interval_ms": 200, "patience_ms": PATIENCE_MS}
    job = Job("import", log.url, broker.bootstrap, {topic: topic}, settings=settings)
    while story.kills + story.broker_kills < kills + broker_kills:
        fill_broker(broker, topic, story.rounds, rng)
        _round(story, broker, nursery, job, rng, with_broker=_is_turn(story, kills, broker_kills))
    _finish(story, nursery, job)
    expected = [(one.partition(), one.value()) for one in broker.records(topic)]
    story.compare(expected, rows(TxnLog.open(log.url), topic))
    return story


def export_story(
    broker: Broker, nursery: Nursery, folder: Path, topic: str, seed: int, kills: int, broker_kills: int = 0
) -> Story:
    """Export a topic that grows, in workers that are killed."""
    story, rng = Story("export", topic), random.Random(seed)
    log = TxnLog.create(folder / topic)
    log.create_topic(topic, "kafka", partitions=PARTITIONS)
    settings = {"batch_records": BATCH, "create": True, "group": topic, "patience_ms": PATIENCE_MS}
    job = Job("export", log.url, broker.bootstrap, {topic: topic}, settings=settings)
    while story.kills + story.broker_kills < kills + broker_kills:
        fill_log(log, topic, story.rounds, rng)
        _round(story, broker, nursery, job, rng, with_broker=_is_turn(story, kills, broker_kills))
    _finish(story, nursery, job)
    got = [(one.partition(), one.value()) for one in broker.records(topic)]
    story.compare(rows(TxnLog.open(log.url), topic), got)
    return story


def rows(log: TxnLog, topic: str) -> list[tuple[int, bytes | None]]:
    """Return partition and value of each record, in order."""
    found = log.read(topic, columns=["_partition", "_offset", "value"]).read_all().to_pylist()
    found.sort(key=lambda row: (row["_partition"], row["_offset"]))
    return [(row["_partition"], row["value"]) for row in found]


def fill_broker(broker: Broker, topic: str, number: int, rng: random.Random) -> None:
    """Add records to a topic of Kafka, in transactions of which some are aborted."""
    producer = broker.producer(f"{topic}-filler")
    for part in range(4):
        producer.begin_transaction()
        for index in range(ROUND // 4):
            for partition in range(PARTITIONS):
                producer.produce(topic, f"{number}/{part}/{index}".encode(), b"k", partition)
        if rng.random() < 0.3:
            producer.flush(60)
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def fill_log(log: TxnLog, topic: str, number: int, rng: random.Random) -> None:
    """Add records to a topic of the log, in transactions of which some are aborted."""
    with Producer(log, "filler", buffer=rng.choice(["auto", "inline"])) as producer:
        for part in range(4):
            producer.begin()
            for partition in range(PARTITIONS):
                values = [
                    {"key": b"k", "value": f"{number}/{part}/{index}".encode()} for index in range(ROUND // 4)
                ]
                producer.send(topic, values, partition)
            producer.flush()
            producer.abort() if rng.random() < 0.3 else producer.commit()


def _is_turn(story: Story, kills: int, broker_kills: int) -> bool:
    """Return whether the broker is killed in this round: its kills are spread over those of workers."""
    if story.broker_kills >= broker_kills:
        return False
    return story.kills >= kills or story.broker_kills * kills < story.kills * broker_kills


def _round(
    story: Story,
    broker: Broker,
    nursery: Nursery,
    job: Job,
    rng: random.Random,
    *,
    with_broker: bool,
) -> None:
    """Run a worker that is killed, or beside which the broker is."""
    story.rounds += 1
    if with_broker:
        nursery.start(job)
        time.sleep(rng.uniform(0, 1.5))  # anywhere: the verdict hangs on nothing
        broker.kill()
        broker.start()
        story.broker_kills += 1
        code = nursery.end()
        if code != 0:
            story.problems.append(
                f"round {story.rounds}: beside a broker that was restarted the worker ended with {code}"
            )
        return
    dying = (
        replace(job, point=rng.randint(1, POINTS))
        if rng.random() < 0.6
        else replace(job, after_s=rng.uniform(0.05, 2.0))
    )
    code = nursery.run(dying)
    if code < 0:
        story.kills += 1
    elif code:
        story.problems.append(f"round {story.rounds}: the worker ended with {code}")


def _finish(story: Story, nursery: Nursery, job: Job) -> None:
    code = nursery.run(job)
    if code:
        story.problems.append(f"the last run ended with {code}")


def main(arguments: list[str] | None = None) -> int:
    """Run both stories; return 1 when one of them has a problem."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.kills", description=__doc__)
    parser.add_argument(
        "--kills", type=int, default=100, help="in all (default: 100); each tenth is one of the broker"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    of_broker = options.kills // 10
    share = (options.kills - of_broker) // 2
    shares = [(share, of_broker // 2), (options.kills - of_broker - share, of_broker - of_broker // 2)]
    begun = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        Broker(Path(folder) / "broker") as broker,
        Nursery() as nursery,
    ):
        logs = Path(folder) / "logs"
        stories = [
            import_story(broker, nursery, logs, "in", options.seed, *shares[0]),
            export_story(broker, nursery, logs, "out", options.seed, *shares[1]),
        ]
    for story in stories:
        for problem in story.problems:
            print(f"{story.kind}: {problem}")
        print(
            f"{story.kind}: {story.kills} kills of workers and {story.broker_kills} of the broker in "
            f"{story.rounds} rounds, "
            f"{story.records} records, {story.lost} lost, {story.doubled} doubled"
        )
    print(f"{time.perf_counter() - begun:.0f} s")
    return 1 if any(story.problems for story in stories) else 0


if __name__ == "__main__":
    with own_temporary_directory():
        sys.exit(main())
