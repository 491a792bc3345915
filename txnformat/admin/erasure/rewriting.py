"""The rewriting part of an erasure: parts whose files hold matching rows get others in their place, until
none is left.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from txnformat.admin.compaction.policy import target_of
from txnformat.client.committer import Committer
from txnformat.core.lifecycle.operations import Erased, ErasedPartition
from txnformat.core.state import LogState, TopicState
from txnformat.errors import ConflictError, NotFoundError
from txnformat.persistent import Rows
from txnformat.reading.compacting import Source, Written, files_of_about, write_together
from txnformat.reading.matching import Matcher, files_of_part, matches
from txnformat.reading.replacing import Work, create_runs, is_overtaken, is_there, replacement
from txnformat.reading.resolving import on_newest
from txnformat.types import TopicPartition

__all__ = ["Rewriting"]

ATTEMPTS = 20
"""How often an entry is made anew because another client has changed segments, log starts or lists."""
ROUNDS = 100
"""How often the parts are listed anew; each round rewrites all that it finds, so other clients must have been
as fast all the time."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Removed:
    """Counts the rows that go, by partition."""

    matcher: Matcher
    records: int = 0
    newest: dict[int, int] = field(default_factory=dict)
    """The largest commit entry of what went, by partition."""

    def keep(self, batch: pa.RecordBatch) -> Rows:
        """Return a mask of the records that stay."""
        gone = matches(self.matcher.where, batch)
        if gone.any():
            self.records += int(np.count_nonzero(gone))
            numbers, entries = (
                batch.column(name).to_numpy()[gone] for name in ("_partition", "_commit_entry")
            )
            for number in set(numbers.tolist()):
                newest = int(entries[numbers == number].max())
                self.newest[number] = max(self.newest.get(number, -1), newest)
        kept: Rows = ~gone
        return kept


class Rewriting:
    """Rewrites the listed parts of a topic for one erasure."""

    def __init__(self, committer: Committer, matcher: Matcher, erasure_id: str) -> None:
        self._committer = committer
        self._matcher = matcher
        self._sidecars = matcher.sidecars
        self._erasure_id = erasure_id
        self._given_up: set[str] = set()

    def run(self) -> dict[int, int]:
        """Rewrite until all that is listed is clean; return the ends of what is listed then, by partition.

        Raises ConflictError of kind ``replace-superseded``; NotFoundError of kind ``topic-gone``.
        """
        topic_id = self._matcher.topic.topic_id
        for _ in range(ROUNDS):
            # Other clients may compact what is looked at, and a vacuum may delete it.
            state, topic, dirty = on_newest(self._committer.refresh, self._listed, self._committer.refresh())
            if not dirty:
                return {
                    number: state.partition(TopicPartition(topic_id, number)).listed_end
                    for number in range(topic.partitions)
                }
            for together in files_of_about(target_of(topic.settings), dirty):
                self._rewrite(state, together)
        raise ConflictError(
            "other clients change the segments all the time",
            kind="replace-superseded",
            hint="erase again with the same condition and key; what was rewritten before stays",
            topic=self._matcher.topic.name,
        )

    def _listed(self, state: LogState) -> tuple[LogState, TopicState, list[Source]]:
        """Return a state, the topic, and its listed parts that name a file with rows that match."""
        topic = self._matcher.fit(state.topic_of(self._matcher.topic.topic_id, "an erasure"))
        return state, topic, list(self._dirty(state, topic))

    def _dirty(self, state: LogState, topic: TopicState) -> Iterator[Source]:
        """Yield the listed parts that name a file with rows that match."""
        for number in range(topic.partitions):
            key = TopicPartition(topic.topic_id, number)
            start = state.partition(key).log_start
            for part in self._sidecars.live_parts(state, key):
                # All of them are read: each is known afterwards.
                files = files_of_part(self._sidecars, key, part, start)
                found = [self._matcher.is_dirty(file) for file in files]
                if any(found):
                    yield Source(key, [part])

    def _rewrite(self, planned: LogState, sources: Sequence[Source]) -> None:
        # Files written now are born at a state that still has their sources: a vacuum above a replace of
        # these finds them (rule of the specification, 5.19).
        state = self._committer.refresh()
        left = [
            one
            for one in sources
            if is_there(self._sidecars, state, one, planned.partition(one.key).log_start)
        ]
        if not left:
            return
        topic = self._matcher.fit(state.topics[left[0].key.topic_id])
        removed = _Removed(self._matcher)
        try:
            written = write_together(
                self._sidecars, state, topic, left, self._committer.ids.new, removed.keep
            )
        except NotFoundError as error:
            if not is_overtaken(error, self._sidecars, state, self._committer.refresh(), left):
                raise
            logger.debug("not written: other clients have changed the segments; they are looked at again")
            return
        self._replace(state, topic, left, written, removed)

    def _replace(
        self,
        planned: LogState,
        topic: TopicState,
        sources: Sequence[Source],
        written: Written,
        removed: _Removed,
    ) -> None:
        works = [Work(*one) for one in zip(sources, written.runs, strict=True)]
        index = self._committer.read(create_runs(max(0, planned.entry), topic, works, written.files))
        dirty = {
            file.record.key
            for one in sources
            for file in files_of_part(
                self._sidecars, one.key, one.parts[0], planned.partition(one.key).log_start
            )
            if self._matcher.is_dirty(file)
        }
        partitions = sorted({one.key.partition for one in sources})
        erased = Erased(
            self._erasure_id,
            removed.records,
            len(dirty - self._given_up),
            tuple(ErasedPartition(number, removed.newest.get(number, -1)) for number in partitions),
        )
        for _ in range(ATTEMPTS):
            state = self._committer.refresh()
            for one in sources:
                if not is_there(self._sidecars, state, one, planned.partition(one.key).log_start):
                    logger.debug(
                        "not replaced: other clients have changed %s; it is looked at again", one.key
                    )
                    return
            action = self._committer.read(replacement(self._sidecars, state, topic, works, index, ()))
            action = type(action)(replace(action.replace, erased=erased), action.log_starts)
            try:
                self._committer.commit(self._committer.intend(action))
            except ConflictError as error:
                if error.kind == "erasure-superseded":
                    raise
                logger.debug("made again: %s", error)
                continue
            self._given_up |= dirty
            return
