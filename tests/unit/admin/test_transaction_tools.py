"""``log.transactions``: what it lists, describes and ends, on a log in memory with transactions of real
intents."""

from __future__ import annotations

import pytest

from tests.unit.admin.actors import DAY, MINUTE, Actors, outcomes
from tests.unit.core.memory_log import ORDERS, rows
from txnformat.admin.describe import describe_log
from txnformat.admin.metrics import measure
from txnformat.admin.transactions import EndedTransaction, EndingOutcome
from txnformat.client.commit_counts import CommitCounts
from txnformat.core.intents import AllocateIds, ProducerRef, Write
from txnformat.core.operations import Cause
from txnformat.core.state import LogState
from txnformat.core.transactions.hanging import HoldCause, find_hanging
from txnformat.core.transactions.state import LastEnd, TransactionStatus
from txnformat.persistent import replace
from txnformat.store.requests import KeyClass, RequestKind
from txnformat.types import Outcome, TopicPartition
from txnlog import (
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    ProducerFencedError,
)

KEY = TopicPartition(ORDERS.topic_id, 0)


@pytest.fixture
def actors() -> Actors:
    return Actors()


# --- looking ------------------------------------------------------------------------------------------------


def names(listed: object) -> list[str]:
    return [one.transactional_id for one in listed]  # type: ignore[attr-defined]


def test_a_list_is_narrowed_by_state_pattern_duration_and_producer_id(actors: Actors) -> None:
    actors.end(actors.begin("done"))
    actors.begin("old")
    actors.wait(1_000)
    actors.begin("young")
    actors.init("empty")
    tools = actors.tools
    assert names(tools.list()) == ["done", "empty", "old", "young"]
    assert names(tools.list(states=["ongoing", "Empty"])) == ["empty", "old", "young"]
    assert names(tools.list(states="CompleteCommit")) == ["done"]
    assert names(tools.list(pattern="o.*")) == ["old"], "the pattern has to match as a whole"
    assert names(tools.list(pattern="ol")) == []
    age = tools.describe("old").duration_ms
    assert age is not None
    assert age > 900
    assert names(tools.list(min_duration_ms=age - 1)) == ["old"]
    assert names(tools.list(min_duration_ms=age)) == [], "longer than that, as in KIP-994"
    assert names(tools.list(min_duration_ms=-1)) == ["done", "empty", "old", "young"]
    assert names(tools.list(producer_ids=[actors.producer("young").producer_id])) == ["young"]
    assert names(tools.list(states=["Ongoing"], pattern=".*", min_duration_ms=500)) == ["old"]


def test_what_a_list_cannot_be_narrowed_by_is_refused(actors: Actors) -> None:
    with pytest.raises(InvalidInputError) as unknown:
        actors.tools.list(states=["Ongoing", "Gone", "Dead"])
    assert unknown.value.kind == "unknown-transaction-state"
    assert len(unknown.value.problems) == 2
    with pytest.raises(InvalidInputError) as pattern:
        actors.tools.list(pattern="(")
    assert pattern.value.kind == "invalid-pattern"


def test_a_description_has_timeout_duration_offsets_and_what_is_held_back(actors: Actors) -> None:
    actors.begin("slow", 0, 1, timeout_ms=5_000)
    actors.begin("behind", 0)
    actors.wait(4_000)
    slow = actors.tools.describe("slow")
    assert (slow.state, slow.buffer, slow.timeout_ms) == (TransactionStatus.ONGOING, "inline", 5_000)
    assert slow.start_timestamp_ms is not None
    assert slow.expires_ms == slow.start_timestamp_ms + 5_000
    assert slow.duration_ms == actors.clock.now().wall_ms - slow.start_timestamp_ms
    assert [(part.partition, part.start_offset, part.holds_back) for part in slow.partitions] == [
        (0, 0, 4),
        (1, 0, 2),
    ]
    assert [part.holds_back for part in actors.tools.describe("behind").partitions] == [0]
    assert not slow.late
    actors.wait(2_000)
    assert actors.tools.describe("slow").late


def test_a_description_of_a_deferred_transaction_has_its_staged_records_and_holds_nobody(
    actors: Actors,
) -> None:
    actors.stage("big")
    big = actors.tools.describe("big")
    assert (big.buffer, big.timeout_ms) == ("deferred", DAY)
    (part,) = big.partitions
    assert (part.start_offset, part.staged_records, part.holds_back) == (None, 3, 0)


