"""A store that raises in place of an answer to ``create``: it may have created the object, so the slot is
read back."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest

from txnformat.errors import StorageError, TxnLogError
from txnformat.keys import parse_entry_key
from txnformat.store.base import CreateOutcome, CreateResult
from txnformat.store.memory import MemoryStore
from txnlog import Producer, TxnLog

SCHEMA = pa.schema([("n", pa.int64())])


class Raising(MemoryStore):
    """Raises at some attempts to create entries, after the object is there, or later puts it there itself."""

    plan: str = ""
    """One letter for each attempt: r, created and raised; n, raised; l, no answer, and lands before the next
    attempt; else as ever."""

    def __init__(self) -> None:
        super().__init__()
        self._late: tuple[str, bytes] | None = None

    def create(self, key: str, data: bytes) -> CreateResult:
        if parse_entry_key(key) is None:
            return super().create(key, data)
        step, self.plan = self.plan[:1], self.plan[1:]
        if self._late is not None:
            super().create(*self._late)
            self._late = None
        if step == "l":
            self._late = key, data
            return CreateResult(CreateOutcome.AMBIGUOUS, _lost())
        if step == "r":
            super().create(key, data)
        if step in {"r", "n"}:
            raise _lost()
        return super().create(key, data)


def _lost() -> StorageError:
    return StorageError("the connection was lost", kind="connection-lost", transient=True)


@pytest.mark.parametrize("plan", ["r", "n", "nn", "nr", "lr", "ln", "lnn", "lnr", "nnr", "rr", "rn"])
def test_what_is_told_is_so(plan: str) -> None:
    """Acknowledged: there, once. Aborted: invisible. The next transaction is its own."""
    store = Raising()
    log = TxnLog.create(store)
    log.create_topic("t", SCHEMA)
    told: dict[int, str] = {}
    with Producer(log, "p") as producer:
        for number in range(3):
            producer.begin()
            producer.send("t", [{"n": number}])
            store.plan = plan if number == 0 else ""
            try:
                producer.commit()
                told[number] = "committed"
            except TxnLogError as error:
                told[number] = error.kind
                with contextlib.suppress(TxnLogError):
                    producer.abort()
                    told[number] = "aborted"
    rows = TxnLog.open(store).read("t").read_all().column("n").to_pylist()
    assert len(rows) == len(set(rows))
    for number, what in told.items():
        if what == "committed":
            assert number in rows
        if what == "aborted":
            assert number not in rows
    assert told[1] == told[2] == "committed"
