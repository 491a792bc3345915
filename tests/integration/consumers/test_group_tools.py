"""``log.groups`` on logs in memory: lag against what a reader gets, positions that are set, what is refused,
requests."""

from __future__ import annotations

import datetime
import pickle
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.clients.failing import QuickClock
from txnformat.core.groups.listing import Unread
from txnformat.core.groups.operations import OffsetCommit, PositionCommit
from txnformat.core.intents import Action, GroupOffsets, JoinAsMember, OpenProducer, ProducerRef, Write
from txnformat.core.records.state import PartitionState, SpilledRange
from txnformat.reading.visible import count_records
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnformat.types import OffsetRange, TopicPartition
from txnlog import (
    ConflictError,
    GroupListing,
    InvalidInputError,
    NotFoundError,
    OffsetOutOfRangeError,
    Outcome,
    Producer,
    TxnLog,
    TxnLogError,
)
from txnlog_testing.stores.counting import CountingStore

NUMBERS = pa.schema([("n", pa.int64())])
GROUP = "readers"
SESSION_MS = 45_000


class World:
    """A log with a topic ``t`` of two partitions, and those who use it."""

    def __init__(self) -> None:
        self.clock = QuickClock()
        self.store = CountingStore(MemoryStore(self.clock))
        self.log = TxnLog.create(self.store, clock=self.clock)
        self.log.create_topic("t", NUMBERS, partitions=2)
        self.groups = self.log.groups
        self.key = TopicPartition(self.log.state.topic("t").topic_id, 0)

    def commit(self, action: Action) -> None:
        self.log.committer.commit(self.log.committer.intend(action))

    def write(self, count: int, partition: int = 0) -> None:
        """Append records that are committed at once."""
        with Producer(self.log) as producer:
            producer.send("t", [{"n": n} for n in range(count)], partition=partition)

    def open(self, name: str, count: int) -> ProducerRef:
        """Leave a transaction open that has records in partition 0."""
        producer = Producer(self.log, name, buffer="inline")
        producer.init()
        producer.begin()
        producer.send("t", [{"n": n} for n in range(count)], partition=0)
        producer.flush()
        return self.producer(name)

    def abort(self, name: str, count: int) -> None:
        self.open(name, count)
        self.log.transactions.abort(name)

    def producer(self, name: str) -> ProducerRef:
        known = self.log.refresh().transactional_ids[name]
        return ProducerRef(known.producer_id, known.epoch, name)

    def offsets(self, offset: int, partition: int = 0, **more: Any) -> GroupOffsets:
        return GroupOffsets(GROUP, (OffsetCommit(self.key.topic_id, partition, offset, **more),))

    def at(self, offset: int) -> None:
        """Commit a position in partition 0."""
        self.commit(Write(offsets=(self.offsets(offset),)))

    def join(self) -> None:
        self.commit(JoinAsMember(GROUP, "a process", SESSION_MS))

    def position(self, partition: int = 0) -> int | str:
        return self.log.refresh().groups[GROUP].value(self.key._replace(partition=partition))

    def refused(self, **arguments: Any) -> TxnLogError:
        """Return why positions cannot be set; neither the call nor a dry run writes."""
        before = self.log.refresh().entry
        errors = []
        for dry_run in (True, False):
            with pytest.raises(TxnLogError) as caught:
                self.groups.reset_offsets(**{"group": GROUP, "topic": "t", "dry_run": dry_run, **arguments})
            errors.append(caught.value)
        assert self.log.refresh().entry == before
        assert str(pickle.loads(pickle.dumps(errors[0]))) == str(errors[0]) == str(errors[1])
        return errors[0]


@pytest.fixture
def world() -> World:
    return World()


# --- lag ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sealed() -> World:
    """Twenty segments, of which the list has the older ones; aborted records in each; open and plain records
    behind."""
    world = World()
    for number in range(20):
        world.write(1 + number % 3)
        if number % 4 != 2:
            world.abort("aborts", 2)
        world.write(2)
        world.log.maintain("seal")
    world.abort("aborts", 3)
    world.write(4)
    world.abort("aborts", 1)
    world.open("open", 5)
    world.write(2)
    partition = world.log.refresh().partition(world.key)
    assert 0 < partition.listed_end < partition.sealed_end < partition.last_stable_offset < partition.log_end
    return world


