"""Published views hold objects back from a vacuum: files of their tables, also of older versions for a time, and the versions themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from txnformat import keys
from txnformat.admin.publishing.formats import require_pyiceberg
from txnformat.client.committer import Committer
from txnformat.core.state import LogState, TopicState
from txnformat.core.topics.settings import SETTINGS, value_of
from txnformat.errors import ConflictError, CorruptDataError, InvalidInputError
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
    Requests: for each topic with a Delta table 1 LIST, and 1 GET for its newest checkpoint and each version since; with an Iceberg table 1 LIST, and 1 GET for the newest version, its manifest list and each of its manifests.
    """
    found = Published()
    listed = list(of_views)
    topics = {topic.directory: topic for topic in state.topics.values()}
    erasing = {one.topic_id for one in state.erasures.values() if one.complete_entry < 0}
    holds = [0]
    for name_of, look in (
        (_plain, partial(_look_at_delta, place=str)),
        (_with_offsets, partial(_look_at_delta, place=keys.offsets_location)),
        (keys.iceberg_name, _look_at_iceberg),
    ):
        directories = {name.directory for key in listed if (name := name_of(key)) is not None}
        for directory in sorted(directories & topics.keys()):
            topic = topics[directory]
            hold_ms = int(value_of(topic.settings, "publish.hold.ms"))
            holds.append(hold_ms)
            before_ms = now_ms + 1 if topic.topic_id in erasing else now_ms - hold_ms
            try:
                look(committer, topic, before_ms, found)
            except (ConflictError, CorruptDataError, InvalidInputError) as error:
                found.directories.add(directory)
                found.notes.append(
                    f"the published table of {topic.name} cannot be read, so all files of the topic stay: {error}"
                )
    newest: dict[str, int] = {}
    for key in listed:
        one = keys.manifest_name(key)
        if one is not None:
            newest[one.format] = max(one.entry, newest.get(one.format, 0))
    if newest:
        hold_ms = max(holds) or int(SETTINGS["publish.hold.ms"].default)
        old_entry = committer.read(last_entry_at(state, now_ms - hold_ms))
        found.manifests_from = min(*newest.values(), old_entry)
    return found


def _plain(key: str) -> keys.DeltaName | None:
    name = keys.delta_name(key)
    return None if name is None or name.has_offsets else name


def _with_offsets(key: str) -> keys.DeltaName | None:
    name = keys.delta_name(key)
    return name if name is not None and name.has_offsets else None


def _look_at_delta(
    committer: Committer,
    topic: TopicState,
    before_ms: int,
    found: Published,
    *,
    place: Callable[[str], str],
) -> None:
    """Add what a Delta table holds. ``before_ms``: files that were removed before this time are not held; ``place``: the table's directory, of the topic's."""
    directory = place(topic.directory)
    steps = follow_table(DeltaTable(), directory, topic.topic_id, strict=False)
    table, foreign, undecoded = committer.read(steps)
    if undecoded is not None:
        raise undecoded
    table = without_tombstones(table, before_ms)
    found.files.update(f"{directory}/{path}" for path in (*table.files, *table.removed))
    if foreign is not None:
        found.notes.append(_foreign(topic, foreign))


def _look_at_iceberg(committer: Committer, topic: TopicState, before_ms: int, found: Published) -> None:
    """Add what an Iceberg table holds; without pyiceberg it cannot be read. A newest version of another program does not say what the ones before it had."""
    require_pyiceberg()
    from txnformat.views.iceberg_log import follow_iceberg
    from txnformat.views.iceberg_table import IcebergTable, key_of, without_old

    steps = follow_iceberg(IcebergTable(), topic.directory, topic.topic_id)
    table = committer.read(steps).table
    if table.metadata is not None:
        location = table.metadata.location
        found.files.update(key_of(path, location, topic.directory) for path in without_old(table, before_ms))


def _foreign(topic: TopicState, version: int) -> str:
    return (
        f"another program wrote version {version} of the published table of {topic.name}: "
        "txnlog publish --rebuild states it anew"
    )
