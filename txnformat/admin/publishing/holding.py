"""Published views hold objects back from a vacuum: files of their tables, also of older versions for a time, and the versions themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain

from txnformat import keys
from txnformat.client.committer import Committer
from txnformat.core.state import LogState, TopicState
from txnformat.core.topics.settings import SETTINGS, value_of
from txnformat.errors import ConflictError, CorruptDataError
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

    directories: set[str] = field(default_factory=set)
    """Directories of topics, which have tables."""
    newest_manifest: int | None = None
    """Entry of the newest manifest."""

    def add(self, key: str) -> None:
        """Take in a key of the root."""
        name = keys.delta_name(key)
        if name is not None:
            self.directories.add(name.directory)
        manifest = keys.manifest_name(key)
        if manifest is not None:
            newest = self.newest_manifest
            self.newest_manifest = manifest.entry if newest is None else max(newest, manifest.entry)


def published(
    committer: Committer, state: LogState, listed: ListedViews, now_ms: int, hold: Callable[[str], object]
) -> Published:
    """Return what views hold back at a time of the store; ``hold`` is called with the key of each file that a table has, or had within its hold time.

    While a topic has an erasure that is not complete, older versions of its table hold nothing back.
    Requests: for each topic with a table 1 LIST, and 1 GET for its newest checkpoint and each version since.
    """
    found = Published()
    topics = {topic.directory: topic for topic in state.topics.values()}
    erasing = {one.topic_id for one in state.erasures.values() if one.complete_entry < 0}
    holds = [0]
    for directory in sorted(listed.directories & topics.keys()):
        topic = topics[directory]
        hold_ms = int(value_of(topic.settings, "publish.hold.ms"))
        holds.append(hold_ms)
        before_ms = now_ms + 1 if topic.topic_id in erasing else now_ms - hold_ms
        try:
            steps = follow_table(DeltaTable(), directory, topic.topic_id, strict=False)
            table, foreign, undecoded = committer.read(steps)
            if undecoded is not None:
                raise undecoded
        except (ConflictError, CorruptDataError) as error:
            found.directories.add(directory)
            found.notes.append(
                f"the published table of {topic.name} cannot be read, so all files of the topic stay: {error}"
            )
            continue
        table = without_tombstones(table, before_ms)
        for path in chain(table.files, table.removed):
            hold(f"{directory}/{path}")
        if foreign is not None:
            found.notes.append(_foreign(topic, foreign))
    if listed.newest_manifest is not None:
        hold_ms = max(holds) or int(SETTINGS["publish.hold.ms"].default)
        found.manifests_from = min(
            listed.newest_manifest, committer.read(last_entry_at(state, now_ms - hold_ms))
        )
    return found


def _foreign(topic: TopicState, version: int) -> str:
    return (
        f"another program wrote version {version} of the published table of {topic.name}: "
        "txnlog publish --rebuild states it anew"
    )
