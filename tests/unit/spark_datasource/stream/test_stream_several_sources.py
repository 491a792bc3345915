"""A query that has other sources besides: a micro-batch of its own accord, in which this one has nothing to
read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_datasource.stream.reader import TxnLogStreamReader
from tests.unit.spark_datasource.reading import ALL, append, read, run, travelled
from txnlog import TxnLog

Open = Callable[..., TxnLogStreamReader]


@pytest.mark.parametrize("order", ["offset", "commit"])
@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_first_batch_of_other_sources_is_repeated_without_loss(
    memory_log: TxnLog, start: Open, order: str, starting: str
) -> None:
    """Spark writes down where this source stood, which is where it began; when it repeats the batch, it asks
    for that anew."""
    if starting == "latest":
        append(memory_log, 1)
    reader = start(order=order, startingOffsets=starting)
    begin = travelled(reader.initialOffset())
    end = travelled(reader.latestOffset(begin, ALL))
    assert end == begin  # nothing to read: the batch is made of what other sources have
    append(memory_log, 2)
    append(memory_log, 3, partition=1)
    again = start(order=order, startingOffsets=starting)
    assert read(again, memory_log, travelled(again.initialOffset()), end) == []
    assert sorted(n for rows in run(again, memory_log, end) for n in rows) == [2, 3]
    more = start(order=order, startingOffsets=starting)  # and the second batch, repeated
    following = travelled(again.latestOffset(end, ALL))
    assert sorted(read(more, memory_log, end, following)) == [2, 3]