def test_a_description_of_an_id_without_a_transaction_has_its_last_end(actors: Actors) -> None:
    actors.end(actors.begin("done"))
    done = actors.tools.describe("done")
    assert (done.start_timestamp_ms, done.duration_ms, done.expires_ms, done.partitions) == (
        *(None, None, None),
        (),
    )
    assert done.last_end == LastEnd(0, Outcome.COMMIT, Cause.PRODUCER, actors.log.state.entry)
    with pytest.raises(NotFoundError) as error:
        actors.tools.describe("nobody")
    assert error.value.kind == "unknown-transactional-id"


def test_producers_of_a_partition_are_idempotent_ones_and_those_with_an_open_transaction(
    actors: Actors,
) -> None:
    actors.commit(AllocateIds("process"))
    idempotent = ProducerRef(0, 0)
    actors.commit(Write(idempotent, rows(0, 5, "first")))
    first_ms = actors.log.state.timestamp_ms
    actors.end(actors.begin("done"))
    producer = actors.begin("etl")
    actors.commit(Write(producer, rows(2, 3, "more")))
    found = actors.tools.describe_producers("orders", 0)
    assert [(one.producer_id, one.transactional_id) for one in found] == [
        (0, None),
        (producer.producer_id, "etl"),
    ]
    assert [(one.last_sequence, one.current_transaction_start_offset) for one in found] == [(4, None), (4, 8)]
    assert [one.last_timestamp_ms for one in found] == [first_ms, actors.log.state.timestamp_ms]
    assert actors.tools.describe_producers("orders", 1) == ()
    for bad in (3, -1):
        with pytest.raises(NotFoundError) as error:
            actors.tools.describe_producers("orders", bad)
        assert error.value.kind == "unknown-partition"


def test_the_time_of_a_producers_sealed_append_is_read_from_its_entry(actors: Actors) -> None:
    actors.commit(AllocateIds("process"))
    actors.commit(Write(ProducerRef(0, 0), rows(0, 5, "first")))
    first_ms = actors.log.state.timestamp_ms
    actors.wait(1_000)
    assert actors.log.maintain("seal").batches == 3
    assert len(actors.log.state.partition(KEY).extents) == 0
    with actors.store.measure() as requests:
        (found,) = actors.tools.describe_producers("orders", 0)
    assert found.last_timestamp_ms == first_ms
    assert requests.counts.count() == 3, "the refresh, the entry, and whether it may be deleted"


def test_the_logs_description_has_timeouts_buffers_staged_records_and_expiry(actors: Actors) -> None:
    actors.begin("slow", timeout_ms=5_000)
    actors.stage("big")
    actors.prepare("bank")
    actors.init("idle")
    described = actors.log.describe()
    found = {one.transactional_id: one for one in described.transactions}
    known = actors.log.state.transactional_ids
    assert {name: one.buffer for name, one in found.items()} == {
        "slow": "inline",
        "big": "deferred",
        "bank": "inline",
        "idle": None,
    }
    assert (found["slow"].timeout_ms, found["slow"].deferred_timeout_ms) == (5_000, DAY)
    assert found["slow"].expires_ms == (known["slow"].started_ms or 0) + 5_000
    assert found["big"].expires_ms == known["big"].used_ms + DAY
    assert (found["bank"].expires_ms, found["idle"].expires_ms) == (None, None)
    assert (found["big"].staged_records, found["big"].partitions) == ((("orders", 0, 3),), ())
    assert (found["slow"].staged_records, found["slow"].partitions) == ((), (("orders", 0),))
    holder = described.topics[0].offsets[0].held_by
    assert holder is not None
    assert (holder.transactional_id, holder.status, holder.expires_ms) == (
        "slow",
        "Ongoing",
        found["slow"].expires_ms,
    )


# --- hanging ------------------------------------------------------------------------------------------------


def damaged(state: LogState, name: str) -> LogState:
    """Return a state that has lost a transactional id whose transaction is open."""
    ids = {key: known for key, known in state.transactional_ids.items() if key != name}
    return replace(state, transactional_ids=ids, undecided=state.undecided - {name})


def test_a_transaction_that_no_transactional_id_has_hangs_once_it_is_old(actors: Actors) -> None:
    producer = actors.begin("lost")
    state = damaged(actors.log.state, "lost")
    appended_ms = state.timestamp_ms
    limit = state.max_transaction_timeout_ms
    assert find_hanging(state, appended_ms + limit).hanging == ()
    (found,) = find_hanging(state, appended_ms + limit + 1).hanging
    assert (found.topic, found.partition, found.producer_id, found.producer_epoch, found.start_offset) == (
        *("orders", 0),
        *(producer.producer_id, 0, 0),
    )
    assert (found.last_timestamp_ms, found.duration_ms) == (appended_ms, limit + 1)
    assert found.reason == "no transactional id has its producer id"
    assert len(find_hanging(state, appended_ms + 2, max_transaction_timeout_ms=1).hanging) == 1
    assert find_hanging(
        state, appended_ms + 2, topic="orders", partition=1, max_transaction_timeout_ms=1
    ) == (find_hanging(state, appended_ms + 2))


