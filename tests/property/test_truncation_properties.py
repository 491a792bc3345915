"""Random histories with writers, some of them away for long, snapshots, truncations and openers: a log is
what its untouched twin is.

The oracle is a second store that gets every object of the first, and of which nothing is ever deleted. It
also judges each deletion of an entry by the rules of the specification (section 5.18), from its own record of
what was created when.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.integration.clients.failing import NUMBERS, rows
from tests.model.groups import ManualClock
from tests.rounds import rounds
from txnformat import keys
from txnformat.core.entry import decode_entry
from txnformat.core.operations import Checkpoint
from txnformat.core.snapshot.codec import state_digest
from txnformat.core.wire.bundle import BUNDLE_ENTRIES, bundle_first, decode_bundle
from txnformat.segments.payload import head_of
from txnformat.store.base import CreateOutcome, CreateResult
from txnformat.store.memory import MemoryStore
from txnlog import Producer, TxnLog

WEEK_MS = 7 * 24 * 3_600_000
HOUR_MS = 3_600_000
DAY_S = 24 * 3_600


class WithTwin(MemoryStore):
    """A store, and beside it one of which nothing is deleted."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.twin = MemoryStore(clock)
        self.boundaries: dict[int, int] = {}
        """When each was made."""
        self.checkpoints: list[Checkpoint] = []
        self.gone = 0

    def create(self, key: str, data: bytes) -> CreateResult:
        result = super().create(key, data)
        if result.outcome is not CreateOutcome.CREATED:
            return result
        boundary, entry = keys.parse_boundary_key(key), keys.parse_entry_key(key)
        if boundary is not None:
            self.boundaries[boundary] = self.store_time_ms()
        elif self.twin.create(key, data).outcome is CreateOutcome.CREATED and entry is not None:
            operations = decode_entry(data, entry).operations
            self.checkpoints += [one for one in operations if isinstance(one, Checkpoint)]
        return result

    def put(self, key: str, data: bytes) -> None:
        super().put(key, data)
        self.twin.put(key, data)

    def delete(self, key: str) -> None:
        number = keys.parse_entry_key(key)
        if number is not None and self.get(key) is not None:
            self._judge(number, key)
        assert key not in [one.key for one in self.checkpoints[-2:]]
        super().delete(key)

    def _judge(self, number: int, key: str) -> None:
        now_ms, data = self.store_time_ms(), self.twin.get(key)
        assert data is not None
        assert decode_entry(data, number).timestamp_ms <= now_ms - WEEK_MS
        assert number < self.checkpoints[-2].entry
        assert any(one > number and now_ms - made >= HOUR_MS for one, made in self.boundaries.items())
        left = [keys.parse_entry_key(info.key) for info in self.list(keys.LOG_PREFIX)]
        assert left[0] == number
        bundle = keys.bundle_key(first := bundle_first(number), first + BUNDLE_ENTRIES - 1)
        assert decode_bundle(self.get(bundle) or b"", bundle)[number - first] == head_of(data)
        self.gone += 1


class History:
    """Clients of one log, of which some are away while others go on."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.clock = ManualClock()
        self.store = WithTwin(self.clock)
        log = TxnLog.create(self.store, clock=self.clock, embedding=random.random() < 0.5)
        log.create_topic("t", NUMBERS)
        self.clients = [log]
        self.written: list[int] = []
        for _ in range(2):
            self.write(log, 105)

    def opened(self, store: MemoryStore) -> TxnLog:
        return TxnLog.open(store, clock=self.clock)

    def step(self) -> None:
        chance = self.random.random()
        if chance < 0.3:
            self.write(self.random.choice(self.clients), self.random.choice([1, 5, 40, 105]))
        elif chance < 0.55:
            self.clock.sleep(self.random.choice([30, 1_800, 3_600, 8 * DAY_S, 8 * DAY_S]))
        elif chance < 0.85:
            self.truncate(self.random.choice(self.clients))
        elif chance < 0.95:
            self.clients = [*self.clients, self.opened(self.store)][-3:]
        else:
            self.check_twin()

    def write(self, log: TxnLog, entries: int) -> None:
        with Producer(log, linger_ms=3_600_000) as producer:
            for _ in range(entries):
                number = len(self.written)
                producer.send("t", rows(number), partition=0)
                producer.flush()
                self.written.append(number)
                self.clock.sleep(1)
        if self.random.random() < 0.5:
            log.maintain("seal")
        log.committer.close()

    def truncate(self, log: TxnLog) -> None:
        log.truncate(datetime.timedelta(days=self.random.choice([7, 7, 9])))

    def check_twin(self) -> None:
        """Somebody who opens the log and somebody who opens the twin see the same."""
        log, twin = self.opened(self.store), self.opened(self.store.twin)
        assert state_digest(log.state) == state_digest(twin.state)
        assert log.offsets("t") == twin.offsets("t")
        assert sorted(log.read("t").read_all()["n"].to_pylist()) == self.written
        assert [one.sha256 for one in log.history(limit=None)] == [
            one.sha256 for one in twin.history(limit=None)
        ]
        entry = self.random.randrange(log.state.entry + 1)
        times = [one.snapshot(version_as_of=entry).timestamp_ms for one in (log, twin)]
        assert times[0] == times[1]
        cuts = [one.snapshot(timestamp_as_of=times[0]).entry for one in (log, twin)]
        assert cuts == [entry, entry]
        for client in self.clients:
            client.refresh()
            assert state_digest(client.state) == state_digest(twin.state)

    def finish(self) -> None:
        self.check_twin()
        report = self.opened(self.store).verify()
        assert report.ok, report.problems


@settings(
    max_examples=rounds(3, 16),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    deadline=None,
)
@given(seed=st.integers(0, 2**32), steps=st.integers(8, 25))
def test_a_truncated_log_is_what_its_untouched_twin_is(seed: int, steps: int) -> None:
    history = History(Random(seed))
    for _ in range(steps):
        history.step()
    history.finish()
    event(f"entries deleted: {'some' if history.store.gone else 'none'}")


@pytest.mark.parametrize("seed", range(rounds(2, 6)))
def test_some_histories_that_delete_entries(seed: int) -> None:
    """The random ones above need not: these do, and bring clients that are away for days."""
    history = History(Random(seed))
    away: Sequence[TxnLog] = history.clients
    for _ in range(3):
        history.clients = [history.opened(history.store)]
        for _ in range(3):
            history.write(history.clients[0], history.random.choice([70, 105]))
        history.clock.sleep(8 * DAY_S)
        for _ in range(2):
            history.truncate(history.clients[0])
            history.clock.sleep(HOUR_MS // 1_000)
        history.clients = [*away, *history.clients]
        history.check_twin()
    history.write(history.clients[0], 1)
    history.finish()
    assert history.store.gone >= 2 * BUNDLE_ENTRIES
