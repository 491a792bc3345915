"""Snapshots: round trip, digest, and every way in which they can be damaged; and the steps that write
them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from msgspec import structs

from tests.limits.flatbuffers import metadata_stream
from tests.unit.core.full_state import FULL, LOG_ID, ORDERS, TABLE, checkpoint_of, step
from txnformat import keys
from txnformat.client.driver import Driver
from txnformat.clock import SystemClock, SystemIds
from txnformat.core.entry import sha256_hex
from txnformat.core.intents import (
    AllocateIds,
)
from txnformat.core.lifecycle.state import ErasureState
from txnformat.core.operations import Checkpoint
from txnformat.core.records.state import EXTENT
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot, state_digest
from txnformat.core.state import DeletedTopic, Features, LogState
from txnformat.core.wire.document import encode_json, plain_text
from txnformat.errors import CorruptDataError, StorageError, UnsupportedFeatureError
from txnformat.persistent import Columns, Vector, replace
from txnformat.protocol.effects import (
    CreateObject,
    DrawId,
    DrawUniform,
    Effect,
    GetObject,
    MakeDurable,
    ReadClock,
    Sleep,
    Times,
)
from txnformat.protocol.follow import parse_hint
from txnformat.protocol.snapshots import create_object, snapshot_due, write_hint, write_snapshot
from txnformat.protocol.view import View
from txnformat.store.base import CreateOutcome, CreateResult
from txnformat.store.memory import MemoryStore
from txnformat.types import SegmentListRecord, TopicPartition
from txnlog_testing.simulator.hand import Hand

DATA = encode_snapshot(FULL)
CHECKPOINT = checkpoint_of(FULL, DATA)


def plain(value: Any) -> Any:
    """Return a state as values that compare, whatever its chunks are."""
    match value:
        case Columns():
            return value.array().tolist()
        case Vector():
            return list(value)
        case dict():
            return {key: plain(one) for key, one in value.items()}
        case _ if hasattr(value, "__dataclass_fields__"):
            return {one.name: plain(getattr(value, one.name)) for one in fields(value) if one.compare}
        case msgspec.Struct():
            return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        case _:
            return value


def test_every_field_comes_back() -> None:
    decoded = decode_snapshot(DATA, CHECKPOINT, LOG_ID)
    assert plain(decoded) == plain(FULL)
    assert state_digest(decoded) == CHECKPOINT.digest
    assert encode_snapshot(decoded) == DATA


def test_the_state_before_any_topic_comes_back() -> None:
    state = step(LogState(LOG_ID, entry_sha256="0" * 64), AllocateIds("process"), "intent")
    data = encode_snapshot(state)
    assert plain(decode_snapshot(data, checkpoint_of(state, data), LOG_ID)) == plain(state)


def test_the_digest_depends_neither_on_chunks_nor_on_the_order_of_dicts() -> None:
    other = FULL
    for key, partition in FULL.partitions.items():
        extents = Columns(
            EXTENT, tuple(partition.extents.array()[i : i + 1] for i in range(len(partition.extents)))
        )
        other = replace(other, partitions={**other.partitions, key: replace(partition, extents=extents)})
    other = replace(
        other,
        topics=dict(reversed([*other.topics.items()])),
        topic_ids=dict(reversed([*other.topic_ids.items()])),
        partitions=dict(reversed([*other.partitions.items()])),
        files=other.files.keep(set(other.files.numbers())),
    )
    assert list(other.partitions) != list(FULL.partitions)
    assert state_digest(other) == state_digest(FULL)
    assert encode_snapshot(other) == DATA


def test_the_digest_of_a_known_state_never_changes() -> None:
    """The digest is part of the format: every version must compute the same one."""
    assert state_digest(LogState(LOG_ID, entry=3, entry_sha256="0" * 64, timestamp_ms=5)) == GOLDEN_EMPTY
    # Without the parts that come from compressed bytes.
    full = replace(FULL, checkpoints=(), entry_sha256="0" * 64, tables=Vector(), segments=Vector())
    assert state_digest(full) == GOLDEN_FULL


GOLDEN_EMPTY = "94fbe617523aaac0d2b6960f3561f7bf5021d5c64cd959ba5c14db87fac59abc"
GOLDEN_FULL = "ab5c3e8938de2e87a4204acaf39ae4ecc1ffb95f672a668023fbeb54eddff6c6"


DERIVED = {"partition_count", "topic_ids", "extents", "owners", "undecided"}
"""From topics, from partitions, and from transactional ids."""


ERASURE = ErasureState(LOG_ID, LOG_ID, "orders", "orders-0a8b4b7e", 5, 1, ("id",), "ab" * 32, "")


@pytest.mark.parametrize("name", [name for name in LogState.__struct_fields__ if name not in DERIVED])
def test_the_digest_covers_every_field(name: str) -> None:
    others = {
        "features": Features(frozenset(), frozenset(), frozenset()),
        "segment_lists": (SegmentListRecord(*structs.astuple(TABLE)),),
        "listed_segments": 1,
        "deleted": {"gone-00000000": DeletedTopic("gone-00000000", LOG_ID, 1)},
        "max_transaction_timeout_ms": 1,
        "truncate_older_than_ms": 604_800_000,
        "retired_generation": 7,
        "vacuum_floor": 7,
        "erasures": {LOG_ID: ERASURE},
    }
    changes: dict[str, Any] = {name: others.get(name, getattr(LogState(""), name))}
    changed = replace(FULL, **changes)
    assert state_digest(changed) != state_digest(FULL)


@pytest.mark.parametrize("column", list(EXTENT.names or ()))
def test_the_digest_covers_every_column_of_an_extent(column: str) -> None:
    key, partition = next(iter(FULL.partitions.items()))
    rows = partition.extents.array().copy()
    rows[column] += 1
    changed = {**FULL.partitions, key: replace(partition, extents=Columns(EXTENT, (rows,)))}
    assert state_digest(replace(FULL, partitions=changed)) != state_digest(FULL)


@pytest.mark.parametrize(
    ("data", "checkpoint", "field"),
    [
        (DATA[:-1], CHECKPOINT, "size"),
        (b"", CHECKPOINT, "size"),
        (DATA[:-1] + b"\x01", CHECKPOINT, "sha256"),
        (DATA, replace(CHECKPOINT, entry=3), "entry"),
        (DATA, replace(CHECKPOINT, digest="0" * 64), "digest"),
    ],
    ids=["cut", "empty", "changed", "entry", "digest"],
)
def test_a_snapshot_that_is_not_what_its_checkpoint_says_is_corrupt(
    data: bytes, checkpoint: Checkpoint, field: str
) -> None:
    with pytest.raises(CorruptDataError) as caught:
        decode_snapshot(data, checkpoint, LOG_ID)
    assert caught.value.values["object"] == CHECKPOINT.key
    assert caught.value.values["field"] == field
    assert {"expected", "got"} <= set(caught.value.values)


def test_a_snapshot_of_another_log_is_corrupt() -> None:
    with pytest.raises(CorruptDataError, match="log_id"):
        decode_snapshot(DATA, CHECKPOINT, "1a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11")


def sections(data: bytes) -> dict[str, bytes]:
    table = pa.ipc.open_stream(data).read_all()
    return dict(zip(table["section"].to_pylist(), table["data"].to_pylist(), strict=True))


def stream(table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    result: bytes = sink.getvalue().to_pybytes()
    return result


def tampered(change: Callable[[dict[str, bytes]], None]) -> bytes:
    """Return a snapshot with other sections: as a broken writer would make it, hashes and all."""
    parts = sections(DATA)
    change(parts)
    schema = pa.ipc.open_stream(DATA).schema
    return stream(pa.table([list(parts), list(parts.values())], schema=schema))


def state_json(**changes: Any) -> Callable[[dict[str, bytes]], None]:
    def change(parts: dict[str, bytes]) -> None:
        value = json.loads(plain_text(parts["state"], name="state", stored=len(parts["state"])))
        parts["state"] = encode_json({**value, **changes})

    return change


def files(change: Callable[[Any], Any]) -> Callable[[dict[str, bytes]], None]:
    def tamper(parts: dict[str, bytes]) -> None:
        parts["files"] = stream(change(pa.ipc.open_stream(parts["files"]).read_all()))

    return tamper


def column(name: str, value: Any) -> Callable[[Any], Any]:
    def change(table: Any) -> Any:
        index = table.schema.get_field_index(name)
        return table.set_column(
            index, table.schema.field(index), [pa.array([value] * len(table), pa.string())]
        )

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda parts: parts.update(extents=parts["extents"][:-40]),
        lambda parts: parts.update(extents=parts["markers"]),
        lambda parts: parts.update(extents=b"no arrow"),
        lambda parts: parts.update(state=b"{"),
        lambda parts: parts.pop("tables"),
        state_json(files=0),
        state_json(partitions=[]),
        state_json(entry_sha256="0"),
        state_json(window={"first": 0, "entries": [1]}),
        state_json(transactional_ids=[{"transactional_id": "etl"}]),
        state_json(topics=[{"created_entry": 0, "create": {"operation": "upgrade"}}]),
        state_json(next_producer_id=1),
        files(column("key", "../../etc/passwd")),
        files(column("sha256", "A" * 64)),
        files(column("sha256", None)),
        files(lambda table: table.slice(1)),
    ],
)
def test_a_snapshot_with_damaged_contents_is_corrupt(change: Callable[[dict[str, bytes]], None]) -> None:
    data = tampered(change)
    checkpoint = replace(CHECKPOINT, size=len(data), sha256=sha256_hex(data))
    with pytest.raises(CorruptDataError):
        decode_snapshot(data, checkpoint, LOG_ID)


def _extents(data: bytes) -> Callable[[dict[str, bytes]], None]:
    return lambda parts: parts.update(extents=data)


NOTED = pa.ipc.open_stream(sections(DATA)["extents"]).read_all()


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (_extents(metadata_stream(2, b"x")), "0 columns, not 19"),
        (
            _extents(stream(NOTED.rename_columns(["x", *NOTED.column_names[1:]]))),
            "columns of another schema: 'x'",
        ),
        (_extents(sections(DATA)["extents"] + b"x"), None),
        (_extents(metadata_stream(0, b"x")[:-8] + sections(DATA)["extents"]), "0 columns"),
        (_extents(b""), "byte 4 is outside of 0"),
        (
            _extents(stream(NOTED)[:-8].partition(b"extents")[0][:400]),
            "outside|no message|more than there are",
        ),
    ],
)
def test_a_schema_is_compared_before_arrow_sees_it(
    change: Callable[[dict[str, bytes]], None], got: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow would build each column and each text as often as a schema refers to it."""
    data = tampered(change)
    monkeypatch.delattr("pyarrow.ipc.open_stream")
    checkpoint = replace(CHECKPOINT, size=len(data), sha256=sha256_hex(data))
    if got is None:
        assert plain(decode_snapshot(data, checkpoint, LOG_ID)) == plain(FULL)
        return
    with pytest.raises(CorruptDataError, match=got):
        decode_snapshot(data, checkpoint, LOG_ID)


