"""Seals the log and prints an abort index: the bytes that a Kafka broker would have written, and what they
say.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from txnformat.core.sealing.sidecar import decode_txnindex
from txnformat.core.transactions.abort_index import ENTRY_BYTES
from txnformat.types import TopicPartition
from txnlog import TxnLog

__all__ = ["seal_and_show"]


def seal_and_show(log: TxnLog, topic: str, console: Console) -> bool:
    """Seal everything below the last stable offsets, and print the ``.txnindex`` of a topic's newest segment.

    Returns
    -------
    bool
        Whether the entries are the aborted transactions that the state had before.
    """
    before = log.refresh()
    topic_id = before.topic(topic).topic_id
    expected = {
        (
            key.partition,
            *(int(value) for value in (row["producer_id"], row["first_offset"], row["last_offset"])),
        )
        for key, partition in before.partitions.items()
        if key.topic_id == topic_id
        for row in partition.aborted.array()
        if row["first_offset"] < partition.last_stable_offset
    }
    report = log.maintain("seal")
    state = log.refresh()
    console.print(
        f"{report.batches:,} batches of {report.partitions} partitions sealed into {report.segments} "
        "segments "
        f"({report.sidecar_bytes:,} bytes of sidecars); the state keeps {state.extents} extents"
    )
    record = next(one for one in reversed(list(state.segments)) if one.topic_id == topic_id)
    table = Table("producer", "first offset", "last offset", "last stable offset", "34 bytes as stored")
    found = set()
    if record.txnindex is not None:
        data = log.store.get(record.txnindex.key)
        for number in range(state.topics[topic_id].partitions):
            rows = state.partition(TopicPartition(topic_id, number)).segments.array()[-1:]
            for row in rows:
                first, count = int(row["first_aborted"]), int(row["aborted"])
                for index, entry in enumerate(decode_txnindex(data, record.txnindex, first, count), first):
                    stored = (data or b"")[index * ENTRY_BYTES : (index + 1) * ENTRY_BYTES].hex()
                    offsets = (entry.first_offset, entry.last_offset, entry.last_stable_offset)
                    if number == 0:  # the others look alike
                        table.add_row(
                            str(entry.producer_id),
                            *(f"{offset:,}" for offset in offsets),
                            " ".join((stored[:4], *(stored[at : at + 16] for at in range(4, 68, 16)))),
                        )
                    found.add((number, entry.producer_id, entry.first_offset, entry.last_offset))
        console.print(
            f"[bold]{record.txnindex.key}[/]: {len(found)} entries of 34 bytes; those of partition 0:",
            soft_wrap=True,
        )
    console.print(table)
    return found == expected
