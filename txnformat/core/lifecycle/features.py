"""Features of a log: the decision to add some, settings of the whole log, and the errors about those that it
lacks.

Pure.
"""

from __future__ import annotations

from txnformat.core.intents import ChangeLog, EnableFeatures
from txnformat.core.lifecycle.truncation import ENTRY_AGE_MS_MIN, is_entry_age
from txnformat.core.operations import Upgrade
from txnformat.core.state import COLUMNS, KNOWN_FEATURES, LIFECYCLE, LogState, check_features
from txnformat.errors import ConflictError, InvalidInputError, UnsupportedFeatureError

__all__ = [
    "change_log",
    "check_columns",
    "check_lifecycle",
    "check_maintenance",
    "check_removal",
    "enable",
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
            "the log is upgraded already", kind="already-upgraded", hint="no action is needed"
        )
    reader, writer, maintenance = (tuple(sorted(names | {*action.features})) for names in state.features)
    return Upgrade(reader, writer, maintenance)


def change_log(state: LogState, action: ChangeLog) -> Upgrade:
    """Return the operation that changes settings of the whole log; its features stay."""
    check_lifecycle(state)
    age_ms = action.truncate_older_than_ms
    if not is_entry_age(age_ms):
        raise InvalidInputError(
            f"{age_ms} ms is not a possible age: commit entries are kept for at least {ENTRY_AGE_MS_MIN} ms",
            kind="invalid-age",
            hint="clients that were away for a while need younger entries",
        )
    reader, writer, maintenance = (tuple(sorted(names)) for names in state.features)
    return Upgrade(reader, writer, maintenance, truncate_older_than_ms=age_ms)


def check_lifecycle(state: LogState) -> None:
    """Raise UnsupportedFeatureError unless the log allows that records are removed."""
    _check(state, LIFECYCLE, "removals", "`txnlog upgrade`, or log.upgrade()")


def check_columns(state: LogState) -> None:
    """Raise UnsupportedFeatureError unless the log allows that columns are renamed and dropped."""
    what = "renaming or dropping columns"
    _check(state, COLUMNS, what, "`txnlog upgrade --columns`, or log.upgrade(columns=True)")


def _check(state: LogState, feature: str, what: str, command: str) -> None:
    """Raise UnsupportedFeatureError unless the log has a feature.

    ``what``: logs that have it allow this, and older readers cannot read them then.
    """
    if state.lacks(feature):
        raise UnsupportedFeatureError(
            f"this log does not allow {what}",
            kind="upgrade-required",
            hint=f"upgrade txnlog in every process that uses the log, then run {command}",
            feature=feature,
        )


def check_maintenance(state: LogState) -> None:
    """Raise UnsupportedFeatureError about features that maintenance needs and this version does not have."""
    check_features("maintenance", state.features.maintenance)


def check_removal(state: LogState) -> None:
    """Raise UnsupportedFeatureError unless the log allows that records and objects are removed or replaced,
    and this version knows all that its maintenance needs.
    """
    check_lifecycle(state)
    check_maintenance(state)
