"""Publishing: topics as tables of other engines, all at one entry, without a copy of any record.

First embedded records become files (a seal), and files that hold other records besides are written anew (a compaction of these parts alone).
Where that cannot be, since an open transaction holds a seal back, the entry is lower. Then each table gets a version, by one conditional create; the manifest comes last.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from txnformat import keys
from txnformat.admin.compaction import compact_parts, seal_and_list
from txnformat.admin.topics import DamagedTopic
from txnformat.arguments import check_flags, is_text, items
from txnformat.client.committer import Committer
from txnformat.core.sealing.segment_list import SegmentPart
from txnformat.core.state import LIFECYCLE, LogState, TopicState
from txnformat.core.topics.settings import value_of
from txnformat.errors import (
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    TxnLogError,
    repr_of,
)
from txnformat.protocol.unembedding import topics_embedded
from txnformat.reading.compacting import Source
from txnformat.reading.sealed import SidecarCache
from txnformat.types import TopicPartition
from txnformat.views.delta_log import create_version, follow_table, old_keys, write_checkpoint
from txnformat.views.delta_table import (
    CHECKPOINT_VERSIONS,
    DeltaTable,
    change_of,
    folded,
    without_tombstones,
)
from txnformat.views.delta_types import delta_schema
from txnformat.views.manifests import Manifest, TableAt, write_manifest
from txnformat.views.shown import PartOf, ShownTopic, shown_at

__all__ = [
    "DELTA",
    "FORMATS",
    "HeldBack",
    "Maintained",
    "PublishReport",
    "PublishedTopic",
    "publish",
    "publish_by_settings",
    "publishes",
]

DELTA = "delta"
FORMATS = (DELTA,)
PASSES = 3
"""How often files are written anew before the entry is lowered: others may write such files meanwhile."""
ATTEMPTS = 20
"""How often a version is tried, when other processes publish all the time."""

logger = logging.getLogger("txnlog")


@dataclass(frozen=True, slots=True)
class PublishedTopic:
    """A topic's table after a publication."""

    topic: str
    topic_id: str
    directory: str
    """Directory of the table, relative to the root."""
    version: int
    """The version that shows the publication's entry; with ``superseded_by`` a later one."""
    is_new: bool
    """This call made the version: there was something to change."""
    files: int
    added: int
    """Files that this call added."""
    removed: int
    """Files that this call removed."""
    superseded_by: int | None = None
    """A later entry that another process has published meanwhile."""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Something because of which a later entry could not be published."""

    topic: str
    file: str
    reason: str
    waits_for: str
    """The action or the event after which it can be."""


@dataclass(frozen=True, slots=True)
class PublishReport:
    """The effect of :meth:`txnformat.log.TxnLog.publish`."""

    format: str
    entry: int
    """All tables show this entry."""
    topics: tuple[PublishedTopic, ...]
    """The topics that were published, by name."""
    manifest: str | None
    """Key of the manifest. If None, another process has published a later entry meanwhile."""
    held_back: tuple[HeldBack, ...] = ()
    """The reasons why the entry is not the log's last one."""
    compacted_parts: int = 0
    """Sealed parts that were written anew first."""
    refused: tuple[tuple[str, str], ...] = ()
    """Topics that were not published, as Delta has no such table, each with the reason."""


class Chosen(NamedTuple):
    """Topics to publish."""

    topic_ids: tuple[str, ...]
    """The topics whose columns Delta has, by id."""
    refused: tuple[tuple[str, str], ...]


def publishes(topic: TopicState, format_: str = DELTA) -> bool:
    """Return whether a topic's settings say that maintenance publishes it."""
    return format_ in str(value_of(topic.settings, "publish.formats")).split(",")


def publish(
    committer: Committer,
    sidecars: SidecarCache,
    known: MutableMapping[str, DeltaTable],
    topics: Sequence[str] | None = None,
    *,
    format_: str = DELTA,
    rebuild: bool = False,
) -> PublishReport:
    """Publish topics; see :meth:`txnformat.log.TxnLog.publish`. ``known``: tables as this process saw them last, by topic id; changed here."""
    if not is_text(format_) or format_ not in FORMATS:
        raise InvalidInputError(
            f"{repr_of(format_, 80)} is not a format of views",
            kind="unknown-view-format",
            hint=f"use {', '.join(FORMATS)}",
        )
    check_flags(rebuild=rebuild)
    return _Publication(committer, sidecars, known, rebuild=rebuild).run(items(topics, "topics"))


class Maintained(NamedTuple):
    """The publication of a round of maintenance."""

    report: PublishReport | None = None
    """The report. If None, no topic's settings ask for it, or nothing could be published."""
    damaged: tuple[DamagedTopic, ...] = ()
    """Topics with a table that could not be written."""