def readable(world: World) -> list[int]:
    """Return the offsets of the records that a committed reader gets from partition 0."""
    table = world.log.read("t", columns=["_offset"], partitions=[0]).read_all()
    found: list[int] = table.column("_offset").to_pylist()
    return found


def test_lag_is_the_number_of_records_that_a_committed_reader_still_gets(sealed: World) -> None:
    """At every offset: before and in sealed segments, at markers, in aborted records, behind the last stable
    offset."""
    offsets = readable(sealed)
    state = sealed.log.refresh()
    partition = state.partition(sealed.key)
    stable = partition.last_stable_offset
    unread = Unread(partition)
    starts = {int(row["start_offset"]) for row in partition.segments.array()}
    for offset in range(stable + 1):
        expected = sum(offset <= one for one in offsets)
        assert count_records(sealed.log.sidecars, state, sealed.key, OffsetRange(offset, stable)) == expected
        bound = unread.since(offset)
        assert bound.records >= expected
        assert bound.records == expected or not bound.exact
        if offset >= partition.sealed_end or offset in starts or offset == 0:
            assert bound == (expected, True)
        else:
            assert bound.records - expected < partition.log_end
    assert unread.since(stable + 1) == (0, True)
    inside = [unread.since(offset).exact for offset in range(partition.listed_end, partition.sealed_end)]
    assert not all(inside), "a bound is said to be one"


def test_a_bound_inside_a_sealed_segment_is_no_larger_than_its_offsets_and_records(world: World) -> None:
    world.write(5)
    world.abort("aborts", 5)
    world.log.maintain("seal")
    partition = world.log.refresh().partition(world.key)
    assert [Unread(partition).since(offset) for offset in (0, 1, 4, 7, 10, 11)] == [
        (5, True),
        (5, False),
        (5, False),
        (4, False),
        (1, False),
        (0, True),
    ]


def test_a_bound_in_a_spill_ends_at_the_last_stable_offset() -> None:
    partition = PartitionState(
        log_end=270, open={(7, 0): 60}, spills=(SpilledRange(0, 270, 0, 9, 9, 0, 0, 270, 1),)
    )
    assert [Unread(partition).since(offset) for offset in (0, 20, 60)] == [
        (60, False),
        (40, False),
        (0, True),
    ]


def test_a_description_reads_a_sidecar_only_where_a_position_cuts_a_segment(sealed: World) -> None:
    state = sealed.log.refresh()
    partition = state.partition(sealed.key)
    segments = partition.segments.array()
    inside = int(segments["start_offset"][1]) + 1
    offsets = readable(sealed)
    for offset, indexes in (
        (int(segments["start_offset"][1]), 0),
        (inside, 1),
        (partition.sealed_end + 1, 0),
    ):
        sealed.at(offset)
        reader = TxnLog.open(sealed.store, clock=sealed.clock)
        with sealed.store.measure() as measured:
            found = reader.groups.describe(GROUP).positions[0]
        assert (found.current_offset, found.lag) == (offset, sum(offset <= one for one in offsets))
        assert measured.counts.count(RequestKind.GET, KeyClass.SIDECAR) == indexes
        assert measured.counts.count(RequestKind.GET) == 1 + indexes, "one to follow the log"
        assert measured.counts.count() == 1 + indexes
    sealed.at(1)
    reader = TxnLog.open(sealed.store, clock=sealed.clock)
    with sealed.store.measure() as measured:
        assert reader.groups.describe(GROUP).positions[0].lag == sum(one >= 1 for one in offsets)
    assert measured.counts.count() == 3, "the log, the segment list, one index: not one for each of twenty"


