"""Subscription: receives the records of a topic and acknowledges them one by one, as in Pulsar.

A consumer group keeps one position per partition; a subscription remembers of every record whether it is
acknowledged. There is no lease on records that were handed out: two instances may receive the same record,
and the acknowledgement decides whose it is. So process a record and acknowledge it in one transaction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txnformat.admin.subscriptions import Backlog, Where, backlog_of
from txnformat.arguments import items, problems_of_columns, text, whole
from txnformat.clock import steady_ms, waited_ms
from txnformat.columns.pylist import to_pylist
from txnformat.consumers.delivery import Delivery
from txnformat.consumers.looks import LOOK_INTERVAL_MS, Looks, check_look_interval
from txnformat.consumers.record_ids import Records, offsets_by_partition
from txnformat.consumers.uncut import Caller, Uncut
from txnformat.core.intents import Acks, Intent, ProducerRef, Write
from txnformat.core.preview import preview_nack
from txnformat.core.ranges import NO_RANGES, Ranges
from txnformat.core.state import LogState, TopicState
from txnformat.core.subscriptions.operations import AckedPartition, AckMode
from txnformat.core.subscriptions.state import ALREADY_ACKNOWLEDGED, PartitionAcks, SubscriptionState
from txnformat.errors import (
    AckConflictError,
    CommitStateUnknownError,
    InvalidInputError,
    InvalidTransactionStateError,
    StorageError,
    TxnLogError,
)
from txnformat.keys import check_reader_name
from txnformat.log import TxnLog, check_log
from txnformat.reading.resolving import on_newest
from txnformat.reading.visible import gone
from txnformat.types import TopicPartition

__all__ = ["Subscription"]

Offsets = NDArray[np.int64]
Flags = NDArray[np.bool_]

TIMEOUT_MS = 1_000
"""How long a receive waits for records unless it is told otherwise."""


_Call = tuple[AckMode, tuple[tuple[int, bytes], ...]]


class _Handed:
    """Records on their way to the caller."""

    __slots__ = ("batch",)

    def __init__(self) -> None:
        self.batch: pa.RecordBatch | None = None


class _Landed(NamedTuple):
    """An acknowledgement that is in the log."""

    call: _Call


class Subscription:
    """One instance of a subscription: receives what is not acknowledged, in the order of offsets in each
    partition.

    Of one thread at a time (kind ``concurrent-use``), and of the process that made it (kind ``forked``).

    Parameters
    ----------
    log : TxnLog
        Where from.
    topic, name : str
        The subscription, which exists (``log.subscriptions.create``).
    columns : sequence of str, optional
        What batches have besides ``_partition`` and ``_offset``; by default the topic's own columns,
        ``_topic`` and ``_timestamp``.
    look_interval_ms : int
        Longest wait between two looks at a log without news, ms, from 10 to 60,000, as that of a
        :class:`~txnformat.consumers.consumer.Consumer`.

    Notes
    -----
    The constructor does no input or output. Requests: a look at the log is 1 GET when nothing is new; an
    acknowledgement outside of transactions is 1 entry, in a transaction none of its own.
    """

    def __init__(
        self,
        log: TxnLog,
        topic: str,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        look_interval_ms: int = LOOK_INTERVAL_MS,
    ) -> None:
        check_log(log, "Subscription")
        check_look_interval(look_interval_ms)
        self.topic = text("topic", topic)
        self.name = check_reader_name(name, "subscription")
        self._log = log
        self._columns = None if columns is None else _with_places(columns)
        self._looks = Looks(look_interval_ms, is_free=log.store.reads_in_flight == 1)
        self._uncut = Uncut("subscription")
        self._delivery: Delivery | None = None
        self._topic_id: str | None = None
        self._unknown: tuple[_Call, Intent] | None = (
            None  # a call whose outcome is not known, and what repeats it
        )
        self._handing: _Handed | None = None  # the last records that were handed out
        self._got: _Handed | None = None  # the last ones that a caller has
        self._landed: _Landed | None = None  # the last acknowledgement, if nothing was received since
        self._told: _Landed | None = None  # the last one of which a caller knows
        self._taken: dict[int, tuple[Acks, ProducerRef]] = {}  # by transactions that may be open
        self._ended: deque[tuple[Acks, bool]] = deque()  # since the last look; whether with a commit
        self._is_closed = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._log.url!r}, {self.topic!r}, {self.name!r})"

    def __reduce__(self) -> Any:
        raise InvalidInputError(
            f"{self!r:.200} cannot be pickled or copied: a subscription stays in the process that made it",
            kind="not-picklable",
            hint="make a subscription in the process that reads; give that process the path of the log",
        )

    # --- records --------------------------------------------------------------------------------------------

    def receive(self, max_records: int = 500, timeout_ms: int = TIMEOUT_MS) -> pa.RecordBatch | None:
        """Return records that are not acknowledged and that this instance has not received; None if there are
        none by then.

        Records that a transaction has acknowledged are left out until it ends; when nothing else is left,
        transactions whose time is over are ended.

        Parameters
        ----------
        max_records : int
            Most records.
        timeout_ms : int
            How long to wait; 0 looks once.

        Notes
        -----
        Records of a call that was interrupted are received again.
        """
        handed = self._handed_out(max_records, timeout_ms)
        batch = handed.batch
        self._got = handed  # the last step: with it the caller has the records
        return batch

    def receive_dicts(self, max_records: int = 500, timeout_ms: int = TIMEOUT_MS) -> list[dict[str, Any]]:
        """Return the same as a list of dicts; empty if there are none."""
        handed = self._handed_out(max_records, timeout_ms)
        found: list[dict[str, Any]] = [] if handed.batch is None else to_pylist(handed.batch)
        self._got = handed
        return found

    def acknowledge(self, records: Records) -> None:
        """Acknowledge records, at once. Requests: 1 entry.

        Parameters
        ----------
        records : RecordBatch, Table, dicts, or (partition, offset) pairs
            What :meth:`receive` returned, or a part of it; every one is named once.

        Raises
        ------
        AckConflictError
            Kinds ``ack-pending``, ``already-acknowledged``: nothing is acknowledged of all that was named.
        NotFoundError, OffsetOutOfRangeError, InvalidInputError
            There is no such record, or it is not visible yet.
        CommitStateUnknownError
            They may be acknowledged. The same call may be repeated.

        Notes
        -----
        One that was interrupted may be repeated at once, too; after anything else was received, a repeat may
        raise AckConflictError.
        """
        self._acknowledge(AckMode.INDIVIDUAL, records)

    def acknowledge_cumulative(self, record: Records) -> None:
        """Acknowledge records and, in their partitions, everything before them, at once. Requests: 1 entry.

        Raises
        ------
        AckConflictError, NotFoundError, OffsetOutOfRangeError, InvalidInputError
            As for :meth:`acknowledge`; ``already-acknowledged`` if everything is.
        """
        self._acknowledge(AckMode.CUMULATIVE, record)

    def negative_acknowledge(self, records: Records) -> None:
        """Give received records back: this instance receives them again. Nothing of it is in the log.

        Raises
        ------
        AckConflictError
            They are acknowledged, or a transaction that has not ended has acknowledged them.
        NotFoundError, OffsetOutOfRangeError, InvalidInputError
            As for :meth:`acknowledge`.
        """
        named = offsets_by_partition(records)

        def body(_: Caller) -> None:
            self._begin()
            acks = self._acks(AckMode.INDIVIDUAL, named, pass_gone=True)
            if not acks.partitions:
                return
            ranges = {part.partition: self._left(acks.topic_id, part) for part in acks.partitions}
            ranges = {number: given for number, given in ranges.items() if len(given)}
            if not ranges:
                raise self._all_removed(named)
            pairs = {number: tuple(given.pairs()) for number, given in ranges.items()}
            preview_nack(self._log.state, acks.topic_id, self.name, pairs)
            for number, given in ranges.items():
                self._delivering().give_back(number, given)

        self._uncut.run("negative_acknowledge", body, breaks=False)

    def redeliver_unacknowledged(self) -> None:
        """Let this instance receive everything again that is not acknowledged or pending. Requests: none."""

        def body(_: Caller) -> None:
            self._begin()
            if self._delivery is not None:
                self._delivery.restart()

        self._uncut.run("redeliver_unacknowledged", body, breaks=True)

    def seek(self, offset: Where) -> None:
        """Go on from an offset, in all partitions or in those that are named; what is acknowledged from there
        on is not any more.

        Requests: 1 entry.

        Raises
        ------
        OffsetOutOfRangeError, NotFoundError, InvalidInputError
            There is no such offset or partition.
        AckConflictError
            Kind ``ack-pending``: a transaction that has not ended has acknowledged something there.
        """

        def body(_: Caller) -> None:
            self._begin()
            self._look()
            self._unknown = None  # after it an acknowledgement is another one, also of the same records
            self._log.subscriptions.seek(self.topic, self.name, offset)
            if self._delivery is not None:
                self._delivery.restart()

        self._uncut.run("seek", body, breaks=True)

    def backlog(self) -> list[Backlog]:
        """Return what the subscription has before it, by partition.

        Requests: a look, and sidecars that are not kept.
        """

        def body(_: Caller) -> list[Backlog]:
            state, known = self._look()
            topic = self._topic(state)
            return [
                backlog_of(
                    self._log.sidecars,
                    state,
                    topic,
                    known,
                    number,
                    self._delivering().partition(number).visible,
                )
                for number in range(topic.partitions)
            ]

        return self._uncut.run("backlog", body, breaks=False)

    def close(self) -> None:
        """Receive nothing any more. The subscription stays; nothing of this is in the log."""
        if self._uncut.is_foreign:
            return

        def body() -> None:
            self._is_closed = True
            if self._delivery is not None:
                self._delivery.restart()

        self._uncut.close(body)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- for transactions -----------------------------------------------------------------------------------

    @property
    def log_id(self) -> str:
        """The id of its log: a transaction of another cannot acknowledge."""
        return self._log.log_id

    def acks(self, records: Records, *, cumulative: bool) -> Acks:
        """Return what a transaction is to acknowledge; for :meth:`writers.producer.Producer.acknowledge`."""
        mode, named = AckMode.CUMULATIVE if cumulative else AckMode.INDIVIDUAL, offsets_by_partition(records)
        return self._uncut.run("acks", lambda _: self._acks(mode, named), breaks=False)

    def transaction_takes(self, acks: Acks, producer: ProducerRef) -> None:
        """Take note of the transaction that acknowledges: its producer may never learn that it was ended."""
        self._taken[id(acks)] = acks, producer

    def transaction_ended(self, acks: Acks, *, committed: bool) -> None:
        """Take note of how a transaction ended that had acknowledged: what it gives back is received
        again.
        """
        if self._taken.pop(id(acks), None) is not None:
            self._ended.append((acks, committed))  # by any thread, and while another receives

    # --- how it is done -------------------------------------------------------------------------------------

    def _handed_out(self, max_records: int, timeout_ms: int) -> _Handed:
        _check_counts(max_records, timeout_ms)
        return self._uncut.run(
            "receive", lambda caller: self._receive(max_records, timeout_ms, caller), breaks=False
        )

    def _receive(self, most: int, timeout_ms: int, caller: Caller) -> _Handed:
        """Return the next records on their way to the caller; without any when there are none by then."""
        self._begin()
        handed, clock = _Handed(), self._log.committer.clock

        def announce(batch: pa.RecordBatch) -> None:
            handed.batch = batch
            self._handing = handed

        start = clock.now()
        while True:
            asked_ms = steady_ms(clock.now())
            state, known = self._look()
            batch = self._delivering().next_batch(state, known, most, announce)
            if batch is None and known.holders():
                batch = self._what_expired_held(most, announce)
            if batch is not None:
                self._looks.news(state.timestamp_ms, asked_ms)
                return handed
            self._looks.nothing()
            left_ms = timeout_ms - waited_ms(start, clock.now())
            if left_ms <= 0 or caller.is_gone:
                return handed
            clock.sleep(min(left_ms, self._looks.wait_ms(steady_ms(clock.now()))) / 1_000)

    def _begin(self) -> None:
        """Begin a call that hands out records, or takes them back: those that no caller got are to be
        received again.
        """
        self._check_open()
        self._landed = None
        handing = self._handing
        if handing is not None and handing is not self._got and handing.batch is not None:
            for number, offsets in offsets_by_partition(handing.batch).items():
                self._delivering().give_back(number, Ranges.of((at, at + 1) for at in offsets.tolist()))
        self._handing = None

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidTransactionStateError(
                "the subscription is closed", kind="subscription-closed", hint="make a new one"
            )

    def _look(self) -> tuple[LogState, SubscriptionState]:
        """Follow the log; return its state and the subscription's."""
        self._check_open()
        state = self._log.refresh()
        if self._topic_id is None:
            self._topic_id = state.topic(self.topic).topic_id
        state.topic_of(self._topic_id, "the subscription")
        known = state.subscription(self._topic_id, self.name)
        if self._taken or self._ended:
            self._note_ends(state, known)
        return state, known

    def _note_ends(self, state: LogState, known: SubscriptionState) -> None:
        """Let records be received again whose transaction ended without acknowledging them."""
        for acks, ref in list(self._taken.values()):
            owner = state.transactional_ids.get(ref.transactional_id or "")
            if owner is None or (owner.producer_id, owner.epoch) != (ref.producer_id, ref.epoch):
                self.transaction_ended(acks, committed=False)  # or it was: what is acknowledged stays so
        while self._ended:
            self._note_end(known, *self._ended.popleft())

    def _note_end(self, known: SubscriptionState, acks: Acks, committed: bool) -> None:
        for part in acks.partitions:
            ranges = Ranges.of(part.ranges if part.position is None else [(0, part.position)])
            if committed:
                self._delivering().acknowledged(part.partition, ranges)
            else:
                now = self._log.state.acks(known, TopicPartition(self._topic_id or "", part.partition))
                self._delivering().give_back(part.partition, ranges - now.whole() - now.held())

    def _topic(self, state: LogState) -> TopicState:
        return state.topic_of(self._topic_id or "", "the subscription")

    def _what_expired_held(
        self, most: int, announce: Callable[[pa.RecordBatch], None]
    ) -> pa.RecordBatch | None:
        """End transactions whose time is over, and return records that they held: no other client might ever
        end them.
        """
        state = self._log.transactions.end_expired_if_permitted()
        known = state.subscriptions.get((self._topic_id or "", self.name))
        return None if known is None else self._delivering().next_batch(state, known, most, announce)

    def _delivering(self) -> Delivery:
        if self._delivery is None:
            self._delivery = Delivery(self._log, self._topic_id or "", self._columns)
        return self._delivery

    def _acknowledge(self, mode: AckMode, records: Records) -> None:
        """Acknowledge at once; the same call after an unknown outcome repeats the same intent."""
        named = offsets_by_partition(records)
        call = (mode, tuple((number, offsets.tobytes()) for number, offsets in sorted(named.items())))
        self._told = self._uncut.run(
            "acknowledge", lambda _: self._acknowledged(call, mode, named), breaks=False
        )

    def _acknowledged(self, call: _Call, mode: AckMode, named: dict[int, Offsets]) -> _Landed:
        landed = self._landed
        if landed is not None and landed is not self._told and landed.call == call:
            return landed  # its caller was interrupted before it knew
        if self._unknown is not None and self._unknown[0] == call:
            intent = self._unknown[1]
            acks = intent.action.acks[0] if isinstance(intent.action, Write) else None
        else:
            acks, intent = self._acks(mode, named, pass_gone=True), None
        while acks is not None and acks.partitions:
            intent = intent or self._log.committer.intend(Write(acks=(acks,)))
            self._unknown = call, intent
            try:
                self._log.committer.commit(intent)
                self._ended.append((acks, True))
                break
            except (CommitStateUnknownError, StorageError):
                raise  # a store that refuses to repeat it does not say what came of it before
            except AckConflictError:
                self._unknown = None
                before, acks, intent = acks, self._acks(mode, named, pass_gone=True), None
                if acks == before:
                    raise
                # Else another client has acknowledged a later record meanwhile, and with it the offset of one
                # that is gone.
            except TxnLogError:
                self._unknown = None
                raise
        self._landed = landed = _Landed(call)
        self._unknown = None
        return landed

    def _acks(self, mode: AckMode, named: dict[int, Offsets], *, pass_gone: bool = False) -> Acks:
        """Return what is to be acknowledged.

        ``pass_gone``: leave out records that were removed since they were received, and that are acknowledged
        or pending: the client that acknowledged the next record has covered the offset of one that compaction
        by key or an erasure removed. Not in a transaction: another one may have processed such a record
        before it was removed.
        """
        state, known = self._look()
        parts, gaps = [], []
        passed = False
        for number, offsets in sorted(named.items()):
            last = int(offsets[-1])
            self._check_there(state, number, last)
            key = TopicPartition(self._topic(state).topic_id, number)
            acks, kept = state.acks(known, key), state.kept_acks(known, key)
            start = state.partition(key).log_start
            if pass_gone:
                taken = self._gone(state, key, kept, offsets)
                passed = passed or bool(taken[offsets >= start].any())
                if mode is AckMode.INDIVIDUAL:
                    offsets = offsets[~taken]
                elif last < kept.mark and taken.all():
                    offsets = offsets[:0]
            if not len(offsets):
                continue
            removed, offsets = np.split(offsets, [np.searchsorted(offsets, start)])
            self._check_free(mode, number, removed, offsets, kept, acks)
            spans = NO_RANGES
            if len(offsets):
                visible = self._delivering().partition(number).visible
                follow = partial(visible.follow, self._log.sidecars, start=acks.mark)
                on_newest(self._log.refresh, follow, state)
                wanted = offsets[-1:] if mode is AckMode.CUMULATIVE else offsets
                # Offsets between two records may be acknowledged already, by a cumulative acknowledgement or
                # from before a seek.
                spans = visible.spans(wanted, acks.acked | acks.held(), self._names(number))
            if mode is AckMode.CUMULATIVE:
                parts.append(AckedPartition(number, position=last + 1))
                continue
            gap = spans - Ranges.between(offsets, offsets + 1)
            parts.append(
                AckedPartition(number, tuple((spans | Ranges.between(removed, removed + 1)).pairs()))
            )
            if len(gap):
                gaps.append(AckedPartition(number, tuple(gap.pairs())))
        if not parts and not passed:
            raise self._all_removed(named)
        return Acks(self._topic_id or "", self.name, mode, tuple(parts), tuple(gaps))

    def _check_free(
        self,
        mode: AckMode,
        number: int,
        removed: Offsets,
        offsets: Offsets,
        kept: PartitionAcks,
        acks: PartitionAcks,
    ) -> None:
        """Refuse what is acknowledged already: of ``removed``, which lie below the log start, and of the
        other offsets.
        """
        if mode is AckMode.CUMULATIVE:
            last = (offsets if len(offsets) else removed)[-1:]
            taken = last[last < (acks if len(offsets) else kept).mark]
        else:
            taken = removed[(removed < kept.mark) | kept.acked.holds(removed)]
            taken = np.append(taken, offsets[offsets < acks.mark])
        if len(taken):
            raise AckConflictError(
                "the record is acknowledged already",
                kind=ALREADY_ACKNOWLEDGED,
                hint="do not process it twice",
                offset=int(taken[0]),
                **self._names(number),
            )

    def _all_removed(self, named: dict[int, Offsets]) -> AckConflictError:
        return AckConflictError(
            "the records were removed from the log",
            kind=ALREADY_ACKNOWLEDGED,
            hint="no action is needed: continue with the next ones",
            topic=self.topic,
            subscription=self.name,
            partitions=sorted(named),
        )

    def _left(self, topic_id: str, part: AckedPartition) -> Ranges:
        """Return those offsets of a part that are not below the log start."""
        key = TopicPartition(topic_id, part.partition)
        return Ranges.of(part.ranges).above(self._log.state.partition(key).log_start)

    def _gone(self, state: LogState, key: TopicPartition, acks: PartitionAcks, offsets: Offsets) -> Flags:
        """Tell of offsets whether they are acknowledged or pending, and hold a record no more."""
        taken: Flags = (offsets < acks.mark) | acks.acked.holds(offsets) | acks.held().holds(offsets)
        there = taken & (offsets >= state.partition(key).log_start)
        if there.any():
            find = partial(gone, self._log.sidecars, key=key, offsets=offsets[there])
            taken[there] = on_newest(self._log.refresh, find, state)
        return taken

    def _names(self, number: int) -> dict[str, Any]:
        return {"topic": self.topic, "subscription": self.name, "partition": number}

    def _check_there(self, state: LogState, number: int, offset: int) -> None:
        """Refuse partitions that are not there, and offsets that cannot have been received."""
        no_range = ((offset, offset + 1),)
        if (
            not 0 <= number < self._topic(state).partitions
            or offset >= state.partition(TopicPartition(self._topic_id or "", number)).last_stable_offset
        ):
            preview_nack(state, self._topic_id or "", self.name, {number: no_range})


def _with_places(columns: Any) -> tuple[str, ...]:
    """Return the columns of a subscription's batches."""
    names = columns if isinstance(columns, AbstractSet) else items(columns, "columns")
    problems = problems_of_columns(names)
    if problems:
        raise InvalidInputError(problems, kind="unknown-column", hint='name them as in ["id"]')
    return tuple(dict.fromkeys([*names, "_partition", "_offset"]))


def _check_counts(max_records: object, timeout_ms: object) -> None:
    whole("max_records", max_records, 1)
    whole("timeout_ms", timeout_ms)
