"""Cuts: which entry a snapshot read shows, by its number or by a time. Steps without IO.

A cut is one entry. A record is in it iff the entry that committed it is the cut's or an older one (docs/spec.md,
section 6). Since a transaction is committed by one entry, over all its topics and partitions, every cut shows it whole
or not at all, and an open transaction hides nothing but itself.
"""

from __future__ import annotations

from txnformat.arguments import is_text
from txnformat.core.entry import CommitEntry, decode_entry, missing_entry
from txnformat.core.state import LogState, TopicState
from txnformat.core.wire.bundle import bundle_first
from txnformat.digits import whole
from txnformat.errors import CorruptDataError, InvalidInputError, NotFoundError, repr_of
from txnformat.moments import Moment, as_moment_ms
from txnformat.protocol.effects import ReadClock, Steps
from txnformat.protocol.reads import get_object, read_entry
from txnformat.protocol.tail import bundle_key_of, usable_bundle
from txnformat.types import IsolationLevel

__all__ = [
    "check_isolation",
    "check_version_options",
    "cut_at",
    "entry_time_ms",
    "last_entry_at",
    "topic_as_of",
]


def check_isolation(value: str | IsolationLevel) -> IsolationLevel:
    """Return the isolation level that ``value`` names."""
    if is_text(value) and value in tuple(IsolationLevel):
        return IsolationLevel(value)
    raise InvalidInputError(
        f"{repr_of(value)} is not an isolation level",
        kind="unknown-isolation-level",
        hint=f"use one of {', '.join(IsolationLevel)}",
    )


def check_version_options(
    isolation: str | IsolationLevel | None,
    version_as_of: int | None,
    timestamp_as_of: Moment | None,
    names: tuple[str, str] = ("version_as_of", "timestamp_as_of"),
) -> IsolationLevel:
    """Return the isolation level that a read has; a version or a time by itself makes it a snapshot read.

    ``names`` is what the caller calls these two. Raises InvalidInputError: ``unknown-isolation-level``, or ``invalid-version`` (a version and a
    time, one of them with another isolation level, or something that is not the number of an entry).
    """
    is_versioned = version_as_of is not None or timestamp_as_of is not None
    default = IsolationLevel.SNAPSHOT if is_versioned else IsolationLevel.READ_COMMITTED
    level = default if isolation is None else check_isolation(isolation)
    problems = []
    if version_as_of is not None and timestamp_as_of is not None:
        problems.append(f"give {names[0]} or {names[1]}, not both")
    if is_versioned and level is not IsolationLevel.SNAPSHOT:
        problems.append(f"{names[0]} and {names[1]} are for isolation snapshot, not for {level}")
    if version_as_of is not None and type(version_as_of) is not int:
        problems.append(f"{names[0]} is {repr_of(version_as_of, 100)}, not the number of an entry")
    if problems:
        text: object = version_as_of
        number = whole(text.strip()) if isinstance(text, str) else None
        hint = None if number is None else f"pass a number in place of text: {names[0]}={number}"
        raise InvalidInputError(problems, kind="invalid-version", hint=hint)
    return level


def history_floor(state: LogState) -> int:
    """Return the oldest entry whose cut can be read. THE place of the rule: nothing of this version removes history."""
    return 0


def cut_at(
    state: LogState, version_as_of: int | None = None, timestamp_as_of: Moment | None = None
) -> Steps[int]:
    """Return the entry of a cut: the newest, the one that is named, or the last one at or before a time (:func:`~txnformat.moments.as_moment_ms`).

    A time is by log time, which strictly increases from entry to entry. Raises NotFoundError: ``unknown-version`` (no such entry yet, or any
    more), ``timestamp-before-log``, ``timestamp-in-future`` (after the store's now: what will have happened by then is not known yet); and
    InvalidInputError of kind ``invalid-timestamp``.

    Requests: none, but by a time before the newest entry at most log2(entries) + 1 GETs (twice as many where entries
    are deleted).
    """
    if timestamp_as_of is not None:
        return (yield from _last_at(state, as_moment_ms(timestamp_as_of, "timestamp_as_of")))
    entry = state.entry if version_as_of is None else version_as_of
    if version_as_of is not None and not history_floor(state) <= entry <= state.entry:
        raise _unknown_version(state, entry)
    return entry


def last_entry_at(state: LogState, timestamp_ms: int) -> Steps[int]:
    """Return the last entry at or before a time that has passed; -1: there is none, or it is no longer known.

    Requests: those of :func:`cut_at`.
    """
    try:
        return (yield from _last_at(state, timestamp_ms))
    except NotFoundError as error:
        if error.kind != "timestamp-before-log":
            raise
        return -1


def _last_at(state: LogState, timestamp_ms: int) -> Steps[int]:
    if timestamp_ms >= state.timestamp_ms:
        times = yield ReadClock()
        now_ms = max(times.store_ms, state.timestamp_ms)
        if timestamp_ms > now_ms:
            raise NotFoundError(
                "the time is in the future",
                kind="timestamp-in-future",
                hint="use a time up to the store's now, or leave it out for the newest entry",
                timestamp_ms=timestamp_ms,
                now_ms=now_ms,
            )
        if state.entry >= 0:
            return state.entry
    floor = low = history_floor(state)
    high = max(state.entry, floor)
    # Every entry below ``low`` is at or before the time, ``high`` and all after it are not.
    while low < high:
        middle = (low + high) // 2
        if (yield from entry_time_ms(state, middle)) > timestamp_ms:
            high = middle
        else:
            low = middle + 1
    if low == floor:
        raise NotFoundError(
            "the time is before the oldest entry of the log",
            kind="timestamp-before-log",
            hint="use a later time; txnlog history shows the time of each entry",
            timestamp_ms=timestamp_ms,
        )
    return low - 1


def entry_time_ms(state: LogState, number: int) -> Steps[int]:
    """Return the log time of an entry. Requests: 1 GET; none for the newest; 2 where it is deleted."""
    if number == state.entry:
        return state.timestamp_ms
    entry = yield from read_entry(number)
    if entry is None:
        entry = yield from _bundled(number)
    if entry is None:
        raise missing_entry(number)
    return entry.timestamp_ms


def _bundled(number: int) -> Steps[CommitEntry | None]:
    key = bundle_key_of(first := bundle_first(number))
    entries = usable_bundle((yield from get_object(key)), first)
    try:
        return None if entries is None else decode_entry(entries[number - first], number)
    except CorruptDataError as error:
        # The entry itself is deleted: what is damaged, and can be restored, is the bundle.
        values = {**error.values, "object": key, "entry": number}
        raise CorruptDataError(error.what, kind=error.kind, hint=error.hint, **values) from error


def topic_as_of(state: LogState, name: str, entry: int) -> TopicState:
    """Return a topic as it is now. Raises NotFoundError (``unknown-topic``) if it was not there at an entry."""
    topic = state.topic(name)
    if topic.created_entry > entry:
        raise NotFoundError(
            "there was no such topic yet",
            kind="unknown-topic",
            hint=f"it was created at entry {topic.created_entry}: read that version or a later one",
            topic=name,
            version=entry,
        )
    return topic


def _unknown_version(state: LogState, entry: int) -> NotFoundError:
    floor = history_floor(state)
    there_is = (
        f"there are versions {floor} to {state.entry}"
        if state.entry >= floor
        else "the log has no versions yet"
    )
    return NotFoundError("no such version of the log", kind="unknown-version", hint=there_is, version=entry)