def publish_by_settings(
    committer: Committer, sidecars: SidecarCache, known: MutableMapping[str, DeltaTable]
) -> Maintained:
    """Publish all topics whose settings say so, at one entry; those with a table that another program has changed, or that is damaged, are left out."""
    state = committer.refresh()
    names = {topic.topic_id: topic.name for topic in state.topics.values() if publishes(topic)}
    damaged: list[DamagedTopic] = []
    while names:
        try:
            wanted = sorted(names.values())
            return Maintained(publish(committer, sidecars, known, wanted), tuple(damaged))
        except (ConflictError, CorruptDataError, InvalidInputError, NotFoundError) as error:
            if error.kind in ("view-held-back", "publish-superseded", "unknown-topic", "topic-gone"):
                logger.info("not published: %s", error)
                break
            bad = _topic_of(state, names, error)
            if bad is None:
                raise
            damaged.append(DamagedTopic(names.pop(bad), error.kind, str(error)))
    return Maintained(None, tuple(damaged))


def _topic_of(state: LogState, names: Mapping[str, str], error: TxnLogError) -> str | None:
    """Return which of some topics, by id, an error is about; None: it is about none of them."""
    name, object_ = error.values.get("topic"), str(error.values.get("object", ""))
    for topic_id in names:
        topic = state.topics[topic_id]
        if error.values.get("topic_id") == topic_id or name == topic.name:
            return topic_id
        if object_.startswith(keys.delta_prefix(topic.directory)):
            return topic_id
    return None


class _Publication:
    """One publication."""

    def __init__(
        self,
        committer: Committer,
        sidecars: SidecarCache,
        known: MutableMapping[str, DeltaTable],
        *,
        rebuild: bool,
    ) -> None:
        self._committer = committer
        self._sidecars = sidecars
        self._known = known
        self._rebuild = rebuild
        self._compacted = 0

    def run(self, names: Sequence[str] | None) -> PublishReport:
        state = self._committer.refresh()
        chosen = _chosen(state, names)
        tables = {topic_id: self._table(state.topics[topic_id]) for topic_id in chosen.topic_ids}
        self._committer.seal()  # embedded records become files
        self._spill_embedded(chosen.topic_ids)
        entry, shown, held = self._settled(chosen.topic_ids)
        floor = max((table.entry for table in tables.values()), default=-1)
        if held and (entry < floor or entry < 0):
            raise _held_back(held[0], entry, f"entry {floor} was published")
        now_ms = self._committer.store.store_time_ms()
        done = [self._publish(one, tables[one.topic.topic_id], entry, now_ms) for one in shown]
        manifest = None
        if all(one.superseded_by is None for one in done):
            manifest = self._committer.read(
                write_manifest(
                    Manifest(
                        DELTA,
                        state.log_id,
                        entry,
                        now_ms,
                        {one.topic_id: TableAt(one.topic, one.directory, one.version) for one in done},
                    ),
                    is_likely=not any(one.is_new for one in done),
                )
            )
        return PublishReport(DELTA, entry, tuple(done), manifest, held, self._compacted, chosen.refused)

    def _spill_embedded(self, topic_ids: Sequence[str]) -> None:
        """Let embedded records that an open transaction holds back become files, too: else it would hold back all tables."""
        for topic_id in set(topic_ids).intersection(topics_embedded(self._committer.state)):
            try:
                self._committer.spill(topic_id)
            except CorruptDataError as error:
                logger.warning("tables show an older entry, since records cannot be read: %s", error)

    def _table(self, topic: TopicState) -> DeltaTable:
        known = self._known.get(topic.topic_id, DeltaTable())
        steps = follow_table(known, topic.directory, topic.topic_id, strict=not self._rebuild)
        found = self._committer.read(steps).table
        self._known[topic.topic_id] = found
        return found

    # The files.

    def _settled(self, topic_ids: Sequence[str]) -> tuple[int, list[ShownTopic], tuple[HeldBack, ...]]:
        """Return the last entry that can be shown, what shows it, and what holds later ones back; what can be written anew for it, was."""
        cut: int | None = None
        held: list[HeldBack] = []
        shown: list[ShownTopic] = []
        state = self._committer.state
        for number in range(PASSES + 1):
            state = self._committer.refresh()
            is_last = number == PASSES
            cut, shown = self._lowered(state, topic_ids, cut, held, all_problems=is_last)
            wanted = [(one, parts) for one in shown if (parts := one.to_compact())]
            if not wanted:
                if not any(one.problems() for one in shown):
                    break
                cut, shown = self._lowered(state, topic_ids, cut, held, all_problems=True)
                break
            seal_and_list(self._committer)
            state = self._committer.refresh()
            for one, parts in wanted:
                sources = list(_sources(self._sidecars, state, parts, together=cut is None))
                self._write_anew(one.topic.name, sources, together=cut is None)
        return state.entry if cut is None else cut, shown, tuple(held)

    def _write_anew(self, name: str, sources: Sequence[Source], *, together: bool) -> None:
        """Write parts anew; ``together``: into as few files as they fit in, else into one for each source, so that no file mixes what an older entry shows with newer records."""
        for group in [sources] if together else [[one] for one in sources]:
            if group:
                self._compacted += compact_parts(self._committer, self._sidecars, name, group)

    def _lowered(
        self,
        state: LogState,
        topic_ids: Sequence[str],
        cut: int | None,
        held: list[HeldBack],
        *,
        all_problems: bool,
    ) -> tuple[int | None, list[ShownTopic]]:
        """Return the last entry at which no file has a problem that nothing can mend now, and what shows it; None: the newest entry.

        ``cut``: the entry to begin with; None: the newest. ``held``: gets the files because of which the entry is lowered first. ``all_problems``: lower it because of every problem.
        """
        can_mend = LIFECYCLE in state.features.reader and not all_problems
        while True:
            entry = state.entry if cut is None else cut
            try:
                shown = [
                    shown_at(self._sidecars, state, topic, entry)
                    for topic_id in topic_ids
                    if (topic := state.topics.get(topic_id)) is not None and topic.created_entry <= entry
                ]
            except NotFoundError as error:  # records of that entry were removed
                if not held:
                    raise
                raise _held_back(held[0], entry, error.what) from error
            bad = [
                (one, key, reason)
                for one in shown
                for key, reason in one.problems().items()
                if not (can_mend and one.files[key].can_be_written_anew(entry))
            ]
            if not bad:
                return cut, shown
            if not held:
                held += [_held(state, one, key, reason) for one, key, reason in bad]
            cut = min(one.files[key].min_entry for one, key, _ in bad) - 1

    # The versions.

    def _publish(self, shown: ShownTopic, table: DeltaTable, entry: int, now_ms: int) -> PublishedTopic:
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
            table = self._table(topic)
        raise ConflictError(
            "other processes publish the topic all the time",
            kind="publish-superseded",
            hint="publish again; the log is not concerned",
            topic=topic.name,
        )

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


