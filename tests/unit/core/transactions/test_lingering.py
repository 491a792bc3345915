"""Which worker of a parallel job aborts which transactions of an earlier run: ranges, order, starts,
races.
"""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from tests.integration.clients.failing import ENTRY, Plan
from tests.unit.admin.actors import Actors, outcomes
from tests.unit.core.memory_log import rows
from tests.unit.core.transactions.staging import staged
from txnformat.core.intents import Write
from txnformat.core.transactions.lingering import worker_number
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import InvalidInputError, Producer, ProducerFencedError, TxnLog
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore, SimulatedCrash


class CrashAt:
    """Lets the process end at its n-th request, from 0."""

    def __init__(self, request: int, kind: FaultKind) -> None:
        self._left = request
        self._kind = kind

    def __call__(self, operation: RequestKind, key: str, nth: int) -> Fault | None:
        self._left -= 1
        return Fault(self._kind) if self._left == -1 else None


@pytest.fixture
def actors() -> Actors:
    return Actors()


def left(actors: Actors, *numbers: int, prefix: str = "job") -> None:
    """Leave a transaction open under each of a job's ids."""
    for number in numbers:
        actors.begin(f"{prefix}-{number}")


def aborted(actors: Actors, parallelism: int, factor: int = 5) -> dict[int, list[int]]:
    """Return what each worker aborts, in its order."""
    found = {}
    for worker in range(parallelism):
        done = actors.tools.abort_lingering("job", parallelism, worker, factor)
        found[worker] = [int(one.transactional_id[4:]) for one in done if one.outcome == "aborted"]
    return found


@pytest.mark.parametrize(
    ("transactional_id", "number"),
    [
        ("größe 漢字-7", 7),
        ("größe 漢字-0", 0),
        ("größe 漢字-12", 12),
        ("größe 漢字-07", None),
        ("größe 漢字-00", None),
        ("größe 漢字--7", None),
        ("größe 漢字-+7", None),
        ("größe 漢字-7 ", None),
        ("größe 漢字-\N{FULLWIDTH DIGIT SEVEN}", None),
        ("größe 漢字-\N{SUPERSCRIPT TWO}", None),
        ("größe 漢字-x", None),
        ("größe 漢字-", None),
        ("größe 漢字", None),
        ("größe 漢字-1-2", None),
        ("größe 漢字2-7", None),
        (" größe 漢字-7", None),
        ("größe 漢字-" + "9" * 200, None),
    ],
)
def test_only_the_prefix_a_dash_and_an_integer_is_an_id_of_the_job(
    transactional_id: str, number: int | None
) -> None:
    assert worker_number(transactional_id, "größe 漢字") == number


def test_a_prefix_may_have_dashes_and_numbers_of_its_own() -> None:
    assert worker_number("etl-2-7", "etl-2") == 7
    assert worker_number("etl-2-7", "etl") is None


def test_a_range_is_split_over_the_workers_without_overlap_and_each_begins_with_its_own_id(
    actors: Actors,
) -> None:
    left(actors, *range(10))
    assert aborted(actors, 3) == {0: [0, 3, 6, 9], 1: [1, 4, 7], 2: [2, 5, 8]}
    assert actors.log.state.undecided == frozenset()


def test_ten_to_two_is_covered_by_factor_five_and_ten_to_one_is_not(actors: Actors) -> None:
    left(actors, *range(10))
    found = aborted(actors, 2)
    assert sorted(found[0] + found[1]) == list(range(10))
    left(actors, *range(10))
    assert aborted(actors, 1) == {0: [0, 1, 2, 3, 4]}
    beyond = actors.tools.lingering("job", parallelism=1)
    assert [(one.number, one.worker) for one in beyond] == [(number, None) for number in range(5, 10)]
    assert set(outcomes(actors.tools.abort(prefix="job-")).values()) == {"aborted"}
    assert actors.tools.lingering("job") == ()


