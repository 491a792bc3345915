"""Streams over records that were removed: what is loss and what is none, in both orders, also when a batch is
repeated."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_datasource.stream.reader import TxnLogStreamReader
from tests.integration.clients.failing import NUMBERS
from tests.unit.spark_datasource.reading import (
    ALL,
    LIMITED,
    StillClock,
    append,
    make_reader,
    read,
    schema_of,
    travelled,
)
from txnformat.errors import OffsetOutOfRangeError
from txnformat.store.memory import MemoryStore
from txnlog import Consumer, TxnLog

Open = Callable[..., TxnLogStreamReader]


@pytest.mark.parametrize("order", ["offset", "commit"])
def test_records_that_were_removed_before_the_query_has_read_them_are_an_alarm(
    memory_log: TxnLog, start: Open, order: str
) -> None:
    """Also when a batch is repeated; allowed, the query goes on with what is left."""
    for number in range(1, 5):
        append(memory_log, number)
    first = start(order=order, startingOffsets="earliest", maxRowsPerTrigger=1)
    earlier = travelled(first.latestOffset(travelled(first.initialOffset()), LIMITED))
    del earlier["began"]
    end = travelled(start(order=order).latestOffset(earlier, ALL))
    memory_log.delete_records("t", {0: 1})
    assert read(start(order=order), memory_log, earlier, end) == [2, 3, 4], "what went was read before"
    memory_log.delete_records("t", {0: 3})
    with pytest.raises(OffsetOutOfRangeError) as caught:
        start(order=order).latestOffset(earlier, ALL)
    assert caught.value.kind == "data-loss"
    with pytest.raises(OffsetOutOfRangeError) as caught:
        start(order=order).partitions(earlier, end)
    assert caught.value.kind == "data-loss"
    allowed = start(order=order, failOnDataLoss=False)
    assert read(allowed, memory_log, earlier, end) == [4]
    begin = travelled(start(order=order, startingOffsets="earliest").initialOffset())
    fresh = start(order=order)
    assert read(fresh, memory_log, begin, travelled(fresh.latestOffset(begin, ALL))) == [4], (
        "a new query takes what there is"
    )


@pytest.mark.parametrize("order", ["offset", "commit"])
def test_a_new_query_reads_what_is_left_batch_by_batch(memory_log: TxnLog, start: Open, order: str) -> None:
    """Records that were removed before it began are no loss, however small its batches."""
    append(memory_log, 9, partition=1)
    for number in range(4):
        append(memory_log, number)
    memory_log.delete_records("t", {0: 2, 1: 1})
    reader = start(order=order, startingOffsets="earliest", maxRowsPerTrigger=1)
    found, begin = [], travelled(reader.initialOffset())
    while (end := travelled(reader.latestOffset(begin, LIMITED))) != begin:
        found += read(start(order=order), memory_log, begin, end)
        begin = end
        begin.pop("began", None)
    assert found == [2, 3]


@pytest.mark.parametrize("order", ["offset", "commit"])
def test_records_of_a_partition_that_the_query_has_not_met_are_an_alarm(
    memory_log: TxnLog, start: Open, order: str
) -> None:
    """Also when the batch that meets it is repeated."""
    append(memory_log, 1)
    begin = travelled(start(order=order).initialOffset())
    memory_log.alter_topic("t", partitions=3)
    for number in range(3):
        append(memory_log, 10 + number, partition=2)
    end = travelled(start(order=order).latestOffset(begin, ALL))
    assert read(start(order=order), memory_log, begin, end) == [10, 11, 12]
    memory_log.delete_records("t", {2: 2})
    for call in ("latestOffset", "partitions"):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            getattr(start(order=order), call)(begin, ALL if call == "latestOffset" else end)
        assert caught.value.kind == "data-loss"
    assert read(start(order=order, failOnDataLoss=False), memory_log, begin, end) == [12]


@pytest.mark.parametrize("order", ["offset", "commit"])
def test_the_first_batch_of_a_query_is_repeated_as_it_was_or_is_an_alarm(
    memory_log: TxnLog, start: Open, order: str
) -> None:
    for number in range(4):
        append(memory_log, number)
    memory_log.delete_records("t", {0: 1})
    first = start(order=order, startingOffsets="earliest")
    begin = travelled(first.initialOffset())
    end = travelled(first.latestOffset(begin, ALL))
    again = start(order=order, startingOffsets="earliest")
    assert read(again, memory_log, travelled(again.initialOffset()), end) == [1, 2, 3]
    memory_log.delete_records("t", {0: 3})
    again = start(order=order, startingOffsets="earliest")
    with pytest.raises(OffsetOutOfRangeError) as caught:
        again.partitions(travelled(again.initialOffset()), end)
    assert caught.value.kind == "data-loss"


HOUR_MS = 3_600_000


class Stalled:
    """A query that has read the first of four records, of an hour each, and then stood still; its topic keeps
    two hours."""

    def __init__(self, order: str, **settings: int) -> None:
        self.clock = StillClock()
        self.order = order
        self.log = TxnLog.create(MemoryStore(self.clock), clock=self.clock)
        self.log.create_topic("t", NUMBERS, settings={"retention.ms": 2 * HOUR_MS, **settings})
        self._append(0)
        first = self.started(startingOffsets="earliest")
        self.checkpoint = travelled(first.latestOffset(travelled(first.initialOffset()), ALL))
        del self.checkpoint["began"]
        for number in range(1, 4):
            self._append(number)

    def _append(self, number: int) -> None:
        append(self.log, number)
        self.log.maintain("seal")
        self.clock.sleep(3_600)

    def started(self, **options: object) -> TxnLogStreamReader:
        """Return the reader of the query as a restart has it."""
        given = {"topic": "t", "columns": "n", "order": self.order, **options}
        return make_reader(self.log.store, schema_of(self.log, "t", "n"), self.clock, **given)

    def rest(self, **options: object) -> list[int]:
        """Go on from the checkpoint, and return what comes."""
        reader = self.started(**options)
        return read(reader, self.log, self.checkpoint, travelled(reader.latestOffset(self.checkpoint, ALL)))


@pytest.mark.parametrize("order", ["offset", "commit"])
def test_retention_that_overtakes_a_stalled_query_is_an_alarm(order: str) -> None:
    """A restart is told, and so is the repeat of a batch that was planned before. Allowed, the query goes on
    with what is left."""
    stalled = Stalled(order)
    planned = travelled(stalled.started().latestOffset(stalled.checkpoint, ALL))
    (gone,) = stalled.log.maintain("retention").removed
    assert gone.earliest > 1, "below the new log start is more than the query has read"
    with pytest.raises(OffsetOutOfRangeError) as caught:
        stalled.rest()
    assert caught.value.kind == "data-loss"
    with pytest.raises(OffsetOutOfRangeError) as caught:
        stalled.started().partitions(stalled.checkpoint, planned)
    assert caught.value.kind == "data-loss"
    assert stalled.rest(failOnDataLoss=False) == list(range(gone.earliest, 4))


@pytest.mark.parametrize("order", ["offset", "commit"])
def test_a_group_at_the_checkpoint_of_a_stalled_query_holds_its_records(order: str) -> None:
    """With retention.pinned.ms; they go once the group has come further."""
    stalled = Stalled(order, **{"retention.pinned.ms": -1})
    with Consumer(stalled.log, "readers", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        consumer.poll(0, 1)
        consumer.commit()
        for one in stalled.log.maintain("retention").removed:
            assert one.earliest <= 1, "only what the group has read"
        assert stalled.rest() == [1, 2, 3]
        consumer.poll(0, 10)
        consumer.commit()
    (gone,) = stalled.log.maintain("retention").removed
    assert gone.earliest > 1
    with pytest.raises(OffsetOutOfRangeError):
        stalled.rest()
