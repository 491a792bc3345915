"""A log as plain lists and dicts: the rules once more, written for obviousness alone.

Nothing here is shared with the fold or with ``decide``; all that a reader could ask is found by looking at every
record. The model forgets nothing, so it agrees with the log as long as no window has moved on, except where a rule
itself speaks of the last five appends or of the last end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from txnformat.intents import (
    AllocateIds,
    ChangeTopic,
    Intent,
    OpenProducer,
    PendingPartition,
    ProducerRef,
    TakeCheckpoint,
    TopicAppend,
    Write,
)
from txnformat.operations import CreateTopic
from txnformat.types import TopicPartition

__all__ = ["Expected", "NaiveModel", "Record"]


@dataclass
class Record:
    """What is at one offset."""

    offset: int
    kind: str
    """``data``, or the marker: ``commit`` or ``abort``."""
    producer_id: int
    epoch: int
    state: str
    """``plain`` (outside of transactions, or a marker), ``open``, ``committed`` or ``aborted``."""
    entry: int


@dataclass(frozen=True)
class Expected:
    """What becomes of an intent."""

    verdict: str
    """``included``, ``done``, or the name of the error's class."""
    entry: int | None = None
    """Of a ``done``."""
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    """First offsets of what the intent appended or had appended."""


class _No(Exception):
    """The intent is refused with this error."""


@dataclass
class _Sent:
    """An append of one producer to one partition."""

    first: int
    last: int
    digest: str
    offset: int
    entry: int


@dataclass
class _Id:
    producer_id: int
    epoch: int
    last_end: tuple[int, str, str, int] | None = None
    """(epoch, outcome, cause, entry)."""


Placed = list[tuple[TopicPartition, PendingPartition, "_Sent | None"]]
"""What an append asks for, with what the log already has of it."""


