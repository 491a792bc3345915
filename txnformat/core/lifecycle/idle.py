"""Ids, applications and groups that the log may forget because they were idle for long, and the decision
about them.

Pure.

Kafka's names: a transactional id lives for ``transactional.id.expiration.ms`` after its last use (7 days), a
producer without one for ``producer.id.expiration.ms`` (1 day). Ids with an open or prepared transaction never
expire. Time is judged by log time *and* the store's: the earlier of the two.
"""

from __future__ import annotations

from txnformat.core.intents import ExpireIdle
from txnformat.core.operations import Expire
from txnformat.core.state import LogState
from txnformat.core.transactions.state import UNDECIDED
from txnformat.errors import ConflictError
from txnformat.persistent import replace

__all__ = [
    "EXPIRED_MAX",
    "GROUP_RETENTION_MS",
    "PRODUCER_RETENTION_MS",
    "TRANSACTIONAL_ID_RETENTION_MS",
    "expirable",
    "expire",
]

PRODUCER_RETENTION_MS = 24 * 3_600_000
"""After its last append a producer without a transactional id, and a block of ids after it was given."""
TRANSACTIONAL_ID_RETENTION_MS = 7 * 24 * 3_600_000
"""After its last use a transactional id."""
GROUP_RETENTION_MS = 30 * 24 * 3_600_000
"""After its last use a consumer group, unless it has a live member or pending positions."""
EXPIRED_MAX = 1_000
"""Most names of each kind that one entry expires."""


def expirable(
    state: LogState,
    store_ms: int,
    *,
    producer_retention_ms: int = PRODUCER_RETENTION_MS,
    transactional_id_retention_ms: int = TRANSACTIONAL_ID_RETENTION_MS,
    group_retention_ms: int = GROUP_RETENTION_MS,
) -> ExpireIdle | None:
    """Return the intent that forgets what was idle for long by the store's time; None: there is nothing.

    O(ids + producers + blocks + groups).
    """
    now_ms = min(store_ms, state.timestamp_ms)
    wanted = ExpireIdle(
        Expire(
            tuple(sorted(state.transactional_ids)),
            tuple(sorted(state.producers)),
            tuple(state.blocks),
            tuple(sorted(state.groups)),
        ),
        now_ms - producer_retention_ms,
        now_ms - transactional_id_retention_ms,
        now_ms - group_retention_ms,
    )
    found = _idle(state, wanted)
    return None if found is None else replace(wanted, expire=found)


def _idle(state: LogState, wanted: ExpireIdle) -> Expire | None:
    """Return what of it is idle, at most EXPIRED_MAX of each kind; None when nothing is."""
    ids = [
        name
        for name in wanted.expire.transactional_ids
        if (known := state.transactional_ids.get(name)) is not None
        and known.status not in UNDECIDED
        and known.used_ms <= wanted.id_cutoff_ms
    ]
    producers = [
        number
        for number in wanted.expire.producers
        if number in state.producers and state.producers[number].timestamp_ms <= wanted.cutoff_ms
    ]
    blocks = [
        first
        for first in wanted.expire.blocks
        if first in state.blocks and state.blocks[first].timestamp_ms <= wanted.cutoff_ms
    ]
    groups = [
        name
        for name in wanted.expire.groups
        if (group := state.groups.get(name)) is not None
        and not group.pending
        and max(group.used_ms, group.lives_until_ms() or 0) <= wanted.group_cutoff_ms
    ]
    if not (ids or producers or blocks or groups):
        return None
    return Expire(
        tuple(ids[:EXPIRED_MAX]),
        tuple(producers[:EXPIRED_MAX]),
        tuple(blocks[:EXPIRED_MAX]),
        tuple(groups[:EXPIRED_MAX]),
    )


def expire(state: LogState, action: ExpireIdle) -> Expire:
    """Return the operation that forgets what of the intent's names was not used since; raise ConflictError if
    all was.
    """
    found = _idle(state, action)
    if found is None:
        raise ConflictError(
            "the producers and ids are no longer idle",
            kind="nothing-expired",
            hint="no action is needed",
        )
    return found
