"""Parquet files of other writers that are sent as they are: the records of a send, and nothing that could not
be read."""

from __future__ import annotations

import decimal
import io
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.integration.clients.failing import Plan, QuickClock, unclear_commit
from tests.integration.producers.foreign_files import (
    OTHERS,
    ROWS,
    SCHEMA,
    Write,
    by_deltalake,
    by_polars,
    by_pyarrow,
    some_rows,
    topic_log,
    with_gzip,
)
from txnformat.core.transactions.state import TransactionStatus
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import CommitStateUnknownError, InvalidInputError, NotFoundError, Producer, StorageError, TxnLog
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore
from writers import whole_files


def _nan_free(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: repr(value) for name, value in row.items()} for row in rows]


@pytest.mark.parametrize("write", [by_pyarrow, with_gzip, by_deltalake, by_polars])
def test_records_are_those_of_a_send(write: Write, tmp_path: Path) -> None:
    """Values, order, offsets, sequences and times; and each reader, with and without conditions, that sees
    the one sees the other."""
    table, log = some_rows(), topic_log(timestamp_column="at")
    log.create_topic("u", SCHEMA, timestamp_column="at")
    path = write(table, tmp_path)
    with Producer(log, "p") as producer, producer.transaction() as txn:
        assert txn.send_file("t", path)
        txn.send("u", pq.read_table(path).cast(SCHEMA))
    columns = [*SCHEMA.names, "_offset", "_timestamp", "_producer_id"]
    for where in (
        None,
        "id >= 19000",
        "text = 'text é 5'",
        "ratio > 0.999",
        "small IS NULL AND ok",
        "day = DATE '2026-01-03'",
        "_timestamp < TIMESTAMP '2026-01-01 02:00:00'",
    ):
        found, wanted = (
            log.read(topic, columns=columns, where=where).read_all().to_pylist() for topic in ("t", "u")
        )
        assert _nan_free(found) == _nan_free(wanted)
        assert where is not None or len(found) == ROWS
    assert log.verify(deep=True).ok


def test_the_bytes_are_the_files_own_but_for_the_footer(tmp_path: Path) -> None:
    table, store = some_rows(), LocalStore(tmp_path / "log")
    path = by_deltalake(table, tmp_path)
    log = topic_log(store)
    with Producer(log) as producer:
        assert producer.send_file("t", path)
    (file,) = log.state.files
    stored, data = store.get(file.key, file.size), path.read_bytes()
    assert stored is not None
    chunks = stored[: -file.footer_bytes]
    assert data.startswith(chunks)
    assert len(data) - len(chunks) < 5_000  # its footer, and its page index
    assert b"txnlog.chunk_crc32" in stored[-file.footer_bytes :]
    found, wanted = (pq.read_table(one).to_pylist() for one in (io.BytesIO(stored), path))
    assert _nan_free(found) == _nan_free(wanted)  # any engine reads it


def test_it_stands_behind_what_was_sent_before(tmp_path: Path) -> None:
    log = topic_log(partitions=2)
    path = by_pyarrow(some_rows(), tmp_path)
    with Producer(log, "p", buffer="inline") as producer, producer.transaction() as txn:
        txn.send("t", some_rows(3, first=-10), partition=1)
        assert txn.send_file("t", path, partition=1)
        txn.send("t", some_rows(2, first=-5), partition=1)
    rows = log.read("t", columns=["id", "_partition", "_offset"]).read_all().to_pydict()
    assert rows["id"] == [-10, -9, -8, *range(ROWS), -5, -4]
    assert set(rows["_partition"]) == {1}
    assert rows["_offset"] == list(range(ROWS + 5))


def test_files_without_a_key_take_turns(tmp_path: Path) -> None:
    log, path = topic_log(partitions=3), by_pyarrow(some_rows(), tmp_path)
    with Producer(log, "p") as producer, producer.transaction() as txn:
        for _ in range(6):
            assert txn.send_file("t", path)
    assert [one.log_end for one in log.offsets("t")] == [2 * ROWS + 1] * 3  # with a marker


