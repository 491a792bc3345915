"""Group commit inside a process: threads hand in intents, one of them leads and commits for all.

The leader takes everything that waits, commits it as one group, answers, and passes the lead on as soon as
its own intents have their answers, so that no thread works for others for ever.

The view is an immutable value: all read it without a lock, and a commit that takes long holds up no reader.
Commits and refreshes begin from the newest view and publish what they come to, never an older one.

Signal handlers raise in the main thread, which therefore leads no group and holds no lock: its calls are
errands (:mod:`txnformat.shield`). An interrupt reaches the caller at once, and the call goes on without it; a
commit may then land. Should anything else cut a leader off (no memory, an asynchronous exception), those who
wait stay in the queue, and the next leader commits the same intents again, which the log recognises.
"""

from __future__ import annotations

import contextlib
import logging
from _thread import allocate_lock
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn, TypeVar

from txnformat.client.background import Background
from txnformat.client.calls import CommitCall, Waiter, answer_of, unanswered_error
from txnformat.client.commit_counts import CommitCounter
from txnformat.client.commit_spans import tell
from txnformat.client.driver import Driver
from txnformat.clock import Clock, Ids, waited_ms
from txnformat.core.intents import (
    Action,
    CommitResult,
    EndTransaction,
    ExpireIdle,
    Intent,
    SealSegments,
    SpillExtents,
    TakeCheckpoint,
    Write,
)
from txnformat.core.lifecycle.idle import expirable
from txnformat.core.lifecycle.vacuum import GRACE_MS_MIN
from txnformat.core.operations import Cause, Expire, Operation, Seal, Spill
from txnformat.core.state import EMBEDDING, LogState
from txnformat.errors import (
    ConflictError,
    InternalError,
    InvalidInputError,
    InvalidTransactionStateError,
    StorageError,
    TxnLogError,
    UploadExpiredError,
    repr_of,
)
from txnformat.forking import renew_after_fork
from txnformat.protocol.commit import CommitSettings, commit_group
from txnformat.protocol.effects import ReadClock, Steps, Times
from txnformat.protocol.expiry import Watch
from txnformat.protocol.follow import open_view, refresh, refresh_roughly
from txnformat.protocol.growth import crosses, growing
from txnformat.protocol.pace import Pace
from txnformat.protocol.sealing import merge_lists, seal_due, sealable, stable_ends, write_segments
from txnformat.protocol.snapshots import snapshot_due, write_hint, write_snapshot
from txnformat.protocol.spilling import log_ends, write_spill
from txnformat.protocol.tail import bundle_due, payloads_due, write_bundles, write_payloads
from txnformat.protocol.view import View, age_of
from txnformat.shield import shielded
from txnformat.spans import span
from txnformat.store.base import ObjectStore
from txnformat.store.probe import ensure_fit
from txnformat.store.recent import recent_payloads
from txnformat.types import TopicPartition

__all__ = ["Committer"]

T = TypeVar("T")
O = TypeVar("O", bound=Operation)

logger = logging.getLogger("txnlog")

SNAPSHOT_PAYLOAD_BYTES, SEAL_PAYLOAD_BYTES = 8 * 2**20, 32 * 2**20
"""Bytes that a process embeds until it writes a snapshot, so that openers need not read them, and until it
seals: its entries wait for that to be truncated."""
SEAL_PAYLOADS = 1_024
"""Entries with embedded files that a process writes until it seals: a reader fetches each of them, and
decodes its files one by one."""

PUBLISH_SECONDS = 1.0
"""How long a view waits to be published: an asynchronous exception may have ended the thread that held the
lock."""

UPLOAD_VIEW_MS_MAX = GRACE_MS_MIN // 4
"""Oldest view that says when a new object was born: else a vacuum's grace would begin long before the upload.
"""

UNSENT_MAX = 4_096
"""Most intents that are remembered as never sent: those whose callers were interrupted are never committed.
"""

_LEAD = "lead"


