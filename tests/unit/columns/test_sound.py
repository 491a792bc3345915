"""Arrow data whose buffers point anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from txnformat.columns.sound import is_plain_and_sound, unsound_columns
from txnformat.columns.text import bad_texts
from txnformat.core.topics.schema import conform
from txnformat.errors import InvalidInputError

TEXTS = pa.array(["a", None, "ccc", "", "é"])


def backwards(type_: pa.DataType) -> Any:
    """Return three texts of which the second ends before it begins."""
    width = np.int64 if pa.types.is_large_string(type_) else np.int32
    offsets = pa.py_buffer(np.array([0, 4, 2, 6], width))
    return pa.Array.from_buffers(type_, 3, [None, offsets, pa.py_buffer(b"abcdef")])


def inside(values: Any) -> dict[str, Any]:
    """Return arrays that hold the values at each place where a text can be."""
    count = len(values)
    ends = pa.array([0, 1, count], pa.int32())
    keys = pa.array([f"k{number}" for number in range(count)])
    return {
        "text": values,
        "list": pa.ListArray.from_arrays(ends, values),
        "large list": pa.LargeListArray.from_arrays(ends.cast(pa.int64()), values),
        "fixed list": pa.FixedSizeListArray.from_arrays(values, count),
        "struct": pa.StructArray.from_arrays([values], ["s"]),
        "value of a map": pa.MapArray.from_arrays(ends, keys, values),
        "list of structs": pa.ListArray.from_arrays(ends, pa.StructArray.from_arrays([values], ["s"])),
        "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, count - 1]), values, safe=False),
    }


@pytest.mark.parametrize("place", inside(TEXTS))
@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()], ids=str)
def test_sound_texts_are_sound(place: str, type_: pa.DataType) -> None:
    column = inside(TEXTS.cast(type_))[place]
    assert list(unsound_columns(pa.table({"c": column}))) == []
    assert list(unsound_columns(pa.table({"c": column.slice(1)}))) == []


@pytest.mark.parametrize("place", inside(TEXTS))
@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()], ids=str)
def test_a_text_that_ends_before_it_begins_is_named(place: str, type_: pa.DataType) -> None:
    sound = pa.array(range(len(inside(backwards(type_))[place])))
    table = pa.table({"n": sound, "c": inside(backwards(type_))[place]})
    assert [name for name, _ in unsound_columns(table)] == ["c"]


def test_texts_of_which_none_is_there_are_sound_beside_others() -> None:
    """A column of nothing but nulls has buffers of its own shape: some are missing."""
    for type_ in (pa.null(), pa.string(), pa.large_string(), pa.string_view(), pa.int8()):
        values = pa.nulls(5, type_)
        for place, column in inside(values).items():
            table = pa.table({"nulls": column, "texts": pa.array(["x"] * len(column))})
            assert list(unsound_columns(table)) == [], (type_, place)


def test_an_index_beyond_its_dictionary_is_named() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 7]), pa.array(["a", "b"]), safe=False)
    assert [name for name, _ in unsound_columns(pa.table({"c": column}))] == ["c"]


@pytest.mark.parametrize("inner", [pa.string(), pa.null(), pa.int32(), pa.binary()], ids=str)
@pytest.mark.parametrize("outer", [pa.list_, pa.large_list, lambda inner: pa.map_(pa.string(), inner)])
def test_a_list_that_ends_before_it_begins_is_named(outer: Any, inner: pa.DataType) -> None:
    type_ = outer(inner)
    width = np.int64 if pa.types.is_large_list(type_) else np.int32
    child: Any = pa.nulls(6, inner)
    if pa.types.is_map(type_):
        fields = [pa.field("key", pa.string(), False), pa.field("value", inner)]
        child = pa.StructArray.from_arrays([pa.array(list("abcdef")), child], fields=fields)
    for ends, is_sound in (([0, 4, 2, 6], False), ([0, 2, 4, 6], True)):
        column = pa.Array.from_buffers(
            type_, 3, [None, pa.py_buffer(np.array(ends, width))], children=[child]
        )
        for table in (pa.table({"c": column}), pa.table({"c": pa.StructArray.from_arrays([column], ["x"])})):
            assert [name for name, _ in unsound_columns(table)] == ([] if is_sound else ["c"])


SNOWMAN = "\N{SNOWMAN}".encode()


@pytest.mark.parametrize("large", [False, True])
def test_the_quick_look_passes_plain_tables_and_nothing_that_is_not_sound(large: bool) -> None:
    binary, text = (pa.large_binary(), pa.large_string()) if large else (pa.binary(), pa.string())
    times = pa.array([0, 2**57, None, -1], pa.timestamp("us", "UTC"))

    def table(*values: bytes | None) -> pa.Table:
        return pa.table({"t": times, "c": pa.array(values, binary).view(text), "n": pa.array([0.5] * 4)})

    for sound in (
        table(b"a", b"", None, b"b"),
        table(None, None, None, None),
        table(b"", b"", b"", b""),
        table(SNOWMAN, b"a" + SNOWMAN, None, "\xfc".encode()),
    ):
        for one in (sound, sound.slice(1), sound.slice(2, 0), pa.concat_tables([sound, sound.slice(1, 2)])):
            assert is_plain_and_sound(one, one.schema)
            assert (list(unsound_columns(one)), list(bad_texts(one))) == ([], [])
            assert conform(one, one.schema).equals(one)
    for bad in (
        table(b"a", b"\xff", None, b"b"),
        table(b"a", SNOWMAN[:1], SNOWMAN[1:], b"b"),
        table(b"a", b"\xed\xa0\x80", None, b"b"),
    ):
        assert not is_plain_and_sound(bad, bad.schema)
        with pytest.raises(InvalidInputError, match="is not UTF-8"):
            conform(bad, bad.schema)


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()], ids=str)
def test_the_quick_look_sees_texts_that_end_before_they_begin(type_: pa.DataType) -> None:
    for column in (backwards(type_), pa.chunked_array([backwards(type_).slice(0, 1), backwards(type_)])):
        table = pa.table({"c": column})
        assert not is_plain_and_sound(table, table.schema)
        with pytest.raises(InvalidInputError, match="ends before it begins"):
            conform(table, table.schema)
    first_alone = pa.table({"c": backwards(type_).slice(0, 1)})
    assert is_plain_and_sound(first_alone, first_alone.schema)


def test_the_quick_look_sees_what_arrows_own_look_refuses() -> None:
    places = np.array([0, 1, 3], np.int32)
    column = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(places), pa.py_buffer(b"abc")])
    table = pa.table({"c": column})
    assert is_plain_and_sound(table, table.schema)
    places[2] = 900_000_000
    assert not is_plain_and_sound(table, table.schema)
    with pytest.raises(InvalidInputError, match="is not sound"):
        conform(table, table.schema)


@pytest.mark.parametrize("place", inside(TEXTS))
def test_the_quick_look_leaves_other_types_to_the_thorough_one(place: str) -> None:
    table = pa.table({"c": inside(TEXTS)[place]})
    assert is_plain_and_sound(table, table.schema) == (place == "text")


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize("as_list", [False, True])
def test_a_buffer_of_offsets_may_have_padding_of_any_length(type_: pa.DataType, as_list: bool) -> None:
    width = np.int64 if pa.types.is_large_string(type_) else np.int32
    offsets = pa.py_buffer(np.array([0, 1, 3], width).tobytes() + b"\0\0\0")
    texts = pa.Array.from_buffers(type_, 2, [None, offsets, pa.py_buffer(b"abc")])
    column = texts
    if as_list:
        kind = (pa.large_list if width is np.int64 else pa.list_)(type_)
        places = pa.py_buffer(np.array([0, 1, 2], width).tobytes() + b"\0\0\0")
        column = pa.Array.from_buffers(kind, 2, [None, places], children=[texts])
    for one in (column, column.slice(1), column.slice(0, 0)):
        table = pa.table({"c": one})
        table.validate()
        assert list(unsound_columns(table)) == []
        assert list(bad_texts(table)) == []
        assert conform(table, table.schema).column("c").to_pylist() == one.to_pylist()
