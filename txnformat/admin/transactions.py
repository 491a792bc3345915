"""``log.transactions``: what an operator, and a job that starts again, does about transactions of others."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from numbers import Integral
from typing import Any

from txnformat.arguments import check_flags, is_text, items, listed, whole
from txnformat.client.committer import Committer
from txnformat.core.intents import CommitResult, EndTransaction
from txnformat.core.operations import Cause
from txnformat.core.state import LogState
from txnformat.core.transactions.hanging import HangingReport, find_hanging
from txnformat.core.transactions.lingering import (
    SAFE_SCALE_DOWN_FACTOR,
    LingeringTransaction,
    check_workers,
    lingering_transactions,
    worker_ids,
)
from txnformat.core.transactions.listing import (
    ProducerOfPartition,
    TransactionDetails,
    TransactionListing,
    describe_producers,
    describe_transaction,
    known_id,
    list_transactions,
    named_partition,
    transaction_at,
)
from txnformat.core.transactions.state import UNDECIDED, TransactionalIdState, TransactionStatus
from txnformat.errors import (
    CommitStateUnknownError,
    ConflictError,
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    StorageError,
    TxnLogError,
    repr_of,
)
from txnformat.keys import check_transactional_id
from txnformat.protocol.old_entries import HISTORY_GONE, OldEntries
from txnformat.protocol.sealing import with_spills

__all__ = ["EndedTransaction", "EndingOutcome", "Transactions"]

logger = logging.getLogger("txnlog")

ENTRIES_READ_MAX = 100
"""Most entries that describe_producers reads for the times of sealed appends."""


class EndingOutcome(StrEnum):
    """The outcome of a transaction that a tool tried to end."""

    ABORTED = "aborted"
    """This call aborted it."""
    WOULD_ABORT = "would-abort"
    """It was only asked what a call would do."""
    ENDED_BEFORE = "ended-before"
    """Its producer, or another client, was faster."""
    NOT_OPEN = "not-open"
    """The id has no open transaction."""
    PREPARED = "prepared"
    """It is not touched: its outcome is decided elsewhere."""
    YOUNGER = "younger"
    """It is not touched: it was opened after the caller's start."""


