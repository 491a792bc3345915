"""What somebody outside sees of a job, and what they have to see: outputs and positions, together or not at
all."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.killing.etl import RAW_PARTITIONS, WINDOW, Job, copies, create_topics, parts, sums
from txnformat.types import TopicPartition
from txnlog import Producer, TxnLog

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Compared:
    """Records that are there, against those that have to be."""

    inputs: int
    """How many records of ``raw`` they are to be made of: those that the committed positions cover."""
    records: int
    """How many there are."""
    duplicates: tuple[Key, ...]
    losses: tuple[Key, ...]

    @property
    def is_exact(self) -> bool:
        return not self.duplicates and not self.losses


def opened(job: Job, location: str) -> TxnLog:
    """Open a log as somebody who knows nothing of it."""
    return TxnLog.open(location, storage_options=job.storage_options)


def positions(job: Job, source: TxnLog, target: TxnLog) -> dict[int, int]:
    """Return where the group goes on in each partition of ``raw``: what is committed."""
    state = target.state
    group = state.groups.get(job.group)
    topic_id = source.state.topic_ids["raw"]
    found = {}
    for number in range(RAW_PARTITIONS):
        foreign = f"{source.log_id}/{topic_id}/{number}"
        key = TopicPartition(topic_id, number) if job.source == job.target else foreign
        value = None if group is None or key not in group.committed else group.value(key)
        found[number] = 0 if value is None else int(value)
    return found


def inputs(source: TxnLog, upto: dict[int, int] | None = None) -> list[dict[str, Any]]:
    """Return the committed records of ``raw``, those before given offsets."""
    found: list[dict[str, Any]] = (
        source.read("raw", columns=["n", "_partition", "_offset"], end=upto).read_all().to_pylist()
    )
    return found


def outputs(target: TxnLog, **options: Any) -> Counter[Key]:
    """Return all records that were made, by topic and values."""
    return Counter(
        (topic, *row.values())
        for topic in ("copies", "parts")
        for row in target.read(topic, **options).read_all().to_pylist()
    )


def wanted(rows: list[dict[str, Any]]) -> Counter[Key]:
    """Return what has to be made of records."""
    return Counter([("copies", *row.values()) for row in copies(rows)]) + Counter(
        [("parts", *row.values()) for row in parts(rows)]
    )


def compared(there: Counter[Key], rows: list[dict[str, Any]]) -> Compared:
    """Compare outputs with what has to be made of records."""
    must = wanted(rows)
    return Compared(
        len(rows),
        there.total(),
        tuple(sorted((there - must).elements())),
        tuple(sorted((must - there).elements())),
    )


def look(job: Job) -> Compared:
    """Compare the outputs with what the committed positions cover, while nobody writes.

    Both what everybody reads, and what the newest entry has: the one waits for open transactions, the other
    does not.
    """
    source, target = opened(job, job.source), opened(job, job.target)
    rows = inputs(source, positions(job, source, target))
    found = compared(outputs(target), rows)
    return found if not found.is_exact else compared(outputs(target, isolation="snapshot"), rows)


def glance(job: Job) -> Compared:
    """Compare the two as one entry of the log has them, whoever writes at the time."""
    source, target = opened(job, job.source), opened(job, job.target)
    upto, entry = positions(job, source, target), target.state.entry
    return compared(outputs(target, version_as_of=entry), inputs(source, upto))


def look_at_all(job: Job) -> Compared:
    """Compare the outputs with all committed records of ``raw``."""
    return compared(outputs(opened(job, job.target)), inputs(opened(job, job.source)))


def prepare(
    folder: Path | str, *, other: Path | str | None = None, embedding: bool | None = None, **settings: Any
) -> Job:
    """Create the log of a job, or two, with their topics."""
    options = settings.get("storage_options", {})
    source = TxnLog.create(folder, storage_options=options, embedding=embedding)
    target = source if other is None else TxnLog.create(other, storage_options=options, embedding=embedding)
    create_topics(source, target)
    return Job(source=str(folder), target=str(other or folder), **settings)


def feed(job: Job, *numbers: int, **options: Any) -> None:
    """Write records to ``raw``, to its partitions in turn."""
    with Producer(opened(job, job.source), **options) as producer:
        for partition in range(RAW_PARTITIONS):
            mine = numbers[partition::RAW_PARTITIONS]
            if mine:
                producer.send("raw", [{"n": number} for number in mine], partition=partition)


def window_sums(job: Job) -> tuple[list[Key], list[Key]]:
    """Return the sums of windows that are there, and those that have to be there of all records; both
    sorted.
    """
    source, target = opened(job, job.source), opened(job, job.target)
    there = [tuple(row.values()) for row in target.read("sums").read_all().to_pylist()]
    must = []
    for number in range(RAW_PARTITIONS):
        rows = [row for row in inputs(source) if row["_partition"] == number]
        for start in range(0, len(rows) - len(rows) % WINDOW, WINDOW):
            must += [tuple(row.values()) for row in sums(rows[start : start + WINDOW])]
    return sorted(there), sorted(must)
