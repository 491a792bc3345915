"""A truncation beside everything else: something happens at each of its requests; and clients that were away
while entries went.

The suite tries the first request of each kind (operation and sort of key), and the last of all; `make
campaigns` tries many more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.integration.clients.failing import rows
from tests.integration.upkeep.truncation_world import (
    BOUNDARY,
    EIGHT_DAYS_S,
    HOUR_S,
    TruncationWorld,
    append,
    entries_in,
    one_by_one,
)
from tests.integration.upkeep.vacuum_world import Interposed
from tests.rounds import rounds, telling
from txnformat import keys
from txnformat.core.entry import decode_entry, encode_entry
from txnformat.core.snapshot.codec import state_digest
from txnformat.persistent import replace
from txnformat.protocol.old_entries import OldEntries
from txnformat.store.base import CreateResult
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import RequestKind
from txnformat.store.wrapped import WrappedStore
from txnlog import ConflictError, Producer, ProducerFencedError, TxnLog


@pytest.fixture(scope="module")
def template() -> TruncationWorld:
    return TruncationWorld()


@pytest.fixture
def world(template: TruncationWorld) -> Iterator[TruncationWorld]:
    with one_by_one():
        yield template.copied()


@pytest.fixture(params=["first run", "second run"])
def prepared(world: TruncationWorld, request: pytest.FixtureRequest) -> TruncationWorld:
    """Return a world in which the next truncation writes the boundary, or one in which it deletes."""
    world.age()
    if request.param == "second run":
        world.truncate()
    world.clock.sleep(HOUR_S + 1)
    return world


def requests_of(world: TruncationWorld) -> list[tuple[RequestKind, str]]:
    """Return the kinds of the requests that the next truncation of a world makes, with those that open the
    log."""
    other = ripe(world)
    store = Interposed(other.store)
    other.opened(store).truncate()
    return store.kinds


def ripe(world: TruncationWorld) -> TruncationWorld:
    """Return a copy in which the boundaries are as old as in the world."""
    other = world.copied()
    other.clock.sleep(HOUR_S + 1)
    return other


def finish(world: TruncationWorld, expected: dict[str, object], boundary: int = BOUNDARY) -> None:
    """Let truncations finish, and check that what must go is gone, and that nothing else has changed."""
    world.truncate()
    world.truncate()
    assert world.shown() == expected
    assert entries_in(world.store)[0] == boundary


def test_two_truncations_at_once_delete_what_one_deletes(prepared: TruncationWorld) -> None:
    expected = prepared.shown()
    kinds = requests_of(prepared)
    for number in rounds(telling(kinds)[::2], [*range(0, len(kinds), 9)]):
        other = ripe(prepared)
        store = Interposed(other.store, number, partial(_truncate, other))
        other.opened(store).truncate()
        finish(other, expected)


def test_a_truncation_that_sleeps_for_days_while_others_run_looks_anew(prepared: TruncationWorld) -> None:
    """Slots that it has listed are gone when it reads them, and the bundles that it found missing are there:
    the log is not damaged."""
    expected = prepared.shown()
    for info in prepared.store.list(keys.BUNDLE_PREFIX):
        prepared.store.delete(info.key)
    kinds = requests_of(prepared)
    reads = [number for number in telling(kinds) if kinds[number][0] is RequestKind.GET]
    for number in rounds(reads[-3:], [*range(0, len(kinds), 5)]):
        other = ripe(prepared)
        store = Interposed(other.store, number, partial(_truncate_twice, other))
        other.opened(store).truncate()
        finish(other, expected)


def _truncate(world: TruncationWorld) -> None:
    world.opened().truncate()


def grow(world: TruncationWorld) -> None:
    """Write so many entries that the log names another snapshot, and the oldest of the two is a newer one."""
    world.grow(world.opened(), range(2_000, 2_120))


def test_writers_may_go_on_in_the_middle_of_a_truncation(prepared: TruncationWorld) -> None:
    count = len(requests_of(prepared))
    for number in range(2, count, count // rounds(2, 6)):
        other = ripe(prepared)
        store = Interposed(other.store, number, partial(grow, other))
        other.opened(store).truncate()
        expected = other.shown()
        assert set(range(2_000, 2_120)) <= set(expected["committed"]["n"])
        other.age()
        finish(other, expected, 200)


def test_an_opener_that_sleeps_at_any_request_while_entries_go_arrives_at_the_state(
    world: TruncationWorld,
) -> None:
    """It opens without the hint too, and from one that has become stale."""
    expected = state_digest(world.opened().state)
    for hint in ("newest", "gone"):
        if hint == "gone":
            world.store.delete(keys.LATEST_KEY)
        count = Interposed(world.store)
        world.opened(count)
        for number in rounds(telling(count.kinds), [*range(0, count.count, 3)]):
            other = world.copied()
            store = Interposed(other.store, number, partial(_truncate_twice, other))
            assert state_digest(other.opened(store).state) == expected
            assert entries_in(other.store)[0] == BOUNDARY


def _truncate_twice(world: TruncationWorld) -> None:
    world.age()
    world.truncate()
    world.truncate()


@pytest.mark.parametrize("removed", ["", "the hour of a boundary", "the look at the boundary"])
def test_a_deleted_slot_that_is_created_again_is_not_read_by_either_guard(
    world: TruncationWorld, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    """A reader trusts slots for half an hour after its look at the boundary, for nothing below a boundary
    goes in its first hour. Without either it reads what the log never had."""
    world.age()
    log = world.opened()
    old = OldEntries(log.state.entry)
    truth = log.committer.read(old.read(5))
    if removed == "the hour of a boundary":
        monkeypatch.setattr("txnformat.admin.truncation.BOUNDARY_AGE_MS_MIN", 0)
    if removed == "the look at the boundary":
        monkeypatch.setattr("txnformat.protocol.old_entries.BOUNDARY_MS_MAX", 10**15)
    for _ in range(2):
        world.opened().truncate()
        if removed != "the hour of a boundary":
            world.clock.sleep(HOUR_S + 1)
    forged = encode_entry(replace(truth, write_id="00000000-0000-4000-8000-000000000000"))
    world.store.create(keys.entry_key(5), forged)
    assert (log.committer.read(old.read(5)) == truth) == (not removed)


# --- clients that were away ---------------------------------------------------------------------------------


class Asleep(WrappedStore):
    """The store of a process that sleeps once, just before it creates an entry or reads one."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.meanwhile: Callable[[], object] | None = None

    def create(self, key: str, data: bytes) -> CreateResult:
        if keys.parse_entry_key(key) is not None and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return super().create(key, data)


