"""What PIP-31 demands of a transaction buffer, over every buffer: durable, exactly once, invisible; and what
follows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from tests.conformance.cases import ROOT
from tests.conformance.chain import Chain
from tests.conformance.pulsar import (
    AT_COMMIT,
    BUFFERS,
    NUMBERS,
    again,
    new_log,
    opened,
    plain,
    read,
    send,
    stable,
)
from tests.integration.clients.failing import Plan, faulty, unclear_commit
from txnformat.core.entry import decode_entry
from txnformat.core.intents import Done
from txnformat.core.operations import Append, EndTxn
from txnformat.keys import entry_key
from txnformat.reading.sealed import SidecarCache
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnformat.types import OffsetRange, TopicPartition
from txnlog import CommitStateUnknownError, Producer, ProducerFencedError, StorageError, TxnLog
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore, SimulatedCrash
from writers.settings import Buffer

# --- (a) messages that were appended survive a crash --------------------------------------------------------

CHILD = """
import signal, sys
from txnlog import Producer, TxnLog
producer = Producer(TxnLog.open(sys.argv[1]), "p", buffer=sys.argv[2])
producer.init()
for n in range(3):
    producer.begin()
    producer.send("t", [{"n": n}])
    producer.commit()
producer.begin()
producer.send("t", [{"n": 3}])
producer.flush()
print("flushed", flush=True)
signal.pause()
"""


@BUFFERS
def test_what_was_answered_survives_a_killed_process(tmp_path: Path, buffer: Buffer) -> None:
    """Commits, and flushes that the log was told of; no step of recovery is needed to have them."""
    root = tmp_path / "log"
    before = new_log(LocalStore(root)).refresh().entry
    command = [sys.executable, "-c", CHILD, str(root), buffer]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "flushed\n"
        process.send_signal(signal.SIGKILL)
    log = TxnLog.open(root)
    assert read(log) == [0, 1, 2]
    flushes = 0 if buffer is Buffer.AUTO else 1  # there the log is told at the commit
    assert log.state.entry == before + 1 + 3 + flushes, "the init, three commits, the flush"
    if buffer is Buffer.INLINE:
        assert read(log, "read_uncommitted") == [0, 1, 2, 3]
        assert (stable(log), log.outcome("p", 3).outcome) == (6, None)
    with Producer(log, "p", buffer=buffer) as successor, successor.transaction() as txn:
        txn.send("t", [{"n": 4}])
    assert read(TxnLog.open(root)) == [0, 1, 2, 4]
    assert log.verify(deep=True).ok


@BUFFERS
@pytest.mark.parametrize("kind", [FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER])
def test_a_crash_at_any_request_leaves_all_of_a_transaction_over_topics_or_nothing(
    buffer: Buffer, kind: FaultKind
) -> None:
    """Two topics, two partitions each, two flushes: whichever request is the last, no reader ever sees a part
    of it."""
    crashes = 0
    while True:
        store = MemoryStore()
        TxnLog.create(store).create_topic("t", NUMBERS, partitions=2)
        TxnLog.open(store).create_topic("u", NUMBERS, partitions=2)
        left = [crashes]

        def crash(operation: RequestKind, key: str, nth: int, left: list[int] = left) -> Fault | None:
            left[0] -= 1
            return Fault(kind) if left[0] == -1 else None

        crashed = False
        try:
            log = TxnLog.open(FaultyStore(store, crash))
            producer = opened(log, "p", buffer)
            for n in range(2):
                for topic in ("t", "u"):
                    for partition in range(2):
                        producer.send(topic, [{"n": n}], partition=partition)
                producer.flush()
            producer.commit()
            log.close()
        except SimulatedCrash:
            crashed = True
        found = TxnLog.open(store)
        seen = sorted(n for topic in ("t", "u") for n in found.read(topic).read_all().column("n").to_pylist())
        assert seen in ([], [0, 0, 0, 0, 1, 1, 1, 1]), crashes
        with Producer(found, "p", buffer=buffer) as successor, successor.transaction() as txn:
            txn.send("t", [{"n": 9}])
        if not crashed:
            assert seen
            break
        crashes += 1
    assert crashes > 8


# --- (b) repeated appends are there once --------------------------------------------------------------------


@BUFFERS
@pytest.mark.parametrize(
    "kind", [FaultKind.APPLIED_LOST_ANSWER, FaultKind.FAIL_BEFORE, FaultKind.CONFLICT_409]
)
def test_an_append_that_is_repeated_is_there_once(buffer: Buffer, kind: FaultKind) -> None:
    """Whichever call has no answer, and whether or not it had landed: the same call again, and each message
    once."""
    for failing in range(4):
        plan = Plan()
        log = faulty(plan)
        producer = opened(log, "p", buffer)

        def call(step: int, producer: Producer = producer) -> None:
            if step < 3:
                producer.flush()
            else:
                producer.commit()

        for step in range(4):
            if step < 3:
                producer.send("t", [{"n": step}])
            if step == failing:
                unclear_commit(plan, kind)
                try:
                    call(step)
                except (CommitStateUnknownError, StorageError):
                    plan.clear()
                    call(step)
                plan.clear()
            else:
                call(step)
        assert read(log) == [0, 1, 2], failing
        counted = Counter(read(log, "read_uncommitted"))
        assert set(counted.values()) == {1}


def test_an_append_is_known_by_its_transaction_and_sequence_whoever_sends_it_again() -> None:
    """Not by the call that sent it: another process, that knows nothing of the first attempt, gets its
    offsets."""
    chain = Chain("p")
    producer = chain.producer("p")
    plain_end = chain.send(None, 3) + 3
    first = chain.write(producer, 2, content="first")
    chain.do(first, chain.write(producer, 1, content="second"))
    for sequence, records, content in ((0, 2, "first"), (2, 1, "second")):
        again_sent = chain.write(producer, records, sequence=sequence, content=content)
        verdict = chain.decide(again_sent)
        assert isinstance(verdict, Done)
        assert verdict.offsets is not None
        assert list(verdict.offsets.values()) == [plain_end + sequence]
    assert chain.partition().log_end == 6


@BUFFERS
def test_a_message_that_two_transactions_of_one_id_send_is_of_the_one_that_committed(buffer: Buffer) -> None:
    """Deduplication by transaction: what an aborted attempt sent is not taken for a repeat, and is not there
    either."""
    log = new_log()
    producer = opened(log, "p", buffer)
    send(producer, 1, 2)
    producer.abort()
    producer.begin()
    send(producer, 1, 2)
    producer.commit()
    assert read(log) == [1, 2]
    assert producer.epoch is not None
    assert log.outcome("p", producer.epoch - 1).outcome == "commit"


# --- (c) nothing is visible before the commit ---------------------------------------------------------------


@BUFFERS
def test_nothing_is_visible_before_the_commit_and_nothing_ever_after_an_abort(buffer: Buffer) -> None:
    """To no reader of committed records: new, already open, with a condition, of a range, through a
    data set.
    """
    log = new_log()
    plain(log, 0)
    reader = again(log)
    producer = opened(log, "p", buffer)

    def seen() -> list[list[int]]:
        return [
            read(log),
            reader.read("t").read_all().column("n").to_pylist(),
            reader.read("t", where="n > 0").read_all().column("n").to_pylist(),
            reader.dataset("t").to_table().column("n").to_pylist(),
        ]

    for n in range(1, 4):
        send(producer, n)
        assert seen() == [[0], [0], [], [0]]
    producer.abort()
    assert seen() == [[0], [0], [], [0]]
    producer.begin()
    send(producer, 4)
    assert seen() == [[0], [0], [], [0]]
    producer.commit()
    assert seen() == [[0, 4], [0, 4], [4], [0, 4]]


# --- the marker, and what it points to ----------------------------------------------------------------------


@BUFFERS
def test_every_message_of_a_transaction_points_to_its_commit_and_is_found_from_it(buffer: Buffer) -> None:
    """The commit's entry is that of all its messages, whatever lies between them; so a transaction can be
    read whole.

    PIP-31 promises no consumer that he gets the messages of one transaction together. Here their commit entry
    says which they are, over topics and partitions.
    """
    log = new_log(partitions=2)
    log.create_topic("u", NUMBERS)
    one, two = opened(log, "one", buffer), opened(log, "two", buffer)
    for n in range(4):
        send(one if n % 2 else two, n, partition=n // 2)
        plain(log, 100 + n)
    one.send("u", [{"n": 5}])
    entry = one.commit().entry
    two.commit()
    for _ in ("as appended", "sealed"):
        found: dict[int, set[tuple[str, int]]] = {}
        for topic in ("t", "u"):
            rows = (
                again(log).read(topic, columns=["n", "_commit_entry", "_producer_id"]).read_all().to_pylist()
            )
            for row in rows:
                found.setdefault(row["_commit_entry"], set()).add((topic, row["n"]))
        assert found[entry or 0] == {("t", 1), ("t", 3), ("u", 5)}
        assert {frozenset(each) for each in found.values() if len(each) == 2} == {
            frozenset({("t", 0), ("t", 2)})
        }
        log.maintain("seal")
    assert entry is not None
    data = log.store.get(entry_key(entry))
    assert data is not None
    (end,) = [each for each in decode_entry(data, entry).operations if isinstance(each, EndTxn)]
    assert {(marker.topic_id, marker.partition) for marker in end.markers} == {
        (log.state.topic("t").topic_id, 0),
        (log.state.topic("t").topic_id, 1),
        (log.state.topic("u").topic_id, 0),
    }


@BUFFERS
def test_the_messages_of_a_transaction_are_found_from_its_name(buffer: Buffer) -> None:
    """(producer id, epoch) is in the metadata of every message, so an index from transaction to messages is a
    query."""
    log = new_log()
    producer = opened(log, "one", buffer)
    for first in (0, 10):
        send(producer, first, first + 1)
        plain(log, first + 5)
        producer.commit()
        producer.begin()
    columns = ["n", "_producer_id", "_producer_epoch"]
    for _ in ("as appended", "sealed"):
        rows = again(log).read("t", columns=columns).read_all().to_pylist()
        by_name: dict[tuple[int, int], list[int]] = {}
        for row in rows:
            by_name.setdefault((row["_producer_id"], row["_producer_epoch"]), []).append(row["n"])
        assert producer.producer_id is not None
        assert by_name[producer.producer_id, 0] == [0, 1]
        assert by_name[producer.producer_id, 1] == [10, 11]
        log.maintain("seal")


def test_metadata_tell_messages_of_transactions_from_others_and_from_markers() -> None:
    log = new_log()
    plain(log, 1)
    producer = opened(log, "one")
    send(producer, 2)
    producer.commit()
    state = log.refresh()
    partition = state.partition(TopicPartition(state.topic("t").topic_id, 0))
    extents, markers = partition.extents.array(), partition.markers.array()
    assert extents["transactional"].tolist() == [0, 1]
    assert [(int(row["offset"]), int(row["commit"])) for row in markers] == [(2, 1)]
    assert read(log, "read_uncommitted") == [1, 2], "no reader gets a marker"
    offsets = log.read("t", columns=["_offset"]).read_all().column(0).to_pylist()
    assert offsets == [0, 1]


def test_the_marker_fences_what_comes_later_of_its_transaction() -> None:
    """A process that hangs before its append, and wakes up after somebody else has ended the transaction."""
    log = new_log()
    hanging = opened(log, "one")
    send(hanging, 1)
    hanging.send("t", [{"n": 2}])
    opened(again(log), "one").close()
    with pytest.raises(ProducerFencedError):
        hanging.flush()
    plain(log, 3)
    assert read(log) == [3]
    assert read(log, "read_uncommitted") == [1, 3]


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_markers_outlive_the_state_that_they_came_from(outcome: str) -> None:
    """Sealed, the marker's offset stays taken and its row is in the sidecar, also of a segment with nothing
    committed."""
    log = new_log()
    producer = opened(log, "one")
    send(producer, 1)
    getattr(producer, outcome)()
    log.maintain("seal")
    plain(log, 2)
    offsets = again(log).read("t", columns=["_offset"]).read_all().column(0).to_pylist()
    assert offsets == ([0, 2] if outcome == "commit" else [2]), "offset 1 is never given again"
    state = log.state
    key = TopicPartition(state.topic("t").topic_id, 0)
    assert len(state.partition(key).markers) == 0
    (part,) = SidecarCache(log.store).segments(state, key, OffsetRange(0, 2))
    assert part.record.markers is not None
    assert int(part.row["markers"]) == 1


# --- space --------------------------------------------------------------------------------------------------


@AT_COMMIT
def test_an_abort_beside_the_partition_leaves_nothing_that_readers_or_the_state_have_to_keep(
    buffer: Buffer,
) -> None:
    """No offset, no extent, no file that the log names: what is left are files that a vacuum deletes."""
    log = new_log()
    plain(log, 0)
    before = log.refresh()
    producer = opened(log, "one", buffer)
    send(producer, *range(20))
    producer.abort()
    after = log.refresh()
    key = TopicPartition(after.topic("t").topic_id, 0)
    assert after.partition(key) == before.partition(key)
    assert (after.extents, len(after.files), len(after.tables)) == (
        before.extents,
        len(before.files),
        len(before.tables),
    )
    assert log.metrics().partitions[0].aborted_bytes == 0


def test_an_inline_abort_leaves_bytes_that_metrics_show_and_no_reader_fetches() -> None:
    """Its space comes back with compaction; until then nobody who reads committed records asks for it."""
    log = new_log(CountingStore(MemoryStore()))
    producer = opened(log, "one")
    send(producer, *range(20))
    producer.abort()
    (measured,) = log.metrics().partitions
    assert (measured.records, measured.aborted_records) == (20, 20)
    assert measured.aborted_bytes > 0
    reader = again(log)
    assert isinstance(log.store, CountingStore)
    with log.store.measure() as counted:
        assert reader.read("t").read_all().num_rows == 0
    assert counted.counts.count(key_class=KeyClass.DATA) == 0


@AT_COMMIT
def test_plain_traffic_does_not_notice_transactions_beside_the_partition(buffer: Buffer) -> None:
    """Offsets and the last stable offset of plain messages are those of a log without any open
    transaction.
    """
    alone, shared = new_log(), new_log()
    waiting = opened(shared, "waiting", buffer)
    aborted = opened(shared, "aborted", buffer)
    for n in range(5):
        send(waiting, 100 + n)
        send(aborted, 200 + n)
        for log in (alone, shared):
            plain(log, n)
        assert read(alone) == read(shared)
        assert stable(alone) == stable(shared) == n + 1
    aborted.abort()
    assert read(alone) == read(shared)


# --- use cases ----------------------------------------------------------------------------------------------

CHUNKS = pa.schema(
    [("message", pa.int64()), ("chunk", pa.int32()), ("of", pa.int32()), ("data", pa.binary())]
)


@BUFFERS
def test_a_message_above_any_limit_is_sent_as_chunks_of_one_transaction(buffer: Buffer) -> None:
    """Through buffers a hundredth of its size; a reader has all chunks or none, in order, also beside another
    message."""
    log = new_log()
    log.create_topic("chunks", CHUNKS)
    content = bytes(range(256)) * 4_096  # 1 MiB
    size = 65_536
    pieces = [content[start : start + size] for start in range(0, len(content), size)]
    producers = [
        opened(log, f"p{message}", buffer, batch_bytes=1_024, buffer_bytes=8_192) for message in range(3)
    ]
    for chunk, data in enumerate(pieces):
        for message, producer in enumerate(producers):
            row = {"message": message, "chunk": chunk, "of": len(pieces), "data": data}
            producer.send("chunks", [row])
        assert again(log).read("chunks").read_all().num_rows == 0
    producers[0].commit()
    producers[1].abort()
    producers[2].commit()
    found = again(log).read("chunks").read_all().to_pylist()
    for message in (0, 2):
        mine = [row for row in found if row["message"] == message]
        assert [row["chunk"] for row in mine] == list(range(len(pieces)))
        assert b"".join(row["data"] for row in mine) == content
    assert {row["message"] for row in found} == {0, 2}


@BUFFERS
def test_a_source_transaction_over_several_tables_is_captured_as_one(buffer: Buffer) -> None:
    """Change capture: the rows of each source transaction in a topic per table, and its position in a third,
    in one step.

    The captured position is read back after a crash; what follows it is sent again, and nothing is there
    twice.
    """
    log = new_log()
    for topic in ("accounts", "transfers", "position"):
        log.create_topic(topic, NUMBERS)
    source = [[n, n + 100] for n in range(6)]  # each changes an account and adds a transfer

    def capture(crash_at: int | None) -> None:
        at = again(log)
        done = at.read("position").read_all().column("n").to_pylist()
        producer = opened(at, "capture", buffer)
        for number in range(max(done, default=-1) + 1, len(source)):
            producer.send("accounts", [{"n": source[number][0]}])
            producer.flush()
            producer.send("transfers", [{"n": source[number][1]}])
            producer.send("position", [{"n": number}])
            if number == crash_at:
                producer.flush()
                return  # the process is gone; its transaction is open
            producer.commit()
            producer.begin()

    capture(crash_at=3)
    capture(crash_at=4)
    capture(crash_at=None)
    tables = {
        topic: again(log).read(topic, columns=["n", "_commit_entry"]).read_all()
        for topic in ("accounts", "transfers", "position")
    }
    assert tables["accounts"].column("n").to_pylist() == list(range(6))
    assert tables["transfers"].column("n").to_pylist() == list(range(100, 106))
    entries = [table.column("_commit_entry").to_pylist() for table in tables.values()]
    assert entries[0] == entries[1] == entries[2], "each source transaction is one entry"


def test_an_append_names_its_transaction_in_the_entry_that_gives_offsets() -> None:
    """Nothing is logged before the first flush, and its entry has id, epoch and offsets at once."""
    log = new_log()
    producer = opened(log, "one")
    before = log.refresh().entry
    producer.send("t", [{"n": 1}])
    assert log.refresh().entry == before
    producer.flush()
    data = log.store.get(entry_key(before + 1))
    assert data is not None
    (append,) = decode_entry(data, before + 1).operations
    assert isinstance(append, Append)
    assert (append.transactional_id, append.producer_id, append.epoch) == ("one", 0, 0)
    assert log.outcome("one", 0).outcome is None
