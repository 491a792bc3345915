"""Positions of an import in its source: their names and texts in a group of the log, and where each partition
begins.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from txnformat.digits import whole
from txnformat.errors import CorruptDataError, InvalidInputError, NotFoundError, OffsetOutOfRangeError

__all__ = [
    "Bounds",
    "Lost",
    "Place",
    "Position",
    "Start",
    "Whenever",
    "begin",
    "position_name",
    "positions_of",
]

NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id of a topic of a broker that gives topics none."""


class Place(NamedTuple):
    """A partition of a Kafka topic."""

    topic: str
    partition: int


class Position(NamedTuple):
    """How far a partition is imported."""

    offset: int
    """Next offset to import."""
    topic_id: str
    """Id of the topic in Kafka: a topic that was deleted and created again has another."""

    def text(self) -> str:
        """Return it as the log keeps it."""
        return f"{self.offset} {self.topic_id}"


class Bounds(NamedTuple):
    """Offsets that a partition of the source holds."""

    earliest: int
    latest: int
    """End of what can be read (exclusive): with ``read_committed`` the last stable offset."""


class Start(StrEnum):
    """Where a partition begins of which the log has no position."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Whenever(StrEnum):
    """The reaction when the source no longer has the records at a position."""

    STOP = "stop"
    CONTINUE = "continue"


class Lost(NamedTuple):
    """Offsets that the source no longer had when the import came to them."""

    topic: str
    partition: int
    first: int
    end: int
    """Exclusive."""


def position_name(cluster: str, place: Place) -> str:
    """Return the name of a position in a group: it names the cluster, so that another one begins anew."""
    return f"kafka:{cluster}/{place.topic}/{place.partition}"


def positions_of(committed: Mapping[str, int | str], cluster: str, topic: str) -> dict[int, Position]:
    """Return the positions of a topic by partition.

    ``committed``: foreign positions of a group by name. Raises CorruptDataError (``invalid-position``).
    """
    head = f"kafka:{cluster}/{topic}/"
    found = {}
    for name, text in committed.items():
        if not name.startswith(head):
            continue
        number = whole(name[len(head) :])
        offset, _, topic_id = str(text).partition(" ")
        at = whole(offset)
        if number is None or at is None or not topic_id:
            raise CorruptDataError(
                "a position of the import is not one that an import writes",
                kind="invalid-position",
                hint="another program has committed to the group; import under another group",
                name=name,
                position=text,
            )
        found[number] = Position(at, topic_id)
    return found


def begin(
    topic: str,
    topic_id: str,
    bounds: Mapping[int, Bounds],
    known: Mapping[int, Position],
    *,
    start: Start | None,
    on_lost: Whenever,
    target_is_empty: bool,
) -> tuple[dict[int, int], list[Lost]]:
    """Return the offset at which each partition of a topic begins, and the offsets that are passed over.

    A partition with a position begins there. One without begins at its earliest offset if other partitions of
    the topic have positions (it was added to the topic), or if the topic of the log is empty; else ``start``
    says where.

    Parameters
    ----------
    bounds, known
        By partition: what the source holds; positions in the log.
    on_lost
        ``continue``: a position below the earliest offset, beyond the end, or of a topic that was replaced,
        is no error; the import goes on at the next offset that is there.

    Raises
    ------
    OffsetOutOfRangeError
        Kind ``kafka-offset-out-of-range``.
    NotFoundError
        Kind ``kafka-topic-replaced``.
    InvalidInputError
        Kind ``import-without-position``.
    """
    starts, lost = {}, []
    for partition, held in sorted(bounds.items()):
        at = known.get(partition)
        if at is None:
            starts[partition] = _unknown(
                topic, held, start, is_first=not known, target_is_empty=target_is_empty
            )
            continue
        if _is_other(at.topic_id, topic_id):
            if on_lost is Whenever.STOP:
                raise NotFoundError(
                    "the topic was deleted in Kafka and created again since the last import",
                    kind="kafka-topic-replaced",
                    hint='import it under another group, or with on_lost="continue" from its beginning on',
                    topic=topic,
                    partition=partition,
                    position=at.offset,
                    topic_id=topic_id,
                    expected=at.topic_id,
                )
            starts[partition] = held.earliest
            continue
        starts[partition] = at.offset
        if held.earliest <= at.offset <= held.latest:
            continue
        if on_lost is Whenever.STOP:
            raise out_of_range(topic, partition, at.offset, held)
        starts[partition] = held.earliest if at.offset < held.earliest else held.latest
        if at.offset < held.earliest:
            lost.append(Lost(topic, partition, at.offset, held.earliest))
    return starts, lost


def _is_other(before: str, now: str) -> bool:
    return before != now and NO_ID not in (before, now)


def _unknown(topic: str, held: Bounds, start: Start | None, *, is_first: bool, target_is_empty: bool) -> int:
    if not is_first:
        return held.earliest
    if start is None and not target_is_empty:
        raise InvalidInputError(
            "the topic has records, and this import has no position: it is unknown which source records "
            "were imported",
            kind="import-without-position",
            hint='check group=; or say where to begin, once: start="earliest" or start="latest". Groups '
            "are forgotten after 30 days without use",
            topic=topic,
        )
    return held.latest if start is Start.LATEST else held.earliest


def out_of_range(topic: str, partition: int, position: int, held: Bounds) -> OffsetOutOfRangeError:
    """Return the error of a position that the source does not have."""
    gone = position < held.earliest
    return OffsetOutOfRangeError(
        "Kafka has removed records that were not imported yet"
        if gone
        else "the position lies beyond the end of the Kafka partition, which has lost records",
        kind="kafka-offset-out-of-range",
        hint='nothing was imported in this round; on_lost="continue" skips to '
        + ("the earliest offset" if gone else "the end"),
        topic=topic,
        partition=partition,
        position=position,
        earliest=held.earliest,
        latest=held.latest,
    )
