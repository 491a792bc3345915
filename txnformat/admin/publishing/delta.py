"""Topics as Delta tables, in the topics' own directories or those of their files:
:class:`~txnformat.admin.publishing.formats.View` for Delta.
"""

from __future__ import annotations

import logging

from txnformat import keys
from txnformat.admin.publishing.formats import ATTEMPTS, published_topic, superseded
from txnformat.admin.publishing.reports import DELTA, OFFSETS, KnownTables, PublishedTopic
from txnformat.client.committer import Committer
from txnformat.core.state import TopicState
from txnformat.core.topics.settings import value_of
from txnformat.errors import TxnLogError
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

__all__ = ["DeltaView"]

logger = logging.getLogger("txnlog")


class DeltaView:
    """Delta tables, for one publication: in the topics' own directories, or with offsets, in the directories
    of their files.
    """

    def __init__(
        self, committer: Committer, known: KnownTables, *, rebuild: bool, with_offsets: bool
    ) -> None:
        self.name = OFFSETS if with_offsets else DELTA
        self.compacted_only = with_offsets
        self._known = known.offsets if with_offsets else known.delta
        self._committer, self._rebuild = committer, rebuild

    def check(self, topic: TopicState) -> None:
        """Raise InvalidInputError if Delta has no such table."""
        self._schema(topic)

    def _schema(self, topic: TopicState) -> DeltaSchema:
        own = topic.schema.arrow_schema
        return delta_schema(with_positions(own) if self.compacted_only else own, topic.name)

    def _directory(self, topic: TopicState) -> str:
        return keys.offsets_location(topic.directory) if self.compacted_only else topic.directory

    def at(self, one: PublishedTopic) -> TableAt:
        """Return what a manifest says of a table that was published."""
        return TableAt(one.topic, one.directory, one.version)

    def follow(self, topic: TopicState) -> DeltaTable:
        """Return the table as it is now."""
        known = self._known.get(topic.topic_id, DeltaTable())
        steps = follow_table(known, self._directory(topic), topic.topic_id, strict=not self._rebuild)
        found = self._committer.read(steps).table
        self._known[topic.topic_id] = found
        return found

    def publish(self, shown: ShownTopic, table: DeltaTable, entry: int, now_ms: int) -> PublishedTopic:
        """Make the table show an entry, unless it does."""
        topic, schema, directory = shown.topic, self._schema(shown.topic), self._directory(shown.topic)
        wanted = shown.wanted(directory)
        hold_ms = int(value_of(topic.settings, "publish.hold.ms"))
        for _ in range(ATTEMPTS):
            if table.entry > entry or (table.entry == entry and not self._rebuild):
                later = table.entry if table.entry > entry else None
                return published_topic(topic, directory, table, later)
            change = change_of(table, topic, schema, wanted, entry, now_ms, rebuild=self._rebuild)
            if change is None:
                return published_topic(topic, directory, table)
            version = table.version + 1
            if self._committer.read(create_version(directory, version, change.lines)):
                table = folded(table, topic.topic_id, [(version, change.lines)])
                table = self._checkpointed(topic, table, now_ms - hold_ms)
                self._known[topic.topic_id] = table
                return published_topic(
                    topic, directory, table, added=change.added, removed=change.removed, is_new=True
                )
            table = self.follow(topic)
        raise superseded(topic)

    def _checkpointed(self, topic: TopicState, table: DeltaTable, old_ms: int) -> DeltaTable:
        """Write a checkpoint if one is due, and remove versions that nothing needs.

        A later publication does it if this one fails.
        """
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
