"""A fork: the child cannot use its parent's producers and does them no harm, and can use its logs."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.integration.clients.forked import do_in_child, finish, in_child
from tests.rounds import rounds
from txnformat.clock import SystemClock, SystemIds
from txnformat.errors import InvalidTransactionStateError
from txnformat.segments.writer import SegmentFileWriter
from txnformat.store import open as open_module
from txnformat.store import probe
from txnformat.store.base import ObjectStore
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.remote.store_time import StoreTime
from txnformat.store.s3 import client as s3_client
from txnformat.store.s3.options import S3Options
from txnformat.store.s3.store import S3Store
from txnformat.store.uploads import PART_BYTES
from txnlog import Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.faulty import FaultyStore
from txnlog_testing.stores.s3_server import moto_server
from writers import producer_ids
from writers.bulk import BulkAppend

pytestmark = [
    pytest.mark.usefixtures("frozen_garbage"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

NUMBERS = pa.schema([("n", pa.int64())])
FORKS = rounds(3, 16)


@pytest.fixture
def log(tmp_path: Path) -> TxnLog:
    log = TxnLog.create(tmp_path / "log")
    log.create_topic("t", NUMBERS)
    return log


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": numbers}, schema=NUMBERS)


def numbers(log: TxnLog) -> list[int]:
    found: list[int] = log.read("t").read_all().column("n").to_pylist()
    return found


def refuses(call: Callable[[], object]) -> None:
    with pytest.raises(InvalidTransactionStateError) as caught:
        call()
    assert caught.value.kind == "forked"
    assert "in the forked process" in str(caught.value)


def refuses_all(producer: Producer) -> None:
    for call in (producer.init, producer.begin, producer.flush, producer.commit, producer.abort):
        refuses(call)
    refuses(lambda: producer.send("t", rows(-1)))
    refuses(lambda: producer.transaction().__enter__())
    producer.close()
    producer.__exit__(None, None, None)


def test_a_new_producer_is_refused_too(log: TxnLog) -> None:
    producer = Producer(log, "p")
    do_in_child(lambda: refuses_all(producer))
    producer.init()


@pytest.mark.parametrize("buffer", ["auto", "inline", "deferred"])
def test_a_child_can_do_nothing_to_its_parents_transaction(log: TxnLog, buffer: str) -> None:
    """Nothing: no call, no close, no garbage that is collected with an open file."""
    producer = Producer(log, "p", buffer=buffer)
    producer.init()
    producer.begin()
    producer.send("t", rows(0))
    producer.flush()  # auto: to a file that stays open
    producer.send("t", rows(1))

    def child() -> None:
        refuses_all(producer)
        producer._staging._open.clear()  # as if the producer were collected
        gc.collect()

    entry = log.refresh().entry
    for _ in range(2):
        do_in_child(child)
    assert log.refresh().entry == entry
    producer.send("t", rows(2))
    producer.commit()
    assert numbers(log) == [0, 1, 2]
    producer.close()
    report = log.verify(deep=True)
    assert (report.problems, report.notes) == ((), ())


def test_a_child_does_not_flush_what_its_parent_holds(log: TxnLog) -> None:
    producer = Producer(log, linger_ms=10**9)
    producer.init()
    producer.send("t", rows(0))
    do_in_child(lambda: refuses_all(producer))
    assert numbers(log) == []
    producer.close()
    assert numbers(log) == [0]


def test_a_bulk_append_is_its_makers(log: TxnLog) -> None:
    append = BulkAppend(log)
    append.send("t", rows(0))
    append._staging.stream_all()  # a file is open

    def child() -> None:
        refuses(lambda: append.send("t", rows(1)))
        refuses(append.commit)
        append.close()

    do_in_child(child)
    append.commit()
    assert numbers(log) == [0]


LEAVES = """
import os, signal, sys
import pyarrow as pa
from txnlog import Producer, TxnLog

