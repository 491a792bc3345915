"""What the history says of consumer groups, and of transactions without offsets that an opening aborted."""

from __future__ import annotations

from operator import attrgetter

import pyarrow as pa
import pytest

from txnformat import keys
from txnformat.admin import history
from txnformat.admin.history import GroupChange, GroupChangeKind
from txnformat.core.groups.operations import OffsetCommit, PositionCommit
from txnformat.core.intents import (
    Acks,
    Action,
    AllocateIds,
    GroupOffsets,
    JoinAsMember,
    OpenProducer,
    ProducerRef,
    RemoveGroup,
    ResetOffsets,
    Write,
)
from txnformat.core.subscriptions.operations import AckedPartition, AckMode, CreateSubscription
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import CorruptDataError, Outcome, Producer, TxnLog
from txnlog_testing.entries import replaced_in_entry
from txnlog_testing.stores.counting import CountingStore

NUMBERS = pa.schema([("n", pa.int64())])
IDLE_MS = 2**50
"""A store's time at which no member lives any more."""


@pytest.fixture
def log() -> TxnLog:
    """Five records in partition 0 of a topic of two."""
    log = TxnLog.create(CountingStore(MemoryStore()))
    log.create_topic("t", NUMBERS, partitions=2)
    with Producer(log) as producer:
        producer.send("t", pa.table({"n": range(5)}, schema=NUMBERS), partition=0)
    return log


def commit(log: TxnLog, action: Action) -> int:
    return log.committer.commit(log.committer.intend(action)).entry


def positions(log: TxnLog, offset: int, **more: object) -> GroupOffsets:
    """Return two offsets and a foreign position of the group ``readers``."""
    topic_id = log.state.topic("t").topic_id
    offsets = (OffsetCommit(topic_id, 0, offset), OffsetCommit(topic_id, 1, 0))
    return GroupOffsets("readers", offsets, (PositionCommit("elsewhere/0", "7"),), **more)  # type: ignore[arg-type]


def opened(log: TxnLog, name: str = "etl") -> ProducerRef:
    """Open a producer, and return who it is."""
    commit(log, OpenProducer(name))
    known = log.state.transactional_ids[name]
    return ProducerRef(known.producer_id, known.epoch, name)


def staged(log: TxnLog, name: str = "etl") -> None:
    """Leave a transaction open whose only record is staged."""
    producer = Producer(log, name, buffer="deferred")
    producer.init()
    producer.begin()
    producer.send("t", [{"n": 9}], partition=0)
    producer.flush()


def fillers(log: TxnLog, count: int) -> None:
    for _ in range(count):
        commit(log, AllocateIds("p", 1))


def aborted(log: TxnLog, entry: int, limit: int | None = 1) -> list[tuple[str, int]]:
    """Return what the opening in an entry aborted, as the history says it."""
    found = next(iter(log.history(limit, entry)))
    assert found.entry == entry
    assert all((end.outcome, end.cause) == (Outcome.ABORT, "init") for end in found.transactions)
    return [(end.transactional_id, end.epoch) for end in found.transactions]


def test_history_says_what_became_of_groups(log: TxnLog) -> None:
    first = commit(log, JoinAsMember("readers", "a process", 45_000))
    commit(log, Write(offsets=(positions(log, 3, generation=1),)))
    etl = opened(log)
    commit(log, Write(etl, offsets=(positions(log, 4),), end=Outcome.COMMIT))
    commit(log, ResetOffsets(positions(log, 0), IDLE_MS))
    commit(log, RemoveGroup("readers", IDLE_MS))
    found = [entry.groups for entry in log.history() if entry.entry >= first][::-1]
    joined = GroupChange("readers", GroupChangeKind.JOINED, 1, "a process")
    done = GroupChangeKind.COMMITTED
    assert found == [
        (joined,),
        (GroupChange("readers", done, 1, positions=3),),
        (),
        (GroupChange("readers", done, positions=3, transactional_id="etl"),),
        (GroupChange("readers", GroupChangeKind.LEFT, 2), GroupChange("readers", done, positions=3)),
        (GroupChange("readers", GroupChangeKind.DELETED),),
    ]