def test_an_abort_shows_nothing_of_it(tmp_path: Path) -> None:
    log, path = topic_log(), by_pyarrow(some_rows(), tmp_path)
    with Producer(log, "p") as producer:
        producer.begin()
        assert producer.send_file("t", path)
        producer.abort()
    assert log.read("t").read_all().num_rows == 0


def test_requests(tmp_path: Path) -> None:
    """One object and one entry."""
    store = CountingStore(LocalStore(tmp_path / "log"))
    log, path = topic_log(store), by_pyarrow(some_rows(), tmp_path)
    with Producer(log, "p") as producer:
        producer.begin()
        with store.measure() as measured:
            assert producer.send_file("t", path)
            producer.commit()
    counts = {kind: measured.counts.count(RequestKind.OPEN_WRITE, kind) for kind in KeyClass}
    assert sum(counts.values()) == counts[KeyClass.DATA] == 1
    assert measured.counts.count(RequestKind.CREATE, KeyClass.ENTRY) == 1


@pytest.mark.parametrize("what", OTHERS)
def test_another_file_is_not_taken(what: str, tmp_path: Path) -> None:
    """Nothing is uploaded, and the transaction goes on."""
    store = CountingStore(MemoryStore())
    log = topic_log(store)
    path = OTHERS[what](some_rows(), tmp_path)
    with Producer(log, "p", embed_bytes=0) as producer, producer.transaction() as txn:
        with store.measure() as measured:
            assert not txn.send_file("t", path)
        assert measured.counts.count(RequestKind.OPEN_WRITE, KeyClass.DATA) == 0
        txn.send("t", some_rows(2))
    assert log.read("t").read_all().num_rows == 2


def test_a_file_that_fits_into_an_entry_is_not_taken(tmp_path: Path) -> None:
    log, path = topic_log(), by_pyarrow(some_rows(20), tmp_path)
    with Producer(log) as producer, Producer(log, embed_bytes=0) as other:
        assert not producer.send_file("t", path)
        assert other.send_file("t", path)


