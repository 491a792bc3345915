"""Metrics: what they say of partitions, transactions and commits, and that Prometheus reads them."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.clients.failing import ENTRY, Plan, QuickClock, unclear_commit
from tests.unit.admin.actors import DAY, Actors
from txnformat.admin.metrics import METRICS, LogMetrics, PartitionMetrics
from txnformat.client.commit_counts import CommitOutcome
from txnformat.core.intents import AllocateIds
from txnformat.core.operations import TIMEOUT_MS, Cause
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import ConflictError, Producer, TxnLog, TxnLogError
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

NUMBERS = pa.schema([("n", pa.int64())])


def rows(count: int) -> pa.Table:
    return pa.table({"n": range(count)}, schema=NUMBERS)


def opened(log: TxnLog, name: str) -> Producer:
    """Return a producer with a transaction of 3 records that nobody ends."""
    producer = Producer(log, name, buffer="inline")
    producer.init()
    producer.begin()
    producer.send("t", rows(3), partition=0)
    producer.flush()
    return producer


def parsed(metrics: LogMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return what Prometheus' own client reads, by name and labels without ``log``."""
    found = {}
    for family in text_string_to_metric_families(metrics.to_prometheus()):
        for sample in family.samples:
            assert sample.labels["log"] == metrics.url
            labels = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "log"))
            assert (sample.name, labels) not in found, "a sample is there twice"
            found[sample.name, labels] = sample.value
    return found


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()


@pytest.fixture
def log(clock: QuickClock) -> TxnLog:
    log = TxnLog.create(MemoryStore(clock), clock=clock)
    log.create_topic("t", NUMBERS, partitions=2)
    return log


def partition(log: TxnLog, number: int = 0) -> PartitionMetrics:
    return log.metrics().partitions[number]


def test_an_open_transaction_shows_as_lag_and_grows_old(log: TxnLog, clock: QuickClock) -> None:
    with Producer(log) as producer:
        producer.send("t", rows(10), partition=0)
    assert partition(log).lag == 0
    assert partition(log).oldest_transaction is None
    older, younger = opened(log, "older"), opened(log, "younger")
    clock.sleep(TIMEOUT_MS / 1000 - 1)
    measured = log.metrics()
    found = measured.partitions[0]
    assert (found.log_end, found.last_stable_offset, found.lag) == (16, 10, 6)
    assert (found.open_transactions, found.late_transactions, measured.late_transactions) == (2, 0, 0)
    assert found.oldest_transaction is not None
    assert (found.oldest_transaction.transactional_id, found.oldest_transaction.first_offset) == ("older", 10)
    assert found.oldest_transaction.producer_id == older.producer_id
    assert TIMEOUT_MS - 2_000 < found.oldest_transaction.age_ms <= TIMEOUT_MS
    clock.sleep(2)  # nobody writes: the log's own time stands still, and still they grow older
    measured = log.metrics()
    assert (measured.partitions[0].late_transactions, measured.late_transactions) == (2, 2)
    assert measured.partitions[1].open_transactions == 0
    older.commit()  # late, but before anybody ended it; its entry ends the other
    assert partition(log).oldest_transaction is None
    assert log.outcome("younger", 0).cause is Cause.TIMEOUT
    younger.abort()
    assert partition(log).lag == 0


def test_late_is_what_outlived_its_own_time_and_prepared_is_counted_apart() -> None:
    actors = Actors()
    actors.begin("short", 0, timeout_ms=1_000)
    actors.begin("long", 0, timeout_ms=600_000)
    actors.stage("staged")
    actors.prepare("bank")
    actors.wait(30_000)
    measured = actors.log.metrics()
    assert (measured.late_transactions, measured.prepared_transactions) == (1, 1)
    found = measured.partitions[0]
    assert (found.open_transactions, found.late_transactions, found.prepared_transactions) == (3, 1, 1)
    assert measured.oldest_prepared is not None
    assert measured.oldest_prepared.transactional_id == "bank"
    assert 29_000 < measured.oldest_prepared.age_ms <= 30_000
    actors.wait(DAY)
    measured = actors.log.metrics()
    assert measured.late_transactions == 3, "the staged one, too; a prepared one is never late"
    assert measured.partitions[0].late_transactions == 2
    values = parsed(measured)
    assert values["txnlog_late_transactions", ()] == 3
    assert values["txnlog_prepared_transactions", ()] == 1
    age = values["txnlog_oldest_prepared_transaction_age_seconds", (("transactional_id", "bank"),)]
    assert age > DAY / 1000


