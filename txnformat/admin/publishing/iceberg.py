"""Topics as Iceberg tables, in a directory of their own below the topic's:
:class:`~txnformat.admin.publishing.formats.View` for Iceberg.

It needs pyiceberg.
"""

from __future__ import annotations

import logging

from txnformat import keys
from txnformat.admin.publishing.formats import ATTEMPTS, published_topic, superseded
from txnformat.admin.publishing.reports import ICEBERG, KnownTables, PublishedTopic
from txnformat.client.committer import Committer
from txnformat.core.state import TopicState
from txnformat.core.topics.settings import value_of
from txnformat.errors import TxnLogError
from txnformat.views.iceberg_log import create_iceberg, follow_iceberg, old_iceberg_keys, write_hint
from txnformat.views.iceberg_table import IcebergTable, location_of, next_version
from txnformat.views.iceberg_types import iceberg_schema
from txnformat.views.manifests import TableAt
from txnformat.views.shown import ShownTopic

__all__ = ["CLEAN_VERSIONS", "IcebergView"]

CLEAN_VERSIONS = 50
"""Versions from one clean-up of old ones to the next."""

logger = logging.getLogger("txnlog")


class IcebergView:
    """Iceberg tables, for one publication."""

    name = ICEBERG
    compacted_only = False

    def __init__(self, committer: Committer, known: KnownTables, *, rebuild: bool) -> None:
        self._committer, self._known, self._rebuild = committer, known.iceberg, rebuild

    def check(self, topic: TopicState) -> None:
        """Raise InvalidInputError if Iceberg has no such table, or its paths cannot be written."""
        iceberg_schema(topic.schema.arrow_schema, topic.name)
        self._location(topic)

    def follow(self, topic: TopicState) -> IcebergTable:
        """Return the table as it is now."""
        known = self._known.get(topic.topic_id, IcebergTable())
        steps = follow_iceberg(known, topic.directory, topic.topic_id, strict=not self._rebuild)
        found = self._committer.read(steps).table
        self._known[topic.topic_id] = found
        return found

    def publish(self, shown: ShownTopic, table: IcebergTable, entry: int, now_ms: int) -> PublishedTopic:
        """Make the table show an entry, unless it does."""
        topic = shown.topic
        wanted = shown.wanted().values()
        hold_ms = int(value_of(topic.settings, "publish.hold.ms"))
        location = self._location(topic)
        for _ in range(ATTEMPTS):
            stays = table.metadata is not None and table.metadata.location == location
            if table.entry > entry or (table.entry == entry and stays and not self._rebuild):
                later = table.entry if table.entry > entry else None
                return published_topic(
                    topic,
                    keys.iceberg_location(topic.directory),
                    self._hinted(topic, table, is_new=False),
                    later,
                )
            version = next_version(
                table, topic, location, wanted, entry, now_ms, hold_ms, rebuild=self._rebuild
            )
            if version is None:
                return published_topic(
                    topic, keys.iceberg_location(topic.directory), self._hinted(topic, table, is_new=False)
                )
            if self._committer.read(create_iceberg(topic.directory, version)):
                table = self._hinted(topic, version.table, is_new=True)
                self._cleaned(topic, table, now_ms - hold_ms)
                return published_topic(
                    topic,
                    keys.iceberg_location(topic.directory),
                    table,
                    added=version.added,
                    removed=version.removed,
                    is_new=True,
                )
            table = self.follow(topic)
        raise superseded(topic)

    def at(self, one: PublishedTopic) -> TableAt:
        """Return what a manifest says of a table that was published."""
        table = self._known[one.topic_id]
        location = "" if table.metadata is None else table.metadata.location
        snapshot = table.snapshot
        id_ = 0 if snapshot is None else snapshot.snapshot_id
        return TableAt(one.topic, one.directory, one.version, location, id_)

    def _location(self, topic: TopicState) -> str:
        scheme = str(value_of(topic.settings, "publish.iceberg.scheme"))
        return location_of(self._committer.store.url, scheme, topic.directory, topic.name)

    def _hinted(self, topic: TopicState, table: IcebergTable, *, is_new: bool) -> IcebergTable:
        """Let the hint name a version.

        A later publication does it if this one fails: engines that open the version itself do not need it.
        """
        if not table.is_hinted:
            try:
                table = self._committer.read(write_hint(topic.directory, table, is_new=is_new))
            except TxnLogError as error:
                logger.warning("no hint of the published Iceberg table of %s: %s", topic.name, error)
        self._known[topic.topic_id] = table
        return table

    def _cleaned(self, topic: TopicState, table: IcebergTable, old_ms: int) -> None:
        """Remove versions that nothing needs, if it is time.

        A later publication does it if this one fails.
        """
        if table.version % CLEAN_VERSIONS and not self._rebuild:
            return
        try:
            for key in self._committer.read(old_iceberg_keys(topic.directory, topic.topic_id, old_ms)):
                self._committer.store.delete(key)
        except TxnLogError as error:
            logger.warning(
                "old versions of the published Iceberg table of %s are left: %s", topic.name, error
            )
