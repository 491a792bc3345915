"""Vocabulary of a history: events, and what they say was sent, read, committed and observed.

A history is what clients saw of a log, from outside: nothing in it is taken from the log's own files. It is a
list of events. An *operation* is an ``invoke`` and, later, the completion of the same process:

``ok``
    It definitely happened.
``fail``
    It definitely did not: nothing of it is, or will be, there.
``info``
    Unknown: an error that leaves it open, or the process died. An operation without a completion is ``info``.

An error that is recorded as ``fail`` although it left things open makes false alarms; ``info`` never does. A
process has one operation under way at a time; an ``invoke`` while one is makes the one before ``info``.

A *key* is a partition, ``topic/partition``. A send whose partition its caller does not know names the topic
alone; the checker takes the partition in which the value was read. *Values* are unique per key (per topic,
where a send names the topic): they are how the checker knows who wrote a record. Only transactions may send a
value that another one sent: as attempts at the same work, of which one may be there. An attempt that has the
:class:`TransactionTag` of one before may find that to be done already; else each ``ok`` is a record of its
own.

As JSON lines: one object per event, ``null``, false and empty members left out.
:mod:`txnlog_testing.checker.codec` is the whole format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from txnformat.errors import InvalidInputError
from txnformat.types import IsolationLevel

__all__ = [
    "CommitOffsets",
    "Event",
    "EventType",
    "Function",
    "Key",
    "MicroOperation",
    "Order",
    "Poll",
    "ReadOffsets",
    "Send",
    "StableOffset",
    "TransactionTag",
    "Value",
    "invalid",
    "partition_key",
    "topic_of",
]

Key = str
"""``topic/partition``; ``topic`` alone in a send whose partition is not known."""
Value = int | str
"""Names one record; unique per key."""


def partition_key(topic: str, partition: int) -> Key:
    """Return the key of a partition."""
    return f"{topic}/{partition}"


def topic_of(key: Key) -> str:
    """Return the topic of a key: names of topics have no slash."""
    return key.rpartition("/")[0] or key


class EventType(StrEnum):
    """The kinds of events of an operation."""

    INVOKE = "invoke"
    OK = "ok"
    INFO = "info"
    FAIL = "fail"


class Function(StrEnum):
    """The kinds of operations."""

    SEND = "send"
    """Records sent outside of a transaction: each is there by itself."""
    POLL = "poll"
    """Reads only."""
    TXN = "txn"
    """A transaction: all of its sends and offset commits, or nothing. Its polls are reads like others."""
    COMMIT = "commit"
    """Group offsets, outside of a transaction."""
    OBSERVE = "observe"
    """Group offsets and last stable offsets, looked at."""
    INIT = "init"
    """A producer opens under a transactional id: ``ok`` with its tag says that smaller epochs are fenced."""
    ASSIGN = "assign"
    """The process reads ``keys`` from now on, from wherever it was told to."""
    SUBSCRIBE = "subscribe"
    """As ASSIGN, but the system decides about partitions and positions."""
    SEEK = "seek"
    """Positions in ``keys`` were set."""
    CRASH = "crash"
    """The process lost what it had in memory. Its next operation is that of a new reader."""
    QUIESCE = "quiesce"
    """Nothing is under way any more: unknown operations are decided, but the history does not tell how."""


class Order(StrEnum):
    """In which order a poll hands out the records of a partition."""

    OFFSET = "offset"
    COMMIT = "commit"
    """Order of the entries that made the records visible, then of offsets; a poll then never shows a part of
    a transaction."""


@dataclass(frozen=True, slots=True)
class TransactionTag:
    """Which transaction, as its writer names it.

    Parameters
    ----------
    id : str
        Transactional id; or the id of the application, such as a query's.
    epoch : int, optional
        Producer epoch.
    version : int, optional
        The application's version, such as the number of a micro-batch: the log takes each once, in ascending
        order.
    """

    id: str
    epoch: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """One record that is written.

    Parameters
    ----------
    key : str
        ``topic/partition``, or ``topic`` where the partition is not known.
    value : int or str
    offset : int, optional
        Where it is, if the system said so.
    sequence : int, optional
        The record's sequence number in (transactional id, epoch, key); needs the operation's tag.
    """

    key: Key
    value: Value
    offset: int | None = None
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class Poll:
    """Records that were handed out.

    Parameters
    ----------
    records : mapping
        By key: (offset, value), in the order in which they came.
    isolation : IsolationLevel
        What the reader asked for. A poll of a snapshot, which no open transaction holds back, is a whole one.
    order : Order
    whole : bool
        All that this isolation level shows of the keys of ``records``, from their beginning to their end, at
        one moment: a key without records has an empty list. Makes ``unseen`` and ``torn`` decidable: end a
        history with one.
    ranges : mapping
        By key: [position before, position after) in offsets, where the reader knows them. Only with ``order``
        by offset.
    """

    records: Mapping[Key, tuple[tuple[int, Value], ...]]
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    order: Order = Order.OFFSET
    whole: bool = False
    ranges: Mapping[Key, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Positions that are committed under a group: by key, the next offset to read."""

    group: str
    offsets: Mapping[Key, int]


@dataclass(frozen=True, slots=True)
class ReadOffsets:
    """Positions of a group that were looked at: by key; None where there is none."""

    group: str
    offsets: Mapping[Key, int | None]


@dataclass(frozen=True, slots=True)
class StableOffset:
    """The end of a partition, looked at: both exclusive."""

    key: Key
    last_stable_offset: int
    log_end_offset: int


MicroOperation = Send | Poll | CommitOffsets | ReadOffsets | StableOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of a history.

    Parameters
    ----------
    process : str
        Who. One operation at a time; the name of a process that died may be used again.
    type : EventType
    f : Function
    time_ns : int
        Of a clock that all processes share and that does not go back, such as ``time.monotonic_ns()`` on one
        machine.
    value : tuple of MicroOperation, optional
        Of an ``invoke``: what is going to be sent and committed. Of an ``ok``: all that happened; None: as
        invoked.
    transaction : TransactionTag, optional
    keys : tuple of str
        Of ``assign``, ``subscribe`` and ``seek``; empty: all.
    interleaved : bool
        The operation's records may stand among others' in a partition, and its partitions be written at
        different moments: as those of a transaction do that was flushed before its commit into an ``inline``
        buffer.
    unordered : bool
        The order of its sends says nothing about the order of its records: as where tasks of a job wrote
        them.
    rebalanced : tuple of str
        Keys whose assignment changed during the operation.
    error : str, optional
        For people.
    index : int
        Place in the history; given by the reader of the history.
    """

    process: str
    type: EventType
    f: Function
    time_ns: int
    value: tuple[MicroOperation, ...] | None = None
    transaction: TransactionTag | None = None
    keys: tuple[Key, ...] = ()
    interleaved: bool = False
    unordered: bool = False
    rebalanced: tuple[Key, ...] = ()
    error: str | None = None
    index: int = -1


def invalid(what: str, **values: Any) -> InvalidInputError:
    """Return the error of something that is no history."""
    return InvalidInputError(what, kind="invalid-history", **values)
