"""Publishing: topics as tables of other engines, all at one entry, without a copy of any record.

First embedded records become files (a seal), and files that hold other records besides are written anew (a
compaction of these parts alone). Where that cannot be, since an open transaction holds a seal back, the entry
is lower. Then each table gets a version, by one conditional create; the manifest comes last.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from txnformat.admin.compaction import compact_parts, seal_and_list
from txnformat.admin.publishing.delta import DeltaView
from txnformat.admin.publishing.formats import View, require_pyiceberg
from txnformat.admin.publishing.reports import (
    DELTA,
    FORMATS,
    ICEBERG,
    OFFSETS,
    HeldBack,
    KnownTables,
    Maintained,
    PublishedTopic,
    PublishReport,
)
from txnformat.admin.topics import DamagedTopic
from txnformat.arguments import check_flags, each_text, is_text
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
from txnformat.store.base import is_encrypted
from txnformat.types import TopicPartition
from txnformat.views.manifests import Manifest, write_manifest
from txnformat.views.shown import PartOf, ShownTopic, shown_at

__all__ = ["checked_format", "publish", "publish_by_settings", "publishes"]

PASSES = 3
"""How often files are written anew before the entry is lowered: others may write such files meanwhile."""

logger = logging.getLogger("txnlog")
_T = TypeVar("_T")


def view_of(name: str, committer: Committer, known: KnownTables, *, rebuild: bool) -> View:
    """Return a format. Raises InvalidInputError of kinds ``no-pyiceberg`` and ``view-of-encrypted-log``."""
    if is_encrypted(committer.store):
        raise InvalidInputError(
            "an encrypted log cannot be published: other engines cannot open its files",
            kind="view-of-encrypted-log",
            hint="read it with txnlog; for other engines copy topics into a log without encryption",
            path=committer.store.url,
        )
    if name != ICEBERG:
        return DeltaView(committer, known, rebuild=rebuild, with_offsets=name == OFFSETS)
    require_pyiceberg()
    from txnformat.admin.publishing.iceberg import IcebergView

    return IcebergView(committer, known, rebuild=rebuild)


def publishes(topic: TopicState, format_: str = DELTA) -> bool:
    """Return whether a topic's settings say that maintenance publishes it."""
    return format_ in str(value_of(topic.settings, "publish.formats")).split(",")


def checked_format(format_: object) -> str:
    """Return a format that a user names. Raises InvalidInputError of kind ``unknown-view-format``."""
    if not is_text(format_) or format_ not in FORMATS:
        raise InvalidInputError(
            f"{repr_of(format_, 80)} is not a format of views",
            kind="unknown-view-format",
            hint=f"use {', '.join(FORMATS)}",
        )
    return str(format_)


def publish(
    committer: Committer,
    sidecars: SidecarCache,
    known: KnownTables,
    topics: Sequence[str] | None = None,
    *,
    format_: str = DELTA,
    rebuild: bool = False,
) -> PublishReport:
    """Publish topics; see :meth:`txnformat.log.TxnLog.publish`.

    ``known``: tables as this process saw them last; changed here.
    """
    name = checked_format(format_)
    check_flags(rebuild=rebuild)
    each_text("topics", topics or (), "publish")
    publication = _Publication(committer, sidecars)
    state = committer.refresh()
    view = view_of(name, committer, known, rebuild=rebuild)
    (report,) = publication.run(state, [_chosen(view, state, topics)])
    return report


def publish_by_settings(committer: Committer, sidecars: SidecarCache, known: KnownTables) -> Maintained:
    """Publish all topics whose settings say so; a table that another program has changed, or that is damaged,
    is left out.

    Formats that show all records are published at one entry, and the one that shows compacted files at an
    entry of its own.
    """
    groups = ([one for one in FORMATS if one != OFFSETS], [OFFSETS])
    found = [_by_settings(committer, sidecars, known, formats) for formats in groups]
    return Maintained(
        tuple(report for one in found for report in one.reports),
        tuple(topic for one in found for topic in one.damaged),
    )


