"""Transactional ids that nobody uses leave the state: which, when, how many at a time, and what their
producers hear."""

from __future__ import annotations

import threading

import pytest

from tests.conformance.cases import case
from tests.conformance.core_log import ABORT, COMMIT, NAME, CoreLog, rows
from tests.integration.clients.failing import ENTRY, NUMBERS, Plan, QuickClock, faulty
from tests.integration.clients.failing import rows as records
from txnformat.core.entry import decode_entry
from txnformat.core.fold import apply
from txnformat.core.intents import AllocateIds, ExpireIdle, Included, OpenProducer, Write
from txnformat.core.invariants import check_whole
from txnformat.core.lifecycle.idle import EXPIRED_MAX, TRANSACTIONAL_ID_RETENTION_MS, expirable
from txnformat.core.operations import Expire
from txnformat.core.transactions.state import TransactionStatus
from txnformat.errors import ConflictError, CorruptDataError
from txnformat.log import TxnLog
from txnformat.persistent import replace
from txnformat.store.memory import MemoryStore
from txnlog import InvalidTransactionStateError, NotFoundError, Producer, StorageError
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore


def _later(log: CoreLog, after_ms: int = TRANSACTIONAL_ID_RETENTION_MS) -> None:
    """Let store and log time pass."""
    log.now_ms = max(log.now_ms, log.state.timestamp_ms) + after_ms
    log.do(AllocateIds("the clock", 1))


def _expired(log: CoreLog) -> list[str]:
    """Expire what can be; return the transactional ids that are gone."""
    wanted = expirable(log.state, log.now_ms)
    if wanted is None:
        return []
    gone: list[str] = []
    for operation in log.apply(wanted):
        assert isinstance(operation, Expire)
        gone += operation.transactional_ids
    assert not set(gone) & set(log.state.transactional_ids)
    return gone


def _in_state(status: str) -> CoreLog:
    """Return a log with an id in a state; another is used much later."""
    log = CoreLog()
    producer = log.open()
    if status != "Empty":
        log.append(producer)
    if status == "Prepared":
        log.prepare(producer)
    elif status.startswith("Complete"):
        log.finish(producer, COMMIT if status == "CompleteCommit" else ABORT)
    assert log.id().status == status
    return log


