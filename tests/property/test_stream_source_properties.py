"""Streams over random histories: micro-batches that follow each other give what the batch read gives, each
record once."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from spark_datasource.stream.reader import TxnLogStreamReader
from tests.property.cut_histories import TOPICS, CutHistory, any_log
from tests.rounds import rounds
from tests.unit.spark_datasource.reading import LIMITED, batch, make_reader, schema_of, travelled
from txnformat.store.memory import MemoryStore
from txnlog import TxnLog

COLUMNS = "value,_topic,_partition,_offset,_commit_entry"

Rows = list[dict[str, Any]]


class Query:
    """A streaming query: it is started anew now and then, and repeats micro-batches that it did not finish.

    What it keeps is what Spark keeps: the ends of its micro-batches, as JSON.
    """

    def __init__(
        self, random: Random, log: TxnLog, order: str, limits: dict[str, Any], choice: dict[str, str]
    ) -> None:
        self._random, self._log = random, log
        self._options = {**choice, "order": order, "columns": COLUMNS, **limits}
        self.ends: list[str] = []
        self.read: list[Rows] = []
        self._reader: TxnLogStreamReader | None = None

    @property
    def _open(self) -> TxnLogStreamReader:
        if self._reader is None:
            schema = schema_of(self._log, TOPICS[0], COLUMNS)
            self._reader = make_reader(self._log.store, schema, startingOffsets="earliest", **self._options)
        return self._reader

    def restart(self) -> None:
        """Kill it."""
        self._reader = None

    def _start_of(self, number: int) -> dict[str, Any]:
        if number == 0:  # Spark does not write it down, and asks again
            return travelled(self._open.initialOffset())
        found: dict[str, Any] = json.loads(self.ends[number - 1])
        return found

    def trigger(self) -> bool:
        """Run one micro-batch, unless there is nothing to read; it may be killed in it, and then
        repeats it.
        """
        start = self._start_of(len(self.ends))
        end = self._open.latestOffset(start, LIMITED)
        if json.dumps(end) == json.dumps(start):
            return False
        self.ends.append(json.dumps(end))
        if self._random.random() < 0.3:
            self.restart()
        self.read.append(self.replay(len(self.ends) - 1))
        return True

    def replay(self, number: int) -> Rows:
        """Read a micro-batch that Spark has written down."""
        return batch(self._open, self._log, self._start_of(number), json.loads(self.ends[number]))


def whole(log: TxnLog, order: str) -> Rows:
    """Return the batch read; in commit order nothing holds it back, not even what is still prepared."""
    isolation = "read_committed" if order == "offset" else "snapshot"
    return [
        row
        for topic in TOPICS
        for row in log.read(topic, isolation=isolation, columns=COLUMNS.split(",")).read_all().to_pylist()
    ]


def key(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["_topic"], row["_partition"], row["_offset"]


LIMITS: list[dict[str, Any]] = [
    {},
    {"maxRowsPerTrigger": 1},
    {"maxRowsPerTrigger": 3},
    {"maxRowsPerTrigger": 10},
    {"maxBytesPerTrigger": 1},
    {"maxBytesPerTrigger": 2_000},
    {"maxBytesPerTrigger": 900, "maxRowsPerTrigger": 4},
]


@pytest.mark.parametrize("order", ["offset", "commit"])
@settings(
    max_examples=rounds(6, 24),
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
@given(
    st.randoms(use_true_random=False),
    st.integers(5, 40),
    st.sampled_from(LIMITS),
    st.sampled_from([{"topic": ",".join(TOPICS)}, {"subscribepattern": "orders|pay.*"}]),
)
def test_micro_batches_one_after_another_are_the_batch_read(
    order: str, random: Random, steps: int, limits: dict[str, Any], choice: dict[str, str]
) -> None:
    """While transactions of all kinds are open, commit and abort, segments are sealed, partitions come, and
    queries are killed."""
    log = any_log(random, MemoryStore(), may_be_older=True)
    history = CutHistory(random, log, grows=True)
    query = Query(random, log, order, limits, choice)
    for _ in range(steps):
        history.step()
        if random.random() < 0.5:
            query.trigger()
        if random.random() < 0.1:
            query.restart()
    history.close()
    log.refresh()
    triggers = 0
    while query.trigger():
        triggers += 1
        assert triggers < 10_000
    rows = [row for read in query.read for row in read]
    expected = whole(log, order)
    assert sorted(rows, key=key) == sorted(expected, key=key)
    rows_max = limits.get("maxRowsPerTrigger")
    units = {row: number for number, unit in enumerate(history.units) for row in unit.rows}
    seen: dict[int, int] = {}
    for number, read in enumerate(query.read):
        if order == "offset":
            assert rows_max is None or len(read) <= rows_max
            continue
        mine = {units[row["_topic"], row["_partition"], row["value"]] for row in read}
        assert all(seen.setdefault(unit, number) == number for unit in mine), "a transaction is split"
        assert rows_max is None or len(read) <= rows_max or len({row["_commit_entry"] for row in read}) == 1
    for topic in TOPICS:
        for partition in range(10):
            of_one = [row for row in rows if (row["_topic"], row["_partition"]) == (topic, partition)]
            by = ("_offset",) if order == "offset" else ("_commit_entry", "_offset")
            assert of_one == sorted(of_one, key=lambda row: tuple(row[name] for name in by))
    log.maintain("seal")
    query.restart()
    for number in random.sample(range(len(query.ends)), min(5, len(query.ends))):
        again = query.replay(number)
        if order == "offset":  # what was sealed since is read in splits of its own
            assert sorted(again, key=key) == sorted(query.read[number], key=key)
        else:
            assert again == query.read[number]
