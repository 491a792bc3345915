"""The sink's steps one by one: what the driver believes, races for a topic, unclear outcomes. No session
needed."""

from __future__ import annotations

import dataclasses
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from spark_datasource.options.delegation import TRANSACTION, transaction_option
from spark_datasource.options.write import parse_write_options
from spark_datasource.worker.logs import COMMIT_TRIES_MAX
from spark_datasource.write.commit import commit_intent
from spark_datasource.write.messages import HANDED_BYTES_MAX, TaskUpload
from spark_datasource.write.plan import WritePlan
from spark_datasource.write.sink import TxnLogBatchWriter, plan_write
from spark_datasource.write.task import Rechunker
from tests.spark.commit_messages import checked
from tests.spark.histories import numbers
from txnformat.core.intents import AppRef, Write
from txnformat.errors import (
    CommitStateUnknownError,
    ConflictError,
    InternalError,
    InvalidInputError,
    StaleAppVersionError,
)
from txnformat.keys import entry_key
from txnformat.log import TxnLog
from txnformat.persistent import replace
from txnformat.protocol.commit import CommitSettings
from txnformat.store.local import LocalStore
from txnformat.store.requests import RequestKind
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore
from writers.job import JobProducer

FRAME = StructType().add("n", "long").add("text", "string")


def writer(path: str, **options: str) -> TxnLogBatchWriter:
    """Return what a task gets: the driver's writer, pickled and unpickled."""
    plan = plan_write(parse_write_options({"path": path, "topic": "t", **options}), FRAME)
    found: TxnLogBatchWriter = pickle.loads(pickle.dumps(TxnLogBatchWriter(plan)))
    return found


def task(sink: TxnLogBatchWriter, number: int, start: int, end: int) -> TaskUpload:
    message: TaskUpload = pickle.loads(pickle.dumps(sink.write(iter(numbers(start, end).to_batches()))))
    message.partition_id = number
    return message


def rows(log: TxnLog) -> list[int]:
    return log.read("t", columns=["n"]).read_all().column("n").to_pylist()  # type: ignore[no-any-return]


def test_messages_are_ordered_by_task_whatever_order_they_come_in(log: TxnLog, path: str) -> None:
    sink = writer(path)
    sink.commit([task(sink, 2, 20, 30), task(sink, 0, 0, 10), task(sink, 1, 10, 20)])
    assert rows(log) == list(range(30))


def test_the_loser_of_a_race_for_a_topic_writes_to_the_winners(log: TxnLog, path: str) -> None:
    one, other = writer(path), writer(path)
    one.commit([task(one, 0, 0, 5)])
    other.commit([task(other, 0, 5, 10)])
    assert rows(log) == list(range(10))
    empty = writer(path)
    assert len(log.topics()) == 1
    empty.commit([TaskUpload(0, {}, {})])
    assert rows(log) == list(range(10))


@pytest.mark.parametrize("is_restored", [False, True], ids=["made anew", "restored"])
def test_a_log_that_is_made_anew_or_restored_under_a_write_is_told(
    log: TxnLog, path: str, tmp_path: Path, is_restored: bool
) -> None:
    """Else it would name the files that went with the old one."""
    shutil.copytree(path, backup := tmp_path / "backup")
    log.create_topic("other", numbers(0, 0).schema)
    sink = writer(path)
    gone = task(sink, 0, 0, 5)
    shutil.rmtree(path)
    if is_restored:
        shutil.copytree(backup, path)
    log = TxnLog.open_or_create(path)
    entry = log.refresh().entry
    with pytest.raises(ConflictError, match="TXNLOG_LOG_REPLACED"):
        sink.commit([gone, task(sink, 1, 5, 10)])
    assert (log.refresh().entry, log.topics()) == (entry, [])


def test_the_loser_without_rows_is_content(log: TxnLog, path: str) -> None:
    loser = writer(path)
    log.create_topic("t", FRAME)
    entry = log.refresh().entry
    message = loser.write(iter([]))
    loser.commit([message])
    assert log.refresh().entry == entry


def test_the_loser_of_a_race_for_another_topic_gets_a_conflict(log: TxnLog, path: str) -> None:
    loser = writer(path, partitions="2")
    log.create_topic("t", FRAME, partitions=3)
    with pytest.raises(ConflictError) as caught:
        loser.commit([task(loser, 0, 0, 5)])
    assert str(caught.value).startswith("[TXNLOG_TOPIC_EXISTS] ")
    assert rows(log) == []


def test_of_two_writers_of_one_version_one_writes(log: TxnLog, path: str) -> None:
    one, other = (writer(path, txnAppId="job", txnVersion="1") for _ in range(2))
    late = writer(path, txnAppId="job", txnVersion="0")
    one.commit([task(one, 0, 0, 5)])
    other.commit([task(other, 0, 0, 5)])
    assert rows(log) == list(range(5))
    with pytest.raises(StaleAppVersionError):
        late.commit([task(late, 0, 0, 5)])
    assert rows(log) == list(range(5))


