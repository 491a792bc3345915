"""Planning and reading, held against a list of records: every boundary of batches, extents, files and
ranges.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.rounds import rounds
from txnformat import keys
from txnformat.core.intents import AllocateIds, CommitResult, OpenProducer, ProducerRef, TopicAppend, Write
from txnformat.core.invariants import check_whole
from txnformat.core.operations import AllocateProducerIds, Append, InitProducer
from txnformat.core.records.batch_table import encode_batch_table
from txnformat.core.records.visibility import committed_mask
from txnformat.core.sealing.sidecar import BatchOutcome, decode_index, decode_txnindex
from txnformat.core.state import TopicState
from txnformat.log import TxnLog
from txnformat.persistent import replace
from txnformat.reading.plan import ReadPlan, open_range
from txnformat.reading.rows import METADATA_FIELDS, output_schema, read_rows
from txnformat.reading.sealed import SidecarCache
from txnformat.segments.writer import SegmentFileWriter
from txnformat.store.memory import MemoryStore
from txnformat.types import (
    BatchRecord,
    FileRecord,
    IsolationLevel,
    ObjectRecord,
    OffsetRange,
    Outcome,
    TopicPartition,
)
from txnlog_testing.models.reference_filters import aborted_ranges
from writers.upload import Uploaded, topic_append

PARTITIONS = 2
SCHEMA = pa.schema([("value", pa.int64()), ("time", pa.timestamp("us", tz="UTC"))])
ROW_BYTES = pa.table({"value": [1], "time": pa.array([1], SCHEMA.field("time").type)}).nbytes
COLUMNS = (*SCHEMA.names, *METADATA_FIELDS)


@dataclass(slots=True)
class Record:
    """One record of the model; ``commit_entry`` is None while undecided and after an abort."""

    value: int
    time: int | None
    producer_id: int | None
    epoch: int | None
    entry: int
    timestamp_us: int
    commit_entry: int | None
    aborted: bool = False


@dataclass(slots=True)
class Model:
    """Per partition: what stands at each offset; None is a marker."""

    log: list[list[Record | None]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    open: dict[tuple[int, int], list[Record]] = field(default_factory=dict)

    def end(self, transaction: tuple[int, int], outcome: Outcome, entry: int) -> None:
        """Decide a transaction: one marker in each partition that it wrote to."""
        records = self.open.pop(transaction, [])
        for records_of in self.log:
            if any(record is mine for record in records_of for mine in records):
                records_of.append(None)
        for record in records:
            record.aborted = outcome is Outcome.ABORT
            record.commit_entry = None if record.aborted else entry

    def readable_end(self, partition: int, isolation: IsolationLevel) -> int:
        """Return where a reader must stop (exclusive)."""
        cells = self.log[partition]
        undecided = [record for records in self.open.values() for record in records]
        if isolation is not IsolationLevel.READ_COMMITTED or not undecided:
            return len(cells)
        return next((n for n, cell in enumerate(cells) if any(cell is one for one in undecided)), len(cells))

    def rows(
        self,
        topic: TopicState,
        partition: int,
        start: int,
        end: int,
        isolation: IsolationLevel,
        as_of: int | None,
    ) -> list[dict[str, Any]]:
        """Return what a reader of [start, end) gets, all columns."""
        return [
            {
                "value": cell.value,
                "time": cell.time,
                "_topic": topic.name,
                "_partition": partition,
                "_offset": offset,
                "_timestamp": cell.timestamp_us if topic.schema.timestamp_column is None else cell.time,
                "_producer_id": cell.producer_id,
                "_producer_epoch": cell.epoch,
                "_entry": cell.entry,
                "_commit_entry": cell.commit_entry,
            }
            for offset, cell in enumerate(self.log[partition][:end])
            if offset >= start
            and cell is not None
            and (isolation is not IsolationLevel.READ_COMMITTED or not cell.aborted)
            and (as_of is None or (cell.commit_entry is not None and cell.commit_entry <= as_of))
        ]


class History:
    """Writes a random history to a log and to the model alike."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.store = MemoryStore()
        self.log = TxnLog.create(self.store)
        self.topic = self.log.create_topic(
            "t", SCHEMA, partitions=PARTITIONS, timestamp_column=random.choice([None, "time"])
        )
        self.model = Model()
        self._value = 0
        self._sequences: dict[tuple[int, int, int], int] = {}
        self._idempotent = ProducerRef(self._commit_ids(), 0)
        self._transactional = [self._opened(f"tx-{number}") for number in range(2)]

    def _commit(self, action: Any) -> CommitResult:
        return self.log.committer.commit(self.log.committer.intend(action))

    def _commit_ids(self) -> int:
        (operation,) = self._commit(AllocateIds("test", 1)).operations
        assert isinstance(operation, AllocateProducerIds)
        return operation.first

    def _opened(self, transactional_id: str) -> ProducerRef:
        (operation,) = (result := self._commit(OpenProducer(transactional_id))).operations
        assert isinstance(operation, InitProducer)
        self.model.end((operation.producer_id, operation.epoch - 1), Outcome.ABORT, result.entry)
        return ProducerRef(operation.producer_id, operation.epoch, transactional_id)

    def step(self) -> None:
        """Append, end, do both at once, or open a producer again."""
        index = self.random.randrange(len(self._transactional))
        producer = self._transactional[index]
        identity = (producer.producer_id, producer.epoch)
        what = self.random.choice(
            ["inline", "inline", "inline", "end", "end", "one-shot", "plain", "init", "seal"]
        )
        if what == "seal":
            self.log.maintain("seal")
            assert check_whole(self.log.state) == []
        elif what == "init":
            self._transactional[index] = self._opened(str(producer.transactional_id))
        elif what == "plain":
            self._append(self.random.choice([None, self._idempotent]), None)
        elif what == "inline":
            self._append(producer, None)
        elif what == "one-shot":
            self._append(producer, self.random.choice(list(Outcome)))
        elif identity in self.model.open:
            outcome = self.random.choice(list(Outcome))
            result = self._commit(Write(producer=producer, end=outcome))
            self._ended(producer, outcome, result.entry)

    def _ended(self, producer: ProducerRef, outcome: Outcome, entry: int) -> None:
        self.model.end((producer.producer_id, producer.epoch), outcome, entry)
        self._transactional[self._transactional.index(producer)] = replace(producer, epoch=producer.epoch + 1)

    def _append(self, producer: ProducerRef | None, end: Outcome | None) -> None:
        uploaded, tables = self._uploaded()
        sequences = None
        if producer is not None:
            sequences = {
                partition: self._sequences.get((producer.producer_id, producer.epoch, partition), 0)
                for partition, _ in tables
            }
        append = topic_append(self.topic.topic_id, PARTITIONS, uploaded, sequences)
        if self.random.random() < 0.4:
            append = self._with_table(append)
        result = self._commit(Write(producer=producer, appends=(append,), end=end))
        assert result.timestamp_ms is not None
        assert any(isinstance(operation, Append) for operation in result.operations)
        for partition, table in tables:
            for value, time in zip(
                table.column("value").to_pylist(),
                table.column("time").cast(pa.int64()).to_pylist(),
                strict=True,
            ):
                undecided = producer is not None and producer.transactional_id is not None
                record = Record(
                    value,
                    time,
                    producer.producer_id if producer else None,
                    producer.epoch if producer else None,
                    result.entry,
                    result.timestamp_ms * 1_000,
                    None if undecided else result.entry,
                )
                self.model.log[partition].append(record)
                if producer is not None:
                    key = (producer.producer_id, producer.epoch, partition)
                    self._sequences[key] = self._sequences.get(key, 0) + 1
                    if undecided:
                        self.model.open.setdefault(key[:2], []).append(record)
        if producer is not None and end is not None:
            self._ended(producer, end, result.entry)

    def _uploaded(self) -> tuple[Uploaded, list[tuple[int, pa.Table]]]:
        """Upload 1 to 6 batches in 1 to 3 files, each batch in row groups of 1 to 4 rows."""
        files: list[FileRecord] = []
        batches: list[BatchRecord] = []
        tables: list[tuple[int, pa.Table]] = []
        for _ in range(self.random.randint(1, 3)):
            key = keys.data_key(self.topic.directory, 0, self.log.committer.ids.new())
            writer = SegmentFileWriter(
                self.store.open_write(key),
                key,
                SCHEMA,
                timestamp_column=self.topic.schema.timestamp_column,
                file=len(files),
                row_group_bytes_max=ROW_BYTES * self.random.randint(1, 4),
            )
            for _ in range(self.random.randint(1, 2)):
                partition, table = self.random.randrange(PARTITIONS), self._table()
                batches.append(writer.write_batch(partition, table))
                tables.append((partition, table))
            files.append(writer.close())
        return Uploaded(tuple(files), tuple(batches)), tables

    def _table(self) -> pa.Table:
        count = self.random.randint(1, 9)
        values = range(self._value, self._value + count)
        self._value += count
        times = [self.random.choice([None, -1, 0, value, -(2**50), 2**50]) for value in values]
        return pa.table(
            [pa.array(values, pa.int64()), pa.array(times, SCHEMA.field("time").type)], schema=SCHEMA
        )

    def _with_table(self, append: TopicAppend) -> TopicAppend:
        """Move the batches to a batch table; another section of it belongs to nobody."""
        section = self.random.randrange(2)
        other = (1 - section, [replace(batch, records=99) for batch in append.batches])
        sections = sorted([(section, list(append.batches)), other])
        data = encode_batch_table(sections)
        key = keys.table_key(0, self.log.committer.ids.new())
        self.store.create(key, data)
        named = ObjectRecord(key, len(data), hashlib.sha256(data).hexdigest())
        return replace(append, batches=(), table=named, section=section)


