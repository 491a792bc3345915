"""How topics change: what a change may be, what it becomes, and what the fold and a snapshot make of it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.unit.core.topics.evolution_steps import LOG_ID, after, committed, refusal
from txnformat.core.decide import decide
from txnformat.core.entry import sha256_hex
from txnformat.core.fold import apply
from txnformat.core.intents import (
    AllocateIds,
    ChangeTopic,
    Done,
    Included,
    Intent,
    ProducerRef,
    Write,
)
from txnformat.core.invariants import check_state, check_whole
from txnformat.core.operation_codec import decode_operation, encode_operation
from txnformat.core.operations import AlterTopic, Append, Checkpoint, CreateTopic
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot, state_digest
from txnformat.core.topics.evolution import as_change, evolve, next_version
from txnformat.core.topics.schema import TopicSchema, conform, fields_to_json
from txnformat.errors import ConflictError, CorruptDataError, InvalidInputError, NotFoundError
from txnformat.field_types import SCHEMAS_MAX
from txnformat.keys import snapshot_key, topic_directory
from txnformat.persistent import replace
from txnlog_testing.strategies import make_append

TOPIC_ID = "9a6f2a90-8a35-4a63-9d1b-1b8a1f8a2c33"
FIRST = pa.schema(
    [
        pa.field("id", pa.int32()),
        pa.field("small", pa.int8()),
        pa.field("ratio", pa.float32()),
        pa.field("price", pa.decimal128(8, 2)),
        pa.field("at", pa.timestamp("us", "UTC")),
    ]
)
SCHEMA = TopicSchema(FIRST, ("id",), "at")
TOPIC = CreateTopic(
    TOPIC_ID, "orders", topic_directory("orders", TOPIC_ID), 2, tuple(fields_to_json(FIRST)), ("id",), "at"
)
GROWN = ChangeTopic(TOPIC_ID, 4, (pa.field("note", pa.string()),), (("small", pa.int64()),))


# --- what a user asks for -----------------------------------------------------------------------------------


def test_every_forbidden_change_is_told_at_once() -> None:
    change = as_change(
        TOPIC_ID,
        2,
        [
            pa.field("ID", pa.string()),
            pa.field("_offset", pa.int64()),
            pa.field("must", pa.int64(), nullable=False),
            pa.field("nanos", pa.timestamp("ns")),
            pa.field("small", pa.int8()),
        ],
        {
            "id": pa.int64(),
            "nowhere": pa.int64(),
            "ratio": pa.float32(),
            "at": pa.timestamp("ns"),
            "small": pa.string(),
        },
    )
    with pytest.raises(InvalidInputError) as caught:
        evolve(SCHEMA, 2, change)
    assert caught.value.kind == "invalid-alter"
    text = "\n".join(caught.value.problems)
    for part in (
        "the topic has 2 partitions and cannot have 2",
        "'ID' clashes with 'id'",
        "'_offset' is the name of a metadata column",
        "'must' cannot be NOT NULL",
        "'nanos' has the type 'timestamp[ns]'",
        "'small' appears twice",
        "'id' is a key column",
        "no column 'nowhere' to widen",
        "'ratio' is float and cannot become float",
        "column 'at' has the type 'timestamp[ns]'",
        "'small' is int8 and cannot become string",
    ):
        assert part in text, part
    assert len(caught.value.problems) == 11


def test_what_is_no_change_at_all_is_told_at_once() -> None:
    with pytest.raises(InvalidInputError) as caught:
        as_change(TOPIC_ID, True, ["note"], {"id": "int64"})
    assert len(caught.value.problems) == 3
    with pytest.raises(InvalidInputError) as caught:
        as_change(TOPIC_ID, None, "note", "id")
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize("partitions", [0, -1, 1, 2, 10_001])
def test_partitions_only_grow(partitions: int) -> None:
    with pytest.raises(InvalidInputError, match="only grow"):
        evolve(SCHEMA, 2, ChangeTopic(TOPIC_ID, partitions))
    assert evolve(SCHEMA, 2, ChangeTopic(TOPIC_ID, 10_000)) == AlterTopic(TOPIC_ID, 10_000, 0, None)


def test_nothing_to_change_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="nothing to change"):
        evolve(SCHEMA, 2, as_change(TOPIC_ID, None, [], {}))


def test_near_types_are_replaced_as_in_create_topic() -> None:
    change = as_change(
        TOPIC_ID, None, pa.schema([pa.field("note", pa.large_string())]), {"small": pa.uint8()}
    )
    assert change.widen == (("small", pa.uint8()),)
    operation = evolve(SCHEMA, 2, change)
    assert operation.fields is not None
    assert operation.fields[1] == {"name": "small", "type": "int16"}
    assert operation.fields[-1] == {"name": "note", "type": "string"}


def test_a_topic_has_at_most_so_many_schemas() -> None:
    schema = replace(SCHEMA, earlier=(FIRST,) * (SCHEMAS_MAX - 1))
    with pytest.raises(InvalidInputError, match=f"has had {SCHEMAS_MAX} schemas"):
        evolve(schema, 2, GROWN)
    wide = FIRST.append(pa.field("note", pa.string()))
    assert next_version(schema, fields_to_json(wide)) is None
    assert evolve(schema, 2, ChangeTopic(TOPIC_ID, 3)).partitions == 3


# --- deciding and folding -----------------------------------------------------------------------------------


def test_a_change_becomes_one_operation_and_the_topic_has_both_versions() -> None:
    state = after(TOPIC, GROWN)
    topic = state.topic("orders")
    assert (topic.partitions, topic.schema.schema_id) == (4, 1)
    assert topic.schema.version(0).equals(FIRST)
    assert topic.schema.arrow_schema.names == [*FIRST.names, "note"]
    assert topic.schema.arrow_schema.field("small").type == pa.int64()
    assert topic.schema.added == {"note"}
    assert (topic.schema.key_columns, topic.schema.timestamp_column) == (("id",), "at")
    assert topic.created == TOPIC


def test_a_second_change_is_decided_on_what_the_first_left() -> None:
    """Two that race: whoever comes second is judged by the newer topic."""
    state = after(TOPIC, GROWN)
    problems = refusal(state, GROWN).problems
    assert len(problems) == 3
    assert "has 4 partitions and cannot have 4" in problems[0]
    again = after(TOPIC, GROWN, replace(GROWN, partitions=6, add=(), widen=()))
    assert (again.topic("orders").partitions, again.topic("orders").schema.schema_id) == (6, 1)


def test_a_change_of_no_topic_is_refused() -> None:
    assert isinstance(refusal(after(), GROWN), NotFoundError)


def test_a_stale_append_is_refused_unless_the_log_has_it_already() -> None:
    """A producer that repeats a landed append must learn that it landed: else the records would be sent
    twice."""
    producer = ProducerRef(0, 0)
    append = make_append(TOPIC, {0: (0, 3), 1: (0, 2)}, content="first")
    landed = Write(producer, (append,))
    state = after(TOPIC, AllocateIds("p"), landed, GROWN)
    verdict = decide(state, Intent("again", state.entry + 1, landed))
    assert isinstance(verdict, Done)
    assert verdict.entry == 2
    more = make_append(TOPIC, {0: (0, 3), 1: (2, 2)}, content="first")
    for stale in (
        Write(producer, (more,)),
        Write(appends=(append,)),
        Write(producer, (make_append(TOPIC, {0: (3, 1)}, content="next"),)),
    ):
        error = refusal(state, stale)
        assert isinstance(error, ConflictError)
        assert (error.kind, error.values["got"]) == ("partition-count-changed", 4)
    fresh = Write(producer, (make_append(replace(TOPIC, partitions=4), {3: (0, 1)}, content="fresh"),))
    assert isinstance(decide(state, Intent("fresh", state.entry + 1, fresh)), Included)


def test_an_append_of_an_older_schema_is_legal_and_one_of_an_unknown_schema_is_not() -> None:
    now = replace(TOPIC, partitions=4)
    old = Write(appends=(make_append(now, {3: (-1, 2)}, content="old"),))
    new = Write(appends=(make_append(now, {3: (-1, 2)}, content="new", schema_id=1),))
    state = after(TOPIC, GROWN, old, new)
    assert [file.schema_id for file in state.files] == [0, 1]
    ahead = Write(appends=(make_append(now, {3: (-1, 2)}, content="ahead", schema_id=2),))
    assert refusal(state, ahead).what == "a file has a schema that its topic does not have"
    later = make_append(now, {3: (-1, 2)}, content="later", schema_id=1)
    entry = committed(state, Write(appends=(later,))).entry
    assert entry is not None
    (operation,) = entry.operations
    assert isinstance(operation, Append)
    wrong = replace(operation, files=(replace(operation.files[0], schema_id=2),))
    with pytest.raises(CorruptDataError, match="a schema that its topic does not have"):
        apply(state, replace(entry, operations=(wrong,)), "0" * 64)


OPERATION = AlterTopic(TOPIC_ID, 4, 1, tuple(fields_to_json(FIRST.append(pa.field("note", pa.string())))))
NARROW = FIRST.set(1, pa.field("small", pa.string()))


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic_id": LOG_ID},
        {"partitions": 1},
        {"schema_id": 0},
        {"schema_id": 2},
        {"fields": None},
        {"fields": None, "schema_id": 0, "partitions": 2},
        {"fields": TOPIC.fields},
        {"fields": TOPIC.fields[:-1]},
        {"fields": OPERATION.fields[1:] if OPERATION.fields else None},
        {"fields": tuple(fields_to_json(NARROW))},
        {"fields": tuple(fields_to_json(FIRST.set(0, pa.field("id", pa.int64()))))},
        {"fields": tuple(fields_to_json(FIRST.set(1, pa.field("tiny", pa.int8()))))},
    ],
)
def test_a_change_that_no_correct_writer_makes_is_corrupt(wrong: dict[str, Any]) -> None:
    state = after(TOPIC)
    entry = committed(state, GROWN).entry
    assert entry is not None
    right = replace(entry, operations=(OPERATION,))
    assert apply(state, right, "0" * 64).topic("orders").schema.schema_id == 1
    with pytest.raises(CorruptDataError):
        apply(state, replace(entry, operations=(replace(OPERATION, **wrong),)), "0" * 64)


@pytest.mark.parametrize("fields", [[], ["note"], [{"name": "x", "type": "uint8"}], "note", 7])
def test_a_version_that_metadata_does_not_describe_is_corrupt(fields: Any) -> None:
    document = {**encode_operation(OPERATION), "fields": fields}
    state = after(TOPIC)
    entry = committed(state, GROWN).entry
    assert entry is not None

    def read() -> None:
        apply(state, replace(entry, operations=(decode_operation(document, 1, path="entry"),)), "0" * 64)

    with pytest.raises(CorruptDataError):
        read()


def test_a_snapshot_keeps_partitions_versions_and_the_schemas_of_files() -> None:
    now = replace(TOPIC, partitions=4)
    state = after(
        TOPIC,
        Write(appends=(make_append(TOPIC, {0: (-1, 2)}, content="zero"),)),
        GROWN,
        Write(appends=(make_append(now, {3: (-1, 2)}, content="one", schema_id=1),)),
        ChangeTopic(TOPIC_ID, None, (), (("ratio", pa.float64()),)),
    )
    data = encode_snapshot(state)
    named = Checkpoint(
        state.entry, snapshot_key(state.entry, LOG_ID), len(data), sha256_hex(data), state_digest(state)
    )
    read = decode_snapshot(data, named, LOG_ID)
    assert read.topics == state.topics
    assert list(read.files) == list(state.files)
    assert (read.topic("orders").partitions, read.topic("orders").schema.schema_id) == (4, 2)
    assert state_digest(read) == state_digest(state)
    older = replace(state.topic("orders"), partitions=3)
    assert state_digest(replace(state, topics={TOPIC_ID: older})) != state_digest(state)


@pytest.mark.parametrize(
    "damage",
    [
        {"partitions": 1},
        {"schema": replace(SCHEMA, earlier=(NARROW,))},
        {"schema": replace(SCHEMA, earlier=(FIRST,))},
        {"schema": TopicSchema(NARROW, ("id",), "at", (FIRST,))},
        {"schema": TopicSchema(FIRST.set(0, pa.field("id", pa.int64())), ("id",), "at", (FIRST,))},
    ],
)
def test_the_invariants_report_a_topic_that_did_not_just_grow(damage: dict[str, Any]) -> None:
    state = after(TOPIC)
    assembled = committed(state, GROWN)
    assert assembled.entry is not None
    grown = apply(state, assembled.entry, assembled.sha256)
    wrong = replace(grown, topics={TOPIC_ID: replace(grown.topics[TOPIC_ID], **damage)})
    for problems in (check_state(state, assembled.entry, wrong), check_whole(wrong)):
        assert problems
        assert all(problem.startswith("I13") for problem in problems)


# --- data that knows less -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        pa.table({"id": pa.array([1, 2], pa.int32())}),
        [{"id": 1}, {"id": 2}],
        [{"id": 1, "note": None}, {"id": 2}],
    ],
)
def test_columns_that_were_added_may_be_missing_and_no_others(data: Any) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("note", pa.string())])
    expected = pa.table({"id": [1, 2], "note": pa.nulls(2, pa.string())}, schema=schema)
    assert conform(data, schema, {"note"}).equals(expected)
    for optional in ((), {"id"}):
        with pytest.raises(InvalidInputError) as caught:
            conform(data[:0] if isinstance(data, pa.Table) else data, schema, optional)
        assert "'note' is missing" in str(caught.value)
