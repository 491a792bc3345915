"""The positions of an export, as a record in Kafka has them. Pure.

One record has the positions of all topics: the next offset of each partition in the log. It is written in the
Kafka transaction that has the records before these offsets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from txnformat.errors import ConflictError, CorruptDataError

__all__ = ["Positions", "decode_positions", "encode_positions", "window_starts"]

FORMAT = 1

Positions = dict[str, dict[int, int]]
"""Next offset by topic id of the log and partition."""

WINDOW = 16
"""Records at the end of the topic of positions that are looked at first: the last one is seldom followed by
more than markers and aborted ones."""


def encode_positions(log_id: str, positions: Mapping[str, Mapping[int, int]]) -> bytes:
    """Return the value of a record."""
    topics = {
        topic: {str(number): offset for number, offset in sorted(found.items())}
        for topic, found in sorted(positions.items())
    }
    return json.dumps({"format": FORMAT, "log_id": log_id, "topics": topics}, separators=(",", ":")).encode()


def decode_positions(data: bytes | None, log_id: str) -> Positions:
    """Return the positions of a record.

    Raises
    ------
    ConflictError
        Kind ``export-of-another-log``.
    CorruptDataError
        Kind ``invalid-position``.
    """
    try:
        document = json.loads(data or b"")
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']!r:.20}")
        owner = document["log_id"]
        found = {
            topic: {int(number): _offset(offset) for number, offset in one.items()}
            for topic, one in document["topics"].items()
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorruptDataError(
            f"the last record of the topic of positions is not one that an export writes: {error!s:.100}",
            kind="invalid-position",
            hint="another program has written there; export under another group",
            got=repr(data)[:200],
        ) from None
    if owner != log_id:
        raise ConflictError(
            "another log is exported to this cluster under the same group",
            kind="export-of-another-log",
            hint="give each export a group of its own",
            log_id=log_id,
            other=owner,
        )
    return found


def _offset(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.40} is not an offset")
    return value


def window_starts(earliest: int, end: int) -> list[int]:
    """Return where to begin to look for the last record: ever farther from the end, the earliest offset
    last.
    """
    starts, width = [], WINDOW
    while end - width > earliest:
        starts.append(end - width)
        width *= 8
    return [*starts, earliest]
