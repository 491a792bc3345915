"""A reader made from the specification alone, without the project's code, gets the same rows and offsets.

It is small because the format is, and it uses nothing but a JSON parser, hashes and a Parquet reader: what a
team that works in another language has. Section numbers are those of docs/internals/spec.md.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest

from tests.integration.golden_roots import COMMITTED, ROOTS
from tests.meta.spec_reader import SpecReader, document, entry_document, parts_of, sha256
from txnlog import Producer, TxnLog


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log with what there is: two topics, one of which grows, all buffers, aborts, open and prepared
    transactions, a batch table."""
    path = tmp_path / "log"
    with TxnLog.create(path) as log:
        log.create_topic(
            "a", pa.schema([("n", pa.int64()), ("text", pa.string())]), partitions=3, key_columns=["n"]
        )
        log.create_topic("b", pa.schema([("n", pa.int64())]))
        with Producer(log, "one-shot") as one_shot, Producer(log) as plain:
            inline, other = Producer(log, "inline", buffer="inline"), Producer(log, "other", buffer="inline")
            deferred, decided = Producer(log, "deferred", buffer="deferred"), Producer(log, "decided")
            for producer in (inline, other, deferred, decided):
                producer.init()
            for turn in range(6):
                with one_shot.transaction() as txn:
                    txn.send("a", [{"n": number, "text": "x" * turn} for number in range(20)])
                    txn.send("b", [{"n": turn}])
                deferred.begin()
                for flush in range(2):  # in a topic of several partitions, and in one beside others' records
                    deferred.send("a", [{"n": number, "text": f"staged {flush}"} for number in range(10)])
                    deferred.send("b", [{"n": 1_000 + flush}])
                    deferred.flush()
                inline.begin()
                inline.send("a", [{"n": number, "text": "aborted"} for number in range(turn + 1)])
                inline.send("b", [{"n": -turn}])
                inline.flush()
                plain.send("b", [{"n": 100 + turn}])
                plain.flush()
                inline.send("b", [{"n": -turn}])
                inline.flush()
                (inline.abort if turn % 3 else inline.commit)()
                deferred.send("b", [{"n": 2_000 + turn}])
                (deferred.abort if turn == 1 else deferred.commit)()
                decided.begin()
                decided.send("b", [{"n": 3_000 + turn}])
                token = decided.prepare()
                (log.abort_prepared if turn % 2 else log.commit_prepared)(token)
                (decided.abort if turn % 2 else decided.commit)()
                if turn == 2:
                    log.alter_topic("a", partitions=4, add_columns=[pa.field("late", pa.int32())])
                if turn == 3:
                    log.alter_topic("a", widen={"late": pa.int64()})
            # Many batches in one transaction: more than an entry names itself.
            with Producer(log, "many", batch_bytes=1) as many, many.transaction() as txn:
                for number in range(1_100):
                    txn.send("b", [{"n": number}], partition=0)
            for producer in (deferred, decided):
                producer.begin()
                producer.send("b", [{"n": -1}])
            deferred.flush()
            decided.prepare()
            other.begin()
            other.send("a", [{"n": 1, "text": "left open"}])
            other.flush()
            with one_shot.transaction() as txn:
                txn.send("a", [{"n": number, "text": "behind it", "late": 2**40} for number in range(20)])
    return path


def test_a_reader_made_from_the_specification_gets_the_same_rows(root: Path) -> None:
    reader, log = SpecReader(root), TxnLog.open(root)
    assert reader.next_slot == log.state.entry + 1
    assert sorted(reader.topics) == log.topics()
    for topic in log.topics():
        columns = [*(field["name"] for field in reader.topics[topic]["fields"]), "_offset", "_entry"]
        for offsets in log.offsets(topic):
            partition = reader.partitions[reader.topics[topic]["topic_id"], offsets.partition]
            assert (partition.last_stable_offset, partition.log_end) == (
                offsets.last_stable_offset,
                offsets.log_end,
            )
            for isolation in ("read_committed", "read_uncommitted"):
                expected = log.read(
                    topic, isolation=isolation, columns=columns, partitions=[offsets.partition]
                )
                found = reader.read(topic, offsets.partition, committed=isolation == "read_committed")
                assert found == expected.read_all().to_pylist()
    log.close()