def test_the_aborted_share_counts_decided_records(log: TxnLog) -> None:
    with Producer(log) as producer:
        producer.send("t", rows(9), partition=0)
    opened(log, "aborted").abort()
    opened(log, "committed").commit()
    opened(log, "open")
    found = partition(log)
    assert (found.records, found.aborted_records) == (15, 3)
    assert found.aborted_share == 0.2
    assert 0 < found.aborted_bytes < found.bytes
    assert 0 < found.aborted_bytes_share < 1
    assert partition(log, 1).aborted_share == 0.0


def test_sealing_changes_no_count_of_records(log: TxnLog) -> None:
    opened(log, "aborted").abort()
    opened(log, "committed").commit()
    before = log.metrics()
    log.maintain("seal")
    opened(log, "aborted").abort()
    after = log.metrics()
    assert after.unsealed_extents == 1
    assert before.unsealed_extents == 2
    (old, new) = (before.partitions[0], after.partitions[0])
    assert (new.records, new.aborted_records) == (old.records + 3, old.aborted_records + 3)
    assert new.bytes == old.bytes * 3 // 2
    assert new.aborted_bytes == 2 * old.aborted_bytes


def test_the_log_as_a_whole(log: TxnLog) -> None:
    opened(log, "open")
    opened(log, "done").commit()
    measured = log.metrics()
    assert measured.entries == measured.entry + 1 == log.state.entry + 1
    assert measured.tail_entries == measured.entries
    assert measured.unsealed_extents == 2
    assert measured.topics == 1
    assert measured.transactional_ids == {
        "Empty": 0,
        "Ongoing": 1,
        "Prepared": 0,
        "CompleteCommit": 1,
        "CompleteAbort": 0,
    }
    plain = measured.to_dict()
    assert plain["partitions"][0]["lag"] == measured.partitions[0].lag
    assert plain["commits"]["outcomes"]["committed"] == measured.commits.outcomes[CommitOutcome.COMMITTED]


def test_commits_are_counted_by_what_became_of_them(clock: QuickClock) -> None:
    plan = Plan()
    store = MemoryStore(clock)
    TxnLog.create(store, clock=clock)
    log = TxnLog.open(FaultyStore(store, plan), clock=clock)
    committer = log.committer
    intent = committer.intend(AllocateIds("p", 1))
    committer.commit(intent)
    committer.commit(intent)
    log.create_topic("t", NUMBERS)
    with pytest.raises(ConflictError):
        log.create_topic("t", NUMBERS)
    plan.next(*ENTRY, Fault(FaultKind.DISK_FULL))
    with pytest.raises(TxnLogError):
        committer.commit(committer.intend(AllocateIds("p", 1)))
    unclear_commit(plan, FaultKind.FAIL_BEFORE)
    with pytest.raises(TxnLogError):
        committer.commit(committer.intend(AllocateIds("p", 1)))
    counts = committer.counter.counts
    assert dict(counts.outcomes) == {
        CommitOutcome.COMMITTED: 2,
        CommitOutcome.ALREADY_DONE: 1,
        CommitOutcome.CONFLICT: 1,
        CommitOutcome.FAILED: 1,
        CommitOutcome.UNKNOWN: 1,
    }
    assert counts.wait_ms.count == 6
    assert counts.wait_ms.max >= 500  # the unclear one waited and asked again
    assert counts.wait_ms.sum >= counts.wait_ms.max
    assert (counts.group_size.count, counts.group_size.sum, counts.group_size.max) == (6, 6, 1)
    assert counts.attempts > 4


def test_a_rejected_commit_is_told_from_a_conflict(log: TxnLog) -> None:
    with Producer(log, "p") as first:
        first.begin()
        first.send("t", rows(1))
        with Producer(log, "p"), pytest.raises(TxnLogError):
            first.commit()
        assert log.metrics().commits.outcomes[CommitOutcome.REJECTED] == 1


