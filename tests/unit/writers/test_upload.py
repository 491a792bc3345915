"""Uploads: batches in, files and plain records out."""

from __future__ import annotations

import hashlib
import pickle

import pyarrow as pa
import pytest

from tests.integration.clients.failing import QuickClock
from txnformat import keys
from txnformat.clock import SystemIds
from txnformat.core.records.batch_table import decode_batch_table
from txnformat.core.topics.schema import TopicSchema
from txnformat.errors import StorageError
from txnformat.segments.reader import SegmentFileReader
from txnformat.store.base import ObjectStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import RequestKind
from txnformat.types import NO_TIMESTAMP_MS, BatchRecord, FileRecord
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore
from writers import upload as upload_module
from writers.upload import TopicUpload, Uploaded, combine, topic_append, with_batch_table

ARROW = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
SCHEMA = TopicSchema(ARROW, (), "at")
DIRECTORY = "t-00000000"


def rows(*numbers: int, at: int | None = None) -> pa.Table:
    times = [None if at is None else at * 1_000] * len(numbers)
    return pa.table({"n": numbers, "at": pa.array(times, ARROW.field("at").type)}, schema=ARROW)


def upload(store: ObjectStore, roll_bytes: int = 2**30) -> TopicUpload:
    return TopicUpload(store, SystemIds(), directory=DIRECTORY, schema=SCHEMA, born=7, roll_bytes=roll_bytes)


def content(store: ObjectStore, file: FileRecord, batch: BatchRecord) -> list[int]:
    groups = range(batch.row_group, batch.row_group + batch.row_group_count)
    batches = SegmentFileReader(store, file, ARROW).read(list(groups), ["n"], 1_000)
    return [n for found in batches for n in found.column("n").to_pylist()]


def record(partition: int, file: int, records: int = 1, low: int = 5, high: int = 9) -> BatchRecord:
    return BatchRecord(partition, file, 0, 1, records, 100, low, high)


FILE = FileRecord("k", 10, "ab" * 32, 4, "cd" * 32, 3)
OTHER = FileRecord("l", 11, "ba" * 32, 4, "dc" * 32, 3)


def test_batches_of_several_partitions_share_a_file_and_are_told_apart() -> None:
    store = MemoryStore()
    files = upload(store)
    files.add(2, rows(1, 2))
    files.add(0, rows())
    files.add(0, rows(3))
    files.add(2, rows(4))
    assert files.size > 0
    done = files.finish()
    (file,) = done.files
    assert [(batch.partition, content(store, file, batch)) for batch in done.batches] == [
        (2, [1, 2]),
        (0, [3]),
        (2, [4]),
    ]
    name = keys.parse_data_key(file.key)
    assert name is not None
    assert (name.born, file.key.startswith(f"{DIRECTORY}/data/")) == (7, True)
    assert hashlib.sha256(store.get(file.key) or b"").hexdigest() == file.sha256


def test_files_roll() -> None:
    store = MemoryStore()
    files = upload(store, roll_bytes=1)
    for number in range(3):
        files.add(0, rows(number))
    done = files.finish()
    assert [batch.file for batch in done.batches] == [0, 1, 2]
    assert [content(store, done.files[batch.file], batch) for batch in done.batches] == [[0], [1], [2]]
    assert files.size == sum(file.size for file in done.files)


def test_nothing_added_makes_no_object() -> None:
    store = MemoryStore()
    assert upload(store).finish() == Uploaded((), ())
    assert list(store.list("")) == []


def test_abort_drops_the_open_file_and_leaves_finished_ones() -> None:
    store = MemoryStore()
    files = upload(store, roll_bytes=1)
    files.add(0, rows(1))
    files._roll_bytes = 2**30
    files.add(0, rows(2))
    files.abort()
    files.abort()
    assert len(store.list("")) == 1


def test_an_upload_is_plain_data() -> None:
    done = Uploaded((FILE,), (record(0, 0),))
    assert pickle.loads(pickle.dumps(done)) == done


