"""Column `topic` routes rows: many topics in one entry, once for each version, in bounded memory, or
nothing.
"""

from __future__ import annotations

import itertools
import pickle
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spark_datasource.options.write import parse_write_options
from spark_datasource.write.messages import TaskUpload
from spark_datasource.write.routing import ROUTED_TOPICS_MAX, ByColumn, Route, first_turn
from spark_datasource.write.sink import TxnLogBatchWriter, plan_write
from spark_datasource.write.task import Rechunker, TopicUploads, write_rows
from tests.spark.commit_messages import checked
from tests.spark.sessions import BOTH_SESSIONS
from txnformat.clock import SystemIds
from txnformat.core.entry import decode_entry
from txnformat.core.operations import Append, AppVersion, CreateTopic
from txnformat.errors import ConflictError, InternalError, InvalidInputError, StaleAppVersionError
from txnformat.keys import entry_key
from txnformat.log import TxnLog
from txnformat.persistent import replace
from txnformat.store.local import LocalStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog_testing.stores.counting import CountingStore
from writers.upload import TopicUpload

FRAME = StructType().add("n", "long").add("Topic", "string").add("text", "string")
PLAIN = pa.schema([("n", pa.int64()), ("text", pa.string())])


def table(*rows: tuple[int, str | None]) -> pa.Table:
    """Return rows of (n, topic)."""
    numbers, topics = zip(*rows, strict=True)
    texts = [f"row {n}" for n in numbers]
    return pa.table(
        {"n": pa.array(numbers, pa.int64()), "Topic": pa.array(topics, pa.string()), "text": texts}
    )


def writer(path: str, frame: StructType = FRAME, **options: str) -> TxnLogBatchWriter:
    """Return what a task gets: the driver's writer, pickled and unpickled."""
    plan = plan_write(parse_write_options({"path": path, **options}, frame.names), frame)
    found: TxnLogBatchWriter = pickle.loads(pickle.dumps(TxnLogBatchWriter(plan)))
    return found


def task(sink: TxnLogBatchWriter, number: int, rows: pa.Table) -> TaskUpload:
    message: TaskUpload = pickle.loads(pickle.dumps(sink.write(iter(rows.to_batches(max_chunksize=3)))))
    message.partition_id = number
    return message


def write(path: str, *rows: tuple[int, str | None], **options: str) -> None:
    sink = writer(path, FRAME, **options)
    sink.commit([task(sink, 0, table(*rows))])


def rows_of(log: TxnLog, topic: str) -> list[int]:
    return sorted(log.read(topic, columns=["n"]).read_all().column("n").to_pylist())


def contents(log: TxnLog) -> dict[str, list[int]]:
    log.refresh()
    return {topic: rows_of(log, topic) for topic in sorted(log.topics())}


# --- with Spark ---------------------------------------------------------------------------------------------


@BOTH_SESSIONS
def test_rows_go_to_their_topics_in_one_entry(spark: SparkSession, log: TxnLog, path: str) -> None:
    log.create_topic("old", PLAIN, partitions=2, key_columns=["n"])
    entry = log.refresh().entry
    frame = spark.range(30, numPartitions=3).selectExpr(
        "id as n",
        "element_at(array('old', 'new', 'other'), int(id % 3) + 1) as topic",
        "concat('row ', id) as TEXT",
    )
    frame.write.format("txnlog").mode("append").save(path)
    state = log.refresh()
    assert state.entry == entry + 1
    assert contents(log) == {
        "new": list(range(1, 30, 3)),
        "old": list(range(0, 30, 3)),
        "other": list(range(2, 30, 3)),
    }
    assert state.topic("old").schema.arrow_schema.names == ["n", "text"]
    assert state.topic("new").schema.arrow_schema.names == ["n", "TEXT"], "the routing column is not stored"
    assert list(Path(path).glob("*/data/*.parquet")) == [], (
        "what 3 tasks hand over for 3 topics is in the entry"
    )
    read = spark.read.format("txnlog").option("topic", "old").load(path)
    assert {(row.n, row.text) for row in read.collect()} == {(n, f"row {n}") for n in range(0, 30, 3)}


