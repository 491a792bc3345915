"""The commit loop: refresh, decide, create, read back. Steps without IO.

    view ── assemble ──> entry for slot n+1 ── create ──> ours:    fold it, deliver the verdicts
              ^                                           lost:    fold the winner, wait, decide again
              └───────────────────────────────────────────┘        (bounded by attempts and deadline)
                                                          unknown: every verdict of the group is unknown

Rules: no verdict is delivered before the entry that it depends on is known to be ours; no rejection comes
from a view that was not refreshed since the call began; no answer rests on entries of others that a power cut
could take away (a slot that is ours made all before it durable); an intent moves to another slot only when
another process holds the slot it was sent to.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from txnformat.arguments import check_settings
from txnformat.clock import waited_ms
from txnformat.core.assemble import CLOCK_SKEW_MS_MAX, ENGINE, Assembled, assemble, next_timestamp_ms
from txnformat.core.decide import decide
from txnformat.core.entry import CommitEntry, encode_entry, sha256_hex
from txnformat.core.fold import apply
from txnformat.core.intents import (
    CommitResult,
    Done,
    EndTransaction,
    Included,
    Intent,
    Rejected,
    Undecidable,
    Write,
)
from txnformat.core.lifecycle.idle import PRODUCER_RETENTION_MS, TRANSACTIONAL_ID_RETENTION_MS
from txnformat.core.operations import Upgrade
from txnformat.core.state import KNOWN_FEATURES, WITHOUT_EMBEDDING, LogState, check_features
from txnformat.errors import (
    CommitStateUnknownError,
    ConflictError,
    CorruptDataError,
    InternalError,
    StorageError,
    TxnLogError,
)
from txnformat.persistent import replace
from txnformat.protocol.effects import DrawId, DrawUniform, ReadClock, Sleep, Steps, Times
from txnformat.protocol.expiry import PIGGYBACK_MAX, Watch
from txnformat.protocol.follow import confirm, fold_bytes, open_view, refresh
from txnformat.protocol.pace import ROUND_TRIP_MS_MAX, Pace
from txnformat.protocol.reads import read_boundary
from txnformat.protocol.repeats import original_result
from txnformat.protocol.sealing import SEAL_EXTENTS
from txnformat.protocol.slot import Gone, Lost, Ours, Refused, SlotOutcome, Unknown, create_slot
from txnformat.protocol.snapshots import create_object
from txnformat.protocol.view import View

__all__ = ["Answers", "CommitSettings", "backoff_ms", "commit_group", "writable"]

EMBEDDED_LOSSES_MAX = 3
"""Lost slots after which the files that waiting intents embed are uploaded."""

Answers = dict[str, CommitResult | TxnLogError]
"""The result of each intent by its id, or the error that its caller gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSettings:
    """Bounds of the commit loop."""

    attempts_max: int = 1_000
    """Slots that a group may lose before it gives up."""
    deadline_ms: int = 120_000
    """Time after which a group gives up, and an unclear answer stays unclear."""
    strict_boundary: bool = False
    """Read the boundary after every create, whatever the view's age."""
    seal_extents: int = SEAL_EXTENTS
    """Extents in the state above which a writer seals."""
    transactional_id_retention_ms: int = TRANSACTIONAL_ID_RETENTION_MS
    """Time after its last use for which a transactional id is remembered."""
    producer_retention_ms: int = PRODUCER_RETENTION_MS
    """Time after its last append for which a producer without a transactional id is remembered."""
    max_transaction_timeout_ms: int | None = None
    """Longest timeout of transactions with offsets, for a log that gets its first entry. If None, 15 minutes.
    """
    embedding: bool = True
    """Whether small transactions may travel in their entries, for a log that gets its first entry."""

    def __post_init__(self) -> None:
        """Report all problems at once."""
        bounds: dict[str, tuple[int, int | None]] = {
            "attempts_max": (1, None),
            "deadline_ms": (0, None),
            "seal_extents": (1, None),
            "transactional_id_retention_ms": (0, None),
            "producer_retention_ms": (0, None),
        }
        check_settings(self, bounds, {}, flags=["strict_boundary", "embedding"])


ROUND_TRIPS_AWAKE = 8
"""Round trips beyond which an attempt that was lost was not slow, but suspended."""

AFTER_LOSS = 2
"""Entries that a process expects to be behind after it has lost a slot; each look that finds nothing halves
them."""


