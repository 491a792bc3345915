"""Histories of logs, made step by step through the commit protocol: what the Spark reader is held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from txnformat.core.intents import CommitResult, OpenProducer, ProducerRef, TopicAppend, Write
from txnformat.core.operations import InitProducer
from txnformat.log import TxnLog
from txnformat.types import Outcome
from writers.upload import TopicUpload, topic_append

NUMBERS = pa.schema([("n", pa.int64()), ("text", pa.string())])


def numbers(start: int, end: int) -> pa.Table:
    """Return rows n = start (inclusive) … end (exclusive)."""
    values = range(start, end)
    return pa.table({"n": values, "text": [f"row {n}" for n in values]}, schema=NUMBERS)


def upload(
    log: TxnLog, topic: str, parts: Mapping[int, list[pa.Table]], sequences: Mapping[int, int] | None = None
) -> TopicAppend:
    """Write one segment file with the batches of each partition."""
    state = log.refresh()
    found = state.topic(topic)
    files = TopicUpload(
        log.store,
        log.committer.ids,
        directory=found.directory,
        schema=found.schema,
        born=max(state.entry, 0),
    )
    for number, tables in parts.items():
        for table in tables:
            files.add(number, table)
    return topic_append(found.topic_id, found.partitions, files.finish(), sequences)


def append(log: TxnLog, topic: str, parts: Mapping[int, list[pa.Table]]) -> CommitResult:
    """Append without a producer, as a Spark write does."""
    return log.committer.commit(log.committer.intend(Write(appends=(upload(log, topic, parts),))))


@dataclass
class Transactions:
    """A transactional producer with the inline buffer, reduced to its intents."""

    log: TxnLog
    transactional_id: str
    ref: ProducerRef = field(init=False)
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.init()

    def init(self) -> None:
        """Open, which aborts what an earlier instance left open."""
        committer = self.log.committer
        result = committer.commit(committer.intend(OpenProducer(self.transactional_id)))
        (op,) = (op for op in result.operations if isinstance(op, InitProducer))
        self.ref = ProducerRef(op.producer_id, op.epoch, self.transactional_id)
        self.sequences = {}

    def send(self, topic: str, parts: Mapping[int, list[pa.Table]]) -> CommitResult:
        """Append inside the open transaction: offsets are taken now."""
        bases = {number: self.sequences.get((topic, number), 0) for number in parts}
        found = upload(self.log, topic, parts, bases)
        result = self.log.committer.commit(self.log.committer.intend(Write(self.ref, (found,))))
        for part in found.partitions:
            self.sequences[topic, part.partition] = part.base_sequence + part.records
        return result

    def end(self, outcome: Outcome) -> CommitResult:
        """Commit or abort; the next transaction has the next epoch."""
        result = self.log.committer.commit(self.log.committer.intend(Write(self.ref, end=outcome)))
        self.ref = ProducerRef(self.ref.producer_id, self.ref.epoch + 1, self.transactional_id)
        self.sequences = {}
        return result
