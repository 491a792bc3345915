"""Snapshots in Spark batch: cuts of random histories, pins that outlive commits and seals, versions and
times."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from functools import reduce
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame

from spark_datasource.datasource import TxnLogDataSource
from spark_datasource.read.splits import Split
from tests.property.cut_histories import TOPICS, CutHistory, Row
from tests.spark.conftest import Read
from tests.spark.histories import NUMBERS, Transactions, append, numbers
from txnformat.errors import TxnLogError
from txnformat.types import Outcome
from txnlog import TxnLog


def collected(frames: Iterable[tuple[int, str, DataFrame]]) -> dict[int, set[Row]]:
    """Return the rows of each cut over its topics, all read by one job; no row comes twice."""
    tagged = [
        frame.selectExpr(f"{entry} AS cut", f"'{topic}' AS topic", "_partition", "value")
        for entry, topic, frame in frames
    ]
    found: dict[int, set[Row]] = {}
    rows = reduce(DataFrame.unionAll, tagged).collect()
    for row in rows:
        found.setdefault(row.cut, set()).add((row.topic, row._partition, row.value))
    assert sum(map(len, found.values())) == len(rows)
    return found


def test_every_cut_of_a_random_history_is_that_of_the_ledger(log: TxnLog, read: Read) -> None:
    """Loaded and read before the seal; loaded before and read after it, and after more commits; and loaded
    after it."""
    history = CutHistory(Random(1), log)
    for _ in range(60):
        history.step()
    last = log.refresh().entry
    commits = sorted(set(history.commit_entries().values()))
    cuts = [commits[len(commits) // 2] - 1, commits[len(commits) // 2], last]
    assert any(offsets.held_by for topic in TOPICS for offsets in log.offsets(topic)), "something is open"

    def load(newest: dict[str, str]) -> list[tuple[int, str, DataFrame]]:
        return [
            (
                entry,
                topic,
                read(
                    topic,
                    columns="_partition,value",
                    **(newest if entry == last else {"versionAsOf": str(entry)}),
                ),
            )
            for entry in cuts
            for topic in TOPICS
        ]

    expected = {entry: history.shown(entry) for entry in cuts}
    assert len({len(shown) for shown in expected.values()}) == len(cuts)
    loaded = load({"isolation": "snapshot"})
    assert collected(loaded) == expected
    for _ in range(15):
        history.step()
    history.close()
    log.maintain("seal")
    assert log.refresh().entry > last
    assert {entry: history.shown(entry) for entry in cuts} == expected
    assert collected(loaded) == expected
    assert collected(load({"versionAsOf": str(last)})) == expected


def test_splits_of_unsealed_and_sealed_data_are_read_after_a_seal_as_they_were_planned(
    log: TxnLog, path: str
) -> None:
    log.create_topic("numbers", NUMBERS)
    append(log, "numbers", {0: [numbers(0, 5)]})
    log.maintain("seal")
    slow, quick, late = (Transactions(log, name) for name in ("slow", "quick", "late"))
    late.send("numbers", {0: [numbers(30, 35)]})
    quick.send("numbers", {0: [numbers(10, 15)]})
    quick.end(Outcome.COMMIT)
    slow.send("numbers", {0: [numbers(20, 25)]})
    options = {"path": path, "topic": "numbers", "isolation": "snapshot", "columns": "n,_commit_entry"}
    source = TxnLogDataSource(options)
    reader = source.reader(source.schema())
    late.end(Outcome.COMMIT)  # after load(): it is not in the snapshot, though its offsets come before others

    def values(splits: Iterable[Any]) -> list[int]:
        batches = [batch for split in splits for batch in reader.read(split)]
        assert all(batch.column("_commit_entry").null_count == 0 for batch in batches)
        return sorted(n for batch in batches for n in batch.column("n").to_pylist())

    planned_before = reader.partitions()
    assert values(planned_before) == [*range(5), *range(10, 15)]
    slow.end(Outcome.COMMIT)
    log.maintain("seal")
    planned_after = reader.partitions()
    assert all(isinstance(split, Split) and not split.parts for split in planned_after)
    assert values(planned_before) == values(planned_after) == [*range(5), *range(10, 15)]


def test_times_name_versions_and_offsets_bound_them(log: TxnLog, read: Read) -> None:
    log.create_topic("numbers", NUMBERS)
    entries = [append(log, "numbers", {0: [numbers(10 * n, 10 * n + 10)]}).entry for n in range(3)]
    (middle,) = log.history(limit=1, start=entries[1])
    moment = datetime.datetime.fromtimestamp(middle.timestamp_ms / 1_000, datetime.UTC)
    without_zone = moment.replace(tzinfo=None).isoformat()  # UTC, whatever the session's zone is
    assert read("numbers", timestampAsOf=without_zone).count() == 20
    frame = read("numbers", versionAsOf=entries[1], startingOffsets='{"0": 5}', endingOffsets='{"0": 25}')
    assert sorted(row.n for row in frame.collect()) == list(range(5, 20))
    later = log.create_topic("later", NUMBERS)
    for topic, options, code in (
        ("numbers", {"versionAsOf": log.state.entry + 1}, "TXNLOG_UNKNOWN_VERSION"),
        ("numbers", {"timestampAsOf": "1999-12-31"}, "TXNLOG_TIMESTAMP_BEFORE_LOG"),
        ("numbers", {"timestampAsOf": "2999-12-31"}, "TXNLOG_TIMESTAMP_IN_FUTURE"),
        ("later", {"versionAsOf": later.created_entry - 1}, "TXNLOG_UNKNOWN_TOPIC"),
        ("numbers", {"versionAsOf": 1, "isolation": "read_committed"}, "TXNLOG_INVALID_OPTION"),
    ):
        with pytest.raises(Exception, match=code) as caught:
            read(topic, **options)
        assert not isinstance(caught.value, TxnLogError)
