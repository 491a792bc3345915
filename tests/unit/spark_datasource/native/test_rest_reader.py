"""The reader of the rest, without Spark: ranges of offsets and nothing beside them, what it asks of the
store, outcomes that came later."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from spark_datasource.native.rest import Rest, RestReader
from spark_datasource.options.storage import NO_STORAGE
from spark_datasource.schema import spark_schema
from tests.spark.histories import NUMBERS, Transactions, append, numbers
from txnformat.log import TxnLog
from txnformat.store.memory import MemoryStore
from txnformat.types import OffsetRange, Outcome
from txnlog import Producer
from txnlog_testing.stores.counting import CountingStore

COLUMNS = ["n", "_partition", "_offset", "_commit_entry"]
MEMORY_MAX = 2**20


def reader_of(log: TxnLog, ranges: dict[int, list[tuple[int, int]]], isolation: str) -> RestReader:
    """Return the reader of ranges of topic ``t``."""
    topic = log.refresh().topic("t")
    rest = Rest(
        log_id=log.state.log_id,
        entry=log.state.entry,
        topic_id=topic.topic_id,
        name="t",
        schema_id=topic.schema.schema_id,
        isolation=isolation,
        ranges={number: [OffsetRange(*one) for one in found] for number, found in ranges.items()},
    )
    return RestReader(rest, "/the-log", NO_STORAGE, spark_schema(topic.schema, COLUMNS), log)


def places(rows: pa.Table | None) -> list[tuple[int, int]]:
    """Return partition and offset of each row, in order."""
    assert rows is not None
    return list(zip(rows["_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    "later",
    [
        lambda _: None,
        lambda log: log.maintain("seal"),
        lambda log: (log.maintain("seal"), log.compact("t", min_lag_ms=0)),
    ],
    ids=["unsealed", "sealed", "compacted"],
)
def test_rows_are_those_of_the_ranges(later: Callable[[TxnLog], object]) -> None:
    """The ranges cut the first file and the last one, and leave a whole file between them out."""
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", NUMBERS, partitions=3)
    for first in range(0, 40, 10):
        append(log, "t", {0: [numbers(first, first + 10)], 2: [numbers(first, first + 10)]})
    reader = reader_of(log, {0: [(3, 10), (20, 22), (25, 31)], 2: [(39, 40)]}, "read_committed")
    wanted = [*range(3, 10), *range(20, 22), *range(25, 31)]
    later(log)
    log.refresh()
    found = reader.rows(log, MEMORY_MAX)
    assert places(found) == [*((0, offset) for offset in wanted), (2, 39)]
    assert found is not None
    assert found["n"].to_pylist() == [*wanted, 39]


def test_rows_that_take_too_much_memory_are_not_kept() -> None:
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", NUMBERS)
    append(log, "t", {0: [numbers(0, 10)]})
    reader = reader_of(log, {0: [(0, 10)]}, "read_committed")
    found = reader.rows(log, MEMORY_MAX)
    assert found is not None
    assert reader.rows(log, found.nbytes - 1) is None


def test_an_outcome_after_the_entry_of_the_read_is_not_told() -> None:
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", NUMBERS)
    producer = Transactions(log, "tx")
    producer.send("t", {0: [numbers(0, 5)]})
    reader = reader_of(log, {0: [(1, 4)]}, "read_uncommitted")
    producer.end(Outcome.COMMIT)
    log.refresh()
    found = reader.rows(log, MEMORY_MAX)
    assert places(found) == [(0, 1), (0, 2), (0, 3)]
    assert found is not None
    assert found["_commit_entry"].to_pylist() == [None] * 3


@pytest.mark.parametrize(
    ("embed_bytes", "is_sealed", "gets"),
    [(65_536, False, 0), (65_536, True, 2), (0, False, 10), (0, True, 11)],
)
def test_requests(embed_bytes: int, is_sealed: bool, gets: int) -> None:
    """None to follow the log, which has just been followed, and none for rows in entries that it has kept; 1
    for a sidecar that was not read yet."""
    store = CountingStore(MemoryStore())
    log = TxnLog.create(store)
    log.create_topic("t", NUMBERS)
    with Producer(log, embed_bytes=embed_bytes) as producer:
        for number in range(10):
            producer.send("t", numbers(number, number + 1))
            producer.flush()
    if is_sealed:
        log.maintain("seal")
    here = TxnLog.open(store)
    reader = reader_of(here, {0: [(0, 10)]}, "read_committed")
    with store.measure() as measured:
        found = reader.rows(here, MEMORY_MAX)
    assert places(found) == [(0, offset) for offset in range(10)]
    assert sum(measured.counts.requests.values()) == gets