def test_the_list_says_whose_part_each_is(actors: Actors) -> None:
    left(actors, 0, 1, 5, 11, 60)
    actors.prepare("job-3")
    actors.begin("job-x")
    listed = actors.tools.lingering("job", 3, 5)
    assert [(one.number, one.worker, one.state.value) for one in listed] == [
        (0, 0, "Ongoing"),
        (1, 1, "Ongoing"),
        (3, 0, "Prepared"),
        (5, 2, "Ongoing"),
        (11, 2, "Ongoing"),
        (60, None, "Ongoing"),
    ]
    assert {one.worker for one in actors.tools.lingering("job")} == {None}


def test_only_what_was_opened_before_the_callers_start_is_aborted(actors: Actors) -> None:
    """A worker that starts late does not abort what a faster one of the same run has opened."""
    left(actors, 0)
    start = actors.log.refresh().entry + 1
    left(actors, 2)
    done = actors.tools.abort_lingering("job", 2, 0, opened_before_entry=start)
    assert outcomes(done) == {"job-0": "aborted", "job-2": "younger"}
    assert outcomes(actors.tools.abort_lingering("job", 2, 0)) == {"job-0": "not-open", "job-2": "aborted"}


@pytest.mark.parametrize("deferred", [False, True])
def test_a_transaction_is_as_old_as_its_first_append_or_stage(actors: Actors, deferred: bool) -> None:
    """An id that was opened before, and whose transaction began with the very next entry, is left alone."""
    producer = actors.init("job-0")
    start = actors.log.refresh().entry + 1
    actors.commit(Write(producer, staged() if deferred else rows(), deferred=deferred))
    assert actors.log.state.transactional_ids["job-0"].started_entry == start
    done = actors.tools.abort_lingering("job", 1, 0, opened_before_entry=start)
    assert outcomes(done) == {"job-0": "younger"}
    done = actors.tools.abort_lingering("job", 1, 0, opened_before_entry=start + 1)
    assert outcomes(done) == {"job-0": "aborted"}


def test_a_restored_job_aborts_its_own_id_only(actors: Actors) -> None:
    left(actors, 0, 1, 2, 3)
    assert outcomes(actors.tools.abort_lingering("job", 2, 1, restored=True)) == {"job-1": "aborted"}
    assert actors.log.state.undecided == {"job-0", "job-2", "job-3"}


def test_prepared_transactions_wait_for_their_outcome(actors: Actors) -> None:
    producer = actors.prepare("job-1")
    left(actors, 0)
    assert outcomes(actors.tools.abort_lingering("job", 1, 0)) == {"job-0": "aborted", "job-1": "prepared"}
    actors.end(producer)


def test_all_ids_of_a_worker_are_ended_in_one_entry_and_a_dry_run_writes_nothing(actors: Actors) -> None:
    left(actors, *range(20))
    before = actors.log.state.entry
    would = actors.tools.abort_lingering("job", 4, 1, dry_run=True)
    assert outcomes(would) == {f"job-{number}": "would-abort" for number in (1, 5, 9, 13, 17)}
    assert actors.log.refresh().entry == before
    with actors.store.measure() as requests:
        actors.tools.abort_lingering("job", 4, 1)
    assert requests.counts.count(RequestKind.CREATE, KeyClass.ENTRY) == 1
    with actors.store.measure() as requests:
        assert actors.tools.abort_lingering("nobody", 4, 1) == ()
    assert requests.counts.count() == 1


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        (("job", 0, 0, 5), 1),
        (("job", 2, 2, 5), 1),
        (("job", 2, -1, 5), 1),
        (("job", 2, 0, 0), 1),
        (("", 2, 5, 0), 3),
        (("x" * 249, 2, 0, 5), 1),
    ],
)
def test_every_problem_of_the_arguments_is_said_at_once(
    actors: Actors, arguments: tuple[str, int, int, int], problems: int
) -> None:
    with pytest.raises(InvalidInputError) as error:
        actors.tools.abort_lingering(*arguments)
    assert error.value.kind == "invalid-lingering"
    assert len(error.value.problems) == problems


