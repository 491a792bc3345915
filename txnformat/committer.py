"""Group commit inside a process: threads hand in intents, one of them leads and commits for all.

The leader takes everything that waits, commits it as one group, answers, and passes the lead on as soon as its
own intent has its answer, so that no thread works for others for ever.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from txnformat.background import Background
from txnformat.bundling import bundle_due, write_bundles
from txnformat.clock import Clock, Ids, waited_ms
from txnformat.commit import CommitSettings, commit_group
from txnformat.commit_counts import CommitCounter
from txnformat.driver import Driver
from txnformat.effects import ReadClock, Steps, Times
from txnformat.errors import (
    CommitStateUnknownError,
    ConflictError,
    InternalError,
    InvalidInputError,
    InvalidTransactionStateError,
    TxnLogError,
)
from txnformat.expiry import Watch
from txnformat.follow import open_view, refresh
from txnformat.forking import renew_after_fork
from txnformat.intents import Action, CommitResult, EndTransaction, Intent, SealSegments, TakeCheckpoint
from txnformat.operations import Cause, Expire, Operation, Seal
from txnformat.pace import Pace
from txnformat.retention import expirable
from txnformat.sealing import seal_due, sealable, stable_ends, write_segments
from txnformat.snapshotting import snapshot_due, write_hint, write_snapshot
from txnformat.state import LogState
from txnformat.store.base import ObjectStore
from txnformat.store.probe import ensure_fit
from txnformat.view import View

__all__ = ["Committer"]

T = TypeVar("T")

logger = logging.getLogger("txnlog")

WAKE_SECONDS = 0.5
"""How long a thread waits for its answer at a time."""


def _interrupted() -> CommitStateUnknownError:
    return CommitStateUnknownError("the commit was interrupted", hint="repeat the same call, abort, or close")


@dataclass(eq=False, slots=True)
class _Waiter:
    """A thread that waits for the answer to its intent, or for the lead."""

    intent: Intent
    unsent: bool = False
    """Whether the intent was never sent to any slot."""
    wake: threading.Event = field(default_factory=threading.Event)
    answer: CommitResult | TxnLogError | None = None


class Committer:
    """A process's handle on the chain of one log: follows it, and commits to it.

    Safe for use by many threads, and in a forked child, which opens the log anew. Nothing is read or written before
    the first call of a method.

    Parameters
    ----------
    store, clock, ids : components
        The real ones, or a test's.
    settings : CommitSettings
        Bounds of the commit loop.
    """

    def __init__(
        self, store: ObjectStore, clock: Clock, ids: Ids, settings: CommitSettings | None = None
    ) -> None:
        self.store = store
        self.clock = clock
        self.ids = ids
        self.settings = settings or CommitSettings()
        self.counter = CommitCounter()
        self._driver = Driver(store, clock, ids, self.counter)
        self.renew()
        renew_after_fork(self)

    def __reduce__(self) -> NoReturn:
        # Logs, and what is made from one, hold a committer: pickle would say that a lock inside cannot be pickled.
        raise InvalidInputError(
            f"an open log cannot be pickled or copied: it stays in the process that opened it ({self.store.url})",
            kind="not-picklable",
            hint="open it where it is used, in the process or the task of Spark: TxnLog.open(path)",
        )

    def renew(self) -> None:
        """Know nothing, and have no threads: as at first. In a forked child the parent's may have been anywhere."""
        self._view: View | None = None
        self._pace = Pace()
        self._watch = Watch()
        self._view_lock = threading.Lock()  # held while the view is in use by steps that replace it
        self._queue_lock = threading.Lock()
        self._queue: list[_Waiter] = []
        self._leader: _Waiter | None = None
        self._unsent: set[str] = set()  # ids of intents made here that no call of commit has taken yet
        self._background = Background()

    def run(self, steps: Callable[[View], Steps[View]]) -> LogState:
        """Replace the view by what ``steps`` make of it, and return its state."""
        with self._view_lock:
            view = self._view if self._view is not None else self._driver.run(open_view())
            self._view = self._driver.run(steps(view))
            self._watch.note(self._view.state, self.clock.now().boot_ms)
            return self._view.state

    @property
    def state(self) -> LogState:
        """Return the state as last seen; opens the log when nothing was seen yet."""
        view = self._view
        if view is None:
            with self._view_lock:
                view = self._view = self._view or self._driver.run(open_view())
        return view.state

    def refresh(self) -> LogState:
        """Follow the log to its tip. Requests: 1 GET when nothing is new."""
        if self._view is None:
            return self.state
        return self.run(refresh)

    def read(self, steps: Steps[T]) -> T:
        """Run steps that only read."""
        return self._driver.run(steps)

    def intend(self, action: Action) -> Intent:
        """Return an intent for ``action``; committing the same intent again never applies it twice."""
        intent = Intent(self.ids.new(), self.state.entry + 1, action)
        with self._queue_lock:
            self._unsent.add(intent.intent_id)
        return intent

    def commit(self, intent: Intent) -> CommitResult:
        """Commit an intent, together with those of other threads that wait at the same time.

        Raises
        ------
        TxnLogError
            Whatever says why it was not applied; CommitStateUnknownError when nobody can tell.
        """
        (answer,) = self.commit_together([intent])
        if isinstance(answer, TxnLogError):
            raise answer.with_traceback(None)
        return answer

    def commit_together(self, intents: Sequence[Intent]) -> list[CommitResult | TxnLogError]:
        """Commit intents in as few entries as they fit into, and return the answer to each; an error is not raised."""
        waiters = [_Waiter(intent) for intent in intents]
        since = self.clock.now()
        try:
            for waiter in waiters:
                self._join(waiter)
            for waiter in waiters:
                if self._leader is not waiter:
                    while not waiter.wake.wait(WAKE_SECONDS):
                        pass  # a Ctrl-C that came just before a wait began is noticed only after it
                if waiter.answer is None:
                    self._lead(waiter)
                self._leave(waiter)
        finally:
            for waiter in waiters:
                self._leave(waiter)
        answers = [_answer_of(waiter) for waiter in waiters]
        for answer in answers:
            self.counter.answered(answer, waited_ms(since, self.clock.now()))
        return answers

    def _join(self, waiter: _Waiter) -> None:
        """Queue up; whoever comes first leads."""
        with self._queue_lock:
            waiter.unsent = waiter.intent.intent_id in self._unsent
            self._unsent.discard(waiter.intent.intent_id)
            self._queue.append(waiter)
            if self._leader is None:
                self._leader = waiter

    def _leave(self, waiter: _Waiter) -> None:
        """Take the waiter out, answered or interrupted (Ctrl-C); its lead goes to whoever has waited longest."""
        with self._queue_lock:
            if waiter in self._queue:
                self._queue.remove(waiter)
            if self._leader is waiter:
                self._leader = self._queue[0] if self._queue else None
                if self._leader is not None:
                    self._leader.wake.set()

    def _lead(self, own: _Waiter) -> None:
        group: list[_Waiter] = []
        try:
            while own.answer is None:
                with self._queue_lock:
                    group, self._queue = self._queue, []
                self.counter.group(len(group))
                self._commit_group(group)
        finally:
            self._answer(group, {}, _interrupted())  # those whom an interrupt left without an answer

    def _commit_group(self, group: list[_Waiter]) -> None:
        answers: dict[str, CommitResult | TxnLogError] = {}
        unanswered: TxnLogError = _interrupted()
        extents_before = 0
        try:
            ensure_fit(self.store, self.ids)
            with self._view_lock:
                view = self._view if self._view is not None else self._driver.run(open_view())
                extents_before = view.state.extents
                self._view, answers = self._driver.run(
                    commit_group(
                        view,
                        [waiter.intent for waiter in group],
                        self.settings,
                        unsent=frozenset(waiter.intent.intent_id for waiter in group if waiter.unsent),
                        pace=self._pace,
                        watch=self._watch,
                    )
                )
        except TxnLogError as error:
            unanswered = error
        finally:
            self._answer(group, answers, unanswered)
        self._maintain_if_due(answers, extents_before)

    def _answer(
        self, group: list[_Waiter], answers: dict[str, CommitResult | TxnLogError], unanswered: TxnLogError
    ) -> None:
        for waiter in group:
            if waiter.answer is None:
                waiter.answer = answers.get(waiter.intent.intent_id, unanswered)
                waiter.wake.set()

    def _maintain_if_due(self, answers: dict[str, CommitResult | TxnLogError], extents_before: int) -> None:
        """Start what keeps the log small, after the acknowledgement: a snapshot when the tail is long, a seal, a bundle."""
        view = self._view
        if view is None:
            return
        own = [
            answer.entry
            for answer in answers.values()
            if isinstance(answer, CommitResult) and not answer.repeated
        ]
        landed = bool(own)
        uniform = self.ids.uniform()
        if snapshot_due(view.state, landed, uniform):
            self._background.start("snapshot", self._write_snapshot)
        if seal_due(view.state, extents_before, landed, uniform, self.settings.seal_extents):
            self._background.start("seal", self.seal)
        first = bundle_due(own)
        if first is not None:
            self._background.start("bundle", lambda: self._driver.run(write_bundles(first)))

    def _write_snapshot(self) -> None:
        self.expire()  # now and then is enough, and what is gone need not be written
        view = self._view
        if view is None:
            return
        checkpoint = self._driver.run(write_snapshot(view))
        try:
            self.commit(self.intend(TakeCheckpoint(checkpoint)))
        except ConflictError as error:
            logger.debug("no snapshot: %s", error)  # another process was faster
        else:
            self._driver.run(write_hint(checkpoint))

    def seal(self) -> list[Seal]:
        """Seal everything that can be sealed now, in one entry for each 1,000 partitions or 100,000 batches.

        What is appended meanwhile is left for the next time, so that this comes to an end. Fewer, or none, when
        somebody else seals at the same time.
        """
        done: list[Seal] = []
        ends = stable_ends(self.state)
        while not done or sealable(self.state, ends):
            seal = self._driver.run(write_segments(self.state, ends))
            if seal is None:
                break
            try:
                self.commit(self.intend(SealSegments(seal)))
            except ConflictError as error:
                logger.debug("not sealed: %s", error)
                break
            done.append(seal)
        return done

    def end_expired(self) -> list[EndTransaction]:
        """End all open transactions whose time is over, and return what was ended; see :class:`~txnformat.expiry.Watch`.

        Requests: those of a refresh, and 1 entry for every 100 transactions.
        """
        self.refresh()
        ended = []
        with self._view_lock:
            expired = self._watch.expired(self.state, self._driver.run(_times()))
        for action in expired:
            known = self.state.transactional_ids.get(action.transactional_id)
            if known is not None and known.epoch == action.epoch:
                try:
                    self.commit(self.intend(action))
                except InvalidTransactionStateError as error:
                    logger.debug("not ended: %s", error)  # its producer was faster
                    continue
            known = self.state.transactional_ids.get(action.transactional_id)
            last = None if known is None else known.last_end
            if last is None or last.epoch != action.epoch or last.cause is Cause.TIMEOUT:
                ended.append(action)  # here or in the entry for another: every commit ends what it can
        return ended

    def expire(self) -> list[Expire]:
        """Forget what nobody has used for long, and return what was forgotten; see :mod:`txnformat.retention`.

        Requests: 1 entry for every 1,000 transactional ids, producers and blocks; none when nothing is idle.
        """
        done: list[Expire] = []
        while True:
            wanted = expirable(
                self.state,
                self._driver.run(_times()).store_ms,
                producer_retention_ms=self.settings.producer_retention_ms,
                transactional_id_retention_ms=self.settings.transactional_id_retention_ms,
            )
            if wanted is None:
                return done
            try:
                result = self.commit(self.intend(wanted))
            except ConflictError as error:
                logger.debug("nothing forgotten: %s", error)  # somebody else was faster
                return done
            done += [op for op in result.operations if isinstance(op, Expire)]

    def close(self) -> None:
        """Wait for background work: a snapshot, segment or bundle that is being written."""
        self._background.wait()


def _answer_of(waiter: _Waiter) -> CommitResult | TxnLogError:
    if waiter.answer is None:
        raise InternalError("a commit ended without an answer", intent=waiter.intent.intent_id)
    return waiter.answer


def _times() -> Steps[Times]:
    times: Times = yield ReadClock()
    return times


def operation_of(result: CommitResult, kind: type[Operation]) -> Operation:
    """Return the one operation of a kind in a result."""
    for operation in result.operations:
        if isinstance(operation, kind):
            return operation
    raise InternalError("a commit's result lacks an operation", kind_wanted=kind.__name__, entry=result.entry)