def test_a_stage_that_spark_runs_twice_is_staged_once(log: TxnLog, path: str) -> None:
    """A client of Spark Connect that lost the answer may send the whole job again."""
    with JobProducer(log, "spark/job") as producer, producer.transaction():
        with producer.delegated() as delegation:
            option = {TRANSACTION: transaction_option(delegation)}
            one, other = writer(path, partitions="2", **option), writer(path, partitions="2", **option)
            one.commit([task(one, 0, 0, 5)])
            entry = log.refresh().entry
            other.commit([task(other, 1, 0, 7)])  # it had begun before the first one ended
            late = writer(path, **option)
            assert task(late, 0, 0, 5).uploads == {}
            late.commit([task(late, 0, 0, 5)])
            assert log.refresh().entry == entry
        with producer.delegated() as delegation:
            option = {TRANSACTION: transaction_option(delegation)}
            more = writer(path, **option)
            more.commit([task(more, 0, 5, 8)])
    assert sorted(rows(log)) == list(range(8))
    assert log.verify(deep=True).ok


@pytest.mark.parametrize(
    "value", ["", "1", "[]", '["a", 1, 2]', '["a", 1, 2, true]', "[1, 2, 3, 4]", '{"a": 1}']
)
def test_an_internal_option_that_is_not_ours_is_refused(path: str, value: str) -> None:
    with pytest.raises(InvalidInputError, match="is internal"):
        parse_write_options({"path": path, "topic": "t", TRANSACTION: value})


def test_abort_deletes_nothing_and_never_raises(log: TxnLog, path: str) -> None:
    sink = writer(path)
    messages = [task(sink, 0, 0, 5)]
    sink.commit(list(messages))
    sink.abort([*messages, None])
    sink.abort([])
    assert rows(log) == list(range(5))


def test_a_failed_task_leaves_no_file_not_even_a_temporary_one(log: TxnLog, path: str) -> None:
    sink = writer(path)
    seen: list[Path] = []

    def broken() -> Any:
        yield from numbers(0, 600_000).to_batches()  # more than a batch: its file is being written
        seen.extend(file for file in Path(path).rglob("t-*/**/*") if file.is_file())
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError) as caught:  # keeps the frames alive: no finalizer tidies up
        sink.write(broken())
    assert str(caught.value) == "broken"
    assert seen
    assert not [file for file in Path(path).rglob("t-*/**/*") if file.is_file()]


@pytest.fixture
def upload(log: TxnLog, path: str) -> tuple[WritePlan, TaskUpload]:
    sink = writer(path, partitions="2")
    return sink._plan, task(sink, 0, 0, 10)


Change = Callable[[Any], Any]


def file_with(**values: object) -> Change:
    def change(message: Any) -> Any:
        (file,) = message.uploads["t"].files
        files = (replace(file, **values),)
        return dataclasses.replace(
            message, uploads={"t": dataclasses.replace(message.uploads["t"], files=files)}
        )

    return change


def batch_with(**values: object) -> Change:
    def change(message: Any) -> Any:
        (batch,) = message.uploads["t"].batches
        batches = (replace(batch, **values),)
        changed = dataclasses.replace(message.uploads["t"], batches=batches)
        return dataclasses.replace(message, uploads={"t": changed})

    return change


UUID = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    "change",
    [
        lambda message: None,
        lambda message: object(),
        lambda message: dataclasses.replace(message, partition_id="0"),
        lambda message: dataclasses.replace(message, uploads=((), ())),
        lambda message: dataclasses.replace(message, uploads={"t": ((), ())}),
        lambda message: dataclasses.replace(message, uploads={"other": message.uploads["t"]}),
        lambda message: dataclasses.replace(message, uploads={3: message.uploads["t"]}),
        file_with(key="../../etc/passwd"),
        file_with(key=f"other-00000000/data/{7:020d}-{UUID}.parquet"),
        file_with(size=0),
        file_with(size="1"),
        file_with(rows=11),
        file_with(footer_bytes=10**9),
        file_with(sha256="no hash"),
        file_with(footer_sha256="A" * 64),
        batch_with(partition=2),
        batch_with(partition=-1),
        batch_with(file=1),
        batch_with(row_group=1),
        batch_with(row_group_count=0),
        batch_with(records=9),
        batch_with(records=10.0),
        batch_with(min_timestamp_ms="now"),
        batch_with(size=0),
    ],
)
def test_a_message_that_no_task_can_send_is_refused(
    upload: tuple[WritePlan, TaskUpload], change: Change
) -> None:
    plan, message = upload
    assert checked([message], plan) == [("t", [message.uploads["t"]])]
    with pytest.raises(InternalError) as caught:
        checked([change(message)], plan)
    assert caught.value.kind == "invalid-commit-message"


