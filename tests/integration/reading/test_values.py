"""Large values are put together again, whatever lies between their chunks and wherever a range cuts them."""

from __future__ import annotations

import datetime
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from txnformat.core.records.chunks import CHUNK_HEADER, Chunk
from txnformat.core.wire.document import packed
from txnformat.errors import CorruptDataError, InvalidInputError
from txnformat.store.memory import MemoryStore
from txnlog import Producer, TxnLog, WholeRecord, read_values
from txnlog_testing.stores.counting import CountingStore

KIB = 1024
ID = "00000000-0000-4000-8000-000000000001"


@pytest.fixture
def log() -> TxnLog:
    log = TxnLog.create(CountingStore(MemoryStore()))
    log.create_topic("t", "kafka")
    return log


def opened(log: TxnLog, name: str, **settings: Any) -> Producer:
    producer = Producer(log, name, chunk_bytes=KIB, **settings)
    producer.init()
    producer.begin()
    return producer


def content(size: int, seed: int = 0) -> bytes:
    return bytes((number * 7 + seed) % 251 for number in range(size))


def shown(records: Any) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.read()) for record in records]


class Between(io.BytesIO):
    """A file during whose reading others do something."""

    def __init__(self, data: bytes, *actions: Any) -> None:
        super().__init__(data)
        self._actions = list(actions)

    def read(self, size: int | None = -1) -> bytes:
        if self._actions:
            self._actions.pop(0)()
        return super().read(size)


@pytest.fixture
def interleaved(log: TxnLog) -> list[tuple[bytes, bytes]]:
    """Chunks of three values, of which one is aborted and one is torn, lie among each other and among plain
    records."""
    sizes = {"buffer": "inline", "batch_bytes": 1, "buffer_bytes": 1}
    one, two, torn = (opened(log, name, **sizes) for name in ("one", "two", "torn"))
    aborted = opened(log, "aborted", **sizes)
    plain = Producer(log)
    plain.init()

    def small(key: bytes) -> None:
        plain.send("t", key=key, value=b"small")
        plain.flush()

    def fail() -> None:
        raise OSError

    def tear() -> None:
        with pytest.raises(OSError):  # its own
            torn.send("t", key=b"torn", value=Between(content(9 * KIB), *[lambda: None] * 4, fail))
        torn.abort()

    second = Between(
        content(5 * KIB, 2),
        *[lambda: None] * 3,
        lambda: aborted.send("t", key=b"aborted", value=content(3 * KIB)),
        lambda: small(b"y"),
    )
    first = Between(
        content(6 * KIB, 1),
        *[lambda: None] * 2,
        lambda: small(b"x"),
        lambda: two.send("t", key=b"two", value=second),
        tear,
        lambda: small(b"z"),
    )
    one.send("t", key=b"one", value=first, headers={"h": b"1"})
    for producer in (one, two):
        producer.commit()
    aborted.flush()
    aborted.abort()
    # The last chunk of a value is appended with what comes next, or with the commit.
    return [
        (b"x", b"small"), (b"y", b"small"), (b"z", b"small"), (b"one", content(6 * KIB, 1)),
        (b"two", content(5 * KIB, 2)),
    ]  # fmt: skip


def test_ordinary_records_are_as_they_are(log: TxnLog) -> None:
    at = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    with Producer(log) as producer:
        producer.send("t", key=b"k", value=b"v", headers=[("h", b"1"), ("h", b"2")], timestamp=at)
        producer.send("t", key=b"k", timestamp=at)
        producer.send("t", value=b"", timestamp=at)
    full, null, empty = read_values(log, "t")
    assert (full.topic, full.partition, full.offset, full.first_offset) == ("t", 0, 0, 0)
    assert (full.key, full.timestamp, full.size, full.read()) == (b"k", at, 1, b"v")
    assert full.headers == (("h", b"1"), ("h", b"2"))
    assert (null.headers, null.size, null.read(), list(null.pieces())) == (None, None, None, [])
    assert (empty.key, empty.size, empty.read(), empty.open().read()) == (None, 0, b"", b"")


@pytest.mark.parametrize("held", [0, KIB, 3 * KIB, 64 * KIB])
def test_values_come_whole_in_the_order_of_their_last_chunks(
    log: TxnLog, interleaved: list[tuple[bytes, bytes]], held: int
) -> None:
    for _ in ("as appended", "sealed"):
        assert shown(read_values(log, "t", held_bytes_max=held)) == interleaved
        log.maintain("seal")
    found = list(read_values(log, "t", held_bytes_max=held))
    assert [record.offset for record in found] == sorted(record.offset for record in found)
    for record, (_, value) in zip(found, interleaved, strict=True):
        assert record.size == len(value)
        assert record.open().read() == value
        assert b"".join(record.pieces()) == value, "again"
        assert record.headers == ((("h", b"1"),) if record.key == b"one" else None)


