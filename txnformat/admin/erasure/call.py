"""The call: what it checks, the request, passes while it can make them, and what remains to be done."""

from __future__ import annotations

import hashlib
import hmac
import logging
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from txnformat.admin.compaction import seal_and_list
from txnformat.admin.erasure.rewriting import Rewriting
from txnformat.admin.erasure.status import ErasureStatus, status_of
from txnformat.arguments import check_flags, is_text, is_utf8
from txnformat.client.committer import Committer
from txnformat.core.lifecycle.erasure import check_open
from txnformat.core.lifecycle.features import check_removal
from txnformat.core.lifecycle.operations import AbandonErasure, AdvanceErasure, PartitionEnd, RequestErasure
from txnformat.core.lifecycle.state import COMPLETE_MAX, ErasureState
from txnformat.core.lifecycle.touching import begun_by
from txnformat.core.state import LogState, TopicState
from txnformat.errors import ConflictError, InvalidInputError, NotFoundError, repr_of
from txnformat.predicates.tree import Constant
from txnformat.reading.matching import (
    FoundFile,
    Matcher,
    condition_of,
    files_of_part,
    matches,
    unlisted_files,
)
from txnformat.reading.plan import ReadPlan, plan_read
from txnformat.reading.resolving import on_newest, read_plan
from txnformat.reading.sealed import SidecarCache
from txnformat.types import IsolationLevel, TopicPartition

__all__ = ["ErasureReport", "abandon", "erase"]

KEY_CHARS_MIN, KEY_CHARS_MAX = 32, 1_000
REQUESTED_BY_BYTES_MAX = 1_000
PASSES = 10
"""Most passes of a call: the second is due when transactions have ended, a further one when writers were
faster than the seal."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """The effect of :meth:`txnformat.log.TxnLog.erase`."""

    topic: str
    dry_run: bool
    """Nothing was changed: the files and rows are what an erasure would find now."""
    files: tuple[str, ...]
    """Keys of the files that held matching rows when the call looked."""
    rows: int
    """Matching rows in them, also rows that no reader sees: aborted ones, and those that no batch names."""
    files_read: int
    rows_read: int
    key: str
    """Key of the condition's hash: keep it, and give it to the next call with the same condition. Empty after
    a dry run."""
    status: ErasureStatus | None
    """How far the erasure has come; None of a dry run."""
    is_new: bool = False
    """Whether the call began the erasure. If False, it went on with one of the same condition and key, or was
    a dry run."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def erase(
    committer: Committer,
    sidecars: SidecarCache,
    topic: str,
    where: str,
    *,
    requested_by: str,
    key: str | None = None,
    dry_run: bool = False,
    all_rows: bool = False,
) -> ErasureReport:
    """Erase records; see :meth:`txnformat.log.TxnLog.erase`."""
    check_flags(dry_run=dry_run, all_rows=all_rows)
    _check(requested_by, key)
    state = committer.refresh()
    check_removal(state)
    found = state.topic(topic)
    condition = condition_of(where, found.schema)
    if condition.root == Constant(True) and not all_rows:
        raise _all_rows(found.name)
    matcher = Matcher(sidecars, found, condition)
    if not dry_run:
        seal_and_list(committer, found.topic_id)
        state = committer.refresh()
    known = None if key is None or dry_run else _known(state, found, where, key)
    is_new = known is None and not dry_run
    if known is None:
        on_newest(committer.refresh, partial(_look, matcher), state)
        if not all_rows and not _keeps_some(committer, sidecars, state, matcher):
            raise _all_rows(found.name)
    if dry_run:
        return _report(matcher, "", None)
    if key is None:
        key = f"{committer.ids.new()}{committer.ids.new()}".replace("-", "")
    if known is None:
        request = RequestErasure(
            committer.ids.new(), found.topic_id, condition.columns, _hash(found, where, key), requested_by
        )
        committer.commit(committer.intend(request))
        # Another call with the key may have been first: then this one goes on with that erasure.
        state = committer.refresh()
        joined = _known(state, found, where, key)
        known = _there(state, request.erasure_id) if joined is None else joined
        is_new = known.erasure_id == request.erasure_id
    if known.rewritten_entry < 0:
        try:
            _rewrite(committer, matcher, known.erasure_id)
        except (ConflictError, NotFoundError) as error:
            if error.kind not in ("erasure-superseded", "unknown-erasure"):
                raise
            logger.debug("other clients have completed the erasure: %s", error)
    state = committer.refresh()
    return _report(matcher, key, status_of(state, _there(state, known.erasure_id)), is_new=is_new)


def abandon(committer: Committer, erasure_id: str, *, requested_by: str) -> ErasureStatus:
    """Give an erasure up; see :meth:`txnformat.log.TxnLog.abandon_erasure`."""
    _check(requested_by, None)
    state = committer.refresh()
    known = check_open(state, erasure_id)
    committer.commit(committer.intend(AbandonErasure(erasure_id, requested_by)))
    return status_of(state, known)


def _check(requested_by: object, key: object) -> None:
    is_said = _is_utf8(requested_by) and str(requested_by).strip() and str(requested_by).isprintable()
    if not is_said or len(str(requested_by).encode()) > REQUESTED_BY_BYTES_MAX:
        raise InvalidInputError(
            f"requested_by is {repr_of(requested_by, 80)}, not a text of 1 to {REQUESTED_BY_BYTES_MAX} "
            "bytes that people can read",
            kind="invalid-requested-by",
            hint="say by whom, or for which ticket; the log keeps it",
        )
    if key is not None and (
        not _is_utf8(key)
        or " " in str(key)
        or not str(key).isprintable()
        or not KEY_CHARS_MIN <= len(str(key)) <= KEY_CHARS_MAX
    ):
        raise InvalidInputError(
            f"the key of an erasure is a text of {KEY_CHARS_MIN} to {KEY_CHARS_MAX} characters without "
            "spaces",
            kind="invalid-erasure-key",
            hint="give the key that the first call returned, or 32 random hex digits",
        )


