"""Each invariant is reported when it is broken: a check that never speaks proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from txnformat.core.app_versions.state import VersionAt
from txnformat.core.assemble import assemble
from txnformat.core.entry import CommitEntry, sha256_hex
from txnformat.core.fold import apply
from txnformat.core.groups.operations import OffsetCommit
from txnformat.core.groups.state import Committed, PendingPosition
from txnformat.core.intents import (
    Acks,
    Action,
    AllocateIds,
    AppRef,
    GroupOffsets,
    Intent,
    OpenProducer,
    ProducerRef,
    Write,
)
from txnformat.core.invariants import INVARIANTS, check_state, check_whole
from txnformat.core.lifecycle.operations import PartitionEnd
from txnformat.core.lifecycle.state import ErasureState
from txnformat.core.operations import PendingPartition
from txnformat.core.ranges import NO_RANGES, Ranges
from txnformat.core.records.state import DeleteHorizon, PartitionState, SpilledRange
from txnformat.core.state import DeletedTopic, IntentWindow, LogState, ProducerIdBlock
from txnformat.core.subscriptions.operations import (
    AckedPartition,
    AckMode,
    CreateSubscription,
    DeleteSubscription,
)
from txnformat.core.subscriptions.state import PendingAcks
from txnformat.core.transactions.state import StagedFlush, TransactionStatus
from txnformat.persistent import Columns, Vector, replace
from txnformat.types import Outcome, TopicPartition
from txnlog_testing.strategies import make_append, make_topic

ORDERS = make_topic("orders")
KEY = TopicPartition(ORDERS.topic_id, 0)
BILLING = (ORDERS.topic_id, "billing")
ETL, OTHER, PLAIN = ProducerRef(0, 0, "etl"), ProducerRef(1, 0, "other"), ProducerRef(2, 0)


def write(producer: ProducerRef, sequence: int, content: str, end: Outcome | None = None) -> Write:
    return Write(producer, (make_append(ORDERS, {0: (sequence, 4)}, content=content),), end)


def acks(offset: int) -> Acks:
    part = AckedPartition(0, ((offset, offset + 1),))
    return Acks(ORDERS.topic_id, "billing", AckMode.INDIVIDUAL, (part,))


def commit(state: LogState, *actions: Action) -> tuple[CommitEntry, LogState]:
    """Return one entry of all actions, and the state after it."""
    slot = state.entry + 1
    intents = [Intent(f"intent {slot}.{number}", slot, action) for number, action in enumerate(actions)]
    assembled = assemble(state, intents, store_time_ms=1_700_000_000_000, write_id="write")
    assert assembled.entry is not None
    assert len(assembled.entry.intents) == len(actions), assembled.verdicts
    return assembled.entry, apply(state, assembled.entry, assembled.sha256)


def history() -> LogState:
    state = LogState("0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11", entry_sha256=sha256_hex(b"format"))
    for actions in (
        [ORDERS, OpenProducer("etl"), OpenProducer("other"), AllocateIds("process")],
        [write(ETL, 0, "a"), write(OTHER, 0, "b"), write(PLAIN, 0, "c")],
        [Write(ETL, end=Outcome.ABORT)],
        [write(PLAIN, 4, "d"), write(replace(ETL, epoch=1), 0, "e")],
        [Write(offsets=(GroupOffsets("readers", (OffsetCommit(ORDERS.topic_id, 0, 2),)),))],
        [CreateSubscription(ORDERS.topic_id, "billing"), CreateSubscription(ORDERS.topic_id, "old")],
        [Write(acks=(acks(1),))],
    ):
        _, state = commit(state, *actions)
    return state


BEFORE = history()
ENTRY, AFTER = commit(
    BEFORE,
    write(PLAIN, 8, "f"),
    Write(OTHER, end=Outcome.ABORT),
    Write(
        appends=(make_append(ORDERS, {0: (-1, 1)}, content="g"),), app=AppRef("spark-batch", "job", 1, "run")
    ),
    make_topic("audit"),
    OpenProducer("third"),
    Write(
        replace(ETL, epoch=1),
        offsets=(GroupOffsets("readers", (OffsetCommit(ORDERS.topic_id, 0, 3, "", 2),)),),
    ),
    Write(replace(ETL, epoch=1), acks=(acks(3),)),
    DeleteSubscription(ORDERS.topic_id, "old"),
)

State = Callable[[LogState], LogState]


def partition(**changes: Any) -> State:
    def change(state: LogState) -> LogState:
        found: dict[str, Any] = {
            name: value(state.partitions[KEY]) if callable(value) else value
            for name, value in changes.items()
        }
        return replace(state, partitions={**state.partitions, KEY: replace(state.partitions[KEY], **found)})

    return change


def rows(of: str, index: int, /, **values: int) -> State:
    """Change one row of a table."""

    def change(found: PartitionState) -> Columns:
        array = getattr(found, of).array().copy()
        for column, value in values.items():
            array[column][index] = value
        return Columns(array.dtype, (array,))

    return partition(**{of: change})


def dropped(table: str) -> State:
    """Drop the last row of a table."""

    def change(found: PartitionState) -> Columns:
        array = getattr(found, table).array()
        return Columns(array.dtype, (array[:-1],))

    return partition(**{table: change})


STAGED = StagedFlush(ORDERS.topic_id, 0, 0, 0, 1, (PendingPartition(0, 3, 1, 0, "ab" * 8, 9, 1, 2),))


def known(name: str, **changes: Any) -> State:
    def change(state: LogState) -> LogState:
        ids = state.transactional_ids
        return replace(state, transactional_ids={**ids, name: replace(ids[name], **changes)})

    return change


def foreign_files(state: LogState) -> LogState:
    """Name a file of another topic."""
    files = [replace(file, key=f"audit-12345678/{file.key.partition('/')[2]}") for file in state.files]
    return replace(state, files=Vector(files))


def shared_directory(state: LogState) -> LogState:
    """Give two topics one directory."""
    return replace(
        state, topics={key: replace(topic, directory=ORDERS.directory) for key, topic in state.topics.items()}
    )


def moved_topic(state: LogState) -> LogState:
    """Give the topic that the entry appends to another name and directory."""
    moved = replace(state.topics[ORDERS.topic_id], name="moved", directory="moved-12345678")
    return replace(state, topics={**state.topics, ORDERS.topic_id: moved})


def group(**changes: Any) -> State:
    return lambda state: replace(state, groups={"readers": replace(state.groups["readers"], **changes)})


def pending(*names: str, holds: bool = True) -> dict[str, Any]:
    return {name: {KEY: PendingPosition(3, "", 1, holds)} for name in names}


def subscription(number: int = 0, /, **changes: Any) -> State:
    """Change one partition of the subscription."""

    def change(state: LogState) -> LogState:
        found = state.subscriptions[BILLING]
        part = replace(found.partition(number), **changes)
        subscriptions = {**state.subscriptions, BILLING: found.with_partitions({number: part})}
        return replace(state, subscriptions=subscriptions)

    return change


def held(*names: str, start: int = 3, position: int | None = None) -> dict[str, Any]:
    return {name: PendingAcks(Ranges.of([(start, start + 1)]), position) for name in names}


def of_state(**changes: Any) -> State:
    return lambda state: replace(state, **changes)


def numbers(problems: list[str]) -> set[str]:
    return {problem.split()[0] for problem in problems}


def test_a_sound_history_has_no_violations() -> None:
    assert check_state(BEFORE, ENTRY, AFTER) == []
    assert check_whole(BEFORE) == []
    assert check_whole(AFTER) == []


GONE = "00000000-0000-4000-8000-000000000000"
ERASURE = ErasureState(GONE, ORDERS.topic_id, "orders", ORDERS.directory, 1, 1, ("id",), "ab" * 32, "")


def erasures(**values: Any) -> State:
    return of_state(erasures={GONE: replace(ERASURE, **values)})


WHOLE: list[tuple[str, State]] = [
    ("I3", partition(log_start=10_000)),
    ("I5", partition(log_end=lambda found: found.log_end + 1)),
    ("I5", rows("extents", 0, records=1)),
    ("I5", rows("markers", -1, offset=0)),
    ("I5", dropped("extents")),
    ("I6", partition(open={})),
    ("I6", known("etl", status=TransactionStatus.EMPTY)),
    ("I6", known("etl", partitions={KEY: 1})),
    ("I6", known("etl", epoch=2)),
    ("I7", of_state(next_producer_id=1)),
    ("I7", of_state(blocks={1: ProducerIdBlock("process", 1, 1_001, 0)})),
    ("I7", known("other", producer_id=0)),
    ("I7", known("other", epoch=0)),
    ("I7", of_state(owners={})),
    ("I7", of_state(owners={**BEFORE.owners, 999: "etl"})),
    ("I8", dropped("aborted")),
    ("I8", rows("aborted", 0, first_offset=1)),
    ("I8", rows("aborted", 0, last_offset=3)),
    ("I8", rows("aborted", 0, last_stable_offset=3)),
    ("I8", rows("markers", 0, commit=1)),
    ("I9", rows("markers", 0, producer_id=77)),
    ("I9", rows("markers", -1, producer_id=0, epoch=0)),
    ("I9", rows("extents", -1, producer_id=0, epoch=0, transactional=1)),
    ("I10", rows("extents", 1, base_sequence=1)),
    ("I10", partition(sequences={})),
    ("I12", of_state(window=IntentWindow(0, ()))),
    ("I12", of_state(window=IntentWindow(0, (("a",), ("a",), (), (), ())))),
    ("I13", of_state(topic_ids={})),
    ("I13", of_state(topics={}, topic_ids={})),
    ("I14", of_state(files=Vector())),
    ("I25", partition(spills=(SpilledRange(0, 4, 0, 1, 1, 0, 0, 4, 0),))),
    ("I15", partition(sealed_end=1)),
    ("I15", partition(listed_end=1)),
    ("I14", rows("extents", 0, file=-1)),
    ("I14", rows("extents", 0, table=0)),
    ("I16", known("third", status=TransactionStatus.ONGOING, started_entry=0, staged=(STAGED,))),
    ("I16", known("etl", staged=(STAGED,))),
    ("I17", of_state(producers={})),
    ("I17", of_state(retired_below=10_000)),
    ("I18", of_state(groups={})),
    ("I18", group(commits=1)),
    ("I18", group(commits=0)),
    ("I18", group(pending={})),
    ("I18", group(pending=pending("etl", "other"))),
    ("I18", group(pending=pending("etl", "nobody", holds=False))),
    ("I18", group(committed={KEY: Committed(4, "", 2, 5, 5)}, commits=3)),
    ("I18", known("etl", groups=frozenset({"others"}))),
    ("I18", known("other", abort_only=True)),
    ("I6", known("third", groups=frozenset({"readers"}))),
    ("I19", of_state(subscriptions={})),
    ("I19", subscription(99, mark=1)),
    ("I19", subscription(acked=Ranges.of([(0, 1)]))),
    ("I19", subscription(acked=Ranges.of([(3, 4)]))),
    ("I19", subscription(acked=Ranges.of([(10**6, 10**6 + 1)]))),
    ("I19", subscription(acked=Ranges.of([(2 * n, 2 * n + 1) for n in range(5, 20_000)]))),
    ("I19", subscription(mark=4)),
    ("I19", subscription(pending={})),
    ("I19", subscription(pending={"etl": PendingAcks()})),
    ("I19", subscription(pending=held("etl", "nobody"))),
    ("I19", subscription(pending=held("etl", position=0))),
    ("I19", subscription(pending=held("etl", position=4))),
    ("I19", subscription(pending=held("etl") | held("third", start=2, position=1))),
    ("I19", known("etl", subscriptions=frozenset({(ORDERS.topic_id, "old")}))),
    ("I6", known("third", subscriptions=frozenset({BILLING}))),
    ("I20", foreign_files),
    ("I20", shared_directory),
    ("I23", partition(cleaned_end=1)),
    ("I23", partition(horizons=(DeleteHorizon(1, 5),))),
    ("I23", partition(horizons=(DeleteHorizon(0, 5), DeleteHorizon(0, 6)))),
    ("I24", erasures(entry=99)),
    ("I24", erasures(rewritten_entry=1, complete_entry=2, floor=1)),
    ("I24", erasures(rewritten_entry=1, reached=(PartitionEnd(0, 1),))),
    ("I24", erasures(topic_id=GONE)),
    ("I24", erasures(ends=(PartitionEnd(1, 1), PartitionEnd(0, 1)))),
    ("I24", erasures(reached=(PartitionEnd(0, 10**6),))),
    ("I22", of_state(topics={}, topic_ids={}, partition_count=0)),
    ("I22", of_state(deleted={ORDERS.directory: DeletedTopic(ORDERS.directory, "gone", 3)})),
    ("I22", of_state(deleted={"elsewhere": DeletedTopic("elsewhere", ORDERS.topic_id, 3)})),
]

STEP: list[tuple[str, State]] = [
    ("I1", of_state(entry=99)),
    ("I2", of_state(timestamp_ms=BEFORE.timestamp_ms)),
    ("I3", partition(log_end=0)),
    ("I23", partition(cleaned_end=-1)),
    ("I23", partition(cleaned_entry=-2)),
    ("I24", partition(erased_entry=-2)),
    ("I4", partition(open={(0, 1): 0})),
    ("I5", partition(log_end=lambda found: found.log_end + 1)),
    ("I5", dropped("extents")),
    ("I5", partition(extents=BEFORE.partitions[KEY].extents)),
    ("I6", partition(open={})),
    ("I6", known("other", partitions={KEY: 4})),
    ("I7", known("other", producer_id=9)),
    ("I7", known("other", epoch=0)),
    ("I7", of_state(next_producer_id=BEFORE.next_producer_id)),
    ("I8", dropped("aborted")),
    ("I8", rows("aborted", -1, last_stable_offset=0)),
    ("I9", rows("markers", -1, producer_id=77)),
    ("I10", rows("extents", -2, base_sequence=7)),
    ("I10", rows("extents", -3, base_sequence=7)),
    ("I7", of_state(owners={})),
    ("I11", of_state(app_versions={})),
    ("I11", of_state(app_versions={("spark-batch", "job"): VersionAt(0, 4)})),
    (
        "I11",
        of_state(
            app_versions={
                ("spark-batch", "job"): AFTER.app_versions["spark-batch", "job"]._replace(instances=())
            }
        ),
    ),
    ("I12", of_state(window=BEFORE.window)),
    ("I13", of_state(topics=BEFORE.topics, topic_ids=BEFORE.topic_ids)),
    ("I14", of_state(files=BEFORE.files)),
    ("I25", partition(spills=(SpilledRange(0, 4, 0, 1, 1, 0, 0, 4, 0),))),
    ("I15", partition(sealed_end=1)),
    ("I17", of_state(producers={})),
    ("I17", of_state(retired_below=1)),
    ("I18", of_state(groups={})),
    ("I18", group(committed={})),
    ("I18", group(commits=0)),
    ("I18", group(pending=pending("etl", "other"))),
    ("I19", of_state(subscriptions={})),
    ("I19", subscription(acked=NO_RANGES)),
    ("I19", subscription(pending=held("etl", start=1))),
    ("I19", of_state(subscriptions=BEFORE.subscriptions)),
    ("I19", of_state(subscriptions={**BEFORE.subscriptions, BILLING: AFTER.subscriptions[BILLING]})),
    ("I20", moved_topic),
    ("I21", of_state(vacuum_floor=10**6)),
]


@pytest.mark.parametrize(("number", "change"), WHOLE, ids=[f"{n}-{i}" for i, (n, _) in enumerate(WHOLE)])
def test_check_whole_reports(number: str, change: State) -> None:
    assert number in numbers(check_whole(change(AFTER)))


@pytest.mark.parametrize(("number", "change"), STEP, ids=[f"{n}-{i}" for i, (n, _) in enumerate(STEP)])
def test_check_state_reports(number: str, change: State) -> None:
    assert number in numbers(check_state(BEFORE, ENTRY, change(AFTER)))


@pytest.mark.parametrize(
    ("number", "before"),
    [
        ("I1", replace(BEFORE, entry_sha256="0" * 64)),
        ("I1", replace(BEFORE, log_id="other")),
        ("I2", replace(BEFORE, timestamp_ms=AFTER.timestamp_ms)),
        ("I11", replace(BEFORE, app_versions={("spark-batch", "job"): VersionAt(1, 0)})),
        ("I11", replace(BEFORE, app_versions={("spark-batch", "job"): VersionAt(0, 0, ("newer", "run"))})),
        ("I12", replace(BEFORE, window=IntentWindow(0, (*BEFORE.window.entries[:-1], ENTRY.intents)))),
    ],
)
def test_check_state_reports_an_entry_that_does_not_fit_the_state_before(
    number: str, before: LogState
) -> None:
    assert number in numbers(check_state(before, ENTRY, AFTER))


def test_every_invariant_is_broken_by_some_test_here() -> None:
    assert {number for number, _ in [*WHOLE, *STEP]} == set(INVARIANTS)
