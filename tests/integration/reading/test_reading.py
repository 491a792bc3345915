"""Reading a log: what a reader gets, and one clear error for whatever is wrong."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from txnformat import keys
from txnformat.store.local import LocalStore
from txnformat.store.requests import RequestKind
from txnlog import (
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    OffsetOutOfRangeError,
    Producer,
    StorageError,
    TxnLog,
    UnsupportedFeatureError,
)
from txnlog_testing.entries import changed_entry
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

NUMBERS = pa.schema([("n", pa.int64()), ("text", pa.string())])


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": numbers, "text": [f"row {n}" for n in numbers]}, schema=NUMBERS)


def numbers(log: TxnLog, **asked: Any) -> list[int]:
    found: list[int] = log.read("t", **asked).read_all().column("n").to_pylist()
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log with one partition: 0 1 | C | 10 11 (aborted) | A | 20 21 | C, so offsets 0 to 8, records at 0 1
    3 4 6 7."""
    return _written(tmp_path / "log")


@pytest.fixture
def uploaded(tmp_path: Path) -> Path:
    """The same log, with a file of each flush."""
    return _written(tmp_path / "log", embedding=False)


def _written(root: Path, **values: Any) -> Path:
    with TxnLog.create(root, **values) as log:
        log.create_topic("t", NUMBERS)
        with Producer(log, "p", buffer="inline") as producer:
            for first in (0, 10, 20):
                producer.begin()
                producer.send("t", rows(first))
                producer.flush()
                producer.send("t", rows(first + 1))
                producer.flush()
                if first == 10:
                    producer.abort()
                else:
                    producer.commit()
    return root


# --- what is read -------------------------------------------------------------------------------------------


def test_isolation_levels_and_offsets(root: Path) -> None:
    log = TxnLog.open(root)
    assert numbers(log) == [0, 1, 20, 21]
    assert numbers(log, isolation="read_uncommitted") == [0, 1, 10, 11, 20, 21]
    table = log.read("t", isolation="read_uncommitted", columns=["_offset", "n"]).read_all()
    assert table.to_pydict() == {"_offset": [0, 1, 3, 4, 6, 7], "n": [0, 1, 10, 11, 20, 21]}


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_every_range_holds_the_records_with_offsets_in_it(root: Path, level: str) -> None:
    log = TxnLog.open(root)
    whole = log.read("t", isolation=level, columns=["_offset", "n"]).read_all().to_pylist()
    for start in range(10):
        for end in range(start, 10):
            part = log.read("t", isolation=level, columns=["_offset", "n"], start=start, end={0: end})
            assert part.read_all().to_pylist() == [row for row in whole if start <= row["_offset"] < end]


def test_metadata_columns(root: Path) -> None:
    log = TxnLog.open(root)
    names = ["_topic", "_partition", "_producer_id", "_producer_epoch", "_entry", "_commit_entry", "n"]
    found = log.read("t", columns=names, start=6).read_all().to_pylist()
    entries = log.state.entry
    assert found == [
        {"_topic": "t", "_partition": 0, "_producer_id": 0, "_producer_epoch": 2, "_entry": entries - 2,
         "_commit_entry": entries, "n": 20},
        {"_topic": "t", "_partition": 0, "_producer_id": 0, "_producer_epoch": 2, "_entry": entries - 1,
         "_commit_entry": entries, "n": 21},
    ]  # fmt: skip
    aborted = log.read(
        "t", isolation="read_uncommitted", columns=["_commit_entry"], start=3, end=5
    ).read_all()
    assert aborted.column(0).to_pylist() == [None, None]


