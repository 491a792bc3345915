"""Offsets of a streaming read, as they stand in a query's checkpoint: canonical JSON with a version. Pure.

An offset says how far a query has read, of which log, in which order. In offset order it has the next offset of every
partition; in commit order it is an entry, and has of every partition a floor: below it nothing is left to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from spark_datasource.options.declared import Order
from txnformat.errors import ConflictError, InvalidInputError, UnsupportedFeatureError

__all__ = ["VERSION", "SeenEntry", "StreamOffset", "TopicPosition", "check_same", "parse_stream_offset"]

VERSION = 2
"""Version 1 had offsets by partition as in Kafka's JSON, and in commit order nothing but the entry; it is still read."""

_INT64_MAX = 2**63 - 1


class SeenEntry(NamedTuple):
    """The newest entry when an offset was made. It chains to all before it, so it tells one history from another."""

    entry: int
    """-1: there was none."""
    sha256: str
    """Of its bytes (of format.json when there is none)."""


class TopicPosition(NamedTuple):
    """How far a topic was read."""

    name: str
    """At the time of the offset; what counts is the id."""
    offsets: tuple[int, ...]
    """By partition: the next offset, or in commit order the floor."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """How far a query has read."""

    log_id: str
    order: Order
    entry: int
    """In commit order the last entry that was read, else the one at whose state the offsets were chosen."""
    topics: Mapping[str, TopicPosition] = field(default_factory=dict)
    """By topic id."""
    is_initial: bool = False
    """Whether it was made from options, not from what was read: asked again, they may say something else."""
    seen: SeenEntry | None = None
    """None: an older version made the offset."""
    began: StreamOffset | None = None
    """Of the end of a query's first batch: where it began. Spark does not write that down, and asks again to repeat it."""

    def offsets(self, topic_id: str) -> tuple[int, ...]:
        """Return the offsets of a topic; none when it was not read so far."""
        found = self.topics.get(topic_id)
        return () if found is None else found.offsets

    def since(self, start: StreamOffset) -> StreamOffset:
        """Return where a query's first batch really began that ends here; asked again, it would begin at ``start``."""
        if self.began is not None:
            return self.began
        return self if self.is_initial else start  # without a record, it ended where it began

    def made_on(self, entry: int, sha256: str) -> StreamOffset:
        """Return the offset with the newest entry of the state that it was made on."""
        return replace(self, seen=SeenEntry(entry, sha256))

    def to_json(self) -> dict[str, Any]:
        """Return it as Spark writes it down: equal offsets give equal text."""
        value: dict[str, Any] = {
            "version": VERSION,
            "log_id": self.log_id,
            "order": self.order.value,
            "entry": self.entry,
            "topics": {
                topic_id: {"name": found.name, "offsets": list(found.offsets)}
                for topic_id, found in sorted(self.topics.items())
            },
        }
        if self.seen is not None:
            value["seen"] = self.seen._asdict()
        if self.is_initial:
            value["initial"] = True
        if self.began is not None:
            value["began"] = self.began.to_json()
        return value


def parse_stream_offset(value: object) -> StreamOffset:
    """Return the offset that a checkpoint gave.

    Raises
    ------
    InvalidInputError
        Kind ``invalid-checkpoint``: it is none of this format.
    UnsupportedFeatureError
        Kind ``newer-checkpoint``: a newer version of txnlog wrote it.
    """
    if isinstance(value, dict) and type(value.get("version")) is int and value["version"] > VERSION:
        raise UnsupportedFeatureError(
            "the checkpoint was written by a newer version of txnlog",
            kind="newer-checkpoint",
            hint="upgrade txnlog; nothing was read",
            expected=f"at most {VERSION}",
            got=value["version"],
        )
    try:
        return _parse(value)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InvalidInputError(
            f"the checkpoint has {str(value)!r:.200}, which is no offset of txnlog",
            kind="invalid-checkpoint",
            hint="was it made with another source? use a new checkpointLocation",
        ) from None


def _parse(value: Any, *, nested: bool = False) -> StreamOffset:
    version = value["version"]
    if version not in (1, VERSION) or type(version) is not int:
        raise ValueError
    began, seen = value.get("began"), value.get("seen")
    if began is not None and nested:
        raise ValueError
    return StreamOffset(
        _text(value["log_id"]),
        Order(value["order"]),
        _integer(value["entry"], -1),
        {
            _text(topic_id): _topic_1(one) if version == 1 else _topic_2(one)
            for topic_id, one in value.get("topics", {}).items()
        },
        value.get("initial", False) is True,
        None if seen is None else SeenEntry(_integer(seen["entry"], -1), _text(seen["sha256"])),
        None if began is None else _parse(began, nested=True),
    )


def _topic_1(value: Any) -> TopicPosition:
    offsets = {int(number): _integer(offset) for number, offset in value.items()}
    if set(offsets) != set(range(len(offsets))):
        raise ValueError
    return TopicPosition("", tuple(offset for _, offset in sorted(offsets.items())))


def _topic_2(value: Any) -> TopicPosition:
    return TopicPosition(_text(value["name"]), tuple(_integer(offset) for offset in value["offsets"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _integer(value: Any, minimum: int = 0) -> int:
    if type(value) is not int or not minimum <= value <= _INT64_MAX:
        raise ValueError
    return value


def check_same(offset: StreamOffset, log_id: str, entry: int, order: Order, url: str) -> None:
    """Check that an offset is of the log and the order that are read.

    Parameters
    ----------
    entry : int
        The newest entry of the log.

    Raises
    ------
    ConflictError
        Kind ``checkpoint-of-other-log``: it is of another log, or of this one before it was restored to an older state.
    InvalidInputError
        Kind ``checkpoint-of-other-order``.
    """
    if offset.log_id != log_id or offset.entry > entry:
        raise ConflictError(
            "the checkpoint is not of this log, or the log was restored to an older state",
            kind="checkpoint-of-other-log",
            hint="use the log that the query read before, or a new checkpointLocation",
            path=url,
            expected=offset.log_id,
            got=log_id,
            read_to_entry=offset.entry,
            entry=entry,
        )
    if offset.order is not order:
        raise InvalidInputError(
            f"the query has read with order {offset.order} so far, and now has order {order}",
            kind="checkpoint-of-other-order",
            hint=f'use option("order", "{offset.order}"), or a new checkpointLocation',
        )