log = TxnLog.open(sys.argv[1])
with Producer(log, "p") as producer, producer.transaction() as transaction:
    transaction.send("t", pa.table({"n": [0]}))
    transaction.flush()
    child = os.fork()
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        transaction.send("t", pa.table({"n": [1]}))
    else:
        signal.alarm(100)
        sys.exit(0)  # through the with statements and the end of the interpreter
print(log.read("t").read_all().column("n").to_pylist())
"""


def test_a_child_that_leaves_through_the_with_statement_ends_nothing(log: TxnLog, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", LEAVES, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert (done.stdout, done.stderr) == ("[0, 1]\n", "")
    assert not log.verify(deep=True).notes


def test_a_child_hands_out_ids_of_its_own(log: TxnLog) -> None:
    before, after = Producer(log), Producer(log)
    before.init()
    reading, writing = os.pipe()

    def child() -> None:
        mine = [Producer(log) for _ in range(3)]
        for producer in mine:
            producer.init()
        os.write(writing, b" ".join(str(producer.producer_id).encode() for producer in mine))

    do_in_child(child)
    os.close(writing)
    after.init()
    with os.fdopen(reading) as pipe:
        given = [int(word) for word in pipe.read().split()]
    assert given == [1000, 1001, 1002]
    assert (before.producer_id, after.producer_id) == (0, 1)


def _work(log: TxnLog, producer: Producer, number: int) -> None:
    refuses_all(producer)
    with Producer(log, f"child-{number}") as own, own.transaction() as transaction:
        transaction.send("t", rows(number))


def test_processes_of_multiprocessing_share_a_log(log: TxnLog) -> None:
    with Producer(log, "p") as producer, producer.transaction() as transaction:
        transaction.send("t", rows(0))
        context = multiprocessing.get_context("fork")
        children = [context.Process(target=_work, args=(log, producer, number)) for number in (1, 2)]
        for child in children:
            child.start()
        for child in children:
            child.join(300)
            child.kill()
        assert [child.exitcode for child in children] == [0, 0]
    assert sorted(numbers(log)) == [0, 1, 2]


def test_a_child_waits_for_no_lock_of_its_parents_threads(tmp_path: Path) -> None:
    """A thread of the parent is in the middle of a commit, with every lock that it takes, when the child
    begins."""
    parent = os.getpid()
    arrived, go_on = threading.Event(), threading.Event()
    armed = threading.Event()

    def hold(key: str) -> None:
        if armed.is_set() and os.getpid() == parent and "/log/" in key:
            arrived.set()
            go_on.wait(300)

    log = TxnLog.create(FaultyStore(LocalStore(str(tmp_path / "log")), before_create=hold))
    log.create_topic("t", NUMBERS)
    producer = Producer(log, "p")
    producer.init()
    producer.begin()
    producer.send("t", rows(0))
    armed.set()
    thread = threading.Thread(target=producer.commit)
    thread.start()
    try:
        assert arrived.wait(300)
        finish(in_child(lambda: _work(log, producer, 1)))
    finally:
        go_on.set()
        thread.join()
    assert numbers(log) == [1, 0]


def test_no_lock_stays_locked_in_a_child(tmp_path: Path) -> None:
    """The parent's threads held all of them at the time of the fork."""
    store = CountingStore(LocalStore(str(tmp_path / "log")))
    log = TxnLog.create(store)
    log.create_topic("t", NUMBERS)
    with Producer(log) as producer:
        producer.send("t", rows(0))
    log.maintain("seal")
    memory = MemoryStore()
    time = StoreTime(SystemClock())
    locks = [
        log.committer._publishing, log.committer.counter._lock, log.sidecars._lock,
        store._lock, memory._lock, time._lock, probe._lock, open_module._memory_lock, producer_ids._blocks_lock,
        s3_client._lock,
    ]  # fmt: skip

    def child() -> None:
        with Producer(log) as own:
            own.send("t", rows(1))
        assert numbers(log) == [0, 1]
        memory.put("a", b"")
        open_module.open_store("memory://a")
        time.learn(time.now(), "Thu, 01 Jan 1970 00:00:00 GMT")
        probe.require_fit(store, SystemIds())
        s3_client.connection(S3Options.parse({}))

    with contextlib.ExitStack() as held:
        for lock in locks:
            held.enter_context(lock)
        do_in_child(child)
    assert numbers(log) == [0, 1]


