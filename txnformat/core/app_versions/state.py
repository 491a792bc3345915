"""The state of an application: its newest version, and the runs that have written it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from txnformat.field_types import Content32, Positive, Uuid

__all__ = [
    "CONTENT_SCHEME",
    "INSTANCES_MAX",
    "INSTANCE_BYTES_MAX",
    "NO_VERSION",
    "Content",
    "TopicContent",
    "VersionAt",
]

CONTENT_SCHEME = 1
"""How contents are hashed: :mod:`txnformat.columns.multiset`. A content of another scheme is as good as none.
"""

INSTANCES_MAX = 8
"""Instances of an application that the state remembers."""

INSTANCE_BYTES_MAX = 249
"""Longest name of an instance, in UTF-8."""


class TopicContent(Struct, frozen=True, gc=False):
    """The rows that a version wrote to one topic, without their order."""

    topic_id: Uuid
    records: Positive
    hash: Content32


class Content(tuple[TopicContent, ...]):
    """The rows that a version wrote: each topic once, those without rows not at all."""

    __slots__ = ()


class VersionAt(NamedTuple):
    """The last version of an application id, and the entry that holds it."""

    version: int
    entry: int
    instances: tuple[str, ...] = ()
    """The last runs of the application that said which they are, the newest first: at most INSTANCES_MAX."""
    topics: tuple[str, ...] = ()
    """Ids, ascending, of the topics that its versions were written to, as far as they say it."""
    gone: tuple[str, ...] = ()
    """Names, ascending, of those that were deleted."""

    def is_superseded(self, instance: str | None) -> bool:
        """Whether a newer run of the application has taken over from ``instance``."""
        return instance is not None and instance in self.instances[1:]

    def followed_by(
        self, version: int, entry: int, instance: str | None, topics: tuple[str, ...] = ()
    ) -> VersionAt:
        """Return what is known once ``entry`` holds a version of ``instance`` that was written to
        ``topics``.
        """
        instances = self.instances
        if instance is not None and instances[:1] != (instance,):
            instances = (instance, *instances)[:INSTANCES_MAX]
        known = tuple(sorted({*self.topics, *topics})) if topics else self.topics
        return VersionAt(version, entry, instances, known, self.gone)

    def without_topic(self, topic_id: str, name: str) -> VersionAt:
        """Return what is known once a topic is deleted."""
        if topic_id not in self.topics:
            return self
        topics = tuple(one for one in self.topics if one != topic_id)
        return self._replace(topics=topics, gone=tuple(sorted({*self.gone, name})))


NO_VERSION = VersionAt(-1, -1)
"""The version of an application that has written nothing."""