def test_a_row_group_that_is_too_large_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, log = some_rows(), topic_log()
    path = by_pyarrow(table, tmp_path)
    bytes_ = pq.read_table(path).nbytes
    with Producer(log) as producer:
        monkeypatch.setattr(whole_files, "TAKEN_ROW_GROUP_BYTES_MAX", bytes_ // 2)
        assert not producer.send_file("t", path)
        monkeypatch.setattr(whole_files, "TAKEN_ROW_GROUP_BYTES_MAX", 2 * bytes_)
        assert producer.send_file("t", path)


def test_other_topics_do_not_take_files(tmp_path: Path) -> None:
    """Records go by their keys, or the latest of each key is kept, which needs one."""
    path = by_pyarrow(some_rows(), tmp_path)
    log = topic_log(partitions=2, key_columns=["id"])
    log.upgrade()
    log.create_topic("latest", SCHEMA, key_columns=["id"], settings={"cleanup.policy": "compact"})
    log.create_topic("one", SCHEMA, key_columns=["id"])
    with Producer(log) as producer:
        assert not producer.send_file("t", path)
        assert not producer.send_file("latest", path)
        assert producer.send_file("one", path)
        assert producer.send_file("t", path, partition=1)
    assert [one.log_end for one in log.offsets("t")] == [0, ROWS]


def test_a_topic_that_grows_before_the_commit_has_the_records_by_their_keys(tmp_path: Path) -> None:
    log, path = topic_log(key_columns=["id"]), by_pyarrow(some_rows(), tmp_path)
    log.create_topic("u", SCHEMA, partitions=3, key_columns=["id"])
    with Producer(log, "p") as producer, producer.transaction() as txn:
        assert txn.send_file("t", path)
        log.alter_topic("t", partitions=3)
        txn.send("u", some_rows())
    found, wanted = (
        log.read(topic, columns=["id", "_partition", "_offset"]).read_all().to_pylist()
        for topic in ("t", "u")
    )
    assert found == wanted


def test_columns_with_other_names_since(tmp_path: Path) -> None:
    """A file is of the topic's newest version, and its columns go by their places afterwards."""
    log = topic_log()
    with Producer(log) as producer:
        assert producer.send_file("t", by_pyarrow(some_rows(), tmp_path))
        log.upgrade(columns=True)
        log.alter_topic("t", rename={"small": "little"}, drop=["ok"])
        assert not producer.send_file("t", by_pyarrow(some_rows(), tmp_path))
        now = some_rows().drop_columns(["ok"]).rename_columns(["id", "little", "ratio", "text", "day", "at"])
        assert producer.send_file("t", by_pyarrow(now, tmp_path))
    found = log.read("t", columns=["little", "text"]).read_all()
    assert found.equals(pa.concat_tables([now, now]).select(["little", "text"]).cast(found.schema))


@pytest.mark.parametrize("change", ["values", "shorter"])
def test_a_file_that_changes_meanwhile_is_an_error(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checksums would be those of other bytes. Nothing of it is in the log, and the transaction
    goes on.
    """
    log, path = topic_log(), by_pyarrow(some_rows(), tmp_path)
    real = whole_files.WholeFile.pieces

    def pieces(self: whole_files.WholeFile) -> Any:
        data = bytearray(path.read_bytes())
        data[5_000] ^= 1
        path.write_bytes(data if change == "values" else data[:50_000])
        return real(self)

    monkeypatch.setattr(whole_files.WholeFile, "pieces", pieces)
    with Producer(log, "p") as producer, producer.transaction() as txn:
        with pytest.raises(InvalidInputError) as caught:
            txn.send_file("t", path)
        assert caught.value.kind == "invalid-file"
        txn.send("t", some_rows(2))
    assert log.read("t").read_all().num_rows == 2


class _Far(io.RawIOBase):
    """A file of another machine."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)
        self.given = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, place: int, whence: int = 0) -> int:
        return self._data.seek(place, whence)

    def readinto(self, buffer: Any) -> int:
        count = self._data.readinto(memoryview(buffer)[: 1 << 20])
        self.given += count
        return count


def test_a_file_of_another_machine_is_fetched_once(tmp_path: Path) -> None:
    data = by_pyarrow(some_rows(), tmp_path).read_bytes()
    log, far = topic_log(), _Far(data)
    with Producer(log) as producer:
        assert producer.send_file("t", far)  # type: ignore[arg-type]
    assert log.read("t").read_all().num_rows == ROWS
    footer = int.from_bytes(data[-8:-4], "little") + 8
    assert far.given == len(data) + footer + 8  # the footer, its length and the magic come first
    other = _Far(by_pyarrow(some_rows().drop_columns(["ok"]), tmp_path).read_bytes())
    with Producer(log) as producer:
        assert not producer.send_file("t", other)  # type: ignore[arg-type]
    assert other.given < 50_000  # of a file that does not fit only the footer


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        (7, "invalid-argument"),
        (None, "invalid-argument"),
        ("/no/such/file", "invalid-file"),
        ("/", "invalid-file"),
    ],
)
def test_what_is_no_file_is_refused(file: Any, kind: str) -> None:
    log = topic_log()
    with Producer(log) as producer:
        with pytest.raises(InvalidInputError) as caught:
            producer.send_file("t", file)
        assert caught.value.kind == kind
        with pytest.raises(NotFoundError):
            producer.send_file("nothing", file)


def test_a_file_of_which_no_bytes_can_be_read_is_refused(tmp_path: Path) -> None:
    path = by_pyarrow(some_rows(), tmp_path)
    closed = path.open("rb")
    closed.close()
    with Producer(topic_log()) as producer, path.open(encoding="latin-1") as text:
        for file in (closed, text):
            with pytest.raises(InvalidInputError) as caught:
                producer.send_file("t", file)  # type: ignore[arg-type]
            assert caught.value.kind == "invalid-file"


def test_an_instant_in_another_zone_is_the_same_instant(tmp_path: Path) -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    times = pa.array(range(ROWS), pa.timestamp("us", "Europe/Berlin"))
    log, path = topic_log(schema=schema), by_pyarrow(pa.table({"at": times}), tmp_path)
    with Producer(log, embed_bytes=0) as producer:
        assert producer.send_file("t", path)
    assert log.read("t").read_all()["at"].combine_chunks().equals(times.cast(schema.types[0]))