def _by_settings(
    committer: Committer, sidecars: SidecarCache, known: KnownTables, formats: Sequence[str]
) -> Maintained:
    state = committer.refresh()
    damaged: list[DamagedTopic] = []
    left_out: set[str] = set()
    while True:
        attempt = _Publication(committer, sidecars, damaged=[])
        try:
            chosen = [_asked_for(one, state, left_out, committer, known, attempt) for one in formats]
            reports = attempt.run(state, [one for one in chosen if one is not None and one.topic_ids])
            return Maintained(tuple(reports), (*damaged, *(attempt.damaged or ())))
        except (ConflictError, CorruptDataError, InvalidInputError, NotFoundError) as error:
            if error.kind in ("view-held-back", "publish-superseded", "unknown-topic", "topic-gone"):
                logger.info("not published: %s", error)
                return Maintained((), (*damaged, *(attempt.damaged or ())))
            bad = _topic_of(state, error)
            if bad is None or bad.topic_id in left_out:
                raise
            left_out.add(bad.topic_id)
            damaged.append(DamagedTopic(bad.name, error.kind, str(error)))


def _topic_of(state: LogState, error: TxnLogError) -> TopicState | None:
    """Return the topic that an error is about; None: it is about none."""
    name, object_ = error.values.get("topic"), str(error.values.get("object", ""))
    for topic_id, topic in state.topics.items():
        if error.values.get("topic_id") == topic_id or name == topic.name:
            return topic
        if f"{topic.directory}/" in object_:
            return topic
    return None


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Topics to publish in a format."""

    view: View
    topic_ids: tuple[str, ...]
    """The topics that the format can have, by id."""
    refused: tuple[tuple[str, str], ...] = ()


def _asked_for(
    format_: str,
    state: LogState,
    left_out: set[str],
    committer: Committer,
    known: KnownTables,
    attempt: _Publication,
) -> _Chosen | None:
    """Return the topics whose settings ask for a format; those that it cannot have are damaged ones."""
    topics = [
        one
        for one in sorted(state.topics.values(), key=lambda one: one.name)
        if publishes(one, format_) and one.topic_id not in left_out
    ]
    if not topics:
        return None
    view = attempt.tried(topics[0], partial(view_of, format_, committer, known, rebuild=False))
    if view is None:
        return None
    return _Chosen(
        view, tuple(one.topic_id for one in topics if attempt.tried(one, partial(_is_possible, view, one)))
    )


def _is_possible(view: View, topic: TopicState) -> bool:
    """Return True. Raises InvalidInputError if a format has no table for a topic."""
    view.check(topic)
    return True


class _Publication:
    """One publication.

    ``damaged``: gets the topics with a table that cannot be published; None: the first such error ends the
    publication.
    """

    def __init__(
        self, committer: Committer, sidecars: SidecarCache, damaged: list[DamagedTopic] | None = None
    ) -> None:
        self._committer = committer
        self._sidecars = sidecars
        self.damaged = damaged
        self._compacted = 0
        self._compacted_only = False

    def tried(self, topic: TopicState, call: Callable[[], _T]) -> _T | None:
        """Return what a call about a table gives; None: it failed, and the topic is noted as damaged."""
        try:
            return call()
        except (ConflictError, CorruptDataError, InvalidInputError) as error:
            if self.damaged is None or error.kind == "publish-superseded":
                raise
            self.damaged.append(DamagedTopic(topic.name, error.kind, str(error)))
            return None

    def run(self, state: LogState, chosen: Sequence[_Chosen]) -> list[PublishReport]:
        """Publish at one entry; return a report for each format with a topic."""
        tables = {
            (one.view.name, topic_id): table
            for one in chosen
            for topic_id in one.topic_ids
            if (table := self._table(one.view, state.topics[topic_id])) is not None
        }
        if not tables:
            return []
        topic_ids = sorted({topic_id for _, topic_id in tables}, key=lambda one: state.topics[one].name)
        self._compacted_only = any(one.view.compacted_only for one in chosen)
        if not self._compacted_only:
            self._committer.seal()  # embedded records become files
            self._spill_embedded(topic_ids)
        entry, shown, held = self._settled(topic_ids)
        floor = max((table.entry for table in tables.values()), default=-1)
        if held and (entry < floor or entry < 0):
            raise _held_back(held[0], entry, f"entry {floor} was published")
        now_ms = self._committer.store.store_time_ms()
        return [self._publish(one, tables, shown, entry, now_ms, state, held) for one in chosen]

    def _spill_embedded(self, topic_ids: Sequence[str]) -> None:
        """Let embedded records that an open transaction holds back become files, too: else it would hold back
        all tables.
        """
        for topic_id in set(topic_ids).intersection(topics_embedded(self._committer.state)):
            try:
                self._committer.spill(topic_id)
            except CorruptDataError as error:
                logger.warning("tables show an older entry, since records cannot be read: %s", error)

    def _table(self, view: View, topic: TopicState) -> Any:
        return self.tried(topic, lambda: view.follow(topic))

    def _publish(
        self,
        one: _Chosen,
        tables: Mapping[tuple[str, str], Any],
        shown: Sequence[ShownTopic],
        entry: int,
        now_ms: int,
        state: LogState,
        held: tuple[HeldBack, ...],
    ) -> PublishReport:
        """Publish the tables of a format, and say so in a manifest."""
        done: list[PublishedTopic] = []
        for each in shown:
            table = tables.get((one.view.name, each.topic.topic_id))
            if table is not None:
                made = self.tried(each.topic, partial(one.view.publish, each, table, entry, now_ms))
                done += [made] if made is not None else []
        manifest = None
        if done and all(each.superseded_by is None for each in done):
            content = Manifest(
                one.view.name,
                state.log_id,
                entry,
                now_ms,
                {each.topic_id: one.view.at(each) for each in done},
            )
            is_likely = not any(each.is_new for each in done)
            manifest = self._committer.read(write_manifest(content, is_likely=is_likely))
        return PublishReport(one.view.name, entry, tuple(done), manifest, held, self._compacted, one.refused)

    # The files.

    def _settled(self, topic_ids: Sequence[str]) -> tuple[int, list[ShownTopic], tuple[HeldBack, ...]]:
        """Return the last entry that can be shown, what shows it, and what holds later ones back; what can be
        written anew for it, was.
        """
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
        """Write parts anew; ``together``: into as few files as they fit in, else into one for each source, so
        that no file mixes what an older entry shows with newer records.
        """
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
        """Return the last entry at which no file has a problem that nothing can mend now, and what shows it;
        None: the newest entry.

        ``cut``: the entry to begin with; None: the newest. ``held``: gets the files because of which the
        entry is lowered first. ``all_problems``: lower it because of every problem.
        """
        can_mend = LIFECYCLE in state.features.reader and not all_problems
        while True:
            entry = state.entry if cut is None else cut
            try:
                shown = [
                    shown_at(self._sidecars, state, topic, entry, compacted_only=self._compacted_only)
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
                if not (can_mend and one.can_be_written_anew(one.files[key]))
            ]
            if not bad:
                return cut, shown
            if not held:
                held += [_held(state, one, key, reason) for one, key, reason in bad]
            cut = min(one.files[key].min_entry for one, key, _ in bad) - 1


def _chosen(view: View, state: LogState, names: Sequence[str] | None) -> _Chosen:
    """Return the topics to publish.

    Raises about a topic that is named and cannot be published; of all topics, those are left out.
    """
    found: list[str] = []
    refused: list[tuple[str, str]] = []
    topics = sorted(state.topics.values(), key=lambda topic: topic.name)
    wanted = topics if names is None else [state.topic(name) for name in dict.fromkeys(names)]
    for topic in wanted:
        try:
            view.check(topic)
            found.append(topic.topic_id)
        except InvalidInputError as error:
            if names is not None:
                raise
            refused.append((topic.name, "; ".join(error.problems)))
    if not found:
        raise InvalidInputError(
            ["there is no topic to publish", *(f"{name}: {reason}" for name, reason in refused)],
            kind="nothing-to-publish",
            hint=f"create a topic, or name one that {view.name} can have",
        )
    return _Chosen(view, tuple(found), tuple(refused))


def _sources(
    sidecars: SidecarCache, state: LogState, parts: Sequence[PartOf], *, together: bool
) -> Iterator[Source]:
    """Yield the parts as they are listed in a state; ``together``: those as one that follow each other in one
    list.
    """
    for key, some in groupby(parts, lambda one: one.key):
        starts = {one.part.range.start for one in some}
        for listed in sidecars.live_lists(state, key):
            run: list[SegmentPart] = []
            for part in listed:
                is_wanted = part.range.start in starts
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
        f"no entry can be published now ({first.reason}), and no older one either ({why})",
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
        waits_for = "txnlog upgrade, which allows files to be rewritten"
    elif file.is_sealed and shown.compacted_only:
        waits_for = "a compaction of the topic: txnlog compact, or txnlog maintain all"
    elif file.is_sealed:
        waits_for = "the end of other processes' compactions"
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