def backoff_ms(age_ms: float, round_trip_ms: float, uniform: float) -> float:
    """Return how long a waiter that lost a slot waits.

    It shrinks with the waiter's age, so that one that lost often goes before a newcomer: waits are spread
    over 16 round trips for a newcomer, down to one for a waiter as old as 64 of them.
    """
    spread = max(1.0, 16.0 / (1.0 + age_ms / (4.0 * max(round_trip_ms, 0.1))))
    return uniform * spread * round_trip_ms


def commit_group(
    view: View,
    intents: Sequence[Intent],
    settings: CommitSettings,
    *,
    unsent: frozenset[str] = frozenset(),
    pace: Pace | None = None,
    watch: Watch | None = None,
) -> Steps[tuple[View, Answers]]:
    """Commit the intents that wait at the same time in one process; return the view to go on with, and one
    answer per intent.

    ``unsent``: ids of those intents that were never sent to any slot. However old the view that they were
    made with, no entry so far can hold them, so the window need not reach back to that view. ``pace``: what
    the process has learned from its commits before this one. ``watch``: what it has seen of others' open
    transactions; those whose time is over are ended in the same entry.

    Requests: with a fresh view 1 conditional PUT; if others commit, too, and the view is older than a second,
    before it those of a refresh, for a GET costs less than a PUT that loses. Per lost slot: 1 PUT, 1 GET, and
    the refresh.
    """
    start: Times = yield ReadClock()
    group = _Group(list(intents), settings, start, unsent, view)
    pace = pace or Pace()
    group.first_slot = view.state.entry + 1
    if abs(start.wall_ms - start.store_ms) > CLOCK_SKEW_MS_MAX:
        group.fail_all(_clock_skew(start))
        return view, group.answers
    try:
        hold_ms = pace.hold_ms(start)
        if hold_ms:
            yield Sleep(hold_ms)
        if hold_ms or view.is_behind(start) or not view.is_fresh(start):
            view = yield from refresh(view, ahead=1 + (pace.others if hold_ms else 0), durable=False)
            group.seen = view
            group.refreshed = True
        while group.waiting:
            view = group.seen = yield from _commit_once(view, group, settings, pace, watch)
    except TxnLogError as error:
        # Intents that still wait were sent nowhere, or to slots that are known to be another process's; those
        # that were
        # answered keep their answers.
        group.fail_all(error)
    with suppress(StorageError):
        yield from group.settle()
    return group.durable, group.answers  # what could not be made durable is read again


def _commit_once(
    view: View, group: _Group, settings: CommitSettings, pace: Pace, watch: Watch | None
) -> Steps[View]:
    """Try to commit the waiting intents in the next slot, or find out that they need none."""
    view = yield from writable(view, settings)
    times: Times = yield ReadClock()
    write_id = yield DrawId()
    group.move_to(view.state.entry + 1)
    assembled = assemble(view.state, group.waiting, store_time_ms=times.store_ms, write_id=write_id)
    if not group.refreshed and group.has_refusal(assembled):
        group.refreshed = True
        return (yield from refresh(view, durable=False))
    if assembled.entry is None:
        yield from group.deliver(assembled, None)
        return view
    expired = watch.expired(view.state, times)[:PIGGYBACK_MAX] if watch else []
    if expired:
        assembled = yield from _with_ends(view.state, group.waiting, expired, times, write_id)
        if not group.refreshed and group.has_refusal(assembled):
            group.refreshed = True
            return (yield from refresh(view, durable=False))
    slot = view.state.entry + 1
    outcome = yield from create_slot(slot, assembled.data, deadline_ms=settings.deadline_ms)
    if isinstance(outcome, Ours):
        outcome = yield from _check_age(view, slot, outcome, settings)
    match outcome:
        case Ours(sent):
            view = group.seen = group.durable = View(assembled.after, sent, view.behind)
            landed: Times = yield ReadClock()
            pace.won(group.start, sent, landed, slot - group.first_slot)
            yield from group.deliver(assembled, assembled.entry)
        case Refused(cause):
            yield from group.fail(assembled, slot, cause)
        case Unknown(reason):
            yield from group.fail(assembled, slot, _unknown(slot, reason))
        case Lost() | Gone():
            if isinstance(outcome, Gone):
                group.note_gone()
            view = group.seen = yield from _after_loss(view, slot, outcome, times, group)
            group.refreshed = True
            now: Times = yield ReadClock()
            yield from group.lose(view.state, now)
    return view


