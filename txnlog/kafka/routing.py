"""Which topic and partition of one side a topic and partition of the other side goes to. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from txnformat.errors import InvalidInputError, repr_of

__all__ = ["BY_KEY", "SAME", "Routes", "as_routes", "as_topics"]

SAME = "same"
"""A record keeps the number of its partition."""
BY_KEY = "key"
"""The key decides; records without one go to partitions in turn."""


class Routes(NamedTuple):
    """Partitions by number; None: the key decides."""

    numbers: Mapping[int, int] | None
    is_same: bool = False

    def target(self, partition: int) -> int | None:
        """Return the partition that a partition goes to; None: the key decides.

        Raises KeyError: it has no place.
        """
        if self.is_same:
            return partition
        return None if self.numbers is None else self.numbers[partition]

    def problems(self, topic: str, sources: Iterable[int], targets: int) -> list[str]:
        """Return the problems of sending these partitions to a topic of ``targets`` partitions."""
        if self.numbers is None and not self.is_same:
            return []
        found = []
        for partition in sources:
            at = partition if self.is_same else (self.numbers or {}).get(partition)
            if at is None:
                found.append(f"partition {partition} of {topic!r:.300} has no place in partitions=")
            elif at >= targets:
                found.append(
                    f"partition {partition} of {topic!r:.300} goes to partition {at}, and there are {targets}"
                )
        return found


def as_topics(topics: object) -> dict[str, str]:
    """Return source and target of each topic. Raises InvalidInputError (``invalid-topics``)."""
    if isinstance(topics, str):
        topics = [topics]
    pairs: list[tuple[object, object]] = []
    if isinstance(topics, Mapping):
        pairs = list(topics.items())
    elif isinstance(topics, Iterable):
        pairs = [(name, name) for name in topics]
    if not pairs or not all(isinstance(name, str) and name for pair in pairs for name in pair):
        raise InvalidInputError(
            f"topics is {repr_of(topics, 80)}, not a topic, a list of topics or a mapping of their names "
            "to others",
            kind="invalid-topics",
            hint='name them as in ["clicks"], or {"clicks": "web_clicks"}',
        )
    return {str(source): str(target) for source, target in pairs}


def as_routes(partitions: object) -> Routes:
    """Return the routes that an argument asks for. Raises InvalidInputError (``invalid-partitions``)."""
    if partitions == SAME:
        return Routes(None, is_same=True)
    if partitions == BY_KEY:
        return Routes(None)
    if isinstance(partitions, Mapping) and partitions:
        numbers = [number for pair in partitions.items() for number in pair]
        if all(type(number) is int and number >= 0 for number in numbers):
            return Routes(dict(partitions))
    raise InvalidInputError(
        f'partitions is {repr_of(partitions, 80)}, not "same", "key" or a mapping of numbers to numbers',
        kind="invalid-partitions",
    )