def test_combining_numbers_the_files_anew() -> None:
    one = Uploaded((FILE,), (record(0, 0),))
    two = Uploaded((OTHER, FILE), (record(1, 1), record(0, 0)))
    both = combine([one, Uploaded((), ()), two])
    assert both.files == (FILE, OTHER, FILE)
    assert [(batch.partition, batch.file) for batch in both.batches] == [(0, 0), (1, 2), (0, 1)]


def test_an_append_carries_the_totals_of_each_partition() -> None:
    done = Uploaded(
        (FILE, OTHER),
        (
            record(3, 0, 2, low=5, high=9),
            record(1, 0, 4, low=NO_TIMESTAMP_MS, high=NO_TIMESTAMP_MS),
            record(3, 1, 1, low=2, high=6),
            record(3, 1, 1, low=NO_TIMESTAMP_MS, high=NO_TIMESTAMP_MS),
        ),
    )
    append = topic_append("id", 4, done, {3: 10, 1: 0})
    assert [part.partition for part in append.partitions] == [1, 3]
    one, three = append.partitions
    assert (one.records, one.batch_count, one.base_sequence, one.size) == (4, 1, 0, 100)
    assert (one.min_timestamp_ms, one.max_timestamp_ms) == (NO_TIMESTAMP_MS, NO_TIMESTAMP_MS)
    assert (three.records, three.batch_count, three.base_sequence, three.size) == (4, 3, 10, 300)
    assert (three.min_timestamp_ms, three.max_timestamp_ms) == (2, 9)
    assert (append.files, append.batches, append.partition_count) == (done.files, done.batches, 4)
    assert {part.base_sequence for part in topic_append("id", 4, done).partitions} == {-1}


def test_the_digest_tells_other_content_apart() -> None:
    def digest(*batches: BatchRecord, files: tuple[FileRecord, ...] = (FILE, OTHER)) -> str:
        (part,) = topic_append("id", 1, Uploaded(files, batches)).partitions
        return part.digest

    expected = hashlib.sha256(f"{FILE.sha256} 0 1 1\n".encode()).hexdigest()[:16]
    assert digest(record(0, 0)) == expected
    others = [
        digest(record(0, 1)),
        digest(record(0, 0, 2)),
        digest(record(0, 0), record(0, 0)),
        digest(BatchRecord(0, 0, 1, 1, 1, 100, 5, 9)),
        digest(BatchRecord(0, 0, 0, 2, 1, 100, 5, 9)),
        digest(record(0, 0), files=(OTHER,)),
    ]
    assert expected not in others
    assert digest(record(0, 0), files=(FILE,)) == expected


@pytest.mark.parametrize("count", [500, 501])
def test_more_than_1000_batches_go_to_one_table(count: int) -> None:
    store = MemoryStore()
    batches = tuple(record(0, 0, number + 1) for number in range(count))
    appends = [topic_append(name, 1, Uploaded((FILE,), batches)) for name in ("a", "b")]
    named = with_batch_table(store, SystemIds(), 7, appends)
    if count == 500:
        assert named == tuple(appends)
        assert list(store.list("")) == []
        return
    assert [(append.batches, append.section) for append in named] == [((), 0), ((), 1)]
    table = named[0].table
    assert table is not None
    assert table == named[1].table
    found = decode_batch_table(store.get(table.key), table)
    for section in (0, 1):
        assert found[found["section"] == section]["records"].tolist() == list(range(1, count + 1))
    assert [append.partitions for append in named] == [append.partitions for append in appends]


