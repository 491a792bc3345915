"""Memory that one transaction of 4 GiB takes, by buffer: written by a process of its own, which is
watched.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from txnlog import Producer, TxnLog

__all__ = ["CASES", "Case", "main", "measure"]

MIB = 1024 * 1024
TOTAL_BYTES = 4 * 1024 * MIB
WARM_UP_BYTES = 64 * MIB
PARTITIONS = 8
GROWTH_BYTES_MAX = 256 * MIB
VALUE_BYTES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One transaction to be written."""

    buffer: str
    what: str
    total_bytes: int = TOTAL_BYTES
    send_bytes: int = 4 * MIB
    batch_bytes: int = 8 * MIB
    roll_bytes: int = 512 * MIB


CASES = (
    Case(buffer="auto", what="named in one entry"),
    Case(buffer="auto", what="beyond 1,000 batches: goes on as deferred", send_bytes=MIB, batch_bytes=MIB),
    Case(buffer="deferred", what="staged as it comes"),
)

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.binary())])


def rows(generator: np.random.Generator, first: int, size: int) -> pa.Table:
    """Return about ``size`` bytes of records whose values no codec makes smaller."""
    count = size // (VALUE_BYTES + 8)
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


def write(url: str, case: Case) -> dict[str, Any]:
    """Write a small transaction, then the large one, in this process; return what it took."""
    generator = np.random.default_rng(7)
    with TxnLog.create(url) as log:
        log.create_topic("t", SCHEMA, partitions=PARTITIONS)
        with Producer(
            log,
            "memory",
            buffer=case.buffer,
            batch_bytes=case.batch_bytes,
            roll_bytes=case.roll_bytes,
        ) as producer:
            with (
                producer.transaction() as txn
            ):  # libraries, pools and buffers of a first write are not growth
                for _ in range(WARM_UP_BYTES // case.send_bytes):
                    txn.send("t", rows(generator, 0, case.send_bytes))
            before = _memory("VmRSS")
            start, sent, count = time.perf_counter(), 0, 0
            with producer.transaction() as txn:
                while sent < case.total_bytes:
                    table = rows(generator, count, case.send_bytes)
                    txn.send("t", table)
                    sent, count = sent + table.nbytes, count + table.num_rows
                stages = len(log.state.transactional_ids["memory"].staged)
            seconds = time.perf_counter() - start
        peak = _memory("VmHWM")
        written = sum(file.size for file in log.state.files)
        entry = None if txn.info is None else txn.info.entry
    return {
        "sent_bytes": sent,
        "records": count,
        "stages": stages,
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


def measure(folder: Path, case: Case) -> dict[str, Any]:
    """Run the write in a process of its own, so that nothing else is measured."""
    command = [sys.executable, "-m", "bench.memory_4gib", str(folder / "log"), json.dumps(asdict(case))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=dict(os.environ))
    result: dict[str, Any] = json.loads(done.stdout)
    what = (
        f"memory of one transaction of {case.total_bytes // MIB} MiB, buffer={case.buffer!r}, "
        f"{case.what}; local disk"
    )
    return {"what": what, **result}


def main() -> None:
    """Measure in temporary folders, print JSON, and fail when one took too much."""
    if len(sys.argv) > 1:
        print(json.dumps(write(sys.argv[1], Case(**json.loads(sys.argv[2])))))
        return
    results = []
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            results.append(measure(Path(folder), case))
        print(json.dumps(results[-1], indent=2), flush=True)
    if any(result["growth_mib"] > result["growth_mib_max"] for result in results):
        raise SystemExit("a transaction took more memory than it may")


if __name__ == "__main__":
    main()
