"""The reader that is made from the specification alone reads sealed segments too (sections 5.5 and 6.6)."""

from __future__ import annotations

import heapq
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pytest

from tests.meta.spec_reader import Json, Rows, SpecReader, sha256
from txnlog import Producer, TxnLog

ROUNDS = 19
SIDECARS = ("index", "markers", "txnindex")


class SealedReader(SpecReader):
    """Forgets what a seal takes out of the state, and reads it from the sidecars."""

    def __init__(self, root: Path) -> None:
        self.parts: Rows = []
        """A segment's part of a partition each, as in a segment list."""
        self.sealed = 0
        self.listed = 0
        self.lists: list[tuple[int, str]] = []
        """First segment and key of each list."""
        super().__init__(root)

    def seal(self, _: Json, op: Json) -> None:
        for segment in op["segments"]:
            first_aborted = 0
            names = {
                f"{kind}_{field}": (segment[kind] or {"key": "", "size": 0, "sha256": ""})[field]
                for kind in SIDECARS
                for field in ("key", "size", "sha256")
            }
            for part in segment["partitions"]:
                partition = self.partitions[segment["topic_id"], part["partition"]]
                mine = self.of(segment["topic_id"], part["partition"])
                assert part["start_offset"] == (mine[-1]["end_offset"] if mine else 0)
                end = part["end_offset"]
                assert part["start_offset"] < end <= partition.last_stable_offset
                partition.batches = [one for one in partition.batches if one["offset"] >= end]
                partition.aborted = [one for one in partition.aborted if one[1] >= end]
                place = {
                    "topic_id": segment["topic_id"],
                    "segment": self.sealed,
                    "first_aborted": first_aborted,
                }
                self.parts.append({**part, **place, **names})
                first_aborted += part["aborted"]
            self.sealed += 1
        if op["segment_list"] is not None:
            assert self.listed <= op["listed_segments"] <= self.sealed
            self.listed = op["listed_segments"]
            first, leaves = op["segment_list"].get("first", 0), op["segment_list"].get("leaves", 0)
            replaced = [key for number, key in self.lists if number >= first]
            assert op.get("replaced_lists", []) == replaced
            self.lists = [one for one in self.lists if one[0] < first] + [(first, op["segment_list"]["key"])]
            listed = self._arrow(op["segment_list"])
            if leaves:
                assert len(listed) == leaves
                listed = [row for leaf in listed for row in self._leaf(leaf)]
            assert len(listed) == op["segment_list"]["rows"]
            known = [one for one in self.parts if first <= one["segment"] < self.listed]
            order = ("topic_id", "partition", "start_offset")
            assert listed == sorted(known, key=lambda one: [one[name] for name in order])
            rest = [one for one in self.parts if not first <= one["segment"] < self.listed]
            self.parts = listed + rest

    def of(self, topic_id: str, number: int) -> Rows:
        """Return a partition's parts of segments, by offset."""
        mine = (one for one in self.parts if (one["topic_id"], one["partition"]) == (topic_id, number))
        return sorted(mine, key=lambda one: int(one["start_offset"]))

    def _object(self, named: Json) -> bytes:
        data: bytes = (self.root / named["key"]).read_bytes()
        assert (len(data), sha256(data)) == (named["size"], named["sha256"])
        return data

    def _arrow(self, named: Json) -> Rows:
        file = pa.ipc.open_file(self._object(named))
        assert file.num_record_batches == 1
        rows: Rows = file.read_all().to_pylist()
        return rows

    def _leaf(self, leaf: Json) -> Rows:
        rows = self._arrow({field: leaf[field] for field in ("key", "size", "sha256")})
        assert len(rows) == leaf["rows"]
        for bound, row in (("first", rows[0]), ("last", rows[-1])):
            assert (leaf[f"{bound}_topic_id"], leaf[f"{bound}_partition"]) == (
                row["topic_id"],
                row["partition"],
            )
        return rows

    def sidecar(self, part: Json, kind: str) -> Json:
        return {field: part[f"{kind}_{field}"] for field in ("key", "size", "sha256")}

    def aborted_of(self, part: Json) -> list[tuple[int, int, int, int]]:
        """(producer id, first, last, last stable offset) of every aborted transaction that overlaps a
        part.
        """
        if not part["aborted"]:
            return []
        data = self._object(self.sidecar(part, "txnindex"))
        entries = [struct.unpack(">hqqqq", data[at : at + 34]) for at in range(0, len(data), 34)]
        assert {entry[0] for entry in entries} == {0}
        mine = entries[part["first_aborted"] :][: part["aborted"]]
        return [(producer, first, last, stable) for _, producer, first, last, stable in mine]

    def read(self, topic: str, number: int, *, committed: bool) -> Rows:
        found: Rows = []
        for part in self.of(self.topics[topic]["topic_id"], number):
            index = self._arrow(self.sidecar(part, "index"))
            rows = [row for row in index if row["partition"] == number]
            assert len(rows) == part["batches"]
            heap = [(first, last, producer) for producer, first, last, _ in self.aborted_of(part)]
            heapq.heapify(heap)
            active: list[tuple[int, int, int]] = []
            for row in rows:
                first, last = row["base_offset"], row["base_offset"] + row["records"] - 1
                while heap and heap[0][0] <= last:
                    active.append(heapq.heappop(heap))
                active = [one for one in active if one[1] >= first]
                hidden = bool(row["transactional"]) and any(
                    producer == row["producer_id"] and begin <= first < end for begin, end, producer in active
                )
                assert row["outcome"] == (2 if hidden else 1 if row["transactional"] else 0)
                if committed and hidden:
                    continue
                batch = {**row, "object": {name[5:]: row[name] for name in row if name.startswith("file_")}}
                for position, values in enumerate(self._rows(batch)):
                    found.append({**values, "_offset": first + position, "_entry": row["entry"]})
        return found + super().read(topic, number, committed=committed)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many seals, so that most segments are in a list: aborts, and a transaction that holds a partition
    back.
    """
    path = tmp_path_factory.mktemp("sealed") / "log"
    with TxnLog.create(path) as log:
        schema = pa.schema([("n", pa.int64())])
        log.create_topic("a", schema, partitions=2)
        log.create_topic("b", schema)
        with (
            Producer(log, "inline", buffer="inline") as inline,
            Producer(log, "long", buffer="inline") as long,
            Producer(log) as plain,
        ):
            for turn in range(ROUNDS):
                if turn % 4 == 0:
                    long.begin()
                    long.send("a", [{"n": -turn}], partition=1)
                    long.flush()
                inline.begin()
                for number in (0, 1):
                    inline.send("a", [{"n": turn}, {"n": 100 + turn}], partition=number)
                inline.flush()
                plain.send("a", [{"n": 1_000 + turn}], partition=turn % 2)
                plain.send("b", [{"n": turn}])
                plain.flush()
                (inline.abort if turn % 3 == 1 else inline.commit)()
                if turn % 4 == 2:
                    (long.abort if turn % 8 == 2 else long.commit)()
                log.maintain("seal")
            plain.send("a", [{"n": 9_999}], partition=0)
            plain.flush()
    return path


def test_it_gets_the_same_rows_out_of_segments(root: Path) -> None:
    reader, log = SealedReader(root), TxnLog.open(root)
    assert reader.next_slot == log.state.entry + 1
    assert 0 < reader.listed < reader.sealed
    for topic in log.topics():
        for offsets in log.offsets(topic):
            for isolation in ("read_committed", "read_uncommitted"):
                asked: dict[str, Any] = {"isolation": isolation, "columns": ["n", "_offset", "_entry"]}
                expected = log.read(topic, partitions=[offsets.partition], **asked).read_all().to_pylist()
                assert (
                    reader.read(topic, offsets.partition, committed=isolation == "read_committed") == expected
                )
                assert expected
    log.close()


def test_markers_and_aborted_transactions_are_those_of_the_chain(root: Path) -> None:
    """What the sidecars say is held against a fold that never forgets."""

    class Whole(SpecReader):
        """Keeps everything: to it a seal is nothing."""

        def seal(self, _: Json, op: Json) -> None: ...

        def _end(self, marker: Json, transaction: tuple[int, int], *, commit: bool) -> None:
            ended.append((marker["topic_id"], marker["partition"], marker["offset"], *transaction, commit))
            super()._end(marker, transaction, commit=commit)

    ended: list[tuple[Any, ...]] = []
    whole, reader = Whole(root), SealedReader(root)
    found = []
    for part in reader.parts:
        aborted = whole.partitions[part["topic_id"], part["partition"]].aborted
        start, end = part["start_offset"], part["end_offset"]
        touching = [
            (producer, first, last) for first, last, producer in aborted if first < end and last >= start
        ]
        assert [entry[:3] for entry in reader.aborted_of(part)] == touching
        if part["markers"]:
            rows = reader._arrow(reader.sidecar(part, "markers"))
            mine = [row for row in rows if row["partition"] == part["partition"]]
            assert len(mine) == part["markers"]
            found += [
                (
                    part["topic_id"],
                    row["partition"],
                    row["offset"],
                    row["producer_id"],
                    row["epoch"],
                    bool(row["commit"]),
                )
                for row in mine
            ]
    assert any(part["aborted"] for part in reader.parts)
    assert sorted(found) == sorted(ended)