@BOTH_SESSIONS
def test_rows_that_can_go_nowhere_are_all_named_and_nothing_is_written(
    spark: SparkSession, log: TxnLog, path: str
) -> None:
    log.create_topic("strict", pa.schema([("n", pa.int32()), ("more", pa.string())]))
    entry = log.refresh().entry
    frame = spark.range(40, numPartitions=1).selectExpr(
        "id as n", "element_at(array('fine', '_hidden', null, 'a b', 'strict'), int(id % 5) + 1) as topic"
    )
    with pytest.raises(PySparkException) as caught:
        frame.write.format("txnlog").mode("append").save(path)
    for text in (
        "[TXNLOG_UNROUTABLE_ROWS]",
        "'_hidden' is not a valid topic name (8 rows)",
        "its value is null (8 rows)",
        "'a b' is not a valid topic name (8 rows)",
        "topic 'strict': column 'more' is missing (8 rows)",
    ):
        assert text in str(caught.value)
    assert log.refresh().entry == entry
    assert not list(Path(path).glob("*/data/*"))


def test_a_frame_without_the_column_needs_the_option_and_with_both_it_is_a_column(
    spark: SparkSession, log: TxnLog, path: str
) -> None:
    frame = spark.sql("select 1L as n, 'x' as topic")
    with pytest.raises(AnalysisException, match="option topic is missing"):
        frame.drop("topic").write.format("txnlog").mode("append").save(path)
    with pytest.raises(
        AnalysisException, match=r"\[TXNLOG_SCHEMA_MISMATCH\] column 'topic' names the topic of each row"
    ):
        frame.selectExpr("n", "1 as topic").write.format("txnlog").mode("append").save(path)
    assert log.refresh().topics == {}
    frame.write.format("txnlog").mode("append").option("topic", "t").save(path)
    assert log.read("t").read_all().to_pylist() == [{"n": 1, "topic": "x"}]


# --- one entry, once ----------------------------------------------------------------------------------------


def test_topics_rows_and_versions_are_one_entry_and_one_file_each(log: TxnLog, path: str) -> None:
    log.create_topic("b", PLAIN)
    entry = log.refresh().entry
    write(path, (1, "b"), (2, "a"), (3, "b"), (4, "c"), (5, "a"), txnAppId="job", txnVersion="7")
    assert contents(log) == {"a": [2, 5], "b": [1, 3], "c": [4]}
    step = decode_entry(log.store.get(entry_key(entry + 1)) or b"", entry + 1)
    kinds = [type(operation) for operation in step.operations]
    assert kinds == [CreateTopic] * 2 + [Append] * 3 + [AppVersion] * 4
    assert {app for _, app in log.state.app_versions} == {"*/job", "a/job", "b/job", "c/job"}


def test_a_repeat_writes_nothing_whatever_topics_its_rows_name(log: TxnLog, path: str) -> None:
    """Its user lets it go on; else it stops: tests/unit/spark_datasource/write/test_different_repeats.py."""
    different = {"allowDifferentRepeat": "true"}
    late = writer(path, FRAME, txnAppId="job", txnVersion="1", **different)
    write(path, (1, "a"), (2, "b"), txnAppId="job", txnVersion="1")
    before = contents(log), log.state.entry
    write(path, (1, "b"), (2, "c"), txnAppId="job", txnVersion="1", **different)
    assert list(Path(path).glob("c-*")) == [], "what is done is not uploaded again"
    late.commit([task(late, 0, table((1, "b"), (2, "d")))])  # it was planned before the first was committed
    assert (contents(log), log.state.entry) == before
    with pytest.raises(StaleAppVersionError):
        writer(path, txnAppId="job", txnVersion="0")
    write(path, (3, "c"), txnAppId="job", txnVersion="2")
    assert contents(log) == {"a": [1], "b": [2], "c": [3]}


