"""Consume, transform, produce: real processes that are killed (SIGKILL) at every step; outputs and positions
agree always."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.killing.etl import SUMS, WINDOW, Job
from tests.killing.outside import feed, glance, inputs, look, prepare, window_sums
from tests.killing.workers import Nursery
from tests.rounds import rounds
from txnformat.persistent import replace
from txnlog import Producer, TxnLog

KILLED = -9
BUFFERS = ("auto", "inline", "deferred")
INPUTS = 16
BATCH = 4


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


POINTS = {
    "init/before-entry": (1, 0),
    "init/after-entry": (1, 0),
    "join/before-entry": (1, 0),
    "join/after-entry": (1, 0),
    "after-join": (1, 0),
    "after-poll": (2, 1),
    "after-first-send": (2, 1),
    "flush/before-entry": (2, 1),
    "flush/after-entry": (2, 1),
    "after-flush": (2, 1),
    "after-send-offsets": (2, 1),
    "flush-offsets/before-entry": (2, 1),
    "flush-offsets/after-entry": (2, 1),
    "commit/before-data": (4, 1),
    "commit/after-data": (4, 1),
    "commit/before-entry": (2, 1),
    "commit/after-entry": (2, 2),
    "after-commit": (2, 2),
    "close/before-entry": (1, 4),
    "close/after-entry": (1, 4),
}
"""Where a worker ends itself, at which time that it is there, and how many transactions are then committed.
"""

EVERYWHERE = [
    (point, buffer, embedding)
    for point in POINTS
    for buffer in BUFFERS
    for embedding in (True, False)
    if not (buffer == "auto" and point.startswith("flush"))  # which makes no entry
    and (not embedding or not point.endswith("-data"))  # small records travel in the entry: there is no file
    and (embedding or point.startswith("commit/"))
]


SOME = [
    one
    for number, one in enumerate(EVERYWHERE)
    if number % 2 == 0 or one[0] in ("commit/before-entry", "commit/after-entry")
]
"""What ``make test`` takes: every point, and around the entry with each buffer; ``make campaigns`` takes all.
"""


def test_every_point_is_in_the_short_round() -> None:
    assert {point for point, _, _ in SOME} == {*POINTS}


@pytest.mark.parametrize(("point", "buffer", "embedding"), rounds(SOME, EVERYWHERE))
def test_killed_at_a_point_both_are_there_or_neither(
    point: str, buffer: str, embedding: bool, nursery: Nursery, tmp_path: Path
) -> None:
    job = prepare(tmp_path / "log", buffer=buffer, batch=BATCH, flushes="flush" in point, embedding=embedding)
    feed(job, *range(INPUTS))
    nth, done = POINTS[point]
    assert nursery.run(replace(job, at=point, nth=nth)) == KILLED
    between = look(job)
    assert between.is_exact
    assert between.inputs == done * BATCH
    assert nursery.run(job) == 0
    after = look(job)
    assert after.is_exact
    assert after.inputs == INPUTS


@pytest.mark.parametrize("buffer", BUFFERS)
def test_whenever_somebody_looks_outputs_and_positions_agree(
    buffer: str, nursery: Nursery, tmp_path: Path
) -> None:
    """While a worker works, is killed, and is started again: as one entry has them."""
    job = prepare(tmp_path / "log", buffer=buffer, batch=1, flushes=True)
    feed(job, *range(INPUTS))
    seen = set()
    for at, code in (("commit/after-entry", KILLED), ("commit/before-entry", KILLED), (None, 0)):
        worker = nursery.start(replace(job, at=at, nth=4))
        while (status := worker.status()).code is None:
            found = glance(job)
            assert found.is_exact
            seen.add(found.records)
        assert status.code == code
        assert look(job).is_exact
    assert look(job).inputs == INPUTS
    assert len(seen) > 2, "it looked in the middle"


# --- what fails without (mechanisms 57 and 58) --------------------------------------------------------------


@pytest.mark.parametrize("buffer", BUFFERS)
def test_57_records_first_and_positions_later_gives_duplicates_and_in_one_transaction_it_does_not(
    buffer: str, nursery: Nursery, tmp_path: Path
) -> None:
    """Killed when the second batch's records are committed and nothing was said of its positions yet."""
    outside = prepare(tmp_path / "outside", buffer=buffer, batch=BATCH, way="positions_after")
    inside = prepare(tmp_path / "inside", buffer=buffer, batch=BATCH)
    for job in (outside, inside):
        feed(job, *range(INPUTS))
        assert nursery.run(replace(job, at="after-commit", nth=2)) == KILLED
    assert (look(outside).inputs, look(inside).inputs) == (BATCH, 2 * BATCH)
    assert look(outside).duplicates, "records that the positions do not cover"
    for job in (outside, inside):
        assert nursery.run(job) == 0
    again = look(outside)
    assert sum(topic == "copies" for topic, *_ in again.duplicates) == BATCH, "the second batch, once more"
    assert not again.losses
    assert look(inside).is_exact
    assert look(outside).inputs == look(inside).inputs == INPUTS