class NaiveModel:
    """All that was committed."""

    def __init__(self) -> None:
        self.log: dict[TopicPartition, list[Record]] = {}
        self.topics: dict[str, CreateTopic] = {}
        """By name, as they were made."""
        self.counts: dict[str, int] = {}
        """Partitions by topic id."""
        self.columns: dict[str, list[dict[str, str]]] = {}
        """What was added to a topic, as names to types: one for each version of its schema after the first."""
        self.ids: dict[str, _Id] = {}
        self.sent: dict[tuple[int, int, TopicPartition], list[_Sent]] = {}
        self.next_producer_id = 0
        self.apps: dict[tuple[str, str], tuple[int, int]] = {}
        """(version, entry)."""
        self.checkpoint = -1
        self.intents: dict[str, Expected] = {}
        """What was included, with its entry."""

    # What a reader can ask.

    def log_end(self, key: TopicPartition) -> int:
        """Return the offset of the next record."""
        return len(self.log.get(key, []))

    def last_stable_offset(self, key: TopicPartition) -> int:
        """Return the offset of the first undecided record, else the log end."""
        return next((one.offset for one in self.log.get(key, []) if one.state == "open"), self.log_end(key))

    def visible(self, key: TopicPartition) -> list[int]:
        """Return the offsets that read_committed returns."""
        stable = self.last_stable_offset(key)
        return [
            one.offset
            for one in self.log.get(key, [])
            if one.offset < stable and one.kind == "data" and one.state in ("plain", "committed")
        ]

    def abort_index(self, key: TopicPartition) -> list[tuple[int, int, int, int, int]]:
        """Return (producer id, epoch, first offset, marker's offset, last stable offset after it) per abort."""
        log = self.log.get(key, [])
        found = []
        for marker in log:
            if marker.kind == "abort":
                mine = [one for one in log if one.kind == "data" and _who(one) == _who(marker)]
                decided = {_who(one) for one in log if one.kind != "data" and one.offset <= marker.offset}
                undecided = [
                    one.offset
                    for one in log[: marker.offset]
                    if one.kind == "data" and one.state != "plain" and _who(one) not in decided
                ]
                stable = min(undecided, default=marker.offset + 1)
                found.append((*_who(marker), mine[0].offset, marker.offset, stable))
        return found

    def open(self, key: TopicPartition) -> dict[tuple[int, int], int]:
        """Return the first offset of each undecided transaction."""
        found: dict[tuple[int, int], int] = {}
        for one in self.log.get(key, []):
            if one.state == "open":
                found.setdefault(_who(one), one.offset)
        return found

    # What a writer can do.

    def commit(self, intent: Intent, entry: int) -> Expected:
        """Return what must become of ``intent`` in entry ``entry``, and do it if it is included."""
        if intent.intent_id in self.intents:
            known = self.intents[intent.intent_id]
            return Expected("done", known.entry, known.offsets)
        try:
            expected = self._commit(intent.action, entry)
        except _No as no:
            return Expected(str(no))
        if expected.verdict == "included":
            self.intents[intent.intent_id] = Expected("included", entry, expected.offsets)
        return expected

    def _commit(self, action: Any, entry: int) -> Expected:
        match action:
            case Write():
                return self._write(action, entry)
            case OpenProducer(name):
                known = self.ids.get(name)
                if known is None:
                    self.ids[name] = _Id(self.next_producer_id, 0)
                    self.next_producer_id += 1
                else:
                    if self._end((known.producer_id, known.epoch), "abort", entry):
                        known.last_end = (known.epoch, "abort", "init", entry)
                    known.epoch += 1
            case AllocateIds(_, count):
                self.next_producer_id += count
            case CreateTopic():
                if action.name in self.topics:
                    raise _No("ConflictError")
                self.topics[action.name] = action
            case ChangeTopic():
                self._change(action)
            case TakeCheckpoint(checkpoint):
                if checkpoint.entry <= self.checkpoint:
                    raise _No("ConflictError")
                self.checkpoint = checkpoint.entry
            case _:
                raise NotImplementedError(action)
        return Expected("included")

    def count(self, topic: CreateTopic) -> int:
        """Return how many partitions a topic has."""
        return self.counts.get(topic.topic_id, topic.partitions)

    def _change(self, change: ChangeTopic) -> None:
        """Let a topic grow. Knows only of added columns that are integers."""
        topic = next((one for one in self.topics.values() if one.topic_id == change.topic_id), None)
        if topic is None:
            raise _No("NotFoundError")
        versions = self.columns.get(topic.topic_id, [])
        columns = dict(versions[-1]) if versions else {}
        if change.partitions is not None and not self.count(topic) < change.partitions <= 10_000:
            raise _No("InvalidInputError")
        order = ["int8", "int16", "int32", "int64"]
        for name, type_ in change.widen:
            if name not in columns or order.index(columns[name]) >= order.index(str(type_)):
                raise _No("InvalidInputError")
            columns[name] = str(type_)
        for field_ in change.add:
            if field_.name in columns or not field_.nullable:
                raise _No("InvalidInputError")
            columns[field_.name] = str(field_.type)
        if change.partitions is None and not change.widen and not change.add:
            raise _No("InvalidInputError")
        if change.partitions is not None:
            self.counts[topic.topic_id] = change.partitions
        if change.widen or change.add:
            self.columns[topic.topic_id] = [*versions, columns]

    def _write(self, write: Write, entry: int) -> Expected:
        if write.app is not None:
            version, held_by = self.apps.get((write.app.namespace, write.app.app_id), (-1, -1))
            if write.app.version == version:
                return Expected("done", held_by)
            if write.app.version < version:
                raise _No("StaleAppVersionError")
        producer = write.producer
        if producer is not None and producer.transactional_id is not None:
            repeated = self._identity(producer, write.end and write.end.value)
            if repeated is not None:
                return Expected("done", repeated)
        created, instead = self._topics(write.create)
        placed = [
            one
            for append in write.appends
            for one in self._place(producer, append, instead.get(append.topic_id, append.topic_id), created)
        ]
        offsets = {key: known.offset for key, _, known in placed if known is not None}
        fresh = [(key, part) for key, part, known in placed if known is None]
        if write.end is None and placed and not fresh:
            return Expected("done", max(known.entry for _, _, known in placed if known is not None), offsets)
        who = (producer.producer_id, producer.epoch) if producer else (-1, -1)
        if write.end == "commit" and not fresh and not any(who in self.open(key) for key in self.log):
            raise _No("InvalidTransactionStateError")
        if not (fresh or created or write.end or write.app):
            raise _No("InvalidInputError")
        self.topics.update(created)
        transactional = producer is not None and producer.transactional_id is not None
        new = {key: self._append(key, part, who, transactional, entry) for key, part in fresh}
        if write.end is not None and producer is not None and producer.transactional_id is not None:
            self._end(who, write.end.value, entry)
            known = self.ids[producer.transactional_id]
            known.last_end = (known.epoch, write.end.value, "producer", entry)
            known.epoch += 1
        if write.app is not None:
            self.apps[write.app.namespace, write.app.app_id] = (write.app.version, entry)
        return Expected("included", None, new)

    def _identity(self, producer: ProducerRef, end: str | None) -> int | None:
        """Return the entry of a repeated end; None if the producer is the current one; else refuse."""
        known = self.ids.get(producer.transactional_id or "")
        if known is None or known.producer_id != producer.producer_id or producer.epoch > known.epoch:
            raise _No("InvalidTransactionStateError")
        if producer.epoch == known.epoch:
            return None
        if known.last_end is None or known.last_end[0] != producer.epoch or known.last_end[2] == "init":
            raise _No("ProducerFencedError")
        if end == known.last_end[1]:
            return known.last_end[3]
        raise _No("InvalidTransactionStateError")

    def _topics(self, create: tuple[CreateTopic, ...]) -> tuple[dict[str, CreateTopic], dict[str, str]]:
        created: dict[str, CreateTopic] = {}
        instead: dict[str, str] = {}
        for wanted in create:
            theirs = self.topics.get(wanted.name)
            if theirs is None:
                created[wanted.name] = wanted
            elif (theirs.partitions, theirs.fields) != (wanted.partitions, wanted.fields):
                raise _No("ConflictError")
            else:
                instead[wanted.topic_id] = theirs.topic_id
        return created, instead

    def _place(
        self,
        producer: ProducerRef | None,
        append: TopicAppend,
        topic_id: str,
        created: dict[str, CreateTopic],
    ) -> Iterator[tuple[TopicPartition, PendingPartition, _Sent | None]]:
        topic = next(
            (one for one in [*self.topics.values(), *created.values()] if one.topic_id == topic_id), None
        )
        if topic is None:
            raise _No("NotFoundError")
        count = self.count(topic)
        if count != append.partition_count and not (
            producer is not None
            and all(
                self._has(producer, TopicPartition(topic_id, part.partition), part)
                for part in append.partitions
            )
        ):
            raise _No("ConflictError")
        if any(part.partition >= count for part in append.partitions):
            raise _No("NotFoundError")
        for part in append.partitions:
            key = TopicPartition(topic_id, part.partition)
            yield key, part, self._known(producer, key, part) if producer else None

    def _has(self, producer: ProducerRef, key: TopicPartition, part: PendingPartition) -> bool:
        """Return whether the log remembers exactly this append."""
        return any(
            (one.first, one.last - one.first + 1, one.digest)
            == (part.base_sequence, part.records, part.digest)
            for one in self.sent.get((producer.producer_id, producer.epoch, key), [])[-5:]
        )

    def _known(self, producer: ProducerRef, key: TopicPartition, part: PendingPartition) -> _Sent | None:
        if producer.transactional_id is None and producer.producer_id >= self.next_producer_id:
            raise _No("UnknownProducerIdError")
        sent = self.sent.get((producer.producer_id, producer.epoch, key), [])
        last = part.base_sequence + part.records - 1
        for one in sent[-5:]:
            if (one.first, one.last) == (part.base_sequence, last):
                if one.digest != part.digest:
                    raise _No("ProducerIdConflictError")
                return one
        if not sent and part.base_sequence != 0:
            raise _No("UnknownProducerIdError")
        if sent and part.base_sequence != sent[-1].last + 1:
            raise _No("OutOfOrderSequenceError")
        return None

    def _append(
        self,
        key: TopicPartition,
        part: PendingPartition,
        who: tuple[int, int],
        transactional: bool,
        entry: int,
    ) -> int:
        log = self.log.setdefault(key, [])
        base = len(log)
        if who[0] >= 0:
            last = part.base_sequence + part.records - 1
            self.sent.setdefault((*who, key), []).append(
                _Sent(part.base_sequence, last, part.digest, base, entry)
            )
        state = "open" if transactional else "plain"
        log += [Record(base + index, "data", *who, state, entry) for index in range(part.records)]
        return base

    def _end(self, who: tuple[int, int], outcome: str, entry: int) -> bool:
        """Decide all open records of a transaction, and mark it; return whether there were any."""
        marked = False
        for log in self.log.values():
            mine = [one for one in log if one.state == "open" and _who(one) == who]
            for one in mine:
                one.state = "committed" if outcome == "commit" else "aborted"
            if mine:
                log.append(Record(len(log), outcome, *who, "plain", entry))
                marked = True
        return marked


def _who(record: Record) -> tuple[int, int]:
    return record.producer_id, record.epoch
