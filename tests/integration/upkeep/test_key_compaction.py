"""A topic keeps only the latest record of each key: what goes, when, what is refused, and who goes on over
the gaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.integration.upkeep.key_world import DAY, HOUR, TABLE, Hours
from txnformat.admin.compaction import call, cleaning
from txnformat.columns.key_bytes import encode_keys
from txnformat.core.lifecycle.offset_map import SLOT_BYTES
from txnformat.core.ranges import NO_RANGES
from txnformat.persistent import replace
from txnformat.reading.compacting import write_together
from txnformat.reading.visible import Visible
from txnformat.store.memory import MemoryStore
from txnlog import (
    ConflictError,
    Consumer,
    InvalidInputError,
    NotFoundError,
    Producer,
    Subscription,
    TxnLog,
)
from writers.bulk import BulkAppend


def test_of_each_key_the_latest_record_stays_with_its_offset() -> None:
    hours = Hours()
    for number in range(10):
        hours.send((f"k{number % 3}", number))
    (done,) = hours.log.compact()
    assert (done.dirty_ratio, done.removed_records) == (1.0, 7)
    assert hours.left() == [("k1", 7, 7), ("k2", 8, 8), ("k0", 9, 9)]
    (again,) = hours.log.compact()
    assert (again.partitions, again.dirty_ratio, again.removed_records) == (0, 0.0, 0)
    assert hours.verified()


def test_verify_finds_a_compaction_that_hides_what_it_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says that no record is gone for a later one of its key, so that old versions seem to be whole."""
    original = call._Topic._replace_cleaned

    def hidden(topic: Any, state: Any, source: Any, found: Any, cleaned: Any) -> bool:
        return original(topic, state, source, found, replace(cleaned, commit_entry=-1))

    monkeypatch.setattr(call._Topic, "_replace_cleaned", hidden)
    hours = Hours()
    hours.send(("a", 1))
    hours.send(("a", 2))
    hours.log.compact()
    assert hours.left() == [("a", 2, 1)]
    problems = hours.log.verify().problems
    assert any("another number of records" in str(one) for one in problems), problems


def test_a_dry_run_says_what_would_go_and_changes_nothing() -> None:
    hours = Hours()
    for number in range(4):
        hours.send(("a", number))
    hours.log.compact(min_lag_ms=DAY)  # lists what is sealed
    before = hours.log.refresh().entry
    (done,) = hours.log.compact(dry_run=True)
    assert (done.dirty_ratio, done.removed_records) == (1.0, 3)
    assert hours.log.refresh().entry == before
    assert hours.log.describe().topics[0].dirty_ratio == 1.0
    hours.log.compact()
    assert hours.log.describe().topics[0].dirty_ratio == 0.0


def test_a_tombstone_goes_when_its_time_after_the_compaction_that_first_covered_it_is_over() -> None:
    hours = Hours(tombstone_column="v", delete_retention_ms=DAY)
    hours.send(("a", 1), ("b", 2))
    hours.send(("a", None))
    hours.hour(100)  # the tombstone is older than its time, but was not covered
    hours.log.compact()
    assert hours.left() == [("b", 2, 1), ("a", None, 2)]
    hours.hour(23)
    hours.log.compact()
    hours.send(("c", 3))
    hours.log.compact()
    assert ("a", None, 2) in hours.left()
    hours.hour(2)
    (report,) = hours.log.maintain("compact").compacted
    assert report.removed_records == 1, "maintenance does it though nothing is dirty"
    assert hours.left() == [("b", 2, 1), ("c", 3, 3)]
    assert hours.log.maintain("compact").compacted == ()
    assert hours.verified()


def test_a_second_tombstone_begins_its_own_time() -> None:
    hours = Hours(tombstone_column="v", delete_retention_ms=DAY)
    hours.send(("a", None))
    hours.log.compact()
    hours.hour(20)
    hours.send(("b", None))
    hours.log.compact()
    hours.hour(5)
    hours.log.compact()
    assert hours.left() == [("b", None, 1)]
    hours.hour(20)
    hours.log.compact()
    assert hours.left() == []


def test_a_boolean_column_says_what_is_a_tombstone_and_nulls_elsewhere_do_not() -> None:
    hours = Hours(tombstone_column="gone", delete_retention_ms=0)
    hours.send(("a", 1, None), ("b", 2, False), ("c", 3, True), ("d", None, None))
    hours.log.compact()
    hours.log.compact()
    assert hours.left() == [("a", 1, 0), ("b", 2, 1), ("d", None, 3)]


