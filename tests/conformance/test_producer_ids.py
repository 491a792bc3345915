"""Producer ids: blocks of them, who gets which, and what becomes of a request for one that fails."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.conformance.cases import ROOT, case
from tests.conformance.core_log import CoreLog
from tests.integration.clients.failing import ENTRY, Plan, faulty
from txnformat.core.entry import decode_entry
from txnformat.core.fold import apply
from txnformat.core.intents import AllocateIds
from txnformat.core.operations import AllocateProducerIds
from txnformat.errors import CorruptDataError
from txnformat.persistent import replace
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import CommitStateUnknownError, Producer, StorageError, TxnLog
from txnlog_testing.entries import replaced_in_entry
from txnlog_testing.stores.faulty import Fault, FaultKind


def _id(log: TxnLog) -> int:
    producer = Producer(log)
    producer.init()
    assert producer.producer_id is not None
    return producer.producer_id


def _blocks(log: TxnLog) -> list[tuple[int, int]]:
    return [(block.first, block.last) for block in log.refresh().blocks.values()]


@case("ProducerIdManagerTest", "testConcurrentGeneratePidRequests")
def test_threads_share_a_block_and_get_the_next_when_it_is_used_up() -> None:
    log = faulty(Plan())
    taken: list[list[int]] = []

    def take() -> None:
        taken.append([_id(log) for _ in range(300)])

    threads = [threading.Thread(target=take, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert sorted(number for ids in taken for number in ids) == list(range(2_400))
    assert _blocks(log) == [(0, 999), (1_000, 1_999), (2_000, 2_999)]


@case("ProducerIdsIntegrationTest", "testUniqueProducerIds")
def test_processes_never_get_the_same_id(tmp_path: Path) -> None:
    """Two processes at once, each beyond its first block."""
    path = str(tmp_path / "log")
    TxnLog.create(path).close()
    command = [sys.executable, "-m", "tests.conformance.racing_producer", "ids", path, "1200"]
    running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    given: list[int] = []
    for process in running:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        given += json.loads(output)
    assert len(given) == len(set(given)) == 2_400
    with TxnLog.open(path) as log:
        blocks = _blocks(log)
        assert len(blocks) == 4
        assert all(first == 1_000 * number for number, (first, _) in enumerate(blocks))
        assert _id(log) == 4_000


@case("ProducerIdManagerTest", "testUnrecoverableErrors", "testRetryBackoffOnAuthException")
@pytest.mark.parametrize("kind", [FaultKind.PERMISSION_DENIED, FaultKind.READ_ONLY, FaultKind.DISK_FULL])
def test_a_refused_request_for_ids_is_told_at_once_and_loses_no_id(kind: FaultKind) -> None:
    """It is not repeated behind the caller's back; the next call asks again."""
    plan = Plan()
    log = faulty(plan)
    plan.always(*ENTRY, Fault(kind))
    for tries in range(1, 4):
        with pytest.raises(StorageError) as caught:
            _id(log)
        assert not caught.value.transient
        assert plan.seen[ENTRY] == tries
    plan.clear()
    assert [_id(log), _id(log)] == [0, 1]
    assert _blocks(log) == [(0, 999)]


@case("ProducerIdManagerTest", "testRetryBackoff")
@pytest.mark.parametrize("fault", [Fault(FaultKind.SERVER_ERROR), Fault(FaultKind.CONFLICT_409)])
def test_a_request_that_fails_for_now_is_repeated_after_a_while(fault: Fault) -> None:
    """Within the call, and not at once: time passes before each repeat, more before a later one."""
    plan = Plan()
    log = faulty(plan)
    log.refresh()
    started = log.committer.clock.now().wall_ms
    plan.next(*ENTRY, fault)
    assert _id(log) == 0
    once = log.committer.clock.now().wall_ms - started
    assert once > 0
    plan.clear()
    plan = Plan()
    log = faulty(plan)
    log.refresh()
    started = log.committer.clock.now().wall_ms
    plan.next(*ENTRY, *[fault] * 6)
    assert _id(log) == 0
    assert log.committer.clock.now().wall_ms - started > once
    assert plan.seen[ENTRY] == 7
    assert _blocks(log) == [(0, 999)]


@case("ProducerIdManagerTest", "testRetryBackoffOnNoResponse")
@pytest.mark.parametrize(
    ("kind", "landed"), [(FaultKind.APPLIED_LOST_ANSWER, True), (FaultKind.FAIL_BEFORE, False)]
)
def test_a_request_without_an_answer_is_repeated_as_the_same_request(kind: FaultKind, landed: bool) -> None:
    """If it had landed the block is ours; a second block is never taken for it."""
    plan = Plan()
    log = faulty(plan)
    plan.next(*ENTRY, Fault(kind))
    plan.always(*ENTRY, Fault(FaultKind.FAIL_BEFORE))
    plan.always(RequestKind.GET, KeyClass.ENTRY, Fault(FaultKind.FAIL_BEFORE))
    for _ in range(2):
        with pytest.raises((CommitStateUnknownError, StorageError)):
            _id(log)
    plan.clear()
    assert _id(log) == 0
    assert _blocks(log) == [(0, 999)]


@case("ProducerIdManagerTest", "testInvalidRanges", "testSanityCheckProhibitsOverlappingBlocks")
@pytest.mark.parametrize(
    ("first", "last"), [(-1, 9), (10, 9), (5, 14), (0, 9), (11, 20), (10, 2**62)], ids=str
)
def test_a_block_that_overlaps_leaves_a_gap_or_is_empty_is_refused_by_whoever_reads_it(
    first: int, last: int
) -> None:
    """Only the next id on may be given: in memory, and in the bytes of an entry."""
    log = CoreLog(AllocateIds("one", 10))
    log.apply(AllocateIds("two", 10))
    good = decode_entry(log.entries[-1], log.state.entry)
    (block,) = good.operations
    assert isinstance(block, AllocateProducerIds)
    assert (block.first, block.last) == (10, 19)
    before = log.states[-2]
    data = replaced_in_entry(log.entries[-1], b'"first":10', f'"first":{first}'.encode())
    data = replaced_in_entry(data, b'"last":19', f'"last":{last}'.encode())
    assert data != log.entries[-1]
    with pytest.raises(CorruptDataError):
        apply(before, decode_entry(data, log.state.entry), "0" * 64)
    if first <= last and first >= 0:
        with pytest.raises(CorruptDataError):
            apply(before, replace(good, operations=(replace(block, first=first, last=last),)), "0" * 64)
