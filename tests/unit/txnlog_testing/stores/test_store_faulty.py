"""The fault wrapper: each kind does at the store what its name says, and the caller sees what it would
see.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from txnformat.errors import InvalidInputError, StorageError
from txnformat.store.base import CreateOutcome
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import RequestKind
from txnlog_testing.stores.faulty import (
    FAULTS_OF,
    Fault,
    FaultCounter,
    FaultKind,
    FaultyStore,
    Gate,
    Landed,
    Schedule,
    SimulatedCrash,
)


def _first(fault: Fault, *operations: RequestKind) -> Schedule:
    """Plan one fault for the first call of each key."""

    def schedule(operation: RequestKind, key: str, nth: int) -> Fault | None:
        return fault if nth == 1 and (not operations or operation in operations) else None

    return schedule


def _stores(fault: Fault, *operations: RequestKind) -> tuple[MemoryStore, FaultyStore]:
    inner = MemoryStore()
    return inner, FaultyStore(inner, _first(fault, *operations))


CREATES = [
    (Fault(FaultKind.FAIL_BEFORE), False, CreateOutcome.AMBIGUOUS, "no-answer"),
    (Fault(FaultKind.APPLIED_LOST_ANSWER), True, CreateOutcome.AMBIGUOUS, "no-answer"),
    (Fault(FaultKind.CONFLICT_409), False, CreateOutcome.AMBIGUOUS, "conflict"),
    (Fault(FaultKind.EXISTS_AFTER_OWN_SUCCESS), True, CreateOutcome.EXISTS, None),
    (Fault(FaultKind.SERVER_ERROR, applied=True), True, CreateOutcome.AMBIGUOUS, "server-error"),
    (Fault(FaultKind.SERVER_ERROR), False, CreateOutcome.AMBIGUOUS, "server-error"),
    (Fault(FaultKind.DISK_FULL), False, CreateOutcome.REFUSED, "disk-full"),
    (Fault(FaultKind.READ_ONLY), False, CreateOutcome.REFUSED, "read-only-store"),
    (Fault(FaultKind.PERMISSION_DENIED), False, CreateOutcome.REFUSED, "permission-denied"),
]


@pytest.mark.parametrize(("fault", "applied", "outcome", "kind"), CREATES)
def test_a_create_with_a_fault(fault: Fault, applied: bool, outcome: CreateOutcome, kind: str | None) -> None:
    inner, store = _stores(fault)
    result = store.create("a", b"x")
    assert result.outcome is outcome
    assert (result.error.kind if result.error else None) == kind
    assert (inner.get("a") is not None) == applied
    # The second call of the same key is not planned.
    assert store.create("a", b"x").outcome is (CreateOutcome.EXISTS if applied else CreateOutcome.CREATED)
    assert store.counter.hits == {**dict.fromkeys(FaultKind, 0), fault.kind: 1}


def test_the_status_is_told() -> None:
    for fault, status in (
        (Fault(FaultKind.CONFLICT_409), 409),
        (Fault(FaultKind.SERVER_ERROR, status=500), 500),
    ):
        error = _stores(fault)[1].create("a", b"x").error
        assert error is not None
        assert error.transient
        assert error.values["status"] == status


def test_a_fault_of_a_lost_create_does_not_replace() -> None:
    inner, store = _stores(Fault(FaultKind.APPLIED_LOST_ANSWER))
    inner.create("a", b"other")
    assert store.create("a", b"x").outcome is CreateOutcome.AMBIGUOUS
    assert inner.get("a") == b"other"


@pytest.mark.parametrize("rival", [False, True])
def test_a_late_create_wins_or_loses_when_it_is_released(rival: bool) -> None:
    inner, store = _stores(Fault(FaultKind.APPLIED_LATE), RequestKind.CREATE)
    assert store.create("a", b"late").outcome is CreateOutcome.AMBIGUOUS
    assert store.get("a") is None
    assert store.pending == 1
    if rival:
        inner.create("a", b"rival")
    (landed,) = store.release()
    assert isinstance(landed, Landed)
    assert (landed.operation, landed.key) == (RequestKind.CREATE, "a")
    assert landed.result is not None
    assert landed.result.outcome is (CreateOutcome.EXISTS if rival else CreateOutcome.CREATED)
    assert inner.get("a") == (b"rival" if rival else b"late")
    assert store.release() == []


def test_a_late_create_lands_before_the_request_it_was_planned_for() -> None:
    inner, store = _stores(Fault(FaultKind.APPLIED_LATE, late_by=2), RequestKind.CREATE)
    store.create("a", b"late")
    assert store.get("a") is None
    assert store.get("a") == b"late"
    assert store.pending == 0
    assert inner.get("a") == b"late"


def test_late_puts_and_deletes_land_in_order() -> None:
    inner, store = _stores(Fault(FaultKind.APPLIED_LATE), RequestKind.PUT, RequestKind.DELETE)
    inner.put("b", b"there")
    calls: list[Callable[[], object]] = [lambda: store.put("a", b"late"), lambda: store.delete("b")]
    for call in calls:
        with pytest.raises(StorageError) as caught:
            call()
        assert caught.value.transient
    assert (inner.get("a"), inner.get("b")) == (None, b"there")
    assert [landed.operation for landed in store.release()] == [RequestKind.PUT, RequestKind.DELETE]
    assert (inner.get("a"), inner.get("b")) == (b"late", None)


@pytest.mark.parametrize(
    ("kind", "applied"), [(FaultKind.CRASH_BEFORE, False), (FaultKind.CRASH_AFTER, True)]
)
def test_after_a_crash_the_process_can_do_nothing_more(kind: FaultKind, applied: bool) -> None:
    inner, store = _stores(Fault(kind), RequestKind.CREATE)
    with pytest.raises(SimulatedCrash):
        store.create("a", b"x")
    assert (inner.get("a") is not None) == applied
    assert store.crashed
    calls: list[Callable[[], object]] = [
        lambda: store.get("a"),
        lambda: store.get_range("a", 0, 1),
        lambda: store.head("a"),
        lambda: store.create("b", b""),
        lambda: store.put("b", b""),
        lambda: store.open_write("b"),
        lambda: store.list(""),
        lambda: store.delete("a"),
    ]
    for call in calls:
        with pytest.raises(SimulatedCrash):
            call()
    assert inner.get("b") is None


def test_what_a_crashed_process_had_sent_still_arrives() -> None:
    inner = MemoryStore()
    plan = {"a": Fault(FaultKind.APPLIED_LATE), "b": Fault(FaultKind.CRASH_BEFORE)}
    store = FaultyStore(inner, lambda operation, key, nth: plan[key])
    store.create("a", b"late")
    with pytest.raises(SimulatedCrash):
        store.create("b", b"x")
    store.release()
    assert (inner.get("a"), inner.get("b")) == (b"late", None)


def test_a_crash_is_no_exception_that_code_may_survive() -> None:
    assert not issubclass(SimulatedCrash, Exception)


READS: list[Callable[[FaultyStore], object]] = [
    lambda store: store.get("a"),
    lambda store: store.get_range("a", 0, 1),
    lambda store: store.head("a"),
    lambda store: store.list("a"),
]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("kind", [FaultKind.FAIL_BEFORE, FaultKind.SERVER_ERROR])
def test_a_failed_read_raises_once_and_may_be_repeated(
    read: Callable[[FaultyStore], object], kind: FaultKind
) -> None:
    inner, store = _stores(Fault(kind))
    inner.put("a", b"x")
    with pytest.raises(StorageError) as caught:
        read(store)
    assert caught.value.transient
    assert read(store)


@pytest.mark.parametrize(
    ("kind", "applied"), [(FaultKind.FAIL_BEFORE, False), (FaultKind.APPLIED_LOST_ANSWER, True)]
)
def test_a_put_or_a_delete_with_a_fault(kind: FaultKind, applied: bool) -> None:
    inner, store = _stores(Fault(kind))
    inner.put("b", b"there")
    calls: list[Callable[[], object]] = [lambda: store.put("a", b"x"), lambda: store.delete("b")]
    for call in calls:
        with pytest.raises(StorageError):
            call()
    assert (inner.get("a") is not None) == applied
    assert (inner.get("b") is None) == applied


# -- streamed uploads ----------------------------------------------------------------------------------------


def test_a_stream_that_cannot_be_opened() -> None:
    _, store = _stores(Fault(FaultKind.DISK_FULL, after_bytes=0))
    with pytest.raises(StorageError) as caught:
        store.open_write("a")
    assert caught.value.kind == "disk-full"


def test_a_stream_that_fails_in_the_middle_is_gone() -> None:
    inner, store = _stores(Fault(FaultKind.DISK_FULL, after_bytes=5))
    writer = store.open_write("a")
    writer.write(b"1234")
    with pytest.raises(StorageError) as caught:
        writer.write(b"5678")
    assert caught.value.kind == "disk-full"
    with pytest.raises(StorageError) as caught:
        writer.close()
    assert caught.value.kind == "upload-ended"
    assert inner.get("a") is None


def test_a_stream_whose_process_crashes_in_the_middle_cleans_nothing_up(tmp_path: Path) -> None:
    """The bytes before the crash are at the store, unseen; the ``with`` block aborts nothing."""
    inner = LocalStore(tmp_path)
    store = FaultyStore(inner, _first(Fault(FaultKind.CRASH_BEFORE, after_bytes=5)))
    writer = store.open_write("a")
    with pytest.raises(SimulatedCrash), writer:
        writer.write(b"123456")
    with pytest.raises(SimulatedCrash):
        writer.close()
    (leftover,) = tmp_path.iterdir()
    assert leftover.read_bytes() == b"12345"
    assert inner.list("") == []


@pytest.mark.parametrize(
    ("kind", "visible", "error"),
    [
        (FaultKind.FAIL_BEFORE, False, "no-answer"),
        (FaultKind.APPLIED_LOST_ANSWER, True, "no-answer"),
        (FaultKind.EXISTS_AFTER_OWN_SUCCESS, True, "object-exists"),
        (FaultKind.READ_ONLY, False, "read-only-store"),
        (FaultKind.CRASH_BEFORE, False, None),
        (FaultKind.CRASH_AFTER, True, None),
    ],
)
def test_a_stream_that_fails_when_it_is_closed(kind: FaultKind, visible: bool, error: str | None) -> None:
    inner, store = _stores(Fault(kind))
    writer = store.open_write("a")
    writer.write(b"x")
    with pytest.raises(StorageError if error else SimulatedCrash) as caught:
        writer.close()
    assert getattr(caught.value, "kind", None) == error
    assert (inner.get("a") == b"x") == visible


# -- plans, counters, gates ----------------------------------------------------------------------------------


def test_the_plan_sees_operation_key_and_number() -> None:
    seen: list[tuple[RequestKind, str, int]] = []

    def schedule(operation: RequestKind, key: str, nth: int) -> Fault | None:
        seen.append((operation, key, nth))
        return None

    store = FaultyStore(MemoryStore(), schedule)
    store.get("a")
    store.get("b")
    store.get("a")
    store.list("a", "b")
    store.open_write("a").close()
    assert seen == [
        (RequestKind.GET, "a", 1),
        (RequestKind.GET, "b", 1),
        (RequestKind.GET, "a", 2),
        (RequestKind.LIST, "a", 1),
        (RequestKind.OPEN_WRITE, "a", 1),
    ]


def test_an_impossible_fault_is_refused_and_not_counted() -> None:
    _, store = _stores(Fault(FaultKind.CONFLICT_409))
    with pytest.raises(InvalidInputError) as caught:
        store.get("a")
    assert caught.value.kind == "invalid-fault"
    assert not any(store.counter.hits.values())


def test_every_kind_can_strike_a_create_and_every_operation_has_kinds() -> None:
    assert FAULTS_OF[RequestKind.CREATE] == set(FaultKind)
    assert set(FAULTS_OF) == set(RequestKind)


def test_stores_can_share_a_counter() -> None:
    counter = FaultCounter()
    plan = _first(Fault(FaultKind.FAIL_BEFORE))
    for _ in range(2):
        FaultyStore(MemoryStore(), plan, counter).create("a", b"")
    assert counter.hits[FaultKind.FAIL_BEFORE] == 2


def test_a_gate_holds_the_first_create_and_only_that() -> None:
    gate = Gate()
    inner = MemoryStore()
    store = FaultyStore(inner, before_create=gate)
    thread = threading.Thread(target=store.create, args=("held", b"x"))
    thread.start()
    gate.wait_until_held()
    assert store.create("later", b"x").outcome is CreateOutcome.CREATED
    assert inner.get("held") is None
    gate.open()
    thread.join()
    assert inner.get("held") == b"x"