def test_in_a_topic_with_the_schema_kafka_a_null_value_is_a_tombstone() -> None:
    hours = Hours("kafka", keys=None, delete_retention_ms=0)
    with Producer(hours.log) as producer:
        for value in (b"1", None):
            producer.send("t", key=b"a", value=value)
        producer.send("t", key=b"b", value=b"2")
    hours.log.compact()
    hours.log.compact()
    assert hours.log.read("t", columns=["key", "value"]).read_all().to_pylist() == [
        {"key": b"b", "value": b"2"}
    ]


def test_without_a_tombstone_column_nothing_is_one() -> None:
    hours = Hours(delete_retention_ms=0)
    hours.send(("a", None, None))
    for _ in range(2):
        hours.log.compact()
    assert hours.left() == [("a", None, 0)]


def test_what_was_appended_lately_stays_and_so_does_what_it_hides() -> None:
    hours = Hours(min_compaction_lag_ms=2 * HOUR)
    hours.send(("a", 1))
    hours.send(("a", 2))
    hours.hour()
    hours.send(("a", 3))
    hours.hour(1.5)
    hours.log.compact()
    assert hours.left() == [("a", 2, 1), ("a", 3, 2)]
    hours.hour(1.5)
    hours.log.compact()
    assert hours.left() == [("a", 3, 2)]


def test_maintenance_waits_for_the_dirty_ratio_or_the_longest_lag() -> None:
    hours = Hours(min_cleanable_dirty_ratio=0.5)
    for number in range(8):
        hours.send((f"k{number}", number))
    assert hours.log.maintain("compact").compacted[0].dirty_ratio == 1.0
    hours.send(("k0", 9))
    assert all(not one.removed_records for one in hours.log.maintain("compact").compacted)
    assert len(hours.left()) == 9
    hours.log.alter_topic("t", settings={"max.compaction.lag.ms": HOUR})
    hours.hour(2)
    (done,) = hours.log.maintain("compact").compacted
    assert done.removed_records == 1
    hours.send(("k1", 10))
    hours.log.alter_topic("t", settings={"min.cleanable.dirty.ratio": 0})
    (done,) = hours.log.maintain("compact").compacted
    assert done.removed_records == 1


def test_retention_applies_only_if_the_policy_deletes() -> None:
    hours = Hours(retention_ms=HOUR)
    hours.send(("a", 1))
    hours.hour(5)
    assert hours.log.maintain("retention").removed == ()
    hours.log.alter_topic("t", settings={"cleanup.policy": "compact,delete"})
    assert len(hours.log.maintain("retention").removed) == 1


def test_a_map_that_is_too_small_makes_more_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "MAP_BYTES", 3 * SLOT_BYTES)
    hours = Hours()
    hours.send(*((f"k{number % 10}", number) for number in range(40)))
    (done,) = hours.log.compact()
    assert done.removed_records == 30
    assert [row[2] for row in hours.left()] == list(range(30, 40))
    assert hours.verified()


# --- what is refused ----------------------------------------------------------------------------------------


def test_records_without_a_key_are_refused_on_every_way() -> None:
    hours = Hours()
    bad = [{"k": "a", "v": 1, "gone": None}, {"k": None, "v": 2, "gone": None}]
    with Producer(hours.log) as producer:
        for data in (bad, bad[1:], pa.Table.from_pylist(bad, TABLE)):
            with pytest.raises(InvalidInputError) as caught:
                producer.send("t", data)
            assert caught.value.kind == "null-key"
        producer.send("t", bad[:1])
    with BulkAppend(hours.log) as bulk, pytest.raises(InvalidInputError, match="null in 1 of 2 records"):
        bulk.send("t", bad)
    assert hours.left() == [("a", 1, 0)]


def test_records_without_a_key_from_before_the_setting_stay() -> None:
    hours = Hours(cleanup_policy="delete")
    hours.send((None, 1), ("a", 2), (None, 3), ("a", 4))
    hours.log.alter_topic("t", settings={"cleanup.policy": "compact"})
    hours.log.compact()
    assert hours.left() == [(None, 1, 0), (None, 3, 2), ("a", 4, 3)]


