"""The sink of streams step by step: requests, repetitions, races, takeovers, and what the driver believes. No
session needed."""

from __future__ import annotations

import logging
import pickle
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from spark_datasource.worker import logs
from spark_datasource.worker.logs import COMMIT_TRIES_MAX
from tests.unit.spark_datasource.stream_steps import KEYED, Cluster, Query, files, rows, table
from txnformat.core.app_versions.state import Content
from txnformat.core.entry import decode_entry
from txnformat.core.operations import AppVersion, CreateTopic
from txnformat.errors import (
    CommitStateUnknownError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    StaleAppVersionError,
)
from txnformat.keys import entry_key
from txnformat.log import TxnLog
from txnformat.protocol.commit import CommitSettings
from txnformat.store.local import LocalStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog_testing.stores.counting import RequestClass
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

PLAIN = pa.schema([("n", pa.int64()), ("text", pa.string())])
DATA_PUT = RequestClass(RequestKind.OPEN_WRITE, KeyClass.DATA)
ENTRY_PUT = RequestClass(RequestKind.CREATE, KeyClass.ENTRY)
ENTRY_GET = RequestClass(RequestKind.GET, KeyClass.ENTRY)


# --- what a batch is, and costs -----------------------------------------------------------------------------


@pytest.mark.parametrize("embedding", [True, False], ids=["embedded", "files"])
def test_a_batch_costs_one_entry_and_where_it_is_not_embedded_a_file_for_each_task_with_rows_and_topic(
    cluster: Cluster, path: str, log: TxnLog, embedding: bool
) -> None:
    if not embedding:
        log = recreate(path)
    for name in ("a", "b"):
        log.create_topic(name, PLAIN)
    query = Query(cluster, path)
    topics = {n: "ab"[n % 2] for n in range(100)}
    for batch in range(2):
        query.write(batch, table(1, 2, topics=topics))  # warms all workers
    both, one, none = (table(*numbers, topics=topics) for numbers in ((1, 2, 3), (4, 6), ()))
    with (
        cluster.stores["plan"].measure() as planned,
        cluster.stores["task"].measure() as written,
        cluster.stores["commit"].measure() as committed,
    ):
        query.write(2, both, one, none)
    # A client that goes on with an open log looks whether the last entry that it saw is still there. The last
    # batch's is new to the worker that plans. It finds the tip by asking for the two entries after it.
    assert dict(planned.counts.requests) == {ENTRY_GET: 4}
    assert dict(written.counts.requests) == ({} if embedding else {DATA_PUT: 3})
    assert dict(committed.counts.requests) == {ENTRY_GET: 1, ENTRY_PUT: 1}
    with cluster.stores["task"].measure() as written, cluster.stores["commit"].measure() as committed:
        query.write(3, none)
    assert dict(written.counts.requests) == {}
    assert dict(committed.counts.requests) == {ENTRY_GET: 1, ENTRY_PUT: 1}


def test_the_writer_that_commits_plans_nothing(cluster: Cluster, query: Query) -> None:
    with cluster.in_worker("commit"):
        query.writer()
    assert "commit" not in cluster.stores
    query.plan()
    assert cluster.stores["plan"].counts.count() > 0


def test_a_writer_that_goes_to_tasks_has_a_plan_wherever_it_was_made(
    cluster: Cluster, query: Query, log: TxnLog
) -> None:
    with cluster.in_worker("plan"):
        plan = pickle.dumps(query.writer())
    query.commit([query.task(plan, 0, 0, table(1))], 0)
    assert dict(cluster.stores["task"].counts.requests) == {DATA_PUT: 1}
    assert rows(log) == [1]


def test_a_batch_without_rows_is_an_entry_too_and_makes_the_topic(query: Query, log: TxnLog) -> None:
    query.write(0, table(), table())
    assert log.topics() == ["t"]
    entry = log.refresh().entry
    query.write(1, table())
    assert log.refresh().entry == entry + 1
    data = log.store.get(entry_key(entry + 1))
    assert data is not None
    assert decode_entry(data, entry + 1).operations == (
        AppVersion("spark-stream", "query", 1, 0, instance="run-1", content=Content()),
    )
    assert rows(log) == []


def test_messages_are_ordered_by_task_whatever_order_they_come_in(query: Query, log: TxnLog) -> None:
    query.commit(query.tasks(0, table(1), table(2), table(3))[::-1], 0)
    assert log.read("t", columns=["n"]).read_all().column("n").to_pylist() == [1, 2, 3]