def test_describe_and_metrics_show_a_hanging_transaction_without_a_name(actors: Actors) -> None:
    actors.begin("lost")
    state = damaged(actors.log.state, "lost")
    (topic,) = describe_log(state, "memory://", 0).topics
    holder = topic.offsets[0].held_by
    assert holder is not None
    assert (holder.transactional_id, holder.status, holder.expires_ms) == ("", "Hanging", None)
    measured = measure(state, "memory://", 0, CommitCounts()).partitions[0]
    oldest = measured.oldest_transaction
    assert oldest is not None
    assert (oldest.transactional_id, oldest.first_offset, oldest.age_ms) == ("", holder.first_offset, 0)
    assert (measured.open_transactions, measured.late_transactions, measured.prepared_transactions) == (
        1,
        0,
        0,
    )


def test_a_transaction_hangs_if_its_id_has_another_or_not_this_partition(actors: Actors) -> None:
    actors.begin("etl", 0, 1)
    state = actors.log.state
    known = state.transactional_ids["etl"]
    later = state.timestamp_ms + DAY
    in_one = replace(known, partitions={KEY: 0})
    (found,) = find_hanging(state.with_transactional_id("etl", in_one), later).hanging
    assert (found.partition, "is not in this partition" in found.reason) == (1, True)
    for other in (
        replace(known, epoch=1),
        replace(known, status=TransactionStatus.COMPLETE_ABORT, partitions={}),
    ):
        found_in = find_hanging(state.with_transactional_id("etl", other), later).hanging
        assert [one.partition for one in found_in] == [0, 1]


def test_late_and_prepared_transactions_are_told_apart_from_hanging_ones(actors: Actors) -> None:
    actors.prepare("bank")
    actors.begin("slow", 0, 1)
    actors.begin("fine", 2, timeout_ms=10 * MINUTE)
    actors.wait(2 * MINUTE)
    report = actors.tools.find_hanging()
    assert report.hanging == ()
    assert [(one.transactional_id, one.partition, one.cause, one.holds_back) for one in report.held] == [
        ("bank", 0, HoldCause.PREPARED, 4),
        ("slow", 0, HoldCause.LATE, 0),
        ("slow", 1, HoldCause.LATE, 2),
    ]
    assert "force-terminate 'bank'" in report.held[0].advice
    assert "end-expired" in report.held[1].advice
    assert actors.tools.find_hanging("orders", 2).held == ()
    with pytest.raises(InvalidInputError):
        actors.tools.find_hanging(partition=0)
    with pytest.raises(NotFoundError):
        actors.tools.find_hanging("nothing")


# --- ending -------------------------------------------------------------------------------------------------


def test_an_abort_by_id_frees_the_partition_and_fences_the_producer(actors: Actors) -> None:
    producer = actors.begin("etl")
    (done,) = actors.tools.abort("etl")
    entry = actors.log.state.entry
    assert done == EndedTransaction("etl", producer.producer_id, 0, EndingOutcome.ABORTED, entry)
    assert actors.log.state.transactional_ids["etl"].last_end == LastEnd(
        0, Outcome.ABORT, Cause.OPERATOR, entry
    )
    partition = actors.log.state.partition(KEY)
    assert partition.last_stable_offset == partition.log_end
    with pytest.raises(ProducerFencedError) as error:
        actors.end(producer)
    assert error.value.kind == "aborted-by-operator"
    assert outcomes(actors.tools.abort("etl")) == {"etl": "not-open"}
    assert actors.log.state.entry == entry


def test_an_abort_by_prefix_ends_all_in_one_entry_and_leaves_prepared_ones(actors: Actors) -> None:
    for name in ("job-1", "job-x", "other"):
        actors.begin(name)
    actors.prepare("job-2")
    actors.init("job-3")
    would = actors.tools.abort(prefix="job-", dry_run=True)
    assert outcomes(would) == {"job-1": "would-abort", "job-2": "prepared", "job-x": "would-abort"}
    with actors.store.measure() as requests:
        done = actors.tools.abort(prefix="job-")
    assert requests.counts.count(RequestKind.CREATE, KeyClass.ENTRY) == 1
    assert outcomes(done) == {"job-1": "aborted", "job-2": "prepared", "job-x": "aborted"}
    assert actors.log.state.undecided == {"job-2", "other"}