@pytest.mark.parametrize("held", [0, 64 * KIB])
def test_ranges_that_follow_each_other_give_each_value_once_wherever_they_cut(
    log: TxnLog, interleaved: list[tuple[bytes, bytes]], held: int
) -> None:
    (offsets,) = log.offsets("t")
    firsts = [record.first_offset for record in read_values(log, "t")]
    assert (firsts[0], firsts[3]) == (0, 1)
    for cut in range(offsets.log_end + 1):
        before = read_values(log, "t", end=cut, held_bytes_max=held)
        after = read_values(log, "t", start=cut, held_bytes_max=held)
        found = [*before, *after]
        assert shown(found) == interleaved, cut
        assert [record.first_offset for record in found] == firsts
        assert found[3].headers == (("h", b"1"),)


def test_uncommitted_values_are_shown_once_they_are_whole(
    log: TxnLog, interleaved: list[tuple[bytes, bytes]]
) -> None:
    expected = {key for key, _ in interleaved} | {b"aborted"}
    assert {record.key for record in read_values(log, "t", isolation="read_uncommitted")} == expected


def test_what_is_held_is_read_once_and_what_is_not_when_it_is_asked_for(log: TxnLog) -> None:
    producer = opened(log, "p", batch_bytes=KIB)
    producer.send("t", key=b"k", value=content(20 * KIB))
    producer.commit()
    assert isinstance(log.store, CountingStore)
    for held, costs in ((20 * KIB, False), (20 * KIB - 1, True)):
        (record,) = read_values(log, "t", held_bytes_max=held)
        with log.store.measure() as measured:
            assert record.read() == content(20 * KIB)
        assert (measured.counts.count() > 0) == costs


def test_room_is_given_back_when_a_value_has_come(log: TxnLog) -> None:
    producer = opened(log, "p")
    for number in range(5):
        producer.send("t", key=b"k", value=content(3 * KIB, number))
    producer.commit()
    assert isinstance(log.store, CountingStore)
    found = list(read_values(log, "t", held_bytes_max=4 * KIB))
    with log.store.measure() as measured:
        assert [record.read() for record in found] == [content(3 * KIB, number) for number in range(5)]
    assert measured.counts.count() == 0


def test_chunks_in_different_partitions_are_no_value() -> None:
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", "kafka", partitions=2)
    put(log, Chunk(ID, 0), partition=0)
    put(log, Chunk(ID, 1, 2, 2), partition=1)
    with pytest.raises(CorruptDataError) as caught:
        list(read_values(log, "t"))
    assert caught.value.values["partition"] == 1


def test_partitions_are_joined_by_themselves() -> None:
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", "kafka", partitions=3)
    producer = opened(log, "p")
    for number in range(3):
        producer.send("t", key=b"k", value=content(2 * KIB, number), partition=number)
    producer.commit()
    found = list(read_values(log, "t", start={0: 0, 1: 1, 2: 2}))
    assert [(record.partition, record.read()) for record in found] == [
        (0, content(2 * KIB, 0)),
        (1, content(2 * KIB, 1)),
    ]
    assert [record.partition for record in read_values(log, "t", partitions=[2])] == [2]


# --- damage -------------------------------------------------------------------------------------------------


def put(log: TxnLog, *chunks: Chunk | bytes, partition: int = 0) -> None:
    """Append records with one byte each and these headers, as somebody might who copies records."""
    rows = [
        {
            "key": b"k",
            "value": b"v",
            "headers": [
                {"key": CHUNK_HEADER, "value": chunk if isinstance(chunk, bytes) else chunk.encode()}
            ],
            "timestamp": None,
        }
        for chunk in chunks
    ]
    with Producer(log) as producer:
        producer.send("t", rows, partition)


