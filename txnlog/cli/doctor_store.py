"""What ``doctor`` looks at in a store: is it there, does its clock agree, does it keep the protocol's promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txnformat.errors import TxnLogError
from txnlog.cli.diagnosis import Check, Status

if TYPE_CHECKING:
    from txnformat.clock import Clock
    from txnformat.store.base import ObjectStore
    from txnlog.cli.options import Place

__all__ = ["check_clock", "check_store"]

AREA = "store"


def check_store(place: Place, *, write: bool) -> tuple[list[Check], ObjectStore | None]:
    """Return the checks of the store, and the store, unless it cannot be used at all.

    Parameters
    ----------
    write : bool
        Whether objects may be created for it; they are deleted again.
    """
    from txnformat import keys
    from txnformat.clock import SystemClock

    clock = SystemClock()
    try:
        store = place.store()
        store.head(keys.FORMAT_KEY)
    except TxnLogError as error:
        return [Check(AREA, "reachable", Status.PROBLEM, str(error), error.hint or "see the cause")], None
    checks = [Check(AREA, "reachable", Status.OK, store.url)]
    try:
        checks.append(check_clock(store, clock))
    except TxnLogError as error:
        checks.append(Check(AREA, "clock", Status.PROBLEM, str(error), error.hint))
    return checks, store


def check_clock(store: ObjectStore, clock: Clock) -> Check:
    """Return the check of this machine's clock against the store's."""
    from txnformat.assemble import CLOCK_SKEW_MS_MAX

    before = clock.now().wall_ms
    there = store.store_time_ms()
    offset = (before + clock.now().wall_ms) // 2 - there
    found = f"{abs(offset)} ms {'ahead of' if offset > 0 else 'behind'} the store"
    fix = "set this machine's clock (NTP): a writer that is off by more than 30 s may not commit"
    if abs(offset) > CLOCK_SKEW_MS_MAX:
        return Check(AREA, "clock", Status.PROBLEM, found, fix)
    if abs(offset) > CLOCK_SKEW_MS_MAX // 3:
        return Check(AREA, "clock", Status.WARNING, found, fix)
    return Check(AREA, "clock", Status.OK, found)