def test_every_snapshot_is_what_the_specification_says_and_what_the_log_was_at_that_entry(root: Path) -> None:
    """By the rule, from the whole log; and without it: all that is committed in a log that ends at the
    entry.
    """
    whole, log = SpecReader(root), TxnLog.open(root)
    for sealed in (False, True):
        for entry in range(1, whole.next_slot, 9 if sealed else 3):
            then = SpecReader(root, entry)
            snapshot = log.snapshot(version_as_of=entry)
            assert snapshot.topics() == sorted(then.topics)
            for topic in snapshot.topics():
                for number in range(then.topics[topic]["partitions"]):
                    expected = whole.snapshot(topic, number, entry)
                    assert expected == then.snapshot(topic, number, 2**63)
                    plan = log.plan(topic, isolation="snapshot", partitions=[number], as_of=entry)
                    (part,) = plan.partitions
                    found = [
                        [int(row["base_offset"]) + index, int(row["commit_entry"])]
                        for row in part.rows
                        for index in range(int(row["take"]))
                    ]
                    assert found == expected
        log.maintain("seal")
    log.close()


@pytest.mark.parametrize("name", ["with-checksum", "without-checksum"])
def test_kept_roots_are_what_the_specification_says(name: str) -> None:
    reader = SpecReader(ROOTS / name)
    rows = [row for number in range(2) for row in reader.read("t", number, committed=True)]
    assert sorted(row["n"] for row in rows) == COMMITTED
    for path in sorted((ROOTS / name / "_txnlog/log").iterdir()):
        data = path.read_bytes()
        assert ("x_sha256" in entry_document(data)) is (name == "with-checksum")
        if name == "with-checksum":
            with pytest.raises((AssertionError, ValueError)):
                entry_document(data[:300] + bytes([data[300] ^ 1]) + data[301:])


def test_the_history_has_what_a_reader_must_cope_with(root: Path) -> None:
    reader = SpecReader(root)
    entries = [
        document(parts_of(path.read_bytes())[0])["operations"]
        for path in sorted((root / "_txnlog/log").iterdir())
    ]
    operations = [operation for found in entries for operation in found]
    assert any("table" in operation for operation in operations)
    assert {operation["operation"] for operation in operations} >= {
        "upgrade",
        "init_producer",
        "allocate_producer_ids",
        "alter_topic",
        "stage",
        "prepare_txn",
    }
    assert any(operation.get("placed") for operation in operations)
    assert len(reader.staged) == 2, "one is open, one prepared"
    versions = {file.get("schema_id") for one in operations for file in one.get("files", [])}
    assert versions >= {None, 1, 2}
    assert any(partition.aborted for partition in reader.partitions.values())
    assert any(partition.open for partition in reader.partitions.values())
    assert any(
        partition.last_stable_offset < partition.log_end - 1 for partition in reader.partitions.values()
    )


