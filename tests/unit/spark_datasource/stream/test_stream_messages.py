"""What the driver believes of a stream's tasks, and refuses: messages, options, modes. No session needed."""

from __future__ import annotations

import dataclasses
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from spark_datasource.datasource import TxnLogDataSource
from spark_datasource.stream.messages import StreamUpload
from spark_datasource.write.messages import TaskUpload
from tests.unit.spark_datasource.stream_steps import FRAME, Cluster, Query, files, rows, table
from txnformat.columns.multiset import Multiset
from txnformat.errors import (
    ConflictError,
    InternalError,
    InvalidInputError,
    StaleAppVersionError,
    TxnLogError,
)
from txnformat.log import TxnLog

PLAIN = pa.schema([("n", pa.int64()), ("text", pa.string())])


Change = Callable[[Any], Any]


def batch_with(**values: object) -> Change:
    return lambda message: dataclasses.replace(message, batch=dataclasses.replace(message.batch, **values))


def topic_with(**values: object) -> Change:
    def change(message: Any) -> Any:
        return dataclasses.replace(message, topics={"t": dataclasses.replace(message.topics["t"], **values)})

    return change


def with_(**values: object) -> Change:
    return lambda message: dataclasses.replace(message, **values)


UUID = "00000000-0000-4000-8000-000000000000"

# What one message says; the others say the same, unless that is what is wrong.
EVERY: list[tuple[str, Change]] = [
    ("none", lambda message: None),
    ("no message", lambda message: object()),
    (("of the batch "
     "sink"), lambda message: TaskUpload(message.partition_id, message.uploads, message.contents)),
    ("no number", with_(partition_id="0")),
    ("another version", with_(version="0.0.1")),
    ("no batch", with_(batch=None)),
    ("no topics", with_(topics=None)),
    ("no stamp", with_(topics={"t": None})),
    ("no name", lambda message: dataclasses.replace(message, topics={**message.topics, 3: message.topics["t"]})),
    ("unnamed", with_(topics={})),
    ("no uploads", with_(uploads=None)),
    ("no upload", with_(uploads={"t": None})),
    ("no contents", with_(contents=None)),
    ("contents of nothing", with_(contents={})),
    ("no content", with_(contents={"t": None})),
    ("content of no topic", with_(contents={0: Multiset(1, 0, 0)})),
    ("content of another topic", with_(contents={"u": Multiset(1, 0, 0)})),
    ("other number of rows", with_(contents={"t": Multiset(3, 0, 0)})),
    ("a hash that is none", with_(contents={"t": Multiset(1, -1, 0)})),
    ("a hash as text", with_(contents={"t": Multiset(1, cast("int", "0"), 0)})),
    ("another batch", batch_with(batch_id=1)),
    ("batch as text", batch_with(batch_id="0")),
    ("batch below 0", batch_with(batch_id=-1)),
    ("batch as truth", batch_with(batch_id=False)),
    ("no query", batch_with(query_id="")),
    ("no run", batch_with(run_id=None)),
    ("no seed", batch_with(seed="seed")),
    ("no log", batch_with(log_id=None)),
    ("born as text", batch_with(born="0")),
    ("other name", lambda message: dataclasses.replace(
        message, topics={"u": message.topics["t"]}, uploads={"u": message.uploads["t"]}
    )),
    ("other directory", topic_with(directory="u-00000000")),
    ("directory of nothing", topic_with(directory=None)),
    ("later schema", topic_with(schema_id=1)),
    ("more partitions", topic_with(partition_count=2)),
    ("no partitions", topic_with(partition_count=0)),
    ("partitions as text", topic_with(partition_count="1")),
]  # fmt: skip
ONE: list[tuple[str, Change]] = [
    ("query", batch_with(query_id="other")),
    ("run", batch_with(run_id="run-2")),
    ("seed", batch_with(seed=UUID)),
    ("log", batch_with(log_id=UUID)),
    ("born", batch_with(born=10**6)),
    ("topic", topic_with(topic_id=UUID)),
    ("number", with_(partition_id=0)),
]


@pytest.mark.parametrize("exists", [True, False], ids=["topic there", "topic to make"])
@pytest.mark.parametrize(
    ("which", "change"),
    [
        *(pytest.param("every", change, id=f"every: {name}") for name, change in EVERY),
        *(pytest.param("one", change, id=f"one: {name}") for name, change in ONE),
    ],
)
def test_messages_that_no_task_can_send_or_that_do_not_agree_are_refused(
    query: Query, log: TxnLog, which: str, change: Change, exists: bool
) -> None:
    if exists:
        log.create_topic("t", PLAIN)
    messages = query.tasks(0, table(1), table(2))
    entry = log.refresh().entry
    changed = (
        [change(message) for message in messages] if which == "every" else [messages[0], change(messages[1])]
    )
    with pytest.raises(InternalError) as caught:
        query.commit(changed, 0)
    assert caught.value.kind == "invalid-commit-message"
    assert str(caught.value).startswith("[TXNLOG_INVALID_COMMIT_MESSAGE] a task reported ")
    assert log.refresh().entry == entry
    query.commit(messages, 0)
    assert rows(log) == [1, 2]


