"""A log with records that are to be erased, and a search for their bytes in every object of its root."""

from __future__ import annotations

import datetime
import io
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from tests.model.groups import ManualClock
from txnformat import keys
from txnformat.core.entry import decode_entry
from txnformat.core.operations import Append
from txnformat.core.wire.document import ZSTD_MAGIC
from txnformat.segments.payload import head_of, payload_of
from txnformat.store.base import ObjectStore
from txnformat.store.memory import MemoryStore
from txnlog import Producer, TxnLog

__all__ = ["CANARY", "GRACE", "PEOPLE", "canaries", "complete", "made", "names", "pass_time", "write"]

PEOPLE = pa.schema([("name", pa.string()), ("n", pa.int64())])
CANARY = "canary-"
GRACE = datetime.timedelta(hours=2)
HOUR_S = 3_600


def made(store: ObjectStore | None = None, clock: ManualClock | None = None, **values: Any) -> TxnLog:
    """Return a log with an empty topic of two partitions. It does not embed: erasures wait for truncations
    where rows are in entries."""
    clock = clock or ManualClock()
    values = {"embedding": False, **values}
    log = TxnLog.create(MemoryStore(clock) if store is None else store, clock=clock, **values)
    log.create_topic("t", PEOPLE, partitions=2, key_columns=["name"])
    return log


def write(log: TxnLog, *rows: str, commit: bool = True, name: str = "p", partition: int = 0) -> None:
    """Write names in one transaction, the number is their place."""
    with Producer(log, name, buffer="inline") as producer:
        producer.begin()
        producer.send("t", table(*rows), partition=partition)
        producer.flush()
        if commit:
            producer.commit()
        else:
            producer.abort()


def table(*rows: str) -> pa.Table:
    """Return records with names."""
    return pa.table({"name": list(rows), "n": list(range(len(rows)))}, PEOPLE)


def names(log: TxnLog, **values: Any) -> list[str]:
    """Return the names that a reader sees, by partition and offset."""
    found: list[str] = log.read("t", columns=["name"], **values).read_all()["name"].to_pylist()
    return found


def pass_time(log: TxnLog) -> None:
    """Let the grace of a vacuum pass, and write an entry, as a log that is used does."""
    log.committer.clock.sleep(2 * HOUR_S + 1)
    log.create_topic(f"tick-{log.refresh().entry}", PEOPLE)


def complete(log: TxnLog) -> None:
    """Do what maintenance does for an erasure until it is complete: vacuums, a grace apart, and a look."""
    for _ in range(4):
        pass_time(log)
        log.vacuum(GRACE)
        log.maintain("erasures")


def canaries(store: ObjectStore, prefix: str = CANARY) -> dict[str, list[str]]:
    """Return, by key, the texts with a prefix in all objects of a root, opened and decompressed."""
    found = {}
    for info in store.list(""):
        data = store.get(info.key)
        assert data is not None
        text = _opened(info.key, data)
        places = [place for place in range(len(text)) if text.startswith(prefix.encode(), place)]
        if places:
            found[info.key] = sorted({text[place : place + 24].decode("latin-1") for place in places})
    return found


def _opened(key: str, data: bytes) -> bytes:
    """Return the bytes of an object with those of all that is compressed in it, and with those of an entry's
    embedded files."""
    if payload := payload_of(data):
        head = head_of(data)
        files = [
            payload[file.place.start : file.place.start + file.size]
            for op in decode_entry(head, keys.parse_entry_key(key) or 0).operations
            if isinstance(op, Append)
            for file in op.files
            if file.place is not None
        ]
        assert sum(map(len, files)) == len(payload)
        return b"".join([_opened(key, head), *(_opened(key, file) for file in files)])
    if data[:4] == b"PAR1":
        file = pq.ParquetFile(io.BytesIO(data))
        return data + str(file.read().to_pylist()).encode() + str(file.metadata.to_dict()).encode()
    if data[:4] == ZSTD_MAGIC:
        return bytes(pa.input_stream(io.BytesIO(data), compression="zstd").read())
    if data[:6] == b"ARROW1":
        return data + str(pa.ipc.open_file(data).read_all().to_pylist()).encode()
    assert key.startswith("_txnlog/") or key.endswith(".txnindex"), key
    return data