def test_types_survive(tmp_path: Path) -> None:
    data = pa.table(
        {
            "i": pa.array([1, None, -(2**63)]),
            "f": pa.array([0.5, float("-inf"), None]),
            "b": pa.array([True, None, False]),
            "d": pa.array(
                [decimal.Decimal("1.50"), None, decimal.Decimal("-99999.99")], pa.decimal128(10, 2)
            ),
            "s": ["", None, "ü€😀"],
            "x": pa.array([b"", None, bytes(range(256))]),
            "day": pa.array([datetime.date(1, 1, 1), None, datetime.date(9999, 12, 31)]),
            "utc": pa.array(
                [datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), None, None], pa.timestamp("us", "UTC")
            ),
            "local": pa.array([datetime.datetime(1969, 7, 20, 20, 17), None, None], pa.timestamp("us")),
            "list": pa.array([[1, None], [], None]),
            "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}]),
            "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
        }
    )
    log = TxnLog.create(tmp_path / "log")
    topic = log.create_topic("t", data.schema)
    with Producer(log, "p") as producer, producer.transaction() as txn:
        txn.send("t", data)
    found = log.read("t").read_all()
    assert found.schema == topic.schema.arrow_schema
    assert found.to_pylist() == data.to_pylist()


def test_a_transaction_with_a_batch_table_reads_like_any_other(tmp_path: Path) -> None:
    log = TxnLog.create(tmp_path / "log")
    log.create_topic("t", NUMBERS, partitions=2)
    log.create_topic("u", NUMBERS)
    with Producer(log, "p", batch_bytes=1) as producer, producer.transaction() as txn:
        for number in range(700):
            txn.send("t", rows(2 * number, 2 * number + 1), partition=number % 2)
            txn.send("u", rows(number))
    assert len(log.state.tables) == 4  # of two topics, of what was staged and of what came with the commit
    fresh = TxnLog.open(tmp_path / "log")
    expected = [n for parity in (0, 1) for k in range(parity, 700, 2) for n in (2 * k, 2 * k + 1)]
    assert numbers(fresh) == expected
    assert fresh.read("u").read_all().column("n").to_pylist() == list(range(700))
    assert numbers(fresh, partitions=[1], start={1: 3}, end={1: 7}) == [7, 10, 11, 14]


def test_a_second_process_follows(root: Path) -> None:
    reader, writer = TxnLog.open(root), TxnLog.open(root)
    assert reader.topics() == ["t"]
    with Producer(writer, "p") as producer, producer.transaction() as txn:
        txn.send("t", rows(30))
    assert numbers(reader) == [0, 1, 20, 21, 30]


# --- what is wrong ------------------------------------------------------------------------------------------


def _kind(error: type[Exception], kind: str, call: Any) -> Any:
    with pytest.raises(error) as caught:
        call()
    assert getattr(caught.value, "kind", None) == kind
    return caught.value


def test_names_that_are_not_there(root: Path) -> None:
    log = TxnLog.open(root)
    error = _kind(NotFoundError, "unknown-topic", lambda: log.read("orders"))
    assert error.values["topics"] == ["t"]
    _kind(NotFoundError, "unknown-partition", lambda: log.read("t", partitions=[0, 1]))
    _kind(NotFoundError, "unknown-partition", lambda: log.read("t", start={1: 0}))
    for partitions in ({"partitions": ["0"]}, {"start": {"0": 0}}):
        with pytest.raises(
            NotFoundError, match="partitions are whole numbers; the topic has one partition, 0"
        ):
            log.read("t", **partitions)
    unknown = _kind(InvalidInputError, "unknown-column", lambda: log.read("t", columns=["m", "n", "o"]))
    assert len(unknown.problems) == 2
    _kind(InvalidInputError, "unknown-isolation-level", lambda: log.read("t", isolation="serializable"))


def test_offsets_out_of_range_name_earliest_and_latest(root: Path) -> None:
    log = TxnLog.open(root)
    for asked in ({"start": 10}, {"start": -1}, {"end": 10}, {"start": {0: 99}}):
        error = _kind(
            OffsetOutOfRangeError, "offset-out-of-range", lambda asked=asked: log.read("t", **asked)
        )
        assert (error.values["earliest"], error.values["latest"]) == (0, 9)
    _kind(InvalidInputError, "end-before-start", lambda: log.read("t", start=5, end=4))
    _kind(InvalidInputError, "invalid-offset", lambda: numbers(log, start="latest"))


def test_a_path_without_a_log(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "log"):
        error = _kind(NotFoundError, "no-log", lambda path=path: TxnLog.open(path))
        assert str(path) in error.values["path"]
    assert list(tmp_path.iterdir()) == []