@dataclass(frozen=True, slots=True)
class Asked:
    """A read, planned at some time, and what it must give, whenever it runs."""

    plan: ReadPlan
    columns: list[str] | None
    expected: list[dict[str, Any]]
    ranges: dict[int, tuple[int, int]]


def _ask(history: History, log: TxnLog) -> Asked:
    random, model = history.random, history.model
    isolation = random.choice(list(IsolationLevel))
    as_of = None
    if isolation is IsolationLevel.SNAPSHOT:
        as_of = random.randint(history.topic.created_entry, log.refresh().entry)
    partitions = random.choice([None, [0], [1], [0, 1]])
    columns = random.choice([None, random.sample(COLUMNS, random.randint(0, len(COLUMNS)))])
    start: dict[int, int] = {}
    end: dict[int, int] = {}
    expected: list[dict[str, Any]] = []
    ranges: dict[int, tuple[int, int]] = {}
    for partition in range(PARTITIONS):
        latest = model.readable_end(partition, isolation)
        first, last = sorted((random.randint(0, latest), random.randint(0, latest)))
        if random.random() < 0.6:
            start[partition] = first
        if random.random() < 0.6:
            end[partition] = last
        ranges[partition] = (start.get(partition, 0), end.get(partition, latest))
        if partitions is None or partition in partitions:
            expected += model.rows(history.topic, partition, *ranges[partition], isolation, as_of)
    is_left_sealed = random.random() < 0.5
    plan = log.plan(
        "t",
        isolation=isolation,
        start=start,
        end=end,
        partitions=partitions,
        open_sealed=not is_left_sealed,
        as_of=as_of,
    )
    if is_left_sealed:
        plan = _opened_in_pieces(random, log, plan)
    return Asked(plan, columns, expected, ranges)