def test_of_several_key_columns_each_may_be_null() -> None:
    hours = Hours(keys=("k", "v"))
    hours.send((None, 1), ("a", None), (None, 1), (None, None))
    hours.log.compact()
    assert [row[2] for row in hours.left()] == [1, 2, 3]
    assert len(set(encode_keys([pa.array(["a", None]), pa.array([None, "a"])]).to_pylist())) == 2


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"cleanup.policy": "compact"}, "no key columns"),
        ({"tombstone.column": "nothing"}, "no such column"),
        ({"min.compaction.lag.ms": 5, "max.compaction.lag.ms": 4}, "below min.compaction.lag.ms"),
    ],
)
def test_settings_that_do_not_fit_the_topic_are_refused(settings: dict[str, Any], what: str) -> None:
    with TxnLog.create(MemoryStore()) as log:
        with pytest.raises(InvalidInputError, match=what):
            log.create_topic("t", TABLE, settings=settings)
        log.create_topic("t", TABLE)
        with pytest.raises(InvalidInputError, match=what) as caught:
            log.alter_topic("t", settings=settings)
        assert caught.value.kind == "invalid-setting"


def test_the_tombstone_column_is_no_key_and_may_be_null() -> None:
    schema = pa.schema([("k", pa.string()), pa.field("v", pa.int64(), nullable=False)])
    with TxnLog.create(MemoryStore()) as log, pytest.raises(InvalidInputError, match="a key column"):
        log.create_topic("t", schema, key_columns=["k"], settings={"tombstone.column": "k"})


def test_a_column_that_was_added_is_null_in_older_records_and_makes_no_tombstones_of_them() -> None:
    with TxnLog.create(MemoryStore()) as log:
        log.create_topic("t", pa.schema([("k", pa.string())]), key_columns=["k"])
        added = pa.schema([("v", pa.int64()), ("gone", pa.bool_())])
        for columns in (added, None):
            if columns is not None:
                with pytest.raises(InvalidInputError, match="a column that was added"):
                    log.alter_topic("t", add_columns=columns, settings={"tombstone.column": "v"})
                log.alter_topic("t", add_columns=columns)
            with pytest.raises(InvalidInputError, match="a column that was added") as caught:
                log.alter_topic("t", settings={"tombstone.column": "v"})
            assert caught.value.kind == "invalid-setting"
        log.alter_topic("t", settings={"tombstone.column": "gone"})


def test_values_in_several_records_are_refused_and_stop_a_compaction() -> None:
    hours = Hours("kafka", keys=None)
    hours.log.alter_topic("t", settings={"cleanup.policy": "delete"})
    with Producer(hours.log, "p", chunk_bytes=1 << 20) as producer:
        with producer.transaction():
            producer.send("t", key=b"a", value=bytes(3 << 20))
        hours.log.alter_topic("t", settings={"cleanup.policy": "compact"})
        producer.begin()
        with pytest.raises(InvalidInputError) as refused:
            producer.send("t", key=b"a", value=bytes(3 << 20))
        assert refused.value.kind == "chunks-in-compacted-topic"
        producer.abort()
    with pytest.raises(ConflictError) as stopped:
        hours.log.compact()
    assert stopped.value.kind == "chunks-in-compacted-topic"
    assert hours.log.maintain("compact").compacted == ()
    assert hours.log.read("t").read_all().num_rows >= 3


# --- readers ------------------------------------------------------------------------------------------------


def test_a_version_is_refused_if_the_latest_record_of_a_key_may_be_gone() -> None:
    hours = Hours()
    hours.send(("a", 1))
    old = hours.log.refresh().entry
    hours.send(("b", 1))
    hours.send(("a", 2))
    new = hours.log.refresh().entry
    hours.log.compact()
    assert hours.log.read("t", version_as_of=new).read_all().num_rows == 2
    with pytest.raises(NotFoundError) as caught:
        hours.log.read("t", version_as_of=old)
    assert caught.value.kind == "version-trimmed"


def test_consumers_and_positions_go_on_over_gaps() -> None:
    hours = Hours()
    hours.send(*(("a", number) for number in range(10)))
    hours.log.compact()
    with Consumer(hours.log, group="g") as consumer:
        consumer.assign([("t", 0)])
        consumer.seek("t", 0, 4)
        assert [row["_offset"] for row in consumer.poll_dicts()] == [9]
        consumer.commit()
        assert consumer.lag() == {("t", 0): 0}