def test_the_last_thing_that_an_opening_aborted_is_known_without_reading_on(log: TxnLog) -> None:
    staged(log)
    fillers(log, 5)
    opened(log)
    entry = log.state.entry
    store = log.store
    assert isinstance(store, CountingStore)
    with store.measure() as measured:
        assert aborted(log, entry) == [("etl", 0)]
    assert measured.counts.count(RequestKind.GET, KeyClass.ENTRY) == 1 + 1  # the refresh
    opened(log)
    assert aborted(log, log.state.entry) == [], "nothing was open"


def test_what_an_older_opening_aborted_is_told_by_what_its_id_did_before(log: TxnLog) -> None:
    """Staged records; positions of a group alone; nothing after an end or after an opening."""
    staged(log)
    fillers(log, 40)
    etl = opened(log)
    stages = log.state.entry
    commit(log, Write(etl, offsets=(positions(log, 4),)))
    etl = opened(log)
    moved = log.state.entry
    opened(log)
    idle = log.state.entry
    staged(log)  # opens once more
    opened(log)
    both = log.state.entry
    with Producer(log, "etl", buffer="deferred") as producer:
        producer.begin()
        producer.send("t", [{"n": 1}], partition=0)
        producer.flush()
        producer.commit()
    opened(log)
    ended = log.state.entry
    opened(log)
    staged(log)
    opened(log)
    for limit in (1, None):
        assert aborted(log, stages, limit) == [("etl", 0)]
        assert aborted(log, moved, limit) == [("etl", 1)]
        assert aborted(log, idle, limit) == []
        assert aborted(log, both, limit) == [("etl", 4)]
        assert aborted(log, ended, limit) == []
    assert [entry.entry for entry in log.history()] == list(range(log.state.entry, -1, -1))
    assert [entry.entry for entry in log.history(3, moved)] == [moved, moved - 1, moved - 2]


def test_a_transaction_of_acknowledgements_alone_that_an_opening_aborted_is_told_too(log: TxnLog) -> None:
    topic_id = log.state.topic("t").topic_id
    created = commit(log, CreateSubscription(topic_id, "billing"))
    etl = opened(log)
    acks = Acks(topic_id, "billing", AckMode.CUMULATIVE, (AckedPartition(0, position=3),))
    acknowledged = commit(log, Write(etl, acks=(acks,)))
    opened(log)
    entry = log.state.entry
    opened(log)
    for limit in (1, None):
        assert aborted(log, entry, limit) == [("etl", 0)]
    names = {found.entry: found.operations for found in log.history()}
    assert (names[created], names[acknowledged]) == (("create_subscription",), ("ack",))
    assert log.verify().problems == ()


def test_looking_back_is_bounded_and_never_in_the_way(log: TxnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    staged(log)
    fillers(log, 60)
    opened(log)
    entry = log.state.entry
    staged(log)
    opened(log)
    assert aborted(log, entry) == [("etl", 0)]
    monkeypatch.setattr(history, "LOOK_BACK", 50)
    for limit in (1, None):
        assert aborted(log, entry, limit) == []
    monkeypatch.undo()
    store = log.store
    data = store.get(keys.entry_key(entry - 10))
    assert data is not None
    store.put(keys.entry_key(entry - 10), replaced_in_entry(data, b'"owner":"p"', b'"owner":"q"'))
    assert [found.entry for found in log.history(2, entry)] == [entry, entry - 1]
    shown: list[int] = []
    whole = log.history(None, entry)
    with pytest.raises(CorruptDataError):
        shown += map(attrgetter("entry"), whole)  # extends by each as it comes
    assert shown == list(range(entry, entry - 10, -1)), "what is whole is shown before the error"