@pytest.mark.parametrize(
    "payload", [(b"other bytes",), (b"",), (b"a", b"b"), ("text",), (bytes(HANDED_BYTES_MAX + 1),), 3]
)
def test_bytes_that_a_task_cannot_have_handed_over_are_refused(
    log: TxnLog, path: str, payload: tuple[bytes, ...]
) -> None:
    log.create_topic(
        "other", pa.schema([("n", pa.int64())])
    )  # a log without an entry does not say yet that it embeds
    sink = writer(path, partitions="2")
    message = task(sink, 0, 0, 10)
    (data,) = message.uploads["t"].payload
    assert len(data) == message.uploads["t"].files[0].size
    assert checked([message], sink._plan) == [("t", [message.uploads["t"]])]
    changed = dataclasses.replace(
        message, uploads={"t": dataclasses.replace(message.uploads["t"], payload=payload)}
    )
    with pytest.raises(InternalError) as caught:
        checked([changed], sink._plan)
    assert caught.value.kind == "invalid-commit-message"


def test_a_driver_that_does_not_know_yet_that_the_log_embeds_uploads(
    log: TxnLog, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create_topic("other", pa.schema([("n", pa.int64())]))
    sink = writer(path, partitions="2")
    messages = [task(sink, number, 5 * number, 5 * number + 5) for number in range(2)]
    monkeypatch.setattr(TxnLog, "embeds", False)
    sink.commit([*messages])
    assert rows(log) == list(range(10))
    assert len(list(Path(path).glob("t-*/data/*"))) == 2


def test_uploads_from_before_the_pin_and_repeated_ones_are_refused(
    upload: tuple[WritePlan, TaskUpload],
) -> None:
    plan, message = upload
    with pytest.raises(InternalError):
        checked([message], dataclasses.replace(plan, born=plan.born + 1))
    with pytest.raises(InternalError, match="two tasks with one number"):
        checked([message, message], plan)
    with pytest.raises(InternalError, match="named twice"):
        checked([message, dataclasses.replace(message, partition_id=1)], plan)


@pytest.mark.parametrize("unclear", [COMMIT_TRIES_MAX - 1, COMMIT_TRIES_MAX])
def test_an_unclear_commit_is_repeated_with_the_same_intent(log: TxnLog, path: str, unclear: int) -> None:
    """The create lands and its answer is lost; reading back fails in the first so many tries."""
    log.create_topic("t", FRAME)
    key = entry_key(log.state.entry + 1)

    creates = 0

    def plan(operation: RequestKind, name: str, call: int) -> Fault | None:
        nonlocal creates
        if name == key and operation is RequestKind.CREATE:
            creates = call
            return Fault(FaultKind.APPLIED_LOST_ANSWER)
        return Fault(FaultKind.FAIL_BEFORE) if name == key and 1 <= creates <= unclear else None

    with TxnLog.open(FaultyStore(LocalStore(path), plan), settings=CommitSettings(deadline_ms=0)) as faulty:
        intent = faulty.committer.intend(Write(app=AppRef("spark-batch", "job", 1)))
        if unclear < COMMIT_TRIES_MAX:
            commit_intent(faulty, intent)
        else:
            with pytest.raises(CommitStateUnknownError):
                commit_intent(faulty, intent)
    state = log.refresh()
    assert state.app_versions["spark-batch", "job"].version == 1
    assert entry_key(state.entry) == key, "the intent was applied once"


# --- batches ------------------------------------------------------------------------------------------------


def table(count: int) -> pa.Table:
    """Return ``count`` rows of 8 bytes."""
    return pa.table({"n": pa.array(range(count), pa.int64())})


def chunked(sizes: list[tuple[int, int]], **bounds: int) -> list[tuple[int, int]]:
    """Add (partition, rows) and return (partition, rows) of the batches that come out."""
    found: list[tuple[int, int]] = []
    rechunker = Rechunker[int](lambda partition, batch: found.append((partition, batch.num_rows)), **bounds)
    for partition, count in sizes:
        rechunker.add(partition, table(count))
    rechunker.finish()
    return found


def test_small_tables_become_one_batch_and_large_ones_several() -> None:
    assert chunked([(0, 3), (1, 4), (0, 5), (1, 0)]) == [(0, 8), (1, 4)]
    assert chunked([(0, 10), (0, 10), (0, 5)], batch_bytes=160) == [(0, 20), (0, 5)]
    assert chunked([(0, 100)], batch_bytes=200) == [(0, 25)] * 4
    assert chunked([(0, 2)], batch_bytes=1) == [(0, 1), (0, 1)]


def test_the_largest_partition_goes_first_when_all_together_are_too_much() -> None:
    assert chunked([(0, 10), (1, 20), (2, 10)], buffer_bytes=300) == [(1, 20), (0, 10), (2, 10)]
