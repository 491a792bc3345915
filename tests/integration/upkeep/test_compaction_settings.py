"""Compaction by the settings of topics: `maintain` does it, and a topic may forbid it."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from tests.integration.clients.failing import QuickClock
from tests.older_logs import older_log
from txnformat.keys import parse_entry_key
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import RequestKind
from txnlog import InvalidInputError, Producer, TxnLog, TxnLogError
from txnlog_testing.stores.faulty import Fault, FaultyStore

NUMBERS = pa.schema([("n", pa.int64())])
TARGET = "compact.target.bytes"
HOUR = 3_600_000
LAG = "min.compaction.lag.ms"


def files(root: Path, topic: str) -> int:
    return sum(1 for _ in root.glob(f"{topic}-*/data/*.parquet"))


def build(root: Path) -> TxnLog:
    """Make a log with topics that are written in ten small files each, one of them aborted."""
    log = TxnLog.create(root, embedding=False)
    log.create_topic("left", NUMBERS, settings={TARGET: -1})
    log.create_topic("written", NUMBERS)
    log.create_topic("waiting", NUMBERS, settings={LAG: 0})
    with Producer(log, "p", buffer="inline") as producer:
        for number in range(10):
            producer.begin()
            for topic in ("left", "written", "waiting"):
                producer.send(topic, [{"n": number}])
            producer.flush()
            (producer.abort if number == 9 else producer.commit)()
    return log


def test_maintain_compacts_but_for_topics_that_forbid_it(tmp_path: Path) -> None:
    with build(tmp_path) as log:
        log.alter_topic("written", settings={LAG: 0})
        before = {name: sorted(log.read(name).read_all()["n"].to_pylist()) for name in log.topics()}
        report = log.maintain()
        assert {one.topic: (one.files_before, one.files) for one in report.compacted} == {
            "waiting": (9, 1),
            "written": (9, 1),
        }
        assert files(tmp_path, "left") == 10
        assert files(tmp_path, "written") == 11
        assert {name: sorted(log.read(name).read_all()["n"].to_pylist()) for name in log.topics()} == before
        assert log.maintain().compacted == (), "not again within the hour"
        assert log.maintain("compact").compacted == (), "nothing to do"
        assert log.verify(deep=True).problems == ()


def test_a_user_who_asks_gets_a_compaction_of_a_topic_that_maintenance_leaves_alone(tmp_path: Path) -> None:
    with build(tmp_path) as log:
        (done,) = log.compact("left", min_lag_ms=0)
        assert (done.files_before, done.files) == (9, 1)


def test_aborted_records_wait_for_the_lag_of_their_topic(tmp_path: Path) -> None:
    with build(tmp_path) as log:
        assert {one.topic for one in log.maintain("compact").compacted} == {"waiting"}
        assert [one.topic for one in log.compact() if one.partitions] == []
        assert [one.topic for one in log.compact(min_lag_ms=0) if one.partitions] == ["left", "written"]


def test_the_size_of_a_topics_files_is_a_setting(tmp_path: Path) -> None:
    with build(tmp_path) as log:
        log.maintain("seal")
        log.alter_topic("written", settings={TARGET: 1, LAG: 0})
        report = log.maintain("compact")
        assert {one.topic for one in report.compacted} == {"waiting", "written"}
        with Producer(log) as producer:
            producer.send("written", [{"n": 10}])
        (again,) = log.maintain("compact").compacted
        assert again.files_before == 1, "parts of the size are left alone"


@pytest.mark.parametrize("content", [None, b"", b"PAR1 nonsense PAR1"])
def test_a_damaged_topic_is_reported_and_the_topics_after_it_are_compacted(
    tmp_path: Path, content: bytes | None
) -> None:
    with build(tmp_path) as log:
        log.alter_topic("written", settings={LAG: 0})
        first = min(tmp_path.glob("waiting-*/data/*.parquet"))
        first.unlink()
        if content is not None:
            first.write_bytes(content)
        report = log.maintain("compact")
        assert [one.topic for one in report.compacted] == ["written"]
        (damaged,) = report.damaged
        assert damaged.topic == "waiting"
        assert damaged.kind == ("segment-file-missing" if content is None else "corrupt-data")
        assert first.name in damaged.reason
        with pytest.raises(TxnLogError) as caught:
            log.compact("waiting")
        assert caught.value.kind == damaged.kind, "asked for by name, the damage is an error"


def test_a_round_looks_for_what_can_be_sealed_and_listed_once_for_all_topics() -> None:
    def looks(topics: int) -> int:
        """Return how often a round reads the tip of the log, where there is nothing to do."""
        count = 0

        def watch(operation: RequestKind, key: str, nth: int) -> Fault | None:
            nonlocal count
            count += operation is RequestKind.GET and parse_entry_key(key) is not None
            return None

        with TxnLog.create(FaultyStore(MemoryStore(), watch), embedding=False) as log:
            for number in range(topics):
                log.create_topic(f"t{number}", NUMBERS)
            log.maintain("compact")
            count = 0
            log.maintain("compact")
        return count

    assert looks(8) - looks(3) == 5, "a topic costs a look, whatever the round costs"


def test_an_older_log_is_not_compacted(tmp_path: Path) -> None:
    with older_log(tmp_path) as log:
        log.create_topic("t", NUMBERS)
        assert {one.task for one in log.maintain().skipped} >= {"compact"}


@pytest.mark.parametrize(
    ("name", "value"), [(TARGET, 0), (TARGET, -2), (TARGET, "1"), (LAG, -1), (LAG, 1.5), (TARGET, True)]
)
def test_values_that_make_no_sense_are_refused(tmp_path: Path, name: str, value: object) -> None:
    with build(tmp_path) as log, pytest.raises(InvalidInputError) as caught:
        log.alter_topic("written", settings={name: value})  # type: ignore[dict-item]
    assert caught.value.kind == "invalid-setting"
    assert name in str(caught.value)


@pytest.mark.parametrize("time", ["append", "record"])
def test_compaction_again_and_again_does_not_hold_retention_up(time: str) -> None:
    """Parts that are far apart in time are not written together: else the oldest records would go with the
    newest."""
    clock = QuickClock()
    with TxnLog.create(MemoryStore(clock), clock=clock, embedding=False) as log:
        settings: dict[str, int | str] = {"retention.ms": 8 * HOUR, "retention.time": time}
        moments = pa.schema([("n", pa.int64()), ("at", pa.timestamp("ms", tz="UTC"))])
        log.create_topic("t", moments, settings=settings, timestamp_column="at")
        for hour in range(60):
            with Producer(log) as producer:
                for _ in range(4):
                    now = datetime.datetime.fromtimestamp(clock.now().wall_ms / 1_000, datetime.UTC)
                    producer.send("t", [{"n": hour, "at": now}])
                    producer.flush()
                    clock.sleep(900)
            log.maintain("seal", "retention", "compact")
            if hour >= 12:
                left = log.read("t").read_all()["n"].to_pylist()
                assert hour - 10 <= left[0] <= hour - 7
        assert log.verify(deep=True).problems == ()


def test_parts_are_small_beside_what_retention_by_bytes_keeps(tmp_path: Path) -> None:
    with build(tmp_path) as log:
        log.alter_topic("waiting", settings={"retention.bytes": 8})
        (done,) = log.maintain("compact").compacted
        assert done.segments == 1, "one segment has all, and is not split"
        for number in range(20):
            with Producer(log) as producer:
                producer.send("waiting", [{"n": number}])
            log.maintain("seal", "compact")
        log.maintain("retention")
        assert log.read("waiting").read_all()["n"].to_pylist()[-1] == 19
        assert len(log.read("waiting").read_all()) <= 2
