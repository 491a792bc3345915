"""Versions that are in the log already: whether they hold the rows that their repetition gives, and what
follows if not.

A run that repeats a version gets "done", and its rows are left out. That is right if the log holds the same
rows. So a version says what it wrote, by topic (:mod:`txnformat.columns.multiset`), and its repetition is
held against that. Honest repetitions may differ, too: ``rand()``, sums of floats after a shuffle. So what
differs is an error that an option makes a warning; the run that wrote the version itself is only warned.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_datasource.write.messages import TaskUpload
from txnformat.columns.multiset import NO_ROWS, Multiset
from txnformat.core.app_versions.state import Content, TopicContent
from txnformat.core.intents import AppRef
from txnformat.core.operations import Append, AppVersion, Operation
from txnformat.core.state import LogState
from txnformat.errors import StaleAppVersionError

__all__ = ["NOT_COMPARABLE", "Repetition", "content_of", "differences", "rows_of"]

logger = logging.getLogger("txnlog")

TOPICS_SHOWN_MAX = 10
"""Topics that a message names; the others are counted."""

NOT_COMPARABLE = "some of the rows do not fit the topics"


def rows_of(tasks: Iterable[TaskUpload]) -> dict[str, Multiset] | None:
    """Return the rows of all tasks, by topic; None when a task had rows that no topic takes."""
    found: dict[str, Multiset] = {}
    for task in tasks:
        if task.contents is None:
            return None
        for topic, rows in task.contents.items():
            found[topic] = found.get(topic, NO_ROWS) + rows
    return found


def content_of(rows: Mapping[str, Multiset], topic_ids: Mapping[str, str]) -> Content:
    """Return rows by topic as an operation says them.

    ``topic_ids``: of the topics to say something of, by name.
    """
    return Content(
        TopicContent(topic_ids[topic], found.records, found.hash)
        for topic, found in sorted(rows.items())
        if topic in topic_ids
    )


def differences(state: LogState, there: Content, rows: Mapping[str, Multiset] | None) -> list[str]:
    """Return what distinguishes the rows of a repetition from those in the log, a sentence for each topic.

    ``there``: of the version in the log. ``rows``: of the repetition, by topic; None: some of them fit no
    topic.
    """
    if rows is None:
        return [NOT_COMPARABLE]
    # A topic that is not there any more is none that the repetition writes to, whatever its name was.
    names = {
        one.topic_id: state.topics[one.topic_id].name
        if one.topic_id in state.topics
        else f"id {one.topic_id}"
        for one in there
    }
    held = {names[one.topic_id]: (one.records, one.hash) for one in there}
    given = {topic: (one.records, one.hash) for topic, one in rows.items() if one.records}
    found = []
    for topic in sorted(held.keys() | given.keys()):
        before, after = held.get(topic, (0, "")), given.get(topic, (0, ""))
        if before == after:
            continue
        counts = f"{before[0]} rows in the log, {after[0]} in the repetition"
        found.append(f"{topic}: {counts}{', with other values' if before[0] == after[0] else ''}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """A version that was to be written, and was in the log already."""

    what: str
    """Names it, for people."""
    rows: Mapping[str, Multiset] | None
    """The rows that it would have written, as :func:`rows_of`."""
    allowed: bool
    """The user goes on although the rows differ."""
    hint: str
    """How the user can go on otherwise."""
    run_id: str | None = None
    """The run that repeats it: one that wrote the version itself is only warned. None: the runs have no
    names."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The values that identify the version, for the error."""

    def check(self, state: LogState, app: AppRef, operations: Sequence[Operation], entry: int) -> None:
        """Compare with the operations of ``entry``, which holds the version; none: it is no longer there to
        be read.

        A version that does not say what it wrote can only be counted: other numbers are a warning.

        Raises StaleAppVersionError of kind ``different-repeat``: the rows differ, and ``allowed`` is not set.
        Nothing was written.
        """
        version = next((op for op in operations if isinstance(op, AppVersion) and app.is_held_by(op)), None)
        if version is None:
            return
        if version.content is None:
            self._count(operations, version.intent, entry)
            return
        found = differences(state, version.content, self.rows)
        if not found:
            return
        more = len(found) - TOPICS_SHOWN_MAX
        told = "; ".join(found[:TOPICS_SHOWN_MAX]) + (f"; and {more} more topics" if more > 0 else "")
        if self.allowed or (self.run_id is not None and version.instance == self.run_id):
            logger.warning(
                "%s is in the log already (entry %d), with other rows than its repetition gave, which are "
                "left out: %s",
                self.what,
                entry,
                told,
            )
            return
        raise StaleAppVersionError(
            f"{self.what} is in the log already, with other rows",
            kind="different-repeat",
            hint=self.hint,
            **self.values,
            **({} if self.run_id is None else {"run_id": self.run_id, "written_by": version.instance}),
            entry=entry,
            topics=told,
        )

    def _count(self, operations: Sequence[Operation], intent: int, entry: int) -> None:
        appends = [op for op in operations if isinstance(op, Append) and op.intent == intent]
        there = sum(part.records for op in appends for part in op.partitions)
        given = None if self.rows is None else sum(found.records for found in self.rows.values())
        if there != given:
            logger.warning(
                "%s is in the log already, with %d rows (entry %d); its repetition gave %s, which are "
                "left out: the source or the "
                "query does not give the same rows again",
                self.what,
                there,
                entry,
                "rows of which some fit no topic" if given is None else f"{given} rows",
            )
