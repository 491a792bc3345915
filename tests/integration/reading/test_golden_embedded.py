"""A kept root with rows in its entries stands for the same as when it was written, is written alike, and is
gone on with."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.golden_embedded import KEPT, LEVELS, ROOT, WIDE, digest_of_fold, script_clock, seen
from tests.meta.markdown import ROOT as CHECKOUT
from txnformat import keys
from txnformat.core.entry import decode_entry, encode_entry
from txnformat.core.intents import PendingPartition, ProducerRef, TopicAppend, Write
from txnformat.core.operations import Append, Seal, Spill
from txnformat.core.snapshot.codec import state_digest
from txnformat.core.wire.document import ZSTD_MAGIC
from txnformat.persistent import replace
from txnformat.segments.payload import payload_of, payload_problem, with_payload
from txnformat.store.memory import MemoryStore
from txnformat.types import TopicPartition
from txnlog import Producer, ProducerIdConflictError, TxnLog

KNOWN: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
ENTRIES = [path.read_bytes() for path in sorted((ROOT / keys.LOG_PREFIX).iterdir())]
EMBEDDED = [number for number, data in enumerate(ENTRIES) if payload_of(data)]


def known_rows() -> dict[str, Any]:
    return {name: rows for name, rows in KNOWN.items() if name not in ("pyarrow", "state")}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the root that a test may change."""
    return Path(shutil.copytree(ROOT, tmp_path / "log"))


@pytest.fixture
def log() -> Iterator[TxnLog]:
    """The root in memory, an hour after it was written."""
    clock = script_clock()
    clock.sleep(3_600)
    store = MemoryStore(clock)
    for name, data in files_of(ROOT).items():
        store.put(name, data)
    with TxnLog.open(store, clock=clock) as opened:
        yield opened


@pytest.mark.parametrize("number", range(len(ENTRIES)))
def test_each_entry_is_decoded_and_encoded_as_ever(number: int) -> None:
    data = ENTRIES[number]
    entry = decode_entry(data, number)
    assert with_payload(encode_entry(entry), payload_of(data)) == data
    assert payload_problem(entry.payload, data) is None
    assert (entry.payload is not None) == (number in EMBEDDED)


@pytest.mark.parametrize("how", ["with its snapshot", "from the first entry"])
def test_readers_see_the_same_rows_in_the_same_state(copy: Path, how: str) -> None:
    if how == "from the first entry":
        (copy / keys.LATEST_KEY).unlink()
        shutil.rmtree(copy / "_txnlog/snapshots")
    with TxnLog.open(copy) as log:
        assert state_digest(log.state) == digest_of_fold(log.store) == KNOWN["state"]
        assert seen(log) == known_rows()
        report = log.verify(deep=how == "with its snapshot")
        assert report.ok == (how == "with its snapshot"), report.problems


def test_the_root_has_each_shape_that_embedded_rows_have() -> None:
    entries = {number: decode_entry(ENTRIES[number], number) for number in range(len(ENTRIES))}
    appends = {
        number: [op for op in entries[number].operations if isinstance(op, Append)] for number in EMBEDDED
    }
    places = {number: [[file.place for file in op.files] for op in ops] for number, ops in appends.items()}
    assert max(len(ops) for ops in appends.values()) == 4, "topics in one entry"
    assert any(len(op.partitions) == WIDE for ops in appends.values() for op in ops)
    assert any(None in of for ops in places.values() for of in ops), "an object beside embedded files"
    assert any(ENTRIES[number].startswith(ZSTD_MAGIC) for number in EMBEDDED)
    assert {file.schema_id for ops in appends.values() for op in ops for file in op.files} == {0, 1, 2}
    assert {op.transactional_id is None for ops in appends.values() for op in ops} == {True, False}
    assert {op.producer_id < 0 for ops in appends.values() for op in ops} == {True, False}
    kinds = {type(op): number for number, entry in entries.items() for op in entry.operations}
    assert min(EMBEDDED) < kinds[Seal] < kinds[Spill] < max(EMBEDDED)
    with TxnLog.open(ROOT) as log:
        assert {file.place is None for file in log.state.files} == {True, False}
        statuses = {name: str(one.status) for name, one in log.state.transactional_ids.items()}
        assert (statuses["prepared"], statuses["open"]) == ("Prepared", "Ongoing")
        assert len(log.groups.describe("group").positions) == 2
        assert sum(len(partition.aborted) for partition in log.state.partitions.values())
    assert any(row["value"] is None for row in KNOWN["latest read_committed"])
    counts = {name: len(rows) for name, rows in known_rows().items()}
    assert len({counts[f"plain {level}"] for level in LEVELS}) == 3
    assert counts["nested read_committed"] < counts["nested read_uncommitted"]


