"""A kept root whose small transactions are in their entries: ``tests/golden/roots/embedded``, in every shape
that embedded rows have.

``python -m tests.integration.golden_embedded FOLDER`` writes it. Clock and ids are the script's own, so each
run of one version writes the same bytes.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.integration.golden_roots import ROOTS
from tests.model.groups import ManualClock
from tests.older_logs import begin_older, bounds_of_all_floats
from txnformat import keys
from txnformat.core.entry import decode_entry, sha256_hex
from txnformat.core.fold import apply
from txnformat.core.intents import EnableFeatures, SpillExtents
from txnformat.core.snapshot.codec import state_digest
from txnformat.core.state import EMBEDDING, LIFECYCLE, LogState
from txnformat.core.wire.small_documents import decode_format
from txnformat.protocol.commit import CommitSettings
from txnformat.protocol.spilling import write_spill
from txnformat.segments.payload import head_of
from txnformat.store.base import ObjectStore
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnlog import Consumer, Producer, TxnLog
from writers.bulk import BulkAppend

__all__ = ["KEPT", "LEVELS", "METADATA", "ROOT", "WIDE", "build", "digest_of_fold", "script_clock", "seen"]

ROOT = ROOTS / "embedded"
KEPT = ROOTS / "embedded.json"
"""The facts about the root: the digest of its state, and the answer of :func:`seen`."""

LEVELS = ("read_committed", "read_uncommitted", "snapshot")
WIDE = 64
"""Partitions of one topic: enough for an entry with rows whose head is stored compressed."""
METADATA = ("_partition", "_offset", "_entry", "_commit_entry", "_producer_id", "_producer_epoch")
PLAIN = pa.schema([("n", pa.int64()), ("text", pa.string())])
LATEST = pa.schema([("name", pa.string()), ("value", pa.string())])
NESTED = pa.schema(
    [
        ("n", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.float64()), ("inner", pa.struct([("deep", pa.list_(pa.int32()))]))])),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("amount", pa.decimal128(20, 4)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("is_new", pa.bool_()),
        ("ratio", pa.float32()),
    ]
)


class _CountedIds:
    """Ids that follow from how many were drawn."""

    def __init__(self) -> None:
        self._drawn = 0

    def new(self) -> str:
        self._drawn += 1
        digits = bytearray(hashlib.sha256(f"golden {self._drawn}".encode()).digest()[:16])
        digits[6] = digits[6] & 0x0F | 0x40
        digits[8] = digits[8] & 0x3F | 0x80
        text = digits.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def uniform(self) -> float:
        return 0.5


def _rows(*numbers: int) -> pa.Table:
    return pa.table({"n": numbers, "text": [f"row {n}" for n in numbers]}, schema=PLAIN)


def _nested(*numbers: int) -> pa.Table:
    """Return rows of which each third has nulls, and each fifth empty or special values."""
    rows: list[dict[str, Any]] = []
    for n in numbers:
        row: dict[str, Any] = {
            "n": n,
            "tags": [f"tag {n}", None, ""],
            "place": {"x": n / 4, "inner": {"deep": [n, None, -n]}},
            "counts": [("a", n), ("b", None)],
            "amount": Decimal(n) / 16,
            "at": datetime.datetime(2026, 11, 28, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=n),
            "day": datetime.date(1969, 12, 31) + datetime.timedelta(days=n),
            "raw": bytes([n % 256, 0, 255]),
            "is_new": n % 2 == 0,
            "ratio": -0.0,
        }
        if n % 3 == 0:
            row = {"n": n}
        elif n % 5 == 0:
            row |= {
                "tags": [],
                "place": {"x": None, "inner": None},
                "counts": [],
                "raw": b"",
                "ratio": float("inf"),
            }
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=NESTED)


def script_clock() -> ManualClock:
    """Return the clock of the script at its beginning: of the past, so that any machine may write to the
    root."""
    clock = ManualClock()
    clock.ms = 1_780_000_000_000
    return clock


def build(path: Path) -> None:
    """Write the log, and beside it nothing."""
    clock = script_clock()
    memory = MemoryStore(clock)
    log = TxnLog.create(memory, clock=clock, ids=_CountedIds(), settings=CommitSettings(seal_extents=10_000))
    intent = log.committer.intend(EnableFeatures((LIFECYCLE,)))
    begin_older(log, EMBEDDING)
    log.committer.commit(intent)
    log.create_topic("plain", PLAIN, partitions=3)
    log.create_topic("nested", NESTED, partitions=2)
    log.create_topic("uploaded", PLAIN, settings={"embed": "false"})
    log.create_topic("wide", PLAIN, partitions=WIDE)
    latest: dict[str, int | str] = {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": 0,
        "tombstone.column": "value",
    }
    log.create_topic("latest", LATEST, key_columns=["name"], settings=latest)

    _first_part(log, clock)
    log.maintain("seal")
    log.compact("plain", target_bytes=1_000_000, min_lag_ms=0)
    log.compact("latest", min_lag_ms=0)
    log.committer.write_snapshot()
    _second_part(log, clock)
    spill = log.committer.read(write_spill(log.state, 1))
    assert spill is not None
    log.committer.commit(log.committer.intend(SpillExtents(spill)))
    _third_part(log, clock)
    log.close()
    store = LocalStore(path)
    for info in memory.list(""):
        data = memory.get(info.key)
        assert data is not None
        store.put(info.key, data)


def _first_part(log: TxnLog, clock: ManualClock) -> None:
    """Write what a seal then takes: all topics in one entry, aborts, repeats, many batches, bulk appends."""
    with Producer(log, "one-shot") as producer:
        with producer.transaction() as txn:
            for number in range(3):
                txn.send("plain", _rows(number, 100 + number), partition=number)
            txn.send("nested", _nested(*range(8)), partition=0)
            txn.send("nested", _nested(*range(8, 12)), partition=1)
            txn.send("uploaded", _rows(200))
            for name, value in (("ann", "1"), ("bob", "1"), ("ann", "2"), ("bob", None), ("eve", "1")):
                txn.send("latest", [{"name": name, "value": value}])
        clock.sleep(1)
        producer.begin()
        producer.send("plain", _rows(300, 301), partition=0)
        producer.abort()  # of which no entry knows: nothing was flushed
    with Producer(log, "many", batch_bytes=1) as many, many.transaction() as txn:
        for number in range(60):  # more than the producer holds: an object
            txn.send("plain", _rows(400 + number), partition=number % 3)
    inline = Producer(log, "inline", buffer="inline")
    inline.init()
    for number, outcome in ((500, "commit"), (510, "abort"), (520, "commit")):
        inline.begin()
        inline.send("plain", _rows(number), partition=1)
        inline.flush()
        inline.send("plain", _rows(number + 1), partition=1)
        inline.send("latest", [{"name": f"inline {number}", "value": outcome}])
        inline.flush()
        getattr(inline, outcome)()
        clock.sleep(1)
    inline.close()
    with Producer(log) as plain:
        for number in range(600, 604):
            plain.send("plain", _rows(number), partition=2)
            plain.flush()  # one topic at a time: else two entries or one, as the threads go
            plain.send("nested", _nested(number), partition=1)
            plain.flush()
    with BulkAppend(log) as bulk:
        bulk.send("plain", _rows(700, 701), partition=0)
        bulk.commit()
    with Consumer(log, "group") as consumer:
        consumer.assign([("plain", 0), ("plain", 1)])
        consumer.poll(0, 3)
        consumer.commit()


def _second_part(log: TxnLog, clock: ManualClock) -> None:
    """Write what a spill then moves to objects, behind a prepared and an open transaction, and change the
    schema."""
    held = Producer(log, "prepared", buffer="inline")
    held.init()
    held.begin()
    held.send("plain", _rows(800, 801), partition=0)
    held.send("nested", _nested(800), partition=0)
    held.prepare()
    with Producer(log, "behind", buffer="inline") as behind:
        for number, outcome in ((810, "commit"), (820, "abort")):
            behind.begin()
            behind.send("plain", _rows(number), partition=0)
            behind.flush()
            getattr(behind, outcome)()
            clock.sleep(1)
    log.alter_topic("plain", partitions=4, add_columns=[pa.field("late", pa.int32())])
    with Producer(log, "later") as later, later.transaction() as txn:
        txn.send("plain", [{"n": 830, "text": None, "late": 7}], partition=3)
    log.alter_topic("plain", widen={"late": pa.int64()})


def _third_part(log: TxnLog, clock: ManualClock) -> None:
    """Write what stays in the entries: embedded rows under the new schema, one small file beside a larger
    one, another open transaction."""
    with Producer(log, "last", buffer="inline") as producer:
        for number, outcome in ((900, "commit"), (910, "abort"), (920, "commit")):
            producer.begin()
            producer.send("plain", [{"n": number, "text": "wide", "late": 2**40 + number}], partition=0)
            producer.send("plain", [{"n": number + 1, "text": "", "late": None}], partition=3)
            producer.send("nested", _nested(*range(number, number + 6)), partition=1)
            producer.send("latest", [{"name": "ann", "value": None}, {"name": "eve", "value": outcome}])
            producer.send("uploaded", _rows(number))
            producer.flush()
            getattr(producer, outcome)()
            clock.sleep(1)
    with Producer(log, "larger", embed_bytes=1) as larger, larger.transaction() as txn:
        txn.send("plain", [{"n": 930, "text": "an object", "late": 0}], partition=1)
    with Producer(log, "wide") as wide, wide.transaction() as txn:
        for number in range(WIDE):
            txn.send("wide", _rows(1_000 + number), partition=number)
    left = Producer(log, "open", buffer="inline")
    left.init()
    left.begin()
    left.send("plain", [{"n": 950, "text": "open", "late": 1}], partition=2)
    left.flush()
    with Producer(log) as plain:
        plain.send("plain", [{"n": 960, "text": "above it", "late": 1}], partition=2)


def seen(log: TxnLog) -> dict[str, list[dict[str, Any]]]:
    """Return all that readers see, by "TOPIC LEVEL", as JSON has it: values that JSON lacks are texts."""
    found = {}
    for topic in log.topics():
        columns = [*log.read(topic).schema.names, *METADATA]
        for level in LEVELS:
            rows = log.read(topic, columns=columns, isolation=level).read_all().to_pylist()
            found[f"{topic} {level}"] = json.loads(json.dumps(rows, default=str))
    return found


def digest_of_fold(store: ObjectStore) -> str:
    """Return the digest of the state after the last entry, folded from the first one without a snapshot."""
    format_data = store.get(keys.FORMAT_KEY) or b""
    state = LogState(log_id=decode_format(format_data).log_id, entry_sha256=sha256_hex(format_data))
    for number, info in enumerate(sorted(store.list(keys.LOG_PREFIX), key=lambda one: one.key)):
        data = store.get(info.key) or b""
        state = apply(state, decode_entry(data, number), sha256_hex(head_of(data)))
    return state_digest(state)


def main(path: Path) -> None:
    """Write the log, and beside it, as ``NAME.json``, what it stands for: a line for each row."""
    with bounds_of_all_floats():
        build(path)
    with TxnLog.open(path) as log:
        rows_of = [
            f'"{name}": [\n' + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "]"
            for name, rows in seen(log).items()
        ]
        head = f'"pyarrow": "{pa.__version__}",\n"state": "{digest_of_fold(log.store)}"'
    text = "{" + ",\n".join([head, *rows_of]) + "}\n"
    path.with_suffix(".json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
