"""The log that a query follows is gone, made again, or restored: it is told of as that, and soon."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_datasource.stream.reader import TxnLogStreamReader
from tests.unit.spark_datasource.reading import ALL, StillClock, append, travelled
from txnformat.core.wire.document import encode_json
from txnformat.errors import ConflictError, CorruptDataError
from txnformat.keys import FORMAT_KEY, boundary_key, entry_key
from txnlog import TxnLog

Open = Callable[..., TxnLogStreamReader]


def test_a_log_that_is_restored_and_goes_on_under_a_query_is_told_of_as_replaced(
    memory_log: TxnLog, start: Open
) -> None:
    """And not as damage: what comes next does not chain to what the query has seen."""
    append(memory_log, 1)
    store = memory_log.store
    older = {one.key: store.get(one.key) or b"" for one in store.list("")}
    append(memory_log, 2)
    reader = start(startingOffsets="earliest")
    end = travelled(reader.latestOffset(reader.initialOffset(), ALL))
    for one in store.list(""):
        store.delete(one.key)
    for key, data in older.items():
        store.put(key, data)
    with TxnLog.open(store) as restored:
        for n in range(4):
            append(restored, 100 + n)
    with pytest.raises(ConflictError) as caught:
        reader.latestOffset(end, ALL)
    assert caught.value.kind == "log-replaced"


def test_a_log_that_is_gone_is_noticed_within_a_minute(
    memory_log: TxnLog, start: Open, clock: StillClock
) -> None:
    append(memory_log, 1)
    reader = start()
    begin = travelled(reader.initialOffset())
    memory_log.store.delete(entry_key(memory_log.state.entry))
    seen = 0
    with pytest.raises(ConflictError) as caught:  # noqa: PT012
        while seen < 70:
            reader.latestOffset(begin, ALL)
            seen += 1
    assert caught.value.kind == "log-replaced"
    assert 55 <= seen <= 62


@pytest.mark.parametrize("is_other", [False, True])
def test_what_is_wrong_with_a_truncated_log_is_told_of_unless_it_is_another_one(
    memory_log: TxnLog, start: Open, is_other: bool
) -> None:
    """The entry that the query has seen last may be gone because a truncation deleted it."""
    append(memory_log, 1)
    reader = start()
    begin = travelled(reader.initialOffset())
    store, tip = memory_log.store, memory_log.state.entry
    for number in range(tip + 1):
        store.delete(entry_key(number))
    store.create(boundary_key(100), b"{}")
    store.create(entry_key(tip + 1), b"{}")
    if is_other:
        other = "0a0a0a0a-0000-4000-8000-000000000000"
        store.put(FORMAT_KEY, encode_json({"format": 1, "log_id": other}))
    with pytest.raises(ConflictError if is_other else CorruptDataError) as caught:
        reader.latestOffset(begin, ALL)
    assert caught.value.kind == ("log-replaced" if is_other else "no-usable-snapshot")
