"""What the state cannot shed by itself: the log says what it is, why, and what helps."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from tests.older_logs import older_log
from txnformat.core.operations import Checkpoint
from txnformat.core.records.state import SpilledRange
from txnformat.core.state import EMBEDDING
from txnformat.persistent import replace as replaced
from txnformat.protocol import growth
from txnformat.protocol.commit import CommitSettings
from txnformat.protocol.growth import SNAPSHOT_BYTES, crosses, growing
from txnformat.store.memory import MemoryStore
from txnformat.types import SegmentListRecord
from txnlog import Producer, TxnLog
from txnlog.cli.app import application

NUMBERS = pa.schema([("n", pa.int64())])
BOUND = 8


def build(log: TxnLog, appends: int, name: str = "slow") -> None:
    """Leave a transaction open, and append behind it. In an older log, for others spill what is there."""
    log.create_topic("t", NUMBERS, partitions=2)
    slow = Producer(log, name, buffer="inline")
    slow.init()
    slow.begin()
    slow.send("t", [{"n": 0}], partition=1)
    slow.flush()
    with Producer(log) as quick:
        for number in range(appends):
            quick.send("t", [{"n": number}], partition=1)
            quick.flush()
            quick.send("t", [{"n": number}], partition=0)
            quick.flush()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> CommitSettings:
    monkeypatch.setattr(growth, "SEAL_EXTENTS", BOUND)
    monkeypatch.setattr(growing, "__defaults__", (BOUND,))
    return CommitSettings(seal_extents=BOUND)


def test_a_log_in_good_order_has_nothing_to_say() -> None:
    with TxnLog.create(MemoryStore(), settings=CommitSettings(seal_extents=BOUND)) as log:
        log.create_topic("t", NUMBERS)
        with Producer(log) as producer:
            for number in range(5 * BOUND):
                producer.send("t", [{"n": number}])
                producer.flush()
        log.maintain("seal")
        assert growing(log.state, 1) == log.describe().growing == ()


def test_an_open_transaction_that_holds_extents_back_is_named(small: CommitSettings) -> None:
    with older_log(MemoryStore(), EMBEDDING, settings=small) as log:
        build(log, 2 * BOUND)
        (one,) = growing(log.state, BOUND)
        assert (one.kind, one.topic, one.partition, one.transactional_id) == ("held-back", "t", 1, "slow")
        assert one.count == 2 * BOUND + 1
        assert "transactional id slow" in one.cause
        assert "offset 0" in one.cause
        log.transactions.abort("slow")
        log.maintain("seal")
        assert growing(log.state, 1) == ()


def test_a_transaction_that_hangs_is_named_by_its_producer(small: CommitSettings) -> None:
    with older_log(MemoryStore(), EMBEDDING, settings=small) as log:
        build(log, BOUND)
        forgotten = replaced(log.state, transactional_ids={}, undecided=frozenset())
        (one,) = growing(forgotten, BOUND)
        assert one.transactional_id == ""
        assert "which is hanging" in one.cause


def test_an_append_that_is_too_large_to_be_sealed_is_named(
    small: CommitSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txnformat.protocol.sealing.UNSEALABLE_BATCHES", 0)
    with TxnLog.create(MemoryStore(), settings=small) as log:
        log.create_topic("t", NUMBERS)
        with Producer(log) as producer:
            for number in range(BOUND):
                producer.send("t", [{"n": number}])
                producer.flush()
        (one,) = growing(log.state, BOUND)
        assert (one.kind, one.count) == ("unsealable", BOUND)


def test_a_spilled_append_that_is_too_large_to_be_sealed_is_named(
    small: CommitSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No transaction is open, and yet the partition cannot be sealed: the spill that is next is one
    append.
    """
    monkeypatch.setattr("txnformat.protocol.sealing.UNSEALABLE_BATCHES", 0)
    with TxnLog.create(MemoryStore(), settings=small) as log:
        log.create_topic("t", NUMBERS)
        with Producer(log) as producer:
            for number in range(BOUND):
                producer.send("t", [{"n": number}])
                producer.flush()
        ((key, partition),) = log.state.partitions.items()
        spilled = replaced(partition, spills=(SpilledRange(0, 1, 0, 1, 1, 0, 0, 1, 1),))
        (one,) = growing(replaced(log.state, partitions={key: spilled}), BOUND)
        assert (one.kind, one.count) == ("unsealable", BOUND)


def test_a_large_snapshot_and_many_lists_are_named() -> None:
    with TxnLog.create(MemoryStore()) as log:
        log.create_topic("t", NUMBERS)
        state = log.state
    named = Checkpoint(0, "_txnlog/snapshots/x", SNAPSHOT_BYTES, "0" * 64, "0" * 64)
    assert [one.kind for one in growing(replaced(state, checkpoints=(named,)))] == ["snapshot"]
    assert growing(replaced(state, checkpoints=(replaced(named, size=SNAPSHOT_BYTES - 1),))) == ()
    lists = tuple(SegmentListRecord(str(n), 1, "0" * 64, n) for n in range(growth.LISTS))
    assert [one.kind for one in growing(replaced(state, segment_lists=lists))] == ["segment-lists"]
    assert growing(replaced(state, segment_lists=lists[1:])) == ()


def test_it_is_said_at_twice_the_bound_four_times_and_so_on() -> None:
    said = [now for now in range(1, 40) if crosses(now - 1, now, 4)]
    assert said == [8, 16, 32]


def test_a_writer_warns_with_topic_and_transaction(
    small: CommitSettings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "txnformat.client.committer")
    with older_log(MemoryStore(), EMBEDDING, settings=small) as log:
        build(log, 4 * BOUND)
    found = [record.getMessage() for record in caplog.records if "grows" in record.getMessage()]
    assert found
    assert len(found) < 4 * BOUND, "not at each append: when the number doubles, and after a seal once more"
    assert all("held-back of t/1" in text and "slow" in text for text in found)


def test_describe_shows_it(small: CommitSettings, tmp_path: Path) -> None:
    with older_log(tmp_path, EMBEDDING, settings=small) as log:
        build(log, BOUND)
    shown = CliRunner().invoke(application, ["describe", "--root", str(tmp_path)])
    assert "warning: the state grows (held-back" in shown.output
    document = json.loads(
        CliRunner().invoke(application, ["describe", "--root", str(tmp_path), "--json"]).output
    )
    (one,) = document["growing"]
    assert (one["topic"], one["partition"], one["transactional_id"]) == ("t", 1, "slow")
