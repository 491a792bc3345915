"""Threads that read: requests that overlap, the end of the process, and forks."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
from itertools import chain
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from txnformat.errors import CorruptDataError, NotFoundError
from txnformat.segments import segment_object
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore

COLUMNS = 8
EVERY_OTHER = [f"c{number}" for number in range(0, COLUMNS, 2)]
TOGETHER_SECONDS_MAX = 300.0
"""How long a read that is alone waits before the test fails; those that meet do not wait."""


class Meeting(CountingStore):
    """A real store whose reads of four column chunks go on only when all four are in flight."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.barrier: threading.Barrier | None = None
        self.met: list[str] = []

    @property
    def reads_in_flight(self) -> int:
        """As a store far away says."""
        return 16

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Wait for the others, but for the footer: it comes first, by itself."""
        data = super().get_range(key, start, length)
        if self.barrier is not None and not data.endswith(b"PAR1"):
            self.barrier.wait(TOGETHER_SECONDS_MAX)
            self.met.append(key)
        return data


def fill(log: TxnLog, transactions: int = 1) -> None:
    """Create topic t with transactions of one file each; several files are so large that each is decoded by a
    thread."""
    names = [f"c{number}" for number in range(COLUMNS)]
    large = pa.schema([("noise", pa.binary())]) if transactions > 1 else pa.schema([])
    log.create_topic("t", pa.schema([*((name, pa.int64()) for name in names), *large]))
    random = Random(7)
    with Producer(log, "p") as producer:
        for _ in range(transactions):
            producer.begin()
            rows = {name: range(2_000) for name in names}
            noise = {name: [random.randbytes(2_200) for _ in range(2_000)] for name in large.names}
            producer.send("t", pa.table(rows | noise))
            producer.commit()


def _run(program: str, *arguments: str) -> tuple[str, str]:
    """Return what a program writes to standard output and to standard error."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    return done.stdout, done.stderr


def test_separate_ranges_of_a_window_are_fetched_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other they would wait for each other until the barrier breaks."""
    monkeypatch.setattr(segment_object, "SMALL_FILE_BYTES", 0)
    store = Meeting()
    fill(TxnLog.create(store, embedding=False))
    log = TxnLog.open(store)
    store.barrier = threading.Barrier(len(EVERY_OTHER))
    with store.measure() as measured:
        found = log.read("t", columns=EVERY_OTHER).read_all()
    assert found == pa.table({name: range(2_000) for name in EVERY_OTHER})
    assert len(store.met) == len(EVERY_OTHER)
    assert measured.counts.count(RequestKind.GET_RANGE, KeyClass.DATA) == 1 + len(EVERY_OTHER)


NATIVE_THREADS = """
import os, sys, threading, time
from txnlog import TxnLog

def foreign():
    return len(os.listdir("/proc/self/task")) - threading.active_count()

before = foreign()
log = TxnLog.open(sys.argv[1])
rows = log.read("t").read_all().num_rows + log.read("t", end={0: 2000}).read_all().num_rows
for _ in range(500):  # what was joined is listed for another moment; threads of a pool stay
    if foreign() <= before:
        break
    time.sleep(0.01)
print(rows, foreign() <= before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads by /proc")
def test_arrow_starts_no_threads_of_its_own(tmp_path: Path) -> None:
    """They let go of our files after their reader has returned, and so end a process that just ends
    itself.
    """
    fill(TxnLog.create(str(tmp_path / "log")), 6)
    assert _run(NATIVE_THREADS, str(tmp_path / "log")) == ("14000 True\n", "")


ENDS = """
import os, sys
from txnlog import TxnLog

location, children = sys.argv[1], int(sys.argv[2])
codes = []
for number in range(children):  # a fork is an interpreter with everything imported
    child = os.fork()
    if not child:
        break
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
else:
    print(sorted(set(codes)), len(codes))
    sys.exit()
log = TxnLog.open(location)
if number % 3 == 0:
    log.read("t", end={0: 2000}).read_all()
elif number % 3 == 1:
    unfinished = iter(log.read("t"))
    next(unfinished)
else:
    for batch in log.read("t", where="c0 > 7"):
        raise SystemExit(0)
"""


def test_a_process_ends_well_right_after_a_read_and_in_the_middle_of_one(tmp_path: Path) -> None:
    fill(TxnLog.create(str(tmp_path / "log")), 6)
    assert _run(ENDS, str(tmp_path / "log"), "30") == ("[0] 30\n", "")


AT_EXIT = """
import atexit, sys
from txnlog import TxnLog

log = TxnLog.open(sys.argv[1])
atexit.register(lambda: print(log.read("t").read_all().num_rows))
"""


def test_reading_needs_no_threads_while_the_interpreter_shuts_down(tmp_path: Path) -> None:
    fill(TxnLog.create(str(tmp_path / "log")), 6)
    assert _run(AT_EXIT, str(tmp_path / "log")) == ("12000\n", "")


def _read_in_child(location: str, answers: object) -> None:
    rows = TxnLog.open(location).read("t").read_all().num_rows
    answers.put(rows)  # type: ignore[attr-defined]  # a queue


def _readers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("txnlog-read")]


def test_an_unfinished_read_lets_its_threads_go_and_a_fork_reads_on_its_own(tmp_path: Path) -> None:
    location = str(tmp_path / "log")
    log = TxnLog.create(location)
    fill(log, 6)
    unfinished = iter(log.read("t"))
    next(unfinished)
    assert _readers()
    del unfinished
    assert not _readers()
    unfinished = iter(log.read("t"))
    next(unfinished)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_read_in_child, args=(location, answers))
    child.start()
    child.join(300)
    assert (child.exitcode, answers.get()) == (0, 12_000)
    assert sum(batch.num_rows for batch in unfinished) == 10_000


@pytest.mark.parametrize("damage", ["gone", "chunk", "footer"])
def test_rows_before_a_damaged_file_are_read_though_small_files_are_decoded_together(
    damage: str, tmp_path: Path
) -> None:
    root = tmp_path / "log"
    with TxnLog.create(root) as log:
        log.create_topic("t", pa.schema([("n", pa.int64())]))
        with Producer(log, "p", embed_bytes=0) as producer:
            for first in range(0, 5_000, 1_000):
                producer.begin()
                producer.send("t", pa.table({"n": range(first, first + 1_000)}))
                producer.commit()
        plan = log.plan("t")
        victim = plan.files[int(plan.partitions[0].rows["file"][3])]
        path = root / victim.key
        data = bytearray(path.read_bytes())
        data[{"chunk": 200, "footer": -20}.get(damage, 0)] ^= 1
        path.unlink()
        if damage != "gone":
            path.write_bytes(data)
        found: list[int] = []
        batches = (batch.column("n").to_pylist() for batch in log.read("t"))
        with pytest.raises((CorruptDataError, NotFoundError)) as caught:
            found.extend(chain.from_iterable(batches))
        assert found == list(range(3_000))
        assert victim.key in str(caught.value)
