"""Spills of real logs: the state stays bounded behind a prepared transaction, and crashes, races, vacuums and
truncations lose nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from click.testing import CliRunner

from tests.integration.clients.failing import NUMBERS, rows
from tests.integration.golden_roots import ROOTS, SPILLED
from tests.integration.upkeep.vacuum_world import GRACE, Interposed
from tests.model.groups import ManualClock
from tests.rounds import rounds, telling
from txnformat import keys
from txnformat.clock import SystemClock
from txnformat.core.intents import OpenProducer, ProducerRef, Write
from txnformat.core.invariants import check_whole
from txnformat.core.sealing.spills import Spilled
from txnformat.core.snapshot.codec import encode_snapshot
from txnformat.core.snapshot.spilled import encode_spill
from txnformat.errors import CorruptDataError
from txnformat.persistent import replace
from txnformat.protocol.commit import CommitSettings
from txnformat.protocol.growth import growing
from txnformat.store.base import ObjectStore
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnformat.types import Outcome, TopicPartition
from txnlog import Consumer, Producer, TxnLog
from txnlog.cli.app import application
from txnlog_testing.stores.counting import CountingStore, RequestClass
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore, SimulatedCrash
from txnlog_testing.strategies import make_append

TABLE_GET = RequestClass(RequestKind.GET, KeyClass.TABLE)
WEEK_MS = 7 * 24 * 3_600_000


def test_state_and_snapshots_stay_bounded_behind_a_prepared_transaction() -> None:
    """50,000 batches in 2,000 transactions, half of them aborted, behind one that nobody decides."""
    bound = 1_000
    log = TxnLog.create(MemoryStore(), settings=CommitSettings(seal_extents=bound))
    created = log.create_topic("t", NUMBERS).created
    key = TopicPartition(created.topic_id, 0)
    commit = log.committer.commit
    names = {name: ProducerRef(number, 0, name) for number, name in enumerate(("held", "quick"))}
    for name in names:
        commit(log.committer.intend(OpenProducer(name)))
    one = make_append(created, {0: (0, 1)}, content="held")
    commit(log.committer.intend(Write(names["held"], (one,))))
    commit(log.committer.intend(Write(names["held"], prepare=True)))
    sizes: list[tuple[int, ...]] = []
    transactions = 2_000
    for number in range(transactions):
        ref = ProducerRef(1, number, "quick")
        append = make_append(created, {0: (0, 25)}, content=f"append {number}", records_per_batch=1)
        commit(log.committer.intend(Write(ref, (append,))))
        commit(log.committer.intend(Write(ref, end=Outcome.ABORT if number % 2 else Outcome.COMMIT)))
        if number % 10 == 9:
            log.close()  # waits for a spill or a snapshot that is under way
        if number > transactions // 3 and number % 40 == 39:  # the window of intent ids is full
            found = log.state.partition(key)
            sizes.append(
                (
                    len(found.extents),
                    len(found.markers),
                    len(found.aborted),
                    len(found.spills),
                    len(log.state.files),
                    len(log.state.tables),
                    len(encode_snapshot(log.state)),
                )
            )
    log.close()
    state = log.refresh()
    partition = state.partition(key)
    assert (partition.last_stable_offset, partition.log_end) == (0, 1 + 26 * transactions)
    assert sum(spill.extents for spill in partition.spills) > 45_000
    assert check_whole(state) == []
    extents, markers, aborted, spills, files, tables, snapshots = (
        list(one) for one in zip(*sizes, strict=True)
    )
    assert max(extents) <= 2 * bound
    assert max(markers) <= 2 * bound // 25
    assert max(aborted) <= 2 * bound // 25
    assert max(files) <= 2 * bound // 25 + 1
    assert max(spills) <= 8
    assert max(tables) <= 8
    half = len(sizes) // 2
    assert max(snapshots[half:]) <= 1.1 * max(snapshots[:half]), snapshots
    assert growing(state, bound) == ()
    plan = log.plan("t", isolation="read_uncommitted")
    assert sum(int(part.rows["take"].sum()) for part in plan.partitions) == 1 + 25 * transactions
    plan = log.plan("t", isolation="snapshot")
    assert sum(int(part.rows["take"].sum()) for part in plan.partitions) == 25 * transactions // 2
    commit(log.committer.intend(Write(names["held"], end=Outcome.COMMIT)))
    log.maintain("seal")
    sealed = log.state.partition(key)
    assert (sealed.spills, sealed.sealed_end, log.state.extents) == ((), 2 + 26 * transactions, 0)
    assert (len(log.state.files), len(log.state.tables)) == (0, 0)
    plan = log.plan("t")
    assert sum(int(part.rows["take"].sum()) for part in plan.partitions) == 1 + 25 * transactions // 2


class Held:
    """A log on which a transaction was prepared at once; behind it is what others write. Time passes only
    where it is asked for."""

    def __init__(self, store: ObjectStore | None = None) -> None:
        self.clock = ManualClock() if store is None else SystemClock()
        self.store = store or MemoryStore(self.clock)
        log = self.log = TxnLog.create(self.store, clock=self.clock)
        log.create_topic("t", NUMBERS)
        self.committed: list[int] = [-3, -2]
        """Without those of the prepared transaction."""
        self.everything: list[int] = [-3, -2, -1]
        self.plain(-3, -2)
        held = Producer(log, "held", buffer="inline")
        held.init()
        held.begin()
        held.send("t", rows(-1))
        held.flush()
        self.token = str(held.prepare())

    def plain(self, *numbers: int) -> None:
        with Producer(self.log) as producer:
            producer.send("t", rows(*numbers))

    def grow(self, first: int, log: TxnLog | None = None) -> None:
        """Append a committed, an aborted and a plain record."""
        with Producer(log or self.log, "quick", buffer="inline") as producer:
            for number, outcome in ((first, "commit"), (first + 1, "abort")):
                producer.begin()
                producer.send("t", rows(number))
                producer.flush()
                getattr(producer, outcome)()
        with Producer(log or self.log) as producer:
            producer.send("t", rows(first + 2))
        self.everything += [first, first + 1, first + 2]
        self.committed += [first, first + 2]

    def copied(self) -> Held:
        """Return another world whose objects are the same."""
        other = object.__new__(Held)
        other.clock, other.token = self.clock, self.token
        other.committed, other.everything = [*self.committed], [*self.everything]
        other.store = MemoryStore(self.clock)
        for info in self.store.list(""):
            other.store.create(info.key, self.store.get(info.key) or b"")
        other.log = other.opened()
        return other

    def opened(self, store: ObjectStore | None = None) -> TxnLog:
        """Return the log as another process opens it."""
        return TxnLog.open(store or self.store, clock=self.clock)

    def check(self) -> None:
        """Every reader finds what was written, and nothing is wrong with any object."""
        log = self.opened()
        state = log.state
        held = [-1] if not state.undecided else []
        shown = sorted(self.committed + held)
        assert numbers(log, "read_uncommitted") == sorted(self.everything)
        assert numbers(log, "snapshot") == shown
        assert numbers(log, "read_committed") == (shown if held else [-3, -2])
        assert check_whole(state) == []
        report = log.verify(deep=True)
        assert report.ok, report.problems

    def end(self) -> None:
        """Commit what was prepared, and seal everything."""
        log = self.opened()
        if log.state.undecided:
            log.commit_prepared(self.token)
        log.maintain("seal")
        assert all(not one.spills and not len(one.extents) for one in log.state.partitions.values())
        assert len(log.state.tables) == 0
        self.check()


def numbers(log: TxnLog, isolation: str) -> list[int]:
    found: list[int] = sorted(log.read("t", isolation=isolation).read_all()["n"].to_pylist())
    return found


@pytest.fixture(autouse=True)
def _eager(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let spills take what little there is, and nothing be written but by the steps."""
    if "bounded" in request.node.name:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("txnformat.protocol.sealing.ROWS_SHARE", 1_000_000)
        patch.setattr("txnformat.protocol.snapshots.TAIL_ENTRIES_MIN", 1_000_000)
        patch.setattr("txnformat.verify.requests.THREADS", 1)
        yield


