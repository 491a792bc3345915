"""Topic after topic: another client's work is no damage, damage does not stop the others."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from txnformat.admin.topics import DamagedTopic, attempt
from txnformat.store.memory import MemoryStore
from txnlog import ConflictError, CorruptDataError, NotFoundError, TxnLog, TxnLogError, UploadExpiredError

NUMBERS = pa.schema([("n", pa.int64())])


def failing(times: int, error: TxnLogError, meanwhile: Callable[[], object]) -> Callable[[], str]:
    left = [error] * times

    def work() -> str:
        meanwhile()
        if left:
            raise left.pop()
        return "done"

    return work


def log_and_entries() -> tuple[TxnLog, Callable[[], object]]:
    """Return a log, and a function with which another client writes an entry."""
    log = TxnLog.create(MemoryStore())
    other = TxnLog.open(log.store)
    return log, lambda: other.create_topic(f"t{other.refresh().entry}", NUMBERS)


MISSING = NotFoundError("an object is gone", kind="sidecar-missing", hint="")


def test_what_others_have_replaced_is_looked_for_once_more() -> None:
    log, write = log_and_entries()
    assert attempt(log.committer, "t", "compaction", failing(1, MISSING, write)) == "done"
    found = attempt(log.committer, "t", "compaction", failing(2, MISSING, write))
    assert isinstance(found, DamagedTopic)
    assert (found.topic, found.kind) == ("t", "sidecar-missing")


@pytest.mark.parametrize("error", [MISSING, CorruptDataError("nonsense", hint="")])
def test_in_a_log_that_is_quiet_it_is_damage_at_once(error: TxnLogError) -> None:
    log, _ = log_and_entries()
    found = attempt(log.committer, "t", "retention", failing(1, error, lambda: None))
    assert isinstance(found, DamagedTopic)
    assert found.reason == str(error)


@pytest.mark.parametrize(
    "error",
    [
        ConflictError("another client was faster", kind="replace-superseded", hint=""),
        UploadExpiredError("a vacuum passed it", hint=""),
        NotFoundError("there is no such topic", kind="topic-gone", hint=""),
    ],
)
def test_what_others_have_done_is_left_to_the_next_run(error: TxnLogError) -> None:
    log, _ = log_and_entries()
    assert attempt(log.committer, "t", "compaction", failing(1, error, lambda: None)) is None
