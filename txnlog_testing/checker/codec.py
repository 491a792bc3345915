"""Events of a history as JSON: one object per event, with the names of the dataclasses' members.

``null``, false and empty members are left out; unknown ones are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

from txnformat.types import IsolationLevel
from txnlog_testing.checker.vocabulary import (
    CommitOffsets,
    Event,
    EventType,
    Function,
    MicroOperation,
    Order,
    Poll,
    ReadOffsets,
    Send,
    StableOffset,
    TransactionTag,
    Value,
    invalid,
)

__all__ = ["event_from_json", "event_to_json"]


def event_to_json(event: Event) -> dict[str, Any]:
    """Return an event as plain values; its index is not among them."""
    out: dict[str, Any] = {
        "process": event.process,
        "type": event.type.value,
        "f": event.f.value,
        "time_ns": event.time_ns,
    }
    if event.value is not None:
        out["value"] = [_micro_to_json(one) for one in event.value]
    if event.transaction is not None:
        tag = event.transaction
        members = {"id": tag.id, "epoch": tag.epoch, "version": tag.version}
        out["transaction"] = {name: value for name, value in members.items() if value is not None}
    if event.keys:
        out["keys"] = list(event.keys)
    if event.interleaved:
        out["interleaved"] = True
    if event.unordered:
        out["unordered"] = True
    if event.rebalanced:
        out["rebalanced"] = list(event.rebalanced)
    if event.error is not None:
        out["error"] = event.error
    return out


def _micro_to_json(one: MicroOperation) -> dict[str, Any]:
    out: dict[str, Any]
    match one:
        case Send():
            out = {"do": "send", "key": one.key, "value": one.value}
            if one.offset is not None:
                out["offset"] = one.offset
            if one.sequence is not None:
                out["sequence"] = one.sequence
        case Poll():
            out = {
                "do": "poll",
                "records": {
                    key: [list(record) for record in records] for key, records in one.records.items()
                },
                "isolation": one.isolation.value,
            }
            if one.order is not Order.OFFSET:
                out["order"] = one.order.value
            if one.whole:
                out["whole"] = True
            if one.ranges:
                out["ranges"] = {key: list(bounds) for key, bounds in one.ranges.items()}
        case CommitOffsets():
            out = {"do": "commit_offsets", "group": one.group, "offsets": dict(one.offsets)}
        case ReadOffsets():
            out = {"do": "read_offsets", "group": one.group, "offsets": dict(one.offsets)}
        case StableOffset():
            out = {
                "do": "stable_offset",
                "key": one.key,
                "last_stable_offset": one.last_stable_offset,
                "log_end_offset": one.log_end_offset,
            }
    return out


def event_from_json(data: Any, index: int = -1) -> Event:
    """Return the event of plain values.

    Raises
    ------
    InvalidInputError
        It is none (kind ``invalid-history``); the message names the member and the value.
    """
    members = _Members(data, "an event")
    event = Event(
        process=members.take("process", _text),
        type=members.take("type", _enum(EventType)),
        f=members.take("f", _enum(Function)),
        time_ns=members.take("time_ns", _integer),
        value=members.take("value", _list_of(_micro_from_json), None),
        transaction=members.take("transaction", _tag_from_json, None),
        keys=members.take("keys", _list_of(_text), ()),
        interleaved=members.take("interleaved", _boolean, False),
        unordered=members.take("unordered", _boolean, False),
        rebalanced=members.take("rebalanced", _list_of(_text), ()),
        error=members.take("error", _text, None),
        index=index,
    )
    members.end()
    return event


T = TypeVar("T")
D = TypeVar("D")
_REQUIRED: Any = object()


class _Members:
    """The members of a JSON object, each taken once."""

    def __init__(self, data: Any, what: str) -> None:
        if not isinstance(data, dict):
            raise invalid(f"{what} is a JSON object", got=data)
        self._data = dict(data)
        self._what = what

    def take(self, name: str, read: Callable[[Any, str], T], default: D = _REQUIRED) -> T | D:
        value = self._data.pop(name, None)
        if value is None:
            if default is _REQUIRED:
                raise invalid(f"{self._what} has no {name!r}")
            return default
        return read(value, name)

    def end(self) -> None:
        if self._data:
            raise invalid(f"{self._what} has unknown members", members=sorted(self._data))


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise invalid(f"{name!r} is a string", got=value)
    return value


def _boolean(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise invalid(f"{name!r} is true or false", got=value)
    return value


def _integer(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise invalid(f"{name!r} is a whole number", got=value)
    return value


def _offset(value: Any, name: str) -> int:
    if _integer(value, name) < 0:
        raise invalid(f"{name!r} is not negative", got=value)
    return int(value)


def _value(value: Any, name: str) -> Value:
    return value if isinstance(value, str) else _integer(value, name)


S = TypeVar("S", bound=StrEnum)


def _enum(cls: type[S]) -> Callable[[Any, str], S]:
    def read(value: Any, name: str) -> S:
        try:
            return cls(value)
        except ValueError:
            known = ", ".join(cls)
            raise invalid(f"{name!r} is one of {known}", got=value) from None

    return read


def _list_of(read: Callable[[Any, str], T]) -> Callable[[Any, str], tuple[T, ...]]:
    def read_list(value: Any, name: str) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise invalid(f"{name!r} is a list", got=value)
        return tuple(read(one, name) for one in value)

    return read_list


def _mapping_of(read: Callable[[Any, str], T]) -> Callable[[Any, str], dict[str, T]]:
    def read_mapping(value: Any, name: str) -> dict[str, T]:
        if not isinstance(value, dict):
            raise invalid(f"{name!r} is a JSON object", got=value)
        return {key: read(one, name) for key, one in value.items()}

    return read_mapping


def _record(value: Any, name: str) -> tuple[int, Value]:
    if not isinstance(value, list) or len(value) != 2:
        raise invalid(f"{name!r} has lists of [offset, value]", got=value)
    return _offset(value[0], name), _value(value[1], name)


def _bounds(value: Any, name: str) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise invalid(f"{name!r} has lists of [start, end]", got=value)
    start, end = _offset(value[0], name), _offset(value[1], name)
    if start > end:
        raise invalid(f"{name!r} begins behind its end", got=value)
    return start, end


def _offset_or_none(value: Any, name: str) -> int | None:
    return None if value is None else _offset(value, name)


def _tag_from_json(value: Any, name: str) -> TransactionTag:
    members = _Members(value, f"{name!r}")
    tag = TransactionTag(
        id=members.take("id", _text),
        epoch=members.take("epoch", _integer, None),
        version=members.take("version", _integer, None),
    )
    members.end()
    return tag


def _micro_from_json(value: Any, name: str) -> MicroOperation:
    members = _Members(value, f"an element of {name!r}")
    do = members.take("do", _text)
    if do not in _READ:
        raise invalid(f"'do' is one of {', '.join(_READ)}", got=do)
    found = _READ[do](members)
    members.end()
    return found


def _poll_from_json(members: _Members) -> Poll:
    poll = Poll(
        records=members.take("records", _mapping_of(_list_of(_record))),
        isolation=members.take("isolation", _enum(IsolationLevel), IsolationLevel.READ_COMMITTED),
        order=members.take("order", _enum(Order), Order.OFFSET),
        whole=members.take("whole", _boolean, False),
        ranges=members.take("ranges", _mapping_of(_bounds), {}),
    )
    if poll.ranges and poll.order is not Order.OFFSET:
        raise invalid("a poll in the order of commits has no ranges of offsets", got=dict(poll.ranges))
    return poll


_READ: dict[str, Callable[[_Members], MicroOperation]] = {
    "send": lambda members: Send(
        key=members.take("key", _text),
        value=members.take("value", _value),
        offset=members.take("offset", _offset, None),
        sequence=members.take("sequence", _offset, None),
    ),
    "poll": _poll_from_json,
    "commit_offsets": lambda members: CommitOffsets(
        group=members.take("group", _text), offsets=members.take("offsets", _mapping_of(_offset))
    ),
    "read_offsets": lambda members: ReadOffsets(
        group=members.take("group", _text), offsets=members.take("offsets", _mapping_of(_offset_or_none))
    ),
    "stable_offset": lambda members: StableOffset(
        key=members.take("key", _text),
        last_stable_offset=members.take("last_stable_offset", _offset),
        log_end_offset=members.take("log_end_offset", _offset),
    ),
}
