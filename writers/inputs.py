"""Input progress of a transaction: positions of groups and acknowledgements, until the next entry has
them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, TypeVar

from txnformat.consumers.group_offsets import OffsetSource
from txnformat.consumers.record_ids import Records
from txnformat.core.groups.operations import OffsetCommit, PositionCommit
from txnformat.core.intents import Acks, GroupOffsets, ProducerRef
from txnformat.core.preview import preview_acks, preview_offsets
from txnformat.core.state import LogState
from txnformat.errors import AckConflictError, OffsetOutOfRangeError, TxnLogError
from txnformat.log import TxnLog
from txnformat.persistent import replace

__all__ = ["AckSource", "TransactionInputs", "check_acks", "check_offsets"]

logger = logging.getLogger("txnlog")

C = TypeVar("C", OffsetCommit, PositionCommit)

_REFUSED = frozenset(
    {
        "offsets-changed",
        "offsets-held",
        "offsets-pending",
        "offsets-hold-broken",
        "member-fenced",
        "unknown-subscription",
    }
)
"""Kinds of errors by which a transaction has lost its input to another client."""


class AckSource(Protocol):
    """Something whose records a transaction acknowledges: a subscription."""

    @property
    def log_id(self) -> str:
        """The id of its log."""

    def acks(self, records: Records, *, cumulative: bool) -> Acks:
        """Return what acknowledging some records covers."""

    def transaction_takes(self, acks: Acks, producer: ProducerRef) -> None:
        """Take note of the transaction that acknowledges them."""

    def transaction_ended(self, acks: Acks, *, committed: bool) -> None:
        """Take note of how the transaction ended. No request, and no error: the producer goes on."""


class _Waiting(NamedTuple):
    """Positions and acks for the next entry, and the readers to notify at the end of the transaction."""

    offsets: tuple[GroupOffsets, ...] = ()
    acks: tuple[Acks, ...] = ()
    sources: tuple[tuple[OffsetSource, GroupOffsets], ...] = ()
    acknowledging: tuple[tuple[AckSource, Acks], ...] = ()


class TransactionInputs:
    """Positions and acks that wait for the next entry, and their consumers: one value, which every call
    replaces.
    """

    def __init__(self) -> None:
        self._waiting = _Waiting()

    def __bool__(self) -> bool:
        """Return whether anything waits."""
        return bool(self._waiting.offsets) or bool(self._waiting.acks)

    def add(self, offsets: GroupOffsets, source: OffsetSource | None = None) -> None:
        """Take positions of a group; of one that is given twice the later counts, and every comparison."""
        now = self._waiting
        by_group = {one.group: one for one in now.offsets}
        by_group[offsets.group] = _merged(by_group.get(offsets.group), offsets)
        sources = now.sources if source is None else (*now.sources, (source, offsets))
        self._waiting = now._replace(offsets=tuple(by_group.values()), sources=sources)

    def acknowledge(self, acks: Acks, source: AckSource, producer: ProducerRef) -> None:
        """Take what is acknowledged in a subscription."""
        source.transaction_takes(acks, producer)
        now = self._waiting
        self._waiting = now._replace(
            acks=(*now.acks, acks), acknowledging=(*now.acknowledging, (source, acks))
        )

    def acks(self) -> tuple[Acks, ...]:
        """Return what the next entry acknowledges, in order."""
        return self._waiting.acks

    def offsets(self) -> tuple[GroupOffsets, ...]:
        """Return what the next entry commits: at most one of each group."""
        return self._waiting.offsets

    def landed(self) -> None:
        """Forget what an entry has."""
        self._waiting = self._waiting._replace(offsets=(), acks=())

    def committed(self) -> None:
        """Tell the consumers that the transaction is committed."""
        self._end(committed=True)

    def discard(self) -> None:
        """Forget everything: the transaction is aborted."""
        self._end(committed=False)

    def _end(self, *, committed: bool) -> None:
        ended, self._waiting = self._waiting, _Waiting()
        if committed:
            for source, offsets in ended.sources:
                _tell(source.offsets_committed, offsets)
        for subscription, acks in ended.acknowledging:
            _tell(subscription.transaction_ended, acks, committed=committed)

    def is_refused_by(self, error: TxnLogError) -> bool:
        """Return whether an error says that the transaction can only be aborted, because of what was read."""
        if error.kind in _REFUSED or isinstance(error, AckConflictError):
            return True
        return bool(self) and isinstance(error, OffsetOutOfRangeError)


def check_offsets(log: TxnLog, producer: ProducerRef, offsets: GroupOffsets) -> None:
    """Raise what a commit of a group's positions would raise now.

    Requests: none; before it raises 1 GET, and what it takes to end transactions whose time is over.
    """
    _check(log, lambda state: preview_offsets(state, producer, offsets))


def check_acks(log: TxnLog, producer: ProducerRef, acks: tuple[Acks, ...]) -> None:
    """Raise what a commit of acknowledgements would raise now; requests as of :func:`check_offsets`."""
    _check(log, lambda state: preview_acks(state, producer, acks))


def _check(log: TxnLog, check: Callable[[LogState], None]) -> None:
    try:
        check(log.state)
    except TxnLogError:
        # A dead instance may be the reason, and nothing else might ever end its transaction.
        check(log.transactions.end_expired_if_permitted())


def _tell(told: Callable[..., None], *news: object, **more: object) -> None:
    """Notify a reader; its errors do not change how the transaction has ended."""
    try:
        told(*news, **more)
    except Exception as error:  # noqa: BLE001  # the class may be the user's
        logger.warning("%r could not be notified of the end of a transaction: %r", told, error)


def _merged(before: GroupOffsets | None, more: GroupOffsets) -> GroupOffsets:
    if before is None:
        return more
    return GroupOffsets(
        more.group,
        _later(before.offsets, more.offsets),
        _later(before.positions, more.positions),
        before.generation if more.generation is None else more.generation,
        before.read_uncommitted or more.read_uncommitted,
    )


def _later(before: Iterable[C], more: Iterable[C]) -> tuple[C, ...]:
    found = {one.key: one for one in before}
    for one in more:
        earlier = found.get(one.key)
        compares = one.expected is not None or earlier is None
        found[one.key] = one if compares or earlier is None else replace(one, expected=earlier.expected)
    return tuple(found[key] for key in sorted(found))