def test_metrics_have_positions_and_bounds_without_a_request(sealed: World) -> None:
    sealed.at(1)
    producer = sealed.producer("open")
    pending = (*sealed.offsets(0, 1).offsets, *sealed.offsets(2).offsets)
    sealed.commit(Write(producer, offsets=(GroupOffsets(GROUP, pending),)))
    sealed.clock.sleep(31)
    log = TxnLog.open(sealed.store, clock=sealed.clock)
    with sealed.store.measure() as measured:
        metrics = log.metrics()
    assert measured.counts.count() == 1
    (group,) = metrics.groups
    (part,) = group.partitions
    exact = log.groups.describe(GROUP).lag
    assert (part.topic, part.partition, part.committed_offset, part.lag_exact) == ("t", 0, 1, False)
    assert exact <= part.lag_records <= len(readable(sealed)) + 2
    assert (group.state, group.pending_offsets) == ("Empty", 2)
    assert 30_000 <= group.idle_ms < 60_000
    samples = {
        (sample.name, *sorted(value for name, value in sample.labels.items() if name != "log")): sample.value
        for family in text_string_to_metric_families(metrics.to_prometheus())
        for sample in family.samples
        if "group" in sample.name
    }
    assert samples["txnlog_group_committed_offset", "0", GROUP, "t"] == 1
    assert samples["txnlog_group_lag_records", "0", GROUP, "t"] == part.lag_records
    assert samples["txnlog_group_pending_offsets", GROUP] == 2
    assert samples["txnlog_groups", "Empty"] == 1
    assert samples["txnlog_groups", "Stable"] == 0
    assert samples["txnlog_group_idle_seconds", GROUP] == group.idle_ms / 1000
    plain = metrics.to_dict()["groups"][0]
    assert plain["partitions"][0]["lag_records"] == part.lag_records


def test_a_lag_in_metrics_is_exact_in_what_is_not_sealed(world: World) -> None:
    world.write(3)
    world.abort("aborts", 4)
    world.write(2)
    world.at(1)
    part = world.log.metrics().groups[0].partitions[0]
    assert (part.lag_records, part.lag_exact) == (4, True) == (world.groups.describe(GROUP).lag, True)


# --- lists, and what a log says of itself -------------------------------------------------------------------


def test_a_list_takes_one_request_and_the_log_describes_its_groups(world: World) -> None:
    world.join()
    with world.store.measure() as measured:
        (one,) = world.groups.list()
    assert measured.counts.count() == 1
    assert isinstance(one, GroupListing)
    assert (one.group, one.state, one.member) == (GROUP, "Stable", "a process")
    assert world.log.describe().groups == (one,)
    world.clock.sleep(SESSION_MS / 1000 + 1)
    assert world.groups.list()[0].state == world.log.describe().groups[0].state == "Dead"
    assert world.log.describe().to_dict()["groups"][0]["group"] == GROUP
    assert [found.group for found in world.groups.describe_all()] == [GROUP]


def test_groups_that_are_not_there_are_named(world: World) -> None:
    world.at(0)
    for call in (world.groups.describe, world.groups.delete):
        with pytest.raises(NotFoundError) as unknown:
            call("raeders")
        assert (unknown.value.kind, unknown.value.values["groups"]) == ("unknown-group", [GROUP])
        with pytest.raises(InvalidInputError) as invalid:
            call("no/name")
        assert invalid.value.kind == "invalid-group-name"


# --- setting positions --------------------------------------------------------------------------------------


def test_positions_are_set_in_one_entry_and_a_dry_run_writes_nothing(world: World) -> None:
    world.write(5)
    world.write(2, partition=1)
    world.at(3)
    before = world.log.refresh().entry
    with world.store.measure() as measured:
        planned = world.groups.reset_offsets(GROUP, "t", to="earliest", dry_run=True)
    assert measured.counts.count() == 1
    assert (planned.entry, world.log.refresh().entry) == (None, before)
    assert [(one.partition, one.previous_offset, one.offset) for one in planned.offsets] == [
        (0, 3, 0),
        (1, None, 0),
    ]
    done = world.groups.reset_offsets(GROUP, "t", to="earliest")
    assert done.offsets == planned.offsets
    assert done.entry == world.log.refresh().entry == before + 1
    assert (world.position(0), world.position(1)) == (0, 0)
    for to, expected in (
        ("latest", (5, 2)),
        ("shift:-1", (4, 1)),
        ("current", (4, 1)),
        ({0: 2}, (2, 1)),
        (1, (1, 1)),
    ):
        world.groups.reset_offsets(GROUP, "t", to=to)
        assert (world.position(0), world.position(1)) == expected
    world.groups.reset_offsets(GROUP, to={("t", 1): 2})
    world.groups.reset_offsets(GROUP, "t", [0], to=4)
    assert (world.position(0), world.position(1)) == (4, 2)
    world.groups.reset_offsets(GROUP, to="earliest")
    assert (world.position(0), world.position(1)) == (0, 0)


