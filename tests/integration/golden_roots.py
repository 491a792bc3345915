"""Small roots that are kept as bytes in ``tests/golden/roots``: what a version has written, later ones must
read.

``python -m tests.integration.golden_roots FOLDER`` writes one with the version that it runs on.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from txnformat.protocol.commit import CommitSettings
from txnlog import Producer, TxnLog

__all__ = ["BATCHES", "COMMITTED", "ROOTS", "SCHEMA", "SPILLED", "build", "build_spilled"]

ROOTS = Path(__file__).resolve().parents[1] / "golden" / "roots"
SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
BATCHES = 100
"""Batches of one append: enough for an entry that is stored compressed."""
COMMITTED = [*range(3), *range(10, 10 + BATCHES), 200]
"""What a reader of committed records finds in column ``n``, sorted."""


SPILLED = {
    "read_committed": [],
    "snapshot": [1, 3, 4, 6],
    "read_uncommitted": [*range(7)],
}
"""Values of column ``n`` in the root with spills that a reader of each isolation level sees, sorted."""


def build(path: Path) -> None:
    """Write a log: small entries, a compressed one, an aborted and an open transaction."""
    with TxnLog.create(path) as log:
        log.create_topic("t", SCHEMA, partitions=2)
        with Producer(log, "one-shot") as producer, producer.transaction() as transaction:
            transaction.send("t", [{"n": n, "text": "täxt"} for n in range(3)], partition=0)
        with Producer(log, "many", batch_bytes=1) as many, many.transaction() as transaction:
            for n in range(BATCHES):
                transaction.send("t", [{"n": 10 + n, "text": "many"}], partition=1)
        inline = Producer(log, "inline", buffer="inline")
        inline.init()
        inline.begin()
        inline.send("t", [{"n": 100, "text": "aborted"}], partition=0)
        inline.flush()
        inline.abort()
        with Producer(log) as plain:
            plain.send("t", [{"n": 200, "text": "plain"}], partition=0)
        inline.begin()
        inline.send("t", [{"n": 300, "text": "open"}], partition=0)
        inline.flush()


def build_spilled(path: Path) -> None:
    """Write a log with a prepared transaction, and two spills behind it of which the second took in the
    first."""
    with TxnLog.create(path, settings=CommitSettings(seal_extents=16)) as log:
        log.create_topic("t", SCHEMA)
        held = Producer(log, "held", buffer="inline")
        held.init()
        held.begin()
        held.send("t", [{"n": 0, "text": "held"}])
        held.flush()
        held.prepare()
        for first in (1, 4):
            with Producer(log, "quick", buffer="inline") as quick:
                for number, outcome in ((first, "commit"), (first + 1, "abort")):
                    quick.begin()
                    quick.send("t", [{"n": number, "text": outcome}])
                    quick.flush()
                    getattr(quick, outcome)()
            with Producer(log) as plain:
                plain.send("t", [{"n": first + 2, "text": "plain"}])
            log.maintain("seal")


if __name__ == "__main__":
    (build_spilled if "spilled" in sys.argv[1] else build)(Path(sys.argv[1]))