def _with_ends(
    state: LogState,
    waiting: Sequence[Intent],
    expired: Sequence[EndTransaction],
    times: Times,
    write_id: str,
) -> Steps[Assembled]:
    """Assemble the waiting intents together with the ends of what expired, which no caller waits for.

    A transaction that commits or prepares in time for this entry goes before its end. A producer that would
    only add to an expired transaction learns that it has ended.
    """
    adding: set[str | None] = set()
    completing: set[str | None] = set()
    for intent in waiting:
        if isinstance(intent.action, Write) and intent.action.producer:
            write, name = intent.action, intent.action.producer.transactional_id
            (adding if write.end is None and not write.prepare else completing).add(name)
    adding -= completing
    before: list[Intent] = []
    after: list[Intent] = []
    for action in expired:
        intent_id = yield DrawId()
        ends = before if action.transactional_id in adding else after
        ends.append(Intent(intent_id, state.entry + 1, action))
    assembled = assemble(state, [*before, *waiting, *after], store_time_ms=times.store_ms, write_id=write_id)
    asked = {intent.intent_id for intent in waiting}
    return replace(
        assembled, verdicts={key: verdict for key, verdict in assembled.verdicts.items() if key in asked}
    )


def _after_loss(view: View, slot: int, outcome: Lost | Gone, sent: Times, group: _Group) -> Steps[View]:
    """Fold what won the slot, wait, and catch up.

    A call that has slept between its decision and its attempt looks at once, and so does one that can win
    nothing more on what it sees: a producer that was fenced meanwhile learns it without a wait.
    """
    if isinstance(outcome, Gone):
        try:
            return (yield from open_view())
        except StorageError as error:  # what was deleted may have been ours: only the log's window can tell
            raise _unknown(slot, error) from error
    view = View(fold_bytes(view.state, outcome.data), view.proof, max(view.behind, AFTER_LOSS))
    now: Times = yield ReadClock()
    has_slept = waited_ms(sent, now) > max(ROUND_TRIP_MS_MAX, ROUND_TRIPS_AWAKE * outcome.round_trip_ms)
    if not has_slept and group.competes(view.state):
        spread = yield DrawUniform()
        round_trip = min(max(1, outcome.round_trip_ms), ROUND_TRIP_MS_MAX)
        yield Sleep(backoff_ms(max(0, sent.wall_ms - group.start.wall_ms), round_trip, spread))
    # Others go on meanwhile: who waits for the winner's successor would hear of it too late.
    return (yield from refresh(view, ahead=2, durable=False))


def _check_age(view: View, slot: int, ours: Ours, settings: CommitSettings) -> Steps[SlotOutcome]:
    """Judge a create that ended long after its slot was proven empty: it counts only above the boundary."""
    now: Times = yield ReadClock()
    if view.is_fresh(now) and not settings.strict_boundary:
        return ours
    try:
        boundary = yield from read_boundary()
    except StorageError as error:  # the entry may be the log's, or a deleted slot created again
        return Unknown(error)
    return Gone() if slot < boundary else ours


def _first_entry(view: View, settings: CommitSettings) -> Steps[View]:
    """Write entry 0, the initial features, unless it is there."""
    times: Times = yield ReadClock()
    intent, write_id = (yield DrawId()), (yield DrawId())
    features = KNOWN_FEATURES if settings.embedding else WITHOUT_EMBEDDING
    reader, writer, maintenance = (tuple(sorted(names)) for names in features)
    entry = CommitEntry(
        entry=0,
        log_id=view.state.log_id,
        write_id=write_id,
        previous=view.state.entry_sha256,
        timestamp_ms=next_timestamp_ms(view.state, times.store_ms),
        engine=ENGINE,
        intents=(intent,),
        operations=(Upgrade(reader, writer, maintenance, settings.max_transaction_timeout_ms),),
    )
    data = encode_entry(entry)
    outcome = yield from create_slot(0, data, deadline_ms=settings.deadline_ms)
    if isinstance(outcome, Ours):
        outcome = yield from _check_age(view, 0, outcome, settings)
    match outcome:
        case Ours(sent):
            return View(apply(view.state, entry, sha256_hex(data)), sent)
        case Refused(error):
            raise error
        case Unknown(error):
            raise _unknown(0, error)
        case Lost():
            return (yield from refresh(view))
        case Gone():
            return (yield from open_view())


