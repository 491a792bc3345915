"""A log as plain lists and dicts: the rules once more, written for obviousness alone.

Nothing here is shared with the fold or with ``decide``; all that a reader could ask is found by looking at
every record. The model forgets nothing, so it agrees with the log as long as no window has moved on, except
where a rule itself speaks of the last five appends or of the last end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from txnformat.core.intents import (
    AllocateIds,
    ChangeTopic,
    EndTransaction,
    Intent,
    OpenProducer,
    PendingPartition,
    ProducerRef,
    TakeCheckpoint,
    TopicAppend,
    Write,
)
from txnformat.core.operations import Cause, CreateTopic
from txnformat.types import TopicPartition

__all__ = ["Expected", "NaiveModel", "Record"]


@dataclass
class Record:
    """The content of one offset."""

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
    """The expected outcome of an intent."""

    verdict: str
    """``included``, ``done``, or the name of the error's class."""
    entry: int | None = None
    """Entry of a ``done``."""
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    """First offsets of what the intent gave or had given offsets to."""


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
    timeouts: tuple[int, int]
    """Timeouts of transactions with offsets, and of those without."""
    last_end: tuple[int, str, str, int] | None = None
    """(epoch, outcome, cause, entry)."""
    staged: list[tuple[TopicPartition, int]] = field(default_factory=list)
    """Records that wait for their offsets: (partition, how many), in the order in which they came."""
    timed: tuple[int, int] = (-1, -1)
    """(entry, log time) that the open transaction's timeout counts from: its first append, or its last stage.
    """
    prepared: int | None = None
    """Entry that prepared the open transaction."""


Placed = list[tuple[TopicPartition, PendingPartition, "_Sent | None"]]
"""The batches of an append, with what the log already has of each."""


