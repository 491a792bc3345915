"""Entries that a truncation has deleted, or may have deleted: what still tells of them, and what says that
nothing does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.integration.clients.failing import rows
from tests.integration.upkeep.truncation_world import BOUNDARY, TruncationWorld, entries_in, one_by_one
from txnformat import keys
from txnformat.core.wire.bundle import decode_bundle
from txnformat.errors import StorageError
from txnformat.store.base import CreateOutcome, CreateResult, ObjectInfo
from txnformat.store.memory import MemoryStore
from txnformat.store.wrapped import WrappedStore
from txnlog import CommitStateUnknownError, NotFoundError, Producer, ProducerStatus

FIRST_BUNDLE = keys.bundle_key(0, BOUNDARY - 1)


@pytest.fixture(scope="module")
def template() -> TruncationWorld:
    with one_by_one():
        world = TruncationWorld()
        world.age()
        world.truncate()
        world.truncate()
    assert entries_in(world.store)[0] == BOUNDARY
    return world


@pytest.fixture
def world(template: TruncationWorld) -> TruncationWorld:
    return template.copied()


@pytest.fixture
def times(template: TruncationWorld) -> list[int]:
    return [one.timestamp_ms for one in template.opened().history(limit=None)][::-1]


@pytest.mark.parametrize("damage", ["cut", "empty", "gone"])
def test_entries_in_no_good_bundle_are_gone_and_an_error_says_where_the_rest_begins(
    world: TruncationWorld, times: list[int], damage: str
) -> None:
    data = world.store.get(FIRST_BUNDLE) or b""
    world.store.delete(FIRST_BUNDLE)
    if damage != "gone":
        world.store.create(FIRST_BUNDLE, data[:-10] if damage == "cut" else b"")
    log = world.opened()
    for ask in (
        lambda: log.snapshot(timestamp_as_of=times[50]),
        lambda: log.read("t", timestamp_as_of=times[50]),
        lambda: log.snapshot(version_as_of=50).timestamp_ms,
        lambda: log.outcome("etl", 0),
        lambda: list(log.history(limit=None)),
    ):
        with pytest.raises(NotFoundError) as caught:
            ask()
        assert caught.value.kind == "history-gone"
        assert caught.value.values["earliest"] == BOUNDARY
    assert log.snapshot(timestamp_as_of=times[150]).entry == 150
    told = log.history(limit=None)  # the error comes after the entries that there are
    shown = [next(told).entry for _ in range(log.state.entry - BOUNDARY + 1)]
    assert shown == list(range(log.state.entry, BOUNDARY - 1, -1))
    with pytest.raises(NotFoundError):
        next(told)
    assert FIRST_BUNDLE in {one.object for one in log.verify().problems}
    world.truncate()
    log.vacuum()


class AsleepAfterTheBoundary(WrappedStore):
    """The store of a process that sleeps when it has read the boundary, and then looks at the clock."""

    is_armed = False

    def __init__(self, inner: MemoryStore, world: TruncationWorld) -> None:
        super().__init__(inner)
        self._world = world

    def list(self, prefix: str, start_after: str | None = None) -> Sequence[ObjectInfo]:
        found = super().list(prefix, start_after)
        if self.is_armed and prefix == keys.BOUNDARY_PREFIX:
            self.is_armed = False
            pass_days(self._world)
        return found


def young(template: TruncationWorld) -> TruncationWorld:
    """Return the log as it was after its first half hundred entries."""
    world = template.copied()
    world.store.delete(keys.boundary_key(BOUNDARY))
    bundle = decode_bundle(world.store.get(FIRST_BUNDLE) or b"", FIRST_BUNDLE)
    for number in entries_in(world.store):
        world.store.delete(keys.entry_key(number))
    for number in range(51):
        world.store.create(keys.entry_key(number), bundle[number])
    for prefix in (keys.SNAPSHOT_PREFIX, keys.BUNDLE_PREFIX, keys.LATEST_KEY):
        for info in world.store.list(prefix):
            world.store.delete(info.key)
    return world


def pass_days(world: TruncationWorld) -> None:
    """Let others write before and after a week, and truncations delete what is old."""
    world.grow(world.opened(), range(3_000, 3_150))
    world.age()
    world.grow(world.opened(), range(4_000, 4_150))
    world.truncate()
    world.truncate()
    assert entries_in(world.store)[0] >= BOUNDARY


def test_a_young_entry_in_a_deleted_slot_tells_no_time(template: TruncationWorld) -> None:
    world = young(template)
    store = AsleepAfterTheBoundary(world.store, world)
    with one_by_one():
        producer = Producer(world.opened(store), linger_ms=10**9)
        producer.init()
        world.clock.sleep(61)  # its view is no longer fresh: the next commit reads the boundary first
        producer.send("t", rows(77_777), partition=0)
        store.is_armed = True
        producer.flush()
    log = world.opened()
    assert log.read("t").read_all()["n"].to_pylist().count(77_777) == 1
    (left,) = [number for number in entries_in(world.store) if number < BOUNDARY]
    times = {one.entry: one.timestamp_ms for one in log.history(limit=None)}
    assert log.snapshot(version_as_of=left).timestamp_ms == times[left]
    assert [log.snapshot(timestamp_as_of=time).entry for time in times.values()] == list(times)


class LostAnswer(WrappedStore):
    """The store of a process whose create of an entry lands, and which sleeps before it hears of that."""

    is_armed = False

    def __init__(self, inner: MemoryStore, world: TruncationWorld) -> None:
        super().__init__(inner)
        self._world = world

    def create(self, key: str, data: bytes) -> CreateResult:
        result = super().create(key, data)
        if self.is_armed and keys.parse_entry_key(key) is not None:
            self.is_armed = False
            pass_days(self._world)
            return CreateResult(CreateOutcome.AMBIGUOUS, StorageError("connection reset", transient=True))
        return result


def test_a_call_whose_entry_went_meanwhile_is_repeated_with_its_result(template: TruncationWorld) -> None:
    world = young(template)
    store = LostAnswer(world.store, world)
    with one_by_one():
        producer = Producer(world.opened(store), "sleeper")
        store.is_armed = True
        with pytest.raises(CommitStateUnknownError):
            producer.init()
        producer.init()
    assert producer.status is ProducerStatus.READY
    opened = [one.entry for one in world.opened().history(limit=None) if "init_producer" in one.operations]
    assert len([entry for entry in opened if entry == 51]) == 1