def test_a_write_to_one_topic_and_a_routed_one_of_the_same_version_exclude_each_other_there(
    log: TxnLog, path: str
) -> None:
    routed = writer(path, txnAppId="job", txnVersion="1")
    single = writer(path, StructType([FRAME["n"], FRAME["text"]]), topic="a", txnAppId="job", txnVersion="1")
    single.commit([task(single, 0, table((9, "x")).drop_columns("Topic"))])
    with pytest.raises(StaleAppVersionError, match="a/job"):
        routed.commit([task(routed, 0, table((1, "a"), (2, "b")))])
    assert contents(log) == {"a": [9]}
    write(path, (1, "b"), txnAppId="job", txnVersion="1")
    plain = StructType([FRAME["n"], FRAME["text"]])
    assert plan_write(
        parse_write_options({"path": path, "topic": "b", "txnAppId": "job", "txnVersion": "1"}), plain
    ).done


def test_no_rows_write_their_version_only(log: TxnLog, path: str) -> None:
    entry = log.refresh().entry
    sink = writer(path)
    sink.commit([sink.write(iter([]))])
    assert log.refresh().entry == entry
    sink = writer(path, txnAppId="job", txnVersion="1")
    sink.commit([sink.write(iter([]))])
    assert log.refresh().topics == {}
    assert list(log.state.app_versions) == [("spark-batch", "*/job")]


# --- topics made by others ----------------------------------------------------------------------------------


def test_rows_go_to_the_topic_of_whoever_created_it_first(log: TxnLog, path: str) -> None:
    one, other = writer(path, partitions="2"), writer(path, partitions="2")
    one.commit([task(one, 0, table((1, "a"), (2, "b")))])
    other.commit([task(other, 0, table((3, "b"), (4, "c")))])
    assert contents(log) == {"a": [1], "b": [2, 3], "c": [4]}
    loser = writer(path, partitions="2")
    log.create_topic("d", PLAIN, partitions=3)
    with pytest.raises(ConflictError, match="TOPIC_EXISTS"):
        loser.commit([task(loser, 0, table((5, "a"), (6, "d")))])
    assert contents(log) == {"a": [1], "b": [2, 3], "c": [4], "d": []}


def test_options_for_new_topics_hold_for_those_that_exist(log: TxnLog, path: str) -> None:
    log.create_topic("one", PLAIN)
    log.create_topic("two", PLAIN, partitions=2, key_columns=["n"])
    write(path, (1, "two"), (2, "new"), partitions="2", keyColumns="n")
    assert log.refresh().topic("new").schema.key_columns == ("n",)
    with pytest.raises(InvalidInputError) as caught:
        write(path, (1, "two"), (2, "one"), partitions="2", keyColumns="n")
    assert "topic 'one': option partitions is 2, but the topic has 1" in str(caught.value)
    assert "'two'" not in str(caught.value)


def test_topics_that_grew_take_rows_without_the_added_columns(log: TxnLog, path: str) -> None:
    for name in ("plain", "grown"):
        log.create_topic(name, PLAIN)
    log.alter_topic("grown", add_columns=pa.schema([("more", pa.string())]))
    write(path, (1, "plain"), (2, "grown"))
    assert log.read("grown").read_all().to_pylist() == [{"n": 2, "text": "row 2", "more": None}]
    assert log.read("plain").read_all().to_pylist() == [{"n": 1, "text": "row 1"}]


# --- bounds -------------------------------------------------------------------------------------------------


@pytest.fixture
def counting(tmp_path: Path) -> CountingStore:
    return CountingStore(LocalStore(str(tmp_path / "log")))


