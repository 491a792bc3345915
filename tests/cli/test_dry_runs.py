"""--dry-run of maintain all, maintain retention and delete-topic: the effect is told, and no object of the
root changes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.conftest import Command
from tests.cli.left_open import HourAgo, left_open, prepare
from txnformat.admin.topics import TopicDeletion
from txnformat.store.local import LocalStore
from txnformat.store.requests import READS
from txnlog import ConflictError, InvalidInputError, Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def busy(root: Path) -> TxnLog:
    """A log in which each task of maintenance has something to do, but for publications."""
    log = TxnLog.create(LocalStore(str(root), clock=HourAgo()), clock=HourAgo())
    log.create_topic("t", SCHEMA)
    for name in ("orders", "small"):
        log.create_topic(name, SCHEMA, settings={"embed": "false"})
        with Producer(log, embed_bytes=0) as producer:
            for number in range(3):
                producer.send(name, [{"id": number}], partition=0)
                producer.flush()
    log.maintain("seal")
    log.alter_topic("orders", settings={"retention.bytes": 0})
    with Producer(log, embed_bytes=0) as producer:
        producer.send("small", [{"id": 9}], partition=0)
    left_open(log, "late")
    log.close()
    return TxnLog.open(root)


def objects(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()
    }


def test_a_dry_run_of_everything_tells_what_is_done_then(txnlog: Command, busy: TxnLog, root: Path) -> None:
    before = objects(root)
    lines = txnlog("maintain", "all", "--dry-run").out.splitlines()
    told = txnlog("maintain", "all", "--dry-run", "--truncate-older-than", "30d", "--json").json
    assert objects(root) == before
    assert told["dry_run"] is True
    shown = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines if " " in line}
    assert shown["timeouts"] == "ended 1 transaction: late"
    assert shown["seal"] == "sealed 1 batch of 1 partition in 1 segment"
    assert shown["retention"] == "removed records of 1 partition"
    assert lines[-1] == "this is the effect; nothing was changed"
    assert told["truncation"]["boundary"] == 0
    done = txnlog("maintain", "all", "--json").json
    assert done["dry_run"] is False
    for part in ("timed_out", "removed", "expired_producers", "expired_transactional_ids"):
        assert told[part] == done[part], part
    assert told["removed"]
    assert objects(root) != before


def test_the_library_only_reads_for_a_dry_run(busy: TxnLog, root: Path) -> None:
    counting = CountingStore(LocalStore(str(root)))
    before = objects(root)
    with counting.measure() as measured:
        log = TxnLog.open(counting)
        report = log.maintain(dry_run=True)
        again = log.maintain(dry_run=True)
        retention = log.maintain("retention", dry_run=True)
        deletion = log.delete_topic("small", dry_run=True)
    assert {request.operation for request in measured.counts.requests} <= READS
    assert measured.counts.count() > 0
    assert objects(root) == before
    assert report.dry_run
    assert again == report, "what was only told is not done, and is told again"
    assert again.rested == ()
    assert report.vacuum is not None
    assert report.vacuum.dry_run
    assert retention.removed == report.removed
    assert deletion == TopicDeletion("small", log.state.topic("small").topic_id, -1, 1, dry_run=True)
    with pytest.raises(InvalidInputError):
        log.maintain(dry_run="yes")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        log.delete_topic("small", dry_run="yes")  # type: ignore[arg-type]


def test_a_dry_run_of_a_compaction_says_what_it_leaves_out(txnlog: Command, busy: TxnLog) -> None:
    assert (
        "what is sealed now: without --dry-run the command seals the rest"
        in txnlog("compact", "--dry-run").out
    )
    assert "what is sealed now" not in txnlog("compact").out


def test_compactions_and_tables_are_told(txnlog: Command, busy: TxnLog, root: Path) -> None:
    busy.alter_topic("small", settings={"publish.formats": "delta"})
    txnlog("compact", "small", "--target-bytes", "1")
    for number in range(3):
        with Producer(busy, embed_bytes=0) as producer:
            producer.send("small", [{"id": number}], partition=0)
        busy.maintain("seal")
    would = txnlog("compact", "--dry-run", "--json").json["topics"]
    before = objects(root)
    told = txnlog("maintain", "all", "--dry-run", "--json").json
    assert objects(root) == before
    assert told["compacted"] == [one for one in would if one["partitions"]]
    assert told["skipped"] == [
        {"task": "publish", "reason": "a dry run makes no tables; topics to publish: small (delta)"}
    ]


def test_a_dry_run_of_retention(txnlog: Command, busy: TxnLog, root: Path) -> None:
    before = objects(root)
    lines = txnlog("maintain", "retention", "--dry-run").out.splitlines()
    told = txnlog("maintain", "retention", "--dry-run", "--json").json
    assert objects(root) == before
    assert lines[1].split() == ["orders", "0", "0", "3"]
    assert lines[-1] == "this is the effect; nothing was changed"
    assert told["removed"] == txnlog("maintain", "retention", "--json").json["removed"]
    assert busy.offsets("orders")[0].earliest == 3


def test_marks_that_would_be_lifted_are_those_that_are(busy: TxnLog) -> None:
    """Nothing lies before the mark but aborted records and a marker."""
    busy.create_topic("aborted", SCHEMA)
    busy.subscriptions.create("aborted", "work")
    with Producer(busy, "gives-up", buffer="inline") as producer:
        producer.begin()
        producer.send("aborted", [{"id": 1}] * 3)
        producer.flush()
        producer.abort()
    told = busy.maintain("subscriptions", dry_run=True)
    assert told.lifted
    assert told.lifted == busy.maintain("subscriptions").lifted
    assert busy.maintain("subscriptions", dry_run=True).lifted == ()


def test_a_dry_run_of_a_deletion_asks_nothing_and_deletes_nothing(
    txnlog: Command, busy: TxnLog, root: Path
) -> None:
    left_open(busy, "open", "bank")
    prepare(busy, "bank")
    before = objects(root)
    refused = txnlog("delete-topic", "t", "--dry-run", "--force", "--json")
    assert (refused.code, refused.error["kind"]) == (4, "transaction-prepared")
    words = ("delete-topic", "t", "--dry-run", "--prepared", "bank")
    header, row, last = txnlog(*words).out.splitlines()
    told = txnlog(*words, "--json").json
    assert objects(root) == before
    assert header.split() == ["Topic", "TopicId", "Partitions", "Aborted", "GivenUp"]
    assert row.split()[0] == "t"
    assert row.split()[-1] == "bank"
    assert last == "this is the effect; nothing was changed"
    assert (told["entry"], told["dry_run"], told["given_up"]) == (-1, True, ["bank"])
    assert told["aborted"] == ["open"]
    done = txnlog("delete-topic", "t", "--yes", "--prepared", "bank", "--json").json
    assert {**done, "entry": -1, "dry_run": True} == told
    with pytest.raises(ConflictError):
        left_open_topic(busy)


def left_open_topic(log: TxnLog) -> None:
    """A dry run is refused as the deletion is."""
    producer = Producer(log, "holder", buffer="inline")
    producer.init()
    producer.begin()
    producer.send("small", [{"id": 1}], partition=0)
    producer.flush()
    log.delete_topic("small", dry_run=True)


@pytest.mark.parametrize("more", [("--watch", "60"), ("--metrics-file", "x.prom")])
def test_a_dry_run_is_one_round_without_metrics(txnlog: Command, busy: TxnLog, more: tuple[str, ...]) -> None:
    answer = txnlog("maintain", "all", "--dry-run", *more, "--json")
    assert (answer.code, answer.error["kind"]) == (2, "usage")
