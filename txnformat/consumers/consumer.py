"""Consumer: reads topics on and on, as they grow, from positions that it keeps.

This is what users call: it checks what is asked. How it stands and waits is in
:mod:`txnformat.consumers.reading`; what is fetched, and in which turn, in
:mod:`txnformat.consumers.fetching`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa

from txnformat.arguments import items, whole
from txnformat.clock import waited_ms
from txnformat.columns.pylist import to_pylist
from txnformat.consumers.committing import Committing, nothing_to_read
from txnformat.consumers.handing import Front, Handed
from txnformat.consumers.looks import LOOK_INTERVAL_MS
from txnformat.consumers.membership import Membership
from txnformat.consumers.positions import Names, as_pairs, named_partitions
from txnformat.consumers.reading import LOOK_MS, Reading
from txnformat.consumers.settings import ConsumerSettings, OffsetReset
from txnformat.consumers.uncut import Caller, Uncut
from txnformat.errors import (
    CommitStateUnknownError,
    InvalidInputError,
    InvalidTransactionStateError,
    StorageError,
    repr_of,
)
from txnformat.log import TxnLog, check_log
from txnformat.shield import is_interruptible
from txnformat.types import IsolationLevel, TopicPartition

__all__ = ["Consumer"]

logger = logging.getLogger("txnlog")

T = TypeVar("T")

TIMEOUT_MS = 1_000
"""How long a poll waits for records unless it is told otherwise."""


class Consumer(Committing):
    """Reads partitions of topics, in the order of their offsets, as far as its isolation level allows.

    Of one thread at a time: a call while another thread's is under way raises InvalidTransactionStateError of
    kind ``concurrent-use``. A process that was forked since it was made cannot use it (kind ``forked``), and
    ``close`` does nothing there.

    Parameters
    ----------
    log : TxnLog
        Where from.
    group : str, optional
        Under whose name positions are committed, for the next consumer to go on from. Without one they are
        kept in this object alone.
    isolation : str
        "read_committed": up to the last stable offset, without aborted records; nothing is buffered that may
        still be aborted. "read_uncommitted": everything, up to the end.
    auto_offset_reset : str
        Where a partition without a position is begun: "earliest", "latest" (as of then), or "none": it is an
        error.
    enable_auto_commit, auto_commit_interval_ms
        Commit what was handed out by earlier polls, at a poll, when that time has passed and positions have
        changed; and when partitions are given up. Off by default: commit when the work on the records is
        done.
    max_poll_records : int
        Most records of a batch.
    session_timeout_ms : int
        How long after the group was last used its member counts as live for those who reset or delete it. No
        heartbeat: the next consumer that joins takes over at once.
    default_api_timeout_ms : int
        How long to wait for positions that are pending in a transaction.
    look_interval_ms : int
        Longest wait between two looks at a log without news, ms, from 10 to 60,000; each look is a request.
        The consumer looks sooner where commits come regularly, and every 20 ms on a local disk, where a look
        costs nothing.
    columns : sequence of str, optional
        What batches have: names of the topics' own and of metadata columns. By default all own ones, then
        ``_topic``, ``_partition``, ``_offset`` and ``_timestamp``.
    offsets_log : TxnLog, optional
        The log that has the group, if it is not ``log``: positions are then committed together with what is
        written there.

    Notes
    -----
    The constructor does no input or output. Requests: a look at the log is 1 GET when nothing is new, else 1
    more for each new entry; a poll that returns records costs the column chunks that it asks for, each footer
    once, and, once a second at most, a look. Joining, leaving and every commit cost 1 entry; a poll that
    finds the group unused for a day costs 1 entry, in which a position is committed again as it is: who reads
    under a group keeps it.
    """

    def __init__(
        self,
        log: TxnLog,
        group: str | None = None,
        *,
        isolation: str | IsolationLevel = IsolationLevel.READ_COMMITTED,
        auto_offset_reset: str | OffsetReset = OffsetReset.EARLIEST,
        enable_auto_commit: bool = False,
        auto_commit_interval_ms: int = 5_000,
        max_poll_records: int = 500,
        session_timeout_ms: int = 45_000,
        default_api_timeout_ms: int = 60_000,
        look_interval_ms: int = LOOK_INTERVAL_MS,
        columns: Sequence[str] | None = None,
        offsets_log: TxnLog | None = None,
    ) -> None:
        self.settings = ConsumerSettings(
            group=group,
            isolation=isolation,  # type: ignore[arg-type]  # checked and converted there, as the others
            auto_offset_reset=auto_offset_reset,  # type: ignore[arg-type]
            enable_auto_commit=enable_auto_commit,
            auto_commit_interval_ms=auto_commit_interval_ms,
            max_poll_records=max_poll_records,
            session_timeout_ms=session_timeout_ms,
            default_api_timeout_ms=default_api_timeout_ms,
            look_interval_ms=look_interval_ms,
            columns=columns,  # type: ignore[arg-type]
        )
        for one in (log,) if offsets_log is None else (log, offsets_log):
            check_log(one, "Consumer")
        if offsets_log is not None and group is None:
            raise InvalidInputError("offsets_log needs a group", kind="invalid-settings")
        self._log = log
        self._uncut = Uncut("consumer")
        self._taken: Handed | None = None  # the last batch that a caller has
        self._front: Front | None = None  # None while a call is under way
        self._reading = Reading(log, self.settings)
        self._group = None if group is None else Membership(group, offsets_log or log, log, self.settings)
        self._touched = log.committer.clock.now()
        self._is_closed = False

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{len(self._reading.assigned)} partitions"
        return f"{type(self).__name__}({self._log.url!r}, {state})"

    def __reduce__(self) -> Any:
        # Pickle would say that a lock inside cannot be pickled, and copy would share all of it.
        raise InvalidInputError(
            f"{self!r:.200} cannot be pickled or copied: a consumer stays in the process that made it",
            kind="not-picklable",
            hint="make a consumer in the process that reads; give it the path of the log",
        )

    # --- what is read ---------------------------------------------------------------------------------------

    def assign(self, topic_partitions: Iterable[Names]) -> None:
        """Read exactly these partitions. Requests: two looks, one without a group.

        A partition that was assigned before keeps its position and goes on; others begin where the group has
        committed, else as ``auto_offset_reset`` says. None: nothing is read any more. The consumer does not
        become the group's member: who else reads under it is the callers' agreement.

        Parameters
        ----------
        topic_partitions : iterable of (str, int)
            Topics and partitions, as in ``[("orders", 0), ("orders", 1)]``.

        Raises
        ------
        InvalidInputError, NotFoundError
            No such pairs; no such topics, partitions or columns. Nothing has changed.
        InvalidTransactionStateError
            Kind ``already-subscribed``: call :meth:`unsubscribe` first.
        """
        pairs: list[Names] | InvalidInputError
        try:
            pairs = as_pairs(topic_partitions)
        except InvalidInputError as error:
            pairs = error

        def body(reading: Reading) -> None:
            if reading.topics:
                raise _both("it is subscribed to topics", "already-subscribed")
            if isinstance(pairs, InvalidInputError):
                raise pairs
            state = reading.look()
            named = named_partitions(state, pairs)
            reading.check_columns(state.topic(name) for name in dict.fromkeys(name for name, _ in named))
            self._begin(frozenset(), list(named.values()))

        self._change("assign", body)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read all partitions of these topics, also those that they get later: those from their beginning on.

        With a group the consumer becomes its one member: the member before is fenced, and its commits are
        refused. It begins where the group has committed, once no transaction has positions of these
        partitions pending; where it has not, as ``auto_offset_reset`` says.

        Requests: a look; with a group 2, and 1 entry.

        Raises
        ------
        InvalidInputError, NotFoundError
            Not a list of names; no such topics or columns. Nothing has changed.
        InvalidTransactionStateError
            Kind ``already-assigned``: call :meth:`unsubscribe` first.
        ConflictError
            Kind ``offsets-pending``: a transaction has positions pending, still after
            ``default_api_timeout_ms``. The consumer is the member; subscribe again.
        CommitStateUnknownError
            The same call may be repeated.
        """
        topics = items(topics, "topics") if isinstance(topics, Iterator) else topics

        def body(reading: Reading) -> None:
            if reading.assigned and not reading.topics:
                raise _both("partitions are assigned to it", "already-assigned")
            names = _topic_names(topics)
            state = reading.look(anew=True)
            found = [state.topic(name) for name in names]
            reading.check_columns(found)
            wanted = [
                TopicPartition(topic.topic_id, number)
                for topic in found
                for number in range(topic.partitions)
            ]
            if self._group is not None and not self._group.is_member():
                reading.replace(frozenset(), (), state)  # another member may have read on since
                self._group.join()
            self._begin(frozenset(topic.topic_id for topic in found), wanted)

        self._change("subscribe", body)

    def unsubscribe(self) -> None:
        """Read nothing any more, forget all positions, and leave the group.

        Requests: none, or 1 entry if it is left.

        With ``enable_auto_commit`` positions are committed first.
        """

        def body(reading: Reading) -> None:
            self._commit_changed()
            if self._group is not None:
                self._group.leave()
            reading.replace(frozenset(), (), self._log.state)

        self._change("unsubscribe", body)

    def assignment(self) -> list[Names]:
        """Return what is read, by topic and partition."""
        return self._ask("assignment", lambda reading: [one.names for one in reading.in_order()])

    def poll(self, timeout_ms: int = TIMEOUT_MS, max_records: int | None = None) -> pa.RecordBatch | None:
        """Return the next records; None when there are none by then.

        Those of one topic, each partition's in the order of their offsets; partitions and topics take turns.
        Positions move behind what is returned, and past markers and aborted records.

        Parameters
        ----------
        timeout_ms : int
            How long to wait for records; 0 looks once.
        max_records : int, optional
            Most records, instead of ``max_poll_records``.

        Raises
        ------
        InvalidTransactionStateError
            Kind ``nothing-assigned``.
        OffsetOutOfRangeError
            A partition has no position, or none that is there, and ``auto_offset_reset`` is "none".
        ConflictError
            Kind ``member-fenced``: a newer consumer has joined the group. Stop.
        CorruptDataError, StorageError
            Records cannot be read: positions are as before, and the other partitions have the next turns.

        Notes
        -----
        If a poll is interrupted, positions are as before, and the next poll returns the same records.
        """
        handed = self._next(timeout_ms, max_records)
        if handed is None:
            return None
        batch = handed.batch
        self._taken = handed  # the last step: with it the caller has the records
        return batch

    def poll_dicts(
        self, timeout_ms: int = TIMEOUT_MS, max_records: int | None = None
    ) -> list[dict[str, Any]]:
        """Return the next records as dicts by column name; none: an empty list. Otherwise as :meth:`poll`."""
        handed = self._next(timeout_ms, max_records)
        if handed is None:
            return []
        found = to_pylist(handed.batch)
        self._taken = handed
        return found

    def batches(self, max_records: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield batches until there is nothing left: poll without waiting, again and again."""
        while (batch := self.poll(0, max_records)) is not None:
            yield batch

    # --- closing --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave the group and let go of everything.

        Idempotent; every other call then raises, of kind ``consumer-closed``.

        With ``enable_auto_commit`` positions are committed first, unless a newer consumer has joined the
        group. Requests: 1 entry for each of the two.

        Raises
        ------
        TxnLogError
            The positions could not be committed; the consumer is closed all the same.
        """
        self._close(commits=True)

    def _close(self, *, commits: bool) -> None:
        if self._uncut.is_foreign:
            return

        def body() -> None:
            if self._is_closed:
                return
            self._front = None
            try:
                self._reading.settle(self._taken)
                if commits:
                    self._commit_changed()
            finally:
                if self._group is not None:
                    self._group.leave()
                self._is_closed = True
                for one in self._reading.assigned.values():
                    one.drop()

        self._uncut.close(body)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The block may have failed at the batch that was handed out last: that batch is for the next
        # consumer.
        self._close(commits=error is None)

    # --- how they are done ----------------------------------------------------------------------------------

    def _begin(self, topics: frozenset[str], wanted: list[TopicPartition]) -> None:
        """Read exactly these, those that are new from where the group has committed."""
        reading = self._reading
        self._commit_changed()
        starts = {}
        if self._group is not None:
            starts = self._group.fetch([key for key in wanted if key not in reading.assigned])
        places = self.settings.auto_offset_reset is not OffsetReset.NONE
        reading.replace(topics, wanted, self._log.state, starts, places=places)
        self._touched = self._now()

    def _before_poll(self) -> None:
        """Notice that another consumer has joined, and commit what earlier polls have handed out."""
        if self._group is None:
            return
        self._group.check()
        self._group.keep(self._reading.assigned, self._reading.begun)
        since_ms = waited_ms(self._touched, self._now())
        if since_ms < self.settings.auto_commit_interval_ms:
            return
        try:
            self._commit_changed()
        except (CommitStateUnknownError, StorageError) as error:
            logger.warning("positions of group %s are not committed yet: %s", self.settings.group, error)
            self._touched = self._now()

    def _next(self, timeout_ms: int, max_records: int | None) -> Handed | None:
        """Return the next records, on their way to the caller."""
        whole("timeout_ms", timeout_ms, kind="invalid-poll")
        if max_records is not None:
            whole("max_records", max_records, 1, kind="invalid-poll")
        most, cuts_ahead = max_records or self.settings.max_poll_records, is_interruptible()
        return (self._lying_ready(most) if cuts_ahead else None) or self._uncut.run(
            "poll",
            lambda caller: self._poll(timeout_ms, most, caller, cuts_ahead=cuts_ahead),
            breaks=False,
        )

    def _lying_ready(self, most: int) -> Handed | None:
        """Return the next records if that takes no look at anything: here, without a library thread."""
        front, taken = self._front, self._taken
        if front is None or taken is None or taken.fetched is not front.fetched:
            return None
        now = self._now()
        if waited_ms(front.looked, now) >= LOOK_MS or self._log.state is not front.state:
            return None
        if self._group is not None and self._group.log.state is not front.group_state:
            return None
        if self.settings.enable_auto_commit and (
            waited_ms(self._touched, now) >= self.settings.auto_commit_interval_ms
        ):
            return None
        return taken.following(most)

    def _poll(self, timeout_ms: int, most: int, caller: Caller, *, cuts_ahead: bool) -> Handed | None:
        reading = self._opened(caller)
        if not reading.assigned:
            raise nothing_to_read()
        self._before_poll()
        handed = reading.poll(timeout_ms, most, cuts_ahead=cuts_ahead, is_over=lambda: caller.is_gone)
        if handed is not None and cuts_ahead and reading.looked is not None:
            group_state = None if self._group is None else self._group.log.state
            self._front = Front(handed.fetched, reading.looked, self._log.state, group_state)
        return handed

    def _ask(self, name: str, body: Callable[[Reading], T]) -> T:
        return self._uncut.run(name, lambda caller: body(self._opened(caller)), breaks=False)

    def _change(self, name: str, body: Callable[[Reading], T]) -> T:
        def change(caller: Caller) -> T:
            reading = self._opened(caller)
            reading.forget_handing()
            return body(reading)

        return self._uncut.run(name, change, breaks=True)

    def _opened(self, caller: Caller) -> Reading:
        """Return what is open, as it is behind all that callers have taken.

        Under the lock, at the beginning of a call.
        """
        if self._is_closed:
            raise InvalidTransactionStateError(
                "the consumer is closed", kind="consumer-closed", hint="make a new one"
            )
        self._front = None
        if self._group is not None:
            self._group.caller = caller
        self._reading.settle(self._taken)
        return self._reading


def _both(what: str, kind: str) -> InvalidTransactionStateError:
    return InvalidTransactionStateError(
        f"a consumer is either subscribed or assigned, and {what}",
        kind=kind,
        hint="call unsubscribe first, or make another consumer",
    )


def _topic_names(topics: object) -> list[str]:
    if isinstance(topics, str) or not isinstance(topics, Iterable):
        raise InvalidInputError(
            f"topics is {repr_of(topics, 80)}, not a list of names",
            kind="invalid-topics",
            hint='name them as in ["orders"]',
        )
    names = list(topics)
    odd = [name for name in names if not isinstance(name, str)]
    if odd or not names:
        raise InvalidInputError(
            [f"{repr_of(name, 80)} is not the name of a topic" for name in odd] or "topics is empty",
            kind="invalid-topics",
            hint='name them as in ["orders"]',
        )
    return list(dict.fromkeys(names))
