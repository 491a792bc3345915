"""``verify(deep=True)`` of files that are too large for the memory: decoded first, hashed after it, and not
at all where most is a hole."""

from __future__ import annotations

import pyarrow as pa
import pytest

from txnformat.clock import SystemClock
from txnformat.persistent import replace
from txnformat.store.memory import MemoryStore
from txnformat.types import FileRecord
from txnformat.verify import files
from txnformat.verify.files import check_patiently
from txnformat.verify.references import FileUse
from txnformat.verify.report import ProblemKind, Record
from txnlog import Producer, TxnLog

NUMBERS = pa.schema([("n", pa.int64())])
TIB = 2**40


class Hollow(MemoryStore):
    """A store with one file that is a hole between its data and its footer, as a sparse file may be."""

    def __init__(self, data: bytes, footer: bytes, size: int) -> None:
        super().__init__()
        self._parts = {0: data, size - len(footer): footer}
        self.served = 0

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.served += length
        assert self.served < 2**20, "the hole is read"
        for begin, part in self._parts.items():
            if begin <= start < begin + len(part):
                return part[start - begin : start - begin + length]
        return bytes(length)


@pytest.fixture(scope="module")
def written() -> tuple[FileRecord, bytes]:
    store = MemoryStore()
    with TxnLog.create(store, embedding=False) as log:
        log.create_topic("t", NUMBERS)
        with Producer(log) as producer:
            producer.send("t", pa.table({"n": range(1_000)}, NUMBERS))
            producer.flush()
        (record,) = log.state.files
    data = store.get(record.key)
    assert data is not None
    return record, data


def checked(store: MemoryStore, record: FileRecord) -> Record:
    return check_patiently(
        store, SystemClock(), FileUse(record, None), {record.key: record.size}, NUMBERS, deep=True
    )


def kinds(record: Record) -> list[ProblemKind]:
    return [problem.kind for problem in record.problems]


@pytest.mark.parametrize("size", [4 * TIB, files.WHOLE_BYTES_MAX * 2])
def test_a_file_that_is_mostly_a_hole_is_a_finding_at_once(
    written: tuple[FileRecord, bytes], size: int
) -> None:
    record, data = written
    split = record.size - record.footer_bytes
    found = checked(Hollow(data[:split], data[split:], size), replace(record, size=size))
    assert kinds(found) == [ProblemKind.UNDECODABLE]
    (problem,) = found.problems
    assert problem.what == "most of the file belongs to no column chunk: it was not read"
    assert problem.got == str(size - record.size + 4)  # with the magic at the beginning
    assert not found.checked["bytes_read"]


def test_a_large_file_is_decoded_and_then_hashed(
    written: tuple[FileRecord, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "WHOLE_BYTES_MAX", 100)
    monkeypatch.setattr(files, "PIECE_BYTES", 100)
    record, data = written
    store = MemoryStore()
    store.put(record.key, data)
    found = checked(store, record)
    assert (kinds(found), found.checked["records"], found.checked["bytes_read"]) == ([], 1_000, record.size)
    assert kinds(checked(store, replace(record, sha256="0" * 64))) == [ProblemKind.WRONG_HASH]
    damaged = MemoryStore()
    damaged.put(record.key, data[:20] + bytes([data[20] ^ 1]) + data[21:])
    found = checked(damaged, record)
    assert (len(found.problems), found.checked["bytes_read"]) == (1, 0)
