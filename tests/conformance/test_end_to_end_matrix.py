"""librdkafka's matrix of what consumers see of transactions, for every buffer, as appended and sealed.

Producer 1 and 2 are transactional, records of producer 3 are sent outside transactions. The literals are the
first keys of upstream's commands; each command sends consecutive numbers from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conformance.cases import case
from tests.conformance.scenes import AT_COMMIT, BUFFERS, INLINE, NUMBERS, Scene, read, rows
from txnformat.store.local import LocalStore
from txnformat.store.requests import KeyClass
from txnlog import Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore

NO_FLUSH = False


class Expected(NamedTuple):
    """A scenario, and what upstream expects of it, by partition."""

    play: Callable[[Scene], None]
    committed: Mapping[int, list[int]]
    everything: Mapping[int, list[int]]
    """With inline buffers: the others never append what is aborted."""
    committed_at_commit: Mapping[int, list[int]] | None = None
    """Where the order is another one when offsets are given at the commit."""


def commit(scene: Scene, name: str, first: int, count: int, *, flush: bool = True) -> None:
    """Commit one transaction of a single command."""
    scene.begin(name, rows(first, count), flush=flush)
    scene.commit(name)


def abort(scene: Scene, name: str, first: int, count: int, *, flush: bool = True) -> None:
    """Abort one transaction of a single command."""
    scene.begin(name, rows(first, count), flush=flush)
    scene.abort(name)


def commit_and_abort(scene: Scene) -> None:
    commit(scene, "p1", 0x0, 5)
    abort(scene, "p1", 0x10, 5)


def commit_unflushed_and_abort(scene: Scene) -> None:
    commit(scene, "p1", 0x0, 5, flush=NO_FLUSH)
    abort(scene, "p1", 0x10, 5)


def abort_and_commit(scene: Scene) -> None:
    abort(scene, "p1", 0x10, 5)
    commit(scene, "p1", 0x30, 5)


def plain_commit_abort(scene: Scene) -> None:
    scene.plain(rows(0x10, 5))
    commit(scene, "p1", 0x50, 5)
    abort(scene, "p1", 0x80, 5)


def abort_plain_commit(scene: Scene) -> None:
    abort(scene, "p1", 0x30, 5)
    scene.plain(rows(0x40, 5))
    commit(scene, "p1", 0x60, 5)


def commit_abort_plain(scene: Scene) -> None:
    commit(scene, "p1", 0x10, 5)
    abort(scene, "p1", 0x20, 5)
    scene.plain(rows(0x30, 5))


def rapid(flush: bool) -> Callable[[Scene], None]:
    """Ten transactions of one record each; every second one commits."""

    def play(scene: Scene) -> None:
        for first in range(0x10, 0xB0, 0x20):
            abort(scene, "p1", first, 1, flush=flush)
            commit(scene, "p1", first + 0x10, 1, flush=flush)
        scene.plain([0xB0])
        scene.plain([0xC0])

    return play


def cross_partition(scene: Scene) -> None:
    scene.begin("p1", rows(0x10, 3), partition=0)
    scene.go_on("p1", rows(0x20, 3), partition=1)
    scene.go_on("p1", rows(0x30, 3), partition=0)
    scene.commit("p1")


def cross_partition_aborted(scene: Scene) -> None:
    commit(scene, "p1", 0x55, 1)
    scene.begin("p1", rows(0x10, 3), partition=0)
    scene.go_on("p1", rows(0x20, 3), partition=1)
    scene.go_on("p1", rows(0x30, 3), partition=0)
    scene.abort("p1")
    scene.plain([0x00])
    scene.begin("p1", [0x44], partition=1)
    scene.commit("p1")


def overlapping(first_commits: bool, second_commits: bool) -> Callable[[Scene], None]:
    """Two transactions with batches in turn; the first ends before the second's last batch."""

    def play(scene: Scene) -> None:
        scene.plain([0x10])
        scene.begin("p1", rows(0x20, 3))
        scene.begin("p2", rows(0x30, 3))
        scene.go_on("p1", rows(0x40, 3))
        (scene.commit if first_commits else scene.abort)("p1")
        scene.go_on("p2", rows(0x50, 3))
        (scene.commit if second_commits else scene.abort)("p2")

    return play


def split(scene: Scene) -> None:
    for first, second, commits in ((0x10, 0x20, 0), (0x30, 0x40, 1), (0x50, 0x60, 0), (0xA0, 0xB0, 1)):
        scene.begin("p1", rows(first, 2))
        scene.go_on("p1", rows(second, 2), flush=NO_FLUSH)
        (scene.commit if commits else scene.abort)("p1")
    scene.plain([0x70])


def left_open(scene: Scene) -> None:
    scene.plain([0x10])
    scene.begin("p1", rows(0x20, 3))


FIRST, SECOND = rows(0x20, 3) + rows(0x40, 3), rows(0x30, 3) + rows(0x50, 3)
OVERLAPPED = [0x10, *rows(0x20, 3), *rows(0x30, 3), *rows(0x40, 3), *rows(0x50, 3)]
TENS = rows(0, 5) + rows(0x10, 5)