def test_a_partition_that_is_not_there_is_refused(tmp_path: Path) -> None:
    log, path = topic_log(), by_pyarrow(some_rows(), tmp_path)
    with Producer(log, "p") as producer, producer.transaction() as txn:
        for partition in (1, -1, "0", True):
            with pytest.raises(NotFoundError) as caught:
                txn.send_file("t", path, partition)  # type: ignore[arg-type]
            assert caught.value.kind == "unknown-partition"
        txn.send("t", some_rows(2))
    assert log.read("t").read_all().num_rows == 2


def test_an_upload_that_fails_keeps_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    clock, plan = QuickClock(), Plan()
    store = MemoryStore(clock)
    TxnLog.create(store, clock=clock).create_topic("t", SCHEMA)
    log, path = TxnLog.open(FaultyStore(store, plan), clock=clock), by_pyarrow(some_rows(), tmp_path)
    plan.always(RequestKind.OPEN_WRITE, KeyClass.DATA, Fault(FaultKind.FAIL_BEFORE))
    with Producer(log, "p") as producer, producer.transaction() as txn:
        txn.send("t", some_rows(2, first=-2))
        with pytest.raises(StorageError):
            txn.send_file("t", path)
        plan.clear()
        assert txn.send_file("t", path)
    assert log.read("t", columns=["id"]).read_all()["id"].to_pylist() == [-2, -1, *range(ROWS)]


@pytest.mark.parametrize("kind", [FaultKind.APPLIED_LOST_ANSWER, FaultKind.FAIL_BEFORE])
def test_behind_a_send_whose_outcome_is_unknown(kind: FaultKind, tmp_path: Path) -> None:
    """The flush is repeated first, and lands once."""
    clock, plan = QuickClock(), Plan()
    store = MemoryStore(clock)
    TxnLog.create(store, clock=clock, embedding=False).create_topic("t", SCHEMA)
    log, path = TxnLog.open(FaultyStore(store, plan), clock=clock), by_pyarrow(some_rows(), tmp_path)
    with Producer(log, "p", buffer="inline", batch_bytes=1_000, buffer_bytes=1_000) as producer:
        producer.begin()
        producer.send("t", some_rows(200, first=-200))
        unclear_commit(plan, kind)
        with pytest.raises(CommitStateUnknownError):
            producer.send("t", some_rows(1))  # which has to make room
        plan.clear()
        assert producer.send_file("t", path)
        producer.commit()
    found = TxnLog.open(store, clock=clock).read("t", columns=["id"]).read_all()
    assert found["id"].to_pylist() == list(range(-200, ROWS))


def test_many_files_are_one_transaction(tmp_path: Path) -> None:
    """More batches than an entry names: the log gets to know of them before the commit, and readers
    with it.
    """
    log = topic_log()
    path = by_pyarrow(some_rows(), tmp_path, row_group_size=40)
    with Producer(log, "p") as producer:
        producer.begin()
        for _ in range(3):
            assert producer.send_file("t", path)
        assert log.refresh().transactional_ids["p"].status is TransactionStatus.ONGOING
        assert log.read("t").read_all().num_rows == 0
        producer.commit()
    assert log.read("t", columns=["id"]).read_all()["id"].to_pylist() == 3 * list(range(ROWS))


def test_nested_columns_and_decimals_of_the_same_form(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("price", pa.decimal128(38, 2)),
            ("tags", pa.list_(pa.field("element", pa.string()))),
            ("place", pa.struct([("x", pa.float64()), ("y", pa.float64())])),
        ]
    )
    draw = random.Random(3)
    rows = [
        {
            "price": decimal.Decimal(draw.randrange(-(10**38) + 1, 10**38)).scaleb(
                -2, decimal.Context(prec=60)
            ),
            "tags": draw.choice([None, [], [f"{draw.random()}"] * 3]),
            "place": draw.choice([None, {"x": draw.random(), "y": None}]),
        }
        for _ in range(ROWS)
    ]
    table, log = pa.Table.from_pylist(rows, schema=schema), topic_log(schema=schema)
    with Producer(log) as producer:
        assert producer.send_file("t", by_pyarrow(table, tmp_path))
    found = log.read("t").read_all()
    assert found.to_pylist() == table.to_pylist()
    least = sorted(table["price"].to_pylist())[5]
    assert log.read("t", where=f"price <= {least}").read_all().num_rows == 6