def _is_utf8(value: object) -> bool:
    return is_text(value) and is_utf8(str(value))


def _all_rows(topic: str) -> InvalidInputError:
    return InvalidInputError(
        "the condition matches every committed record of the topic",
        kind="erases-all-rows",
        hint="allow it by all_rows=True (--all-rows); or delete the topic",
        topic=topic,
    )


def _hash(topic: TopicState, where: str, key: str) -> str:
    return hmac.new(key.encode(), f"{topic.topic_id}\n{where}".encode(), hashlib.sha256).hexdigest()


def _known(state: LogState, topic: TopicState, where: str, key: str) -> ErasureState | None:
    wanted = _hash(topic, where, key)
    for one in state.erasures.values():
        if one.topic_id == topic.topic_id and hmac.compare_digest(one.condition, wanted):
            return one
    return None


def _there(state: LogState, erasure_id: str) -> ErasureState:
    """Return an erasure that was in the state before: one leaves it when it is complete, or abandoned."""
    known = state.erasures.get(erasure_id)
    if known is None:
        raise NotFoundError(
            f"the state does not keep the erasure any more: it is complete, and {COMPLETE_MAX} others "
            "were completed after it, or it was abandoned",
            kind="unknown-erasure",
            hint="`txnlog history --all` shows its complete_erasure or abandon_erasure; if it was "
            "abandoned, erase again with another key",
            erasure_id=erasure_id,
        )
    return known


def _keeps_some(committer: Committer, sidecars: SidecarCache, state: LogState, matcher: Matcher) -> bool:
    """Return whether nothing matches, or a committed record that a trim has not removed stays; files may have
    other rows, which say nothing.
    """
    if not any(one.matching for one in matcher.seen.values()):
        return True
    topic = matcher.topic.name

    def planned(state: LogState) -> ReadPlan:
        return plan_read(sidecars, state, topic, isolation=IsolationLevel.SNAPSHOT)

    plan = on_newest(committer.refresh, planned, state)
    batches = read_plan(sidecars, committer.refresh, plan, matcher.where.columns)
    with closing(batches):
        return not all(matches(matcher.where, batch).all() for batch in batches)


def _look(matcher: Matcher, state: LogState) -> None:
    """Read all files of the topic that the matcher does not know yet."""
    topic = matcher.fit(state.topic_of(matcher.topic.topic_id, "an erasure"))
    for file in _files(matcher.sidecars, state, topic):
        matcher.is_dirty(file)


def _files(sidecars: SidecarCache, state: LogState, topic: TopicState) -> list[FoundFile]:
    """Return all files of a topic that the state leads to."""
    found: dict[str, FoundFile] = {}
    for number in range(topic.partitions):
        key = TopicPartition(topic.topic_id, number)
        start = state.partition(key).log_start
        for part in sidecars.live_parts(state, key):
            found |= {one.record.key: one for one in files_of_part(sidecars, key, part, start)}
    found |= {one.record.key: one for one in unlisted_files(sidecars, state, topic)}
    return list(found.values())


def _rewrite(committer: Committer, matcher: Matcher, erasure_id: str) -> None:
    """Make passes until the erasure is rewritten, or transactions have to end first."""
    rewriting = Rewriting(committer, matcher, erasure_id)
    for _ in range(PASSES):
        known = _there(committer.refresh(), erasure_id)
        if known.ends_entry < 0 and not begun_by(committer.state, known.entry):
            known = _advance(committer, known, {})  # fixes the ends, before what lies below them is listed
            seal_and_list(committer, known.topic_id)
        if known.rewritten_entry >= 0:
            return
        known = _advance(committer, known, rewriting.run())
        if known.rewritten_entry >= 0 or _must_wait(committer.refresh(), known):
            return


def _must_wait(state: LogState, known: ErasureState) -> bool:
    """Return whether transactions have to end before the erasure can come further."""
    if known.ends_entry < 0:
        return bool(begun_by(state, known.entry))
    reached = {one.partition: one.end_offset for one in known.reached}
    return any(
        state.partition(TopicPartition(known.topic_id, one.partition)).last_stable_offset < one.end_offset
        for one in known.ends
        if reached.get(one.partition, 0) < one.end_offset
    )


def _advance(committer: Committer, known: ErasureState, reached: dict[int, int]) -> ErasureState:
    """Say how far the erasure has come; another client may have come further."""
    if known.rewritten_entry >= 0:
        return known
    before = {one.partition: one.end_offset for one in known.reached}
    ends = tuple(
        PartitionEnd(number, end) for number, end in sorted(reached.items()) if end > before.get(number, 0)
    )
    may_fix = known.ends_entry < 0 and not begun_by(committer.state, known.entry)
    if ends or may_fix or known.ends_entry >= 0:
        try:
            committer.commit(committer.intend(AdvanceErasure(known.erasure_id, ends)))
        except ConflictError as error:
            if error.kind != "erasure-superseded":
                raise
            logger.debug("another client has advanced the erasure: %s", error)
    return _there(committer.refresh(), known.erasure_id)


def _report(
    matcher: Matcher, key: str, status: ErasureStatus | None, *, is_new: bool = False
) -> ErasureReport:
    seen = matcher.seen
    return ErasureReport(
        matcher.topic.name,
        status is None,
        tuple(sorted(name for name, one in seen.items() if one.matching)),
        sum(one.matching for one in seen.values()),
        len(seen),
        sum(one.rows for one in seen.values()),
        key,
        status,
        is_new,
    )