SCENARIOS = {
    "Test 0": Expected(commit_and_abort, {0: rows(0, 5)}, {0: TENS}),
    "Test 0.1": Expected(commit_unflushed_and_abort, {0: rows(0, 5)}, {0: TENS}),
    "Test 0.2": Expected(abort_and_commit, {0: rows(0x30, 5)}, {0: rows(0x10, 5) + rows(0x30, 5)}),
    "Test 1": Expected(
        plain_commit_abort,
        {0: rows(0x10, 5) + rows(0x50, 5)},
        {0: rows(0x10, 5) + rows(0x50, 5) + rows(0x80, 5)},
    ),
    "Test 1.1": Expected(
        abort_plain_commit,
        {0: rows(0x40, 5) + rows(0x60, 5)},
        {0: rows(0x30, 5) + rows(0x40, 5) + rows(0x60, 5)},
    ),
    "Test 1.2": Expected(
        commit_abort_plain,
        {0: rows(0x10, 5) + rows(0x30, 5)},
        {0: rows(0x10, 5) + rows(0x20, 5) + rows(0x30, 5)},
    ),
    "Test 2": Expected(
        rapid(flush=NO_FLUSH),
        {0: [0x20, 0x40, 0x60, 0x80, 0xA0, 0xB0, 0xC0]},
        {
            0: [0x20, 0x40, 0x60, 0x80, 0xA0, 0xB0, 0xC0]
        },  # what is aborted before it was flushed never arrives
    ),
    "Test 2.1": Expected(
        rapid(flush=True),
        {0: [0x20, 0x40, 0x60, 0x80, 0xA0, 0xB0, 0xC0]},
        {0: list(range(0x10, 0xD0, 0x10))},
    ),
    "Test 3": Expected(
        cross_partition,
        {0: rows(0x10, 3) + rows(0x30, 3), 1: rows(0x20, 3)},
        {0: rows(0x10, 3) + rows(0x30, 3), 1: rows(0x20, 3)},
    ),
    "Test 3.1": Expected(
        cross_partition_aborted,
        {0: [0x55, 0x00], 1: [0x44]},
        {0: [0x55, *rows(0x10, 3), *rows(0x30, 3), 0x00], 1: [*rows(0x20, 3), 0x44]},
    ),
    "Test 4": Expected(overlapping(True, False), {0: [0x10, *FIRST]}, {0: OVERLAPPED}),
    "Test 4.1": Expected(overlapping(False, True), {0: [0x10, *SECOND]}, {0: OVERLAPPED}),
    "Test 4.2": Expected(
        overlapping(True, True),
        {0: OVERLAPPED},
        {0: OVERLAPPED},
        committed_at_commit={0: [0x10, *FIRST, *SECOND]},
    ),
    "Test 4.3": Expected(overlapping(False, False), {0: [0x10]}, {0: OVERLAPPED}),
    "Test 5": Expected(
        split,
        {0: [0x30, 0x31, 0x40, 0x41, 0xA0, 0xA1, 0xB0, 0xB1, 0x70]},
        {0: [0x10, 0x11, 0x30, 0x31, 0x40, 0x41, 0x50, 0x51, 0xA0, 0xA1, 0xB0, 0xB1, 0x70]},
    ),
    "Test 6": Expected(left_open, {0: [0x10]}, {0: [0x10, *rows(0x20, 3)]}),
}


@case(
    "librdkafka-0098-consumer_txn",
    "Test 0",
    "Test 0.1",
    "Test 0.2",
    "Test 1",
    "Test 1.1",
    "Test 1.2",
    "Test 2",
    "Test 2.1",
    "Test 3",
    "Test 3.1",
    "Test 4",
    "Test 4.1",
    "Test 4.2",
    "Test 4.3",
    "Test 5",
    "Test 6",
)
@BUFFERS
@pytest.mark.parametrize("seals", [False, True], ids=["sealed-at-the-end", "sealed-as-it-goes"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_readers_see_what_was_committed_in_the_order_of_offsets(
    tmp_path: Path, name: str, buffer: str, seals: bool
) -> None:
    """Both isolation levels, with the ends of Kafka's partitions, before and after everything is sealed."""
    expected = SCENARIOS[name]
    scene = Scene(None if seals else tmp_path, buffer, partitions=2, seals=seals)
    expected.play(scene)
    at_commit = buffer in AT_COMMIT
    committed = expected.committed
    if at_commit and expected.committed_at_commit is not None:
        committed = expected.committed_at_commit
    found = scene.check_sealed()
    for partition in range(2):
        assert found[partition, "read_committed"] == committed.get(partition, [])
        everything = (committed if at_commit else expected.everything).get(partition, [])
        assert found[partition, "read_uncommitted"] == everything
    ends = scene.log.offsets("t")[0]
    is_open = name == "Test 6" and not at_commit
    assert ends.log_end - ends.last_stable_offset == (3 if is_open else 0)
    assert scene.log.verify(deep=True).ok


@case("librdkafka-0129-fetch_aborted_msgs", "main_0129_fetch_aborted_msgs")
@pytest.mark.parametrize("seals", [False, True])
def test_a_range_that_was_aborted_whole_is_read_to_its_end_and_costs_no_data(
    tmp_path: Path, seals: bool
) -> None:
    """1,000 records in 100 batches, an end with 2 committed records behind."""
    store = CountingStore(LocalStore(str(tmp_path / "log")))
    log = TxnLog.create(store)
    log.create_topic("t", NUMBERS)
    with Producer(log, "p", buffer=INLINE, batch_bytes=1) as producer:
        producer.begin()
        for first in range(0, 1_000, 10):
            producer.send("t", [{"n": n} for n in rows(first, 10)])
        producer.abort()
        if seals:
            log.maintain("seal")
        with producer.transaction() as txn:
            txn.send("t", [{"n": 5_000}])
    aborted_end = log.offsets("t")[0].log_end - 2  # a record, its marker
    with store.measure() as measured:
        assert read(log, end=aborted_end) == []
    assert measured.counts.count(key_class=KeyClass.DATA) == 0
    assert measured.counts.count(key_class=KeyClass.SIDECAR) == 0, "all of the segment was aborted"
    assert read(log) == [5_000]
    assert (
        len(read(log, isolation="read_uncommitted")) == 991
    )  # the last batch was not flushed before the abort
