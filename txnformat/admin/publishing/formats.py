"""What is different between the formats of views: the check of a topic, the look at its table, and the next version of it."""

from __future__ import annotations

import logging
from typing import Any, Protocol

from txnformat.admin.publishing.reports import DELTA, KnownTables, PublishedTopic
from txnformat.client.committer import Committer
from txnformat.core.state import TopicState
from txnformat.core.topics.settings import value_of
from txnformat.errors import ConflictError, InvalidInputError, TxnLogError
from txnformat.views.delta_log import create_version, follow_table, old_keys, write_checkpoint
from txnformat.views.delta_table import (
    CHECKPOINT_VERSIONS,
    DeltaTable,
    change_of,
    folded,
    without_tombstones,
)
from txnformat.views.delta_types import delta_schema
from txnformat.views.manifests import TableAt
from txnformat.views.shown import ShownTopic

__all__ = ["View", "view_of"]

ATTEMPTS = 20
"""How often a version is tried, when other processes publish all the time."""

logger = logging.getLogger("txnlog")


class TableOf(Protocol):
    """A table of any format."""

    @property
    def version(self) -> int: ...
    @property
    def entry(self) -> int: ...


class View(Protocol):
    """A format, for one publication. Tables that it returns are handed back to it."""

    name: str

    def check(self, topic: TopicState) -> None:
        """Raise InvalidInputError if the format has no such table: kinds ``unsupported-view-schema``, ``wrong-view-scheme``."""
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


def view_of(name: str, committer: Committer, known: KnownTables, *, rebuild: bool) -> View:
    """Return a format. Raises InvalidInputError of kind ``no-pyiceberg``."""
    if name == DELTA:
        return _Delta(committer, known, rebuild=rebuild)
    require_pyiceberg()
    from txnformat.admin.publishing.iceberg import IcebergView

    return IcebergView(committer, known, rebuild=rebuild)


def require_pyiceberg() -> None:
    """Raise InvalidInputError of kind ``no-pyiceberg`` if the package that Iceberg's tables need is not installed."""
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
        hint="publish again; the log is not concerned",
        topic=topic.name,
    )


class _Delta:
    """Delta tables, in the topics' own directories."""

    name = DELTA

    def __init__(self, committer: Committer, known: KnownTables, *, rebuild: bool) -> None:
        self._committer, self._known, self._rebuild = committer, known.delta, rebuild

    def check(self, topic: TopicState) -> None:
        delta_schema(topic.schema.arrow_schema, topic.name)

    def at(self, one: PublishedTopic) -> TableAt:
        return TableAt(one.topic, one.directory, one.version)

    def follow(self, topic: TopicState) -> DeltaTable:
        known = self._known.get(topic.topic_id, DeltaTable())
        steps = follow_table(known, topic.directory, topic.topic_id, strict=not self._rebuild)
        found = self._committer.read(steps).table
        self._known[topic.topic_id] = found
        return found

    def publish(self, shown: ShownTopic, table: DeltaTable, entry: int, now_ms: int) -> PublishedTopic:
        topic = shown.topic
        schema = delta_schema(topic.schema.arrow_schema, topic.name)
        wanted = shown.wanted()
        hold_ms = int(value_of(topic.settings, "publish.hold.ms"))
        for _ in range(ATTEMPTS):
            if table.entry > entry or (table.entry == entry and not self._rebuild):
                later = table.entry if table.entry > entry else None
                return _published(topic, table, later)
            change = change_of(table, topic, schema, wanted, entry, now_ms, rebuild=self._rebuild)
            if change is None:
                return _published(topic, table)
            version = table.version + 1
            if self._committer.read(create_version(topic.directory, version, change.lines)):
                table = folded(table, topic.topic_id, [(version, change.lines)])
                table = self._checkpointed(topic, table, now_ms - hold_ms)
                self._known[topic.topic_id] = table
                return _published(topic, table, added=change.added, removed=change.removed, is_new=True)
            table = self.follow(topic)
        raise superseded(topic)

    def _checkpointed(self, topic: TopicState, table: DeltaTable, old_ms: int) -> DeltaTable:
        """Write a checkpoint if one is due, and remove versions that nothing needs. A later publication does it if this one fails."""
        if table.version - max(table.checkpoint, 0) < CHECKPOINT_VERSIONS and not self._rebuild:
            return table
        try:
            table = without_tombstones(table, old_ms)
            table = self._committer.read(write_checkpoint(topic, table))
            for key in self._committer.read(old_keys(topic.directory, old_ms)):
                self._committer.store.delete(key)
        except TxnLogError as error:
            logger.warning("no checkpoint of the published table of %s: %s", topic.name, error)
        return table


def _published(
    topic: TopicState,
    table: DeltaTable,
    superseded_by: int | None = None,
    *,
    added: int = 0,
    removed: int = 0,
    is_new: bool = False,
) -> PublishedTopic:
    return PublishedTopic(
        topic.name,
        topic.topic_id,
        topic.directory,
        table.version,
        is_new,
        len(table.files),
        added,
        removed,
        superseded_by,
    )
