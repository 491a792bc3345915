"""Repetitions of what is in the log are held against it: rows that nobody wrote are not passed over. No
session needed."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pyarrow as pa
import pytest

from spark_datasource.options.write import parse_write_options
from spark_datasource.write.repeats import Repetition
from spark_datasource.write.sink import TxnLogBatchWriter, plan_write
from tests.unit.spark_datasource.stream_steps import FRAME, ROUTED, Cluster, Query, files, rows, table
from txnformat.columns.multiset import Multiset, multiset_of
from txnformat.core.entry import decode_entry
from txnformat.core.intents import AppRef, Write
from txnformat.core.operations import Append, AppendedPartition, AppVersion, Operation
from txnformat.errors import InvalidInputError, StaleAppVersionError
from txnformat.keys import entry_key
from txnformat.log import TxnLog
from txnformat.store.requests import KeyClass, RequestKind
from txnlog_testing.stores.counting import RequestClass

ENTRY_GET = RequestClass(RequestKind.GET, KeyClass.ENTRY)
ALLOWED = {"allowDifferentRepeat": "true"}


def versions(log: TxnLog) -> list[AppVersion]:
    """Return the versions in the newest entry."""
    entry = log.refresh().entry
    data = log.store.get(entry_key(entry))
    assert data is not None
    return [op for op in decode_entry(data, entry).operations if isinstance(op, AppVersion)]


def numbered(start: int, end: int) -> pa.Table:
    return table(*range(start, end))


# --- streams ------------------------------------------------------------------------------------------------


def test_a_batch_says_what_it_wrote_of_each_topic(cluster: Cluster, path: str, log: TxnLog) -> None:
    query = Query(cluster, path, createTopics="true", txnAppId="clicks")
    topics = {n: "ab"[n % 2] for n in range(1, 6)}
    query.write(0, table(1, 2, topics=topics), table(3, 4, 5, topics=topics), table(topics=topics))
    first, beside = versions(log)
    names = {topic.topic_id: topic.name for topic in log.state.topics.values()}
    assert first.content is not None
    said = {names[one.topic_id]: (one.records, one.hash) for one in first.content}
    whole = {"a": table(4, 2), "b": table(5, 3, 1)}
    assert said == {name: (found.num_rows, multiset_of(found).hash) for name, found in whole.items()}
    assert beside.content is None
    query.write(1, table(topics=topics))
    assert versions(log)[0].content == ()


def test_a_copied_checkpoint_does_not_pass_over_rows(
    cluster: Cluster, query: Query, log: TxnLog, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The old job runs once more, the new one takes over: its batch has the old one's number, and other
    rows.
    """
    query.write(0, numbered(0, 20))
    query.write(1, numbered(20, 30))
    copy = Query(cluster, path, run="run-2", topic="t")
    entry = log.refresh().entry
    for _ in range(2):  # also when it is started again
        with pytest.raises(StaleAppVersionError) as caught:
            copy.write(1, numbered(20, 40))
        assert caught.value.kind == "different-repeat"
        told = str(caught.value)
        assert told.startswith(
            "[TXNLOG_DIFFERENT_REPEAT] batch 1 of query query is in the log already, with other rows"
        )
        assert "t: 10 rows in the log, 20 in the repetition" in told
        assert "set option allowDifferentRepeat" in told
        assert (caught.value.values["run_id"], caught.value.values["written_by"]) == ("run-2", "run-1")
    assert (log.refresh().entry, caplog.messages) == (entry, [])

    accepted = Query(cluster, path, run="run-3", topic="t", **ALLOWED)
    with caplog.at_level(logging.WARNING, "txnlog"):
        accepted.write(1, numbered(20, 40))
    (warning,) = caplog.messages
    assert warning.startswith(
        f"batch 1 of query query is in the log already (entry {entry}), with other rows"
    )
    assert "t: 10 rows in the log, 20 in the repetition" in warning
    accepted.write(2, numbered(40, 50))
    assert rows(log) == [*range(30), *range(40, 50)]


def test_as_many_rows_with_other_values_are_others(
    cluster: Cluster, query: Query, log: TxnLog, path: str
) -> None:
    query.write(0, numbered(0, 10))
    copy = Query(cluster, path, run="run-2", topic="t")
    with pytest.raises(
        StaleAppVersionError, match="10 rows in the log, 10 in the repetition, with other values"
    ):
        copy.write(0, numbered(1, 11))
    with pytest.raises(StaleAppVersionError, match="10 rows in the log, 0 in the repetition"):
        copy.write(0, table())
    assert rows(log) == list(range(10))