# --- repetitions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("worker", ["the same", "another"])
def test_a_repeated_batch_changes_nothing_and_its_files_are_left_alone(
    cluster: Cluster, query: Query, log: TxnLog, path: str, worker: str, caplog: pytest.LogCaptureFixture
) -> None:
    query.write(0, table(1, 2), table(3))
    entry, there = log.refresh().entry, files(path)
    if worker == "another":
        cluster.restart("commit")
    again = Query(cluster, path, run="run-2", topic="t", allowDifferentRepeat="true")
    with caplog.at_level(logging.WARNING, "txnlog"):
        again.write(0, table(1, 2, 3))
        assert caplog.messages == []
        again.write(0, table(1, 2, 3, 4), table(5))
    (warning,) = caplog.messages
    assert "batch 0 of query query is in the log already" in warning
    assert "t: 3 rows in the log, 5 in the repetition" in warning
    assert (log.refresh().entry, rows(log)) == (entry, [1, 2, 3])
    assert files(path) == there, (
        "the log embeds since its first entry: small rows go with the messages, and leave nothing behind"
    )
    again.write(1, table(4))
    assert rows(log) == [1, 2, 3, 4]


@pytest.mark.parametrize("worker", ["the same", "another"])
def test_a_repetition_is_done_whatever_became_of_the_topic(
    cluster: Cluster, path: str, log: TxnLog, worker: str
) -> None:
    query = Query(cluster, path, topic="t", **KEYED)
    query.write(0, table(1))
    messages = Query(cluster, path, run="run-2", topic="t", **KEYED).tasks(0, table(1))
    log.alter_topic("t", partitions=2)
    if worker == "another":
        cluster.restart("commit")
    query.commit(messages, 0)
    assert rows(log) == [1]


@pytest.mark.parametrize("unclear", [COMMIT_TRIES_MAX - 1, COMMIT_TRIES_MAX])
def test_an_unclear_commit_is_handed_in_again_and_a_restart_finds_it(
    cluster: Cluster, query: Query, log: TxnLog, path: str, unclear: int
) -> None:
    """The create lands and its answer is lost; reading back fails in the first so many tries."""
    query.write(0, table(1))
    key = entry_key(log.refresh().entry + 1)
    creates = 0

    def plan(operation: RequestKind, name: str, call: int) -> Fault | None:
        nonlocal creates
        if name == key and operation is RequestKind.CREATE:
            creates = call
            return Fault(FaultKind.APPLIED_LOST_ANSWER)
        return Fault(FaultKind.FAIL_BEFORE) if name == key and 1 <= creates <= unclear else None

    faulty = TxnLog.open(FaultyStore(LocalStore(path), plan), settings=CommitSettings(deadline_ms=0))
    messages = query.tasks(1, table(2))
    with cluster.in_worker("commit"):
        ((place, _),) = logs._logs.items()
        logs._logs[place] = faulty
    if unclear < COMMIT_TRIES_MAX:
        query.commit(messages, 1)
    else:
        with pytest.raises(CommitStateUnknownError, match="TXNLOG_COMMIT_STATE_UNKNOWN"):
            query.commit(messages, 1)
        cluster.restart("commit")
        Query(cluster, path, run="run-2", topic="t").write(1, table(2))
    assert rows(log) == [1, 2]
    assert entry_key(log.refresh().entry) == key, "applied once"


# --- other queries, other checkpoints, other logs -----------------------------------------------------------


def test_a_run_that_another_has_taken_over_from_is_refused(cluster: Cluster, path: str, log: TxnLog) -> None:
    old, new = (Query(cluster, path, run=run, topic="t") for run in ("run-1", "run-2"))
    old.write(0, table(1))
    new.write(0, table(1))
    new.write(1, table(2))
    for batch in (1, 2):
        with pytest.raises(StaleAppVersionError, match=r"TXNLOG_STALE_INSTANCE.*stop one of them") as caught:
            old.write(batch, table(3))
        assert caught.value.values["newest_instance"] == "run-2"
    assert rows(log) == [1, 2]
    new.write(2, table(4))
    assert rows(log) == [1, 2, 4]


