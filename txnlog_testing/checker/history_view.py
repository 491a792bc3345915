"""How mutations select parts of a generated history, and how they change them.

Of the checker only the vocabulary is used: what is to be found must not be chosen by who finds it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

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
)

__all__ = [
    "HistoryView",
    "Mutation",
    "PolledAt",
    "Record",
    "WrittenBy",
    "changed_at",
    "in_polls",
    "in_sends",
    "inserted",
    "pairs_of",
    "said",
    "swapped",
    "with_poll",
]

T = TypeVar("T")
Record = tuple[int, Value]
NEWCOMER = "newcomer"
"""A process that generated histories do not have."""


@dataclass(slots=True)
class WrittenBy:
    """An operation: the places of its events, and its sends."""

    invoke: int
    end: int | None
    f: Function
    outcome: EventType
    sends: tuple[Send, ...]
    transaction: TransactionTag | None
    interleaved: bool


@dataclass(frozen=True)
class PolledAt:
    """A poll, and where it is in the history."""

    place: int
    number: int
    """Among the event's micro-operations."""
    process: str
    poll: Poll

    @property
    def reads_committed(self) -> bool:
        """Return whether it asked for committed records."""
        return self.poll.isolation is not IsolationLevel.READ_UNCOMMITTED


class HistoryView:
    """A history, and what mutations look for in it."""

    def __init__(self, events: Sequence[Event], rng: random.Random) -> None:
        self.events = list(events)
        self.rng = rng

    @cached_property
    def ops(self) -> list[WrittenBy]:
        """Return the operations with sends."""
        found: list[WrittenBy] = []
        under_way: dict[str, WrittenBy] = {}
        for place, event in enumerate(self.events):
            if event.type is EventType.INVOKE:
                sends = sends_of(event)
                op = WrittenBy(
                    place, None, event.f, EventType.INFO, sends, event.transaction, event.interleaved
                )
                under_way[event.process] = op
                if sends:
                    found.append(op)
            elif event.process in under_way and event.f is not Function.CRASH:
                op = under_way.pop(event.process)
                op.end, op.outcome = place, event.type
                op.sends = sends_of(event) or op.sends
                op.transaction = event.transaction or op.transaction
        return found

    @cached_property
    def polls(self) -> list[PolledAt]:
        """Return all polls."""
        return [
            PolledAt(place, number, event.process, micro)
            for place, event in enumerate(self.events)
            for number, micro in enumerate(event.value or ())
            if isinstance(micro, Poll)
        ]

    @cached_property
    def places(self) -> dict[Value, tuple[Key, int]]:
        """Return where values are that readers of committed records saw."""
        return {
            value: (key, offset)
            for polled in self.polls
            if polled.reads_committed
            for key, records in polled.poll.records.items()
            for offset, value in records
        }

    @cached_property
    def final(self) -> dict[Key, tuple[Record, ...]]:
        """Return what whole reads after the quiesce show."""
        quiesces = [place for place, event in enumerate(self.events) if event.f is Function.QUIESCE]
        found: dict[Key, tuple[Record, ...]] = {}
        for polled in self.polls:
            if quiesces and polled.place > quiesces[-1] and polled.poll.whole:
                found |= polled.poll.records
        return found

    @cached_property
    def in_final(self) -> set[Value]:
        """Return the values that are there at the end."""
        return {value for records in self.final.values() for _, value in records}

    @cached_property
    def single(self) -> list[WrittenBy]:
        """Return the operations none of whose values another attempt sent, and all of whose values are there
        at the end.
        """
        attempts: dict[Value, int] = {}
        for op in self.ops:
            for send in op.sends:
                attempts[send.value] = attempts.get(send.value, 0) + 1
        return [
            op
            for op in self.ops
            if all(attempts[s.value] == 1 and s.value in self.in_final for s in op.sends)
        ]

    def choose(self, options: Sequence[T]) -> T | None:
        """Return one of several, if there are any."""
        return self.rng.choice(options) if options else None


def sends_of(event: Event) -> tuple[Send, ...]:
    return tuple(micro for micro in event.value or () if isinstance(micro, Send))


# --- edits --------------------------------------------------------------------------------------------------


def changed_at(events: list[Event], place: int, **changes: object) -> list[Event]:
    """Return the history with one event changed."""
    return [*events[:place], replace(events[place], **changes), *events[place + 1 :]]  # type: ignore[arg-type]


def inserted(events: list[Event], place: int, *new: Event) -> list[Event]:
    """Return the history with more events."""
    return counted([*events[:place], *new, *events[place:]])


def counted(events: list[Event]) -> list[Event]:
    return [replace(event, index=index, time_ns=index * 1_000_000) for index, event in enumerate(events)]


def said(f: Function, type_: EventType, *value: MicroOperation, **more: object) -> Event:
    """Return an event of a new process."""
    event = Event(process=NEWCOMER, type=type_, f=f, time_ns=0, value=value or None)
    return replace(event, **more)  # type: ignore[arg-type]


def with_poll(
    events: list[Event], polled: PolledAt, records: Mapping[Key, tuple[Record, ...]]
) -> list[Event]:
    """Return the history with other records in a poll."""
    value = list(events[polled.place].value or ())
    value[polled.number] = replace(polled.poll, records=records)
    return changed_at(events, polled.place, value=tuple(value))


def in_polls(events: list[Event], change: Callable[[Record], Record | None]) -> list[Event]:
    """Change or leave out records of all polls."""
    found = []
    for event in events:
        value: list[MicroOperation] = []
        for micro in event.value or ():
            if isinstance(micro, Poll):
                records = {
                    key: tuple(new for record in old if (new := change(record)) is not None)
                    for key, old in micro.records.items()
                }
                value.append(replace(micro, records=records))
            else:
                value.append(micro)
        found.append(event if event.value is None else replace(event, value=tuple(value)))
    return found


def in_sends(events: list[Event], change: Callable[[Send], Send]) -> list[Event]:
    """Change all sends."""
    return [
        event
        if event.value is None
        else replace(event, value=tuple(change(m) if isinstance(m, Send) else m for m in event.value))
        for event in events
    ]


def swapped(view: HistoryView, one: Value, other: Value) -> list[Event]:
    """Let two records change places, for all who read them or were told about them."""
    renamed = {one: other, other: one}
    offsets = {value: view.places[renamed[value]][1] for value in renamed}
    events = in_polls(view.events, lambda record: (record[0], renamed.get(record[1], record[1])))

    def told(send: Send) -> Send:
        known = send.offset is not None and send.value in offsets
        return replace(send, offset=offsets[send.value]) if known else send

    return in_sends(events, told)


def pairs_of(op: WrittenBy) -> list[tuple[Send, Send]]:
    """Return successive sends of an operation to the same partition."""
    last: dict[Key, Send] = {}
    found = []
    for send in op.sends:
        if send.key in last:
            found.append((last[send.key], send))
        last[send.key] = send
    return found


Mutation = Callable[[HistoryView], "list[Event] | None"]
"""Returns a history with one thing wrong, or None if there is no occasion."""