def spills_of(log: TxnLog) -> list[str]:
    """Return the keys of the objects of the spills."""
    state = log.refresh()
    return sorted(
        {state.tables[one.table].key for known in state.partitions.values() for one in known.spills}
    )


def grown() -> Held:
    """Return a world with a spill, and more behind it."""
    world = Held()
    world.grow(0)
    world.log.maintain("seal")
    assert len(spills_of(world.log)) == 1
    world.grow(10)
    world.grow(20)
    return world


def ended() -> Held:
    """Return a world whose spills can be sealed."""
    world = grown()
    world.log.maintain("seal")
    world.log.commit_prepared(world.token)
    return world


@pytest.mark.parametrize("made", [Held, grown, ended])
def test_maintenance_that_is_killed_at_any_request_is_completed_by_the_next(
    made: Callable[[], Held],
) -> None:
    world = made()
    if made is Held:
        world.grow(0)
    counting = Interposed(world.copied().store)
    world.opened(counting).maintain("seal")
    assert RequestKind.CREATE in {operation for operation, _ in counting.seen}
    for number in rounds(telling(counting.kinds), [*range(counting.count)]):
        for kind in rounds([FaultKind.CRASH_AFTER], [FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER]):
            other = world.copied()
            seen = iter(range(10**6))
            store = FaultyStore(
                other.store,
                lambda *_, at=number, seen=seen, kind=kind: Fault(kind) if next(seen) == at else None,
            )
            with pytest.raises(SimulatedCrash):
                other.opened(store).maintain("seal")
            other.check()
            other.end()


