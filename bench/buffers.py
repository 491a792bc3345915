"""Effects and costs of the three buffers of a transaction, counted on a real log; the table of
docs/open-transactions.md.

python -m bench.buffers           prints the table
python -m bench.buffers --page    writes it into docs/open-transactions.md
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from txnformat.store.local import LocalStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore, RequestCounts

__all__ = ["BUFFERS", "PAGE", "main", "measure", "table", "with_table"]

PAGE = Path("docs/open-transactions.md")
BUFFERS = ("auto", "deferred", "inline")
BEGIN, END = (
    "<!-- table: begin (python -m bench.buffers --page writes it) -->",
    "<!-- table: end -->",
)

SCHEMA = pa.schema([("n", pa.int64())])
FLUSHES = 3
ROWS = 10
"""Records of each flush."""
OTHERS = 5
"""Records that another producer appends while the transaction is open."""

_WRITES = {
    (RequestKind.OPEN_WRITE, KeyClass.DATA): "file",
    (RequestKind.CREATE, KeyClass.TABLE): "batch table",
    (RequestKind.CREATE, KeyClass.ENTRY): "entry",
}


def _told(counts: RequestCounts) -> str:
    """Return requests in words; whatever is not one of the three is named as it is."""
    told = []
    for request, count in sorted(counts.requests.items()):
        name = _WRITES.get((request.operation, request.key_class or KeyClass.DATA))
        name = name or f"{request.operation} of {request.key_class}"
        told.append(f"{count} {name if count == 1 else name.replace('entry', 'entrie') + 's'}")
    return ", ".join(told) or "none"


class _Bench:
    """A log on a disk with one topic, and a producer of the buffer."""

    def __init__(self, folder: Path, buffer: str) -> None:
        self.store = CountingStore(LocalStore(folder / buffer))
        self.log = TxnLog.create(self.store)
        self.log.create_topic("t", SCHEMA)
        self.producer = Producer(self.log, "p", buffer=buffer)
        self.producer.init()
        self.other = Producer(self.log)
        self.other.init()
        self.send(self.other, OTHERS)
        self.other.flush()  # ids are allocated, the store is tried

    def send(self, producer: Producer, count: int = ROWS) -> None:
        producer.send("t", pa.table({"n": range(count)}, schema=SCHEMA))

    def requests(self, call: Callable[[], object]) -> str:
        with self.store.measure() as measured:
            call()
        return _told(measured.counts)

    def seen(self, isolation: str) -> int:
        return int(self.log.read("t", isolation=isolation).read_all().num_rows)

    def log_end(self) -> int:
        return int(self.log.offsets("t")[0].log_end)


def measure(folder: Path, buffer: str) -> dict[str, str]:
    """Return what was found for one buffer, by row of the table."""
    bench = _Bench(folder, buffer)
    producer = bench.producer
    found: dict[str, str] = {}

    before = bench.seen("read_uncommitted")
    producer.begin()
    bench.send(producer)
    found[f"a flush of {ROWS} records: requests"] = bench.requests(producer.flush)
    shown = bench.seen("read_uncommitted") - before
    found["visible to read_uncommitted after it"] = f"{shown} of {ROWS} records"
    before = bench.seen("read_committed")
    bench.send(bench.other, OTHERS)
    bench.other.flush()
    shown = bench.seen("read_committed") - before
    found[f"of {OTHERS} records that another producer then appends, read_committed shows"] = f"{shown}"
    before = bench.seen("read_committed")
    found["the commit with nothing left to write: requests"] = bench.requests(producer.commit)
    shown = bench.seen("read_committed") - before
    found["records that read_committed shows in addition after it"] = f"{shown}"

    ends = bench.log_end()
    producer.begin()
    for _ in range(FLUSHES):
        bench.send(producer)
        producer.flush()
    found[f"an abort after {FLUSHES} flushes: requests"] = bench.requests(producer.abort)
    found["offsets that it leaves used, markers included"] = f"{bench.log_end() - ends}"
    stored = {one.key for one in bench.store.list("") if one.key.endswith(".parquet")}
    named = {one.key for one in bench.log.state.files}
    found["files that it leaves, which the log does not name"] = f"{len(stored - named)}"

    producer.begin()
    bench.send(producer)
    found["a transaction that was never flushed: requests"] = bench.requests(producer.commit)
    producer.begin()
    bench.send(producer)
    found["preparing it (two-phase commit): requests"] = bench.requests(producer.prepare)
    before = bench.seen("read_committed")
    bench.send(bench.other, OTHERS)
    bench.other.flush()
    shown = bench.seen("read_committed") - before
    found[f"of {OTHERS} records that another producer appends while it is prepared, read_committed shows"] = (
        f"{shown}"
    )
    producer.abort()
    producer.close()
    bench.other.close()
    bench.log.close()
    return found


def table() -> str:
    """Measure in a temporary folder, and return the table."""
    with tempfile.TemporaryDirectory() as folder:
        columns = [measure(Path(folder), buffer) for buffer in BUFFERS]
    lines = [f"| | {' | '.join(f'`{buffer}`' for buffer in BUFFERS)} |", "|---|" + "---|" * len(BUFFERS)]
    lines += [f"| {row} | {' | '.join(column[row] for column in columns)} |" for row in columns[0]]
    return "\n".join(lines)


def with_table(page: str, made: str) -> str:
    """Return the page with the table in its place."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{made}\n{END}{after}"


def main() -> None:
    """Print the table, or write it into the page."""
    made = table()
    if "--page" in sys.argv[1:]:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")
    else:
        print(made)


if __name__ == "__main__":
    main()
