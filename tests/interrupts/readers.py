"""Calls of consumers and subscriptions that are interrupted: what a user may rely on afterwards.

* Consumer: what ``poll`` did not return comes with the next one; nothing comes twice to one consumer; what
  was committed is never beyond what was returned.
* Subscription: what was acknowledged is not handed out again, what was not is; to the same instance, too,
  when it never got it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from tests.interrupts.cases import Case, CaseActor
from tests.interrupts.world import SEED, SEED_RECORDS
from txnformat.errors import AckConflictError, ConflictError
from txnlog import Consumer, Subscription, TxnLog

__all__ = ["CASES"]


# --- consumers ----------------------------------------------------------------------------------------------


class _Consuming(Case):
    family = "consumer"
    settings: ClassVar[dict[str, Any]] = {}
    may_leave = False
    """Whether the call may have left the group."""

    def before(self) -> None:
        self.received: list[int] = []
        self.certain = 0  # position of the last commit that returned
        self.possible = 0  # of the last that was asked for
        self.consumer = Consumer(self.log, "readers", **self.settings)
        self.begin()

    def begin(self) -> None:
        self.consumer.subscribe([SEED])

    def poll(self, most: int = 5) -> None:
        rows = self.consumer.poll_dicts(timeout_ms=0, max_records=most)
        self.received += [row["_offset"] for row in rows]

    def commit(self) -> None:
        self.possible = max([self.possible, *(offset + 1 for offset in self.received)])
        self.consumer.commit()
        self.certain = self.possible

    def done(self) -> None:
        if not self.consumer.assignment():
            self.consumer.subscribe([SEED])
        for _ in range(SEED_RECORDS):
            try:
                self.poll()
            except ConflictError as error:
                if error.kind != "member-fenced" or not self.may_leave:
                    raise
                self.consumer.subscribe([SEED])
        if self.received != list(range(SEED_RECORDS)):
            raise AssertionError(f"polled {self.received}")
        self.commit()

    def close(self) -> None:
        if self.consumer.settings.enable_auto_commit:
            self.possible = max([self.possible, *(offset + 1 for offset in self.received)])
        self.consumer.close()

    def problems(self) -> Iterator[str]:
        with Consumer(TxnLog.open(self.world.store), "readers") as consumer:
            consumer.subscribe([SEED])
            rest = [row["_offset"] for batch in consumer.batches() for row in batch.to_pylist()]
        start = rest[0] if rest else SEED_RECORDS
        if rest != list(range(start, SEED_RECORDS)):
            yield f"the next consumer gets {rest}"
        if start < self.certain:
            yield f"lost: committed {self.certain}, and the next consumer begins at {start}"
        if start > self.possible:
            yield f"passed over: asked to commit {self.possible}, and the next consumer begins at {start}"


class _Subscribe(_Consuming):
    name = "subscribe"

    def begin(self) -> None:
        pass

    def do(self) -> None:
        self.consumer.subscribe([SEED])


class _Assign(_Consuming):
    name = "assign"

    def begin(self) -> None:
        pass

    def do(self) -> None:
        self.consumer.assign([(SEED, 0)])

    def done(self) -> None:
        self.consumer.assign([(SEED, 0)])
        super().done()


class _Poll(_Consuming):
    name = "poll"

    def begin(self) -> None:
        super().begin()
        self.poll()

    def do(self) -> None:
        self.poll()


class _PollAutoCommit(_Poll):
    name = "poll-auto-commit"
    settings: ClassVar[dict[str, Any]] = {"enable_auto_commit": True, "auto_commit_interval_ms": 0}

    def do(self) -> None:
        self.possible = max(self.received) + 1
        self.poll()


class _ConsumerCommit(_Poll):
    name = "consumer-commit"

    def do(self) -> None:
        self.commit()


class _SeekToCommitted(_Poll):
    name = "seek-to-committed"

    def begin(self) -> None:
        super().begin()
        self.commit()

    def do(self) -> None:
        self.consumer.seek_to_committed()


class _Unsubscribe(_Poll):
    name = "unsubscribe"
    may_leave = True

    def begin(self) -> None:
        super().begin()
        self.commit()

    def do(self) -> None:
        self.consumer.unsubscribe()


class _ConsumerClose(_Poll):
    """What a close that raised has not committed is for the next consumer; another close says nothing
    of it.
    """

    name = "consumer-close"
    calls = 0
    is_told_at_once = False
    settings: ClassVar[dict[str, Any]] = {"enable_auto_commit": True, "auto_commit_interval_ms": 60_000}

    def do(self) -> None:
        self.calls += 1
        self.close()
        self.is_told_at_once = self.calls == 1

    def done(self) -> None:
        self.close()

    def problems(self) -> Iterator[str]:
        if self.is_told_at_once:
            self.certain = max(self.received) + 1
        yield from super().problems()


# --- subscriptions ------------------------------------------------------------------------------------------


class _Subscribed(Case):
    family = "subscription"

    def before(self) -> None:
        self.received: list[int] = []
        self.acknowledged: set[int] = set()
        self.asked: set[int] = set()
        self.subscription = Subscription(self.log, SEED, "readers")
        self.receive()

    def receive(self) -> None:
        rows = self.subscription.receive_dicts(5, timeout_ms=0)
        self.received += [row["_offset"] for row in rows]

    def acknowledge(self, offsets: list[int]) -> None:
        self.asked |= set(offsets)
        try:
            self.subscription.acknowledge([(0, offset) for offset in offsets])
        except AckConflictError as error:
            if error.kind != "already-acknowledged":
                raise
        self.acknowledged |= set(offsets)

    def done(self) -> None:
        before = -1
        while len(self.received) > before:
            before = len(self.received)
            self.receive()
        missing = set(range(SEED_RECORDS)) - set(self.received) - self.asked
        if missing:
            raise AssertionError(f"the same instance never hands out {sorted(missing)}")
        rest = sorted(set(self.received) - self.asked)
        self.acknowledge(rest[:3])

    def close(self) -> None:
        self.subscription.close()

    def problems(self) -> Iterator[str]:
        with Subscription(TxnLog.open(self.world.store), SEED, "readers") as subscription:
            free: set[int] = set()
            while rows := subscription.receive_dicts(timeout_ms=0):
                free |= {row["_offset"] for row in rows}
        if again := free & self.acknowledged:
            yield f"lost: acknowledged, and handed out again: {sorted(again)}"
        if gone := set(range(SEED_RECORDS)) - free - self.asked:
            yield f"passed over: nobody acknowledged {sorted(gone)}"


class _Receive(_Subscribed):
    name = "receive"

    def do(self) -> None:
        self.receive()


class _Acknowledge(_Subscribed):
    name = "subscription-acknowledge"

    def do(self) -> None:
        self.acknowledge([0, 2])

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        with Subscription(TxnLog.open(self.world.store), SEED, "readers") as subscription:
            free = {row["_offset"] for row in subscription.receive_dicts(timeout_ms=0)}
        if len(free & {0, 2}) == 1:
            yield "torn: one of two that were acknowledged together"


class _AcknowledgeCumulative(_Subscribed):
    name = "subscription-acknowledge-cumulative"

    def do(self) -> None:
        self.asked |= {0, 1, 2}
        try:
            self.subscription.acknowledge_cumulative([(0, 2)])
        except AckConflictError as error:
            if error.kind != "already-acknowledged":
                raise
        self.acknowledged |= {0, 1, 2}


class _NegativeAcknowledge(_Subscribed):
    name = "subscription-negative-acknowledge"

    def do(self) -> None:
        self.subscription.negative_acknowledge([(0, offset) for offset in self.received[:5]])


class _SubscriptionSeek(_Subscribed):
    name = "subscription-seek"

    def before(self) -> None:
        super().before()
        self.acknowledge([0, 1, 2])
        self.acknowledged = set()  # the seek undoes it, told or not

    def do(self) -> None:
        self.subscription.seek("earliest")
        self.asked = set()


class _SubscriptionClose(_Subscribed):
    name = "subscription-close"

    def do(self) -> None:
        self.subscription.close()

    def done(self) -> None:
        self.subscription.close()


CASES: tuple[CaseActor, ...] = tuple(
    CaseActor(case)
    for case in (
        _Subscribe,
        _Assign,
        _Poll,
        _PollAutoCommit,
        _ConsumerCommit,
        _SeekToCommitted,
        _Unsubscribe,
        _ConsumerClose,
        _Receive,
        _Acknowledge,
        _AcknowledgeCumulative,
        _NegativeAcknowledge,
        _SubscriptionSeek,
        _SubscriptionClose,
    )
)
