"""The decision about a trim, and about the features that it needs. Pure."""

from __future__ import annotations

from txnformat.core.intents import ChangeLog, EnableFeatures, TrimTopic
from txnformat.core.lifecycle.operations import Trim
from txnformat.core.lifecycle.pins import unread_from
from txnformat.core.lifecycle.truncation import ENTRY_AGE_MS_MIN, is_entry_age
from txnformat.core.operations import Upgrade
from txnformat.core.state import COLUMNS, KNOWN_FEATURES, LIFECYCLE, LogState, check_features
from txnformat.errors import ConflictError, InvalidInputError, UnsupportedFeatureError
from txnformat.persistent import replace
from txnformat.types import TopicPartition

__all__ = [
    "change_log",
    "check_columns",
    "check_lifecycle",
    "check_maintenance",
    "check_removal",
    "enable",
    "trim",
]


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


def change_log(state: LogState, action: ChangeLog) -> Upgrade:
    """Return the operation that sets something of the whole log; its features stay."""
    check_lifecycle(state)
    age_ms = action.truncate_older_than_ms
    if not is_entry_age(age_ms):
        raise InvalidInputError(
            f"{age_ms} ms is not an age at which entries go: it is at least {ENTRY_AGE_MS_MIN}",
            kind="invalid-age",
            hint="younger entries stay, for clients that have no news for so long",
        )
    reader, writer, maintenance = (tuple(sorted(names)) for names in state.features)
    return Upgrade(reader, writer, maintenance, truncate_older_than_ms=age_ms)


def trim(state: LogState, action: TrimTopic) -> Trim:
    """Return the operation that moves log starts, if they and the segments are still those that the caller has counted."""
    state.topic_of(action.trim.topic_id, "a trim")
    check_removal(state)
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


def check_columns(state: LogState) -> None:
    """Raise UnsupportedFeatureError unless the log allows that columns are renamed and dropped: older readers cannot read it then."""
    if COLUMNS not in state.features.reader:
        raise UnsupportedFeatureError(
            "this log does not allow that columns are renamed or dropped",
            kind="upgrade-required",
            hint="upgrade txnlog in every process that uses the log, then run `txnlog upgrade --columns`, or log.upgrade(columns=True)",
            feature=COLUMNS,
        )


def check_maintenance(state: LogState) -> None:
    """Raise UnsupportedFeatureError about features that maintenance needs and this version does not have."""
    check_features("maintenance", state.features.maintenance)


def check_removal(state: LogState) -> None:
    """Raise UnsupportedFeatureError unless the log allows that records and objects are removed or replaced, and this version knows all that its maintenance needs."""
    check_lifecycle(state)
    check_maintenance(state)