@pytest.mark.parametrize(
    "tasks",
    [
        [numbered(0, 10)],
        [table(*range(9, -1, -1))],
        [numbered(5, 10), table(), table(4, 0, 2), table(3, 1)],
        [pa.concat_tables([table(n) for n in range(10)])],
        [numbered(0, 10).select(["text", "n"]).select(["n", "text"])],
    ],
    ids=["alike", "in another order", "in other tasks", "in chunks", "columns in another order"],
)
def test_an_honest_repetition_is_silent(
    cluster: Cluster,
    query: Query,
    log: TxnLog,
    path: str,
    tasks: list[pa.Table],
    caplog: pytest.LogCaptureFixture,
) -> None:
    query.write(0, numbered(0, 6), numbered(6, 10))
    again = Query(cluster, path, run="run-2", topic="t")
    with caplog.at_level(logging.WARNING, "txnlog"):
        again.write(0, *tasks)
    assert caplog.messages == []
    again.write(1, numbered(10, 12))
    assert rows(log) == list(range(12))


def test_the_run_that_wrote_a_batch_is_only_warned(
    query: Query, log: TxnLog, caplog: pytest.LogCaptureFixture
) -> None:
    query.write(0, numbered(0, 10))
    with caplog.at_level(logging.WARNING, "txnlog"):
        query.write(0, numbered(0, 12))
    (warning,) = caplog.messages
    assert "t: 10 rows in the log, 12 in the repetition" in warning
    query.write(1, numbered(10, 12))
    assert rows(log) == list(range(12))


def test_every_topic_that_differs_is_named(cluster: Cluster, path: str, log: TxnLog) -> None:
    options = {"createTopics": "true"}
    topics: dict[int, str | None] = {n: "abc"[n % 3] for n in range(9)}
    Query(cluster, path, **options).write(0, table(*range(9), topics=topics))
    entry = log.refresh().entry
    copy = Query(cluster, path, run="run-2", **options)
    moved = {**topics, 0: "b", 8: "d"}
    with pytest.raises(StaleAppVersionError) as caught:
        copy.write(0, table(*range(9), topics=moved))
    assert caught.value.values["topics"] == (
        "a: 3 rows in the log, 2 in the repetition; b: 3 rows in the log, 4 in the repetition; "
        "c: 3 rows in the log, 2 in the repetition; d: 0 rows in the log, 1 in the repetition"
    )
    copy.write(0, table(*range(8, -1, -1), topics=topics))
    assert log.refresh().entry == entry


def test_many_topics_that_differ_are_counted(cluster: Cluster, path: str, log: TxnLog) -> None:
    topics: dict[int, str | None] = {n: f"t{n:02}" for n in range(14)}
    Query(cluster, path, createTopics="true").write(0, table(*topics, topics=topics))
    copy = Query(cluster, path, run="run-2", **ALLOWED)
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("txnlog").addHandler(handler)
    try:
        copy.write(0, table(topics=topics))
    finally:
        logging.getLogger("txnlog").removeHandler(handler)
    (warning,) = found
    assert "t09: 1 rows" in warning
    assert "t10" not in warning
    assert warning.endswith("; and 4 more topics")


