"""Compacts the log, and shows what a read costs before and afterwards: files, bytes, requests."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from txnlog import TxnLog
from txnlog_testing.stores.counting import CountingStore

__all__ = ["compact_and_show"]


def compact_and_show(log: TxnLog, console: Console) -> bool:
    """Write the small files of all topics together, and print what changed.

    Returns
    -------
    bool
        Whether every topic has fewer bytes of records and as many records as before; and, if it had several
        files, fewer files, and its read needs fewer requests. Small rows travel in entries, and a seal has
        written them into one file already.
    """
    before = {topic: _read(log, topic) for topic in log.topics()}
    compacted = log.compact(min_lag_ms=0)  # the aborted records of this run go now, not in 7 days
    table = Table("topic", "files", "bytes of records", "requests of a read", "records")
    ok = True
    for one in compacted:
        requests, records = _read(log, one.topic)
        earlier = before[one.topic]
        table.add_row(
            one.topic,
            f"{one.files_before:,} → {one.files:,}",
            f"{one.size_before:,} → {one.size:,}",
            f"{earlier[0]:,} → {requests:,}",
            f"{records:,}",
        )
        ok &= records == earlier[1] and one.size < one.size_before
        ok &= one.files_before == 1 or (one.files < one.files_before and requests < earlier[0])
    console.print(table)
    return ok


def _read(log: TxnLog, topic: str) -> tuple[int, int]:
    """Return the requests of a read of everything by a process that knows nothing yet, and the number of
    records.
    """
    store = CountingStore(log.store)
    with TxnLog.open(store) as fresh:
        store.reset()
        records = sum(batch.num_rows for batch in fresh.read(topic))
    return sum(store.counts.requests.values()), records
