"""Topics as Delta tables, in the topics' own directories: :class:`~txnformat.admin.publishing.formats.View` for Delta."""

from __future__ import annotations

import logging

from txnformat.admin.publishing.formats import ATTEMPTS, published_topic, superseded
from txnformat.admin.publishing.reports import DELTA, KnownTables, PublishedTopic
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
from txnformat.views.delta_types import delta_schema
from txnformat.views.manifests import TableAt
from txnformat.views.shown import ShownTopic

__all__ = ["DeltaView"]

logger = logging.getLogger("txnlog")


class DeltaView:
    """Delta tables, for one publication."""

    name = DELTA

    def __init__(self, committer: Committer, known: KnownTables, *, rebuild: bool) -> None:
        self._committer, self._known, self._rebuild = committer, known.delta, rebuild

    def check(self, topic: TopicState) -> None:
        """Raise InvalidInputError if Delta has no such table."""
        delta_schema(topic.schema.arrow_schema, topic.name)

    def at(self, one: PublishedTopic) -> TableAt:
        """Return what a manifest says of a table that was published."""
        return TableAt(one.topic, one.directory, one.version)

    def follow(self, topic: TopicState) -> DeltaTable:
        """Return the table as it is now."""
        known = self._known.get(topic.topic_id, DeltaTable())
        steps = follow_table(known, topic.directory, topic.topic_id, strict=not self._rebuild)
        found = self._committer.read(steps).table
        self._known[topic.topic_id] = found
        return found

    def publish(self, shown: ShownTopic, table: DeltaTable, entry: int, now_ms: int) -> PublishedTopic:
        """Make the table show an entry, unless it does."""
        topic = shown.topic
        schema = delta_schema(topic.schema.arrow_schema, topic.name)
        wanted = shown.wanted()
        hold_ms = int(value_of(topic.settings, "publish.hold.ms"))
        for _ in range(ATTEMPTS):
            if table.entry > entry or (table.entry == entry and not self._rebuild):
                later = table.entry if table.entry > entry else None
                return published_topic(topic, topic.directory, table, later)
            change = change_of(table, topic, schema, wanted, entry, now_ms, rebuild=self._rebuild)
            if change is None:
                return published_topic(topic, topic.directory, table)
            version = table.version + 1
            if self._committer.read(create_version(topic.directory, version, change.lines)):
                table = folded(table, topic.topic_id, [(version, change.lines)])
                table = self._checkpointed(topic, table, now_ms - hold_ms)
                self._known[topic.topic_id] = table
                return published_topic(
                    topic, topic.directory, table, added=change.added, removed=change.removed, is_new=True
                )
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