def test_positions_are_set_by_time(world: World) -> None:
    """To the first record that is not older; to the last stable offset where there is none."""
    world.write(2)
    world.clock.sleep(3_600)
    began_ms = world.clock.now().wall_ms
    world.write(3)
    world.clock.sleep(60)
    world.at(0)
    moment = datetime.datetime.fromtimestamp(began_ms / 1000, datetime.UTC)
    for to, expected in (
        (moment, 2),
        (moment.replace(tzinfo=None), 2),
        (moment - datetime.timedelta(days=1), 0),
        (moment + datetime.timedelta(days=1), 5),
        (datetime.timedelta(minutes=30), 2),
        (datetime.timedelta(0), 5),
        (datetime.timedelta.max, 0),
    ):
        assert world.groups.reset_offsets(GROUP, to=to).offsets[0].offset == expected


def test_positions_are_set_by_the_topics_own_time(world: World) -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    world.log.create_topic("timed", schema, timestamp_column="at")
    began = datetime.datetime(1960, 1, 1, tzinfo=datetime.UTC)
    with Producer(world.log) as producer:
        producer.send("timed", [{"at": began + datetime.timedelta(days=day)} for day in range(5)])
    for to, expected in (
        (began + datetime.timedelta(days=2), 2),
        (began + datetime.timedelta(days=2, microseconds=1), 3),
        (began - datetime.timedelta(days=9), 0),
        (datetime.timedelta(0), 5),
        (datetime.timedelta.max, 0),
    ):
        assert world.groups.reset_offsets(GROUP, "timed", to=to, create=True).offsets[0].offset == expected


def test_an_offset_is_set_over_what_is_pending_in_an_open_transaction(world: World) -> None:
    """Which had compared, and can only abort from then on."""
    world.write(5)
    world.at(1)
    world.commit(OpenProducer("etl"))
    etl = world.producer("etl")
    world.commit(Write(etl, offsets=(world.offsets(2, expected=1),)))
    world.groups.reset_offsets(GROUP, "t", [0], to=4)
    assert world.position() == 4
    with pytest.raises(ConflictError) as caught:
        world.commit(Write(etl, end=Outcome.COMMIT))
    assert caught.value.kind == "offsets-hold-broken"
    world.commit(Write(etl, end=Outcome.ABORT))
    assert world.position() == 4


def test_a_group_is_made_only_on_request(world: World) -> None:
    world.write(2)
    error = world.refused(to="latest")
    assert isinstance(error, NotFoundError)
    assert error.kind == "unknown-group"
    world.groups.reset_offsets(GROUP, "t", to="latest", create=True)
    assert (world.position(0), world.position(1)) == (2, 0)


def test_a_live_member_is_left_alone_unless_it_is_forced_out(world: World) -> None:
    world.write(2)
    world.join()
    world.commit(Write(offsets=(GroupOffsets(GROUP, world.offsets(1).offsets, generation=1),)))
    error = world.refused(to="earliest")
    assert isinstance(error, ConflictError)
    assert (error.kind, error.values["member"]) == ("group-active", "a process")
    for dry_run in (True, False):
        with pytest.raises(ConflictError) as caught:
            world.groups.delete(GROUP, dry_run=dry_run)
        assert caught.value.kind == "group-active"
    world.groups.reset_offsets(GROUP, "t", to="earliest", force=True)
    assert world.position() == 0
    with pytest.raises(ConflictError) as fenced:
        world.commit(Write(offsets=(GroupOffsets(GROUP, world.offsets(2).offsets, generation=1),)))
    assert fenced.value.kind == "member-fenced"
    world.join()
    world.clock.sleep(SESSION_MS / 1000 + 1)
    world.groups.reset_offsets(GROUP, "t", [0], to=1)
    assert world.position() == 1


