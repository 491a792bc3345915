"""Verification of sealed segments: sidecars whose hashes fit, and which are wrong all the same."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from tests.integration.upkeep.checkpoints import take_snapshot
from txnformat import keys
from txnformat.core.entry import sha256_hex
from txnformat.core.sealing.sidecar import decode_index, decode_markers, encode_index, encode_markers
from txnformat.core.wire.document import plain_text
from txnformat.errors import CorruptDataError
from txnformat.persistent import Rows
from txnformat.store.memory import MemoryStore
from txnformat.types import ObjectRecord
from txnformat.verify.log import verify_log
from txnlog import Producer, TxnLog, VerifyReport
from txnlog_testing.entries import changed_entry

NUMBERS = pa.schema([("n", pa.int64())])


def turn(producer: Producer, end: str) -> None:
    producer.begin()
    for first in (0, 10):
        producer.send("t", pa.table({"n": [first, first + 1]}, schema=NUMBERS))
        producer.flush()
    getattr(producer, end)()


def build(store: MemoryStore, segments: int = 1) -> TxnLog:
    """Make a log of one partition that is sealed, with an aborted transaction over each end of a segment."""
    log = TxnLog.create(store, embedding=False)
    log.create_topic("t", NUMBERS)
    inline, holder = Producer(log, "inline", buffer="inline"), Producer(log, "held", buffer="inline")
    inline.init()
    holder.init()
    for number in range(segments):
        for end in ("commit", "abort"):
            turn(inline, end)
        holder.begin()
        holder.send("t", pa.table({"n": [77 + number]}, schema=NUMBERS))
        holder.flush()
        turn(inline, "commit")
        log.maintain("seal")  # up to where the transaction is open
        holder.abort()
        turn(inline, "abort")
    with Producer(log, "many", batch_bytes=1) as many, many.transaction() as transaction:
        for index in range(1_001):
            transaction.send("t", pa.table({"n": [index]}, schema=NUMBERS))
    log.maintain("seal")
    turn(inline, "commit")
    log.close()  # a snapshot that is due after 100 entries has been named
    return log


def kinds(report: VerifyReport) -> set[tuple[str, str]]:
    return {(problem.kind.value, problem.object) for problem in report.problems}


@pytest.mark.parametrize("deep", [False, True])
def test_a_sealed_log_has_no_problem(deep: bool) -> None:
    store = MemoryStore()
    build(store, 4)
    report = verify_log(store, deep=deep)
    assert report.problems == ()
    assert report.notes == ()
    assert report.checked["sidecars"] == 5 * 3


def test_a_log_with_segment_lists_has_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txnformat.protocol.sealing.LISTED_ROWS", 2)
    store = MemoryStore()
    log = build(store, 6)
    report = verify_log(store)
    assert report.problems == ()
    assert report.notes == ()
    assert report.checked["segment_lists"] >= 2
    named = log.refresh().segment_lists[0]
    data = store.get(named.key)
    assert data is not None
    store.put(named.key, data[:-1] + b"?")
    assert kinds(verify_log(store)) == {("wrong-hash", named.key)}
    store.delete(named.key)
    assert kinds(verify_log(store)) == {("missing", named.key)}


def test_segments_of_deleted_entries_are_learned_from_the_snapshot_and_the_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("txnformat.protocol.sealing.LISTED_ROWS", 2)
    store = MemoryStore()
    log = build(store, 4)
    for _ in range(2):
        take_snapshot(log)
    state = log.refresh()
    boundary = state.checkpoints[0].entry
    for number in range(boundary):
        store.delete(keys.entry_key(number))
    store.create(keys.boundary_key(boundary), b"{}")
    report = verify_log(store, deep=True)
    assert report.problems == ()
    assert report.checked["sidecars"] == 5 * 3
    # The batch table and the older list are needed by deleted entries only: for the vacuum.
    assert [note.kind for note in report.notes] == ["orphans", "deleted-entries"]
    assert all(key.startswith(keys.TABLE_PREFIX) for key in report.notes[0].examples)
    files = [info.key for info in store.list("t-") if keys.parse_data_key(info.key)]
    assert report.checked["files"] == len(files)
    store.delete(files[0])
    assert kinds(verify_log(store)) == {("missing", files[0])}


# --- a sealer with a defect ---------------------------------------------------------------------------------


def reseal(store: MemoryStore, which: int, kind: str, change: Callable[[bytes, ObjectRecord], bytes]) -> str:
    """Change a sidecar of the ``which``-th seal, and name the new one in an entry, and chain all later ones
    anew."""
    log = TxnLog.open(store)
    slots = [info.key for info in store.list(keys.LOG_PREFIX)]
    entries = list(log.history())[::-1]
    number = [entry.entry for entry in entries if entry.operations == ("seal",)][which]
    key, previous = "", ""
    for slot in range(number, len(slots)):
        data = store.get(keys.entry_key(slot))
        assert data is not None
        if slot == number:
            document = msgspec.json.decode(plain_text(data, name="entry", stored=len(data)))
            named = document["operations"][0]["segments"][0][kind]
            key = named["key"]
            old = store.get(key)
            assert old is not None
            new = change(old, ObjectRecord(**named))
            named.update(size=len(new), sha256=sha256_hex(new))
            store.put(key, new)
            written = changed_entry(data, operator.methodcaller("update", operations=document["operations"]))
        else:
            written = changed_entry(data, operator.methodcaller("update", previous=previous))
        store.put(keys.entry_key(slot), written)
        previous = sha256_hex(written)
    return key


def in_index(field: str, value: int, row: int = 0) -> Callable[[bytes, ObjectRecord], bytes]:
    def change(data: bytes, named: ObjectRecord) -> bytes:
        index = decode_index(data, named)
        rows: Rows = index.rows.copy()
        rows[field][row] = value
        return encode_index(rows, index.files)

    return change


def in_markers(field: str, value: int) -> Callable[[bytes, ObjectRecord], bytes]:
    def change(data: bytes, named: ObjectRecord) -> bytes:
        rows = decode_markers(data, named).copy()
        rows[field][-1] = value
        return encode_markers(rows)

    return change


def fewer_rows(data: bytes, named: ObjectRecord) -> bytes:
    index = decode_index(data, named)
    return encode_index(index.rows[:-1], index.files)


def other_file(data: bytes, named: ObjectRecord) -> bytes:
    index = decode_index(data, named)
    numbers = sorted(index.files)
    return encode_index(index.rows, {**index.files, numbers[0]: index.files[numbers[1]]})


def in_txnindex(at: int) -> Callable[[bytes, ObjectRecord], bytes]:
    return lambda data, named: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        *[
            ("index", in_index(field, 1, 3))
            for field in ("base_sequence", "size", "max_timestamp_ms", "commit_entry")
        ],
        ("index", in_index("outcome", 0, -5)),
        ("index", in_index("outcome", 1, 0)),
        ("index", in_index("records", 5)),
        ("index", in_index("row_group", 3)),
        ("index", in_index("entry", 3, 1)),
        ("index", fewer_rows),
        ("index", other_file),
        ("markers", in_markers("commit", 0)),
        ("markers", in_markers("entry", 3)),
        ("markers", in_markers("epoch", 5)),
        ("txnindex", in_txnindex(9)),
        ("txnindex", in_txnindex(17)),
        ("txnindex", in_txnindex(33)),
    ],
)
def test_a_sidecar_that_is_not_what_was_appended(
    kind: str, change: Callable[[bytes, ObjectRecord], bytes]
) -> None:
    store = MemoryStore()
    build(store)
    key = reseal(store, 1, kind, change)
    report = verify_log(store)
    assert ("sidecar-differs", key) in kinds(report), report.problems


def test_the_rows_of_a_batch_table_are_compared_too() -> None:
    store = MemoryStore()
    build(store)
    key = reseal(store, 1, "index", in_index("row_group", 0, -1))
    assert ("sidecar-differs", key) in kinds(verify_log(store))


def in_file(**changes: int) -> Callable[[bytes, ObjectRecord], bytes]:
    def change(data: bytes, named: ObjectRecord) -> bytes:
        index = decode_index(data, named)
        return encode_index(
            index.rows,
            {number: msgspec.structs.replace(file, **changes) for number, file in index.files.items()},
        )

    return change


def read_all(log: TxnLog) -> None:
    log.read("t").read_all()


def read_where(log: TxnLog) -> None:
    log.read("t", where="n >= 0").read_all()


def read_dataset(log: TxnLog) -> None:
    log.dataset("t")


@pytest.mark.parametrize(
    ("read", "row_group", "count"),
    [
        (read_all, 0, 2**31 - 1),
        (read_all, 2**31 - 1, 2**31 - 1),
        (read_where, 0, 2**31 - 1),
        (read_dataset, 0, 20_000),
        (read_dataset, 2**31 - 1, 1),
    ],
)
def test_row_groups_that_no_footer_has_are_refused_before_their_numbers_are_counted_up(
    read: Callable[[TxnLog], None], row_group: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    build(store)
    reseal(store, 0, "index", in_index("row_group", row_group))
    reseal(store, 0, "index", in_index("row_group_count", count))
    monkeypatch.setattr(np, "repeat", _small_repeat)  # without the check it would be 16 GiB
    with (
        TxnLog.open(store) as log,
        pytest.raises(CorruptDataError, match=r"(?s)row group that the log names.*[.]parquet"),
    ):
        read(log)


def _small_repeat(values: Any, counts: Any, _repeat: Any = np.repeat) -> Any:
    assert np.sum(counts) < 1_000_000
    return _repeat(values, counts)


@pytest.mark.parametrize("read", [read_all, read_where])
def test_a_file_of_a_schema_that_its_topic_does_not_have_is_corrupt(read: Callable[[TxnLog], None]) -> None:
    store = MemoryStore()
    build(store)
    reseal(store, 0, "index", in_file(schema_id=7))
    with TxnLog.open(store) as log, pytest.raises(CorruptDataError, match="version of its topic's schema"):
        read(log)
    verify_log(store, deep=True)


@pytest.mark.parametrize(
    "change",
    [
        in_index("outcome", 3),
        in_index("outcome", -1),
        *[in_file(**{name: -1}) for name in ("schema_id", "size", "footer_bytes", "rows")],
    ],
)
def test_numbers_that_cannot_be_are_refused_by_the_decoder(
    change: Callable[[bytes, ObjectRecord], bytes],
) -> None:
    store = MemoryStore()
    build(store)
    key = reseal(store, 0, "index", change)
    with TxnLog.open(store) as log, pytest.raises(CorruptDataError, match="cannot be decoded"):
        read_all(log)
    assert any(named == key for _, named in kinds(verify_log(store)))