def test_an_abort_by_start_offset_finds_the_transaction_that_begins_there(actors: Actors) -> None:
    actors.begin("first")
    actors.begin("second")
    assert outcomes(actors.tools.abort(topic="orders", partition=0, start_offset=2)) == {"second": "aborted"}
    assert actors.log.state.undecided == {"first"}
    with pytest.raises(NotFoundError) as error:
        actors.tools.abort(topic="orders", partition=0, start_offset=1)
    assert (error.value.kind, error.value.values["open_start_offsets"]) == ("unknown-transaction", [0])


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"transactional_id": "etl", "prefix": "e"},
        {"topic": "orders", "partition": 0},
        {"transactional_id": "etl", "start_offset": 0},
        {"prefix": ""},
    ],
)
def test_an_abort_names_its_transactions_in_exactly_one_way(actors: Actors, wrong: dict[str, object]) -> None:
    actors.begin("etl")
    with pytest.raises(InvalidInputError) as error:
        actors.tools.abort(**wrong)  # type: ignore[arg-type]
    assert error.value.kind == "invalid-abort"
    assert actors.log.state.undecided == {"etl"}


def test_a_prepared_transaction_is_refused_but_for_force(actors: Actors) -> None:
    producer = actors.prepare("bank")
    start = {"topic": "orders", "partition": 0, "start_offset": 0}
    for name in ({"transactional_id": "bank"}, start):
        with pytest.raises(InvalidTransactionStateError) as error:
            actors.tools.abort(**name)
        assert error.value.kind == "transaction-prepared"
        assert "force_terminate" in str(error.value)
    assert actors.tools.force_terminate("bank", dry_run=True).outcome is EndingOutcome.WOULD_ABORT
    assert actors.status("bank") is TransactionStatus.PREPARED
    assert actors.tools.force_terminate("bank").outcome is EndingOutcome.ABORTED
    with pytest.raises(ProducerFencedError):
        actors.end(producer)
    assert actors.tools.force_terminate("bank").outcome is EndingOutcome.NOT_OPEN
    with pytest.raises(NotFoundError):
        actors.tools.force_terminate("nobody")


@pytest.mark.parametrize("outcome", Outcome)
def test_a_transaction_that_ends_meanwhile_is_no_error_and_the_next_one_is_not_hit(
    actors: Actors, outcome: Outcome
) -> None:
    """What was seen is ended by its epoch, also when the producer goes on between the look and the entry."""
    producer = actors.begin("etl")
    seen = actors.log.refresh()
    actors.end(producer, outcome)
    following = actors.producer("etl")
    actors.commit(Write(following, rows(0, 2, "next")))
    (done,) = actors.tools._end(seen, ["etl"])
    assert done.outcome is EndingOutcome.ENDED_BEFORE
    assert actors.log.state.undecided == {"etl"}
    actors.end(following)
    assert actors.status("etl") is TransactionStatus.COMPLETE_COMMIT


def test_a_transaction_that_is_prepared_meanwhile_is_left_alone(actors: Actors) -> None:
    producer = actors.begin("etl")
    seen = actors.log.refresh()
    actors.commit(Write(producer, prepare=True))
    (done,) = actors.tools._end(seen, ["etl"])
    assert done.outcome is EndingOutcome.PREPARED
    actors.end(producer)


def test_expired_transactions_are_ended_and_others_not(actors: Actors) -> None:
    actors.begin("slow")
    actors.prepare("bank")
    actors.begin("fine", timeout_ms=10 * MINUTE)
    assert actors.tools.end_expired() == ()
    actors.wait(2 * MINUTE)
    (done,) = actors.tools.end_expired()
    assert (done.transactional_id, done.outcome, done.entry) == (
        "slow",
        EndingOutcome.ABORTED,
        actors.log.state.entry,
    )
    last = actors.log.state.transactional_ids["slow"].last_end
    assert last is not None
    assert last.cause is Cause.TIMEOUT
    assert actors.log.state.undecided == {"bank", "fine"}


def test_what_only_looks_costs_one_request_and_writes_nothing(actors: Actors) -> None:
    actors.begin("etl")
    entry = actors.log.state.entry
    for look in (
        actors.tools.list,
        lambda: actors.tools.describe("etl"),
        lambda: actors.tools.describe_all(["etl", "etl"]),
        lambda: actors.tools.describe_producers("orders", 0),
        actors.tools.find_hanging,
        lambda: actors.tools.lingering("etl"),
        lambda: actors.tools.abort("etl", dry_run=True),
    ):
        with actors.store.measure() as requests:
            look()
        assert requests.counts.count() == 1
    assert actors.log.refresh().entry == entry