def _opened_in_pieces(random: Random, log: TxnLog, plan: ReadPlan) -> ReadPlan:
    """Open the sealed segments of a plan as tasks do that share them: each offset belongs to exactly one."""
    files = dict(plan.files)
    rows: dict[int, list[Any]] = {part.partition: [] for part in plan.partitions}
    for sealed in plan.sealed:
        inner = [random.randint(*sealed.range) for _ in range(2)]
        bounds = [sealed.range.start, *sorted(inner), sealed.range.end]
        for start, end in pairwise(bounds):
            piece = replace(sealed, range=OffsetRange(start, end))
            found, named = open_range(SidecarCache(log.store), piece, plan.isolation)
            rows[sealed.partition].append(found)
            files |= named
    parts = tuple(
        replace(part, rows=np.concatenate([*rows[part.partition], part.rows])) for part in plan.partitions
    )
    return replace(plan, partitions=parts, files=files, sealed=())


def _check_sidecars(log: TxnLog) -> None:
    """The outcomes in an .index are what the heap gives with the entries of the .txnindex."""
    state, store = log.state, log.store
    for key, partition in state.partitions.items():
        for row in partition.segments.array():
            record = state.segments[int(row["segment"])]
            batches = decode_index(store.get(record.index.key), record.index).partition(key.partition)
            aborted = []
            if record.txnindex is not None:
                data = store.get(record.txnindex.key)
                first, count = int(row["first_aborted"]), int(row["aborted"])
                aborted = decode_txnindex(data, record.txnindex, first, count)
            mask = committed_mask(
                batches["base_offset"],
                batches["base_offset"] + batches["records"] - 1,
                batches["producer_id"],
                batches["transactional"].astype(bool),
                aborted_ranges(aborted),
            )
            assert (mask == (batches["outcome"] != BatchOutcome.ABORTED)).all()
            assert ((batches["outcome"] == BatchOutcome.PLAIN) == (batches["transactional"] == 0)).all()
            assert len(batches) == row["batches"]


