"""Published views hold objects back from a vacuum: files of their tables, also of older versions for a time, and the versions themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from txnformat import keys
from txnformat.client.committer import Committer
from txnformat.core.state import LogState, TopicState
from txnformat.core.topics.settings import SETTINGS, value_of
from txnformat.errors import ConflictError, CorruptDataError
from txnformat.protocol.cuts import last_entry_at
from txnformat.views.delta_log import follow_table
from txnformat.views.delta_table import DeltaTable, without_tombstones

__all__ = ["Published", "published"]


@dataclass(slots=True)
class Published:
    """The published views of a log, as far as a vacuum must know them."""

    files: set[str] = field(default_factory=set)
    """Keys of files that tables have, or had within their hold time."""
    directories: set[str] = field(default_factory=set)
    """Directories of topics whose table cannot be read: all of their files are held."""
    manifests_from: int = 0
    """Manifests of this entry and later ones are kept."""
    notes: list[str] = field(default_factory=list)

    def holds(self, key: str) -> bool:
        """Return whether a file, at its own key, must stay."""
        return key in self.files or (
            bool(self.directories)
            and keys.parse_data_key(key) is not None
            and key.partition("/")[0] in self.directories
        )


def published(committer: Committer, state: LogState, of_views: Iterable[str], now_ms: int) -> Published:
    """Return what views hold back at a time of the store. ``of_views``: the keys of the root that may be those of views.

    While a topic has an erasure that is not complete, older versions of its table hold nothing back.
    Requests: for each topic with a table 1 LIST, and 1 GET for its newest checkpoint and each version since.
    """
    found = Published()
    listed = list(of_views)
    topics = {topic.directory: topic for topic in state.topics.values()}
    names = [name for key in listed if (name := keys.delta_name(key)) is not None]
    erasing = {one.topic_id for one in state.erasures.values() if one.complete_entry < 0}
    holds = [0]
    for directory in sorted({name.directory for name in names} & topics.keys()):
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
        paths = (*table.files, *table.removed)
        found.files.update(f"{directory}/{path}" for path in paths)
        if foreign is not None:
            found.notes.append(_foreign(topic, foreign))
    entries = [one.entry for key in listed if (one := keys.manifest_name(key)) is not None]
    if entries:
        hold_ms = max(holds) or int(SETTINGS["publish.hold.ms"].default)
        found.manifests_from = min(max(entries), committer.read(last_entry_at(state, now_ms - hold_ms)))
    return found


def _foreign(topic: TopicState, version: int) -> str:
    return (
        f"another program wrote version {version} of the published table of {topic.name}: "
        "txnlog publish --rebuild states it anew"
    )
