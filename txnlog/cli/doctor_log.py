"""What ``doctor`` looks at in a log: can it be opened, is it looked after, does anything hold readers back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txnformat.errors import NotFoundError, TxnLogError
from txnlog.cli.diagnosis import Check, Status
from txnlog.cli.output import instant

if TYPE_CHECKING:
    from txnformat.metrics import LogMetrics
    from txnformat.state import LogState
    from txnformat.store.base import ObjectStore

__all__ = ["check_log"]

AREA = "log"
LATE_MS = 60_000
"""Kafka's default of transaction.timeout.ms."""


def check_log(store: ObjectStore) -> list[Check]:
    """Return the checks of the log in a store. Nothing is written."""
    from txnformat.log import TxnLog

    try:
        with TxnLog.open(store) as log:
            measured = log.metrics()
            state = log.state
    except NotFoundError as error:
        return [Check(AREA, "open", Status.WARNING, error.what, "txnlog create makes one")]
    except TxnLogError as error:
        fix = error.hint or "txnlog verify lists everything that is wrong"
        return [Check(AREA, "open", Status.PROBLEM, str(error), fix)]
    return [
        Check(
            AREA,
            "open",
            Status.OK,
            f"{measured.log_id}, {measured.entries} entries, {measured.topics} topics, "
            f"last commit {instant(measured.timestamp_ms) if measured.entries else 'never'}",
        ),
        _check_features(state),
        _check_snapshots(state, measured),
        Check(AREA, "unsealed extents", Status.OK, str(measured.unsealed_extents)),
        _check_transactions(state, measured),
    ]


def _check_features(state: LogState) -> Check:
    from txnformat.state import FEATURES

    known = FEATURES.reader | FEATURES.writer | FEATURES.maintenance
    needed = state.features.reader | state.features.writer | state.features.maintenance
    unknown = sorted(needed - known)
    if unknown:
        return Check(
            AREA, "features", Status.PROBLEM, f"not known here: {', '.join(unknown)}", "upgrade txnlog"
        )
    return Check(AREA, "features", Status.OK, ", ".join(sorted(needed)))


def _check_snapshots(state: LogState, measured: LogMetrics) -> Check:
    from txnformat.snapshotting import snapshot_bound

    bound = snapshot_bound(state)
    newest = state.checkpoints[-1] if state.checkpoints else None
    found = f"{measured.tail_entries} entries after " + (
        f"the newest, of entry {newest.entry}" if newest else "the beginning: none yet"
    )
    if measured.tail_entries > 3 * bound:
        return Check(
            AREA,
            "snapshots",
            Status.WARNING,
            f"{found}, due every {bound}: opening the log is slow",
            "look in the log of the writers for why they cannot write snapshots; close() waits for one under way",
        )
    return Check(AREA, "snapshots", Status.OK, found)


def _check_transactions(state: LogState, measured: LogMetrics) -> Check:
    opened = [
        (known.started_ms, name)
        for name, known in state.transactional_ids.items()
        if known.started_ms is not None and known.partitions
    ]
    if not opened:
        return Check(AREA, "transactions", Status.OK, "none is open")
    started_ms, name = min(opened)
    age_ms = measured.measured_ms - started_ms
    found = f"{len(opened)} open, the oldest {name!r} for {age_ms // 1000} s; offsets held back: " + str(
        sum(part.lag for part in measured.partitions)
    )
    if age_ms > LATE_MS:
        return Check(
            AREA,
            "transactions",
            Status.WARNING,
            found,
            f"if its producer is dead, open one with the id {name!r}: that aborts it "
            f"(txnlog transactions describe {name!r})",
        )
    return Check(AREA, "transactions", Status.OK, found)
