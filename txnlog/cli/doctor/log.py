"""Checks of a log for ``doctor``: it opens, its maintenance runs, no transaction holds readers back for
long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txnformat.errors import NotFoundError, TxnLogError
from txnlog.cli.doctor.diagnosis import Area, Check, Status
from txnlog.cli.output import counted, instant

if TYPE_CHECKING:
    from txnformat.admin.metrics import LogMetrics
    from txnformat.core.state import LogState
    from txnformat.store.base import ObjectStore

__all__ = ["check_log"]

AREA = Area("log")


def check_log(store: ObjectStore) -> list[Check]:
    """Return the checks of the log in a store. Nothing is written."""
    from txnformat.log import TxnLog
    from txnformat.protocol.old_entries import history_start
    from txnformat.protocol.reads import read_boundary

    try:
        with TxnLog.open(store) as log:
            measured = log.metrics()
            state = log.state
            boundary = log.committer.read(read_boundary())
            start = log.committer.read(history_start(boundary))
    except NotFoundError as error:
        return [AREA.warning("open", error.what, "txnlog create makes one")]
    except TxnLogError as error:
        fix = error.hint or "txnlog verify lists everything that is wrong"
        return [AREA.problem("open", str(error), fix)]
    return [
        AREA.ok(
            "open",
            f"{measured.log_id}, {counted(measured.entries, 'entry')}, {counted(measured.topics, 'topic')}, "
            f"last commit {instant(measured.timestamp_ms) if measured.entries else 'never'}",
        ),
        _check_features(state),
        _check_snapshots(state, measured),
        _check_old_entries(boundary, start),
        AREA.ok("unsealed extents", str(measured.unsealed_extents)),
        _check_transactions(state, measured),
    ]


def _check_features(state: LogState) -> Check:
    from txnformat.core.state import KNOWN_FEATURES

    known = frozenset[str]().union(*KNOWN_FEATURES)
    needed = frozenset[str]().union(*state.features)
    unknown = sorted(needed - known)
    if unknown:
        return AREA.problem("features", f"not known here: {', '.join(unknown)}", "upgrade txnlog")
    return AREA.ok("features", ", ".join(sorted(needed)))


def _check_snapshots(state: LogState, measured: LogMetrics) -> Check:
    from txnformat.protocol.snapshots import snapshot_bound

    bound = snapshot_bound(state)
    newest = state.checkpoints[-1] if state.checkpoints else None
    found = f"{counted(measured.tail_entries, 'entry')} after " + (
        f"the newest, of entry {newest.entry}" if newest else "the beginning: none yet"
    )
    if measured.tail_entries > 3 * bound:
        return AREA.warning(
            "snapshots",
            f"{found}, due every {bound}: opening the log is slow",
            "look in the writers' log output for the reason; close() waits for a snapshot under way",
        )
    return AREA.ok("snapshots", found)


def _check_old_entries(boundary: int, start: int) -> Check:
    if not boundary:
        return AREA.ok("old entries", "none may be deleted")
    found = f"those below {boundary} may be deleted; history from entry {start} on"
    if start:
        return AREA.warning(
            "old entries",
            found,
            "restore the missing objects under _txnlog/bundles from a copy, if that history is needed",
        )
    return AREA.ok("old entries", found)


def _check_transactions(state: LogState, measured: LogMetrics) -> Check:
    from txnformat.core.transactions.hanging import advice_for_late, advice_for_prepared
    from txnformat.core.transactions.listing import is_late

    if not state.undecided:
        return AREA.ok("transactions", "none is open")
    late = sorted(
        name for name in state.undecided if is_late(state.transactional_ids[name], measured.measured_ms)
    )
    started_ms, name = min((state.transactional_ids[name].started_ms or 0, name) for name in state.undecided)
    prepared = measured.oldest_prepared
    found = (
        f"{len(state.undecided)} open, {len(late)} of them late and {measured.prepared_transactions} "
        "prepared; "
        f"the oldest is {name!r}, for {(measured.measured_ms - started_ms) // 1000} s; "
        f"offsets held back: {sum(part.lag for part in measured.partitions)}"
    )
    fixes = [advice_for_late(name) for name in late[:1]]
    if prepared is not None and prepared.age_ms > state.max_transaction_timeout_ms:
        found += f"; {prepared.transactional_id!r} has been prepared for {prepared.age_ms // 1000} s"
        fixes.append(advice_for_prepared(prepared.transactional_id))
    return Check(
        AREA, "transactions", Status.WARNING if fixes else Status.OK, found, "; ".join(fixes) or None
    )