def test_a_newer_format_and_an_unknown_operation_are_refused(root: Path) -> None:
    entry = max((root / keys.LOG_PREFIX).iterdir())

    def rename(document: dict[str, Any]) -> None:
        document["operations"][0]["operation"] = "compact"

    entry.write_bytes(changed_entry(entry.read_bytes(), rename))
    _kind(UnsupportedFeatureError, "unsupported-feature", lambda: TxnLog.open(root))
    path = root / keys.FORMAT_KEY
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 3}))
    _kind(UnsupportedFeatureError, "newer-format", lambda: TxnLog.open(root))


def test_a_damaged_entry_is_named(root: Path) -> None:
    entry = sorted((root / keys.LOG_PREFIX).iterdir())[3]
    entry.write_bytes(entry.read_bytes().replace(b"records", b"recordz", 1)[:-1])
    with pytest.raises(CorruptDataError):
        TxnLog.open(root)


def _data_files(root: Path) -> list[Path]:
    """Return the segment files in the order in which the log names them."""
    return [root / file.key for file in TxnLog.open(root).state.files]


def test_a_damaged_or_missing_segment_file_is_named(uploaded: Path) -> None:
    root = uploaded
    log = TxnLog.open(root)
    first = _data_files(root)[0]
    good = first.read_bytes()
    for place in (4, len(good) // 2, len(good) - 9):
        bad = bytearray(good)
        bad[place] ^= 1
        first.write_bytes(bytes(bad))
        error = _kind(CorruptDataError, "corrupt-data", lambda: log.read("t").read_all())
        assert error.values["object"].endswith(first.name)
    first.write_bytes(good[:-20])
    _kind(CorruptDataError, "corrupt-data", lambda: log.read("t").read_all())
    first.unlink()
    error = _kind(NotFoundError, "segment-file-missing", lambda: log.read("t").read_all())
    assert error.values["object"].endswith(first.name)
    assert numbers(log, start=6) == [20, 21]  # what does not need it is still there


def test_files_of_aborted_records_are_not_needed(uploaded: Path) -> None:
    root = uploaded
    for path in _data_files(root)[2:4]:
        path.unlink()
    log = TxnLog.open(root)
    assert numbers(log) == [0, 1, 20, 21]
    _kind(
        NotFoundError,
        "segment-file-missing",
        lambda: log.read("t", isolation="read_uncommitted").read_all(),
    )


def test_a_damaged_or_missing_batch_table_is_named(tmp_path: Path) -> None:
    log = TxnLog.create(tmp_path / "log")
    log.create_topic("t", NUMBERS)
    with Producer(log, "p", batch_bytes=1) as producer, producer.transaction() as txn:
        for number in range(1_001):
            txn.send("t", rows(number))
    (table,) = (tmp_path / "log" / keys.TABLE_PREFIX).iterdir()
    data = bytearray(table.read_bytes())
    data[100] ^= 1
    table.write_bytes(bytes(data))
    error = _kind(CorruptDataError, "corrupt-data", lambda: log.read("t"))
    assert error.values["object"].endswith(table.name)
    table.unlink()
    _kind(CorruptDataError, "corrupt-data", lambda: log.read("t"))


def test_a_read_only_log_can_be_read_and_says_why_it_cannot_be_written(root: Path) -> None:
    def refuse(operation: RequestKind, key: str, nth: int) -> Fault | None:
        writes = (RequestKind.CREATE, RequestKind.PUT, RequestKind.OPEN_WRITE, RequestKind.DELETE)
        return Fault(FaultKind.READ_ONLY) if operation in writes else None

    before = sorted(path for path in root.rglob("*") if path.is_file())
    log = TxnLog.open(FaultyStore(LocalStore(str(root)), refuse))
    assert numbers(log) == [0, 1, 20, 21]
    assert log.describe().topics[0].name == "t"
    _kind(StorageError, "read-only-store", Producer(log, "p").init)
    _kind(StorageError, "read-only-store", Producer(log, enable_idempotence=True).init)
    _kind(StorageError, "read-only-store", lambda: log.create_topic("u", NUMBERS))
    assert sorted(path for path in root.rglob("*") if path.is_file()) == before
