"""txnlog subscriptions list, describe, create, seek, delete."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.cli.conftest import Command
from txnlog import Producer, Subscription, TxnLog


@pytest.fixture
def jobs(log: TxnLog) -> TxnLog:
    """Ten records, of which the first two and the fifth are acknowledged."""
    log.create_topic("jobs", pa.schema([("id", pa.int64())]), partitions=2)
    with Producer(log) as producer:
        producer.send("jobs", [{"id": n} for n in range(10)], partition=0)
    log.subscriptions.create("jobs", "work")
    Subscription(log, "jobs", "work").acknowledge([(0, 0), (0, 1), (0, 4)])
    return log


def test_a_subscription_is_made_described_moved_and_deleted(txnlog: Command, jobs: TxnLog) -> None:
    assert txnlog("subscriptions", "create", "jobs", "late", "--to-latest").out == "jobs/late: created\n"
    listed = txnlog("subscriptions", "list", "--json").json["subscriptions"]
    assert [(one["topic"], one["subscription"]) for one in listed] == [("jobs", "late"), ("jobs", "work")]
    shown = txnlog("subscriptions", "describe", "jobs", "work")
    assert shown.out.splitlines()[1].split() == ["0", "2", "10", "1", "7", "0"]
    assert txnlog("subscriptions", "describe", "jobs", "late", "--json").json["unacknowledged"] == 0
    assert txnlog("subscriptions", "seek", "jobs", "late", "--to-offset", "0:6").code == 0
    assert txnlog("subscriptions", "describe", "jobs", "late", "--json").json["unacknowledged"] == 4
    assert txnlog("subscriptions", "seek", "jobs", "late", "--to-earliest", "--json").json["done"] == "moved"
    assert txnlog("subscriptions", "delete", "jobs", "late").out == "jobs/late: deleted\n"
    assert "late" not in txnlog("subscriptions", "list", "--topic", "jobs").out
    answer = txnlog("subscriptions", "create", "jobs", "work", "--if-not-exists")
    assert (answer.code, answer.out) == (0, "jobs/work: is there\n")


def test_what_cannot_be_done_is_one_error(txnlog: Command, jobs: TxnLog) -> None:
    for arguments, code, kind in (
        (("describe", "jobs", "nobody"), 3, "unknown-subscription"),
        (("describe", "nothing", "work"), 3, "unknown-topic"),
        (("create", "jobs", "work"), 4, "subscription-exists"),
        (("create", "jobs", "_hidden"), 2, "invalid-subscription-name"),
        (("seek", "jobs", "work", "--to-offset", "11"), 2, "offset-out-of-range"),
        (("delete", "jobs", "nobody"), 3, "unknown-subscription"),
    ):
        answer = txnlog("subscriptions", *arguments, "--json")
        assert (answer.code, answer.error["kind"]) == (code, kind), arguments
        if kind == "unknown-subscription":
            assert "txnlog subscriptions list" in answer.error["hint"]
    assert txnlog("subscriptions", "seek", "jobs", "work").code == 2
    assert txnlog("subscriptions", "seek", "jobs", "work", "--to-latest", "--to-offset", "1").code == 2
    assert txnlog("subscriptions", "create", "jobs", "two", "--to-latest", "--to-earliest").code == 2
    assert jobs.refresh().subscriptions.keys() == {(jobs.state.topic("jobs").topic_id, "work")}
    with Producer(jobs, "etl", buffer="inline") as producer:
        producer.begin()
        producer.acknowledge(Subscription(jobs, "jobs", "work"), [(0, 7)])
        producer.flush()
        assert txnlog("subscriptions", "delete", "jobs", "work", "--json").error["kind"] == "ack-pending"
        listed = txnlog("subscriptions", "list", "--json").json["subscriptions"]
        assert listed[0]["pending_transactions"] == ["etl"]