class Away:
    """A young log with a client that sleeps while the log grows, its entries get old and go."""

    def __init__(self, template: TruncationWorld) -> None:
        self.world = world = template.copied()
        # The log as it was after its first half hundred entries.
        for number in entries_in(world.store):
            if number > 50:
                world.store.delete(keys.entry_key(number))
        for prefix in (keys.SNAPSHOT_PREFIX, keys.BUNDLE_PREFIX, keys.LATEST_KEY):
            for info in world.store.list(prefix):
                world.store.delete(info.key)
        self.store = Asleep(world.store)
        self.log = world.opened(self.store)
        assert self.log.state.entry == 50

    def pass_days(self) -> None:
        """Let others write, the entries become old, and truncations delete those below the boundary."""
        self.world.grow(self.world.opened(), range(3_000, 3_200))
        _truncate_twice(self.world)
        assert entries_in(self.world.store)[0] == BOUNDARY


@pytest.fixture
def away(template: TruncationWorld) -> Iterator[Away]:
    with one_by_one():
        yield Away(template)


def test_a_writer_that_slept_and_creates_a_deleted_slot_again_has_lost_it(away: Away) -> None:
    """Its entry lands in the deleted slot: only the boundary, read after the create, says that it is not the
    log's."""
    producer = Producer(away.log, linger_ms=10 * EIGHT_DAYS_S * 1_000)
    producer.init()
    producer.send("t", rows(77_777), partition=0)
    away.store.meanwhile = away.pass_days
    with pytest.raises(ConflictError, match="nothing was committed"):
        producer.flush()
    assert entries_in(away.world.store)[0] < BOUNDARY
    assert 77_777 not in away.world.opened().read("t").read_all()["n"].to_pylist()
    producer.flush()
    log = away.world.opened()
    assert log.read("t").read_all()["n"].to_pylist().count(77_777) == 1
    assert state_digest(away.log.refresh()) == state_digest(log.state)
    # What it left in the deleted slot deceives nobody, and goes with the next truncation.
    history = [one.entry for one in log.history(limit=None)]
    assert history == list(range(log.state.entry, -1, -1))
    lost = entries_in(away.world.store)[0]
    near = [one.sha256 for one in log.history(limit=4, start=lost + 2)]
    assert near == [one.sha256 for one in log.history(limit=None)][log.state.entry - lost - 2 :][:4]
    report = log.verify()
    assert report.problems == ()
    assert [note.count for note in report.notes if note.kind == "below-boundary"] == [1]
    away.world.truncate()
    assert entries_in(away.world.store)[0] == BOUNDARY


