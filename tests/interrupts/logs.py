"""Calls of logs, reads and stores that are interrupted: done, or not, and the same call does it then."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from tests.interrupts.cases import Case, CaseActor
from tests.interrupts.trials import Next, Trial
from tests.interrupts.world import NUMBERS, SEED, SEED_RECORDS
from txnformat.store.base import CreateOutcome
from txnformat.store.memory import MemoryStore
from txnlog import TxnLog
from writers.bulk import BulkAppend

__all__ = ["CASES"]


# --- logs ---------------------------------------------------------------------------------------------------


class _Log(Case):
    """The log itself goes on being usable, and holds what is told."""

    family = "log"

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
        self.attempts = 0
        self.is_committed = False

    def do(self) -> None:
        self.attempts += 1  # whoever repeats a send that raised may have sent twice, as far as it was told
        value = 10 * self.attempts
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


# --- stores -------------------------------------------------------------------------------------------------


class _Store(Case):
    """An object is there whole, or not at all."""

    family = "store"

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


CASES: tuple[CaseActor, ...] = tuple(
    CaseActor(case)
    for case in (
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
