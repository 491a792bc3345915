"""A reader made from the specification alone, without the project's code, gets the same rows and offsets.

It is small because the format is, and it uses nothing but a JSON parser, hashes and a Parquet reader: what a team that
works in another language has. Section numbers are those of docs/spec.md.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from tests.integration.golden_roots import COMMITTED, ROOTS
from txnlog import Producer, TxnLog

Json = dict[str, Any]
Rows = list[Json]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def document(data: bytes) -> Json:
    """Section 3."""
    if data[:4] == bytes.fromhex("28b52ffd"):
        data = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
    found = json.loads(data)
    assert isinstance(found, dict)
    return found


def entry_document(data: bytes) -> Json:
    """Sections 4 and 4.1: an entry, whose checksum is right if it has one."""
    stored, frame = data, data[-40:]
    if frame[:8] == bytes.fromhex("572a4d1820000000"):
        stored = data[:-40]
        assert frame[8:].hex() == sha256(stored)
    compressed, text = stored[:4] == bytes.fromhex("28b52ffd"), stored
    if compressed:
        text = pa.CompressedInputStream(pa.BufferReader(stored), "zstd").read()
    has_field = text[-79:-66] == b',"x_sha256":"' and text[-2:] == b'"}'
    assert (stored != data) == (has_field and compressed)
    found: Json = json.loads(text)
    if has_field:
        assert found["x_sha256"] == text[-66:-2].decode() == sha256(text[:-79])
    else:
        assert len(found) == 9
    return found


class Partition:
    """What folding keeps of one partition."""

    def __init__(self) -> None:
        self.log_end = 0
        self.open: dict[tuple[int, int], int] = {}
        self.batches: Rows = []
        self.aborted: list[tuple[int, int, int]] = []

    @property
    def last_stable_offset(self) -> int:
        return min(self.open.values(), default=self.log_end)


class SpecReader:
    """Folds a log on a local disk from entry 0 to the last, or to ``last`` (sections 4, 5 and 6.5)."""

    def __init__(self, root: Path, last: int = 2**63) -> None:
        self.root = root
        self.topics: dict[str, Json] = {}
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.owners: dict[str, tuple[int, int]] = {}
        self.staged: dict[tuple[int, int], Rows] = {}
        """The stages of each transaction that is not decided."""
        self.committed: dict[tuple[int, int], int] = {}
        """The entry that committed each transaction."""
        self.checkpoints: Rows = []
        data = (root / "_txnlog/format.json").read_bytes()
        log_id, number = document(data)["log_id"], 0
        while number <= last and (path := root / f"_txnlog/log/{number:020d}.json").exists():
            previous, data = sha256(data), path.read_bytes()
            entry = entry_document(data)
            assert (entry["format"], entry["entry"], entry["log_id"]) == (1, number, log_id)
            assert entry["previous"] == previous
            for operation in entry["operations"]:
                getattr(self, operation["operation"])(entry, operation)
            number += 1
        self.next_slot = number

    def upgrade(self, _: Json, op: Json) -> None:
        assert op["reader"] == ["base-1"]

    def create_topic(self, _: Json, op: Json) -> None:
        self.topics[op["name"]] = op
        for number in range(op["partitions"]):
            self.partitions[op["topic_id"], number] = Partition()

    def alter_topic(self, _: Json, op: Json) -> None:
        (topic,) = [one for one in self.topics.values() if one["topic_id"] == op["topic_id"]]
        topic["fields"] = op["fields"] or topic["fields"]
        for number in range(op["partitions"]):
            self.partitions.setdefault((op["topic_id"], number), Partition())

    def allocate_producer_ids(self, _: Json, op: Json) -> None: ...

    def app_version(self, _: Json, op: Json) -> None: ...

    def checkpoint(self, _: Json, op: Json) -> None:
        self.checkpoints.append(op)

    def init_producer(self, _: Json, op: Json) -> None:
        self.staged.pop((op["producer_id"], op["epoch"] - 1), None)
        for marker in op["aborted"]:
            self._end(marker, (op["producer_id"], op["epoch"] - 1), commit=False)

    def end_txn(self, entry: Json, op: Json) -> None:
        transaction = (op["producer_id"], op["epoch"])
        if op["outcome"] == "commit":
            self.committed[transaction] = entry["entry"]
        stages = self.staged.pop(transaction, [])
        for placed in op.get("placed", []):
            assert op["outcome"] == "commit"
            partition = self.partitions[placed["topic_id"], placed["partition"]]
            assert placed["base_offset"] == partition.log_end
            partition.open[transaction] = placed["base_offset"]
            for stage in stages:
                mine = {part["partition"] for part in stage["partitions"]}
                if stage["topic_id"] == placed["topic_id"] and placed["partition"] in mine:
                    self._take(partition, placed["partition"], stage, entry)
            assert partition.log_end == placed["base_offset"] + placed["records"]
        for marker in op["markers"]:
            self._end(marker, transaction, commit=op["outcome"] == "commit")

    def prepare_txn(self, _: Json, op: Json) -> None:
        """Section 5.7: it is open, and stays so for readers."""
        transaction = (op["producer_id"], op["epoch"])
        assert transaction in self.staged or any(transaction in one.open for one in self.partitions.values())

    def stage(self, _: Json, op: Json) -> None:
        """Section 5.6: nothing has an offset yet."""
        stages = self.staged.setdefault((op["producer_id"], op["epoch"]), [])
        for part in op["partitions"]:
            before = [
                one["records"]
                for stage in stages
                if stage["topic_id"] == op["topic_id"]
                for one in stage["partitions"]
                if one["partition"] == part["partition"]
            ]
            assert part["base_sequence"] == sum(before)
            batches = [one for one in self._table(op) if one["partition"] == part["partition"]]
            assert (part["batch_count"], part["records"]) == (
                len(batches),
                sum(one["records"] for one in batches),
            )
        stages.append(op)

    def _end(self, marker: Json, transaction: tuple[int, int], *, commit: bool) -> None:
        partition = self.partitions[marker["topic_id"], marker["partition"]]
        assert marker["offset"] == partition.log_end
        first = partition.open.pop(transaction)
        partition.log_end += 1
        if not commit:
            partition.aborted.append((first, marker["offset"], transaction[0]))

    def append(self, entry: Json, op: Json) -> None:
        for part in op["partitions"]:
            partition = self.partitions[op["topic_id"], part["partition"]]
            assert part["base_offset"] == partition.log_end
            self._take(partition, part["partition"], op, entry)
            assert partition.log_end == part["base_offset"] + part["records"]
            if op["transactional_id"] is not None:
                partition.open.setdefault((op["producer_id"], op["epoch"]), part["base_offset"])

    def _take(self, partition: Partition, number: int, op: Json, entry: Json) -> None:
        """Give the batches of one partition their offsets, in their order."""
        batches = op["batches"] if "batches" in op else self._table(op)
        for batch in (one for one in batches if one["partition"] == number):
            place = {
                "offset": partition.log_end,
                "object": op["files"][batch["file"]],
                "entry": entry["entry"],
            }
            who = {
                "producer_id": op["producer_id"],
                "epoch": op["epoch"],
                "transactional": op["transactional_id"] is not None,
            }
            partition.batches.append({**batch, **place, **who})
            partition.log_end += batch["records"]

    def _table(self, op: Json) -> Rows:
        data = (self.root / op["table"]["key"]).read_bytes()
        assert (len(data), sha256(data)) == (op["table"]["size"], op["table"]["sha256"])
        rows: Rows = pa.ipc.open_file(data).read_all().to_pylist()
        return [row for row in rows if row["section"] == op["section"]]

    def read(self, topic: str, number: int, *, committed: bool) -> Rows:
        """Section 6: the rows of one partition, with their offsets and entries."""
        partition = self.partitions[self.topics[topic]["topic_id"], number]
        heap = sorted(partition.aborted)
        active: list[tuple[int, int, int]] = []
        found: Rows = []
        for batch in partition.batches:
            first, last = batch["offset"], batch["offset"] + batch["records"] - 1
            while heap and heap[0][0] <= last:
                active.append(heapq.heappop(heap))
            active = [one for one in active if one[1] >= first]
            hidden = batch["transactional"] and any(
                producer == batch["producer_id"] and begin <= first < end for begin, end, producer in active
            )
            if committed and (hidden or first >= partition.last_stable_offset):
                continue
            for index, row in enumerate(self._rows(batch)):
                values = {field["name"]: row.get(field["name"]) for field in self.topics[topic]["fields"]}
                found.append({**values, "_offset": first + index, "_entry": batch["entry"]})
        return found

    def snapshot(self, topic: str, number: int, entry: int) -> list[list[int]]:
        """Section 6: of each record of one partition that is committed at an entry, offset and commit entry."""
        found = []
        for batch in self.partitions[self.topics[topic]["topic_id"], number].batches:
            committed: int | None = batch["entry"]
            if batch["transactional"]:
                committed = self.committed.get((batch["producer_id"], batch["epoch"]))
            if committed is not None and committed <= entry:
                first = batch["offset"]
                found += [[offset, committed] for offset in range(first, first + batch["records"])]
        return found

    def _rows(self, batch: Json) -> Rows:
        """Section 6.1."""
        file = batch["object"]
        data = (self.root / file["key"]).read_bytes()
        footer = data[file["size"] - file["footer_bytes"] :]
        assert sha256(footer) == file["footer_sha256"]
        parquet = pq.ParquetFile(pa.BufferReader(data))
        digits, position = parquet.metadata.metadata[b"txnlog.chunk_crc32"].decode(), 4
        for group in range(parquet.metadata.num_row_groups):
            for column in range(parquet.metadata.num_columns):
                length = parquet.metadata.row_group(group).column(column).total_compressed_size
                assert int(digits[:8], 16) == zlib.crc32(data[position : position + length])
                digits, position = digits[8:], position + length
        assert (position, digits) == (len(data) - len(footer), "")
        groups = range(batch["row_group"], batch["row_group"] + batch["row_group_count"])
        rows: Rows = parquet.read_row_groups(list(groups)).to_pylist()
        assert len(rows) == batch["records"]
        return rows


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log with what there is: two topics, one of which grows, all buffers, aborts, open and prepared transactions, a batch table."""
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
    """By the rule, from the whole log; and without it: all that is committed in a log that ends at the entry."""
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
    entries = [document(path.read_bytes())["operations"] for path in sorted((root / "_txnlog/log").iterdir())]
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
    entry = (root / f"_txnlog/log/{named['entry']:020d}.json").read_bytes()
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