def test_workers_that_clean_up_at_once_do_no_harm(actors: Actors) -> None:
    """Two jobs of different parallelism and their workers, each with its own log, over the same ids."""
    left(actors, *range(12))
    crowd = [(parallelism, worker) for parallelism in (2, 3) for worker in range(parallelism)]
    done: list[dict[str, str]] = []
    together = threading.Barrier(len(crowd))

    def clean(parallelism: int, worker: int) -> None:
        log = TxnLog.open(actors.store, clock=actors.clock)
        together.wait(timeout=300)
        done.append(outcomes(log.transactions.abort_lingering("job", parallelism, worker)))

    threads = [threading.Thread(target=clean, args=each) for each in crowd]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert len(done) == len(crowd)
    state = actors.log.refresh()
    assert state.undecided == frozenset()
    for number in range(12):
        said = [each[f"job-{number}"] for each in done if f"job-{number}" in each]
        assert said.count("aborted") == 1, "by exactly one of those who tried"
        assert set(said) <= {"aborted", "ended-before", "not-open"}
        assert state.transactional_ids[f"job-{number}"].epoch == 1


@pytest.mark.parametrize("kind", [FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER])
def test_a_worker_that_dies_at_any_request_leaves_the_rest_to_its_successor(kind: FaultKind) -> None:
    crashes = 0
    while True:
        actors = Actors()
        left(actors, *range(6))
        try:
            log = TxnLog.open(FaultyStore(actors.store, CrashAt(crashes, kind)), clock=actors.clock)
            log.transactions.abort_lingering("job", 2, 0)
        except SimulatedCrash:
            crashes += 1
        else:
            break
        for worker in range(2):
            actors.tools.abort_lingering("job", 2, worker)
        state = actors.log.refresh()
        assert state.undecided == frozenset()
        assert {state.transactional_ids[f"job-{number}"].epoch for number in range(6)} == {1}
    assert crashes > 4


def test_an_abort_whose_answer_is_lost_is_said_to_be_done() -> None:
    actors = Actors()
    left(actors, 0, 2)
    plan = Plan()
    plan.next(*ENTRY, Fault(FaultKind.APPLIED_LOST_ANSWER))
    log = TxnLog.open(FaultyStore(actors.store, plan), clock=actors.clock)
    assert outcomes(log.transactions.abort_lingering("job", 2, 0)) == {"job-0": "aborted", "job-2": "aborted"}
    assert actors.log.refresh().undecided == frozenset()


def test_aborts_that_race_with_producers_never_touch_what_was_acknowledged() -> None:
    """Producers commit one transaction after the other while operators abort whatever is open under their
    ids."""
    store = MemoryStore()
    TxnLog.create(store).create_topic("t", pa.schema([("n", pa.int64())]))
    committed: list[int] = []
    refused: list[str] = []
    finished = threading.Event()

    def produce(number: int) -> None:
        log = TxnLog.open(store)
        for turn in range(30):
            value = 1_000 * number + turn
            try:
                with (
                    Producer(log, f"job-{number}", buffer="inline") as producer,
                    producer.transaction() as txn,
                ):
                    txn.send("t", [{"n": value}])
                    txn.flush()
            except ProducerFencedError as error:
                refused.append(error.kind)
            else:
                committed.append(value)

    def clean(worker: int) -> None:
        tools = TxnLog.open(store).transactions
        while not finished.is_set():
            tools.abort_lingering("job", 2, worker)

    cleaners = [threading.Thread(target=clean, args=(worker,)) for worker in (0, 1, 1)]
    producers = [threading.Thread(target=produce, args=(number,)) for number in range(3)]
    for thread in cleaners + producers:
        thread.start()
    for thread in producers:
        thread.join(300)
    finished.set()
    for thread in cleaners:
        thread.join(300)
    log = TxnLog.open(store)
    assert sorted(log.read("t").read_all()["n"].to_pylist()) == sorted(committed)
    assert len(committed) + len(refused) == 90
    assert set(refused) <= {"aborted-by-operator"}
    assert log.state.undecided == frozenset()
