"""Many small files in Spark: what they cost in splits, and one GET for each, in every way of reading. No
session needed."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from spark_datasource.datasource import TxnLogDataSource
from spark_datasource.options.storage import NO_STORAGE
from spark_datasource.read.planning import splits_of
from spark_datasource.read.splits import (
    OPEN_BYTES,
    OPEN_BYTES_AT_HAND,
    Split,
    TopicPlan,
    TopicRead,
    cut,
    split_count,
)
from spark_datasource.worker import logs, stores
from tests.integration.reading.small_files import BUDGET, counted, fill, gets_per_file
from tests.unit.spark_datasource.reading import make_reader, read, schema_of, travelled
from txnformat.core.records.scan import INT64_MAX, PLANNED, PartitionPlan, Stored
from txnformat.core.topics.schema import as_topic_schema
from txnformat.reading.plan import SealedRange
from txnformat.types import FileRecord, ObjectRecord, OffsetRange
from txnlog import TxnLog
from txnlog_testing.stores.counting import CountingStore

PATH = "/the-log"
MB = 2**20
READ = TopicRead("t", "id", as_topic_schema(pa.schema([("n", pa.int64())])), ("n",))


def appended(files: int, partitions: int, size: int = 100, *, stored: int = Stored.NO) -> TopicPlan:
    """Return the plan of transactions with a batch in each partition, all in one file."""
    plans = []
    for number in range(partitions):
        rows = np.zeros(files, PLANNED)
        rows["base_offset"] = np.arange(files) * 10
        rows["end_offset"] = rows["base_offset"] + 10
        rows["take"] = 10
        rows["size"] = size
        rows["entry"] = rows["commit_entry"] = rows["file"] = np.arange(files)
        rows["since"], rows["until"], rows["known_entry"] = -1, INT64_MAX, INT64_MAX
        rows["stored"] = stored
        plans.append(PartitionPlan(number, OffsetRange(0, 10 * files), rows))
    records = {n: FileRecord(f"file {n}", 1, "", 1, "", 1) for n in range(files)}
    return TopicPlan(READ, plans, records)


def sealed(segments: int, partitions: int, batches: int, size: int) -> TopicPlan:
    """Return the plan of sealed segments, each with batches in every partition."""
    parts = [
        SealedRange(
            number,
            OffsetRange(1_000 * segment, 1_000 * (segment + 1)),
            ObjectRecord(f"index {segment}", 1, ""),
            size,
            batches=batches,
        )
        for number in range(partitions)
        for segment in range(segments)
    ]
    return TopicPlan(READ, [], {}, parts)


def splits(plan: TopicPlan, open_bytes: int, cores: int = 8) -> list[Split]:
    count = split_count(plan.cost(open_bytes), 128 * MB, None, cores)
    return cut("log", 7, [plan], count, open_bytes)


@pytest.mark.parametrize("open_bytes", [OPEN_BYTES, OPEN_BYTES_AT_HAND])
@pytest.mark.parametrize(
    ("plan", "opens"),
    [
        (appended(10_000, 1), 10_000),
        (appended(10_000, 4), 10_000),
        (sealed(3, 1, 3_334, 50_000), 3 * 3_334),
        (sealed(10, 4, 1_000, 50_000), 10 * (1_000 + 3_000 // 4)),
    ],
)
def test_ten_thousand_small_files_are_many_tasks(plan: TopicPlan, opens: int, open_bytes: int) -> None:
    found = splits(plan, open_bytes)
    by_cost = opens * open_bytes // (128 * MB)
    assert max(8, by_cost) <= len(found) <= 1.25 * by_cost + 8
    assert len(splits(plan, 0)) <= 2, "their bytes alone are one task, or two"


def test_few_files_are_one_task_and_fat_ones_are_cut_by_their_bytes() -> None:
    assert len(splits(appended(7, 4), OPEN_BYTES)) == 1
    assert len(splits(appended(60, 4), OPEN_BYTES_AT_HAND)) == 1
    fat = appended(32, 4, 64 * MB)
    assert len(splits(fat, 0)) == 64
    assert 64 <= len(splits(fat, OPEN_BYTES)) <= 66
    assert [part.partition for one in splits(fat, OPEN_BYTES) for part in one.parts] == sorted(
        part.partition for one in splits(fat, OPEN_BYTES) for part in one.parts
    ), "partition by partition"


@pytest.mark.parametrize("partitions", [1, 3, 16])
def test_each_split_has_its_own_small_files_and_partitions_stay_in_order(partitions: int) -> None:
    plan = appended(1_000, partitions)
    found = pickle.loads(pickle.dumps(splits(plan, OPEN_BYTES)))
    assert len(found) == 8
    names = [name for one in found for name in one.files]
    assert len(names) == len(set(names)) == 1_000
    offsets: dict[int, list[int]] = {}
    for one in found:
        assert [part.partition for part in one.parts] == list(range(partitions))
        for part in one.parts:
            offsets.setdefault(part.partition, []).extend(part.planned()["base_offset"].tolist())
    assert all(offsets[number] == list(range(0, 10_000, 10)) for number in range(partitions))


def offsets_of(found: list[Split], partition: int) -> list[int]:
    parts = [part for one in found for part in one.parts if part.partition == partition]
    return [offset for part in parts for offset in part.planned()["base_offset"].tolist()]


def test_partitions_stay_in_order_whatever_entries_say() -> None:
    plan = appended(400, 2)
    for number, part in enumerate(plan.partitions):
        part.rows["file"] = np.random.default_rng(number).permutation(400)
        part.rows["entry"] = part.rows["commit_entry"] = np.random.default_rng(7 + number).permutation(400)
    found = splits(plan, OPEN_BYTES)
    assert len(found) > 2
    assert [offsets_of(found, number) for number in range(2)] == [list(range(0, 4_000, 10))] * 2


def test_in_commit_order_splits_are_cut_by_the_commits() -> None:
    """A transaction that was open for long was appended by an older entry than others that it follows."""
    plan = appended(400, 2)
    for part in plan.partitions:
        part.rows["entry"] = np.random.default_rng(7).permutation(400)
    found = splits(plan, OPEN_BYTES)
    names = [name for one in found for name in one.files]
    assert len(found) > 2
    assert len(names) == len(set(names)) == 400
    assert [offsets_of(found, number) for number in range(2)] == [list(range(0, 4_000, 10))] * 2


def test_an_entry_that_is_read_by_itself_counts_in_commit_order() -> None:
    plan = appended(1, 1, stored=Stored.BY_COMMIT)
    rows = np.repeat(plan.partitions[0].rows, 5_000)
    rows["commit_entry"] = np.arange(5_000)
    plan = TopicPlan(READ, [PartitionPlan(0, OffsetRange(0, 10), rows)], plan.files)
    assert len(splits(plan, OPEN_BYTES)) >= 5_000 * OPEN_BYTES // (128 * MB)
    assert len(splits(plan, 0)) == 1
    rows["stored"][2_500:], rows["file"][2_500:] = Stored.NO, 1
    files = {number: FileRecord(f"file {number}", 1, "", 1, "", 1) for number in range(2)}
    plan = TopicPlan(READ, [PartitionPlan(0, OffsetRange(0, 10), rows)], files)
    found = cut("log", 7, [plan], 4, OPEN_BYTES)
    assert [set(one.files) for one in found] == [{0}, {0}, {0}, {0, 1}], "the other file is opened once"


@pytest.mark.parametrize(("segments", "partitions"), [(1, 1), (1, 6), (5, 6)])
def test_sealed_small_files_are_cut_across_partitions(segments: int, partitions: int) -> None:
    """All partitions of a segment at the same shares of their offsets: the files there are those of one
    split."""
    found = splits(sealed(segments, partitions, 600, MB), OPEN_BYTES)
    assert len(found) >= 600 * segments * OPEN_BYTES // (128 * MB)
    covered: dict[int, list[OffsetRange]] = {}
    for one in found:
        for index in {part.range.index.key for part in one.sealed}:
            ranges = {part.range.range for part in one.sealed if part.range.index.key == index}
            of_index = [part.range.partition for part in one.sealed if part.range.index.key == index]
            assert len(ranges) * partitions == len(of_index)
        for part in one.sealed:
            covered.setdefault(part.range.partition, []).append(part.range.range)
    assert len(covered) == partitions
    for ranges_ in covered.values():
        assert (ranges_[0].start, ranges_[-1].end) == (0, 1_000 * segments)
        assert all(before.end == after.start for before, after in pairwise(ranges_)), "each offset once"


def test_segments_in_no_common_order_are_cut_partition_by_partition() -> None:
    plan = sealed(2, 2, 600, MB)
    first, second = plan.sealed[0].index, plan.sealed[1].index
    crossed = [
        SealedRange(one.partition, one.range, {0: first, 1: second}[place ^ one.partition], MB, batches=600)
        for one in plan.sealed
        for place in [one.range.start // 1_000]
    ]
    found = splits(TopicPlan(READ, [], {}, crossed), OPEN_BYTES)
    for number in range(2):
        ranges = [part.range.range for one in found for part in one.sealed if part.range.partition == number]
        assert (ranges[0].start, ranges[-1].end) == (0, 2_000)
        assert all(before.end == after.start for before, after in pairwise(ranges))


FILES = 60


@pytest.fixture(params=[False, True], ids=["at-hand", "far"])
def store(request: pytest.FixtureRequest) -> Iterator[CountingStore]:
    yield counted(request.param)
    logs._logs.clear()
    logs._sidecars.clear()
    stores._stores.clear()


def batch_read(store: CountingStore, **options: str) -> tuple[list[int], int]:
    """Return what the tasks of a batch read give, and their number."""
    log = TxnLog.open(store)
    logs._logs[PATH, NO_STORAGE] = log
    stores._stores[PATH, NO_STORAGE, log.log_id] = store
    source = TxnLogDataSource({"path": PATH, "topic": "t", **options})
    reader = source.reader(source.schema())
    found = pickle.loads(pickle.dumps(reader.partitions()))
    batches = [batch for one in found for batch in pickle.loads(pickle.dumps(reader)).read(one)]
    return [number for batch in batches for number in batch.column("n").to_pylist()], len(found)


@pytest.mark.parametrize("options", [{}, {"order": "commit"}, {"versionAsOf": "newest"}])
@pytest.mark.parametrize(("partitions", "seal_after"), [(1, None), (4, None), (4, 60)])
def test_a_task_fetches_a_small_file_once(
    store: CountingStore, options: dict[str, str], partitions: int, seal_after: int | None
) -> None:
    expected = fill(store, FILES, partitions, seal_after=seal_after)
    entry = str(TxnLog.open(store).state.entry)
    given = {name: value.replace("newest", entry) for name, value in options.items()}
    found: list[int] = []
    assert gets_per_file(store, FILES, lambda: found.extend(batch_read(store, **given)[0])) <= BUDGET
    assert sorted(found) == expected


@pytest.mark.parametrize("options", [{}, {"order": "commit"}, {"versionAsOf": "newest"}])
@pytest.mark.parametrize("seal_after", [None, 60])
def test_more_tasks_do_not_fetch_a_file_again(
    store: CountingStore, options: dict[str, str], seal_after: int | None
) -> None:
    expected = fill(store, FILES, 4, seal_after=seal_after)
    entry = str(TxnLog.open(store).state.entry)
    given = {name: value.replace("newest", entry) for name, value in options.items()}
    found: list[tuple[list[int], int]] = []
    gets = gets_per_file(store, FILES, lambda: found.append(batch_read(store, minPartitions="6", **given)))
    ((numbers, tasks),) = found
    assert sorted(numbers) == expected
    assert tasks >= 6
    # A cut of a sealed segment goes by offsets, and may go through a file.
    assert gets <= BUDGET + (0 if seal_after is None else tasks / FILES)


@pytest.mark.parametrize("order", ["offset", "commit"])
@pytest.mark.parametrize("seal_after", [None, 60])
def test_a_micro_batch_fetches_a_small_file_once(
    store: CountingStore, order: str, seal_after: int | None
) -> None:
    expected = fill(store, FILES, 4, seal_after=seal_after)
    log = TxnLog.open(store)
    reader = make_reader(store, schema_of(log, "t"), topic="t", order=order, startingOffsets="earliest")
    begin = travelled(reader.initialOffset())
    end = travelled(reader.latestOffset(begin))
    found: list[int] = []
    assert gets_per_file(store, FILES, lambda: found.extend(read(reader, log, begin, end))) <= BUDGET
    assert sorted(found) == expected


def test_the_cost_of_opening_depends_on_the_store() -> None:
    from spark_datasource.options.read import parse_read_options

    options = parse_read_options({"path": PATH, "topic": "t"})
    plan = appended(1_000, 1)
    far = splits_of("log", 7, [plan], options, counted(far=True))
    at_hand = splits_of("log", 7, [plan], options, counted(far=False))
    assert len(far) >= 1_000 * OPEN_BYTES // (128 * MB)
    assert len(at_hand) <= len(far)


def test_a_single_small_file_is_cut_evenly_where_the_user_wants_tasks() -> None:
    """The cost of opening it is shared by its batches: else the first would be a task, and the rest one
    other."""
    plan = appended(8, 1)
    plan.partitions[0].rows["file"] = 0
    found = [one.parts[0].planned()["base_offset"].tolist() for one in cut("log", 7, [plan], 4, OPEN_BYTES)]
    assert found == [[0, 10], [20, 30], [40, 50], [60, 70]]
