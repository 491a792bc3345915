"""What is different between the formats of views: the check of a topic, the look at its table, and the next version of it."""

from __future__ import annotations

import logging
from typing import Any, Protocol

from txnformat import keys
from txnformat.admin.publishing.reports import DELTA, ICEBERG, OFFSETS, KnownTables, PublishedTopic
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
from txnformat.views.delta_types import DeltaSchema, delta_schema, with_positions
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
    compacted_only: bool
    """It shows compacted files only, up to the last entry below which all files are compacted."""

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
    if name != ICEBERG:
        return _Delta(committer, known, rebuild=rebuild, with_offsets=name == OFFSETS)
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
    """Delta tables: in the topics' own directories, or with offsets, in the directories of their files."""

    def __init__(
        self, committer: Committer, known: KnownTables, *, rebuild: bool, with_offsets: bool
    ) -> None:
        self.name = OFFSETS if with_offsets else DELTA
        self.compacted_only = with_offsets
        self._known = known.offsets if with_offsets else known.delta
        self._committer, self._rebuild = committer, rebuild

    def check(self, topic: TopicState) -> None:
        self._schema(topic)

    def _schema(self, topic: TopicState) -> DeltaSchema:
        own = topic.schema.arrow_schema
        return delta_schema(with_positions(own) if self.compacted_only else own, topic.name)

    def _directory(self, topic: TopicState) -> str:
        return keys.offsets_location(topic.directory) if self.compacted_only else topic.directory

    def at(self, one: PublishedTopic) -> TableAt:
        return TableAt(one.topic, one.directory, one.version)

    def follow(self, topic: TopicState) -> DeltaTable:
        known = self._known.get(topic.topic_id, DeltaTable())
        steps = follow_table(known, self._directory(topic), topic.topic_id, strict=not self._rebuild)
        found = self._committer.read(steps).table
        self._known[topic.topic_id] = found
        return found

    def publish(self, shown: ShownTopic, table: DeltaTable, entry: int, now_ms: int) -> PublishedTopic:
        topic, schema, directory = shown.topic, self._schema(shown.topic), self._directory(shown.topic)
        wanted = shown.wanted(directory)
        hold_ms = int(value_of(topic.settings, "publish.hold.ms"))
        for _ in range(ATTEMPTS):
            if table.entry > entry or (table.entry == entry and not self._rebuild):
                later = table.entry if table.entry > entry else None
                return _published(topic, directory, table, later)
            change = change_of(table, topic, schema, wanted, entry, now_ms, rebuild=self._rebuild)
            if change is None:
                return _published(topic, directory, table)
            version = table.version + 1
            if self._committer.read(create_version(directory, version, change.lines)):
                table = folded(table, topic.topic_id, [(version, change.lines)])
                table = self._checkpointed(topic, table, now_ms - hold_ms)
                self._known[topic.topic_id] = table
                return _published(
                    topic, directory, table, added=change.added, removed=change.removed, is_new=True
                )
            table = self.follow(topic)
        raise superseded(topic)

    def _checkpointed(self, topic: TopicState, table: DeltaTable, old_ms: int) -> DeltaTable:
        """Write a checkpoint if one is due, and remove versions that nothing needs. A later publication does it if this one fails."""
        if table.version - max(table.checkpoint, 0) < CHECKPOINT_VERSIONS and not self._rebuild:
            return table
        try:
            table = without_tombstones(table, old_ms)
            directory = self._directory(topic)
            table = self._committer.read(write_checkpoint(directory, topic.topic_id, table))
            for key in self._committer.read(old_keys(directory, old_ms)):
                self._committer.store.delete(key)
        except TxnLogError as error:
            logger.warning("no checkpoint of the published table of %s: %s", topic.name, error)
        return table


def _published(
    topic: TopicState,
    directory: str,
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
        directory,
        table.version,
        is_new,
        len(table.files),
        added,
        removed,
        superseded_by,
    )