def seal(world: Held) -> None:
    world.opened().maintain("seal")


def end(world: Held) -> None:
    log = world.opened()
    log.commit_prepared(world.token)
    log.maintain("seal")


def grow(world: Held) -> None:
    log = world.opened()
    world.grow(100, log)
    log.maintain("seal")


@pytest.mark.parametrize("what", [seal, end, grow])
def test_what_another_client_does_in_the_middle_loses_nothing(what: Callable[[Held], None]) -> None:
    world = grown()
    counting = Interposed(world.copied().store)
    world.opened(counting).maintain("seal")
    for number in rounds(telling(counting.kinds), [*range(counting.count)]):
        other = world.copied()
        other.opened(Interposed(other.store, number, partial(what, other))).maintain("seal")
        other.check()
        if what is not end:
            assert len(spills_of(other.opened())) == 1, "one of two has spilled, and the other has not"
        other.end()


def test_of_a_vacuum_beside_only_what_was_taken_in_is_garbage() -> None:
    world = grown()
    (first,) = spills_of(world.log)
    world.log.maintain("seal")
    (second,) = spills_of(world.log)
    assert first != second
    files = {info.key for info in world.store.list("") if keys.parse_data_key(info.key)}
    for _ in range(3):
        world.clock.sleep(GRACE.total_seconds() + 1)
        world.plain(50)
        world.committed.append(50)
        world.everything.append(50)
        world.opened().vacuum(GRACE)
        world.check()
    left = {info.key for info in world.store.list("")}
    assert second in left
    assert first not in left
    assert files <= left, "only the spill names them"
    world.end()
    for _ in range(3):
        world.clock.sleep(GRACE.total_seconds() + 1)
        world.opened().vacuum(GRACE)
    assert second not in {info.key for info in world.store.list("")}
    world.check()