def upload(
    sink: TxnLogBatchWriter, store: CountingStore, rows: Iterator[pa.RecordBatch], open_max: int
) -> Any:
    plan = sink._plan
    most_open = 0

    def begin(route: Any) -> TopicUpload:
        return TopicUpload(
            store, SystemIds(), directory=route.directory, schema=route.layout.schema, born=plan.born
        )

    uploads = TopicUploads(begin, open_max=open_max)
    add = uploads.add

    def watched(route: Route, partition: int, table: pa.Table) -> None:
        nonlocal most_open
        add(route, partition, table)
        most_open = max(most_open, sum(one.is_open for one in uploads._uploads.values()))

    uploads.add = watched  # type: ignore[method-assign]
    return write_rows(rows, plan, 0, uploads), most_open


def test_many_small_topics_are_one_file_each_and_few_are_open_at_a_time(
    log: TxnLog, path: str, counting: CountingStore
) -> None:
    names = [f"t{number}" for number in range(100)]
    rows = table(*((number, names[number % 100]) for number in range(1_000)))
    with counting.measure() as measured:
        found, most_open = upload(writer(path), counting, iter(rows.to_batches(max_chunksize=50)), 4)
    assert measured.counts.count(RequestKind.OPEN_WRITE, KeyClass.DATA) == 100
    assert most_open == 4
    assert {topic: sum(file.rows for file in one.files) for topic, one in found.items()} == dict.fromkeys(
        names, 10
    )


