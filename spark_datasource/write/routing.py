"""Which topic the rows of a write go to: always one, or the one that a column names.

A routed write meets its topics in tasks, which do not follow the log. So the driver pins what every topic
that exists looks like, and how one that does not exist would be made, and ships that; a task and the driver
come to the same answer about a name. Ids of new topics are derived from the name and a random number of the
write.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from txnformat.core.operations import CreateTopic
from txnformat.core.topics.schema import TopicSchema
from txnformat.errors import InvalidInputError
from txnformat.keys import check_topic_name, topic_directory
from txnformat.persistent import replace

__all__ = [
    "ROUTED_TOPICS_MAX",
    "ByColumn",
    "Known",
    "Layout",
    "OneTopic",
    "Route",
    "Routes",
    "first_turn",
    "new_topic_id",
]

ROUTED_TOPICS_MAX = 3_000
"""Topics that one write may route rows to: each takes up to three of the 10,000 operations of an entry."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the records of a topic look, and how the DataFrame's columns become them."""

    schema: TopicSchema
    names: tuple[str, ...]
    """The DataFrame's columns (without the one that routes) in the topic's letter case, in the DataFrame's
    order."""
    partition_count: int
    needs_key: bool = False
    """A record without a key is refused: the topic keeps the latest record of each key."""


@dataclass(frozen=True, slots=True)
class Route:
    """One topic of a write."""

    topic: str
    topic_id: str
    directory: str
    layout: Layout
    create: CreateTopic | None
    """The topic is missing: created in the entry that appends."""


@dataclass(frozen=True, slots=True)
class OneTopic:
    """All rows go to one topic."""

    only: Route

    def route(self, topic: str) -> Route:
        """Return the route of the topic.

        Raises InvalidInputError of kind ``unroutable-rows``: it is another topic.
        """
        if topic != self.only.topic:
            raise _unroutable(f"topic {topic!r:.300} is not the one of this write")
        return self.only


@dataclass(frozen=True, slots=True)
class Known:
    """A topic that exists."""

    topic_id: str
    directory: str
    layout: Layout | tuple[str, ...]
    """Shared by topics that look alike; or every reason why the DataFrame's rows cannot go there."""


@dataclass(frozen=True, slots=True)
class ByColumn:
    """Every row goes to the topic that a column of it names."""

    position: int
    """Position of that column in the DataFrame, from 0."""
    known: Mapping[str, Known]
    """Known topics by name."""
    create: CreateTopic | None
    """A missing topic is created like this, with a name, id and directory of its own. If None, it is an
    error."""
    created: Layout
    seed: str
    """A UUID of this write."""

    def route(self, topic: str) -> Route:
        """Return the route of a topic.

        Raises InvalidInputError of kind ``unroutable-rows``: no valid name, or the DataFrame does not fit the
        topic: every difference; or there is no such topic, and none is created.
        """
        known = self.known.get(topic)
        if known is not None:
            if not isinstance(known.layout, Layout):
                raise _unroutable(*(f"topic {topic!r:.300}: {problem}" for problem in known.layout))
            return Route(topic, known.topic_id, known.directory, known.layout, None)
        try:
            check_topic_name(topic)
        except InvalidInputError as error:
            raise _unroutable(*error.problems) from None
        if self.create is None:
            raise _unroutable(f"there is no topic {topic!r:.300}")
        topic_id = new_topic_id(self.seed, topic)
        directory = topic_directory(topic, topic_id)
        create = replace(self.create, topic_id=topic_id, name=topic, directory=directory)
        return Route(topic, topic_id, directory, self.created, create)


def new_topic_id(seed: str, topic: str) -> str:
    """Return the id of a topic that a write (``seed``: its UUID) may have to create: the same in every
    process.
    """
    return str(uuid.uuid5(uuid.UUID(seed), topic))


def first_turn(seed: str, topic: str) -> int:
    """Return whose turn it is first among records without keys, to be taken modulo the partitions: as random
    as ``seed``.
    """
    return uuid.UUID(new_topic_id(seed, topic)).int >> 64


Routes = OneTopic | ByColumn


def _unroutable(*problems: str) -> InvalidInputError:
    return InvalidInputError(problems, kind="unroutable-rows")