@pytest.mark.parametrize("place", ["local", "s3"])
def test_a_child_that_drops_an_upload_leaves_it_whole(place: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        store: ObjectStore = LocalStore(str(tmp_path))
        if place == "s3":
            server = stack.enter_context(moto_server())
            store = S3Store(server.url("log"), server.storage_options)
        upload = store.open_write("x")
        upload.write(bytes(PART_BYTES + 1))  # a part is on its way
        upload.write(b"1")
        do_in_child(upload.abort)
        upload.write(b"2")
        upload.close()
        assert store.get("x") == bytes(PART_BYTES + 1) + b"12"


def test_a_child_that_drops_a_file_in_the_making_writes_no_footer(tmp_path: Path) -> None:
    """pyarrow ends a file by itself when its writer is collected; here with a footer that is passed on at
    once."""
    store = LocalStore(str(tmp_path))
    schema = pa.schema([("n" * 300_000, pa.int64())])
    files = [SegmentFileWriter(store.open_write("x"), "x", schema)]
    files[0].write_batch(0, pa.table([[1]], schema=schema))

    do_in_child(files.clear)
    record = files[0].close()
    data = store.get("x")
    assert data is not None
    assert (len(data), hashlib.sha256(data).hexdigest()) == (record.size, record.sha256)


def test_children_that_begin_at_any_moment_of_a_commit_work(log: TxnLog) -> None:
    """Many forks beside a thread that commits, reads and measures without a break."""
    stop = threading.Event()
    done: list[int] = []

    def write() -> None:
        with Producer(log, "busy") as producer:
            while not stop.is_set():
                with producer.transaction() as transaction:
                    transaction.send("t", rows(-1))
                assert transaction.info is not None
                log.read("t", start=transaction.info.offsets["t", 0]).read_all()  # not all: it grows
                log.metrics()
                done.append(1)

    def child(number: int) -> None:
        log.refresh()
        with Producer(log, f"c{number}") as producer, producer.transaction() as transaction:
            transaction.send("t", rows(number))
        assert transaction.info is not None
        found = log.read("t", start=transaction.info.offsets["t", 0]).read_all()
        assert found.column("n").to_pylist()[0] == number

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for number in range(FORKS):
            do_in_child(lambda number=number: child(number))  # type: ignore[misc]
    finally:
        stop.set()
        thread.join()
    found = numbers(log)
    assert sorted(n for n in found if n >= 0) == list(range(FORKS))
    assert found.count(-1) == len(done) > 0


def test_a_child_has_s3_sessions_of_its_own_and_leaves_an_upload_alone() -> None:
    """The parent's upload is in parts already, and goes on after the child has ended."""
    with moto_server() as server:
        log = TxnLog.create(server.url("log"), storage_options=server.storage_options)
        log.create_topic("t", NUMBERS)
        producer = Producer(log, "p", batch_bytes=2**20, buffer_bytes=2**21)
        producer.init()
        producer.begin()
        count = 0
        while not _parts(producer):
            producer.send("t", pa.table({"n": pa.array(range(count, count + 200_000))}))
            count += 200_000
        do_in_child(lambda: _work(log, producer, -1))
        producer.send("t", rows(count))
        producer.commit()
        assert numbers(log) == [-1, *range(count + 1)]
        log.close()


def _parts(producer: Producer) -> int:
    """Return how many parts of an upload the store has."""
    return sum(
        opened.upload._writer is not None and opened.upload._writer._out._inner._number  # type: ignore[attr-defined]
        for opened in producer._staging._open.values()
    )
