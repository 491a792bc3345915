"""Checks of a store for ``doctor``: it is reachable, its clock agrees, it keeps the protocol's promises."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from txnformat.errors import TxnLogError
from txnlog.cli.doctor.diagnosis import Area, Check, Status

if TYPE_CHECKING:
    from txnformat.clock import Clock, Ids
    from txnformat.store.base import ObjectStore
    from txnlog.cli.options import Place

__all__ = ["check_clock", "check_promises", "check_store"]

AREA = Area("store")
LATENCY_SAMPLES = 5
SLOW_MS = 250
"""S3 Standard takes about 40 ms from within its region."""
_RIGHTS = "give this user the rights of docs/storage.md"


def check_store(place: Place, *, write: bool) -> tuple[list[Check], ObjectStore | None]:
    """Return the checks, and the store if it is usable. ``write``: whether they may create, and delete,
    objects.
    """
    from txnformat import keys
    from txnformat.clock import SystemClock, SystemIds

    clock = SystemClock()
    try:
        store = place.store()
        store.list(keys.FORMAT_KEY)  # what is missing of a HEAD it does not say: the object, or the bucket
    except TxnLogError as error:
        return [AREA.problem("reachable", str(error), error.hint or "see the cause")], None
    checks = [AREA.ok("reachable", store.url)]
    try:
        checks.append(check_clock(store, clock))
    except TxnLogError as error:
        checks.append(AREA.problem("clock", str(error), error.hint))
    if write:
        with _leaving_no_directory(store):
            checks += check_promises(store, clock, SystemIds())
    return checks, store


@contextlib.contextmanager
def _leaving_no_directory(store: ObjectStore) -> Iterator[None]:
    """Remove the directories that trying a local disk makes, unless something is in them by then."""
    from txnformat.file_urls import file_path
    from txnformat.keys import PROBE_PREFIX

    is_local = store.url.startswith("file://")
    probe = Path(file_path(store.url) if is_local else "") / PROBE_PREFIX
    made = [path for path in (probe, *probe.parents) if not path.exists()] if is_local else []
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            for path in made:
                path.rmdir()


def check_promises(store: ObjectStore, clock: Clock, ids: Ids) -> list[Check]:
    """Return the checks of what the protocol asks of a store, tried out with objects that are no part of a
    log.
    """
    from txnformat.store.probe import probe_store

    checks = []
    for check in probe_store(store, ids):
        if check.problem is None:
            checks.append(AREA.ok(check.name, check.promise))
            continue
        # Only cleaning needs to delete.
        status = Status.WARNING if check.name == "delete" else Status.PROBLEM
        checks.append(Check(AREA, check.name, status, str(check.problem), check.problem.hint or _RIGHTS))
    if any(check.status is Status.PROBLEM for check in checks):
        return checks
    return [*checks, _check_latency(store, clock, ids)]


def _check_latency(store: ObjectStore, clock: Clock, ids: Ids) -> Check:
    """Return how long a conditional create takes: a commit cannot be faster."""
    from txnformat.keys import probe_key
    from txnformat.store.base import CreateOutcome

    took: list[int] = []
    for _ in range(LATENCY_SAMPLES):
        key = probe_key(ids.new())
        before = clock.now().wall_ms
        outcome = store.create(key, b"txnlog probe").outcome
        took.append(clock.now().wall_ms - before)
        with contextlib.suppress(TxnLogError):
            store.delete(key)
        if outcome is not CreateOutcome.CREATED:
            return AREA.warning("latency", f"a create ended as {outcome}", "run doctor again")
    median = sorted(took)[LATENCY_SAMPLES // 2]
    found = f"a create takes {median} ms (median of {LATENCY_SAMPLES}, {min(took)} to {max(took)})"
    if median > SLOW_MS:
        return AREA.warning(
            "latency",
            f"{found}: at most {1000 / median:.1f} commits per second",
            "run the writers in the region of the bucket; put more into each transaction",
        )
    return AREA.ok("latency", found)


def check_clock(store: ObjectStore, clock: Clock) -> Check:
    """Return the check of this machine's clock against the store's."""
    from txnformat.core.assemble import CLOCK_SKEW_MS_MAX

    before = clock.now().wall_ms
    there = store.store_time_ms()
    offset = (before + clock.now().wall_ms) // 2 - there
    found = f"{abs(offset)} ms {'ahead of' if offset > 0 else 'behind'} the store"
    fix = "set this machine's clock (NTP): a writer that is off by more than 30 s may not commit"
    if abs(offset) > CLOCK_SKEW_MS_MAX:
        return AREA.problem("clock", found, fix)
    if abs(offset) > CLOCK_SKEW_MS_MAX // 3:
        return AREA.warning("clock", found, fix)
    return AREA.ok("clock", found)