@pytest.mark.parametrize(
    "chunks",
    [
        [Chunk(ID, 0), Chunk(ID, 2, 3, 2)],  # one is missing
        [Chunk(ID, 0), Chunk(ID, 0)],  # one comes twice
        [Chunk(ID, 0), Chunk(ID, 1, 2, 3)],  # the size is another
        [Chunk(ID, 1, 2, 2)],  # the beginning is missing
        [Chunk(ID, 1), Chunk(ID, 2, 3, 3)],
        [b"{}"],
        [b""],
        [b'{"index":-1,"value":"' + ID.encode() + b'"}'],
        [b'{"index":0,"value":"short"}'],
        [b'{"index":1,"count":3,"size":1,"value":"' + ID.encode() + b'"}'],
        [packed(b'{"index":0,"value":"' + ID.encode() + b'"}' + b" " * 20_000)],
        [b'{"index":0,"value":"' + ID.encode() + b'"' + b" " * 2_000 + b"}"],
    ],
)
def test_a_damaged_value_is_an_error_and_never_returned(log: TxnLog, chunks: list[Chunk | bytes]) -> None:
    put(log, *chunks)
    with pytest.raises(CorruptDataError) as caught:
        shown(read_values(log, "t"))
    assert caught.value.kind == "damaged-value"
    assert (caught.value.values["topic"], caught.value.values["partition"]) == ("t", 0)
    assert log.read("t").read_all().num_rows == len(chunks)


def test_a_value_that_began_before_the_range_is_checked_when_it_is_read(log: TxnLog) -> None:
    put(log, Chunk(ID, 0), Chunk(ID, 2), Chunk(ID, 3, 4, 3))
    (record,) = read_values(log, "t", start=2)
    with pytest.raises(CorruptDataError) as caught:
        record.read()
    assert caught.value.kind == "damaged-value"


def test_a_large_value_that_is_read_again_is_checked_again(log: TxnLog) -> None:
    put(log, Chunk(ID, 0), Chunk(ID, 1), Chunk(ID, 2, 3, 5))
    (record,) = read_values(log, "t", start=1)
    with pytest.raises(CorruptDataError):
        record.read()


def test_a_value_without_an_end_is_not_there(log: TxnLog) -> None:
    put(log, Chunk(ID, 0), Chunk(ID, 1))
    assert list(read_values(log, "t")) == []


def test_a_topic_with_another_schema_has_no_such_values(log: TxnLog) -> None:
    log.create_topic("n", pa.schema([("n", pa.int64())]))
    with pytest.raises(InvalidInputError) as caught:
        read_values(log, "n")
    assert caught.value.kind == "schema-mismatch"


def test_a_header_survives_its_bytes() -> None:
    for chunk in (Chunk(ID, 0), Chunk(ID, 7), Chunk(ID, 7, 8, 123_456_789_012)):
        assert Chunk.decode(chunk.encode(), name="x") == chunk
    assert Chunk(ID, 1, 2, 12_000_000).encode() == (
        b'{"count":2,"index":1,"size":12000000,"value":"' + ID.encode() + b'"}'
    )


MEMORY = """
import io, resource, sys
from txnlog import Producer, TxnLog, read_values

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1 if sys.platform == "linux" else 1024)

log = TxnLog.create(sys.argv[1])
log.create_topic("small", "kafka")
log.create_topic("large", "kafka")
piece = bytes(range(256)) * 2**12
class Pieces(io.RawIOBase):
    def __init__(self, count):
        self.left = count * len(piece)
    def read(self, size):
        size = min(size, self.left, len(piece))
        self.left -= size
        return piece[:size]

with Producer(log, "p", chunk_bytes=2**20, batch_bytes=2**20, buffer_bytes=2**22) as producer:
    for topic, size in (("small", 20), ("large", 600)):
        with producer.transaction() as txn:
            txn.send(topic, key=b"k", value=Pieces(size))
for topic in ("small", "large"):
    (record,) = read_values(log, topic, held_bytes_max=2**22)
    assert sum(len(found) for found in record.pieces()) == record.size
    print(record.size // 2**20, peak())
"""


def test_a_value_need_not_fit_in_memory(tmp_path: Path) -> None:
    """600 MiB that compress to almost nothing: readers fetch ahead by what there is to decode, too."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path / "log")],
        capture_output=True, text=True, timeout=300, check=True, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    small, large = (line.split() for line in done.stdout.splitlines())
    assert (small[0], large[0]) == ("20", "600")
    assert int(large[1]) - int(small[1]) < 300 * KIB


def test_records_show_what_they_are(log: TxnLog) -> None:
    with Producer(log) as producer:
        producer.send("t", key=b"k", value=b"v")
    (record,) = read_values(log, "t")
    assert isinstance(record, WholeRecord)
    assert "offset=0" in repr(record)