class Committer:
    """A process's handle on the chain of one log: follows it, and commits to it.

    Safe for use by many threads, and in a forked child, which opens the log again. Nothing is read or written
    before the first call of a method.
    """

    def __init__(
        self, store: ObjectStore, clock: Clock, ids: Ids, settings: CommitSettings | None = None
    ) -> None:
        self.store = store
        self.clock = clock
        self.ids = ids
        if not isinstance(settings, CommitSettings | None):
            raise InvalidInputError(
                f"settings is {repr_of(settings, 80)}, not CommitSettings", kind="invalid-settings"
            )
        self.settings = CommitSettings() if settings is None else settings
        self.counter = CommitCounter()
        self._driver = Driver(store, clock, ids, self.counter)
        self.renew()
        renew_after_fork(self)

    def __reduce__(self) -> NoReturn:
        # Logs, and what is made from one, hold a committer: pickle would say that a lock inside cannot be
        # pickled.
        raise InvalidInputError(
            "an open log cannot be pickled or copied: it stays in the process that opened it "
            f"({self.store.url})",
            kind="not-picklable",
            hint="open it where it is used, in the process or the task of Spark: TxnLog.open(path)",
        )

    def renew(self) -> None:
        """Reset to the initial state, without threads.

        In a forked child the parent's may have been anywhere.
        """
        self._view: View | None = None
        self._publishing = allocate_lock()
        self._pace = Pace()  # the leader's
        self._embedded = {"snapshot": 0, "seal": 0}  # bytes since the last one of each
        self._payloads = 0  # entries with embedded files since the last seal
        self._watch = Watch()
        # Lists and dicts are changed by single calls of C functions, so that they need no lock.
        self._queue: list[Waiter] = []  # all that have no answer, also those that are being committed
        self._lead: dict[
            str, CommitCall
        ] = {}  # the call that leads: ``setdefault`` takes the lead or tells it
        self._unsent: dict[str, bool] = {}  # ids of intents made here that no call of commit has taken yet
        self._background = Background(self.clock)

    def run(self, steps: Callable[[View], Steps[View]]) -> LogState:
        """Publish what ``steps`` make of the newest view, and return the state that is then the newest."""
        return shielded(lambda: self._run(steps))

    def _run(self, steps: Callable[[View], Steps[View]]) -> LogState:
        state = self._publish(self._driver.run(steps(self._newest()))).state
        self._watch.note(state, self.clock.now().boot_ms)
        return state

    def _newest(self) -> View:
        """Return the newest view; opens the log when there is none."""
        view = self._view
        if view is not None:
            return view
        with span("open", log=self.store.url) as one:
            view = self._publish(self._driver.run(open_view()))
            one.set(entry=view.state.entry)
            return view

    def _publish(self, view: View) -> View:
        """Let all know of a view unless they know a newer one; return the newest."""
        publishing = self._publishing
        has_lock = publishing.acquire(timeout=PUBLISH_SECONDS)
        try:
            known = self._view
            if known is not None and not view.supersedes(known):
                return known
            self._view = view
            return view
        finally:
            if has_lock:
                publishing.release()
            else:
                self._publishing = allocate_lock()

    @property
    def state(self) -> LogState:
        """Return the state as last seen; opens the log when nothing was seen yet."""
        view = self._view
        return view.state if view is not None else shielded(self._newest).state

    def refresh(self) -> LogState:
        """Follow the log to its tip; never waits for another thread. Requests: 1 GET when nothing is new."""
        if self._view is None:
            return self.state
        return self.run(refresh)

    def refresh_roughly(self) -> LogState:
        """Follow the log to its tip, or, where entries come by the hundred, to one that is less than a
        hundred below it.
        """
        if self._view is None:
            return self.state
        return self.run(refresh_roughly)

    def expects_others(self) -> bool:
        """Return whether others have committed lately, so that a look before a commit is cheaper than an
        attempt that loses its slot.
        """
        return self._view is not None and self._view.behind > 0

    def born(self) -> int:
        """Return the entry that objects uploaded from now on are born in, for their keys.

        Requests: 1 GET if the view is older than half an hour.

        A lower bound is always right: an object that was born too early expires earlier. So an outage does
        not matter.
        """
        view = self._view
        now = self.clock.now()
        if view is not None and view.proof is not None:
            here = Times(now.wall_ms, now.boot_ms, view.proof.store_ms)
            if age_of(view.proof, here) > UPLOAD_VIEW_MS_MAX:
                try:
                    self.refresh()
                except StorageError as error:
                    logger.debug("an upload begins with an old view: %s", error)
        return max(self.state.entry, 0)

    def refresh_with_time(self) -> tuple[LogState, int]:
        """Return the newest state, and the store's time, or log time where that is ahead."""
        state = self.refresh()
        return state, max(self.store.store_time_ms(), state.timestamp_ms)

    def read(self, steps: Steps[T]) -> T:
        """Run steps that only read."""
        return shielded(lambda: self._driver.run(steps))

    def intend(self, action: Action) -> Intent:
        """Return an intent for ``action``; committing the same intent again never applies it twice."""
        intent = Intent(self.ids.new(), self.state.entry + 1, action)
        unsent = self._unsent
        unsent[intent.intent_id] = True
        if len(unsent) > UNSENT_MAX:  # an intent that is forgotten here must be within the log's window
            for forgotten in list(unsent)[: UNSENT_MAX // 2]:
                unsent.pop(forgotten, None)
        return intent

    def commit(self, intent: Intent) -> CommitResult:
        """Commit an intent, together with those of other threads that wait at the same time; raise what says
        why it was not applied.

        Interrupted (Ctrl-C), or with CommitStateUnknownError, it may or may not land: the same intent may be
        committed again.
        """
        (answer,) = self.commit_together([intent])
        if isinstance(answer, TxnLogError):
            raise answer.with_traceback(None)
        return answer

    def commit_together(self, intents: Sequence[Intent]) -> list[CommitResult | TxnLogError]:
        """Commit intents in as few entries as they fit into, and return the answer to each; an error is not
        raised.
        """
        return shielded(lambda: self._commit_together(intents))

    def _commit_together(self, intents: Sequence[Intent]) -> list[CommitResult | TxnLogError]:
        since = self.clock.now()
        call = CommitCall(intents)
        with span("commit", log=self.store.url) as one:
            answers = self._answered(call)
            if one:
                tell(one, self.state, intents, answers)
        for answer in answers:
            self.counter.answered(answer, waited_ms(since, self.clock.now()))
        return answers

    def _answered(self, call: CommitCall) -> list[CommitResult | TxnLogError]:
        try:
            try:
                self._wait_or_lead(call)
            finally:
                self._leave(call)
        finally:
            self._leave(call)  # the first time may have been cut off, too; a leader that is gone blocks all
        return [answer_of(waiter) for waiter in call.waiters]

    def _wait_or_lead(self, call: CommitCall) -> None:
        for waiter in call.waiters:
            waiter.unsent = self._unsent.pop(waiter.intent.intent_id, False)
        self._queue.extend(call.waiters)
        while not call.is_answered:
            if self._lead.setdefault(_LEAD, call) is call:
                self._commit_waiting()
            else:
                call.wait()

    def _leave(self, call: CommitCall) -> None:
        """Take a call out, answered or cut off; its lead goes to the call that has waited longest."""
        for waiter in call.waiters:
            with contextlib.suppress(ValueError):  # it never came to wait
                self._queue.remove(waiter)
        if self._lead.get(_LEAD) is call:
            self._lead.pop(_LEAD, None)
            for waiter in self._queue[:1]:
                waiter.call.wake()

    def _commit_waiting(self) -> None:
        """Commit everything that waits as one group, and answer."""
        group = [waiter for waiter in self._queue[:] if waiter.answer is None]
        self.counter.group(len(group))
        # A call that was interrupted goes on, and its caller may repeat it meanwhile: the same intent waits
        # twice.
        intents = {waiter.intent.intent_id: waiter.intent for waiter in group}
        unsent = frozenset(waiter.intent.intent_id for waiter in group if waiter.unsent)
        answers: dict[str, CommitResult | TxnLogError] = {}
        unanswered: TxnLogError | None = None
        extents_before = 0
        try:
            ensure_fit(self.store, self.ids)
            view = self._newest()
            extents_before = view.state.extents
            view, answers = self._driver.run(
                commit_group(
                    view,
                    list(intents.values()),
                    self.settings,
                    unsent=unsent,
                    pace=self._pace,
                    watch=self._watch,
                )
            )
            self._publish(view)
        except TxnLogError as error:
            unanswered = error
        finally:
            for waiter in group:
                waiter.unsent = False  # who is cut off here may have sent it
        for waiter in group:
            waiter.answer = answers.get(waiter.intent.intent_id, unanswered) or unanswered_error(
                waiter.intent
            )
            waiter.call.wake()
        try:
            self._note_embedded(intents.values())
            self._maintain_if_due(answers, extents_before)
        except Exception as error:  # noqa: BLE001  # no reason to fail commits that have landed
            logger.warning("background work could not be started, and is tried again later: %r", error)

    def _note_embedded(self, intents: Iterable[Intent]) -> None:
        more = sum(one.action.payload_bytes for one in intents if isinstance(one.action, Write))
        for name in self._embedded:
            self._embedded[name] += more
        self._payloads += more > 0

    def _maintain_if_due(self, answers: dict[str, CommitResult | TxnLogError], extents_before: int) -> None:
        """Start what keeps the log small, after the acknowledgement: a snapshot when the tail is long, a
        seal, a bundle.
        """
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
        if snapshot_due(view.state, landed, uniform) or self._embedded["snapshot"] > SNAPSHOT_PAYLOAD_BYTES:
            self._embedded["snapshot"] = 0
            self._background.start("snapshot", self._write_snapshot)
        is_due = seal_due(view.state, extents_before, landed, uniform, self.settings.seal_extents)
        if is_due or self._embedded["seal"] > SEAL_PAYLOAD_BYTES or self._payloads > SEAL_PAYLOADS:
            self._embedded["seal"] = self._payloads = 0
            self._background.start("seal", self.seal)
        if landed and crosses(extents_before, view.state.extents, self.settings.seal_extents):
            self._background.start("growth", self._warn_of_growth)
        first = bundle_due(own)
        has_payloads = EMBEDDING in view.state.features.reader and self.store.reads_in_flight > 1
        due = payloads_due(own) if has_payloads else []
        if first is not None or due:
            self._background.start("bundle", lambda: self._write_bundles(first, due))

    def _warn_of_growth(self) -> None:
        view = self._view
        for one in growing(view.state, self.settings.seal_extents) if view is not None else ():
            place = f" of {one.topic}/{one.partition}" if one.topic else ""
            logger.warning("the log's state grows (%s%s): %s; %s", one.kind, place, one.cause, one.hint)

    def _write_bundles(self, first: int | None, due: Sequence[tuple[int, int]]) -> None:
        kept = recent_payloads(self.store).whole
        self._driver.run(write_payloads(due, kept))
        if first is not None:
            self._driver.run(write_bundles(first, kept))

    def write_snapshot(self) -> None:
        """Write a snapshot of the newest state, name it in an entry, and let ``latest`` name it; nothing, if
        another process is faster.

        Requests: 1 entry and some 4 more.
        """
        shielded(self._write_snapshot)

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

    def seal(self, *, merge: bool = False, topic_id: str | None = None) -> list[Seal]:
        """Seal everything that can be sealed now, in one entry for each 1,000 partitions or 100,000 batches;
        then spill what open transactions hold back.

        ``merge``: then merge the segment lists that are too large for writers, too. ``topic_id``: of this
        topic alone, which damage of others does not concern.

        Records appended meanwhile are left for the next call, so that this one comes to an end. Fewer, or
        none, when another process seals at the same time. Interrupted, it goes on without its caller. Raises
        CorruptDataError about a payload that cannot be read, when everything else is sealed.
        """
        return shielded(lambda: self._seal(merge, topic_id))

    def _seal(self, merge: bool = False, topic_id: str | None = None) -> list[Seal]:
        with span("seal", log=self.store.url) as one:
            done = self._sealed(merge, topic_id)
            one.set(seals=len(done))
            return done

    def _sealed(self, merge: bool, topic_id: str | None) -> list[Seal]:
        done: list[Seal] = []
        ends = stable_ends(self.state, topic_id)
        kept = recent_payloads(self.store).get
        while not done or sealable(self.state, ends):
            if not self._commit_seal(self._driver.run(write_segments(self.state, ends, kept)), done):
                break
        if merge:
            self._commit_seal(self._driver.run(merge_lists(self.state)), done)
        self._spill(log_ends(self.state, topic_id), self.settings.seal_extents)
        return done

    def spill(self, topic_id: str) -> None:
        """Spill what open transactions hold back in a topic, however little it is: embedded records there
        become objects.

        Nothing, in a log that cannot spill.

        Raises CorruptDataError about a payload that cannot be read.
        """
        shielded(lambda: self._spill(log_ends(self.state, topic_id), 1))

    def _spill(self, ends: Mapping[TopicPartition, int], bound: int) -> None:
        while self._commit_spill(self._driver.run(write_spill(self.state, bound, ends))):
            pass

    def _commit_seal(self, seal: Seal | None, done: list[Seal]) -> bool:
        if seal is None or not self._commit_written(SealSegments(seal)):
            return False
        done.append(seal)
        return True

    def _commit_spill(self, spill: Spill | None) -> bool:
        return spill is not None and self._commit_written(SpillExtents(spill))

    def _commit_written(self, action: SealSegments | SpillExtents) -> bool:
        """Commit what names objects that were written for it; False: another process was faster."""
        try:
            self.commit(self.intend(action))
        except (ConflictError, UploadExpiredError) as error:
            logger.debug("neither sealed nor spilled: %s", error)
            return False
        return True

    def end_expired(self) -> list[EndTransaction]:
        """End all open transactions whose time is over, and return what was ended; see
        :class:`~txnformat.protocol.expiry.Watch`.

        Requests: those of a refresh, and 1 entry for every 100 transactions.
        """
        return shielded(self._end_expired)

    def expired(self) -> list[EndTransaction]:
        """Return what :meth:`end_expired` would end; nothing is changed."""
        self.refresh()
        return self._watch.expired(self.state, self.read(_times()))

    def expirable(self) -> list[Expire]:
        """Return what the first entry of :meth:`expire` would forget; nothing is changed."""
        wanted = self._expirable()
        return [] if wanted is None else [wanted.expire]

    def _end_expired(self) -> list[EndTransaction]:
        ended = []
        for action in self.expired():
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
        """Forget what was idle for long, and return what was forgotten; see
        :mod:`txnformat.core.lifecycle.idle`.

        Requests: 1 entry for every 1,000 transactional ids, producers and blocks; none when nothing is idle.
        """
        return shielded(self._expire)

    def _expirable(self) -> ExpireIdle | None:
        return expirable(
            self.state,
            self.read(_times()).store_ms,
            producer_retention_ms=self.settings.producer_retention_ms,
            transactional_id_retention_ms=self.settings.transactional_id_retention_ms,
        )

    def _expire(self) -> list[Expire]:
        done: list[Expire] = []
        while True:
            wanted = self._expirable()
            if wanted is None:
                return done
            try:
                result = self.commit(self.intend(wanted))
            except ConflictError as error:
                logger.debug("another client has forgotten the idle producers already: %s", error)
                return done
            done += [op for op in result.operations if isinstance(op, Expire)]

    def close(self) -> None:
        """Wait for background work (a snapshot, segment or bundle that is being written), for two minutes at
        most.

        Interrupted, it need not be called again.
        """
        shielded(self._background.wait)


def _times() -> Steps[Times]:
    times: Times = yield ReadClock()
    return times


def operation_of(result: CommitResult, kind: type[O]) -> O:
    """Return the one operation of a kind in a result."""
    for operation in result.operations:
        if isinstance(operation, kind):
            return operation
    raise InternalError("a commit's result lacks an operation", kind_wanted=kind.__name__, entry=result.entry)