def test_metadata_of_a_message_is_refused() -> None:
    batch = NOTED.combine_chunks().to_batches()[0]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, NOTED.schema) as writer:
        writer.write_batch(batch, custom_metadata={"k": "v"})
    data = tampered(_extents(sink.getvalue().to_pybytes()))
    with pytest.raises(CorruptDataError, match="metadata of its own"):
        decode_snapshot(data, replace(CHECKPOINT, size=len(data), sha256=sha256_hex(data)), LOG_ID)


@pytest.mark.parametrize(
    "change",
    [state_json(format=2), state_json(features={"reader": ["new"], "writer": [], "maintenance": []})],
    ids=["format", "feature"],
)
def test_a_snapshot_of_a_newer_version_is_an_unsupported_feature(
    change: Callable[[dict[str, bytes]], None],
) -> None:
    data = tampered(change)
    with pytest.raises(UnsupportedFeatureError):
        decode_snapshot(data, replace(CHECKPOINT, size=len(data), sha256=sha256_hex(data)), LOG_ID)


def test_a_decoded_state_cannot_be_written_to() -> None:
    decoded = decode_snapshot(DATA, CHECKPOINT, LOG_ID)
    rows = decoded.partition(TopicPartition(ORDERS.topic_id, 0)).extents.array()
    with pytest.raises(ValueError, match="read-only"):
        rows["entry"] = np.int64(0)


