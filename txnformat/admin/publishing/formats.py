"""The differences between the formats of views: the check of a topic, the look at its table, and the next
version of it.

``delta`` and ``iceberg`` beside this have both.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, Protocol

from txnformat.admin.publishing.reports import PublishedTopic
from txnformat.core.state import TopicState
from txnformat.errors import ConflictError, InvalidInputError
from txnformat.views.manifests import TableAt
from txnformat.views.shown import ShownTopic

__all__ = ["ATTEMPTS", "TableOf", "View", "published_topic", "require_pyiceberg", "superseded"]

ATTEMPTS = 20
"""How often a version is tried, when other processes publish all the time."""


class TableOf(Protocol):
    """A table of any format."""

    @property
    def version(self) -> int:
        """The number of its newest version."""
        ...

    @property
    def entry(self) -> int:
        """The entry that it shows."""
        ...

    @property
    def files(self) -> Sized:
        """The files of that entry."""
        ...


class View(Protocol):
    """A format, for one publication. Tables that it returns are handed back to it."""

    name: str
    compacted_only: bool
    """It shows compacted files only, up to the last entry below which all files are compacted."""

    def check(self, topic: TopicState) -> None:
        """Raise InvalidInputError if the format has no such table: kinds ``unsupported-view-schema``,
        ``wrong-view-scheme``.
        """
        ...

    def follow(self, topic: TopicState) -> TableOf:
        """Return the table as it is now."""
        ...

    def publish(self, shown: ShownTopic, table: Any, entry: int, now_ms: int) -> PublishedTopic:
        """Make the table show an entry, unless it does. ``now_ms``: the store's time."""
        ...

    def at(self, one: PublishedTopic) -> TableAt:
        """Return what a manifest says of a table that was published."""
        ...


def published_topic(
    topic: TopicState,
    directory: str,
    table: TableOf,
    superseded_by: int | None = None,
    *,
    added: int = 0,
    removed: int = 0,
    is_new: bool = False,
) -> PublishedTopic:
    """Return what a publication says of a topic.

    ``directory``: that of the table. ``superseded_by``: the later entry that the table shows already.
    """
    return PublishedTopic(
        topic.name,
        topic.topic_id,
        directory,
        table.version,
        is_new,
        len(table.files),
        added,
        removed,
        superseded_by,
    )


def require_pyiceberg() -> None:
    """Raise InvalidInputError of kind ``no-pyiceberg`` if the package that Iceberg's tables need is not
    installed.
    """
    try:
        import pyiceberg.manifest  # noqa: F401
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            [f"tables of Iceberg need a package that is not installed: {error.name}"],
            kind="no-pyiceberg",
            hint="pip install 'txnlog[iceberg]' for the Python that runs this",
        ) from None


def superseded(topic: TopicState) -> ConflictError:
    """Return the error about a table that other processes publish all the time."""
    return ConflictError(
        "other processes publish the topic all the time",
        kind="publish-superseded",
        hint="publish again; the log is not affected",
        topic=topic.name,
    )