@pytest.mark.parametrize("buffer", BUFFERS)
def test_57_positions_first_and_records_later_loses_and_in_one_transaction_it_does_not(
    buffer: str, nursery: Nursery, tmp_path: Path
) -> None:
    """Killed when the second batch's positions are said, and none of its records is committed."""
    outside = prepare(tmp_path / "outside", buffer=buffer, batch=BATCH, way="positions_before")
    inside = prepare(tmp_path / "inside", buffer=buffer, batch=BATCH)
    feed(outside, *range(INPUTS))
    feed(inside, *range(INPUTS))
    assert nursery.run(replace(outside, at="after-commit-offsets", nth=2)) == KILLED
    assert nursery.run(replace(inside, at="after-send-offsets", nth=2)) == KILLED
    assert (look(outside).inputs, look(inside).inputs) == (2 * BATCH, BATCH)
    for job in (outside, inside):
        assert nursery.run(job) == 0
    lost = look(outside)
    assert sum(topic == "copies" for topic, *_ in lost.losses) == BATCH, "the second batch, for good"
    assert not lost.duplicates
    assert look(inside).is_exact
    assert look(outside).inputs == look(inside).inputs == INPUTS


@pytest.mark.parametrize("buffer", BUFFERS)
def test_58_a_windowed_function_that_acknowledges_what_it_received_loses_windows(
    buffer: str, nursery: Nursery, tmp_path: Path
) -> None:
    """The window is in the memory of the process that dies; what is in it was acknowledged, and does not come
    again."""
    job = windowed(tmp_path, buffer, way="windows_acknowledged")
    assert nursery.run(replace(job, at="commit-offsets/after-entry", nth=1)) == KILLED
    assert nursery.run(job) == 0
    there, must = window_sums(job)
    assert there
    assert set(must) - set(there), "windows that nobody computes any more"


@pytest.mark.parametrize("buffer", BUFFERS)
@pytest.mark.parametrize(
    "point", ["after-poll", "after-send-offsets", "commit/before-entry", "commit/after-entry"]
)
def test_58_a_windowed_function_that_commits_its_output_with_the_window_has_each_window_once(
    point: str, buffer: str, nursery: Nursery, tmp_path: Path
) -> None:
    job = windowed(tmp_path, buffer, way="windows")
    for _ in range(2):
        assert nursery.run(replace(job, at=point, nth=2)) == KILLED
    assert nursery.run(job) == 0
    there, must = window_sums(job)
    assert there == must
    assert len(must) == INPUTS // WINDOW


def windowed(folder: Path, buffer: str, way: str) -> Job:
    """Return a job over windows, whose polls do not end where windows do."""
    job = prepare(folder / "log", buffer=buffer, batch=WINDOW - 1, way=way)
    TxnLog.open(job.target).create_topic("sums", SUMS)
    feed(job, *range(INPUTS))
    return job


# --- other inputs and other roots ---------------------------------------------------------------------------


@pytest.mark.parametrize("buffer", BUFFERS)
def test_input_with_aborted_open_and_sealed_transactions(
    buffer: str, nursery: Nursery, tmp_path: Path
) -> None:
    job = prepare(tmp_path / "log", buffer=buffer, batch=3, flushes=True)
    log = TxnLog.open(job.source)
    with Producer(log, "source", buffer="inline") as source:
        for first in (0, 10, 20):
            feed(job, *range(first, first + 4))
            source.begin()
            source.send("raw", [{"n": -1}], partition=0)
            source.flush()
            source.abort()
            with source.transaction() as txn:
                txn.send("raw", [{"n": first + 5}], partition=1)
            if first < 20:
                log.maintain("seal")
        source.begin()
        source.send("raw", [{"n": 30}], partition=0)
        source.flush()
        feed(job, *range(40, 44))  # of partition 0 nobody reads these before the transaction ends
        for at in ("commit/before-entry", "commit/after-entry", "after-poll"):
            assert nursery.run(replace(job, at=at, nth=1)) == KILLED
            assert look(job).is_exact
        assert nursery.run(job) == 0
        assert look(job).inputs == 3 * 5 + 2
        assert nursery.run(replace(job, at="after-poll")) == 0, "there is nothing left to poll"
        source.commit()
    assert nursery.run(replace(job, at="commit/after-entry")) == KILLED
    assert nursery.run(job) == 0
    after = look(job)
    assert after.is_exact
    assert after.inputs == len(inputs(log)) == 3 * 5 + 5


@pytest.mark.parametrize("point", POINTS)
def test_from_one_root_to_another(point: str, nursery: Nursery, tmp_path: Path) -> None:
    """The positions are in the log of the outputs: with them, or not at all."""
    buffer = "deferred" if "flush" in point else "auto"
    job = prepare(
        tmp_path / "a",
        other=tmp_path / "b",
        buffer=buffer,
        batch=BATCH,
        flushes="flush" in point,
        embedding=not point.endswith("-data"),
    )
    feed(job, *range(INPUTS))
    entry = TxnLog.open(job.source).state.entry
    nth, done = POINTS[point]
    assert nursery.run(replace(job, at=point, nth=nth)) == KILLED
    between = look(job)
    assert between.is_exact
    assert between.inputs == done * BATCH
    assert nursery.run(job) == 0
    after = look(job)
    assert after.is_exact
    assert after.inputs == INPUTS
    assert TxnLog.open(job.source).state.entry == entry, "nothing was written where it reads"
