"""Processes that write to one log on a local disk at the same time, and some that are killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from txnformat import keys
from txnformat.core.state import LogState
from txnformat.log import TxnLog
from txnformat.protocol.follow import empty_state, fold_bytes
from txnformat.store.local import LocalStore
from txnformat.store.open import open_store

ROOT = Path(__file__).parents[3]
PARTITIONS = 3

WRITER = """
import sys
import pyarrow as pa
from txnformat.log import TxnLog
from writers.producer import Producer

path, writer, commits = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with TxnLog.open(path) as log, Producer(log) as producer:
    for number in range(commits):
        producer.send("t", pa.table({"writer": [writer], "number": [number]}), partition=number % 3)
        producer.flush()
        print(number, flush=True)
"""


def _created(path: Path) -> None:
    with TxnLog.create(str(path)) as log:
        schema = pa.schema([("writer", pa.int64()), ("number", pa.int64())])
        log.create_topic("t", schema, partitions=PARTITIONS)


def _start(path: Path, writer: int, commits: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(writer), str(commits)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def _folded(path: Path) -> LogState:
    """Return the state after all entries, folded one by one from entry 0."""
    store = open_store(str(path))
    assert isinstance(store, LocalStore)
    format_data = store.get(keys.FORMAT_KEY)
    assert format_data is not None
    state = empty_state(format_data)
    while (data := store.get(keys.entry_key(state.entry + 1))) is not None:
        state = fold_bytes(state, data)
    return state


def _numbers(path: Path) -> dict[int, list[int]]:
    """Return the numbers of each writer, by offset within each partition; offsets must tile the
    partitions.
    """
    log = TxnLog.open(str(path))
    whole = _folded(path)
    assert (log.state.entry, log.state.entry_sha256) == (whole.entry, whole.entry_sha256)
    found: dict[int, list[int]] = {}
    for partition, offsets in enumerate(log.offsets("t")):
        table = log.read("t", partitions=[partition], columns=["writer", "number", "_offset"]).read_all()
        assert table.column("_offset").to_pylist() == list(range(offsets.log_end))
        for row in table.to_pylist():
            found.setdefault(row["writer"], []).append(row["number"])
    return found


def test_four_processes_commit_everything_exactly_once(tmp_path: Path) -> None:
    path, writers, commits = tmp_path / "log", 4, 200
    _created(path)
    running = [_start(path, writer, commits) for writer in range(writers)]
    for process in running:
        process.communicate(timeout=300)
        assert process.returncode == 0
    found = _numbers(path)
    assert {writer: sorted(numbers) for writer, numbers in found.items()} == {
        writer: list(range(commits)) for writer in range(writers)
    }
    assert TxnLog.open(str(path)).state.checkpoints, "a log of 800 entries has snapshots"


def test_killed_processes_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """After kill -9 the log holds what each writer was told, in order, and at most the one commit on
    its way.
    """
    path = tmp_path / "log"
    _created(path)
    acknowledged: dict[int, int] = {}
    for first, patience in ((0, 1), (2, 17), (4, 60)):
        running = [_start(path, writer, 1_000_000) for writer in (first, first + 1)]
        for writer, process in enumerate(running, first):
            assert process.stdout is not None
            for _ in range(patience):
                process.stdout.readline()
            acknowledged[writer] = patience
        for writer, process in enumerate(running, first):
            process.kill()
            assert process.stdout is not None
            with process.stdout:
                acknowledged[writer] += sum(line.endswith("\n") for line in process.stdout)
            process.wait(300)
        found = _numbers(path)
        for writer, told in acknowledged.items():
            numbers = sorted(found[writer])
            assert numbers == list(range(len(numbers)))
            assert told <= len(numbers) <= told + 1
