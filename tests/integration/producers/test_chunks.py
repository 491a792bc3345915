"""Values that are larger than a record: cut into chunks by the producer, in one transaction, and put together
again."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.clients.failing import Plan, faulty, unclear_commit
from txnformat.core.records.chunks import CHUNK_HEADER, Chunk, chunk_of
from txnformat.errors import (
    CommitStateUnknownError,
    InvalidInputError,
    InvalidTransactionStateError,
    StorageError,
)
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import Producer, ProducerStatus, TxnLog
from txnlog_testing.stores.faulty import Fault, FaultKind

KIB = 1024
BUFFERS = pytest.mark.parametrize("buffer", ["auto", "inline"])


@pytest.fixture
def log() -> TxnLog:
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", "kafka", partitions=3)
    return log


def opened(log: TxnLog, name: str = "p", **settings: Any) -> Producer:
    producer = Producer(log, name, chunk_bytes=KIB, **settings)
    producer.init()
    return producer


def content(size: int) -> bytes:
    return bytes(number * 7 % 251 for number in range(size))


def records(log: TxnLog, topic: str = "t") -> list[dict[str, Any]]:
    columns = ["key", "value", "headers", "timestamp", "_partition", "_offset"]
    found: list[dict[str, Any]] = log.read(topic, columns=columns).read_all().to_pylist()
    return found


class Slow(io.RawIOBase):
    """A file that gives few bytes at a time, and may fail."""

    def __init__(self, data: bytes, fails_at: int | None = None) -> None:
        self._data = io.BytesIO(data)
        self._fails_at = fails_at

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        if self._fails_at is not None and self._data.tell() >= self._fails_at:
            raise OSError("the disk is gone")
        part = self._data.read(min(300, len(target)))
        target[: len(part)] = part
        return len(part)


# --- writing ------------------------------------------------------------------------------------------------


@BUFFERS
@pytest.mark.parametrize("source", [bytes, bytearray, memoryview, io.BytesIO, Slow])
def test_a_large_value_is_cut_into_records_that_follow_each_other(
    log: TxnLog, buffer: str, source: Callable[[bytes], Any]
) -> None:
    value = content(3 * KIB + 1)
    with opened(log, buffer=buffer) as producer, producer.transaction() as txn:
        txn.send("t", key=b"before", value=b"1", partition=1)
        txn.send("t", key=b"k", value=source(value), headers={"h": b"1"}, partition=1)
        txn.send("t", key=b"after", value=b"2", partition=1)
    found = records(log)
    assert [row["key"] for row in found] == [b"before", *[b"k"] * 4, b"after"]
    chunks = found[1:5]
    assert b"".join(row["value"] for row in chunks) == value
    assert [len(row["value"]) for row in chunks] == [KIB, KIB, KIB, 1]
    assert len({(row["timestamp"], row["_partition"]) for row in chunks}) == 1
    assert [header["key"] for header in chunks[0]["headers"]] == ["h", CHUNK_HEADER]
    assert [[header["key"] for header in row["headers"]] for row in chunks[1:]] == [[CHUNK_HEADER]] * 3
    said = [chunk_of(row["headers"], name="x") for row in chunks]
    assert said[0] is not None
    name = said[0].value_id
    assert said == [
        Chunk(name, 0),
        Chunk(name, 1),
        Chunk(name, 2),
        Chunk(name, 3, 4, len(value)),
    ]
    assert chunk_of(found[0]["headers"], name="x") is None


@pytest.mark.parametrize("size", [0, 1, KIB])
@pytest.mark.parametrize("source", [bytes, io.BytesIO, Slow])
def test_a_value_of_up_to_a_chunk_is_one_record_with_or_without_transactions(
    log: TxnLog, size: int, source: Callable[[bytes], Any]
) -> None:
    with opened(log) as producer, producer.transaction() as txn:
        txn.send("t", key=b"k", value=source(content(size)))
    with Producer(log, chunk_bytes=KIB) as plain:
        plain.send("t", key=b"k", value=source(content(size)))
    assert [(row["value"], row["headers"]) for row in records(log)] == [(content(size), None)] * 2


@pytest.mark.parametrize("size", [KIB + 1, 2 * KIB, 3 * KIB])
@pytest.mark.parametrize("source", [bytes, io.BytesIO, Slow])
def test_the_last_chunk_is_never_empty(log: TxnLog, size: int, source: Callable[[bytes], Any]) -> None:
    with opened(log) as producer, producer.transaction() as txn:
        txn.send("t", key=b"k", value=source(content(size)))
    found = records(log)
    assert len(found) == -(-size // KIB)
    last = chunk_of(found[-1]["headers"], name="x")
    assert last is not None
    assert (last.count, last.size) == (len(found), size)


@BUFFERS
@pytest.mark.parametrize("key", [b"k", None])
def test_all_chunks_are_in_one_partition_though_the_topic_grows_meanwhile(
    log: TxnLog, buffer: str, key: bytes | None
) -> None:
    """Every chunk is flushed by itself, and before each the topic has more partitions."""

    class Growing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            log.alter_topic("t", partitions=log.refresh().topic("t").partitions + 1)
            return super().read(size)

    with opened(log, buffer=buffer, batch_bytes=1, buffer_bytes=1) as producer:
        for _ in range(4):
            with producer.transaction() as txn:
                txn.send("t", key=key, value=Growing(content(5 * KIB)))
    values: dict[str, list[dict[str, Any]]] = {}
    for row in records(log):
        chunk = chunk_of(row["headers"], name="x")
        assert chunk is not None
        values.setdefault(chunk.value_id, []).append(row)
    assert len(values) == 4
    for rows in values.values():
        assert len({row["_partition"] for row in rows}) == 1
        assert b"".join(row["value"] for row in rows) == content(5 * KIB)


def test_keyless_values_take_turns_and_keyed_ones_go_where_their_key_is(log: TxnLog) -> None:
    with opened(log) as producer, producer.transaction() as txn:
        for _ in range(3):
            txn.send("t", value=content(2 * KIB))
        txn.send("t", key=b"k", value=content(2 * KIB))
        txn.send("t", key=b"k", value=b"small")
    found = records(log)
    assert len({row["_partition"] for row in found if row["key"] is None}) == 3
    assert len({row["_partition"] for row in found if row["key"] == b"k"}) == 1


def test_outside_a_transaction_a_large_value_is_refused_and_nothing_is_kept(log: TxnLog) -> None:
    with Producer(log, chunk_bytes=KIB) as plain:
        for value in (content(KIB + 1), io.BytesIO(content(KIB + 1))):
            with pytest.raises(InvalidTransactionStateError) as caught:
                plain.send("t", key=b"k", value=value)
            assert caught.value.kind == "chunks-need-transaction"
            assert "transactional_id" in str(caught.value)
        plain.send("t", key=b"k", value=b"small")
    assert [row["value"] for row in records(log)] == [b"small"]


@BUFFERS
def test_a_file_that_fails_at_once_leaves_everything_as_before(log: TxnLog, buffer: str) -> None:
    with opened(log, buffer=buffer) as producer, producer.transaction() as txn:
        txn.send("t", key=b"a", value=b"1")
        for failing in (Slow(content(9 * KIB), fails_at=0), Slow(content(9 * KIB), fails_at=KIB)):
            with pytest.raises(OSError, match="the disk is gone"):
                txn.send("t", key=b"k", value=failing)
        with pytest.raises(InvalidInputError) as caught:
            txn.send("t", key=b"k", value=io.StringIO("text" * KIB))
        assert caught.value.kind == "invalid-value"
        txn.send("t", key=b"b", value=b"2")
    assert sorted(row["value"] for row in records(log)) == [b"1", b"2"]


@BUFFERS
@pytest.mark.parametrize("small", [True, False])
def test_a_file_that_fails_in_the_middle_leaves_a_transaction_that_can_only_be_aborted(
    log: TxnLog, buffer: str, small: bool
) -> None:
    """Whether its first chunks are buffered only, or were flushed."""
    sizes: dict[str, Any] = {} if small else {"batch_bytes": 1, "buffer_bytes": 1}
    producer = opened(log, buffer=buffer, **sizes)
    producer.begin()
    producer.send("t", key=b"a", value=b"1")
    with pytest.raises(OSError, match="the disk is gone"):
        producer.send("t", key=b"k", value=Slow(content(9 * KIB), fails_at=6 * KIB))
    assert producer.status is ProducerStatus.ABORT_REQUIRED
    for call in (producer.commit, producer.flush, lambda: producer.send("t", key=b"a", value=b"1")):
        with pytest.raises(InvalidTransactionStateError) as caught:
            call()
        assert caught.value.kind == "abort-required"
    producer.abort()
    assert records(log) == []
    with producer.transaction() as txn:
        txn.send("t", key=b"k", value=Slow(content(9 * KIB)))
    assert b"".join(row["value"] for row in records(log)) == content(9 * KIB)
    producer.close()


def test_a_store_that_fails_in_the_middle_of_a_value_requires_an_abort() -> None:
    plan = Plan()
    log = _kafka(plan)
    producer = opened(log, buffer="inline", batch_bytes=1, buffer_bytes=1)
    producer.begin()
    plan.next(RequestKind.OPEN_WRITE, KeyClass.DATA, None, Fault(FaultKind.DISK_FULL))
    plan.next(RequestKind.CREATE, KeyClass.ENTRY, None, Fault(FaultKind.DISK_FULL))
    with pytest.raises(StorageError):
        producer.send("u", key=b"k", value=content(9 * KIB))
    assert producer.status is ProducerStatus.ABORT_REQUIRED
    plan.clear()
    producer.abort()
    assert records(log, "u") == []


@pytest.mark.parametrize("repeat", ["flush", "send", "abort"])
def test_an_unknown_flush_in_the_middle_of_a_value_is_repeated_but_the_transaction_never_commits(
    repeat: str,
) -> None:
    plan = Plan()
    log = _kafka(plan)
    producer = opened(log, buffer="inline", batch_bytes=1, buffer_bytes=1)
    producer.begin()
    unclear_commit(plan, FaultKind.APPLIED_LOST_ANSWER)
    with pytest.raises(CommitStateUnknownError):
        producer.send("u", key=b"k", value=content(9 * KIB))
    plan.clear()
    if repeat != "abort":
        if repeat == "flush":
            producer.flush()
        else:
            with pytest.raises(InvalidTransactionStateError) as caught:
                producer.send("u", key=b"k", value=content(9 * KIB))
            assert caught.value.kind == "abort-required"
        assert producer.status is ProducerStatus.ABORT_REQUIRED
        with pytest.raises(InvalidTransactionStateError):
            producer.commit()
    producer.abort()
    producer.begin()
    producer.send("u", key=b"k", value=content(KIB))
    log.refresh()  # with an old view the flush would read first, and that failure is a clear one
    unclear_commit(plan, FaultKind.APPLIED_LOST_ANSWER)
    with pytest.raises((CommitStateUnknownError, StorageError)):
        producer.flush()
    plan.clear()
    producer.flush()
    producer.commit()
    assert b"".join(row["value"] for row in records(log, "u")) == content(KIB)


def _kafka(plan: Plan) -> TxnLog:
    log = faulty(plan)
    log.create_topic("u", "kafka")
    return log


def test_the_header_is_nobody_elses(log: TxnLog) -> None:
    with opened(log) as producer, producer.transaction() as txn:
        with pytest.raises(InvalidInputError) as caught:
            txn.send("t", key=b"k", value=b"v", headers={CHUNK_HEADER: b"x"})
        assert caught.value.kind == "invalid-headers"


@pytest.mark.parametrize("size", [0, KIB - 1, 64 * KIB * KIB + 1, 1.5, True, "8"])
def test_chunks_have_bounds(log: TxnLog, size: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Producer(log, "p", chunk_bytes=size)
    assert "chunk_bytes" in str(caught.value)
    assert "from 1024 to 67108864" in str(caught.value)


MEMORY = """
import io, resource, sys
from txnlog import Producer, TxnLog

class Endless(io.RawIOBase):
    def __init__(self, size):
        self.left = size
    def readable(self):
        return True
    def readinto(self, target):
        count = min(len(target), self.left)
        target[:count] = (b"%015d\\n" % self.left * (count // 16 + 1))[:count]
        self.left -= count
        return count

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1 if sys.platform == "linux" else 1024)

log = TxnLog.create(sys.argv[1])
log.create_topic("t", "kafka")
with Producer(log, "p", buffer=sys.argv[2], chunk_bytes=2**20, batch_bytes=2**20, buffer_bytes=2**22) as producer:
    for size in (20, 400):
        with producer.transaction() as txn:
            txn.send("t", key=b"k", value=Endless(size * 2**20))
        print(peak())
"""


@BUFFERS
def test_a_file_is_never_whole_in_memory(buffer: str, tmp_path: Path) -> None:
    """400 MiB take no more than 20 MiB did, but for 64 MiB."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path / "log"), buffer],
        capture_output=True, text=True, timeout=300, check=True, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    small, large = (int(line) for line in done.stdout.split())
    assert large - small < 64 * KIB