def last_plain_append() -> tuple[Append, bytes]:
    """Return the last embedded append of a producer without a transactional id, and its entry's payload."""
    for number in reversed(EMBEDDED):
        for op in decode_entry(ENTRIES[number], number).operations:
            if isinstance(op, Append) and op.transactional_id is None and op.producer_id >= 0:
                return op, payload_of(ENTRIES[number])
    raise AssertionError("there is none")


@pytest.mark.parametrize("how", ["embedded", "uploaded", "another one"])
def test_a_repeat_of_an_embedded_append_is_recognized(log: TxnLog, how: str) -> None:
    """By its sequence and digest: the repeat has an id of its own, as after a crash between the two."""
    append, payload = last_plain_append()
    (part,) = append.partitions
    digest = "0" * 16 if how == "another one" else part.digest
    pending = PendingPartition(
        partition=part.partition,
        records=part.records,
        batch_count=part.batch_count,
        base_sequence=part.base_sequence,
        digest=digest,
        size=part.size,
        min_timestamp_ms=part.min_timestamp_ms,
        max_timestamp_ms=part.max_timestamp_ms,
    )
    (file,) = append.files
    repeat = TopicAppend(
        append.topic_id,
        append.partition_count,
        (replace(file, key=keys.own_key(file.key)),),
        (pending,),
        append.batches,
        payload=() if how == "uploaded" else (payload,),
    )
    write = Write(ProducerRef(append.producer_id, append.epoch), (repeat,))
    before, intent = log.state.entry, log.committer.intend(write)
    if how == "another one":
        with pytest.raises(ProducerIdConflictError):
            log.committer.commit(intent)
    else:
        result = log.committer.commit(intent)
        assert result.repeated
        assert result.offsets == {TopicPartition(append.topic_id, part.partition): part.base_offset}
    assert log.refresh().entry == before


def test_the_root_is_gone_on_with(log: TxnLog) -> None:
    """The waiting transactions are decided, all rows are sealed and compacted, new ones are added: offsets
    and values stay."""
    for name in ("prepared", "open"):
        log.transactions.force_terminate(name)
    expected = {name: rows for name, rows in known_rows().items() if name.endswith(" snapshot")}
    for task in ("sealed", "compacted"):
        if task == "sealed":
            log.maintain("seal")
            assert not len(log.state.files)
        else:
            assert log.compact("nested", target_bytes=10**6, min_lag_ms=0)
        found = seen(log)
        for name, rows in expected.items():
            topic = name.removesuffix(" snapshot")
            assert found[name] == found[f"{topic} read_committed"] == rows, (task, name)
    with Producer(log, "one-shot") as producer, producer.transaction() as txn:
        txn.send("plain", [{"n": 1, "text": "", "late": 1}], partition=0)
    assert payload_of(log.store.get(keys.entry_key(log.state.entry)) or b"")
    assert len(seen(log)["plain read_committed"]) == len(expected["plain snapshot"]) + 1
    assert log.verify(deep=True).ok


def test_the_script_writes_the_same_bytes_again(tmp_path: Path) -> None:
    """In a process of its own: one process never hands out a producer id of one log twice."""
    again = tmp_path / "embedded"
    subprocess.run(
        [sys.executable, "-m", "tests.integration.golden_embedded", str(again)], check=True, cwd=CHECKOUT
    )
    written = json.loads(again.with_suffix(".json").read_text(encoding="utf-8"))
    if KNOWN["pyarrow"] == pa.__version__:  # others may write other Parquet files
        assert files_of(again) == files_of(ROOT)
        assert written == KNOWN
    else:
        assert {
            name: rows for name, rows in written.items() if name not in ("pyarrow", "state")
        } == known_rows()


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
