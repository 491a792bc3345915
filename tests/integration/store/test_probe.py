"""Stores that do not keep their promise are refused before anything of a log is written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from txnformat.clock import SystemIds
from txnformat.errors import StorageError, UnsupportedStoreError
from txnformat.store.base import CreateOutcome, CreateResult, ObjectInfo
from txnformat.store.local import LocalStore
from txnformat.store.probe import RACERS, ensure_fit, probe_store, require_fit
from txnformat.store.requests import RequestKind
from txnlog import TxnLog
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

NUMBERS = pa.schema([("n", pa.int64())])


class Overwriting(LocalStore):
    """Ignores the condition, as stores do that do not know If-None-Match."""

    def create(self, key: str, data: bytes) -> CreateResult:
        self.put(key, data)
        return CreateResult(CreateOutcome.CREATED)


class Racing(LocalStore):
    """Checks the condition first and writes then; the barrier makes all creators meet in between.

    All of them, so that it depends on no scheduling: nobody writes before everybody has looked.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._barrier = threading.Barrier(RACERS)

    def create(self, key: str, data: bytes) -> CreateResult:
        if self.head(key) is not None:
            return CreateResult(CreateOutcome.EXISTS)
        self._barrier.wait(300)  # for a probe that has fewer racers: an error, not a hang
        self.put(key, data)
        return CreateResult(CreateOutcome.CREATED)


class Stale(LocalStore):
    """Reads do not see new objects."""

    def get(self, key: str, bytes_max: int | None = None) -> bytes | None:
        return None


class StaleListing(LocalStore):
    """Listings do not see new objects."""

    def list(self, prefix: str, start_after: str | None = None) -> Sequence[ObjectInfo]:
        return []


@pytest.mark.parametrize(
    ("store", "failing"),
    [
        (Overwriting, "one-winner"),
        (Racing, "one-winner"),
        (Stale, "read-after-write"),
        (StaleListing, "list-after-write"),
    ],
)
def test_a_store_that_breaks_its_promise_gets_no_log(
    store: Callable[[Path], LocalStore], failing: str, tmp_path: Path
) -> None:
    checks = probe_store(store(tmp_path / "a"), SystemIds())
    assert [check.name for check in checks if not check.ok] == [failing]
    assert checks[-1].name == failing
    with pytest.raises(UnsupportedStoreError) as caught:
        TxnLog.create(store(tmp_path / "b"))
    assert caught.value.kind == "unsupported-store"
    assert [info.key for info in LocalStore(tmp_path / "b").list("")] == []


@pytest.mark.parametrize("store", [Overwriting, Stale])
def test_a_process_does_not_write_to_an_unfit_store_but_reads(
    store: Callable[[Path], LocalStore], tmp_path: Path
) -> None:
    TxnLog.create(tmp_path / "log").create_topic("t", NUMBERS)
    (tmp_path / "same").symlink_to(tmp_path / "log")  # this process has not tried it under this name
    before = LocalStore(tmp_path / "log").list("")
    with pytest.raises(UnsupportedStoreError):
        ensure_fit(store(tmp_path / "same"), SystemIds())
    if store is Overwriting:
        log = TxnLog.open(store(tmp_path / "same"))
        assert log.read("t").read_all().num_rows == 0
        with pytest.raises(UnsupportedStoreError):
            log.create_topic("u", NUMBERS)
    assert LocalStore(tmp_path / "log").list("") == before


def test_a_fit_store_passes_every_check_and_nothing_stays(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    checks = probe_store(store, SystemIds())
    assert [(check.name, check.ok) for check in checks] == [
        ("one-winner", True),
        ("read-after-write", True),
        ("refused-overwrite", True),
        ("list-after-write", True),
        ("delete", True),
    ]
    assert all(check.promise for check in checks)
    assert store.list("") == []


@pytest.mark.parametrize("kind", [FaultKind.APPLIED_LOST_ANSWER, FaultKind.EXISTS_AFTER_OWN_SUCCESS])
def test_answers_that_get_lost_are_no_evidence(kind: FaultKind, tmp_path: Path) -> None:
    tried: list[str] = []

    def two_bad_probes(operation: RequestKind, key: str, nth: int) -> Fault | None:
        if operation is RequestKind.CREATE and key not in tried:
            tried.append(key)
        return Fault(kind) if operation is RequestKind.CREATE and key in tried[:2] else None

    store = FaultyStore(LocalStore(tmp_path), two_bad_probes)
    ensure_fit(store, SystemIds())
    assert len(tried) == 3
    assert [info.key for info in store.list("")] == []


def test_a_store_that_never_answers_clearly_is_an_error_that_may_pass(tmp_path: Path) -> None:
    store = FaultyStore(
        LocalStore(tmp_path),
        lambda operation, key, nth: (
            Fault(FaultKind.SERVER_ERROR) if operation is RequestKind.CREATE else None
        ),
    )
    with pytest.raises(StorageError) as caught:
        require_fit(store, SystemIds())
    assert caught.value.transient
    assert not isinstance(caught.value, UnsupportedStoreError)


def test_a_store_without_the_right_to_delete_is_fit(tmp_path: Path) -> None:
    class Undeletable(LocalStore):
        def delete(self, key: str) -> None:
            raise StorageError("no", kind="permission-denied")

    store = Undeletable(tmp_path)
    TxnLog.create(store)
    assert [check.name for check in probe_store(store, SystemIds()) if not check.ok] == ["delete"]
    report = TxnLog.open(tmp_path).verify()
    assert not any("probe" in str(part) for part in (report.problems, report.notes))