def test_an_older_checkpoint_is_refused_and_so_is_one_ahead_of_the_log(
    cluster: Cluster, path: str, log: TxnLog
) -> None:
    query = Query(cluster, path, topic="t")
    for batch in range(3):
        query.write(batch, table(batch))
    entry = log.refresh().entry
    with pytest.raises(StaleAppVersionError, match=r"TXNLOG_STALE_APP_VERSION.*later batch.*newest=`2`"):
        Query(cluster, path, run="run-2", topic="t").write(1, table(1))
    with pytest.raises(
        StaleAppVersionError, match=r"MISSING_VERSIONS.*batch_id=`4` expected=`3`.*allowMissing"
    ):
        query.write(4, table(4))
    assert (log.refresh().entry, rows(log)) == (entry, [0, 1, 2])
    Query(cluster, path, topic="t", allowmissingbatches="true").write(4, table(4))
    query.write(5, table(5))
    assert rows(log) == [0, 1, 2, 4, 5]


def test_an_application_id_keeps_a_new_checkpoint_from_writing_everything_again(
    cluster: Cluster, path: str, log: TxnLog
) -> None:
    first = Query(cluster, path, topic="t", txnappid="clicks")
    first.write(0, table(0))
    first.write(1, table(1))
    anew = Query(cluster, path, query="other", run="run-2", topic="t", txnappid="clicks")
    with pytest.raises(StaleAppVersionError, match=r"STALE_APP_VERSION.*from another query.*newest=`1`"):
        anew.write(0, table(0))
    first.write(1, table(1))
    first.write(2, table(2))
    assert rows(log) == [0, 1, 2]
    Query(cluster, path, query="other", run="run-2", topic="t").write(0, table(0))
    assert rows(log) == [0, 0, 1, 2]


def recreate(path: str) -> TxnLog:
    shutil.rmtree(path)
    return TxnLog.create(path, embedding=False)


@pytest.mark.parametrize("worker", ["the same", "another"])
def test_a_log_that_was_made_anew_between_batches_is_told(
    cluster: Cluster, query: Query, path: str, worker: str
) -> None:
    query.write(0, table(1))
    query.write(1, table(2))
    log = recreate(path)
    if worker == "another":
        cluster.restart("commit")
    with pytest.raises(StaleAppVersionError, match=r"MISSING_VERSIONS.*expected=`0`"):
        query.write(2, table(3))
    assert (log.refresh().app_versions, log.topics()) == ({}, [])


@pytest.mark.parametrize("batch", [0, 2], ids=["before the first batch", "of a worker that has it open"])
def test_a_log_that_was_made_anew_between_plan_and_commit_is_told(
    cluster: Cluster, query: Query, path: str, batch: int
) -> None:
    for number in range(batch):
        query.write(number, table(number))
    messages = query.tasks(batch, table(batch))
    log = recreate(path)
    with pytest.raises(ConflictError, match="TXNLOG_LOG_REPLACED"):
        query.commit(messages, batch)
    assert (log.refresh().app_versions, log.topics()) == ({}, [])
    for number in range(9):  # an entry of the old log would stand in their way
        log.create_topic(f"topic-{number}", PLAIN)
    shutil.rmtree(path)
    with pytest.raises(NotFoundError, match="TXNLOG_NO_LOG"):
        query.commit(messages, batch)


@pytest.mark.parametrize("when", ["between batches", "between plan and commit"])
def test_a_log_that_was_restored_under_a_running_query_is_told(
    cluster: Cluster, query: Query, log: TxnLog, path: str, tmp_path: Path, when: str
) -> None:
    query.write(0, table(0))
    shutil.copytree(path, backup := tmp_path / "backup")
    for batch in (1, 2):
        query.write(batch, table(batch))
    messages = [] if when == "between batches" else query.tasks(3, table(3))
    shutil.rmtree(path)
    shutil.copytree(backup, path)
    if messages:
        with pytest.raises(ConflictError, match="TXNLOG_LOG_REPLACED"):
            query.commit(messages, 3)
    with pytest.raises(StaleAppVersionError, match=r"MISSING_VERSIONS.*expected=`1`"):
        query.write(3, table(3))
    log = TxnLog.open(path)
    Query(cluster, path, topic="t", allowmissingbatches="true").write(3, table(3))
    assert rows(log) == [0, 3]


# --- topics that change while a batch is written ------------------------------------------------------------


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "not seen yet"])
def test_a_topic_without_keys_may_get_partitions_while_a_batch_is_written(
    cluster: Cluster, query: Query, log: TxnLog, seen: bool
) -> None:
    query.write(0, table(1))
    messages = query.tasks(1, table(2), table(3))
    log.alter_topic("t", partitions=3)
    if seen:
        cluster.restart("commit")
    query.commit(messages, 1)
    assert rows(log) == [1, 2, 3]
    query.write(2, table(4), table(5), table(6))
    assert rows(log) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "not seen yet"])
