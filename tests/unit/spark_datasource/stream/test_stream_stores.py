"""What a batch's commit makes of a store that fails for good, or refuses after it gave no clear answer. No
session needed."""

from __future__ import annotations

import errno
import os

import pytest

from spark_datasource.worker import logs
from tests.unit.spark_datasource.stream_steps import Cluster, Query, rows, table
from txnformat.errors import CommitStateUnknownError, StorageError
from txnformat.keys import entry_key
from txnformat.log import TxnLog
from txnformat.protocol.commit import CommitSettings
from txnformat.store.local import LocalStore
from txnformat.store.posix import Posix
from txnformat.store.requests import RequestKind
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore


@pytest.mark.parametrize("lands", [True, False])
def test_what_was_unclear_stays_unclear_when_the_store_then_refuses(
    cluster: Cluster, query: Query, log: TxnLog, path: str, *, lands: bool
) -> None:
    """A refusal proves that its own request was not applied, and says nothing of the one before."""
    query.write(0, table(1))
    key = entry_key(log.refresh().entry + 1)
    sent = 0

    def plan(operation: RequestKind, name: str, call: int) -> Fault | None:
        nonlocal sent
        if name != key:
            return None
        if operation is RequestKind.CREATE:
            sent = call
            unclear = FaultKind.APPLIED_LOST_ANSWER if lands else FaultKind.FAIL_BEFORE
            return Fault(unclear if call == 1 else FaultKind.PERMISSION_DENIED)
        return Fault(FaultKind.PERMISSION_DENIED) if sent else None

    faulty = TxnLog.open(FaultyStore(LocalStore(path), plan), settings=CommitSettings(deadline_ms=0))
    messages = query.tasks(1, table(2))
    with cluster.in_worker("commit"):
        ((place, _),) = logs._logs.items()
        logs._logs[place] = faulty
    with pytest.raises(CommitStateUnknownError, match=r"batch_id=`1`.*start the query again"):
        query.commit(messages, 1)
    assert sent == 2
    query.write(1, table(2))
    assert rows(log) == [1, 2]


def test_a_refusal_without_anything_unclear_before_is_told_as_it_is(
    cluster: Cluster, query: Query, log: TxnLog, path: str
) -> None:
    query.write(0, table(1))

    def plan(operation: RequestKind, name: str, call: int) -> Fault | None:
        is_entry = operation is RequestKind.CREATE and name.endswith(".json")
        return Fault(FaultKind.DISK_FULL) if is_entry else None

    full = TxnLog.open(FaultyStore(LocalStore(path), plan))
    messages = query.tasks(1, table(2))
    with cluster.in_worker("commit"):
        ((place, _),) = logs._logs.items()
        logs._logs[place] = full
    with pytest.raises(StorageError, match=r"\[TXNLOG_DISK_FULL\]"):
        query.commit(messages, 1)
    assert rows(log) == [1]
    query.write(1, table(2))
    assert rows(log) == [1, 2]


def test_a_disk_that_failed_is_used_again_once_the_query_is_started_again(
    cluster: Cluster, query: Query, log: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that could not make a name durable writes no more; Spark's process goes on, and must not keep
    it."""
    query.write(0, table(1))
    messages = query.tasks(1, table(2))

    def fails(_posix: Posix, directory: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(Posix, "fsync_directory", fails)
        with pytest.raises(
            CommitStateUnknownError, match=r"TXNLOG_COMMIT_STATE_UNKNOWN.*start the query again"
        ):
            query.commit(messages, 1)
    cluster.stores.pop("commit")  # what the process opens from here on is a store of its own
    again = Query(cluster, query.options["path"], run="run-2", topic="t")
    again.write(1, table(2))
    again.write(2, table(3))
    assert rows(log) == [1, 2, 3]
