"""A reader written from docs/internals/spec.md alone: it imports nothing of the product."""

from __future__ import annotations

import hashlib
import heapq
import json
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

__all__ = ["Json", "Partition", "Rows", "SpecReader", "document", "entry_document", "sha256"]

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


def parts_of(data: bytes) -> tuple[bytes, bytes]:
    """Section 4.2: the head of an entry, and its payload."""
    if data[-8:] != b"TXNLROWS":
        return data, b""
    end = len(data) - 12
    begin = end - int.from_bytes(data[end : end + 4], "big")
    return data[:begin], data[begin:end]


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
            previous, (data, payload) = sha256(data), parts_of(path.read_bytes())
            entry = entry_document(data)
            if payload:
                assert entry["payload"] == {"size": len(payload), "sha256": sha256(payload)}
            assert (entry["format"], entry["entry"], entry["log_id"]) == (1, number, log_id)
            assert entry["previous"] == previous
            for operation in entry["operations"]:
                getattr(self, operation["operation"])(entry, operation)
            number += 1
        self.next_slot = number

    def upgrade(self, _: Json, op: Json) -> None:
        assert "base-1" in op["reader"]
        assert {*op["reader"]} <= {"base-1", "columns-1", "embedding-1", "lifecycle-1"}

    def create_topic(self, _: Json, op: Json) -> None:
        self.topics[op["name"]] = op
        for number in range(op["partitions"]):
            self.partitions[op["topic_id"], number] = Partition()

    def alter_topic(self, _: Json, op: Json) -> None:
        (topic,) = [one for one in self.topics.values() if one["topic_id"] == op["topic_id"]]
        assert "places" not in op, "this reader goes by names (5.4)"
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
        """Section 6: of each record of one partition that is committed at an entry, offset and commit
        entry.
        """
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
        key, _, place = file["key"].partition("@")
        if place:
            entry, _, start = place.partition("+")
            _, payload = parts_of((self.root / f"_txnlog/log/{entry}.json").read_bytes())
            data = payload[int(start) : int(start) + file["size"]]
            assert sha256(data) == file["sha256"]
        else:
            data = (self.root / key).read_bytes()
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