def stream(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def packed(table: pa.Table) -> bytes:
    """Return rows as packed little-endian structures of the columns in their order."""
    types = {pa.int64(): "<i8", pa.int32(): "<i4"}
    rows = np.empty(len(table), [(field.name, types[field.type]) for field in table.schema])
    for field in table.schema:
        rows[field.name] = table.column(field.name).to_numpy()
    return rows.tobytes()


def test_a_snapshot_is_what_the_specification_says(root: Path) -> None:
    """Section 10: container, columns, digest, and the checkpoint and hint that name it."""
    with TxnLog.open(root) as log, Producer(log) as producer:
        for number in range(110):
            producer.send("b", [{"n": number}])
            producer.flush()
    reader = SpecReader(root)
    hint = document((root / "_txnlog/latest").read_bytes())
    named = reader.checkpoints[-1]
    assert hint == {name: named[name] for name in ("entry", "key", "sha256")}
    data = (root / named["key"]).read_bytes()
    assert (len(data), sha256(data)) == (named["size"], named["sha256"])
    outer = stream(data)
    sections = dict(zip(outer["section"].to_pylist(), outer["data"].to_pylist(), strict=True))
    state = document(sections.pop("state"))
    tables = {name: stream(value) for name, value in sections.items()}
    digest = hashlib.sha256(
        json.dumps(state, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    )
    for name in ("extents", "markers", "aborted"):
        digest.update(packed(tables[name]))
    for name in ("files", "tables"):
        shown = [row | {"schema_id": row.get("schema_id") or None} for row in tables[name].to_pylist()]
        text = "".join(
            " ".join(str(value) for value in row.values() if value is not None) + "\n" for row in shown
        )
        digest.update(text.encode())
    assert digest.hexdigest() == named["digest"]
    assert (state["entry"], state["log_id"]) == (
        named["entry"],
        document((root / "_txnlog/format.json").read_bytes())["log_id"],
    )
    entry, _ = parts_of((root / f"_txnlog/log/{named['entry']:020d}.json").read_bytes())
    assert (sha256(entry), document(entry)["timestamp_ms"]) == (state["entry_sha256"], state["timestamp_ms"])
    # Its partitions, one after the other, are those of the fold up to its entry.
    folded = SpecReader(root, last=named["entry"])
    keys = dict(zip(tables["files"]["number"].to_pylist(), tables["files"]["key"].to_pylist(), strict=True))
    start = {"extents": 0, "markers": 0, "aborted": 0}
    for known in state["partitions"]:
        partition = folded.partitions[known["topic_id"], known["partition"]]
        assert known["log_end"] == partition.log_end
        assert {
            (one["producer_id"], one["epoch"]): one["first_offset"] for one in known["open"]
        } == partition.open
        rows = {name: tables[name].slice(first, known[name]).to_pylist() for name, first in start.items()}
        start = {name: first + known[name] for name, first in start.items()}
        assert [
            (row["first_offset"], row["last_offset"], row["producer_id"]) for row in rows["aborted"]
        ] == partition.aborted
        assert sum(row["records"] for row in rows["extents"]) + len(rows["markers"]) == partition.log_end
        assert sum(row["batch_count"] for row in rows["extents"]) == len(partition.batches)
        batches = {batch["offset"]: batch for batch in partition.batches}
        for row in rows["extents"]:
            batch = batches[row["base_offset"]]
            number = row["file"] if row["table"] < 0 else row["first_file"] + batch["file"]
            assert keys[number] == batch["object"]["key"]
    assert start == {name: len(tables[name]) for name in start}
    # What is staged: references and totals.
    numbers = {table["key"]: table["number"] for table in tables["tables"].to_pylist()}
    ids = {one["producer_id"]: one for one in state["transactional_ids"]}
    for (producer_id, epoch), stages in folded.staged.items():
        owner = ids.pop(producer_id)
        assert owner["epoch"] == epoch
        for one, stage in zip(owner["staged"], stages, strict=True):
            files = [
                keys[number] for number in range(one["first_file"], one["first_file"] + one["file_count"])
            ]
            assert files == [file["key"] for file in stage["files"]]
            assert one["table"] == numbers[stage["table"]["key"]]
            assert (one["topic_id"], one["section"]) == (stage["topic_id"], stage["section"])
            assert [(part["partition"], part["records"]) for part in one["partitions"]] == [
                (part["partition"], part["records"]) for part in stage["partitions"]
            ]
    assert folded.staged
    assert not any(owner.get("staged") for owner in ids.values())