@case(
    "TransactionStateManagerTest",
    "shouldRemoveCompleteCommitExpiredTransactionalIds",
    "shouldRemoveCompleteAbortExpiredTransactionalIds",
    "shouldRemoveEmptyExpiredTransactionalIds",
)
@pytest.mark.parametrize("status", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_an_id_that_nobody_used_for_seven_days_is_forgotten_and_no_other(status: str) -> None:
    """Not a millisecond too early; afterwards it is as if it had never been, but for its producer id."""
    log = _in_state(status)
    used_ms, old = log.id().used_ms, log.producer(NAME)
    log.now_ms = used_ms + TRANSACTIONAL_ID_RETENTION_MS - 1
    log.open("other")
    assert log.state.timestamp_ms == log.now_ms
    assert _expired(log) == []
    log.now_ms += 1
    log.do(AllocateIds("the clock", 1))
    assert _expired(log) == [NAME]
    assert list(log.state.transactional_ids) == ["other"]
    for late in (Write(old, rows()), Write(old, end=COMMIT), Write(old, end=ABORT)):
        error = log.refusal(late)
        assert (type(error), error.kind) == (InvalidTransactionStateError, "unknown-transactional-id")
    again = log.open()
    assert again.epoch == 0
    assert again.producer_id > old.producer_id, "an id of a producer is never given twice"
    log.check_reopening()


@case(
    "TransactionStateManagerTest",
    "shouldNotRemoveOngoingTransactionalIds",
    "shouldNotRemovePrepareAbortTransactionalIds",
    "shouldNotRemovePrepareCommitTransactionalIds",
)
@pytest.mark.parametrize("status", ["Ongoing", "Prepared"])
def test_an_id_with_an_undecided_transaction_never_expires(status: str) -> None:
    """However long it takes; and an entry that would forget it is corrupt, whoever wrote it."""
    log = _in_state(status)
    _later(log, 10 * TRANSACTIONAL_ID_RETENTION_MS)
    assert _expired(log) == []
    forced = ExpireIdle(Expire((NAME,), (), ()), log.now_ms, log.now_ms)
    assert log.refusal(forced).kind == "nothing-expired"
    idle = _in_state("Empty")
    _later(idle)
    assert _expired(idle) == [NAME]
    with pytest.raises(CorruptDataError):
        _fold_last(idle, log)
    log.finish(log.producer(NAME), COMMIT)
    assert _expired(log) == [], "its time begins with its end"
    _later(log)
    assert _expired(log) == [NAME]


def _fold_last(source: CoreLog, target: CoreLog) -> None:
    """Fold the operations of the source's last entry into the target's state."""
    operations = decode_entry(source.entries[-1], source.state.entry).operations
    target.do(AllocateIds("template", 1))
    template = decode_entry(target.entries[-1], target.state.entry)
    apply(target.states[-2], replace(template, operations=operations), "0" * 64)


@case("TransactionCoordinatorConcurrencyTest", "testConcurrentTransactionExpiration")
@pytest.mark.parametrize("first", ["use", "expiry"])
@pytest.mark.parametrize("use", ["open", "append"])
def test_of_a_use_and_an_expiry_in_one_entry_the_first_counts(first: str, use: str) -> None:
    """Used first: it stays. Expired first: who opens it gets a new identity, who appends under the old one is
    told."""
    log = _in_state("CompleteCommit")
    old = log.producer(NAME)
    _later(log)
    wanted = expirable(log.state, log.now_ms)
    assert wanted is not None
    action = OpenProducer(NAME) if use == "open" else Write(old, rows())
    used, expiry = log.intent(action), log.intent(wanted)
    made = log.assemble(*((used, expiry) if first == "use" else (expiry, used)))
    assert check_whole(log.state) == []
    if first == "use":
        assert isinstance(made.verdicts[used.intent_id], Included)
        assert log.id().producer_id == old.producer_id
    else:
        assert isinstance(made.verdicts[expiry.intent_id], Included)
        if use == "open":
            assert log.producer(NAME) == replace(old, producer_id=log.id().producer_id, epoch=0)
            assert log.id().producer_id > old.producer_id
        else:
            assert NAME not in log.state.transactional_ids
            assert log.refusal(action).kind == "unknown-transactional-id"
    log.check_reopening()


@case(
    "TransactionStateManagerTest",
    "testTransactionalExpirationWithTooSmallBatchSize",
    "testTransactionExpirationShouldRespectBatchSize",
)
def test_many_ids_expire_in_several_entries_each_of_bounded_size() -> None:
    """A message that is too large stopped Kafka's expiry (KAFKA-13099): here an entry takes 1,000, and the
    next goes on."""
    clock = QuickClock()
    store = MemoryStore(clock)
    log = TxnLog.create(store, clock=clock)
    count = 2 * EXPIRED_MAX + 500
    names = [f"{number:04d}-" + "ä" * 122 for number in range(count)]
    intents = [log.committer.intend(OpenProducer(name)) for name in names]
    log.committer.commit_together(intents)
    clock.sleep(TRANSACTIONAL_ID_RETENTION_MS / 1_000 + 1)
    log.create_topic("the-clock", NUMBERS)
    entry = log.refresh().entry
    assert log.maintain("expire").expired_transactional_ids == count
    assert log.refresh().entry == entry + 3
    assert log.state.transactional_ids == {}


@case("TransactionStateManagerTest", "shouldNotRemoveExpiredTransactionalIdsIfLogAppendFails")
def test_an_expiry_that_the_store_refuses_has_forgotten_nothing_and_can_be_repeated() -> None:
    plan = Plan()
    clock = QuickClock()
    store = MemoryStore(clock)
    log = TxnLog.create(store, clock=clock)
    with Producer(log, NAME):
        pass
    clock.sleep(TRANSACTIONAL_ID_RETENTION_MS / 1_000 + 1)
    log.create_topic("the-clock", NUMBERS)
    failing = TxnLog.open(FaultyStore(store, plan), clock=clock)
    plan.always(*ENTRY, Fault(FaultKind.DISK_FULL))
    for _ in range(2):
        with pytest.raises(StorageError):
            failing.maintain("expire")
        assert list(failing.refresh().transactional_ids) == [NAME]
    plan.clear()
    assert failing.maintain("expire").expired_transactional_ids == 1


@case(
    "TransactionStateManagerTest",
    "testTransactionExpirationShouldNotFailWithUninitializedTransactionMetadata",
)
def test_an_id_whose_first_init_failed_is_not_there_at_all() -> None:
    """Kafka keeps an empty shell of it in memory, which its expiry once failed on."""
    plan = Plan()
    log = faulty(plan)
    plan.always(*ENTRY, Fault(FaultKind.DISK_FULL))
    with pytest.raises(StorageError):
        Producer(log, NAME).init()
    plan.clear()
    assert NAME not in log.refresh().transactional_ids
    log.committer.clock.sleep(2 * TRANSACTIONAL_ID_RETENTION_MS / 1_000)
    log.create_topic("the-clock", NUMBERS)
    assert log.maintain("expire").expired_transactional_ids == 0


@case("TransactionCoordinatorConcurrencyTest", "testConcurrentTransactionExpiration")
def test_sweepers_that_expire_at_once_forget_each_id_once_and_disturb_nobody() -> None:
    clock = QuickClock()
    store = MemoryStore(clock)
    log = TxnLog.create(store, clock=clock)
    log.create_topic("t", NUMBERS)
    for number in range(20):
        Producer(log, f"idle {number}").init()
    clock.sleep(TRANSACTIONAL_ID_RETENTION_MS / 1_000 + 1)
    busy = Producer(log, "busy")
    busy.init()
    expired: list[int] = []

    def sweep() -> None:
        expired.append(TxnLog.open(store, clock=clock).maintain("expire").expired_transactional_ids)

    threads = [threading.Thread(target=sweep, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(5):
        with busy.transaction() as txn:
            txn.send("t", records(number))
    for thread in threads:
        thread.join(300)
    assert sum(expired) == 20
    assert list(log.refresh().transactional_ids) == ["busy"]
    assert log.read("t").read_all().num_rows == 5


@case("TransactionCoordinatorTest", "testDescribeTransactionsWithExpiringTransactionalId")
def test_an_expired_id_is_described_as_unknown_and_listed_by_nobody() -> None:
    """Dead is a state that nobody can see: the entry that forgets the id is one step."""
    clock = QuickClock()
    log = TxnLog.create(MemoryStore(clock), clock=clock)
    Producer(log, NAME).init()
    assert log.transactions.describe(NAME).state is TransactionStatus.EMPTY
    clock.sleep(TRANSACTIONAL_ID_RETENTION_MS / 1_000 + 1)
    log.create_topic("the-clock", NUMBERS)
    assert log.transactions.describe(NAME).state is TransactionStatus.EMPTY, "until somebody forgets it"
    log.maintain("expire")
    with pytest.raises(NotFoundError) as caught:
        log.transactions.describe(NAME)
    assert caught.value.kind == "unknown-transactional-id"
    assert log.transactions.list() == ()


def test_what_is_not_idle_any_more_is_left_out_of_an_expiry_that_was_wanted_before() -> None:
    log = CoreLog()
    for name in ("one", "two"):
        log.open(name)
    _later(log)
    wanted = expirable(log.state, log.now_ms)
    assert wanted is not None
    log.open("two")
    (done,) = log.apply(wanted)
    assert isinstance(done, Expire)
    assert done.transactional_ids == ("one",)
    assert isinstance(log.refusal(wanted), ConflictError)
