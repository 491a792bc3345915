"""Published views hold objects back from a vacuum: files of their tables, also of older versions for a time,
and the versions themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from txnformat import keys
from txnformat.admin.publishing.formats import require_pyiceberg
from txnformat.client.committer import Committer
from txnformat.core.state import LogState, TopicState
from txnformat.core.topics.settings import SETTINGS, value_of
from txnformat.errors import ConflictError, CorruptDataError, InvalidInputError
from txnformat.protocol.cuts import last_entry_at
from txnformat.views.delta_log import follow_table
from txnformat.views.delta_table import DeltaTable, without_tombstones

__all__ = ["ListedViews", "Published", "published"]


@dataclass(slots=True)
class Published:
    """The published views of a log, as far as a vacuum must know them."""

    directories: set[str] = field(default_factory=set)
    """Directories of topics whose table cannot be read: all of their files are held."""
    manifests_from: int = 0
    """Manifests of this entry and later ones are kept."""
    notes: list[str] = field(default_factory=list)

    def holds(self, key: str) -> bool:
        """Return whether a file, at its own key, must stay because the table of its topic cannot be read."""
        return (
            bool(self.directories)
            and keys.parse_data_key(key) is not None
            and key.partition("/")[0] in self.directories
        )


@dataclass(slots=True)
class ListedViews:
    """Published views, as a listing of the root shows them."""

    delta: set[str] = field(default_factory=set)
    """Directories of topics that have a Delta table."""
    offsets: set[str] = field(default_factory=set)
    """Directories of topics that have a Delta table with offsets."""
    iceberg: set[str] = field(default_factory=set)
    """Directories of topics that have an Iceberg table."""
    newest_manifests: dict[str, int] = field(default_factory=dict)
    """Entry of the newest manifest of each format."""

    def add(self, key: str) -> None:
        """Take in a key of the root."""
        if (table := keys.delta_name(key)) is not None:
            (self.offsets if table.has_offsets else self.delta).add(table.directory)
        elif (name := keys.iceberg_name(key)) is not None:
            self.iceberg.add(name.directory)
        elif (manifest := keys.manifest_name(key)) is not None:
            newest = self.newest_manifests.get(manifest.format, 0)
            self.newest_manifests[manifest.format] = max(newest, manifest.entry)


def published(
    committer: Committer, state: LogState, listed: ListedViews, now_ms: int, hold: Callable[[str], object]
) -> Published:
    """Return what views hold back at a time of the store; ``hold`` is called with the key of each file that a
    table has, or had within its hold time.

    While a topic has an erasure that is not complete, older versions of its table hold nothing back.
    Requests: for each topic with a Delta table 1 LIST, and 1 GET for its newest checkpoint and each version
    since; with an Iceberg table 1 LIST, and 1 GET for the newest version, its manifest list and each of its
    manifests.
    """
    found = Published()
    topics = {topic.directory: topic for topic in state.topics.values()}
    erasing = {one.topic_id for one in state.erasures.values() if one.complete_entry < 0}
    holds = [0]
    for directories, look in (
        (listed.delta, partial(_look_at_delta, place=str)),
        (listed.offsets, partial(_look_at_delta, place=keys.offsets_location)),
        (listed.iceberg, _look_at_iceberg),
    ):
        for directory in sorted(directories & topics.keys()):
            topic = topics[directory]
            hold_ms = int(value_of(topic.settings, "publish.hold.ms"))
            holds.append(hold_ms)
            before_ms = now_ms + 1 if topic.topic_id in erasing else now_ms - hold_ms
            try:
                note = look(committer, topic, before_ms, hold)
            except (ConflictError, CorruptDataError, InvalidInputError) as error:
                found.directories.add(directory)
                note = (
                    f"the published table of {topic.name} cannot be read, so all files of the topic "
                    f"stay: {error}"
                )
            found.notes += [note] if note else []
    if listed.newest_manifests:
        hold_ms = max(holds) or int(SETTINGS["publish.hold.ms"].default)
        old_entry = committer.read(last_entry_at(state, now_ms - hold_ms))
        found.manifests_from = min(*listed.newest_manifests.values(), old_entry)
    return found


def _look_at_delta(
    committer: Committer,
    topic: TopicState,
    before_ms: int,
    hold: Callable[[str], object],
    *,
    place: Callable[[str], str],
) -> str:
    """Name the files that a Delta table holds; return a note about it.

    ``before_ms``: files that were removed before this time are not held; ``place``: the table's directory, of
    the topic's.
    """
    directory = place(topic.directory)
    steps = follow_table(DeltaTable(), directory, topic.topic_id, strict=False)
    table, foreign, undecoded = committer.read(steps)
    if undecoded is not None:
        raise undecoded
    table = without_tombstones(table, before_ms)
    for path in chain(table.files, table.removed):
        hold(f"{directory}/{path}")
    return "" if foreign is None else _foreign(topic, foreign)


def _look_at_iceberg(
    committer: Committer, topic: TopicState, before_ms: int, hold: Callable[[str], object]
) -> str:
    """Name the files that an Iceberg table holds; without pyiceberg it cannot be read.

    A newest version of another program does not say what the ones before it had.
    """
    require_pyiceberg()
    from txnformat.views.iceberg_log import follow_iceberg
    from txnformat.views.iceberg_table import IcebergTable, key_of, without_old

    steps = follow_iceberg(IcebergTable(), topic.directory, topic.topic_id)
    table = committer.read(steps).table
    if table.metadata is not None:
        for path in without_old(table, before_ms):
            hold(key_of(path, table.metadata.location, topic.directory))
    return ""


def _foreign(topic: TopicState, version: int) -> str:
    return (
        f"another program wrote version {version} of the published table of {topic.name}: "
        "txnlog publish --rebuild repairs it"
    )