def test_a_topic_that_grew_since_makes_no_difference(
    cluster: Cluster, query: Query, log: TxnLog, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Columns that were added are null in the repetition, and partitions are no part of what is compared."""
    query.write(0, numbered(0, 10))
    log.alter_topic("t", partitions=3, add_columns=pa.schema([("more", pa.decimal128(12, 2))]))
    with caplog.at_level(logging.WARNING, "txnlog"):
        Query(cluster, path, run="run-2", topic="t").write(0, numbered(0, 10))
    assert caplog.messages == []


def test_of_two_that_make_one_topic_the_later_one_finds_its_rows_there(
    cluster: Cluster, query: Query, log: TxnLog, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    late = Query(cluster, path, run="run-2", topic="t")
    planned = late.tasks(0, table(2, 1))  # with an id of its own for the topic
    query.write(0, table(1, 2))
    with caplog.at_level(logging.WARNING, "txnlog"):
        late.commit(planned, 0)
    assert caplog.messages == []
    assert rows(log) == [1, 2]


def test_a_repetition_is_compared_with_what_a_snapshot_is_far_behind(
    cluster: Cluster, query: Query, log: TxnLog, path: str
) -> None:
    """The state has no contents: the entry says it, however the state came about."""
    query.write(0, numbered(0, 10))
    for number in range(120):
        log.create_topic(f"other-{number}", pa.schema([("n", pa.int64())]))
    log.close()
    assert log.refresh().checkpoints, "there is a snapshot"
    cluster.restart("commit")
    copy = Query(cluster, path, run="run-2", topic="t")
    with pytest.raises(StaleAppVersionError, match="TXNLOG_DIFFERENT_REPEAT"):
        copy.write(0, numbered(0, 12))
    copy.write(0, numbered(0, 10))


def test_a_batch_that_did_not_say_what_it_wrote_is_done(
    cluster: Cluster, query: Query, log: TxnLog, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Another program may have committed the number: only rows can be counted, whichever run repeats it."""
    app = AppRef("spark-stream", "query", 0, "run-1")
    log.committer.commit(log.committer.intend(Write(app=app)))
    entry = log.refresh().entry
    again = Query(cluster, path, run="run-2", topic="t")
    with caplog.at_level(logging.WARNING, "txnlog"):
        again.write(0, table())
    assert caplog.messages == []
    with caplog.at_level(logging.WARNING, "txnlog"):
        again.write(0, numbered(0, 10))
    (warning,) = caplog.messages
    assert warning.startswith("batch 0 of query query is in the log already, with 0 rows")
    assert f"(entry {entry}); its repetition gave 10 rows, which are left out" in warning
    assert log.refresh().entry == entry


# --- batch writes -------------------------------------------------------------------------------------------


class Job:
    """Runs of a batch job of one version."""

    def __init__(self, path: str, **options: str) -> None:
        self._given = {"path": path, "txnAppId": "job", "txnVersion": "7", **options}
        self._frame = FRAME if "topic" in options else ROUTED

    def plan(self) -> TxnLogBatchWriter:
        plan = plan_write(parse_write_options(self._given, self._frame.names), self._frame)
        found: TxnLogBatchWriter = pickle.loads(pickle.dumps(TxnLogBatchWriter(plan)))
        return found

    def tasks(self, plan: TxnLogBatchWriter, *rows: pa.Table) -> list[Any]:
        messages = []
        for number, one in enumerate(rows):
            message = pickle.loads(pickle.dumps(plan.write(iter(one.to_batches()))))
            message.partition_id = number
            messages.append(message)
        return messages

    def write(self, *rows: pa.Table) -> None:
        plan = self.plan()
        plan.commit(self.tasks(plan, *rows))


@pytest.mark.parametrize("when", ["planned after it", "planned before it"])
def test_a_version_is_repeated_with_its_own_rows_only(
    log: TxnLog, path: str, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(path, topic="t")
    late, other = job.plan(), job.plan()
    job.write(numbered(0, 6), numbered(6, 10))
    (version,) = versions(log)
    whole = multiset_of(numbered(0, 10))
    assert version.content is not None
    assert [(one.records, one.hash) for one in version.content] == [(10, whole.hash)]
    entry, there = log.refresh().entry, files(path)
    if when == "planned after it":
        late, other = job.plan(), job.plan()
    with caplog.at_level(logging.WARNING, "txnlog"):
        late.commit(job.tasks(late, numbered(8, 10), table(*range(7, -1, -1))))
    assert caplog.messages == []
    with pytest.raises(StaleAppVersionError) as caught:
        other.commit(job.tasks(other, numbered(0, 9)))
    assert caught.value.kind == "different-repeat"
    told = str(caught.value)
    assert told.startswith(
        "[TXNLOG_DIFFERENT_REPEAT] version 7 of t/job is in the log already, with other rows"
    )
    assert "t: 10 rows in the log, 9 in the repetition" in told
    assert "write different rows with a new txnVersion" in told
    assert (log.refresh().entry, rows(log)) == (entry, list(range(10)))
    if when == "planned after it":
        assert files(path) == there, "what is compared is not uploaded"

    allowed = Job(path, topic="t", **ALLOWED)
    with caplog.at_level(logging.WARNING, "txnlog"):
        allowed.write(numbered(0, 9))
    (warning,) = caplog.messages
    assert f"version 7 of t/job is in the log already (entry {entry}), with other rows" in warning
    assert log.refresh().entry == entry


def test_rows_that_fit_no_topic_are_others(log: TxnLog, path: str, caplog: pytest.LogCaptureFixture) -> None:
    topics: dict[int, str | None] = {1: "a", 2: "b", 3: None}
    Job(path).write(table(1, 2, topics=topics))
    with pytest.raises(InvalidInputError, match="UNROUTABLE_ROWS"):
        Job(path).write(table(1, 2, 3, topics=topics))
    with caplog.at_level(logging.WARNING, "txnlog"):
        Job(path, **ALLOWED).write(table(1, 2, 3, topics=topics), table(topics=topics))
    assert "some of the rows do not fit the topics" in caplog.text


def test_a_topic_of_a_routed_write_is_compared_by_itself(
    log: TxnLog, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    topics: dict[int, str | None] = {n: "ab"[n % 2] for n in range(6)}
    Job(path).write(table(*range(6), topics=topics))
    entry = log.refresh().entry
    with caplog.at_level(logging.WARNING, "txnlog"):
        Job(path).write(table(*range(5, -1, -1), topics=topics))
        Job(path, topic="a").write(table(4, 2, 0))
    assert caplog.messages == []
    with pytest.raises(StaleAppVersionError, match="a: 3 rows in the log, 2 in the repetition"):
        Job(path, topic="a").write(table(4, 2))
    with pytest.raises(StaleAppVersionError, match=r"a: 3 rows in the log, 4 in the repetition; b: 3 .* 2 "):
        Job(path).write(table(*range(6), topics={**topics, 1: "a"}))
    assert log.refresh().entry == entry


@pytest.mark.parametrize("topic", ["t", None])
def test_a_version_that_did_not_say_what_it_wrote_is_done(
    log: TxnLog, path: str, topic: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    log.create_topic("t", pa.schema([("n", pa.int64()), ("text", pa.string())]))
    app = AppRef("spark-batch", f"{topic or '*'}/job", 7)
    log.committer.commit(log.committer.intend(Write(app=app)))
    entry = log.refresh().entry
    job = Job(path, **({} if topic is None else {"topic": topic}))
    given = numbered(0, 10) if topic else table(*range(10), topics=dict.fromkeys(range(10), "t"))
    with caplog.at_level(logging.WARNING, "txnlog"):
        job.write(given)
    (warning,) = caplog.messages
    assert f"with 0 rows (entry {entry}); its repetition gave 10 rows" in warning
    assert (log.refresh().entry, rows(log)) == (entry, [])


def test_rows_of_a_version_that_did_not_say_what_it_wrote_are_counted(
    log: TxnLog, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of its own intent, not of others in the same entry."""
    part = AppendedPartition(0, 5, 1, "0" * 16, 1, 0, 0, base_sequence=-1, base_offset=0)
    app = AppRef("spark-batch", "t/job", 7)
    held: tuple[Operation, ...] = (
        *(
            Append(
                topic_id="t",
                producer_id=-1,
                epoch=-1,
                partition_count=1,
                files=(),
                partitions=(part,),
                intent=number,
            )
            for number in (0, 1)
        ),
        AppVersion(app.namespace, app.app_id, app.version, intent=1),
    )
    with caplog.at_level(logging.WARNING, "txnlog"):
        for count in (5, 10):
            rows = {"t": Multiset(count, 0, 0)}
            Repetition(what="it", rows=rows, allowed=False, hint="").check(log.state, app, held, 3)
        Repetition(what="it", rows=None, allowed=False, hint="").check(log.state, app, held, 3)
    told = "it is in the log already, with 5 rows (entry 3); its repetition gave"
    assert [message.split(", which are")[0] for message in caplog.messages] == [
        f"{told} 10 rows",
        f"{told} rows of which some fit no topic",
    ]


def test_a_write_without_a_version_is_not_hashed(log: TxnLog, path: str) -> None:
    plan = plan_write(parse_write_options({"path": path, "topic": "t"}), FRAME)
    message = TxnLogBatchWriter(plan).write(iter(numbered(0, 10).to_batches()))
    assert message.contents == {}  # type: ignore[attr-defined]
