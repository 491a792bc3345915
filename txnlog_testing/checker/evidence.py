"""Evidence of a history: its operations, the writer of each value, the places where it was seen, the commits.

The inference of Jepsen's workload for Kafka-like systems: values are unique, so a record tells its writer; a
write whose outcome is unknown was committed if a reader saw it as committed. A transaction is committed as a
whole.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from txnformat.types import IsolationLevel
from txnlog_testing.checker.vocabulary import (
    Event,
    EventType,
    Function,
    Key,
    MicroOperation,
    Poll,
    Send,
    TransactionTag,
    Value,
    invalid,
    topic_of,
)

__all__ = ["NEVER", "Evidence", "Operation", "Polled", "Written", "operations_of"]

NEVER = 1 << 62
"""The place of what does not happen in the history."""


@dataclass(slots=True, eq=False)
class Operation:
    """An operation with both of its ends."""

    number: int
    """Among the operations, in the order in which they begin."""
    process: str
    f: Function
    invoked: int
    """Place in the history."""
    invoked_ns: int
    value: tuple[MicroOperation, ...] = ()
    transaction: TransactionTag | None = None
    interleaved: bool = False
    unordered: bool = False
    keys: tuple[Key, ...] = ()
    rebalanced: tuple[Key, ...] = ()
    outcome: EventType = EventType.INFO
    completed: int = NEVER
    """Place of the ``ok`` or ``fail``; NEVER for ``info``: it may still take effect."""
    completed_ns: int | None = None
    told: int = NEVER
    """Place of the completion, whatever it says: what was polled was polled before."""
    settled: int = NEVER
    """Place from which on its outcome cannot change: its completion, or, of ``info``, the next quiesce."""
    began: int = NEVER
    """Where it, or an earlier attempt of the same transaction that may have landed, was invoked."""
    sends: tuple[Send, ...] = ()
    """Its records, with their partitions as far as they are known."""
    is_committed: bool = False
    """It took effect, as its completion says, or as a reader proves."""

    @property
    def polls(self) -> Iterator[Poll]:
        """Yield what it read."""
        return (one for one in self.value if isinstance(one, Poll))

    @property
    def is_isolated(self) -> bool:
        """Return whether its records are written at one moment."""
        return self.f is Function.TXN and not self.interleaved

    def __str__(self) -> str:
        tag = self.transaction
        if tag is None:
            return f"{self.f.value} of {self.process}"
        parts = [tag.id]
        parts += [f"epoch {tag.epoch}"] if tag.epoch is not None else []
        parts += [f"version {tag.version}"] if tag.version is not None else []
        return f"{self.f.value} of {self.process} ({', '.join(parts)})"


def operations_of(events: Sequence[Event]) -> list[Operation]:
    """Return the operations of a history, in the order in which they begin."""
    found: list[Operation] = []
    under_way: dict[str, Operation] = {}
    unsettled: list[Operation] = []
    for index, event in enumerate(events):
        at = event.index if event.index >= 0 else index
        one = under_way.pop(event.process, None)
        if event.type is EventType.INVOKE or one is None or one.f is not event.f:
            if one is not None:
                unsettled.append(one)
            one = Operation(len(found), event.process, event.f, at, event.time_ns)
            _take(one, event)
            found.append(one)
            if event.type is EventType.INVOKE:
                under_way[event.process] = one
                continue
        else:
            _take(one, event)
        _complete(one, event, at)
        if one.outcome is EventType.INFO:
            unsettled.append(one)
        if event.f is Function.QUIESCE:
            for other in [*unsettled, *under_way.values()]:
                other.settled = min(other.settled, at)
            unsettled.clear()
            under_way.clear()
    return found


def _take(one: Operation, event: Event) -> None:
    if event.value is not None:
        kept: tuple[MicroOperation, ...] = ()
        if event.type in (EventType.INFO, EventType.FAIL):  # what was meant to be is still what may be
            said = {type(micro) for micro in event.value}
            kept = tuple(micro for micro in one.value if type(micro) not in said)
        one.value = (*kept, *event.value)
    one.transaction = event.transaction or one.transaction
    one.interleaved |= event.interleaved
    one.unordered |= event.unordered
    one.keys = event.keys or one.keys
    one.rebalanced = event.rebalanced or one.rebalanced


def _complete(one: Operation, event: Event, at: int) -> None:
    one.outcome = event.type
    one.told = at
    if event.type is not EventType.INFO:
        one.completed = one.settled = at
        one.completed_ns = event.time_ns


@dataclass(slots=True, eq=False)
class Written:
    """One value: who wrote it, and where it was seen."""

    scope: str
    """Key, or topic where a send names only that."""
    value: Value
    writers: list[tuple[Operation, Send]] = field(default_factory=list)
    places: dict[tuple[Key, int], None] = field(default_factory=dict)
    """Where it was seen by readers of committed records, or told to a send that is committed."""
    loose_places: dict[tuple[Key, int], None] = field(default_factory=dict)
    """Where readers of uncommitted records saw it."""
    first_read: Operation | None = None
    """The first to complete of the operations that asked for committed records."""
    is_read: bool = False
    """Whether any reader saw it."""
    writer: Operation | None = None
    """The writer of the committed value. If None, no known writer, or one of several attempts."""
    is_committed: bool = False

    @property
    def key(self) -> Key | None:
        """Return its partition, if that is known."""
        for key, _ in self.places or self.loose_places:
            return key
        for _, send in self.writers:
            if "/" in send.key:
                return send.key
        return None

    @property
    def place(self) -> tuple[Key, int] | None:
        """Return where it is; the first place, if it has several."""
        return next(iter(self.places), None)


@dataclass(frozen=True, slots=True)
class Polled:
    """A poll and its operation."""

    operation: Operation
    poll: Poll

    @property
    def is_committed_only(self) -> bool:
        """Return whether it asked for committed records."""
        return self.poll.isolation is not IsolationLevel.READ_UNCOMMITTED


class Line:
    """Offsets of a partition that have something, in order."""

    def __init__(self, places: Iterable[int]) -> None:
        self.offsets = sorted(set(places))

    def between(self, start: int, end: int) -> list[int]:
        """Return those in [start, end)."""
        if start >= end:
            return []
        return self.offsets[bisect_left(self.offsets, start) : bisect_left(self.offsets, end)]


class Evidence:
    """The facts that all checks share. Built in one pass; linear in the history.

    Raises
    ------
    InvalidInputError
        A value was sent twice other than by several transactions, or a poll of a snapshot is not whole (kind
        ``invalid-history``).
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self.operations = operations_of(events)
        self._scopes: dict[Key, str] = {}
        self._acknowledged: dict[Key, list[Operation]] | None = None
        sends = [(one, micro) for one in self.operations for micro in one.value if isinstance(micro, Send)]
        self.loose_topics = {send.key for _, send in sends if "/" not in send.key}
        named = [send.key for _, send in sends if "/" in send.key]
        self.keys: dict[str, set[Key]] = {}
        """The partitions of each topic that the history names."""
        self.sent_topics = {topic_of(send.key) for _, send in sends}
        self.values: dict[tuple[str, Value], Written] = {}
        self.polls = [Polled(one, poll) for one in self.operations for poll in one.polls]
        for key in [*named, *(key for polled in self.polls for key in polled.poll.records)]:
            self.keys.setdefault(topic_of(key), set()).add(key)
        self.quiesced_at = max(
            (one.invoked for one in self.operations if one.f is Function.QUIESCE), default=NEVER
        )
        for one, send in sends:
            self._note_send(one, send)
        for polled in self.polls:
            self._note_poll(polled)
        for one in self.operations:
            one.sends = tuple(self._resolved(micro) for micro in one.value if isinstance(micro, Send))
        self._judge_commits()
        self.at: dict[tuple[Key, int], dict[Value, bool]] = self._at()
        """Values by place, and whether a reader saw them there."""
        self.committed_line = self._lines(committed=True)
        """Values that readers of committed records must come across."""
        self.all_line = self._lines(committed=False)

    def scope(self, key: Key) -> str:
        """Return within what a value of a key is unique."""
        found = self._scopes.get(key)
        if found is None:
            topic = topic_of(key)
            found = self._scopes[key] = topic if topic in self.loose_topics else key
        return found

    def written(self, key: Key, value: Value) -> Written:
        """Return what is known of a value."""
        return self.values[self.scope(key), value]

    def values_of(self, one: Operation) -> Iterator[tuple[Send, Written]]:
        """Yield the records of an operation."""
        for send in one.sends:
            yield send, self.written(send.key, send.value)

    def values_at(self, key: Key, offset: int) -> list[Written]:
        """Return what is at an offset."""
        return [self.written(key, value) for value in self.at.get((key, offset), ())]

    def acknowledged_between(self, key: Key, start: int, end: int) -> list[Operation]:
        """Return those who sent to a key and were acknowledged in (start, end) of the history, in that
        order.
        """
        if self._acknowledged is None:
            self._acknowledged = {}
            for one in sorted(self.operations, key=lambda one: one.completed):
                if one.outcome is EventType.OK:
                    for named in dict.fromkeys(send.key for send in one.sends):
                        self._acknowledged.setdefault(named, []).append(one)
        found = self._acknowledged.get(key, [])
        first = bisect_left(found, start + 1, key=lambda one: one.completed)
        return found[first : bisect_left(found, end, key=lambda one: one.completed)]

    def covered(self, keys: Iterable[Key]) -> set[Key]:
        """Return keys, and the topics of which they are all partitions: there what was sent to the topic must
        be.
        """
        given = set(keys)
        return given | {topic for topic in map(topic_of, given) if self.keys[topic] <= given}

    def _value(self, key: Key, value: Value) -> Written:
        scope = self.scope(key)
        found = self.values.get((scope, value))
        if found is None:
            found = self.values[scope, value] = Written(scope, value)
        return found

    def _note_send(self, one: Operation, send: Send) -> None:
        found = self._value(send.key, send.value)
        if found.writers:
            other = found.writers[-1][0]
            if other is one or one.f is not Function.TXN or other.f is not Function.TXN:
                raise invalid(
                    "a value was sent twice, and not by attempts, each of which is a transaction",
                    key=send.key,
                    value=send.value,
                    operations=(other.invoked, one.invoked),
                )
        found.writers.append((one, send))

    def _note_poll(self, polled: Polled) -> None:
        committed = polled.is_committed_only
        if polled.poll.isolation is IsolationLevel.SNAPSHOT and not polled.poll.whole:
            raise invalid("a poll of a snapshot is a whole one", operation=polled.operation.invoked)
        for key, records in polled.poll.records.items():
            for offset, value in records:
                found = self._value(key, value)
                found.is_read = True
                if not committed:
                    found.loose_places[key, offset] = None
                    continue
                found.places[key, offset] = None
                if found.first_read is None or polled.operation.told < found.first_read.told:
                    found.first_read = polled.operation

    def _resolved(self, send: Send) -> Send:
        if "/" in send.key:
            return send
        key = self._value(send.key, send.value).key
        return send if key is None else Send(key, send.value, send.offset, send.sequence)

    def _judge_commits(self) -> None:
        for found in self.values.values():
            found.writer = _writer(found)
        for one in self.operations:
            one.is_committed = one.outcome is EventType.OK
            if one.outcome is EventType.INFO and one.f is not Function.SEND:
                one.is_committed = any(
                    found.writer is one and found.first_read is not None for _, found in self.values_of(one)
                )
        for one in self.operations:
            one.began = one.invoked
        for found in self.values.values():
            written_by = found.writer
            if written_by is None:
                found.is_committed = found.first_read is not None
                continue
            found.is_committed = written_by.is_committed or found.first_read is not None
            for writer, send in found.writers:
                repeats = writer.transaction == written_by.transaction and writer.transaction is not None
                if repeats and writer.outcome is not EventType.FAIL:
                    written_by.began = min(written_by.began, writer.invoked)
                if (
                    writer is written_by
                    and found.is_committed
                    and send.offset is not None
                    and "/" in send.key
                ):
                    found.places[send.key, send.offset] = None

    def _at(self) -> dict[tuple[Key, int], dict[Value, bool]]:
        at: dict[tuple[Key, int], dict[Value, bool]] = {}
        for found in self.values.values():
            for place in found.places:
                at.setdefault(place, {})[found.value] = False
        for polled in self.polls:
            for key, records in polled.poll.records.items():
                for offset, value in records:
                    at.setdefault((key, offset), {})[value] = True
        return at

    def _lines(self, *, committed: bool) -> dict[Key, Line]:
        offsets: dict[Key, list[int]] = {}
        for found in self.values.values():
            if committed and not found.is_committed:
                continue
            for key, offset in found.places if committed else {**found.places, **found.loose_places}:
                offsets.setdefault(key, []).append(offset)
        return {key: Line(found) for key, found in offsets.items()}


def _writer(found: Written) -> Operation | None:
    """Return whose record a value is: the first attempt that was acknowledged; else the only one that may
    have landed.
    """
    may = [one for one, _ in found.writers if one.outcome is not EventType.FAIL]
    for one in may:
        if one.outcome is EventType.OK:
            return one
    return may[0] if len(may) == 1 else None
