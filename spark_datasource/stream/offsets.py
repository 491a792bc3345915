"""Offsets of a streaming read, as they stand in a query's checkpoint: canonical JSON with a version. Pure.

An offset says how far a query has read, of which log, in which order. In offset order it has the next offset
of every partition; in commit order it is an entry, and has of every partition a floor: below it nothing is
left to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from spark_datasource.options.declared import Order
from txnformat.errors import InvalidInputError, UnsupportedFeatureError, repr_of
from txnformat.field_types import Count, Name, OrMinusOne

__all__ = ["VERSION", "SeenEntry", "StreamOffset", "TopicPosition", "parse_stream_offset"]

VERSION = 2
"""Version of the format; no other one is read."""


class SeenEntry(msgspec.Struct, frozen=True):
    """The newest entry when an offset was made.

    It chains to all before it, so it tells one history from another.
    """

    entry: OrMinusOne
    """-1: there was none."""
    sha256: str
    """SHA-256 of its bytes (of format.json when there is none)."""


class TopicPosition(msgspec.Struct, frozen=True):
    """How far a topic was read."""

    name: str
    """At the time of the offset; what counts is the id."""
    offsets: tuple[Count, ...]
    """The next offset of each partition, or in commit order the floor."""


class StreamOffset(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    tag_field="version",
    tag=VERSION,
    rename={"is_initial": "initial"},
):
    """How far a query has read."""

    log_id: Name
    order: Order
    entry: OrMinusOne
    """In commit order the last entry that was read, else the one at whose state the offsets were chosen."""
    topics: Mapping[str, TopicPosition]
    """Positions by topic id."""
    seen: SeenEntry | None = None
    """Entry of the state that it was made on."""
    is_initial: bool = False
    """Whether it was made from options, not from what was read: asked again, they may say something else."""
    began: StreamOffset | None = None
    """Only in the end of a query's first batch: where the batch began. Spark does not write that down, and
    asks again to repeat it."""

    def offsets(self, topic_id: str) -> tuple[int, ...]:
        """Return the offsets of a topic; none when it was not read so far."""
        found = self.topics.get(topic_id)
        return () if found is None else found.offsets

    def since(self, start: StreamOffset) -> StreamOffset:
        """Return where a query's first batch really began that ends here; asked again, it would begin at
        ``start``.
        """
        if self.began is not None:
            return self.began
        return self if self.is_initial else start  # without a record, it ended where it began

    def to_json(self) -> dict[str, Any]:
        """Return it as Spark writes it down: equal offsets give equal text."""
        value: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self, order="deterministic"))
        return value


def parse_stream_offset(value: object) -> StreamOffset:
    """Return the offset that a checkpoint gave.

    Raises InvalidInputError of kind ``invalid-checkpoint``, UnsupportedFeatureError of kind
    ``newer-checkpoint``.
    """
    version = value.get("version") if isinstance(value, dict) else None
    if type(version) is int and version > VERSION:
        raise UnsupportedFeatureError(
            "the checkpoint was written by a newer version of txnlog",
            kind="newer-checkpoint",
            hint="upgrade txnlog; nothing was read",
            expected=f"at most {VERSION}",
            got=version,
        )
    try:
        return msgspec.convert(None if version is None else value, StreamOffset)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):  # UnicodeError: half a surrogate pair
        raise InvalidInputError(
            f"the checkpoint has {repr_of(value, 200)}, which is not an offset of txnlog",
            kind="invalid-checkpoint",
            hint="use the source that wrote the checkpoint, or a new checkpointLocation",
        ) from None