def test_an_end_that_landed_in_a_deleted_slot_is_no_outcome(away: Away) -> None:
    """A transaction is aborted, and the commit of its sleeping producer lands where an entry was deleted."""
    producer = Producer(away.log, "sleeper", buffer="inline")
    producer.init()
    producer.begin()
    producer.send("t", rows(88_888), partition=0)
    producer.flush()

    def meanwhile() -> None:
        with Producer(away.world.opened(), "sleeper") as other:  # aborts it
            for number in (1, 2):
                other.begin()
                other.send("t", rows(90_000 + number), partition=0)
                other.commit()
        away.pass_days()

    away.store.meanwhile = meanwhile
    with pytest.raises(ProducerFencedError):
        producer.commit()
    assert entries_in(away.world.store)[0] < BOUNDARY
    log = away.world.opened()
    assert log.outcome("sleeper", 0).outcome == "abort"
    assert 88_888 not in log.read("t").read_all()["n"].to_pylist()
    lost = entries_in(away.world.store)[0]
    bundled = next(one for one in log.history(limit=None) if one.entry == lost)
    assert not [one for one in bundled.transactions if one.outcome == "commit"]


def test_a_follower_with_an_old_view_goes_on_from_a_snapshot(away: Away) -> None:
    away.pass_days()
    assert state_digest(away.log.refresh()) == state_digest(away.world.opened().state)


def test_a_read_that_was_planned_days_ago_goes_on(away: Away) -> None:
    """A truncation deletes no data: what was planned is there for as long as the vacuum's grace says."""
    before = away.world.opened().read("t").read_all()
    reader = away.log.read("t")
    away.pass_days()
    assert reader.read_all() == before


def test_a_view_that_was_held_for_days_reads_old_entries_out_of_bundles(away: Away) -> None:
    away.pass_days()
    view = away.world.opened()
    times = [view.snapshot(version_as_of=entry).timestamp_ms for entry in range(40, 60)]
    assert times == sorted(times)
    away.world.clock.sleep(EIGHT_DAYS_S)
    append(away.world.opened(), 1)
    assert [view.snapshot(version_as_of=entry).timestamp_ms for entry in range(40, 60)] == times


def test_an_entry_in_a_deleted_slot_does_not_tell_the_time(away: Away) -> None:
    """Its own time is that of a moment before the entry that was deleted, or after it."""
    store = away.world.store
    entry = decode_entry(store.get(keys.entry_key(50)) or b"", 50)
    away.pass_days()
    for wrong_ms in (-3_000, 3_000):
        again = encode_entry(replace(entry, timestamp_ms=entry.timestamp_ms + wrong_ms))
        store.put(keys.entry_key(50), again)
        log = away.world.opened()
        assert log.snapshot(version_as_of=50).timestamp_ms == entry.timestamp_ms
        assert log.snapshot(timestamp_as_of=entry.timestamp_ms).entry == 50
        assert log.snapshot(timestamp_as_of=entry.timestamp_ms - 1).entry == 49


def test_a_stream_does_not_take_an_entry_in_a_deleted_slot_for_another_log(away: Away) -> None:
    from spark_datasource.worker.logs import has_entry

    seen = away.log.state
    away.pass_days()
    store = away.world.store
    assert has_entry(store, seen.entry, seen.entry_sha256) is None
    store.create(keys.entry_key(seen.entry), b"{}")
    assert has_entry(store, seen.entry, seen.entry_sha256) is None
    newest: TxnLog = away.world.opened()
    assert has_entry(store, newest.state.entry, newest.state.entry_sha256) is True
    assert has_entry(store, newest.state.entry, seen.entry_sha256) is False