def test_a_read_below_the_last_stable_offset_opens_no_spill_and_one_above_opens_it_once() -> None:
    world = grown()
    world.log.maintain("seal")
    store = CountingStore(world.store)
    log = world.opened(store)
    assert numbers(log, "read_committed") == [-3, -2]
    assert store.counts.count(*TABLE_GET) == 0
    for _ in range(2):
        assert numbers(log, "read_uncommitted") == sorted(world.everything)
        assert numbers(log, "snapshot") == sorted(world.committed)
        assert store.counts.count(*TABLE_GET) == 1


def test_a_spill_that_is_damaged_or_gone_is_told_and_the_rest_is_readable() -> None:
    for damage in (b"", b"x", None):
        world = grown()
        world.log.maintain("seal")
        (key,) = spills_of(world.log)
        data = world.store.get(key)
        assert data is not None
        world.store.delete(key)
        if damage is not None:
            world.store.create(key, damage + data[len(damage) : -1] + (b"" if not damage else data[-1:]))
        log = world.opened()
        assert numbers(log, "read_committed") == [-3, -2]
        world.plain(70)
        with pytest.raises(CorruptDataError) as caught:
            numbers(log, "read_uncommitted")
        assert (caught.value.kind, caught.value.values["object"]) == ("corrupt-sidecar", key)
        problems = log.verify().problems
        assert key in {problem.object for problem in problems}


