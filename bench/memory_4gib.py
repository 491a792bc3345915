"""Memory that one transaction of 4 GiB takes: written by a process of its own, which is watched."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from txnlog import Producer, TxnLog

__all__ = ["main", "measure"]

MIB = 1024 * 1024
TOTAL_BYTES = 4 * 1024 * MIB
SEND_BYTES = 4 * MIB
WARM_UP_BYTES = 64 * MIB
PARTITIONS = 8
GROWTH_BYTES_MAX = 256 * MIB
VALUE_BYTES = 1_000

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.binary())])


def rows(generator: np.random.Generator, first: int) -> pa.Table:
    """Return about SEND_BYTES of records whose values no codec makes smaller."""
    count = SEND_BYTES // (VALUE_BYTES + 8)
    data = pa.py_buffer(generator.bytes(count * VALUE_BYTES))
    offsets = pa.py_buffer(np.arange(0, (count + 1) * VALUE_BYTES, VALUE_BYTES, dtype=np.int32))
    values = pa.Array.from_buffers(pa.binary(), count, [None, offsets, data])
    return pa.Table.from_arrays([pa.array(np.arange(first, first + count)), values], schema=SCHEMA)


def _memory(field: str) -> int:
    """Return VmRSS (now) or VmHWM (the highest so far) of this process, in bytes."""
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError("this system does not say how much memory a process takes")
    return int(found[1]) * 1024


def write(url: str) -> dict[str, Any]:
    """Write a small transaction, then the large one, in this process; return what it took."""
    generator = np.random.default_rng(7)
    with TxnLog.create(url) as log:
        log.create_topic("t", SCHEMA, partitions=PARTITIONS)
        with Producer(log, "memory") as producer:
            with (
                producer.transaction() as txn
            ):  # libraries, pools and buffers of a first write are not growth
                for _ in range(WARM_UP_BYTES // SEND_BYTES):
                    txn.send("t", rows(generator, 0))
            before = _memory("VmRSS")
            start, sent, count = time.perf_counter(), 0, 0
            with producer.transaction() as txn:
                while sent < TOTAL_BYTES:
                    table = rows(generator, count)
                    txn.send("t", table)
                    sent, count = sent + table.nbytes, count + table.num_rows
            seconds = time.perf_counter() - start
        peak = _memory("VmHWM")
        written = sum(file.size for file in log.state.files)
        entry = None if txn.info is None else txn.info.entry
    return {
        "sent_bytes": sent,
        "records": count,
        "files": len(log.state.files),
        "written_bytes": written,
        "entry": entry,
        "seconds": round(seconds, 1),
        "mib_per_second": round(sent / seconds / MIB, 1),
        "rss_before_mib": round(before / MIB, 1),
        "peak_mib": round(peak / MIB, 1),
        "growth_mib": round((peak - before) / MIB, 1),
        "growth_mib_max": GROWTH_BYTES_MAX // MIB,
    }


def measure(folder: Path) -> dict[str, Any]:
    """Run the write in a process of its own, so that nothing else is measured."""
    command = [sys.executable, "-m", "bench.memory_4gib", str(folder / "log")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=dict(os.environ))
    result: dict[str, Any] = json.loads(done.stdout)
    return {"what": "memory of one transaction of 4 GiB, buffer='auto', local disk", **result}


def main() -> None:
    """Measure in a temporary folder, print JSON, and fail when it took too much."""
    if len(sys.argv) > 1:
        print(json.dumps(write(sys.argv[1])))
        return
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder))
    print(json.dumps(result, indent=2))
    if result["growth_mib"] > result["growth_mib_max"]:
        raise SystemExit("the transaction took more memory than it may")


if __name__ == "__main__":
    main()