class NaiveModel:
    """All that was committed."""

    def __init__(self) -> None:
        self.log: dict[TopicPartition, list[Record]] = {}
        self.topics: dict[str, CreateTopic] = {}
        """Topics by name, in the order of their creation."""
        self.counts: dict[str, int] = {}
        """Partitions by topic id."""
        self.columns: dict[str, list[dict[str, str]]] = {}
        """Columns that were added to a topic, as names to types: one mapping for each version of its schema
        after the first."""
        self.ids: dict[str, _Id] = {}
        self.sent: dict[tuple[int, int, TopicPartition], list[_Sent]] = {}
        self.next_producer_id = 0
        self.apps: dict[tuple[str, str], tuple[int, int]] = {}
        """(version, entry)."""
        self.checkpoint = -1
        self.intents: dict[str, Expected] = {}
        """The intents that were included, with their entry."""
        self.time_ms = 0
        """Log time of the entry that is being made."""

    # Questions of a reader.

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
        """Return (producer id, epoch, first offset, marker's offset, last stable offset after it) per
        abort.
        """
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

    def undecided(self) -> dict[str, str]:
        """Return whose transaction waits for its outcome, and how: ``appended``, ``staged`` or
        ``prepared``.
        """
        found = {}
        for name, known in self.ids.items():
            if known.prepared is not None:
                found[name] = "prepared"
            elif known.staged:
                found[name] = "staged"
            elif self._has_open((known.producer_id, known.epoch)):
                found[name] = "appended"
        return found

    def expiry(self, name: str) -> tuple[int, int] | None:
        """Return how long a transaction may stay open, and until when by log time; None when no time
        ends it.
        """
        how = self.undecided().get(name)
        if how not in ("appended", "staged"):
            return None
        known = self.ids[name]
        allowed = known.timeouts[how == "staged"]
        return allowed, known.timed[1] + allowed

    # Actions of a writer.

    def commit(self, intent: Intent, entry: int, time_ms: int = 0) -> Expected:
        """Return what must become of ``intent`` in entry ``entry`` of that log time, and do it if it is
        included.
        """
        self.time_ms = time_ms
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
            case OpenProducer():
                self._open_producer(action, entry)
            case EndTransaction():
                return self._end_for_another(action, entry)
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

    def _open_producer(self, action: OpenProducer, entry: int) -> None:
        timeouts = (action.timeout_ms, action.deferred_timeout_ms)
        if not (1 <= timeouts[0] <= 900_000 and 1 <= timeouts[1] <= 7 * 86_400_000):
            raise _No("InvalidInputError")
        known = self.ids.get(action.transactional_id)
        if known is None:
            self.ids[action.transactional_id] = _Id(self.next_producer_id, 0, timeouts)
            self.next_producer_id += 1
            return
        if known.prepared is not None:
            raise _No("InvalidTransactionStateError")
        if action.transactional_id in self.undecided():
            self._end(known, "abort", "init", entry)
        else:
            known.epoch += 1
        known.timeouts = timeouts

    def _end_for_another(self, action: EndTransaction, entry: int) -> Expected:
        """End another client's transaction: only one that is open, prepared ones by force, others when their
        time is over.
        """
        known = self.ids.get(action.transactional_id)
        if known is None or known.producer_id != action.producer_id:
            raise _No("NotFoundError")
        if known.last_end is not None and known.last_end[0] == action.epoch:
            if known.last_end[1] == "abort":
                return Expected("done", known.last_end[3])
            raise _No("InvalidTransactionStateError")
        how = self.undecided().get(action.transactional_id)
        if how is None or known.epoch != action.epoch:
            raise _No("InvalidTransactionStateError")
        if how == "prepared" and not (action.cause is Cause.OPERATOR and action.force):
            raise _No("InvalidTransactionStateError")
        if action.cause is Cause.TIMEOUT:
            allowed = known.timeouts[how == "staged"]
            by_store = action.store_time_ms is not None and action.store_time_ms - known.timed[1] >= allowed
            by_watching = action.store_time_ms is None and action.observed_entry == known.timed[0]
            if not by_store and not by_watching:
                raise _No("InvalidTransactionStateError")
        self._end(known, "abort", action.cause.value, entry)
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
        known_in = self._done_before(write)
        if known_in is not None:
            return Expected("done", known_in)
        producer = write.producer
        created, instead = self._topics(write.create)
        placed = [
            one
            for append in write.appends
            for one in self._place(producer, append, instead.get(append.topic_id, append.topic_id), created)
        ]
        fresh = [(key, part) for key, part, known in placed if known is None]
        if write.end is None and not write.prepare and placed and not fresh:
            known_in = max(known.entry for _, _, known in placed if known is not None)
            offsets = {key: known.offset for key, _, known in placed if known is not None}
            return Expected("done", known_in, {} if write.deferred else offsets)
        if write.end == "commit" or write.prepare:
            is_open = producer is not None and producer.transactional_id in self.undecided()
            if not fresh and not is_open:
                raise _No("InvalidTransactionStateError")
        if not (fresh or created or write.end or write.app or write.prepare):
            raise _No("InvalidInputError")
        self.topics.update(created)
        if write.app is not None:
            self.apps[write.app.namespace, write.app.app_id] = (write.app.version, entry)
        return Expected("included", None, self._do(write, fresh, entry))

    def _done_before(self, write: Write) -> int | None:
        """Return the entry that holds a write under its natural key, None when none does, else refuse."""
        if write.app is not None:
            version, held_by = self.apps.get((write.app.namespace, write.app.app_id), (-1, -1))
            if write.app.version == version:
                return held_by
            if write.app.version < version:
                raise _No("StaleAppVersionError")
        if write.producer is None or write.producer.transactional_id is None:
            return None
        repeated = self._identity(write.producer, write)
        if repeated is None:
            self._check_buffer(self.ids[write.producer.transactional_id], write)
        return repeated

    def _do(
        self, write: Write, fresh: list[tuple[TopicPartition, PendingPartition]], entry: int
    ) -> dict[TopicPartition, int]:
        """Append or stage what is new, end or prepare the transaction; return first offsets."""
        producer = write.producer
        who = (producer.producer_id, producer.epoch) if producer else (-1, -1)
        owner = self.ids.get(producer.transactional_id or "") if producer else None
        if owner is not None and fresh and (write.deferred or not self._has_open(who)):
            owner.timed = (entry, self.time_ms)
        offsets: dict[TopicPartition, int] = {}
        for key, part in fresh:
            if write.deferred and owner is not None:
                owner.staged.append((key, part.records))
                self._remember(who, key, part, -1, entry)
            else:
                offsets[key] = self._append(key, part, who, owner is not None, entry)
        if owner is not None and write.end is not None:
            offsets |= self._end(owner, write.end.value, "producer", entry)
        elif owner is not None and write.prepare:
            owner.prepared = entry
        return offsets

    def _check_buffer(self, known: _Id, write: Write) -> None:
        """Refuse what a producer never does: a transaction appends or stages, never both."""
        has_other = self._has_open((known.producer_id, known.epoch)) if write.deferred else bool(known.staged)
        if write.appends and has_other:
            raise _No("InternalError")

    def _identity(self, producer: ProducerRef, write: Write) -> int | None:
        """Return the entry of what was done before; None if the producer is the current one; else refuse."""
        known = self.ids.get(producer.transactional_id or "")
        if known is None or known.producer_id != producer.producer_id or producer.epoch > known.epoch:
            raise _No("InvalidTransactionStateError")
        if producer.epoch == known.epoch:
            if known.prepared is not None and write.prepare:
                return known.prepared
            if known.prepared is not None and write.appends:
                raise _No("InvalidTransactionStateError")
            return None
        if known.last_end is None or known.last_end[0] != producer.epoch:
            raise _No("ProducerFencedError")
        _, outcome, cause, entry = known.last_end
        if cause in ("init", "operator"):
            raise _No("ProducerFencedError")
        if write.end is not None and write.end.value == outcome:
            return entry
        if cause == "producer":
            raise _No("InvalidTransactionStateError")
        if write.end is None and known.epoch > producer.epoch + 1:
            raise _No("ProducerFencedError")  # it timed out, and a newer instance has opened since
        raise _No("TransactionTimedOutError")

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
        found = []
        for part in append.partitions:
            key = TopicPartition(topic_id, part.partition)
            found.append((key, part, self._known(producer, key, part) if producer else None))
        if len({known is None for _, _, known in found}) > 1:
            raise _No("OutOfOrderSequenceError")  # a repeat in part
        yield from found

    def _has(self, producer: ProducerRef, key: TopicPartition, part: PendingPartition) -> bool:
        """Return whether the log remembers exactly this append."""
        return any(
            (one.first, one.last - one.first + 1, one.digest)
            == (part.base_sequence, part.records, part.digest)
            for one in self.sent.get((producer.producer_id, producer.epoch, key), [])[-5:]
        )

    def _known(self, producer: ProducerRef, key: TopicPartition, part: PendingPartition) -> _Sent | None:
        if producer.transactional_id is None:
            owned = {known.producer_id for known in self.ids.values()}
            if producer.producer_id >= self.next_producer_id or producer.producer_id in owned:
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
        base = self._put(key, part.records, who, "open" if transactional else "plain", entry)
        self._remember(who, key, part, base, entry)
        return base

    def _put(self, key: TopicPartition, records: int, who: tuple[int, int], state: str, entry: int) -> int:
        log = self.log.setdefault(key, [])
        base = len(log)
        log += [Record(base + index, "data", *who, state, entry) for index in range(records)]
        return base

    def _remember(
        self, who: tuple[int, int], key: TopicPartition, part: PendingPartition, offset: int, entry: int
    ) -> None:
        if who[0] >= 0:
            last = part.base_sequence + part.records - 1
            one = _Sent(part.base_sequence, last, part.digest, offset, entry)
            self.sent.setdefault((*who, key), []).append(one)

    def _has_open(self, who: tuple[int, int]) -> bool:
        return any(who in self.open(key) for key in self.log)

    def _end(self, known: _Id, outcome: str, cause: str, entry: int) -> dict[TopicPartition, int]:
        """End a transaction: decide its open records, and mark it; return the first offsets of what was
        staged.
        """
        who = (known.producer_id, known.epoch)
        placed: dict[TopicPartition, int] = {}
        for key, records in known.staged if outcome == "commit" else ():
            base = self._put(key, records, who, "open", entry)
            placed.setdefault(key, base)
        for log in self.log.values():
            mine = [one for one in log if one.state == "open" and _who(one) == who]
            for one in mine:
                one.state = "committed" if outcome == "commit" else "aborted"
            if mine:
                log.append(Record(len(log), outcome, *who, "plain", entry))
        known.last_end = (known.epoch, outcome, cause, entry)
        known.epoch += 1
        known.staged, known.timed, known.prepared = [], (-1, -1), None
        return placed


def _who(record: Record) -> tuple[int, int]:
    return record.producer_id, record.epoch