def test_a_written_snapshot_is_read_back_and_named_and_hinted_at() -> None:
    store = MemoryStore()
    driver = Driver(store, SystemClock(), SystemIds())
    checkpoint = driver.run(write_snapshot(View(FULL)))
    driver.run(write_hint(checkpoint))
    data = store.get(checkpoint.key)
    assert data == DATA
    assert keys.parse_snapshot_key(checkpoint.key) is not None
    assert plain(decode_snapshot(data, checkpoint, LOG_ID)) == plain(FULL)
    hint = store.get(keys.LATEST_KEY)
    assert parse_hint(hint) == (FULL.entry, checkpoint.key)
    assert hint is not None
    assert json.loads(hint) == {"entry": FULL.entry, "key": checkpoint.key, "sha256": checkpoint.sha256}


def begin() -> tuple[Any, CreateObject]:
    steps = write_snapshot(View(FULL))
    assert next(steps) == DrawId()
    assert steps.send("0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a12") == ReadClock()
    create = steps.send(Times(0, 0, 0))
    assert isinstance(create, CreateObject)
    return steps, create


def test_a_snapshot_that_reads_back_differently_is_never_named() -> None:
    steps, create = begin()
    assert steps.send(CreateResult(CreateOutcome.CREATED)) == GetObject(create.key)
    with pytest.raises(CorruptDataError):
        steps.send(create.data[:-1] + b"\x01")


