"""Old states: found by the nearest snapshot, or from the first entry, also of logs whose old entries are
deleted."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.integration.clients.failing import rows
from tests.integration.upkeep.truncation_world import BOUNDARY, TruncationWorld, one_by_one
from txnformat import keys
from txnformat.core.entry import decode_entry, encode_entry
from txnformat.core.snapshot.codec import state_digest
from txnformat.core.state import LogState
from txnformat.looking import past
from txnformat.looking.past import read_reach, state_after
from txnformat.looking.timeline import EntryWindow
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import CorruptDataError, NotFoundError, Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore


@pytest.fixture(scope="module")
def template() -> TruncationWorld:
    return TruncationWorld()


@pytest.fixture
def world(template: TruncationWorld) -> TruncationWorld:
    return template.copied()


def state_of(log: TxnLog, entry: int) -> LogState:
    reach = log.committer.read(read_reach())
    return log.committer.read(state_after(log.refresh(), entry, reach))


def folded(world: TruncationWorld) -> dict[int, str]:
    """Return the digest of every state, folded from the first entry on."""
    log = world.opened()
    reach = log.committer.read(read_reach())._replace(snapshots=())
    found: dict[int, str] = {}
    empty = log.committer.read(state_after(log.state, -1, reach))
    log.committer.read(
        past.fold_to(
            empty,
            log.state.entry,
            log.state,
            0,
            lambda entry, after, _s: found.update({entry.entry: state_digest(after)}),
        )
    )
    return found


def test_every_state_is_the_one_that_the_log_had(world: TruncationWorld) -> None:
    digests = folded(world)
    log = world.opened()
    for entry in (0, 1, 57, BOUNDARY, BOUNDARY + 1, log.state.entry - 1, log.state.entry):
        assert state_digest(state_of(log, entry)) == digests[entry]


def test_a_snapshot_saves_the_entries_before_it(world: TruncationWorld) -> None:
    counting = CountingStore(world.store)
    log = world.opened(counting)
    entry = log.state.checkpoints[-1].entry + 3
    with counting.measure() as measured:
        state_of(log, entry)
    assert measured.counts.count(RequestKind.GET, KeyClass.SNAPSHOT) == 1
    assert measured.counts.count(RequestKind.GET) <= 5


def test_an_older_snapshot_is_told_from_the_newer_ones(world: TruncationWorld) -> None:
    """The state names the two newest; of others the entry that names them is looked for."""
    log = world.opened()
    log.committer.write_snapshot()
    oldest = log.refresh().checkpoints[-1]
    for _ in range(3):
        log.committer.write_snapshot()
    counting = CountingStore(world.store)
    log = world.opened(counting)
    assert oldest.entry < log.state.checkpoints[0].entry
    with counting.measure() as measured:
        state = state_of(log, oldest.entry)
    assert state.entry == oldest.entry
    assert measured.counts.count(RequestKind.GET, KeyClass.SNAPSHOT) == 1
    assert measured.counts.count(RequestKind.GET, KeyClass.FORMAT) == 0  # it did not begin with an empty log


def test_a_snapshot_that_no_entry_names_means_nothing(world: TruncationWorld) -> None:
    digests = folded(world)
    log = world.opened()
    other = TruncationWorld().opened()
    foreign = other.store.get(other.state.checkpoints[0].key)
    assert foreign is not None
    world.store.create(keys.snapshot_key(40, "00000000-0000-4000-8000-000000000000"), foreign)
    assert state_digest(state_of(log, 50)) == digests[50]


def test_a_damaged_snapshot_is_passed_over(world: TruncationWorld) -> None:
    digests = folded(world)
    log = world.opened()
    newest = log.state.checkpoints[-1]
    data = world.store.get(newest.key) or b""
    world.store.put(newest.key, data[:-1] + bytes([data[-1] ^ 1]))
    assert state_digest(state_of(log, newest.entry + 1)) == digests[newest.entry + 1]


def test_of_a_truncated_log_states_are_told_while_something_tells_them(world: TruncationWorld) -> None:
    digests = folded(world)
    with one_by_one():
        world.age()
        world.truncate()
        world.truncate()
    log = world.opened()
    assert world.store.get(keys.entry_key(BOUNDARY - 1)) is None
    # Bundles have the deleted entries: all states can be told.
    assert state_digest(state_of(log, BOUNDARY // 2)) == digests[BOUNDARY // 2]
    assert log.timeline(version_as_of=BOUNDARY // 2).document.earliest == 0
    # Without the bundle, only those behind a snapshot.
    world.store.delete(keys.bundle_key(0, BOUNDARY - 1))
    log = world.opened()
    shown = log.timeline().document
    kept = [
        name.born
        for name in map(keys.parse_snapshot_key, [i.key for i in world.store.list(keys.SNAPSHOT_PREFIX)])
        if name
    ]
    assert shown.earliest == min(kept)
    assert shown.first == shown.earliest + 1
    assert "the window begins behind them" in shown.notes[0]
    assert state_digest(state_of(log, shown.earliest + 5)) == digests[shown.earliest + 5]
    with pytest.raises(NotFoundError) as gone:
        log.timeline(version_as_of=shown.earliest - 1)
    assert gone.value.kind == "state-gone"
    assert gone.value.values["earliest"] == shown.earliest


def test_a_state_too_far_from_what_is_stored_is_refused(
    world: TruncationWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.opened()
    monkeypatch.setattr(past, "FOLD_MAX", 50)
    behind = log.state.checkpoints[0].entry
    assert state_of(log, behind + 50).entry == behind + 50
    with pytest.raises(NotFoundError) as behind_one:
        state_of(log, behind + 51)
    assert behind_one.value.kind == "state-too-far"
    for one in world.store.list(keys.SNAPSHOT_PREFIX):
        world.store.delete(one.key)
    assert log.timeline(version_as_of=49, entries=10).document.entry == 49
    with pytest.raises(NotFoundError) as far:
        log.timeline(version_as_of=150, entries=10)
    assert far.value.kind == "state-too-far"
    shown = log.timeline(entries=10).document
    assert (shown.entry, shown.entries) == (log.state.entry, ())
    assert "too many entries" in shown.notes[0]


def test_entries_that_lead_elsewhere_than_to_the_newest_are_refused(world: TruncationWorld) -> None:
    """The last entry's slot holds another one that fits: nothing after it says so but the state that the log
    has folded."""
    log = world.opened()
    newest = log.state.entry
    key = keys.entry_key(newest)
    entry = decode_entry(world.store.get(key) or b"", newest)
    world.store.put(key, encode_entry(structs.replace(entry, engine="another")))
    with pytest.raises(CorruptDataError) as broken:
        EntryWindow(log.committer)
    assert broken.value.kind == "broken-chain"


def test_old_entries_are_read_by_bundles(world: TruncationWorld) -> None:
    with Producer(world.opened()) as producer:
        producer.send("t", rows(1), partition=0)
    for one in world.store.list(keys.SNAPSHOT_PREFIX):
        world.store.delete(one.key)
    counting = CountingStore(world.store)
    log = world.opened(counting)
    with counting.measure() as measured:
        log.timeline()
    assert measured.counts.count(RequestKind.GET, KeyClass.BUNDLE) >= 2
    assert measured.counts.count(RequestKind.GET, KeyClass.ENTRY) <= 20  # of more than two hundred