@pytest.mark.parametrize(
    "kind", [FaultKind.FAIL_BEFORE, FaultKind.APPLIED_LOST_ANSWER, FaultKind.CONFLICT_409]
)
def test_a_batch_table_whose_answer_is_lost_is_there_nevertheless(kind: FaultKind) -> None:
    def once(operation: RequestKind, key: str, nth: int) -> Fault | None:
        return Fault(kind) if operation is RequestKind.CREATE and nth == 1 else None

    store = FaultyStore(MemoryStore(), once)
    batches = tuple(record(0, 0) for _ in range(1_001))
    (append,) = with_batch_table(store, SystemIds(), 7, [topic_append("a", 1, Uploaded((FILE,), batches))])
    assert append.table is not None
    assert len(decode_batch_table(store.get(append.table.key), append.table)) == 1_001


def test_a_full_disk_refuses_the_batch_table() -> None:
    def full(operation: RequestKind, key: str, nth: int) -> Fault | None:
        return Fault(FaultKind.DISK_FULL) if operation is RequestKind.CREATE else None

    batches = tuple(record(0, 0) for _ in range(1_001))
    with pytest.raises(StorageError) as caught:
        with_batch_table(
            FaultyStore(MemoryStore(), full),
            SystemIds(),
            7,
            [topic_append("a", 1, Uploaded((FILE,), batches))],
        )
    assert caught.value.kind == "disk-full"


@pytest.mark.parametrize(
    ("kind", "there"),
    [
        (FaultKind.APPLIED_LOST_ANSWER, True),
        (FaultKind.EXISTS_AFTER_OWN_SUCCESS, True),
        (FaultKind.FAIL_BEFORE, False),
        (FaultKind.DISK_FULL, False),
    ],
)
def test_a_close_without_an_answer_is_looked_up(kind: FaultKind, there: bool) -> None:
    def once(operation: RequestKind, key: str, nth: int) -> Fault | None:
        return Fault(kind) if operation is RequestKind.OPEN_WRITE else None

    store = FaultyStore(MemoryStore(), once)
    files = upload(store)
    files.add(0, rows(1, 2))
    if not there:
        with pytest.raises(StorageError):
            files.finish()
        return
    done = files.finish()
    assert content(store, done.files[0], done.batches[0]) == [1, 2]


@pytest.mark.parametrize(("at", "more"), [(6, b""), (5, b"x")])
def test_another_object_under_the_key_is_not_taken_for_ours(at: int, more: bytes) -> None:
    """Size and end decide: one of the same size that ends differently, or a longer one, is somebody
    else's.
    """
    inner = MemoryStore()

    def lost(operation: RequestKind, key: str, nth: int) -> Fault | None:
        return Fault(FaultKind.FAIL_BEFORE) if operation is RequestKind.OPEN_WRITE else None

    store = FaultyStore(inner, lost)
    twin = upload(inner)
    twin.add(0, rows(1, 2, at=5))
    (good,) = twin.finish().files
    files = upload(store)
    files.add(0, rows(1, 2, at=at))
    assert files._writer is not None
    inner.create(files._writer._key, (inner.get(good.key) or b"") + more)
    with pytest.raises(StorageError):
        files.finish()


class EvenIds(SystemIds):
    """Draws the middle."""

    def uniform(self) -> float:
        return 0.5


class Striking:
    """Requests of one kind fail: the first of them, or all."""

    def __init__(self, operation: RequestKind, fault: Fault, times: int) -> None:
        self.requests = 0
        self._operation = operation
        self._fault = fault
        self._times = times

    def __call__(self, operation: RequestKind, key: str, nth: int) -> Fault | None:
        if operation is not self._operation:
            return None
        self.requests += 1
        return self._fault if self.requests <= self._times else None


def patient(store: ObjectStore, clock: QuickClock) -> TopicUpload:
    return TopicUpload(store, EvenIds(), directory=DIRECTORY, schema=SCHEMA, born=7, clock=clock)


PASSING = [
    Fault(FaultKind.FAIL_BEFORE),
    Fault(FaultKind.FAIL_BEFORE, after_bytes=0),
    Fault(FaultKind.FAIL_BEFORE, after_bytes=1),
    Fault(FaultKind.SERVER_ERROR),
    Fault(FaultKind.APPLIED_LOST_ANSWER),
]
LASTING = [
    Fault(FaultKind.PERMISSION_DENIED),
    Fault(FaultKind.DISK_FULL),
    Fault(FaultKind.DISK_FULL, after_bytes=1),
]