def test_what_is_said_of_a_batch_without_rows_is_checked_too(query: Query, log: TxnLog) -> None:
    messages = query.tasks(0, table())
    with pytest.raises(InternalError, match="a task reported nothing"):
        query.commit([*messages, None], 0)
    with pytest.raises(ConflictError, match="LOG_REPLACED"):
        query.commit([batch_with(born=10**6)(message) for message in messages], 0)
    assert log.topics() == []


def test_a_topic_by_the_name_of_another_is_refused(cluster: Cluster, path: str, log: TxnLog) -> None:
    for name in ("a", "b"):
        log.create_topic(name, PLAIN)
    query = Query(cluster, path)
    (message,) = query.tasks(0, table(1, topics={1: "a"}))
    swapped = dataclasses.replace(
        message, topics={"b": message.topics["a"]}, uploads={"b": message.uploads["a"]}
    )
    with pytest.raises(InternalError, match="name differs in the log"):
        query.commit([swapped], 0)
    assert rows(log, "b") == []


def test_an_entry_that_the_log_does_not_have_is_told(query: Query, log: TxnLog) -> None:
    messages = [batch_with(born=10**6)(message) for message in query.tasks(0, table(1))]
    entry = log.refresh().entry
    with pytest.raises(ConflictError, match=r"TXNLOG_LOG_REPLACED.*born=`1000000`"):
        query.commit(messages, 0)
    assert log.refresh().entry == entry


def test_a_topic_that_the_log_does_not_have_is_told(query: Query, log: TxnLog) -> None:
    messages = [topic_with(topic_id=UUID)(message) for message in query.tasks(0, table(1))]
    with pytest.raises(ConflictError, match="TXNLOG_TOPIC_REPLACED"):
        query.commit(messages, 0)
    with pytest.raises(InternalError):
        query.commit([], 0)
    with pytest.raises(InternalError):
        query.commit(query.tasks(0, table(1)), 1)
    assert log.topics() == []


def test_abort_deletes_nothing_and_never_raises(query: Query, log: TxnLog, path: str) -> None:
    messages = query.tasks(0, table(1))
    query.commit(messages, 0)
    there = files(path)
    for garbage in ([*messages, None], [None], [], [object()], None):
        query.writer().abort(garbage, 0)  # type: ignore[arg-type]
        query.writer().abort(garbage, -1)  # type: ignore[arg-type]
    shutil.rmtree(path)
    query.writer().abort(messages, 0)
    recreate_nothing = not Path(path).exists()
    assert there == 1
    assert recreate_nothing


def test_outside_a_streaming_query_nothing_is_written(query: Query, path: str) -> None:
    plan = query.plan()
    query.ids = {}
    with pytest.raises(InternalError, match=r"TXNLOG_NO_STREAMING_QUERY.*df.write"):
        query.task(plan, 0, 0, table(1))
    assert files(path) == 0


def test_complete_mode_is_refused_with_a_way_out(path: str) -> None:
    with pytest.raises(InvalidInputError, match=r"TXNLOG_UNSUPPORTED_OPERATION.*complete.*foreachBatch"):
        TxnLogDataSource({"path": path, "topic": "t"}).streamWriter(FRAME, True)


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("txnversion", "1", "option txnVersion is for batch writes only"),
        ("allowmissingbatches", "maybe", "option allowMissingBatches is 'maybe'; use true or false"),
        ("createtopics", "maybe", "option createTopics is 'maybe'; use true or false"),
        ("checkpoint", "/c", "there is no option 'checkpoint'; did you mean checkpointLocation?"),
        ("isolation", "snapshot", "option isolation is for reads only"),
    ],
)
def test_bad_options_are_named(path: str, log: TxnLog, option: str, value: str, problem: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        TxnLogDataSource({"path": path, "topic": "t", option: value}).streamWriter(FRAME, False)
    assert caught.value.problems == [problem]


def test_what_spark_adds_to_the_options_is_no_mistake(cluster: Cluster, path: str, log: TxnLog) -> None:
    Query(cluster, path, topic="t", queryname="name", checkpointlocation="/c").write(0, table(1))
    assert rows(log) == [1]


def test_errors_survive_the_way_between_processes(query: Query, log: TxnLog) -> None:
    query.write(0, table(1))
    with pytest.raises(TxnLogError) as caught:
        query.write(7, table(1))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), again.kind) == (StaleAppVersionError, "missing-versions")
    assert isinstance(query.tasks(1, table(2))[0], StreamUpload)
    assert log.refresh().app_versions["spark-stream", "query"][:3] == (0, log.state.entry, ("run-1",))
