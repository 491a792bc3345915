"""Two workers of one group at once, one of which stood still (SIGSTOP) while the other worked: what it then
does is refused.

And what a worker costs.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.killing.etl import Job, copies, create_topics, parts
from tests.killing.outside import feed, glance, look, prepare
from tests.killing.workers import FENCED, REFUSED, TIMED_OUT, Nursery, Worker
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import Consumer, Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore, RequestClass

BUFFERS = ("auto", "inline", "deferred")
INPUTS = 16
BATCH = 4


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


def asleep(nursery: Nursery, job: Job, point: str, nth: int = 2) -> Worker:
    """Start a worker, and wait until it stands still at a point."""
    worker = nursery.start(replace(job, at=point, nth=nth, stops=True))
    assert worker.status(waits=True).is_stopped
    return worker


def wake(worker: Worker) -> int:
    """Let it go on, and wait for its end."""
    worker.send_signal(signal.SIGCONT)
    return worker.end()


SAME_ID = [
    *(
        (point, buffer)
        for point in ("after-poll", "after-first-send", "after-send-offsets")
        for buffer in BUFFERS
    ),
    ("after-flush-offsets", "auto"),
    ("flush-offsets/after-entry", "inline"),
    ("flush-offsets/after-entry", "deferred"),
    ("commit/before-entry", "auto"),
]


@pytest.mark.parametrize(("point", "buffer"), SAME_ID)
def test_a_zombie_of_the_same_transactional_id_is_fenced(
    point: str, buffer: str, nursery: Nursery, tmp_path: Path
) -> None:
    job = prepare(tmp_path / "log", buffer=buffer, batch=BATCH, flushes="flush" in point)
    feed(job, *range(INPUTS))
    zombie = asleep(nursery, job, point)
    assert nursery.run(job) == 0
    whole = look(job)
    assert whole.is_exact
    assert whole.inputs == INPUTS
    assert wake(zombie) in (FENCED, REFUSED)
    assert look(job) == whole, "it wrote nothing that anybody sees"


@pytest.mark.parametrize(
    ("point", "buffer", "assigns"),
    [
        ("after-poll", "auto", False),
        ("after-first-send", "inline", False),
        ("after-send-offsets", "deferred", False),
        ("after-poll", "auto", True),
        ("after-first-send", "inline", True),
        ("after-send-offsets", "deferred", True),
        ("commit/before-entry", "auto", True),
    ],
)
def test_a_zombie_under_another_transactional_id_finds_other_positions_than_it_read_from(
    point: str, buffer: str, assigns: bool, nursery: Nursery, tmp_path: Path
) -> None:
    """As a member it is fenced by generation; without members the compared positions say it."""
    job = prepare(tmp_path / "log", buffer=buffer, batch=BATCH, assigns=assigns)
    feed(job, *range(INPUTS))
    zombie = asleep(nursery, job, point)
    assert nursery.run(replace(job, transactional_id="successor")) == 0
    whole = look(job)
    assert whole.is_exact
    assert whole.inputs == INPUTS
    assert wake(zombie) == REFUSED
    assert look(job) == whole


@pytest.mark.parametrize("buffer", ["inline", "deferred"])
def test_while_a_zombies_transaction_holds_positions_its_successor_waits_for_its_end(
    buffer: str, nursery: Nursery, tmp_path: Path
) -> None:
    """Under another transactional id nobody ends it but its timeout, or itself; under its own the successor
    does."""
    job = prepare(tmp_path / "log", buffer=buffer, batch=BATCH, flushes=True)
    feed(job, *range(INPUTS))
    zombie = asleep(nursery, job, "flush-offsets/after-entry")
    other = replace(job, transactional_id="successor")
    assert nursery.run(other) == REFUSED
    assert glance(job).inputs == BATCH
    successor = nursery.start(job)
    assert successor.end() == 0
    assert wake(zombie) in (FENCED, REFUSED)
    whole = look(job)
    assert whole.is_exact
    assert whole.inputs == INPUTS
    assert nursery.run(other) == 0
    assert look(job) == whole


@pytest.mark.parametrize("assigns", [False, True])
@pytest.mark.parametrize("buffer", ["inline", "deferred"])
def test_a_zombie_whose_time_is_over_is_told_so_and_keeps_its_successor_no_longer(
    buffer: str, assigns: bool, nursery: Nursery, tmp_path: Path
) -> None:
    job = prepare(tmp_path / "log", buffer=buffer, batch=BATCH, flushes=True, assigns=assigns)
    feed(job, *range(INPUTS))
    zombie = asleep(nursery, replace(job, timeout_ms=1_500), "flush-offsets/after-entry")
    assert nursery.run(replace(job, transactional_id="successor", pending_ms=30_000)) == 0
    whole = look(job)
    assert whole.is_exact
    assert whole.inputs == INPUTS
    assert wake(zombie) == TIMED_OUT
    assert look(job) == whole


# --- what it costs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("embed_bytes", [0, 65_536])
def test_a_loop_costs_an_entry_a_batch_and_an_object_a_topic_that_is_not_embedded(embed_bytes: int) -> None:
    store = CountingStore(MemoryStore())
    log = TxnLog.create(store)
    create_topics(log, log)
    with Producer(log) as source:
        for _ in range(3):
            source.send("raw", [{"n": 5}], partition=0)
            source.flush()
    with (
        Producer(log, "etl", embed_bytes=embed_bytes) as producer,
        Consumer(log, "etl", max_poll_records=1) as consumer,
    ):
        with store.measure() as joining:
            consumer.subscribe(["raw"])
        assert joining.counts.count(RequestKind.CREATE, KeyClass.ENTRY) == 1
        while (rows := consumer.poll_dicts(timeout_ms=0)) != []:
            with store.measure() as one, producer.transaction() as txn:
                txn.send("copies", copies(rows))
                txn.send("parts", parts(rows))
                txn.send_offsets(consumer)
            files = {} if embed_bytes else {RequestClass(RequestKind.OPEN_WRITE, KeyClass.DATA): 2}
            assert dict(one.counts.requests) == files | {RequestClass(RequestKind.CREATE, KeyClass.ENTRY): 1}
        with store.measure() as leaving:
            consumer.close()
        assert dict(leaving.counts.requests) == {RequestClass(RequestKind.CREATE, KeyClass.ENTRY): 1}