def test_records_that_go_by_key_have_to_be_written_again(
    cluster: Cluster, path: str, log: TxnLog, seen: bool
) -> None:
    query = Query(cluster, path, topic="t", **KEYED)
    query.write(0, table(1))
    messages = query.tasks(1, table(2))
    log.alter_topic("t", partitions=3)
    if seen:
        cluster.restart("commit")
    with pytest.raises(ConflictError, match=r"TXNLOG_PARTITION_COUNT_CHANGED.*restart the query"):
        query.commit(messages, 1)
    assert rows(log) == [1]
    query.write(1, table(2))
    assert rows(log) == [1, 2]


def test_a_topic_may_be_widened_while_a_batch_is_written(query: Query, log: TxnLog, cluster: Cluster) -> None:
    query.write(0, table(1))
    messages = query.tasks(1, table(2))
    log.alter_topic("t", add_columns=pa.schema([("more", pa.int32())]))
    query.commit(messages, 1)
    cluster.restart("commit")
    messages = query.tasks(2, table(3))
    log.alter_topic("t", widen={"more": pa.int64()})
    query.commit(messages, 2)
    assert [row["more"] for row in log.read("t").read_all().to_pylist()] == [None, None, None]
    assert rows(log) == [1, 2, 3]


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "not seen yet"])
@pytest.mark.parametrize("theirs", ["alike", "grown", "other"])
def test_somebody_else_may_make_the_same_topic_meanwhile(
    cluster: Cluster, query: Query, log: TxnLog, seen: bool, theirs: str
) -> None:
    if not seen:
        with cluster.in_worker("commit"):
            logs.open_log(query.options["path"])
    messages = query.tasks(0, table(1))
    log.create_topic("t", PLAIN, partitions=2 if theirs == "other" else 1)
    if theirs == "grown":
        log.alter_topic("t", partitions=2)
    if theirs == "other":
        with pytest.raises(ConflictError, match="TXNLOG_TOPIC_EXISTS"):
            query.commit(messages, 0)
        assert rows(log) == []
        query.write(0, table(1))
    else:
        query.commit(messages, 0)
    assert rows(log) == [1]


# --- routes -------------------------------------------------------------------------------------------------


def test_rows_name_topics_that_exist_unless_others_shall_be_made(
    cluster: Cluster, path: str, log: TxnLog
) -> None:
    log.create_topic("a", PLAIN)
    topics = {1: "a", 2: "b", 3: None, 4: "_hidden", 5: "b"}
    query = Query(cluster, path)
    entry = log.refresh().entry
    with pytest.raises(InvalidInputError) as caught:
        query.write(0, table(1, 2, 3, 4, 5, topics=topics))
    for text in (
        "[TXNLOG_UNROUTABLE_ROWS]",
        "no topic 'b' (2 rows)",
        "null (1 rows)",
        "'_hidden'",
        "createTopics",
    ):
        assert text in str(caught.value)
    assert (log.refresh().entry, files(path)) == (entry, 0)
    query.write(0, table(1, topics=topics))
    Query(cluster, path, createtopics="true").write(1, table(1, 2, topics=topics), table(5, topics=topics))
    assert (rows(log, "a"), rows(log, "b")) == ([1, 1], [2, 5])
    state = log.refresh()
    data = log.store.get(entry_key(state.entry))
    assert data is not None
    assert [op.name for op in decode_entry(data, state.entry).operations if isinstance(op, CreateTopic)] == [
        "b"
    ]


def test_what_the_worker_that_commits_has_not_seen_yet_is_no_mistake(
    cluster: Cluster, path: str, log: TxnLog
) -> None:
    """Of the plan's log it knows as much as at its last commit: others have made and changed topics since."""
    log.create_topic("a", PLAIN)
    query = Query(cluster, path)
    query.write(0, table(1, topics={1: "a"}))
    log.create_topic("b", PLAIN)
    query.write(1, table(2, topics={2: "b"}))
    log.alter_topic("a", partitions=2, add_columns=pa.schema([("more", pa.int32())]))
    query.write(2, table(3, topics={3: "a"}))
    assert (rows(log, "a"), rows(log, "b")) == ([1, 3], [2])


def test_one_topic_is_made_unless_it_shall_not(cluster: Cluster, path: str, log: TxnLog) -> None:
    with pytest.raises(NotFoundError, match="TXNLOG_UNKNOWN_TOPIC"):
        Query(cluster, path, topic="t", createtopics="false").plan()
    log.create_topic("t", PLAIN)
    Query(cluster, path, topic="t", createtopics="false").write(0, table(1))
    assert rows(log) == [1]