def test_an_acknowledgement_covers_what_is_gone_and_counts_for_what_was_received_before() -> None:
    hours = Hours()
    hours.log.subscriptions.create("t", "s")
    hours.send(*((f"k{number % 2}", number) for number in range(6)))
    received = Subscription(hours.log, "t", "s")
    assert len(received.receive_dicts(2, timeout_ms=0)) == 2  # offsets 0 and 1, which go
    hours.log.compact()
    received.acknowledge([(0, 0), (0, 1)])
    (listed,) = hours.log.subscriptions.describe("t", "s").partitions
    assert (listed.mark, listed.unacknowledged) == (2, 2)
    next_one = Subscription(hours.log, "t", "s")
    assert [row["_offset"] for row in next_one.receive_dicts(9, timeout_ms=0)] == [4, 5]
    next_one.acknowledge([(0, 4), (0, 5)])
    (listed,) = hours.log.subscriptions.describe("t", "s").partitions
    assert (listed.mark, listed.unacknowledged) == (6, 0)


def test_an_acknowledgement_covers_records_that_were_seen_before_they_went() -> None:
    hours = Hours()
    hours.send(("a", 0), ("b", 1), ("c", 2), ("b", 3))
    (key,) = hours.log.refresh().partitions
    visible = Visible(key)
    assert list(visible.follow(hours.log.sidecars, hours.log.state, 0).pairs()) == [(0, 4)]
    hours.log.compact()
    assert list(visible.follow(hours.log.sidecars, hours.log.state, 0).pairs()) == [(0, 1), (2, 4)]
    assert list(visible.spans(np.array([2]), NO_RANGES, {}).pairs()) == [(1, 3)]


def test_a_record_of_a_negative_acknowledgement_that_is_gone_is_not_waited_for() -> None:
    hours = Hours()
    hours.log.subscriptions.create("t", "s")
    hours.send(("a", 0), ("a", 1))
    one = Subscription(hours.log, "t", "s")
    one.receive(1, timeout_ms=0)
    hours.log.compact()
    one.negative_acknowledge([(0, 0)])
    assert [row["_offset"] for row in one.receive_dicts(9, timeout_ms=0)] == [1]


# --- others at the same time --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_pass_that_others_disturb_ends_and_the_next_one_finishes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two entries of a pass another client trims, compacts by key, or merges parts."""
    hours = Hours()
    for number in range(12):
        hours.send((f"k{number % 4}", number))
        if number % 3 == 2:
            hours.log.compact(min_lag_ms=DAY)
    other = TxnLog.open(hours.log.store, clock=hours.clock)
    disturb: Callable[[], object] = [
        lambda: other.delete_records("t", {0: 2}),
        lambda: other.compact("t"),
        lambda: other.compact("t", target_bytes=10**9, min_lag_ms=0),
    ][seed]
    calls: list[object] = []

    def disturbed(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            disturb()
        return write_together(*args)

    monkeypatch.setattr(cleaning, "write_together", disturbed)
    hours.log.compact("t", target_bytes=1)
    monkeypatch.undo()
    hours.log.compact("t", target_bytes=1)
    assert hours.left() == [(f"k{number % 4}", number, number) for number in range(8, 12)]
    assert hours.verified()


def test_a_policy_that_changes_during_a_pass_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    hours = Hours()
    hours.send(("a", 1), ("a", 2))

    def changed(*args: Any) -> Any:
        TxnLog.open(hours.log.store, clock=hours.clock).alter_topic("t", unset=["cleanup.policy"])
        return write_together(*args)

    monkeypatch.setattr(cleaning, "write_together", changed)
    hours.log.compact("t")
    assert len(hours.left()) == 2


def test_records_that_were_aborted_lately_hold_the_compaction_of_keys_back() -> None:
    hours = Hours(min_compaction_lag_ms=2 * HOUR)
    with Producer(hours.log, "p", buffer="inline") as producer:
        producer.begin()
        producer.send("t", [{"k": "b", "v": 0, "gone": None}])
        producer.flush()
        hours.send(("a", 1), ("a", 2), seal=False)
        hours.hour(3)
        producer.abort()
    hours.log.compact()
    assert len(hours.left()) == 2
    hours.hour(3)
    hours.log.compact()
    assert hours.left() == [("a", 2, 2)]
