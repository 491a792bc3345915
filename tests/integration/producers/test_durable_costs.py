"""What durable answers cost on a local disk: syncs of directories, counted. Following a log without news
costs none."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from txnformat import keys
from txnformat.clock import Instant, SystemClock
from txnformat.core.intents import AppRef, Write
from txnformat.store.directories import YOUNG_MS
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.posix import Posix
from txnformat.store.requests import KeyClass, RequestKind, key_class
from txnlog import Producer, TxnLog
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

NUMBERS = pa.schema([("n", pa.int64())])
LOG = keys.LOG_PREFIX.rstrip("/")


class Syncs(Posix):
    """The real calls; notes the directories that were synced, and counts synced files."""

    def __init__(self) -> None:
        self.directories: list[str] = []
        self.files = 0
        self._open: dict[int, str] = {}

    def open_directory(self, path: str) -> int:
        descriptor = super().open_directory(path)
        self._open[descriptor] = path
        return descriptor

    def fsync_directory(self, directory: int) -> None:
        super().fsync_directory(directory)
        self.directories.append(self._open[directory])

    def fsync_file(self, file: int) -> None:
        super().fsync_file(file)
        self.files += 1


class Later(SystemClock):
    """A machine that has run for a day, moved in time."""

    def __init__(self, ahead_ms: int) -> None:
        self.ahead_ms = ahead_ms

    def now(self) -> Instant:
        return Instant(time.time_ns() // 1_000_000 + self.ahead_ms, 24 * 60 * 60 * 1000 + self.ahead_ms)


class Process:
    """A process that follows the log, and what it has synced since it was asked last."""

    def __init__(self, root: Path, ahead_ms: int = 0) -> None:
        self._root = str(root)
        self._posix = Syncs()
        self._clock = Later(ahead_ms)
        self.log = TxnLog.open(LocalStore(root, self._clock, posix=self._posix), clock=self._clock)

    def synced(self) -> list[str]:
        """Return the directories that were synced since the last call, below the root; above it, as
        ``..``.
        """
        found, self._posix.directories = self._posix.directories, []
        return [
            one.removeprefix(self._root).removeprefix("/") if one.startswith(self._root) else ".."
            for one in found
        ]

    def files(self) -> int:
        """Return the number of files that were synced."""
        return self._posix.files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    with TxnLog.create(root) as log:
        log.create_topic("t", NUMBERS)
    return root


def others_commit(root: Path, version: int) -> None:
    log = TxnLog.open(root)
    log.committer.commit(log.committer.intend(Write(app=AppRef("unit", "app", version))))


def test_opening_a_young_log_syncs_the_way_to_its_entries_once(root: Path) -> None:
    assert Process(root).synced() == ["..", "", "_txnlog", LOG]


def test_opening_a_log_without_a_change_for_an_hour_syncs_nothing(root: Path) -> None:
    process = Process(root, ahead_ms=YOUNG_MS + 60_000)
    assert process.log.read("t").read_all().num_rows == 0
    assert process.synced() == []


def test_following_syncs_one_directory_when_there_is_news_and_none_without(root: Path) -> None:
    process = Process(root)
    process.synced()
    for _ in range(10):
        process.log.refresh()
        process.log.read("t").read_all()
    assert process.synced() == []
    for version in range(5):
        others_commit(root, version)
    process.log.refresh()
    assert process.synced() == [LOG], "one for all that is new"
    process.log.refresh()
    assert process.synced() == []
    assert process.files() == 0


def test_a_repeat_syncs_one_directory_and_its_repeat_none(root: Path) -> None:
    process = Process(root)
    with Producer(process.log):  # tries the store
        pass
    others_commit(root, 7)
    process.synced()
    for _ in range(3):
        wanted = process.log.committer.intend(Write(app=AppRef("unit", "app", 7)))
        assert process.log.committer.commit(wanted).repeated
    assert process.synced() == [LOG]


@pytest.mark.parametrize("embed_bytes", [0, 65_536])
def test_a_commit_costs_what_it_did_also_behind_others(root: Path, embed_bytes: int) -> None:
    """Data file and entry: each synced, and its directory; the entry alone, where it has the records. What
    others committed before rides along."""
    process = Process(root)
    with Producer(process.log, embed_bytes=embed_bytes) as producer:
        for value in range(3):
            producer.send("t", pa.table({"n": [value]}, schema=NUMBERS), partition=0)
            producer.flush()
            if value:
                *data, log = process.synced()
                assert [one.endswith("/data") or "/data/" in one for one in data] == [True] * (
                    not embed_bytes
                )
                assert log == LOG
            others_commit(root, value)
            process.synced()
    assert process.log.read("t").read_all().num_rows == 3


class Told(MemoryStore):
    """Records what it is asked to make durable."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[str] = []

    def make_durable(self, keys: Sequence[str]) -> None:
        self.keys += keys


@pytest.mark.parametrize(
    ("lost", "kind"), [(RequestKind.OPEN_WRITE, KeyClass.DATA), (RequestKind.CREATE, KeyClass.TABLE)]
)
def test_what_an_entry_names_is_made_durable_when_its_answer_was_lost(
    lost: RequestKind, kind: KeyClass
) -> None:
    """It is found there, and whether the attempt that landed had synced it nobody knows: so before the
    entry.
    """
    inner = Told()
    hit: list[str] = []

    def plan(operation: RequestKind, key: str, nth: int) -> Fault | None:
        if operation is not lost or key_class(key) is not kind or hit:
            return None
        hit.append(key)
        return Fault(FaultKind.APPLIED_LOST_ANSWER)

    log = TxnLog.create(FaultyStore(inner, plan))
    log.create_topic("t", NUMBERS)
    inner.keys.clear()
    with Producer(log, "p", batch_bytes=1) as producer, producer.transaction() as transaction:
        for value in range(1_001):
            transaction.send("t", pa.table({"n": [value]}, schema=NUMBERS), partition=0)
    assert len(hit) == 1
    assert inner.keys == hit
