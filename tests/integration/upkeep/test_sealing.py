"""Sealing on real stores: the state stays bounded, reads fetch what they touch, and a lost sidecar harms
nothing else."""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from txnformat.core.intents import Write
from txnformat.core.invariants import check_whole
from txnformat.core.snapshot.codec import encode_snapshot
from txnformat.errors import CorruptDataError, InvalidInputError
from txnformat.protocol.commit import CommitSettings
from txnformat.reading.sealed import SidecarCache
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.strategies import make_append

NUMBERS = pa.schema([("n", pa.int64())])


def column(log: TxnLog, **options: Any) -> list[int]:
    found: list[int] = log.read("t", **options).read_all().column("n").to_pylist()
    return found


# Ten rows, a marker, an aborted row, its marker; round 2 is an aborted row and its marker alone.
OFFSETS = [*range(10), *range(13, 23), *range(28, 38), 41]


@dataclass
class Written:
    """A log with one sealed segment for each round, and something unsealed behind."""

    root: Path
    log: TxnLog
    committed: list[int]
    everything: list[int]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Rounds 0 to 3: ten committed rows, an aborted row, a segment. Round 2 has nothing but aborted rows."""
    log = TxnLog.create(tmp_path / "log")
    log.create_topic("t", NUMBERS)
    committed: list[int] = []
    everything: list[int] = []
    with Producer(log, "p", buffer="inline") as producer:
        for number in range(4):
            rows = [{"n": 100 * number + n} for n in range(10)]
            if number != 2:
                with producer.transaction() as txn:
                    txn.send("t", rows)
                committed += [row["n"] for row in rows]
                everything += [row["n"] for row in rows]
            producer.begin()
            producer.send("t", [{"n": -number}])
            producer.flush()
            producer.abort()
            everything.append(-number)
            report = log.maintain("seal")
            assert (report.segments, report.partitions) == (1, 1)
        with producer.transaction() as txn:
            txn.send("t", [{"n": 4_000}])
    committed.append(4_000)
    everything.append(4_000)
    return Written(tmp_path / "log", log, committed, everything)


def sidecars(root: Path, kind: str) -> list[Path]:
    return sorted(root.glob(f"t-*/segments/*.{kind}"))


def test_what_is_sealed_reads_as_before(written: Written) -> None:
    for log in (written.log, TxnLog.open(written.root)):
        assert column(log) == written.committed
        assert column(log, isolation="read_uncommitted") == written.everything
        (offsets,) = log.offsets("t")
        assert (offsets.log_end, offsets.aborted_transactions) == (43, 4)
        for start in range(0, 40, 3):
            for end in (start, start + 1, 43):
                assert column(log, start=start, end=end) == [
                    n for n, offset in zip(written.committed, OFFSETS, strict=True) if start <= offset < end
                ]


def test_nothing_to_seal_is_no_error_and_an_unknown_task_is(written: Written) -> None:
    written.log.maintain()
    entry = written.log.refresh().entry
    assert written.log.maintain("seal").segments == 0
    assert written.log.refresh().entry == entry
    with pytest.raises(InvalidInputError) as caught:
        written.log.maintain("seal", "polish")
    assert caught.value.kind == "unknown-task"
    assert "polish" in str(caught.value)


def test_a_read_fetches_the_sidecars_that_it_touches_once(written: Written) -> None:
    store = CountingStore(LocalStore(str(written.root)))
    log = TxnLog.open(store)

    def sidecar_gets(**options: Any) -> int:
        with store.measure() as measured:
            log.plan("t", **options)
        return measured.counts.count(RequestKind.GET, KeyClass.SIDECAR)

    assert sidecar_gets(start=41) == 0, "what is not sealed needs none"
    assert sidecar_gets(start=13, end=14) == 1
    assert sidecar_gets(start=13, end=14) == 0, "it is kept"
    assert sidecar_gets() == 2, "the segment in which all was aborted is skipped"
    assert sidecar_gets(isolation="read_uncommitted") == 1
    assert sidecar_gets() == 0


def test_what_is_kept_of_sidecars_has_a_bound(written: Written) -> None:
    store = CountingStore(LocalStore(str(written.root)))
    log = TxnLog.open(store)
    log.sidecars = SidecarCache(store, bytes_max=1)
    for _ in range(2):  # only the last one used is kept
        for start, end in ((0, 1), (13, 14), (13, 14), (28, 29)):
            log.plan("t", start=start, end=end)
    assert store.counts.count(RequestKind.GET, KeyClass.SIDECAR) == 6


def test_without_a_sidecar_the_rest_is_readable_and_writable(written: Written) -> None:
    (lost, *_) = sidecars(written.root, "index")
    content = lost.read_bytes()
    for damaged in (None, content[:-1], bytes([content[0] ^ 1]) + content[1:]):
        lost.unlink() if damaged is None else lost.write_bytes(damaged)
        log = TxnLog.open(written.root)
        with pytest.raises(CorruptDataError) as caught:
            column(log)
        assert caught.value.kind == "corrupt-sidecar"
        assert lost.name in str(caught.value)
        assert "restore" in str(caught.value)
        assert column(log, start=13) == [n for n in written.committed if n >= 100]
        with Producer(log) as producer:
            producer.send("t", [{"n": 5_000}])
        written.committed.append(5_000)
        log.maintain("seal")
        assert column(log, start=13)[-1] == 5_000
    lost.write_bytes(content)
    assert column(TxnLog.open(written.root)) == written.committed


def test_markers_and_txnindex_are_needed_by_no_read(written: Written) -> None:
    for kind in ("markers", "txnindex"):
        assert len(sidecars(written.root, kind)) == 4
        for path in sidecars(written.root, kind):
            path.unlink()
    assert column(TxnLog.open(written.root)) == written.committed


def test_a_writer_that_crosses_the_bound_seals_in_the_background(tmp_path: Path) -> None:
    log = TxnLog.create(tmp_path / "log", settings=CommitSettings(seal_extents=5))
    log.create_topic("t", NUMBERS)
    with Producer(log) as producer:
        for number in range(6):
            producer.send("t", [{"n": number}])
            producer.flush()
    log.close()
    state = log.refresh()
    assert len(state.segments) == 1
    assert state.extents == 0
    assert len(state.files) == 0
    assert column(log) == list(range(6))


def test_of_two_that_seal_at_once_one_lands_and_nothing_is_lost(tmp_path: Path) -> None:
    first = TxnLog.create(tmp_path / "log")
    first.create_topic("t", NUMBERS, partitions=3)
    with Producer(first) as producer:
        for number in range(30):
            producer.send("t", [{"n": number}], partition=number % 3)
            producer.flush()
    second = TxnLog.open(tmp_path / "log")
    reports = []
    barrier = threading.Barrier(2)

    def seal(log: TxnLog) -> None:
        barrier.wait()
        reports.append(log.maintain("seal"))

    threads = [threading.Thread(target=seal, args=(log,)) for log in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(report.batches for report in reports) in ([0, 30], [0, 0, 30])
    for log in (first, second):
        log.refresh()
        assert check_whole(log.state) == []
        assert sorted(column(log)) == list(range(30))


def test_state_and_snapshots_stay_bounded_over_200_000_batches() -> None:
    bound = 1_000
    log = TxnLog.create(MemoryStore(), settings=CommitSettings(seal_extents=bound))
    created = log.create_topic("t", NUMBERS, partitions=4).created
    sizes: list[tuple[int, int, int]] = []
    for number in range(2_000):
        parts = dict.fromkeys(range(4), (-1, 25))
        append = make_append(created, parts, content=f"append {number}", records_per_batch=1)
        log.committer.commit(log.committer.intend(Write(appends=(append,))))
        if number % 10 == 9:
            log.close()  # waits for a seal or a snapshot that is under way
        if number > 1_000 and number % 40 == 39:  # the window of intent ids is full
            state = log.state
            sizes.append((state.extents, len(encode_snapshot(state)), len(pickle.dumps(state))))
    log.close()
    state = log.refresh()
    assert sum(part.log_end for part in state.partitions.values()) == 200_000
    assert state.segments.end >= 100, "one for 1,000 to 2,000 extents: the next may come before the seal"
    assert len(state.segments) <= 17, "older ones are in the segment list"
    assert check_whole(state) == []
    extents, snapshots, memory = (list(column) for column in zip(*sizes, strict=True))
    assert max(extents) <= 2 * bound
    half = len(sizes) // 2
    assert max(snapshots[half:]) <= 1.1 * max(snapshots[:half]), snapshots
    assert max(memory[half:]) <= 1.1 * max(memory[:half]), memory
    plan = log.plan("t")
    assert sum(len(part.rows) for part in plan.partitions) == 200_000
    assert sum(int(part.rows["take"].sum()) for part in plan.partitions) == 200_000