def _chosen(state: LogState, names: Sequence[str] | None) -> Chosen:
    """Return the topics to publish. Raises about a topic that is named and cannot be published; of all topics, those are left out."""
    found: list[str] = []
    refused: list[tuple[str, str]] = []
    topics = sorted(state.topics.values(), key=lambda topic: topic.name)
    wanted = topics if names is None else [state.topic(name) for name in dict.fromkeys(names)]
    for topic in wanted:
        try:
            delta_schema(topic.schema.arrow_schema, topic.name)
            found.append(topic.topic_id)
        except InvalidInputError as error:
            if names is not None:
                raise
            refused.append((topic.name, "; ".join(error.problems)))
    if not found:
        raise InvalidInputError(
            ["there is no topic to publish", *(f"{name}: {reason}" for name, reason in refused)],
            kind="nothing-to-publish",
            hint="create a topic, or name one whose columns Delta has",
        )
    return Chosen(tuple(found), tuple(refused))


def _sources(
    sidecars: SidecarCache, state: LogState, parts: Sequence[PartOf], *, together: bool
) -> Iterator[Source]:
    """Yield the parts as they are listed in a state; ``together``: those as one that follow each other in one list."""
    for key, some in groupby(parts, lambda one: one.key):
        starts = {one.part.range.start for one in some}
        for named in state.segment_lists:
            run: list[SegmentPart] = []
            for part in sidecars.listed(named, state, key):
                is_wanted = part.range.start in starts and part.range.end > state.partition(key).log_start
                if is_wanted and (together or not run):
                    run.append(part)
                elif is_wanted:
                    yield Source(key, run)
                    run = [part]
                elif run:
                    yield Source(key, run)
                    run = []
            if run:
                yield Source(key, run)


def _held_back(first: HeldBack, possible: int, why: str) -> ConflictError:
    return ConflictError(
        f"no entry can be published now: {first.reason}; of older entries: {why}",
        kind="view-held-back",
        hint=f"publish again after {first.waits_for}; no table was changed",
        topic=first.topic,
        file=first.file,
        possible=possible,
    )


def _held(state: LogState, shown: ShownTopic, key: str, reason: str) -> HeldBack:
    """Return why a file holds later entries back."""
    file = shown.files[key]
    if LIFECYCLE not in state.features.reader and file.is_sealed:
        waits_for = "txnlog upgrade, which allows that files are written anew"
    elif file.is_sealed:
        waits_for = "other processes have ended their compactions"
    else:
        waits_for = f"the end of {_oldest_open(state, shown.topic)}"
    return HeldBack(shown.topic.name, key, reason, waits_for)


def _oldest_open(state: LogState, topic: TopicState) -> str:
    """Return the transactions that hold seals of a topic back, for a message."""
    found = set()
    for number in range(topic.partitions):
        for producer_id, epoch in state.partition(TopicPartition(topic.topic_id, number)).open:
            names = [name for name, one in state.transactional_ids.items() if one.producer_id == producer_id]
            found.add(names[0] if names else f"producer {producer_id}, epoch {epoch}")
            break
    shown = ", ".join(sorted(found)[:5])
    return f"the open transactions of {shown}" if shown else "the open transactions"