def test_verify_compares_a_spill_with_the_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object that decodes and has all totals, but another time."""

    def wrong(found: Spilled) -> bytes:
        (place,) = found.partitions
        part = found.partitions[place]
        extents = part.extents.copy()
        extents["max_timestamp_ms"][0] += 1
        return encode_spill(found._replace(partitions={place: part._replace(extents=extents)}))

    world = grown()
    monkeypatch.setattr("txnformat.protocol.spilling.encode_spill", wrong)
    world.log.maintain("seal")
    (key,) = spills_of(world.log)
    problems = world.log.verify().problems
    assert {problem.object for problem in problems} == {key}
    assert "max_timestamp_ms" in problems[0].what


def test_a_log_that_begins_with_a_snapshot_of_spills_reads_and_verifies() -> None:
    world = grown()
    for first in range(100, 600, 10):
        world.grow(first)
        if first in (200, 400, 590):
            world.log.maintain("seal")
            world.log.committer.write_snapshot()
    world.clock.sleep(8 * 24 * 3_600)
    world.grow(700)
    for _ in range(2):
        world.clock.sleep(3_601)
        world.opened().truncate()
    assert world.store.get(keys.entry_key(0)) is None
    world.check()
    world.log = world.opened()
    world.log.maintain("seal")
    world.check()
    world.end()
    # The seal has taken the spills, and a vacuum deletes them: the entries that are left begin before that
    # seal.
    spills = {info.key for info in world.store.list("_txnlog/tables/")}
    world.log.maintain("seal")
    for _ in range(3):
        world.clock.sleep(GRACE.total_seconds() + 1)
        world.opened().vacuum(GRACE)
    assert not spills & {info.key for info in world.store.list("")}
    world.check()


@pytest.mark.parametrize("by", ["spill", "seal"])
def test_verify_of_a_log_that_begins_with_a_snapshot_whose_spill_was_taken_in_and_deleted(by: str) -> None:
    world = Held()
    for first in range(0, 300, 10):
        world.grow(first)
    world.log.maintain("seal")
    (taken_in,) = spills_of(world.log)
    for first in (300, 310):
        world.log.committer.write_snapshot()
        world.grow(first)
    world.clock.sleep(8 * 24 * 3_600)
    world.grow(320)
    for _ in range(2):
        assert world.opened().maintain("truncate").truncation is not None
        world.clock.sleep(3_601)
    assert world.store.get(keys.entry_key(0)) is None
    if by == "seal":
        world.opened().commit_prepared(world.token)
    for first in range(400, 500, 10):  # so many that the next spill takes in all
        for more in range(4):
            world.grow(first + 1_000 * more)
    world.opened().maintain("seal")
    for first in range(9_000, 9_030, 10):
        world.clock.sleep(GRACE.total_seconds() + 1)
        world.grow(first)
        world.opened().vacuum(GRACE)
    assert world.store.get(taken_in) is None
    world.check()
    if by == "spill":
        (key,) = spills_of(world.log)
        world.store.delete(key)
        problems = world.log.verify().problems
        assert key in {problem.object for problem in problems}
        assert taken_in not in {problem.object for problem in problems}


def test_a_hanging_transaction_is_found_by_its_last_append_though_that_is_spilled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = grown()
    world.log.maintain("seal")
    world.clock.sleep(2 * WEEK_MS / 1_000)
    world.plain(70)
    log = world.opened()
    lost = replace(log.state, transactional_ids={}, undecided=frozenset())
    monkeypatch.setattr(log.committer, "refresh_with_time", lambda: (lost, lost.timestamp_ms + 1))
    (found,) = log.transactions.find_hanging(max_transaction_timeout_ms=WEEK_MS).hanging
    assert (found.partition, found.start_offset) == (0, 2)
    assert found.duration_ms > WEEK_MS


def test_consumers_and_commit_order_go_on_over_spills_and_their_seals() -> None:
    world = Held()
    consumer = Consumer(world.opened(), "g", isolation="read_uncommitted", columns=["n"])
    behind = Consumer(world.opened(), "h", columns=["n"])
    for one in (consumer, behind):
        one.subscribe(["t"])
    seen: list[int] = []
    shown: list[int] = []

    def poll(of: Consumer, to: list[int]) -> None:
        while rows := of.poll_dicts(0):
            to += [row["n"] for row in rows]

    for first in (0, 10, 20):
        world.grow(first)
        world.log.maintain("seal")
        poll(consumer, seen)
        poll(behind, shown)
    world.end()
    poll(consumer, seen)
    poll(behind, shown)
    assert sorted(seen) == sorted(world.everything)
    assert sorted(shown) == sorted([*world.committed, -1])
    consumer.close()
    behind.close()


def test_a_root_that_an_earlier_version_has_spilled_reads_seals_and_verifies(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = shutil.copytree(ROOTS / "spilled", tmp_path_factory.mktemp("golden") / "spilled")
    log = TxnLog.open(path)
    assert len(spills_of(log)) == 1
    assert {level: numbers(log, level) for level in SPILLED} == SPILLED
    assert log.verify(deep=True).ok
    log.transactions.force_terminate("held")
    log.maintain("seal")
    assert spills_of(log) == []
    assert numbers(log, "read_committed") == SPILLED["snapshot"]
    assert log.verify(deep=True).ok


def test_the_command_line_shows_what_was_spilled(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("spilled")
    world = Held(LocalStore(root / "log"))
    world.grow(0)
    world.log.maintain("seal")
    (key,) = spills_of(world.log)
    run = partial(CliRunner().invoke, application)
    place = ["--root", str(root / "log"), "--json"]
    shown = run(["dump", "batches", "t", "--partition", "0", *place])
    lines = [json.loads(line) for line in shown.output.splitlines()]
    assert [line["baseOffset"] for line in lines] == sorted(line["baseOffset"] for line in lines)
    partition = world.log.state.partition(TopicPartition(world.log.state.topic_ids["t"], 0))
    assert lines[-1]["lastOffset" if "lastOffset" in lines[-1] else "baseOffset"] == partition.log_end - 1
    assert len(lines) == 1 + 6, "the sealed batch, the prepared one, two transactions and a plain one"
    found = run(["dump", "object", key, *place])
    assert found.exit_code == 0, found.output
    assert {json.loads(line)["kind"] for line in found.output.splitlines()} >= {
        "partitions",
        "extents",
        "markers",
    }
    entries = run(["dump", "entries", *place])
    assert '"spill"' in entries.output
    for command in (["history"], ["describe"], ["verify"], ["metrics"]):
        assert run([*command, *place]).exit_code == 0, command