@dataclass(frozen=True, slots=True)
class EndedTransaction:
    """The effect of a tool on one transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    """Epoch of the transaction that was looked at."""
    outcome: EndingOutcome
    entry: int | None = None
    """Entry of the end, if it is known."""


class Transactions:
    """Transactions of a log, for operators and jobs that did not begin them. Got as ``log.transactions``.

    Ends name a transaction by (producer id, epoch) as it was seen: one that ends meanwhile is no error, and
    the next one under the same id is never hit. Every call follows the log first. Requests: 1 GET when
    nothing is new; what ends transactions 1 entry for many of them.
    """

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._warned = False

    # --- looking --------------------------------------------------------------------------------------------

    def list(
        self,
        *,
        states: Iterable[str] | None = None,
        pattern: str | None = None,
        min_duration_ms: int | None = None,
        producer_ids: Collection[int] | None = None,
    ) -> tuple[TransactionListing, ...]:
        """List transactional ids and where each stands, by id.

        Parameters
        ----------
        states : iterable of str, optional
            Only these: "Empty", "Ongoing", "Prepared", "CompleteCommit", "CompleteAbort"; case does not
            matter.
        pattern : str, optional
            Only ids that match this regular expression as a whole (KIP-1152).
        min_duration_ms : int, optional
            Only transactions that have been open for longer, ms (KIP-994); every id when it is negative.
        producer_ids : collection of int, optional
            Only these.

        Raises
        ------
        InvalidInputError
            Kinds ``unknown-transaction-state``, ``invalid-pattern``; ``invalid-argument`` of
            ``producer_ids``.
        """
        producer_ids = items(producer_ids, "producer_ids")
        odd = not isinstance(producer_ids, Collection) or any(type(one) is not int for one in producer_ids)
        if producer_ids is not None and odd:
            raise InvalidInputError(
                f"producer_ids is {repr_of(producer_ids)}, not a list of numbers", kind="invalid-argument"
            )
        if min_duration_ms is not None:
            whole("min_duration_ms", min_duration_ms, None)
        state, now_ms = self._committer.refresh_with_time()
        found = list_transactions(
            state,
            now_ms,
            states=states,
            pattern=pattern,
            min_duration_ms=min_duration_ms,
            producer_ids=producer_ids,
        )
        return tuple(found)

    def describe(self, transactional_id: str) -> TransactionDetails:
        """Describe a transactional id and its open transaction.

        Raises
        ------
        NotFoundError
            Kind ``unknown-transactional-id``.
        """
        (found,) = self.describe_all([transactional_id])
        return found

    def describe_all(self, transactional_ids: Iterable[str]) -> tuple[TransactionDetails, ...]:
        """Describe several transactional ids as of one moment; as :meth:`describe` each."""
        names = listed("transactional_ids", transactional_ids)
        state, now_ms = self._committer.refresh_with_time()
        return tuple(describe_transaction(state, check_transactional_id(name), now_ms) for name in names)

    def describe_producers(self, topic: str, partition: int) -> tuple[ProducerOfPartition, ...]:
        """Describe the producers that a partition remembers: idempotent ones, and those with an open
        transaction there.

        Requests: those of a refresh, 1 GET for each append that is sealed, 100 at most, and 1 LIST; beyond
        them ``last_timestamp_ms`` is None.

        Raises
        ------
        NotFoundError
            Kind ``unknown-topic`` or ``unknown-partition``.
        """
        state, _ = self._committer.refresh_with_time()
        found = describe_producers(state, topic, partition)
        sealed = {
            one.last_entry for one in found if one.last_timestamp_ms is None and one.last_entry is not None
        }
        times: dict[int | None, int] = {}
        old = OldEntries(state.entry)
        for number in sorted(sealed, reverse=True)[:ENTRIES_READ_MAX]:
            try:
                times[number] = self._committer.read(old.read(number)).timestamp_ms
            except NotFoundError as error:
                if error.kind != HISTORY_GONE:
                    raise
        return tuple(
            replace(one, last_timestamp_ms=times.get(one.last_entry, one.last_timestamp_ms)) for one in found
        )

    def find_hanging(
        self,
        topic: str | None = None,
        partition: int | None = None,
        max_transaction_timeout_ms: int | None = None,
    ) -> HangingReport:
        """Look for transactions that no producer and no timeout can end, and for those that hold readers
        back.

        Parameters
        ----------
        topic, partition : optional
            Only there; default: the whole log.
        max_transaction_timeout_ms : int, optional
            Only transactions whose last append is older count as hanging; default: the longest timeout that
            the log allows (15 minutes unless it says otherwise).

        Returns
        -------
        HangingReport
            ``hanging`` as Kafka's tool finds it (KIP-664): open in a partition although no transactional id
            has it there. No writer can bring that about here. ``held``: late and prepared transactions, which
            look like it, and what to do about each.

        Requests: those of a refresh, and 1 GET for each spill of partitions with open transactions.
        """
        if max_transaction_timeout_ms is not None:
            whole("max_transaction_timeout_ms", max_transaction_timeout_ms)
        state, now_ms = self._committer.refresh_with_time()
        # The last append of a transaction may be spilled.
        held = {key: 0 for key, one in state.partitions.items() if one.spills and one.open}
        state = self._committer.read(with_spills(state, held))
        return find_hanging(
            state,
            now_ms,
            topic=topic,
            partition=partition,
            max_transaction_timeout_ms=max_transaction_timeout_ms,
        )

    def lingering(
        self,
        prefix: str,
        parallelism: int | None = None,
        safe_scale_down_factor: int = SAFE_SCALE_DOWN_FACTOR,
    ) -> tuple[LingeringTransaction, ...]:
        """List what is open under the ids ``prefix-<integer>``, by that integer.

        With ``parallelism`` each says which worker of such a job aborts it: None are those beyond the factor,
        which :meth:`abort` ends.
        """
        check_workers(prefix, parallelism, None, safe_scale_down_factor)
        state, now_ms = self._committer.refresh_with_time()
        return tuple(lingering_transactions(state, prefix, now_ms, parallelism, safe_scale_down_factor))

    # --- ending ---------------------------------------------------------------------------------------------

    def abort(
        self,
        transactional_id: str | None = None,
        *,
        prefix: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        start_offset: int | None = None,
        dry_run: bool = False,
    ) -> tuple[EndedTransaction, ...]:
        """Abort open transactions as an operator.

        Their producers learn it at their next call, and are fenced.

        Exactly one way to name them: an id; a ``prefix`` of ids; or ``topic``, ``partition`` and
        ``start_offset``, the transaction's first offset there.

        Parameters
        ----------
        dry_run : bool
            Only show the effect; change nothing.

        Returns
        -------
        tuple of EndedTransaction
            Of each transaction what was done. With a prefix, prepared ones are left alone and reported.

        Raises
        ------
        InvalidInputError
            Kind ``invalid-abort``: not exactly one way.
        InvalidTransactionStateError
            Kind ``transaction-prepared``: the one that was named is prepared. Kind ``hanging-transaction``:
            no transactional id has it.
        NotFoundError
            Kind ``unknown-transactional-id``, ``unknown-topic``, ``unknown-partition``,
            ``unknown-transaction``.
        """
        check_flags(dry_run=dry_run)
        place = (topic, partition, start_offset)
        named = (transactional_id is not None, prefix is not None, any(part is not None for part in place))
        if (
            sum(named) != 1
            or (named[2] and any(part is None for part in place))
            or not (prefix is None or (is_text(prefix) and prefix))
        ):
            raise InvalidInputError(
                "name transactions in exactly one way",
                kind="invalid-abort",
                hint="a transactional id; a prefix that is not empty; or topic, partition and "
                "start_offset together",
            )
        state, _ = self._committer.refresh_with_time()
        if prefix is not None:
            names = sorted(name for name in state.undecided if name.startswith(prefix))
            return self._end(state, names, dry_run=dry_run)
        name = "" if transactional_id is None else transactional_id
        if topic is not None and partition is not None and start_offset is not None:
            name = _name_at(state, topic, partition, start_offset)
        known_id(state, check_transactional_id(name))
        done = self._end(state, [name], dry_run=dry_run)
        for one in done:
            if one.outcome is EndingOutcome.PREPARED:
                raise _prepared(one)
        return done

    def force_terminate(self, transactional_id: str, *, dry_run: bool = False) -> EndedTransaction:
        """Abort the id's transaction for good, also when it is prepared (KIP-939).

        The operator who decides about a prepared one has to know: its token commits nothing any more.

        Raises
        ------
        NotFoundError
            Kind ``unknown-transactional-id``.
        """
        check_flags(dry_run=dry_run)
        state, _ = self._committer.refresh_with_time()
        known_id(state, check_transactional_id(transactional_id))
        (done,) = self._end(state, [transactional_id], force=True, dry_run=dry_run)
        return done

    def end_expired(self) -> tuple[EndedTransaction, ...]:
        """End all open transactions whose time is over.

        Any process may; every commit to the log does it besides.
        """
        ended = []
        for action in self._committer.end_expired():
            known = self._committer.state.transactional_ids.get(action.transactional_id)
            last = None if known is None else known.last_end
            entry = last.entry if last is not None and last.epoch == action.epoch else None
            ended.append(
                EndedTransaction(
                    action.transactional_id, action.producer_id, action.epoch, EndingOutcome.ABORTED, entry
                )
            )
        return tuple(ended)

    def end_expired_if_permitted(self) -> LogState:
        """As :meth:`end_expired`, for a reader: return the state, also when nothing may or can be ended.

        That is said once in the log "txnlog". Requests: 1 GET when nothing is new and nothing has expired.
        """
        try:
            self._committer.end_expired()
        except (StorageError, ConflictError, CommitStateUnknownError) as error:
            state = self._committer.refresh()  # raises when it is reading that fails
            if not self._warned:
                self._warned = True
                url = self._committer.store.url
                logger.warning("expired transactions of %s cannot be ended by this reader: %s", url, error)
            return state
        return self._committer.state

    def abort_lingering(
        self,
        prefix: str,
        parallelism: int,
        worker: int,
        safe_scale_down_factor: int = SAFE_SCALE_DOWN_FACTOR,
        *,
        opened_before_entry: int | None = None,
        restored: bool = False,
        dry_run: bool = False,
    ) -> tuple[EndedTransaction, ...]:
        """Abort what an earlier run of a parallel job left open under the ids that are this worker's to clean
        up.

        Worker i of p takes the existing ids ``prefix-<integer k>`` with k ≡ i (mod p) and k < p × factor: its
        own first, then the others by number. Prepared transactions are left alone.

        Parameters
        ----------
        worker : int
            0 to ``parallelism`` - 1.
        safe_scale_down_factor : int
            A job may come back with this part of its workers at the least; :meth:`lingering` finds what is
            beyond.
        opened_before_entry : int, optional
            Only transactions whose first entry is below this one (exclusive): the next entry when the caller
            started, ``log.refresh().entry + 1``. Default: when this call began.
        restored : bool
            The job continues from a checkpoint: abort only the worker's own id.
        dry_run : bool
            Only show the effect; change nothing.

        Raises
        ------
        InvalidInputError
            Kind ``invalid-lingering``: every problem of the arguments.
        """
        check_flags(restored=restored, dry_run=dry_run)
        check_workers(prefix, parallelism, worker, safe_scale_down_factor)
        if opened_before_entry is not None:
            whole("opened_before_entry", opened_before_entry)
        state, _ = self._committer.refresh_with_time()
        names = worker_ids(state, prefix, parallelism, worker, safe_scale_down_factor, own_only=restored)
        before = state.entry + 1 if opened_before_entry is None else opened_before_entry
        return self._end(state, names, opened_before_entry=before, dry_run=dry_run)

    def _end(
        self,
        state: LogState,
        names: Sequence[str],
        *,
        force: bool = False,
        opened_before_entry: int | None = None,
        dry_run: bool = False,
    ) -> tuple[EndedTransaction, ...]:
        """End the transactions that ``state`` has under some ids, all together, and say for each what was
        done.
        """
        found: dict[str, EndedTransaction] = {}
        actions: list[EndTransaction] = []
        for name in names:
            known = state.transactional_ids[name]
            outcome = _judge(known, force, opened_before_entry)
            found[name] = EndedTransaction(name, known.producer_id, known.epoch, outcome)
            if outcome is EndingOutcome.WOULD_ABORT:
                actions.append(
                    EndTransaction(name, known.producer_id, known.epoch, Cause.OPERATOR, force=force)
                )
        if actions and not dry_run:
            answers = self._committer.commit_together([self._committer.intend(action) for action in actions])
            for action, answer in zip(actions, answers, strict=True):
                name = action.transactional_id
                found[name] = _with_answer(found[name], answer)
        return tuple(found.values())


def _judge(known: TransactionalIdState, force: bool, opened_before_entry: int | None) -> EndingOutcome:
    if known.status not in UNDECIDED:
        return EndingOutcome.NOT_OPEN
    if known.status is TransactionStatus.PREPARED and not force:
        return EndingOutcome.PREPARED
    if opened_before_entry is not None and (known.started_entry or 0) >= opened_before_entry:
        return EndingOutcome.YOUNGER
    return EndingOutcome.WOULD_ABORT


_FASTER = ("transaction-committed", "no-transaction", "unknown-transactional-id")
"""Kinds of refusals that say that the transaction is not there any more."""


def _with_answer(one: EndedTransaction, answer: CommitResult | TxnLogError) -> EndedTransaction:
    if isinstance(answer, CommitResult):
        outcome = EndingOutcome.ENDED_BEFORE if answer.repeated else EndingOutcome.ABORTED
        return replace(one, outcome=outcome, entry=answer.entry)
    if answer.kind in _FASTER:
        return replace(one, outcome=EndingOutcome.ENDED_BEFORE, entry=answer.values.get("entry"))
    if answer.kind == "transaction-prepared":
        return replace(one, outcome=EndingOutcome.PREPARED)
    raise answer.with_traceback(None)


def _prepared(one: EndedTransaction) -> InvalidTransactionStateError:
    return InvalidTransactionStateError(
        "the transaction is prepared: its coordinator decides the outcome",
        kind="transaction-prepared",
        hint="its coordinator must commit or abort it; force_terminate aborts it for good",
        transactional_id=one.transactional_id,
        producer_id=one.producer_id,
        epoch=one.producer_epoch,
    )


def _name_at(state: LogState, topic: str, partition: int, start_offset: Any) -> str:
    """Return the id whose open transaction has its first offset in a partition there."""
    found = state.partition(named_partition(state, topic, partition))
    if not isinstance(start_offset, Integral):
        raise InvalidInputError(
            f"start_offset is {repr_of(start_offset, 80)}, not a whole number", kind="invalid-abort"
        )
    transaction = transaction_at(found, int(start_offset))
    if transaction is None:
        raise NotFoundError(
            "no open transaction has its first offset there",
            kind="unknown-transaction",
            hint="txnlog transactions describe-producers shows where each starts",
            topic=topic,
            partition=partition,
            start_offset=start_offset,
            open_start_offsets=sorted(found.open.values())[:20],
        )
    for name in state.undecided:
        known = state.transactional_ids[name]
        if (known.producer_id, known.epoch) == transaction:
            return name
    raise InvalidTransactionStateError(
        "no transactional id has this transaction, so it cannot be ended: the state is damaged",
        kind="hanging-transaction",
        hint="txnlog verify compares the state with what the entries say",
        topic=topic,
        partition=partition,
        start_offset=start_offset,
        producer_id=transaction[0],
        epoch=transaction[1],
    )
