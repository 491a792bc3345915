"""Calls of consumers, subscriptions, reads, logs and stores that are interrupted: what a user may rely on afterwards.

* Consumer: what ``poll`` did not return comes with the next one; nothing comes twice to one consumer; what was committed
  is never beyond what was returned.
* Subscription: what was acknowledged is not handed out again, what was not is; to the same instance, too, when it never
  got it.
* Log and store: done, or not; the same call does it then. A read that is begun anew is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pyarrow as pa

from tests.interrupts.trials import Next, Trial
from tests.interrupts.world import NUMBERS, SEED, SEED_RECORDS, World
from txnformat.errors import AckConflictError, ConflictError
from txnformat.store.base import CreateOutcome
from txnformat.store.memory import MemoryStore
from txnlog import Consumer, Subscription, TxnLog
from writers.bulk import BulkAppend

__all__ = ["CASES", "Case"]


class Case:
    """One call. Subclasses make what it is called on in ``before``."""

    name: ClassVar[str]

    def __init__(self, world: World) -> None:
        self.world = world
        self.log = TxnLog.open(world.store)
        self.is_told = False
        """Whether the call returned, now or when it was repeated."""
        self.before()

    def before(self) -> None:
        """Do what comes before the call."""

    def do(self) -> None:
        """Call."""
        raise NotImplementedError

    def done(self) -> None:
        """Do the next work with the same object."""

    def close(self) -> None:
        """Close what is open."""

    def problems(self) -> Iterator[str]:
        """Yield what is not as it was told, asked of new objects."""
        yield from ()

    # --- as a play ---------------------------------------------------------------------------------------------------

    def call(self) -> None:
        """Call, and take note of the answer."""
        self.do()
        self.is_told = True

    def other(self) -> Callable[[], None] | None:
        """Use the same log in another thread."""

        def use() -> None:
            self.log.refresh()
            self.log.create_topic("of-another-thread", "kafka", exist_ok=True)

        return use

    def go_on(self, trial: Trial) -> None:
        """Repeat, close, or nothing of it."""
        if trial.then in (Next.REPEAT, Next.ABORT):
            trial.attempt(self.name, self.call)
        elif trial.then is Next.CLOSE:
            trial.attempt("close", self.close)

    def leave(self, trial: Trial, error: BaseException) -> None:
        """Leave: these have no other way to close."""
        trial.attempt("close", self.close)

    def end(self, trial: Trial) -> None:
        """Go on, and close."""
        if (
            trial.then not in (Next.CLOSE, Next.LEAVE)
            and not trial.attempt("next", self.done)
            and trial.told[-1] != "next: close-required"  # and nothing else is possible
        ):
            trial.problems.append(f"cannot go on: {trial.told[-1]}")
        trial.attempt("close", self.close)
        trial.attempt("close the log", self.log.close)

    def check(self, *, verified: bool) -> Iterator[str]:
        """Ask new objects."""
        yield from self.problems()
        if verified:
            yield from (
                f"verify: {problem}" for problem in TxnLog.open(self.world.store).verify(deep=True).problems
            )


# --- consumers -------------------------------------------------------------------------------------------------------


class _Consuming(Case):
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
    """What a close that raised has not committed is for the next consumer; another close says nothing of it."""

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


# --- subscriptions ---------------------------------------------------------------------------------------------------


class _Subscribed(Case):
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


# --- logs ------------------------------------------------------------------------------------------------------------


class _Log(Case):
    """The log itself goes on being usable, and holds what is told."""

    def done(self) -> None:
        self.do_again()
        self.log.refresh()
        with BulkAppend(self.log) as bulk:
            bulk.send(NUMBERS, [{"n": 7_000}])
            bulk.commit()

    def do_again(self) -> None:
        self.do()

    def problems(self) -> Iterator[str]:
        log = TxnLog.open(self.world.store)
        seed = log.read(SEED).read_all().column("n").to_pylist()
        if seed != list(range(SEED_RECORDS)):
            yield f"reads {seed}"


class _CreateTopic(_Log):
    name = "create-topic"

    def do(self) -> None:
        self.log.create_topic("new", pa.schema([("n", pa.int64())]), partitions=2, exist_ok=True)


class _AlterTopic(_Log):
    name = "alter-topic"

    def do(self) -> None:
        if self.log.refresh().topic(SEED).partitions < 3:
            self.log.alter_topic(SEED, partitions=3)


class _CreateSubscription(_Log):
    name = "create-subscription"

    def do(self) -> None:
        self.log.subscriptions.create(SEED, "others", exist_ok=True)


class _Refresh(_Log):
    name = "refresh"

    def before(self) -> None:
        TxnLog.open(self.world.store).create_topic("other", "kafka")

    def do(self) -> None:
        self.log.refresh()


class _Open(_Log):
    name = "open"

    def do(self) -> None:
        TxnLog.open(self.world.store).close()


class _Create(_Log):
    name = "create"

    def before(self) -> None:
        self.empty = MemoryStore()

    def do(self) -> None:
        TxnLog.create(self.empty).close()

    def do_again(self) -> None:
        TxnLog.open_or_create(self.empty).create_topic("new", "kafka", exist_ok=True)

    def go_on(self, trial: Trial) -> None:
        if trial.then is Next.REPEAT:
            trial.attempt(self.name, self.do)


class _Seal(_Log):
    name = "maintain"

    def do(self) -> None:
        self.log.maintain()


class _Snapshot(_Log):
    name = "snapshot"

    def do(self) -> None:
        found = self.log.snapshot().read(SEED).read_all().num_rows
        if found != SEED_RECORDS:
            raise AssertionError(f"a snapshot of {found} records")


class _Read(_Log):
    name = "read"

    def do(self) -> None:
        found = self.log.read(SEED).read_all().column("n").to_pylist()
        if found != list(range(SEED_RECORDS)):
            raise AssertionError(f"read {found}")


class _ReadOn(_Log):
    """An iterator that is interrupted may end, or go on where it was: it skips nothing."""

    name = "read-batches"

    def before(self) -> None:
        self.found: list[int] = []
        self.reader = iter(self.log.read(SEED))

    def do(self) -> None:
        for batch in self.reader:
            self.found += batch.column("n").to_pylist()

    def do_again(self) -> None:
        if self.found not in ([], list(range(SEED_RECORDS))):
            raise AssertionError(f"read {self.found}")


class _Describe(_Log):
    name = "describe-metrics-history"

    def do(self) -> None:
        self.log.describe()
        self.log.metrics()
        self.log.offsets(SEED)
        list(self.log.history())


class _Verify(_Log):
    name = "verify"

    def do(self) -> None:
        self.log.verify(deep=True)


class _Bulk(_Log):
    """One append: acknowledged and there once, or raised and there once or not at all."""

    name = "bulk-commit"

    def before(self) -> None:
        self.bulk = BulkAppend(self.log)
        self.bulk.send(NUMBERS, [{"n": n} for n in range(5)])

    def do(self) -> None:
        self.bulk.commit()

    def do_again(self) -> None:
        pass

    def close(self) -> None:
        self.bulk.close()

    def problems(self) -> Iterator[str]:
        found = sorted(
            n for n in TxnLog.open(self.world.store).read(NUMBERS).read_all().column("n").to_pylist() if n < 5
        )
        if found != list(range(5)) and (self.is_told or found):
            yield f"lost or torn: {'acknowledged' if self.is_told else 'unknown'}, and {found} are there"


class _BulkSend(_Log):
    name = "bulk-send"

    def before(self) -> None:
        self.bulk = BulkAppend(self.log)
        self.bulk.send(NUMBERS, [{"n": 1}])
        self.sent: list[int] = [1]
        self.is_committed = False

    def do(self) -> None:
        value = 10 * (1 + len(self.sent))
        self.bulk.send(NUMBERS, [{"n": value}, {"n": value + 1}])
        self.sent += [value, value + 1]

    def done(self) -> None:
        self.bulk.commit()
        self.is_committed = True

    def close(self) -> None:
        self.bulk.close()

    def problems(self) -> Iterator[str]:
        found = TxnLog.open(self.world.store).read(NUMBERS).read_all().column("n").to_pylist()
        if self.is_committed and not set(self.sent) <= set(found):
            yield f"lost: accepted {self.sent}, committed, and {found} are there"
        if len(found) != len(set(found)) or (not self.is_committed and found):
            yield f"{found} are there"


# --- stores ----------------------------------------------------------------------------------------------------------


class _Store(Case):
    """An object is there whole, or not at all."""

    KEY = "raw/object"
    DATA = b"x" * 5_000

    def other(self) -> Callable[[], None] | None:
        return lambda: self.world.store.head(self.KEY) and None

    def done(self) -> None:
        self.do()

    def problems(self) -> Iterator[str]:
        found = self.world.store.get(self.KEY)
        if found != self.DATA and (self.is_told or found is not None):
            yield f"torn or lost: {None if found is None else len(found)} bytes"
        listed = [info.key for info in self.world.store.list("raw/")]
        if listed != ([] if found is None else [self.KEY]):
            yield f"lists {listed}"


class _StoreCreate(_Store):
    name = "store-create"

    def do(self) -> None:
        outcome = self.world.store.create(self.KEY, self.DATA).outcome
        if outcome not in (CreateOutcome.CREATED, CreateOutcome.EXISTS):
            raise AssertionError(f"{outcome}")


class _StorePut(_Store):
    name = "store-put"

    def do(self) -> None:
        self.world.store.put(self.KEY, self.DATA)


class _StoreWrite(_Store):
    name = "store-open-write"

    def do(self) -> None:
        if self.world.store.head(self.KEY) is not None:
            return
        with self.world.store.open_write(self.KEY) as writer:
            writer.write(self.DATA[:2_000])
            writer.write(self.DATA[2_000:])


class _StoreRead(_Store):
    name = "store-get-list"

    def before(self) -> None:
        self.world.store.put(self.KEY, self.DATA)

    def do(self) -> None:
        store = self.world.store
        if store.get(self.KEY) != self.DATA or store.get_range(self.KEY, 10, 5) != self.DATA[10:15]:
            raise AssertionError("other bytes")
        store.head(self.KEY)
        store.list("raw/")


class _StoreDelete(_Store):
    name = "store-delete"

    def before(self) -> None:
        self.world.store.put(self.KEY, self.DATA)

    def do(self) -> None:
        self.world.store.delete(self.KEY)

    def problems(self) -> Iterator[str]:
        found = self.world.store.get(self.KEY)
        if found not in (None, self.DATA) or (self.is_told and found is not None):
            yield "not deleted, or torn"


class _Actor:
    """Makes plays of one case."""

    def __init__(self, case: type[Case]) -> None:
        self._case = case

    def __str__(self) -> str:
        family = next(
            name
            for kind, name in (
                (_Consuming, "consumer"),
                (_Subscribed, "subscription"),
                (_Log, "log"),
                (_Store, "store"),
            )
            if issubclass(self._case, kind)
        )
        return f"{self._case.name}/{family}"

    def play(self, world: World) -> Case:
        """Return a play."""
        return self._case(world)


CASES: tuple[_Actor, ...] = tuple(
    _Actor(case)
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
        _CreateTopic,
        _AlterTopic,
        _CreateSubscription,
        _Refresh,
        _Open,
        _Create,
        _Seal,
        _Snapshot,
        _Read,
        _ReadOn,
        _Describe,
        _Verify,
        _Bulk,
        _BulkSend,
        _StoreCreate,
        _StorePut,
        _StoreWrite,
        _StoreRead,
        _StoreDelete,
    )
)