def _check(store: MemoryStore, asked: Asked, batch_rows_max: int) -> None:
    names = list(SCHEMA.names) if asked.columns is None else asked.columns
    schema = output_schema(asked.plan.topic.schema, asked.columns)
    batches = [
        batch
        for part in asked.plan.partitions
        for batch in read_rows(
            store,
            "t",
            asked.plan.topic.schema,
            part.partition,
            part.rows,
            asked.plan.files.__getitem__,
            asked.columns,
            batch_rows_max=batch_rows_max,
        )
    ]
    assert all(0 < batch.num_rows <= batch_rows_max for batch in batches)
    table = pa.RecordBatchReader.from_batches(schema, batches).read_all()
    assert table.column_names == names
    assert table.num_rows == len(asked.expected)
    for name in names:
        column = table.column(name)
        found = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        assert found == [row[name] for row in asked.expected], name
    for part in asked.plan.partitions:
        assert tuple(part.range) == asked.ranges[part.partition]


@settings(max_examples=rounds(20, 60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False), st.integers(5, 25), st.integers(1, 12), st.sampled_from([2, 1_000]))
def test_every_read_gives_exactly_the_records_of_the_model(
    random: Random, steps: int, batch_rows_max: int, listed_rows: int
) -> None:
    """Also reads that were planned long before they run, plans of a log that was just opened, sealed
    segments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("txnformat.protocol.sealing.LISTED_ROWS", listed_rows)
        patch.setattr("txnformat.protocol.segment_lists.LEAF_BYTES", 1_500)
        _check_history(History(random), random, steps, batch_rows_max)


def _check_history(history: History, random: Random, steps: int, batch_rows_max: int) -> None:
    asked: list[Asked] = []
    for _ in range(steps):
        history.step()
        if random.random() < 0.3:
            asked.append(_ask(history, history.log))
    opened = TxnLog.open(history.store)
    asked += [_ask(history, opened) for _ in range(8)]
    for one in asked:
        _check(history.store, one, batch_rows_max)
    _check_sidecars(history.log)
    for number, offsets in enumerate(opened.offsets("t")):
        key = TopicPartition(history.topic.topic_id, number)
        assert offsets.log_end == len(history.model.log[number]) == opened.state.partition(key).log_end
        stable = history.model.readable_end(number, IsolationLevel.READ_COMMITTED)
        assert offsets.last_stable_offset == stable
