"""Open files of a reader: one request for a small file, the next ones on their way, and an end that leaves
nothing running."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from concurrent.futures import Future

import numpy as np
import pyarrow as pa
import pytest

from txnformat.columns.file_columns import FileColumns
from txnformat.errors import NotFoundError, StorageError
from txnformat.reading.open_files import AHEAD_MAX, FETCHED_MAX, OpenFiles
from txnformat.segments import segment_object
from txnformat.segments.writer import SegmentFileWriter
from txnformat.store.memory import MemoryStore
from txnformat.types import FileRecord
from txnlog_testing.stores.counting import CountingStore

SCHEMA = pa.schema([("n", pa.int64())])
SECONDS_MAX = 300.0
"""How long a read that is alone waits before the test fails; those that meet do not wait."""


class FarStore(CountingStore):
    """A store whose requests have a latency, as it says; ``meeting``: the number of reads that go on only
    together."""

    def __init__(self, in_flight: int = 16) -> None:
        super().__init__(MemoryStore())
        self._in_flight = in_flight
        self.asked: list[str] = []
        self.ahead: set[str] = set()
        """Requests of the threads."""
        self.threads: set[str] = set()
        self.meeting: threading.Barrier | None = None
        self.failing: dict[str, StorageError | NotFoundError] = {}

    @property
    def reads_in_flight(self) -> int:
        return self._in_flight

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.asked.append(key)
        name = threading.current_thread().name
        self.threads.add(name)
        if name.startswith("txnlog-read"):
            self.ahead.add(key)
        if self.meeting is not None:
            self.meeting.wait(SECONDS_MAX)
        if key in self.failing:
            raise self.failing[key]
        return super().get_range(key, start, length)


def write(store: FarStore, count: int) -> list[FileRecord]:
    """Return small files; file i has the number i."""
    files = []
    for number in range(count):
        key = f"t-00000000/data/{number:020d}-00000000-0000-4000-8000-000000000000.parquet"
        writer = SegmentFileWriter(store.open_write(key), key, SCHEMA)
        writer.write_batch(0, pa.table({"n": [number]}, SCHEMA))
        files.append(writer.close())
    return files


def read(files: OpenFiles, file: FileRecord) -> int:
    (batch,) = files.open(file, FileColumns.own(SCHEMA)).read([0], ["n"], 10)
    number: int = batch.column("n")[0].as_py()
    return number


def readers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("txnlog-read")]


def expecting(store: FarStore, records: list[FileRecord], order: list[int], **settings: object) -> OpenFiles:
    files = OpenFiles(store, **settings)  # type: ignore[arg-type]
    files.expect(np.array(order), records.__getitem__)
    return files


def test_a_small_file_is_one_request_and_a_larger_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FarStore()
    (file,) = write(store, 1)
    with OpenFiles(store) as files, store.measure() as measured:
        assert read(files, file) == 0
    assert (measured.counts.count(), measured.counts.bytes_read()) == (1, file.size)
    monkeypatch.setattr(segment_object, "SMALL_FILE_BYTES", file.size - 1)
    with OpenFiles(store) as files, store.measure() as measured:
        assert read(files, file) == 0
    assert measured.counts.count() == 2
    assert measured.counts.bytes_read() < file.size


def test_without_data_a_file_is_its_footer() -> None:
    store = FarStore()
    records = write(store, 20)
    with expecting(store, records, list(range(20)), has_data=False) as files, store.measure() as measured:
        assert [files.open(file, FileColumns.own(SCHEMA)).row_group_rows(0) for file in records] == [1] * 20
    assert (measured.counts.count(), measured.counts.bytes_read()) == (
        20,
        sum(file.footer_bytes for file in records),
    )
    assert len(store.threads) > 1


def test_the_next_files_are_on_their_way_together() -> None:
    """One after the other they would wait for each other until the barrier breaks."""
    store = FarStore(in_flight=3)
    records = write(store, 4)
    store.meeting = threading.Barrier(4)
    with expecting(store, records, [0, 1, 2, 3]) as files:
        assert [read(files, file) for file in records] == [0, 1, 2, 3]
    assert Counter(store.asked) == {file.key: 1 for file in records}
    assert not readers()


@pytest.mark.parametrize("in_flight", [2, 16, 1_000])
def test_no_more_is_on_its_way_than_the_bound(in_flight: int) -> None:
    store = FarStore(in_flight)
    records = write(store, 60)
    with expecting(store, records, list(range(60))) as files:
        for done, file in enumerate(records, 1):
            assert read(files, file) == done - 1
            assert len(store.asked) <= done + min(in_flight, AHEAD_MAX)
    assert len(store.asked) == 60


def test_on_a_store_that_likes_one_read_at_a_time_the_caller_reads() -> None:
    store = FarStore(in_flight=1)
    records = write(store, 10)
    with expecting(store, records, list(range(10))) as files:
        files.fetch(records)
        for done, file in enumerate(records, 1):
            assert read(files, file) == done - 1
            assert len(store.asked) == done
    assert store.threads == {threading.current_thread().name}


def test_a_single_file_is_read_by_the_caller() -> None:
    store = FarStore()
    records = write(store, 1)
    with expecting(store, records, [0]) as files:
        files.fetch(records)
        assert read(files, records[0]) == 0
    assert store.threads == {threading.current_thread().name}


@pytest.mark.parametrize("in_flight", [1, 3, 16])
@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_a_file_that_is_opened_several_times_is_fetched_once(in_flight: int, partitions: int) -> None:
    store = FarStore(in_flight)
    records = write(store, 30)
    order = list(range(30)) * partitions
    with expecting(store, records, order) as files:
        assert [read(files, records[number]) for number in order] == order
        assert not files._kept, "nothing is kept that is not opened again"
        assert not files._bytes
    assert len(store.asked) == 30


@pytest.mark.parametrize("in_flight", [1, 16])
def test_what_finds_no_room_is_fetched_again_and_the_bound_holds(in_flight: int) -> None:
    store = FarStore(in_flight)
    records = write(store, 30)
    order = list(range(30)) * 3
    weight = records[0].size + 4 * records[0].footer_bytes
    with expecting(store, records, order, bytes_max=10 * weight) as files:
        for number in order:
            assert read(files, records[number]) == number
            assert files._bytes <= 10 * weight
    assert 30 + 2 * 20 <= len(store.asked) <= 30 + 2 * 21


def test_the_last_used_ones_are_kept_for_a_consumer() -> None:
    store = FarStore()
    records = write(store, 30)
    weight = records[0].size + 4 * records[0].footer_bytes
    files = OpenFiles(store, keeps=True, bytes_max=10 * weight)
    for file in [*records, *records[20:], *records[:2]]:
        read(files, file)
    assert Counter(store.asked) == {
        **{file.key: 1 for file in records[2:]},
        **{file.key: 2 for file in records[:2]},
    }
    assert files._bytes <= 10 * weight


def test_an_error_comes_where_its_file_is_read_and_closing_leaves_no_thread() -> None:
    store = FarStore()
    records = write(store, 10)
    store.failing[records[3].key] = NotFoundError("gone", key=records[3].key)
    with expecting(store, records, list(range(10))) as files:
        assert [read(files, file) for file in records[:3]] == [0, 1, 2]
        with pytest.raises(NotFoundError) as caught:
            read(files, records[3])
        assert caught.value.kind == "segment-file-missing"
    assert not readers()
    assert store.asked.count(records[3].key) == 1


def test_closing_early_begins_nothing_more() -> None:
    store = FarStore(in_flight=4)
    records = write(store, 50)
    with expecting(store, records, list(range(50))) as files:
        read(files, records[0])
        assert readers()
    assert not readers()
    assert len(store.asked) <= 5


def test_what_fails_ahead_for_now_is_asked_of_the_patient_store() -> None:
    ahead = FarStore()
    records = write(ahead, 5)
    ahead.failing[records[2].key] = StorageError("for now", transient=True)
    ahead.failing[records[3].key] = StorageError("for good", transient=False)
    patient = FarStore()
    patient._inner = ahead._inner
    with expecting(patient, records, list(range(5)), ahead=ahead) as files:
        assert [read(files, file) for file in records[:3]] == [0, 1, 2]
        assert patient.asked == [records[0].key, records[2].key]
        with pytest.raises(StorageError, match="for good"):
            read(files, records[3])


def test_a_reader_that_leaves_its_order_is_not_held_up_by_what_it_passes_over() -> None:
    store = FarStore(in_flight=4)
    records = write(store, 50)
    with expecting(store, records, list(range(50))) as files:
        read(files, records[0])
        assert [read(files, file) for file in records[30:]] == list(range(30, 50))
    asked = Counter(store.asked)
    assert {asked[file.key] for file in records[30:]} == {1}
    assert len(store.asked) <= 1 + 4 + 20
    assert {file.key for file in records[31:]} <= store.ahead, "from there on files come ahead again"


def test_files_are_fetched_together_and_a_failure_waits_for_its_turn() -> None:
    store = FarStore()
    records = write(store, FETCHED_MAX + 5)
    store.failing[records[1].key] = StorageError("no", transient=False)
    files = OpenFiles(store, keeps=True)
    files.fetch(records)
    assert len(store.asked) == FETCHED_MAX
    assert not readers()
    assert read(files, records[0]) == 0
    with pytest.raises(StorageError):
        read(files, records[1])
    assert len(store.asked) == FETCHED_MAX
    del store.failing[records[1].key]
    assert read(files, records[1]) == 1, "asked anew"
    files.fetch(records[:3])
    assert len(store.asked) == FETCHED_MAX + 1, "what is there is not fetched again"


def test_a_forked_child_asks_by_itself() -> None:
    """It has no threads that would answer."""
    store = FarStore(in_flight=4)
    records = write(store, 10)
    with expecting(store, records, list(range(10))) as files:
        read(files, records[0])
        files._begun = OrderedDict((key, Future()) for key in files._begun)
        files.renew()
        assert [read(files, file) for file in records[1:]] == list(range(1, 10))


@pytest.mark.parametrize("in_flight", [1, 16])
def test_a_file_that_several_reads_share_is_fetched_once_and_let_go_at_the_end(in_flight: int) -> None:
    """A read may open it several times; also then nothing is kept after the last one."""
    store = FarStore(in_flight)
    records = write(store, 3)
    with OpenFiles(store) as files:
        files.share({records[0].key: 2, records[1].key: 2, records[2].key: 1})
        for order in ([0, 1, 0, 2], [0, 1]):
            files.expect(np.array(order), records.__getitem__)
            assert [read(files, records[number]) for number in order] == order
        assert (files._uses, dict(files._kept), files._bytes) == ({}, {}, 0)
        assert Counter(store.asked) == dict.fromkeys((record.key for record in records), 1)
