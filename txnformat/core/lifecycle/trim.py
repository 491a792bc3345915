"""The decision about a trim, and about the features that it needs. Pure."""

from __future__ import annotations

from txnformat.core.drafts import replace
from txnformat.core.intents import EnableFeatures, TrimTopic
from txnformat.core.lifecycle.operations import Trim
from txnformat.core.lifecycle.pins import unread_from
from txnformat.core.operations import Upgrade
from txnformat.core.state import KNOWN_FEATURES, LIFECYCLE, LogState
from txnformat.errors import ConflictError, InvalidInputError, UnsupportedFeatureError
from txnformat.types import TopicPartition

__all__ = ["check_lifecycle", "enable", "trim"]


def enable(state: LogState, action: EnableFeatures) -> Upgrade:
    """Return the operation that adds features to those that the log needs."""
    unknown = [name for name in action.features if name not in KNOWN_FEATURES.reader]
    if unknown:
        raise InvalidInputError(
            [f"there is no feature {name!r:.80}" for name in unknown],
            kind="unknown-feature",
            hint=f"use {', '.join(sorted(KNOWN_FEATURES.reader))}",
        )
    if all(names.issuperset(action.features) for names in state.features):
        raise ConflictError(
            "the log is upgraded already", kind="already-upgraded", hint="nothing needs to be done"
        )
    reader, writer, maintenance = (tuple(sorted(names | {*action.features})) for names in state.features)
    return Upgrade(reader, writer, maintenance)


def trim(state: LogState, action: TrimTopic) -> Trim:
    """Return the operation that moves log starts, if they and the segments are still those that the caller has counted."""
    state.topic_of(action.trim.topic_id, "a trim")
    check_lifecycle(state)
    revisions = action.revisions or (0,) * len(action.seen)
    for part, seen, revision in zip(action.trim.partitions, action.seen, revisions, strict=True):
        known = state.partition(TopicPartition(action.trim.topic_id, part.partition))
        if known.log_start != seen or known.revision != revision:
            raise ConflictError(
                "another client has moved the log start, or compacted what lies below the new one",
                kind="trim-superseded",
                hint="call again if the log start is still too low",
                partition=part.partition,
                expected=seen,
                got=known.log_start,
                revision=known.revision,
            )
    for part, free in zip(action.trim.partitions, action.unpinned or (), strict=False):
        unread = unread_from(state, TopicPartition(action.trim.topic_id, part.partition))
        if unread is not None and part.log_start > max(unread, free):
            raise ConflictError(
                "a group or a subscription has not read all of the records, and holds them back",
                kind="records-pinned",
                hint="let it read on; setting retention.pinned.ms says for how long it may hold them back",
                partition=part.partition,
                got=part.log_start,
                unread_from=unread,
            )
    return replace(action.trim, intent=0)


def check_lifecycle(state: LogState) -> None:
    """Raise UnsupportedFeatureError unless the log allows that records are removed: older readers cannot read it then."""
    if LIFECYCLE not in state.features.reader:
        raise UnsupportedFeatureError(
            "this log does not allow that records are removed",
            kind="upgrade-required",
            hint="upgrade txnlog in every process that uses the log, then run `txnlog upgrade`, or log.upgrade()",
            feature=LIFECYCLE,
        )
