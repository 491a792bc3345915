"""Columns that are renamed and dropped: what may be, what becomes of it in the fold, in snapshots and in sums
of rows, and which column of a file is which."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.unit.core.topics.evolution_steps import LOG_ID, after, committed, refusal
from txnformat.columns.file_columns import FileColumns
from txnformat.columns.multiset import multiset_of
from txnformat.core.entry import sha256_hex
from txnformat.core.fold import apply
from txnformat.core.intents import ChangeTopic, EnableFeatures
from txnformat.core.invariants import check_state, check_whole
from txnformat.core.lifecycle.operations import RequestErasure
from txnformat.core.operation_codec import decode_operation, encode_operation
from txnformat.core.operations import AlterTopic, Checkpoint, CreateTopic
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot, state_digest
from txnformat.core.state import COLUMNS, LIFECYCLE, LogState
from txnformat.core.topics.creation import check_same_topic
from txnformat.core.topics.evolution import as_change, next_version
from txnformat.core.topics.schema import KAFKA_SCHEMA, TopicSchema, fields_to_json
from txnformat.errors import ConflictError, CorruptDataError, InvalidInputError, UnsupportedFeatureError
from txnformat.keys import snapshot_key, topic_directory
from txnformat.persistent import replace
from txnformat.types import FileRecord

TOPIC_ID = "9a6f2a90-8a35-4a63-9d1b-1b8a1f8a2c33"
FIRST = pa.schema(
    [
        ("id", pa.int32()),
        ("note", pa.string()),
        ("small", pa.int8()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
TOPIC = CreateTopic(
    TOPIC_ID, "orders", topic_directory("orders", TOPIC_ID), 2, tuple(fields_to_json(FIRST)), ("id",), "at"
)
ON = EnableFeatures((COLUMNS, LIFECYCLE))
RENAMED = ChangeTopic(TOPIC_ID, rename=(("id", "key"), ("at", "moment")))
DROPPED = ChangeTopic(TOPIC_ID, drop=("note",))
AGAIN = ChangeTopic(TOPIC_ID, add=(pa.field("note", pa.string()),))
TEXT = pa.field("text", pa.string())


def schema_after(*changes: ChangeTopic) -> TopicSchema:
    return after(TOPIC, ON, *changes).topic("orders").schema


def file(schema_id: int) -> FileRecord:
    return FileRecord("k", 1, "0" * 64, 1, "0" * 64, 1, schema_id)


def names_in(schema: TopicSchema, schema_id: int) -> dict[str, str]:
    return dict(schema.of_file(file(schema_id)).names)


# --- which column is which ----------------------------------------------------------------------------------


def test_a_name_that_is_free_again_belongs_to_another_column() -> None:
    schema = schema_after(DROPPED, AGAIN)
    assert schema.arrow_schema.names == ["id", "small", "at", "note"]
    assert schema.places == ((0, 1, 2, 3), (0, 2, 3), (0, 2, 3, 4))
    assert names_in(schema, 0) == {"id": "id", "small": "small", "at": "at"}
    assert schema.of_file(file(0)).stored.equals(FIRST)
    assert "note" in names_in(schema, 2)
    assert schema.added == {"note"}
    assert schema.first_columns == ("id", "small", "at")
    assert schema.dropped() == [(1, FIRST.field("note"))]
    assert schema.next_place == 5


def test_a_renamed_column_is_found_under_each_of_its_names_and_keys_and_time_follow() -> None:
    schema = schema_after(RENAMED, ChangeTopic(TOPIC_ID, rename=(("small", "at"),)))
    assert (schema.key_columns, schema.timestamp_column) == (("key",), "moment")
    assert names_in(schema, 0) == {"key": "id", "note": "note", "at": "small", "moment": "at"}
    assert names_in(schema, 1) == {"key": "key", "note": "note", "at": "small", "moment": "moment"}
    assert names_in(schema, 2) == {name: name for name in schema.arrow_schema.names}


def test_a_column_that_was_dropped_last_does_not_give_its_place_to_the_next() -> None:
    schema = schema_after(
        ChangeTopic(TOPIC_ID, add=(TEXT,)),
        ChangeTopic(TOPIC_ID, drop=("text",)),
        ChangeTopic(TOPIC_ID, add=(TEXT,)),
    )
    assert schema.places[-1] == (0, 1, 2, 3, 5)
    assert "text" not in names_in(schema, 1)


def test_columns_come_go_widen_and_get_names_in_one_step() -> None:
    change = ChangeTopic(
        TOPIC_ID, 3, (TEXT,), (("small", pa.int64()),), rename=(("small", "large"),), drop=("note",)
    )
    schema = schema_after(change)
    assert {one.name: str(one.type) for one in schema.arrow_schema} == {
        "id": "int32",
        "large": "int64",
        "at": "timestamp[us, tz=UTC]",
        "text": "string",
    }
    assert names_in(schema, 0) == {"id": "id", "large": "small", "at": "at"}


def test_an_earlier_version_reads_files_of_later_ones_by_place_and_says_what_they_have_lost() -> None:
    newest = schema_after(RENAMED, DROPPED, AGAIN)
    pinned = schema_after(RENAMED).beside(newest)
    assert dict(pinned.of_file(file(3)).names) == {"key": "key", "small": "small", "moment": "moment"}
    assert pinned.dropped_in(3) == {"note"}
    assert pinned.dropped_in(1) == frozenset()
    assert newest.dropped_in(0) == frozenset()
    columns = pinned.of_file(file(3)).beside([], pinned.dropped_in(3))
    assert columns.held(["key", "small"]) == ["key", "small"]
    with pytest.raises(ConflictError) as caught:
        columns.held(["key", "note"])
    assert caught.value.kind == "column-dropped"


def test_an_earlier_version_has_its_own_names_keys_and_time() -> None:
    newest = schema_after(RENAMED, DROPPED)
    first = newest.at_version(0)
    assert first.arrow_schema.equals(FIRST)
    assert (first.key_columns, first.timestamp_column, first.schema_id) == (("id",), "at", 0)


def test_rows_of_an_earlier_version_are_carried_to_this_one_by_place() -> None:
    schema = schema_after(DROPPED, AGAIN, ChangeTopic(TOPIC_ID, rename=(("id", "key"),)))
    rows = pa.table({"id": [1], "note": ["old"], "small": [2], "at": [None]})
    assert schema.carried(rows, 0).to_pylist() == [{"key": 1, "small": 2, "at": None}]


@pytest.mark.parametrize(
    ("stored", "names", "wanted", "finds"),
    [
        (["a", "b"], {"a": "a", "b": "b"}, ["a"], True),
        (["a", "b"], {"x": "a", "b": "b"}, ["b"], True),
        (["a", "b"], {"x": "a", "b": "b"}, ["x"], False),
        (["a", "b"], {"b": "b"}, ["b", "c"], True),
        (["a", "b"], {"b": "b"}, ["b", "a"], False),
        (["a", "b"], {"b": "b"}, ["b", "A"], False),
        (["A", "b"], {"b": "b"}, ["b", "a"], False),
        (["a", "b"], {"A": "a", "b": "b"}, ["A"], False),
    ],
)
def test_a_program_that_goes_by_names_may_have_files_in_which_they_mean_the_same(
    stored: list[str], names: dict[str, str], wanted: list[str], finds: bool
) -> None:
    columns = FileColumns(pa.schema([(name, pa.int8()) for name in stored]), names)
    assert columns.has_own_names(wanted) is finds


# --- what may be --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"drop": ["id"]}, "'id' is a key column and cannot be dropped"),
        ({"drop": ["at"]}, "'at' is the timestamp column and cannot be dropped"),
        ({"drop": ["nix"]}, "there is no column 'nix' to rename or drop"),
        ({"rename": {"nix": "x"}}, "there is no column 'nix' to rename or drop"),
        ({"rename": {"note": "small"}}, "column 'small' exists"),
        ({"rename": {"note": "small", "small": "other"}}, "column 'small' exists"),
        ({"rename": {"note": "x", "small": "x"}}, "two columns are to be called 'x'"),
        ({"rename": {"note": "x"}, "drop": ["note"]}, "'note' is to be renamed or dropped twice"),
        ({"drop": ["note", "note"]}, "'note' is to be renamed or dropped twice"),
        ({"rename": {"note": "_offset"}}, "'_offset' is the name of a metadata column"),
        ({"rename": {"note": "SMALL"}}, "'small' clashes with 'SMALL'"),
        ({"rename": {"note": ""}}, "''"),
        ({"drop": ["small"], "widen": {"small": pa.int16()}}, "'small' is to be widened and dropped"),
        ({"drop": ["note"], "add_columns": [pa.field("note", pa.string())]}, "add it in a second call"),
        ({"drop": "note"}, "not a list of names of columns"),
        ({"drop": [1]}, "drop has 1, not a name"),
        ({"rename": ["note"]}, "not a mapping of a column to its new name"),
        ({"rename": {"note": None}}, "not the name of a column and its new one"),
    ],
)
def test_what_cannot_be_is_one_problem(change: dict[str, Any], problem: str) -> None:
    state = after(TOPIC, ON)
    arguments = {"add_columns": None, "widen": None, **change}
    with pytest.raises(InvalidInputError) as caught:
        raise refusal(state, as_change(TOPIC_ID, None, **arguments))
    assert len(caught.value.problems) == 1, caught.value.problems
    assert problem in caught.value.problems[0]
    assert caught.value.kind == "invalid-alter"


def test_a_topic_keeps_a_column() -> None:
    topic = replace(TOPIC, key_columns=(), timestamp_column=None)
    change = ChangeTopic(TOPIC_ID, drop=tuple(FIRST.names))
    (problem,) = refusal(after(topic, ON), change).problems
    assert "at least one column" in problem
    left = after(topic, ON, replace(change, drop=tuple(FIRST.names[1:]))).topic("orders")
    assert left.schema.arrow_schema.names == ["id"]


@pytest.mark.parametrize(
    ("setting", "value"),
    [("compact.bloom.columns", "id, note"), ("tombstone.column", "note")],
)
def test_a_column_that_a_setting_names_keeps_its_name_unless_the_setting_changes_with_it(
    setting: str, value: str
) -> None:
    def change(**arguments: Any) -> ChangeTopic:
        return as_change(TOPIC_ID, None, None, None, **arguments)

    state = after(TOPIC, ON, change(settings={setting: value}))
    for one in (change(drop=["note"]), change(rename={"note": "text"})):
        (problem,) = refusal(state, one).problems
        assert f"named by {setting}" in problem
    new = value.replace("note", "text")
    both = after(
        TOPIC, ON, change(settings={setting: value}), change(rename={"note": "text"}, settings={setting: new})
    )
    assert both.topic("orders").settings[0].value == new
    assert (
        not after(TOPIC, ON, change(settings={setting: value}), change(drop=["note"], unset=[setting]))
        .topic("orders")
        .settings
    )
    stays = refusal(state, change(rename={"note": "text"}, settings={setting: value}))
    assert stays.kind == "invalid-setting"


def test_a_topic_of_kafkas_schema_keeps_its_four_names_and_no_other_one_gets_them() -> None:
    fields, keys, time = KAFKA_SCHEMA.to_json()
    kafka = replace(TOPIC, fields=fields, key_columns=keys, timestamp_column=time)
    for change in (ChangeTopic(TOPIC_ID, drop=("headers",)), ChangeTopic(TOPIC_ID, rename=(("value", "v"),))):
        (problem,) = refusal(after(kafka, ON), change).problems
        assert 'schema "kafka"' in problem
    own = ChangeTopic(TOPIC_ID, add=(TEXT,))
    assert after(kafka, ON, own, ChangeTopic(TOPIC_ID, drop=("text",))).topic("orders").schema.schema_id == 2
    near = replace(
        kafka, fields=({"name": "key", "type": "binary"}, {"name": "payload", "type": "binary"}, *fields[2:])
    )
    (problem,) = refusal(after(near, ON), ChangeTopic(TOPIC_ID, rename=(("payload", "value"),))).problems
    assert "a null value deletes a record" in problem


def test_a_column_in_the_condition_of_an_erasure_keeps_its_name_until_that_is_complete() -> None:
    request = RequestErasure(LOG_ID, TOPIC_ID, ("note",), "0" * 64, "me")
    state = after(TOPIC, ON, request)
    for change in (DROPPED, ChangeTopic(TOPIC_ID, rename=(("note", "text"),))):
        (problem,) = refusal(state, change).problems
        assert "in the condition of an erasure" in problem
    assert (
        after(TOPIC, ON, request, ChangeTopic(TOPIC_ID, drop=("small",))).topic("orders").schema.schema_id
        == 1
    )
    erasure = replace(state.erasures[LOG_ID], complete_entry=3)
    done = replace(state, erasures={LOG_ID: erasure})
    assert committed(done, DROPPED).entry is not None


def test_a_change_is_about_the_columns_that_its_user_saw() -> None:
    """Another client has dropped the column, and added one of its name, meanwhile."""
    state = after(TOPIC, ON, DROPPED, AGAIN)
    for change in (DROPPED, ChangeTopic(TOPIC_ID, rename=(("note", "text"),))):
        (problem,) = refusal(state, replace(change, schema_id=0)).problems
        assert "another client has given the name 'note' to another column" in problem
        assert committed(state, replace(change, schema_id=2)).entry is not None


def test_names_change_only_in_a_log_whose_readers_know_places() -> None:
    error = refusal(after(TOPIC), DROPPED)
    assert isinstance(error, UnsupportedFeatureError)
    assert (error.kind, error.values["feature"]) == ("upgrade-required", COLUMNS)


# --- the operation, the fold, snapshots ---------------------------------------------------------------------


OPERATION = AlterTopic(
    TOPIC_ID, 2, 1, tuple(fields_to_json(pa.schema([*FIRST.remove(1), TEXT]))), places=(0, 2, 3, 4)
)


def test_an_operation_says_places_where_names_change_and_only_there() -> None:
    entry = committed(after(TOPIC, ON), DROPPED).entry
    assert entry is not None
    assert entry.operations[0] == AlterTopic(
        TOPIC_ID, 2, 1, tuple(fields_to_json(FIRST.remove(1))), places=(0, 2, 3)
    )
    later = committed(after(TOPIC, ON, DROPPED), AGAIN).entry
    assert later is not None
    assert "places" not in encode_operation(later.operations[0])
    document = encode_operation(OPERATION)
    assert document["places"] == [0, 2, 3, 4]
    assert decode_operation(document, 1, path="entry") == OPERATION


@pytest.mark.parametrize(
    "wrong",
    [
        {"places": (0, 2, 3)},
        {"places": (0, 2, 3, 5)},
        {"places": (0, 2, 3, 3)},
        {"places": (0, 3, 2, 4)},
        {"places": (2, 0, 3, 4)},
        {"places": ()},
        {"places": (0, 1, 2, 3)},
        {"places": (1, 2, 3, 4)},
        {"places": (0, 1, 2, 4)},
        {"places": (0, 2, 3, 4), "fields": None, "schema_id": 0, "partitions": 3},
        {"places": (0, 1, 2, 3), "fields": tuple(fields_to_json(FIRST))},
        {"places": (0, 1, 2, 3, 4), "fields": tuple(fields_to_json(pa.schema([*FIRST, TEXT])))},
    ],
)
def test_places_that_no_correct_writer_states_are_corrupt(wrong: dict[str, Any]) -> None:
    state = after(TOPIC, ON)
    entry = committed(state, DROPPED).entry
    assert entry is not None
    folded = apply(state, replace(entry, operations=(OPERATION,)), "0" * 64)
    assert folded.topic("orders").schema.places == ((0, 1, 2, 3), (0, 2, 3, 4))
    with pytest.raises(CorruptDataError):
        apply(state, replace(entry, operations=(replace(OPERATION, **wrong),)), "0" * 64)


@pytest.mark.parametrize("is_on", [False, True])
def test_places_in_a_log_without_the_feature_are_corrupt(is_on: bool) -> None:
    state = after(TOPIC, ON) if is_on else after(TOPIC)
    entry = committed(state, ChangeTopic(TOPIC_ID, add=(TEXT,))).entry
    assert entry is not None
    changed = replace(entry, operations=(OPERATION,))
    if is_on:
        assert apply(state, changed, "0" * 64).topic("orders").schema.schema_id == 1
    else:
        with pytest.raises(CorruptDataError, match="altered in a way that is not allowed"):
            apply(state, changed, "0" * 64)


@pytest.mark.parametrize("type_", [pa.int64(), pa.string()])
def test_a_renamed_column_keeps_its_type_or_gets_a_wider_one(type_: pa.DataType) -> None:
    schema = TopicSchema(FIRST, ("id",), "at")
    fields = fields_to_json(FIRST.set(2, pa.field("other", type_)))
    assert (next_version(schema, fields, (0, 1, 2, 3)) is None) is (type_ == pa.string())
    key = fields_to_json(FIRST.set(0, pa.field("key", pa.int64())))
    assert next_version(schema, key, (0, 1, 2, 3)) is None


THREE = pa.schema([(name, pa.int8()) for name in "abc"])


@pytest.mark.parametrize(
    ("names", "places", "follows"),
    [
        ("axc", (0, 1, 2), True),
        ("acd", (0, 2, 3), True),
        ("b", (1,), False),
        ("bc", (1, 2), False),
        ("ab", (0, 1), True),
        ("acb", (0, 2, 1), False),
        ("axy", (0, 1, 1), False),
        ("abcx", (0, 1, 2, 2), False),
        ("abd", (0, 1, 4), False),
        ("abde", (0, 1, 4, 3), False),
    ],
)
def test_places_ascend_and_keep_the_key(names: str, places: tuple[int, ...], follows: bool) -> None:
    fields = fields_to_json(pa.schema([(name, pa.int8()) for name in names]))
    found = next_version(TopicSchema(THREE, ("a",)), fields, places)
    assert (found is not None) is follows


def test_the_timestamp_column_stays() -> None:
    fields = fields_to_json(FIRST.remove(3))
    assert next_version(TopicSchema(FIRST, ("id",), "at"), fields, (0, 1, 2)) is None
    assert next_version(TopicSchema(FIRST, ("id",)), fields, (0, 1, 2)) is not None


def test_a_snapshot_keeps_places() -> None:
    state = after(TOPIC, ON, RENAMED, ChangeTopic(TOPIC_ID, 4), DROPPED, AGAIN)
    data = encode_snapshot(state)
    named = Checkpoint(
        state.entry, snapshot_key(state.entry, LOG_ID), len(data), sha256_hex(data), state_digest(state)
    )
    read = decode_snapshot(data, named, LOG_ID)
    assert read.topics == state.topics
    assert read.topic("orders").schema.places == state.topic("orders").schema.places
    assert encode_snapshot(read) == data
    assert state.topic("orders").schema.stated_places() == ((0, 1, 2, 3), (0, 2, 3), ())


@pytest.mark.parametrize(
    "damage",
    [
        {"places": ((0, 1, 2, 3), (0, 1, 2, 3))},
        {"places": ((0, 1, 2, 3), (0, 2, 3, 5))},
        {"places": ((0, 1, 2, 3), (2, 0, 3, 4))},
        {"places": ()},
        {"places": ((0, 1, 2, 3), (1, 2, 3, 4))},
    ],
)
def test_the_invariants_report_places_that_do_not_follow(damage: dict[str, Any]) -> None:
    before = after(TOPIC, ON)
    change = replace(DROPPED, add=(TEXT,))
    assembled = committed(before, change)
    assert assembled.entry is not None
    state = apply(before, assembled.entry, assembled.sha256)
    topic = state.topics[TOPIC_ID]
    wrong = replace(state, topics={TOPIC_ID: replace(topic, schema=replace(topic.schema, **damage))})
    assert check_state(before, assembled.entry, state) == []
    for problems in (check_state(before, assembled.entry, wrong), check_whole(wrong)):
        assert problems
        assert all(problem.startswith("I13") for problem in problems)


# --- sums of rows, topics that are there --------------------------------------------------------------------


def test_the_sum_of_rows_is_that_of_the_first_names() -> None:
    old, new = schema_after(), schema_after(ChangeTopic(TOPIC_ID, rename=(("note", "text"),)))
    rows = pa.table({"id": [1], "note": ["x"], "small": [2], "at": [None]})
    assert old.first_names() == FIRST.names == new.first_names()
    renamed = rows.rename_columns(["id", "text", "small", "at"]).rename_columns(new.first_names())
    assert multiset_of(renamed) == multiset_of(rows)


def test_two_columns_never_share_a_first_name() -> None:
    """Else values that change places between them would not change the sum."""
    schema = schema_after(ChangeTopic(TOPIC_ID, rename=(("note", "text"),)), AGAIN)
    assert schema.arrow_schema.names == ["id", "text", "small", "at", "note"]
    assert schema.first_names() == ["id", "note", "small", "at", "note\x004"]


def test_a_topic_is_the_wanted_one_under_its_names_of_now_or_of_its_beginning() -> None:
    topic = after(TOPIC, ON, RENAMED, DROPPED).topic("orders")
    fields, keys, time = topic.schema.to_json()
    for wanted in (TOPIC, replace(TOPIC, fields=fields, key_columns=keys, timestamp_column=time)):
        check_same_topic(wanted, topic)
    with pytest.raises(ConflictError):
        check_same_topic(replace(TOPIC, fields=fields, key_columns=(), timestamp_column=None), topic)


def test_nothing_of_a_log_without_renamed_columns_has_changed() -> None:
    state: LogState = after(TOPIC, ON, AGAIN.__class__(TOPIC_ID, add=(TEXT,)))
    assert state.topic("orders").schema.places == ()
    assert b"places" not in encode_snapshot(state)
