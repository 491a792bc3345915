"""Where others commit much, a batch is planned on nearly the newest state, and committed on the newest. No
session needed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from tests.unit.spark_datasource.stream_steps import FRAME, Cluster, Query, rows, table
from txnformat.core.intents import AllocateIds
from txnformat.store.requests import RequestKind
from txnlog import TxnLog, TxnLogError

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def others_commit(log: TxnLog, until: int) -> None:
    """Commit up to an entry, and write the bundles of what is there."""
    while log.state.entry < until:
        log.committer.commit(log.committer.intend(AllocateIds("others", 1)))
        if log.state.entry % 50 == 0:
            log.close()
    log.close()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return f"memory://{tmp_path}"


@pytest.fixture
def log(path: str) -> TxnLog:
    log = TxnLog.create(path)
    log.create_topic("t", SCHEMA, partitions=2, key_columns=["n"])
    return log


@pytest.fixture
def query(cluster: Cluster, log: TxnLog, path: str) -> Query:
    """A query with one batch of its own in the log, whose planner has found many entries in its last look,
    and will find two hundreds and 30 more."""
    query = Query(cluster, path, topic="t")
    query.write(0, table(0))
    others_commit(log, 210)
    query.plan()
    others_commit(log, 430)
    return query


def test_a_plan_reads_hundreds_alone(cluster: Cluster, query: Query) -> None:
    with cluster.stores["plan"].measure() as measured:
        plan = query.plan()
    # Whether the log is the same; two hundreds, and one or two that are not there; the last entry of the
    # second.
    assert measured.counts.count(RequestKind.GET) <= 1 + 2 + 2 + 1
    query.commit([query.task(plan, 1, 0, table(1))], 1)


def test_a_column_that_was_added_since_is_planned_at_once(log: TxnLog, query: Query) -> None:
    log.alter_topic("t", add_columns=[pa.field("more", pa.int64())])
    query.frame = StructType([*FRAME.fields]).add("more", "long")
    query.write(1, table(1).append_column("more", pa.array([7], pa.int64())))
    found = log.read("t", columns=["n", "more"]).read_all().sort_by("n").to_pylist()
    assert found == [{"n": 0, "more": None}, {"n": 1, "more": 7}]


def test_partitions_that_were_added_since_send_the_batch_back_once(log: TxnLog, query: Query) -> None:
    """Its records went by key to the old ones, so nothing is written; what comes next finds the new ones."""
    log.alter_topic("t", partitions=5)
    with pytest.raises(TxnLogError, match="TXNLOG_PARTITION_COUNT_CHANGED"):
        query.write(1, table(*range(1, 100)))
    others_commit(log, 500)
    query.write(1, table(*range(1, 100)))
    assert rows(log) == [*range(100)]


@pytest.mark.parametrize("again", [False, True], ids=["gone", "another one of its name"])
def test_a_topic_that_was_deleted_since_ends_the_query(log: TxnLog, query: Query, again: bool) -> None:
    log.delete_topic("t")
    if again:
        log.create_topic("t", SCHEMA, partitions=2)
    with pytest.raises(TxnLogError, match="TXNLOG_TOPIC_GONE"):
        query.write(1, table(1))
    if again:
        assert rows(log) == []