def test_files_that_are_open_at_the_end_are_not_closed_and_continued(
    log: TxnLog, path: str, counting: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = {"batch_bytes": 120, "buffer_bytes": 10_000}
    monkeypatch.setattr(Rechunker.__init__, "__kwdefaults__", bounds)
    rows = table(*((number, "z" if number % 2 else f"t{number}") for number in range(31)))
    found, _ = upload(writer(path), counting, iter(rows.to_batches(max_chunksize=9)), 1)
    assert len(found["z"].batches) > 1
    assert {len(one.files) for one in found.values()} == {1}


def test_more_large_topics_than_files_may_be_open_become_several_files_in_order(
    log: TxnLog, path: str, counting: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rechunker.__init__, "__kwdefaults__", {"batch_bytes": 64, "buffer_bytes": 256})
    sink = writer(path)
    rows = table(*((number, f"t{number % 5}") for number in range(200)))
    found, most_open = upload(sink, counting, iter(rows.to_batches(max_chunksize=20)), 2)
    assert most_open == 2
    assert all(len(one.files) > 1 for one in found.values())
    sink.commit([TaskUpload(0, found, {})])
    for number in range(5):
        assert log.read(f"t{number}").read_all().column("n").to_pylist() == list(range(number, 200, 5))


def test_where_a_write_without_keys_begins_follows_from_its_number_and_the_topic(
    log: TxnLog, path: str, counting: CountingStore
) -> None:
    sink = writer(path, createTopics="true", partitions="4")
    begins: dict[str, list[int]] = {"a": [], "b": []}
    for number in range(20):
        sink._plan = replace(sink._plan, seed=str(uuid.UUID(int=number)))
        for _ in range(2):  # a task that is repeated
            found, _ = upload(sink, counting, iter(table((1, "a"), (2, "b")).to_batches()), 2)
            for topic, one in found.items():
                begins[topic].append(one.batches[0].partition)
    for numbers in begins.values():
        assert numbers[::2] == numbers[1::2]
        assert set(numbers) == {0, 1, 2, 3}
    assert begins["a"] != begins["b"]


def test_records_without_a_key_stay_with_a_partition_until_its_batch_is_full(
    log: TxnLog, path: str, counting: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rechunker.__init__, "__kwdefaults__", {"batch_bytes": 2_000, "buffer_bytes": 100_000})
    log.create_topic("t", PLAIN, partitions=3)
    sink = writer(path)
    rows = table(*((number, "t") for number in range(400)))
    found, _ = upload(sink, counting, iter(rows.to_batches(max_chunksize=10)), 1)
    begin = first_turn(sink._plan.seed, "t") % 3
    batches = found["t"].batches
    assert [batch.partition for batch in batches] == [(begin + at) % 3 for at in range(len(batches))]
    assert 3 < len(batches) < 10
    sink.commit([TaskUpload(0, found, {})])
    read = log.read("t", columns=["_partition", "n"]).read_all().to_pylist()
    for partition in range(3):
        numbers = [row["n"] for row in read if row["_partition"] == partition]
        assert numbers == sorted(numbers)


def test_few_records_that_wait_do_not_keep_their_batches_in_memory() -> None:
    """Of each batch a slice of one record waits: what it was cut from has to go."""
    rechunker = Rechunker[int](lambda key, batch: None)
    before = pa.total_allocated_bytes()

    def add_one_of(count: int) -> None:
        rows = pa.table({"n": pc.add(pa.array(np.arange(count)), 1)})  # in Arrow's memory, which is counted
        rechunker.add(0, rows.slice(0, 1))
        rechunker.add(1, rows.slice(1))

    for _ in range(50):
        add_one_of(100_000)
    assert pa.total_allocated_bytes() - before < 16 * 2**20


def test_the_topics_of_a_write_are_limited(log: TxnLog, path: str) -> None:
    sink = writer(path)
    rows = table(*((number, f"t{number}") for number in range(ROUTED_TOPICS_MAX + 1)))
    with pytest.raises(InvalidInputError, match="names more than 3,000 topics"):
        sink.write(iter(rows.to_batches()))
    message = task(sink, 0, table((1, "a")))
    empty = {f"t{number}": type(message.uploads["a"])((), ()) for number in range(ROUTED_TOPICS_MAX + 1)}
    with pytest.raises(InvalidInputError, match="3,001 topics"):
        sink.commit([TaskUpload(0, empty, {})])
    assert log.refresh().topics == {}


def test_as_many_topics_as_allowed_fit_into_one_entry(log: TxnLog, path: str) -> None:
    sink = writer(path, txnAppId="job", txnVersion="1")
    assert isinstance(sink._plan.routes, ByColumn)
    message = task(sink, 0, table((1, "t0")))
    (file,) = message.uploads["t0"].files
    said = message.contents
    assert said is not None
    for number in range(1, ROUTED_TOPICS_MAX):
        route = sink._plan.routes.route(f"t{number}")
        key = f"{route.directory}/{file.key.partition('/')[2]}"
        other = type(message.uploads["t0"])(
            (type(file)(**{**_values(file), "key": key}),), message.uploads["t0"].batches
        )
        message.uploads[route.topic] = other
        said[route.topic] = said["t0"]
    sink.commit([message])
    assert len(log.refresh().topics) == ROUTED_TOPICS_MAX


def _values(record: Any) -> dict[str, Any]:
    return msgspec.structs.asdict(record)


Change = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.mark.parametrize(
    "change",
    [
        lambda found: {"_bad": found["a"]},
        lambda found: {"b": found["a"]},
        lambda found: {"a": found["b"], "b": found["a"]},
    ],
    ids=["name", "another topic", "swapped"],
)
def test_a_message_cannot_put_files_into_another_topic(log: TxnLog, path: str, change: Change) -> None:
    sink = writer(path)
    message = task(sink, 0, table((1, "a"), (2, "b")))
    assert [topic for topic, _ in checked([message], sink._plan)] == ["a", "b"]
    with pytest.raises(InternalError):
        checked([TaskUpload(0, change(message.uploads), {})], sink._plan)


def test_a_failed_task_leaves_no_file_of_any_topic(log: TxnLog, path: str) -> None:
    sink = writer(path)
    big = table(*((number, f"t{number % 3}") for number in range(300)))
    wide = big.set_column(2, "text", pa.array(["x" * 100_000] * 300))

    def broken() -> Iterator[pa.RecordBatch]:
        yield from itertools.chain(wide.to_batches(max_chunksize=100))
        assert [file for file in Path(path).rglob("t*/**/*") if file.is_file()], "files are being written"
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        sink.write(broken())
    assert not [file for file in Path(path).rglob("t*/**/*") if file.is_file()]