def test_a_lost_slot_is_one_more_attempt(log: TxnLog) -> None:
    before = log.metrics().commits
    other = TxnLog.open(log.store, clock=log.committer.clock)
    other.committer.commit(other.committer.intend(AllocateIds("p", 1)))
    log.committer.commit(log.committer.intend(AllocateIds("p", 1)))
    after = log.metrics().commits
    assert after.attempts - before.attempts == 2
    assert after.outcomes[CommitOutcome.COMMITTED] - before.outcomes[CommitOutcome.COMMITTED] == 1


def test_many_threads_lose_no_count(log: TxnLog) -> None:
    before = log.metrics().commits

    def commit() -> None:
        for _ in range(25):
            log.committer.commit(log.committer.intend(AllocateIds("p", 1)))

    threads = [threading.Thread(target=commit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()  # waits for the snapshot: a commit counts its group before its outcome
    after = log.metrics().commits
    assert after.outcomes[CommitOutcome.COMMITTED] - before.outcomes[CommitOutcome.COMMITTED] >= 200
    assert after.group_size.sum - before.group_size.sum == after.wait_ms.count - before.wait_ms.count
    assert after.group_size.max <= 8 + 1  # the snapshot in the background too


def test_requests_are_counted_by_operation_and_object(log: TxnLog) -> None:
    before = log.metrics().commits.requests
    log.refresh()
    after = log.metrics().commits.requests
    key = (RequestKind.GET, KeyClass.ENTRY)
    assert after[key] - before[key] == 2


# --- Prometheus ---------------------------------------------------------------------------------------------


def test_prometheus_own_parser_reads_every_value(log: TxnLog) -> None:
    opened(log, "open")
    measured = log.metrics()
    found = parsed(measured)
    zero = (("partition", "0"), ("topic", "t"))
    assert found["txnlog_partition_log_end_offset", zero] == 3
    assert found["txnlog_partition_last_stable_offset", zero] == 0
    assert found["txnlog_partition_last_stable_offset_lag", zero] == 3
    assert found["txnlog_partition_open_transactions", zero] == 1
    held = (("partition", "0"), ("topic", "t"), ("transactional_id", "open"))
    assert found["txnlog_partition_oldest_transaction_first_offset", held] == 0
    assert found["txnlog_entries_total", ()] == measured.entries
    assert found["txnlog_commits_total", (("outcome", "committed"),)] == 3
    assert found["txnlog_commits_total", (("outcome", "rejected"),)] == 0
    assert found["txnlog_commit_group_size_sum", ()] == 3
    assert found["txnlog_commit_wait_seconds_count", ()] == 3
    assert found["txnlog_requests_total", (("object", "entry"), ("operation", "create"))] == 4


def test_every_metric_is_declared_and_named_by_prometheus_rules() -> None:
    actors = Actors()
    actors.prepare("bank")
    log = actors.log
    log.groups.reset_offsets("readers", "orders", to="earliest", create=True)
    families = list(text_string_to_metric_families(log.metrics().to_prometheus()))
    # The parser gives a counter's family without its suffix.
    names = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    assert names == set(METRICS)
    for family in families:
        name = family.name + ("_total" if family.type == "counter" else "")
        assert (family.type, family.documentation) == (METRICS[name].type, METRICS[name].help)
        for sample in family.samples:
            assert set(sample.labels) == {"log", *METRICS[name].labels}
    for metric in METRICS.values():
        assert metric.name.endswith("_total") == (metric.type == "counter")
        assert "_ms" not in metric.name


@pytest.mark.parametrize("name", ['quote "', "back\\slash", "new\nline", "\\n", "emoji 🚀", "{,}= "])
def test_any_transactional_id_survives_as_a_label(log: TxnLog, name: str) -> None:
    opened(log, name)
    labels = (("partition", "0"), ("topic", "t"), ("transactional_id", name))
    assert parsed(log.metrics())["txnlog_partition_oldest_transaction_first_offset", labels] == 0


def test_an_empty_log_has_metrics() -> None:
    measured = TxnLog.create(MemoryStore()).metrics()
    assert measured.entries == 0
    assert measured.partitions == ()
    assert parsed(measured)["txnlog_entries_total", ()] == 0