def test_an_unclear_answer_is_settled_by_reading_and_an_absent_object_is_sent_again() -> None:
    steps, create = begin()
    unclear = CreateResult(CreateOutcome.AMBIGUOUS, StorageError("timeout", transient=True))
    assert steps.send(unclear) == GetObject(create.key)
    assert steps.send(None) == ReadClock()
    assert steps.send(Times(5, 5, 5)) == DrawUniform()
    assert steps.send(0.5) == Sleep(75)
    assert steps.send(None) == create
    assert steps.send(CreateResult(CreateOutcome.EXISTS)) == GetObject(create.key)
    assert steps.send(create.data) == MakeDurable((create.key,))  # an entry will name it
    with pytest.raises(StopIteration) as caught:
        steps.send(None)
    assert caught.value.value.key == create.key


def test_a_refused_snapshot_raises_the_stores_error() -> None:
    steps, _ = begin()
    error = StorageError("read only")
    with pytest.raises(StorageError) as caught:
        steps.send(CreateResult(CreateOutcome.REFUSED, error))
    assert caught.value is error


def test_a_snapshot_that_fails_for_now_is_tried_for_a_minute_with_growing_pauses() -> None:
    hand = Hand()
    unclear = CreateResult(CreateOutcome.AMBIGUOUS, StorageError("timeout", transient=True))
    hand.creates = [unclear] * 100
    with pytest.raises(StorageError, match="complete without it"):
        hand.run(create_object("a", b"data"))
    assert list(hand.sleeps()) == [75, 150, 300, 600, 1_200, 2_400, *(3_750,) * 14, 2_775]
    assert sum(hand.sleeps()) == 60_000
    assert len(hand.slots_created()) == 22
    hand.creates = [unclear] * 5
    assert hand.run(create_object("a", b"data")) == b"data"


def test_a_snapshot_that_cannot_be_read_back_for_now_is_asked_for_again() -> None:
    hand, away = Hand(), [StorageError("503", transient=True)] * 3

    def before(effect: Effect) -> None:
        if isinstance(effect, GetObject) and away:
            raise away.pop()

    hand.before = before
    assert hand.run(create_object("a", b"data")) == b"data"
    assert len(hand.sleeps()) == 3


def test_a_snapshot_that_fails_for_good_is_not_tried_again() -> None:
    hand = Hand()
    hand.creates = [CreateResult(CreateOutcome.AMBIGUOUS, StorageError("fsync failed"))]
    with pytest.raises(StorageError, match="complete without it"):
        hand.run(create_object("a", b"data"))
    assert not hand.sleeps()


def at(entry: int, checkpoint_entry: int | None = None, size: int = 1) -> LogState:
    named = () if checkpoint_entry is None else (replace(CHECKPOINT, entry=checkpoint_entry, size=size),)
    return LogState(LOG_ID, entry=entry, checkpoints=named)


@pytest.mark.parametrize(
    ("state", "ours", "uniform", "due"),
    [
        (at(100), True, 0.0, False),
        (at(101), True, 0.99, True),  # the author of the entry that crosses the bound
        (at(101), False, 0.0, False),
        (at(102), True, 0.0, False),
        (at(200), True, 0.0, False),
        (at(201), True, 0.06, True),  # anybody beyond twice the bound, 1 in 16
        (at(201), True, 0.0625, False),
        (at(201), False, 0.0, False),
        (at(1_101, 1_000), True, 0.99, True),
        (at(1_101, 1_000, 200 * 65_536), True, 0.0, False),  # a large snapshot is written less often
        (at(1_201, 1_000, 200 * 65_536), True, 0.99, True),
    ],
)
def test_when_a_snapshot_is_due(state: LogState, ours: bool, uniform: float, due: bool) -> None:
    assert snapshot_due(state, ours, uniform) is due


def test_a_section_that_decompresses_to_far_more_is_refused_before_it_is() -> None:
    rows = 4_000_000
    columns = {name: pa.array(np.zeros(rows, EXTENT[name])) for name in EXTENT.names or ()}
    schema = pa.schema([pa.field(name, column.type, nullable=False) for name, column in columns.items()])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(pa.record_batch(list(columns.values()), schema=schema))
    with pa.ipc.open_stream(DATA) as reader:
        outer = reader.read_all()
    sections = outer.column("section").to_pylist()
    parts = outer.column("data").to_pylist()
    parts[sections.index("extents")] = sink.getvalue().to_pybytes()
    made = pa.BufferOutputStream()
    with pa.ipc.new_stream(made, outer.schema) as writer:
        writer.write_table(
            pa.table([pa.array(sections), pa.array(parts, pa.large_binary())], schema=outer.schema)
        )
    data = made.getvalue().to_pybytes()
    assert len(data) < 1024 * 1024
    with pytest.raises(CorruptDataError, match="when decompressed, more than"):
        decode_snapshot(data, checkpoint_of(FULL, data), LOG_ID)