@pytest.mark.parametrize("to", [3, {0: 3}, {1: 1}, "shift:+3", "shift:-1", 10**30])
def test_a_position_that_nobody_can_read_at_is_refused_with_the_range(world: World, to: Any) -> None:
    world.write(2)
    world.open("open", 5)
    world.commit(Write(offsets=(world.offsets(0),)))
    world.commit(Write(offsets=(world.offsets(0, 1),)))
    error = world.refused(to=to)
    assert isinstance(error, OffsetOutOfRangeError)
    partition = error.values["partition"]
    assert (error.values["earliest"], error.values["latest"]) == (0, (2, 0)[partition])


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"to": -1}, "invalid-offset"),
        ({"to": "beginning"}, "invalid-reset-target"),
        ({"to": "earliest", "topic": "nix"}, "unknown-topic"),
        ({"to": "earliest", "partitions": [2]}, "unknown-partition"),
        ({"to": "earliest", "group": "no/name"}, "invalid-group-name"),
        ({"to": "shift:1"}, "no-position"),
    ],
)
def test_other_bad_input_is_refused_and_writes_nothing(
    world: World, arguments: dict[str, Any], kind: str
) -> None:
    world.at(0)
    assert world.refused(**arguments).kind == kind


def test_what_is_pending_or_held_stands_in_the_way_only_of_who_relies_on_it(world: World) -> None:
    world.write(5)
    world.at(1)
    world.commit(OpenProducer("etl"))
    etl = world.producer("etl")
    world.commit(Write(etl, offsets=(world.offsets(2, expected=1),)))
    assert world.refused(to="shift:1", partitions=[0]).kind == "offsets-held"
    with pytest.raises(ConflictError) as pending:
        world.groups.delete(GROUP, force=True, dry_run=True)
    assert (pending.value.kind, pending.value.values["transactional_ids"]) == ("offsets-pending", ["etl"])
    with pytest.raises(ConflictError) as refused:
        world.groups.delete(GROUP, force=True)
    assert refused.value.kind == "offsets-pending"
    world.commit(Write(etl, prepare=True))
    error = world.refused(to=3, partitions=[0])
    assert (error.kind, error.values["transactional_id"]) == ("offsets-held", "etl")
    assert world.groups.describe(GROUP).positions[0].pending[0].prepared
    world.log.transactions.force_terminate("etl")
    world.groups.reset_offsets(GROUP, "t", [0], to=3)
    assert world.position() == 3


def test_a_shift_never_moves_what_somebody_else_has_committed_meanwhile(world: World) -> None:
    """A second process commits between the look and the entry."""
    world.write(5)
    world.at(1)
    other = TxnLog.open(world.store, clock=world.clock)
    real = world.log.committer.refresh

    def refresh_and_then_others() -> Any:
        state = real()
        world.log.committer.refresh = real  # type: ignore[method-assign]
        other.refresh()
        other.committer.commit(other.committer.intend(Write(offsets=(world.offsets(4),))))
        return state

    world.log.committer.refresh = refresh_and_then_others  # type: ignore[method-assign]
    with pytest.raises(ConflictError) as caught:
        world.groups.reset_offsets(GROUP, to="shift:1")
    assert (caught.value.kind, caught.value.values["expected"], caught.value.values["got"]) == (
        "offsets-changed",
        1,
        4,
    )
    assert world.position() == 4


# --- deleting -----------------------------------------------------------------------------------------------


def test_a_group_goes_with_its_positions(world: World) -> None:
    world.commit(
        Write(offsets=(GroupOffsets(GROUP, world.offsets(0).offsets, (PositionCommit("x/0", "1"),)),))
    )
    assert world.groups.delete(GROUP, dry_run=True).entry is None
    assert GROUP in world.log.refresh().groups
    done = world.groups.delete(GROUP)
    assert (done.group, done.positions, done.entry) == (GROUP, 2, world.log.refresh().entry)
    assert world.log.state.groups == {}
    world.join()
    assert world.groups.delete(GROUP, force=True).positions == 0