@pytest.mark.parametrize("fault", PASSING, ids=str)
def test_a_file_that_fails_for_now_is_uploaded_anew(fault: Fault) -> None:
    """After a failure of any step the bytes are written again under the same key, and the record is that of
    the object there."""
    striking, clock, memory = Striking(RequestKind.OPEN_WRITE, fault, 5), QuickClock(), MemoryStore()
    began_ms = clock.now().wall_ms
    files = patient(FaultyStore(memory, striking), clock)
    files.add(0, rows(1, 2))
    files.add(1, rows(3))
    (file,) = files.finish().files
    assert hashlib.sha256(memory.get(file.key) or b"").hexdigest() == file.sha256
    assert [found.key for found in memory.list("")] == [file.key]
    if fault.kind is FaultKind.APPLIED_LOST_ANSWER:
        assert striking.requests == 1
    else:
        assert striking.requests == 6
        assert clock.now().wall_ms - began_ms == 75 + 150 + 300 + 600 + 1_200


def test_a_file_that_goes_on_failing_is_given_up_after_a_minute() -> None:
    striking, clock = Striking(RequestKind.OPEN_WRITE, PASSING[0], 1_000), QuickClock()
    began_ms = clock.now().wall_ms
    files = patient(FaultyStore(MemoryStore(), striking), clock)
    files.add(0, rows(1))
    with pytest.raises(StorageError) as caught:
        files.finish()
    assert caught.value.transient
    assert striking.requests == 22
    assert clock.now().wall_ms - began_ms == 60_000


@pytest.mark.parametrize("fault", LASTING, ids=str)
def test_what_fails_for_good_is_not_tried_again(fault: Fault) -> None:
    striking, clock = Striking(RequestKind.OPEN_WRITE, fault, 1_000), QuickClock()
    began_ms = clock.now().wall_ms
    files = patient(FaultyStore(MemoryStore(), striking), clock)

    def write() -> None:
        files.add(0, rows(1))
        files.finish()

    with pytest.raises(StorageError):
        write()
    assert striking.requests == 1
    assert clock.now().wall_ms == began_ms


def test_a_file_that_is_too_large_to_be_kept_is_not_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_module, "KEPT_BYTES", 100)
    striking, clock = Striking(RequestKind.OPEN_WRITE, PASSING[0], 1), QuickClock()
    files = patient(FaultyStore(MemoryStore(), striking), clock)
    files.add(0, rows(1))
    with pytest.raises(StorageError):
        files.finish()
    assert striking.requests == 1


@pytest.mark.parametrize("operation", [RequestKind.CREATE, RequestKind.GET])
def test_a_batch_table_that_fails_for_now_is_tried_again_for_a_minute(operation: RequestKind) -> None:
    batches = tuple(record(0, 0) for _ in range(1_001))
    appends = [topic_append("a", 1, Uploaded((FILE,), batches))]
    for times, requests in ((5, 6), (1_000, 22)):
        unclear = Striking(RequestKind.CREATE, Fault(FaultKind.FAIL_BEFORE), times)
        away = Striking(operation, Fault(FaultKind.FAIL_BEFORE), times)

        def plan(
            kind: RequestKind, key: str, nth: int, unclear: Striking = unclear, away: Striking = away
        ) -> Fault | None:
            return unclear(kind, key, nth) or (away(kind, key, nth) if away is not unclear else None)

        clock = QuickClock()
        store = FaultyStore(MemoryStore(), unclear if operation is RequestKind.CREATE else plan)
        if times == 5:
            (append,) = with_batch_table(store, EvenIds(), 7, appends, clock=clock)
            assert append.table is not None
        else:
            with pytest.raises(StorageError):
                with_batch_table(store, EvenIds(), 7, appends, clock=clock)
        assert unclear.requests == requests