def writable(view: View, settings: CommitSettings) -> Steps[View]:
    """Return the view of a log that has its first entry and asks writers for nothing that we do not have."""
    if view.state.entry < 0:
        view = yield from _first_entry(view, settings)
    check_features("writer", view.state.features.writer)
    return view


def _clock_skew(now: Times) -> StorageError:
    return StorageError(
        "this machine's clock is too far from the store's time",
        kind="clock-skew",
        hint="set the clock (NTP) and try again",
        skew_ms=now.wall_ms - now.store_ms,
        limit_ms=CLOCK_SKEW_MS_MAX,
    )


def _unknown(slot: int, error: TxnLogError | None) -> CommitStateUnknownError:
    if isinstance(error, CorruptDataError):
        return CommitStateUnknownError(
            "the commit may or may not have landed: the entry in its slot is damaged",
            hint="restore the entry from a copy, then repeat the same call, abort, or close; nothing was "
            "deleted",
            slot=slot,
            **error.values,
        )
    return CommitStateUnknownError(
        "the commit may or may not have landed: the store gave no clear answer",
        hint="repeat the same call, abort, or close; nothing was deleted",
        slot=slot,
        cause=str(error),
    )


class _Group:
    """The intents of one call that have no answer yet."""

    def __init__(
        self,
        intents: list[Intent],
        settings: CommitSettings,
        start: Times,
        unsent: frozenset[str],
        view: View,
    ) -> None:
        self.waiting = intents
        self.answers: Answers = {}
        self.start = start
        """When the call began."""
        self.refreshed = False
        """Whether the view was refreshed since the call began."""
        self.first_slot = 0
        """The slot that was next when the call began."""
        self.durable = self.seen = view
        """The newest view of which a power cut takes nothing away; the newest of all."""
        self._settings = settings
        self._losses = 0
        self._nowhere = unsent
        """Ids of intents that no entry before the next slot can hold."""

    def move_to(self, slot: int) -> None:
        """Say that the next attempt goes to ``slot``.

        An intent that was sent to nothing but slots that other processes hold is in no entry before: for its
        window, ``slot`` is the first that it is sent to.
        """
        self.waiting = [
            replace(intent, first_slot=slot)
            if intent.first_slot < slot and intent.intent_id in self._nowhere
            else intent
            for intent in self.waiting
        ]

    def note_gone(self) -> None:
        """Say that a slot was taken and is deleted: its winner is not known any more."""
        self._nowhere = frozenset()

    def has_refusal(self, assembled: Assembled) -> bool:
        """Return whether any caller would be told no."""
        return any(isinstance(verdict, Rejected | Undecidable) for verdict in assembled.verdicts.values())

    def _answer(self, intent_id: str, answer: CommitResult | TxnLogError) -> None:
        self.answers[intent_id] = answer
        self.waiting = [intent for intent in self.waiting if intent.intent_id != intent_id]

    def settle(self) -> Steps[None]:
        """Make durable what was seen, before anything is answered from it."""
        if self.seen is not self.durable:
            if self.seen.state.entry_sha256 != self.durable.state.entry_sha256:
                yield from confirm(self.seen)
            self.durable = self.seen

    def _refuse(self, intent_id: str, error: TxnLogError) -> Steps[None]:
        try:
            yield from self.settle()
        except StorageError as unsettled:
            error = unsettled
        self._answer(intent_id, error)

    def fail_all(self, error: TxnLogError) -> None:
        """Answer all callers that wait with ``error``."""
        for intent in list(self.waiting):
            self._answer(intent.intent_id, error)

    def fail(self, assembled: Assembled, slot: int, error: TxnLogError) -> Steps[None]:
        """Answer with ``error`` every intent whose verdict hangs on the entry that was sent to ``slot``."""
        for intent in list(self.waiting):
            verdict = assembled.verdicts.get(intent.intent_id)
            if isinstance(verdict, Done) and verdict.entry < slot:
                yield from self._repeat(intent, verdict, None)
            elif isinstance(verdict, Undecidable):
                self._answer(intent.intent_id, _too_old(intent, verdict.window_first))
            elif verdict is not None:
                self._answer(intent.intent_id, error)

    def competes(self, state: LogState) -> bool:
        """Return whether any intent would be applied after ``state``."""
        return any(isinstance(decide(state, intent), Included) for intent in self.waiting)

    def lose(self, state: LogState, now: Times) -> Steps[None]:
        """Count a lost slot.

        If attempts or time are used up, give up; ``state`` is refreshed since the loss.
        """
        self._losses += 1
        late = waited_ms(self.start, now) >= self._settings.deadline_ms
        if late or self._losses >= self._settings.attempts_max:
            yield from self._give_up(state, now)
        elif self._losses == EMBEDDED_LOSSES_MAX:
            yield from self._upload()

    def _upload(self) -> Steps[None]:
        """Upload the files that waiting intents embed: from now on a lost slot sends little.

        Requests: 1 PUT and 1 GET for each.
        """
        for number, intent in enumerate(self.waiting):
            if isinstance(intent.action, Write) and any(one.payload for one in intent.action.appends):
                for append in intent.action.appends:
                    for file, data in zip(append.files, append.payload, strict=False):
                        yield from create_object(file.key, data)
                appends = tuple(replace(one, payload=()) for one in intent.action.appends)
                self.waiting[number] = replace(intent, action=replace(intent.action, appends=appends))

    def _give_up(self, state: LogState, now: Times) -> Steps[None]:
        """Answer every intent after too many losses; ``state`` is refreshed since the last one.

        This call's attempts are known not to have landed: every slot that they were sent to is another
        process's. But what took a slot may be an earlier call's attempt that came late, so the state is asked
        once more.
        """
        contention = ConflictError(
            "other writers took every slot that this commit tried; nothing was committed",
            kind="commit-contention",
            hint="try again; if it happens often, use fewer writers or larger transactions",
            attempts=self._losses,
            waited_ms=waited_ms(self.start, now),
        )
        self.move_to(state.entry + 1)
        together = assemble(state, self.waiting, store_time_ms=state.timestamp_ms, write_id=state.log_id)
        for intent in list(self.waiting):
            match decide(state, intent):
                case Done() as done:
                    yield from self._repeat(intent, done, None)
                case Undecidable(window_first):
                    self._answer(intent.intent_id, _too_old(intent, window_first))
                case Rejected(error) if isinstance(together.verdicts.get(intent.intent_id), Rejected):
                    yield from self._refuse(intent.intent_id, error)
                case Included() | Rejected():  # what it builds on is not there either
                    self._answer(intent.intent_id, contention)

    def deliver(self, assembled: Assembled, entry: CommitEntry | None) -> Steps[None]:
        """Answer all decided callers: the entry is ours, or none was needed."""
        by_id = {intent.intent_id: intent for intent in self.waiting}
        if not assembled.verdicts and entry is None:  # else the ends of others have filled it
            raise InternalError("no waiting intent was decided", waiting=len(self.waiting))
        for intent_id, verdict in assembled.verdicts.items():
            match verdict:
                case Included() if entry is not None:
                    self._answer(intent_id, CommitResult.of(entry, intent_id, repeated=False))
                case Done():
                    yield from self._repeat(by_id[intent_id], verdict, entry)
                case Rejected(error):
                    yield from self._refuse(intent_id, error)
                case Undecidable(window_first):
                    self._answer(intent_id, _too_old(by_id[intent_id], window_first))
                case Included():
                    raise InternalError("an included intent without an entry", intent=intent_id)

    def _repeat(self, intent: Intent, done: Done, own: CommitEntry | None) -> Steps[None]:
        """Answer with what the log holds already."""
        try:
            yield from self.settle()
            answer: CommitResult | TxnLogError = yield from original_result(intent, done, own)
        except TxnLogError as error:
            # It is done; only its result could not be read, or made durable. That must not become the answer
            # of others in
            # the group, whose entry has landed.
            answer = CommitStateUnknownError(
                "the commit is done, but its result could not be read",
                hint="repeat the same call",
                entry=done.entry,
                cause=str(error),
            )
        self._answer(intent.intent_id, answer)


def _too_old(intent: Intent, window_first: int) -> CommitStateUnknownError:
    return CommitStateUnknownError(
        "the commit was tried too long ago to tell whether it landed",
        kind="commit-too-old",
        hint="look at the log's history before doing it again",
        first_slot=intent.first_slot,
        window_first=window_first,
    )
