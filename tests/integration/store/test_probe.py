"""Stores that do not keep their promise are refused before anything of a log is written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from txnformat.clock import SystemIds
from txnformat.errors import StorageError, UnsupportedStoreError
from txnformat.store.local import LocalStore
from txnformat.store.probe import ensure_fit, probe_store, require_fit
from txnformat.store.requests import RequestKind
from txnlog import TxnLog
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore
from txnlog_testing.stores.lying import Lie, LyingStore

NUMBERS = pa.schema([("n", pa.int64())])


@pytest.mark.parametrize(
    ("lie", "failing"),
    [
        (Lie.IGNORES_CONDITION, "one-winner"),
        (Lie.SEVERAL_WIN, "one-winner"),
        (Lie.OWN_SUCCESS_IS_TAKEN, "create"),
        (Lie.STALE_READS, "read-after-write"),
        (Lie.STALE_LISTS, "list-after-write"),
        (Lie.LOSES_OBJECTS, "read-after-write"),
    ],
)
def test_the_check_that_fails_is_named(lie: Lie, failing: str, tmp_path: Path) -> None:
    checks = probe_store(LyingStore(LocalStore(tmp_path), {lie}), SystemIds())
    assert [check.name for check in checks if not check.ok] == [failing]
    assert checks[-1].name == failing
    assert LocalStore(tmp_path).list("") == []


def test_a_process_reads_from_an_unfit_store(tmp_path: Path) -> None:
    TxnLog.create(tmp_path).create_topic("t", NUMBERS)
    before = LocalStore(tmp_path).list("")
    log = TxnLog.open(LyingStore(LocalStore(tmp_path), {Lie.IGNORES_CONDITION}))
    assert log.read("t").read_all().num_rows == 0
    with pytest.raises(UnsupportedStoreError):
        log.create_topic("u", NUMBERS)
    assert LocalStore(tmp_path).list("") == before


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
