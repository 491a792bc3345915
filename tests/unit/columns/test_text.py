"""Text is UTF-8: what Arrow holds as a string and is none is found, wherever it is."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnformat.arguments import is_utf8
from txnformat.columns.text import BadText, bad_texts, without_hidden_texts
from txnformat.core.topics.schema import as_topic_schema, conform
from txnformat.errors import InvalidInputError, NotFoundError
from txnformat.store.open import open_store

SNOWMAN = "\N{SNOWMAN}".encode()


def strings(*values: bytes | None, large: bool = False) -> Any:
    """Return a string array of these bytes, as some library might have made it."""
    binary, text = (pa.large_binary(), pa.large_string()) if large else (pa.binary(), pa.string())
    return pa.array(values, binary).view(text)


def found(array: Any) -> list[tuple[int, bytes | None]]:
    bad = list(bad_texts(pa.table({"n": pa.nulls(len(array)), "text": array})))
    assert {one.column for one in bad} <= {"text"}
    return [(one.row, one.value) for one in bad]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    "bytes_", [b"\xff", SNOWMAN[:2], b"a" * 100 + b"\x80", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"]
)
def test_what_is_no_utf8_is_found_with_its_row(bytes_: bytes, large: bool) -> None:
    array = strings(b"a", None, SNOWMAN, bytes_, b"", bytes_, large=large)
    assert found(array) == [(3, bytes_), (5, bytes_)]
    assert found(array.slice(4)) == [(1, bytes_)]
    assert found(array.slice(0, 3)) == []
    assert found(pa.chunked_array([array, array.slice(3)])) == [(n, bytes_) for n in (3, 5, 6, 8)]


def test_a_character_that_two_values_share_is_found() -> None:
    """All bytes together are UTF-8, each value is not."""
    assert found(strings(SNOWMAN[:1], SNOWMAN[1:])) == [(0, SNOWMAN[:1]), (1, SNOWMAN[1:])]
    cut = strings(b"x", SNOWMAN + SNOWMAN, SNOWMAN[:1], SNOWMAN[1:], b"")
    assert found(cut.slice(1)) == [(1, SNOWMAN[:1]), (2, SNOWMAN[1:])]
    assert found(cut.slice(3)) == [(0, SNOWMAN[1:])]
    assert found(cut.slice(1, 1)) == []


def test_what_a_null_hides_is_not_text() -> None:
    plain = strings(b"a", b"\xff", b"b")
    hidden = pa.Array.from_buffers(pa.string(), 3, [pa.py_buffer(b"\x05"), *plain.buffers()[1:]])
    assert hidden.to_pylist() == ["a", None, "b"]
    assert found(hidden) == []


@pytest.mark.parametrize(
    "array",
    [
        pa.ListArray.from_arrays([0, 1, 3], strings(b"a", b"b", b"\xff")),
        pa.StructArray.from_arrays([strings(b"a", b"\xff")], ["s"]),
        pa.MapArray.from_arrays([0, 1, 2], strings(b"a", b"\xff"), pa.array([1, 2])),
        pa.MapArray.from_arrays([0, 1, 2], pa.array([1, 2]), strings(b"a", b"\xff")),
        pa.DictionaryArray.from_arrays([0, 1], strings(b"a", b"\xff")),
        strings(b"a", b"\xff").cast(pa.string_view()),
    ],
    ids=["list", "struct", "map key", "map value", "dictionary", "view"],
)
def test_text_inside_of_other_values_is_looked_at(array: Any) -> None:
    assert found(array) == [(1, None)]
    assert found(array.slice(0, 1)) == []


@given(
    st.lists(st.one_of(st.none(), st.binary(max_size=6), st.text(max_size=4).map(str.encode)), max_size=20)
)
def test_a_value_is_found_exactly_when_python_cannot_decode_it(values: list[bytes | None]) -> None:
    def is_utf8(value: bytes | None) -> bool:
        try:
            return value is None or bool(value.decode()) or True
        except UnicodeDecodeError:
            return False

    expected = [(row, value) for row, value in enumerate(values) if not is_utf8(value)]
    assert found(strings(*values)) == expected


@given(st.text(st.characters()))
def test_half_a_surrogate_pair_is_no_text(value: str) -> None:
    assert is_utf8(value) == (not any("\ud800" <= character <= "\udfff" for character in value))


@pytest.mark.parametrize(
    "type_", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_it_enters_no_topic(type_: Any) -> None:
    text = strings(b"a", b"\xff")
    array = text.dictionary_encode() if pa.types.is_dictionary(type_) else text.cast(type_)
    with pytest.raises(InvalidInputError, match="nothing was sent") as caught:
        conform(pa.table({"text": array}), pa.schema([("text", pa.string())]))
    assert caught.value.kind == "schema-mismatch"
    assert caught.value.problems == [r"column 'text', row 1: b'\xff' is not UTF-8"]


def test_bytes_in_dicts_enter_only_as_text() -> None:
    with pytest.raises(InvalidInputError, match=r"row 1: b'\\xff' is not a value of string"):
        conform([{"text": b"a"}, {"text": b"\xff"}], pa.schema([("text", pa.string())]))


def test_many_bad_values_are_counted() -> None:
    with pytest.raises(InvalidInputError) as caught:
        conform(pa.table({"text": strings(*[b"\xff"] * 50)}), pa.schema([("text", pa.string())]))
    assert caught.value.problems[-1] == "and 30 more"


class SparkSchema:
    """What a Spark schema is here: its JSON form."""

    def __init__(self, *fields: dict[str, Any]) -> None:
        self._fields = list(fields)

    def jsonValue(self) -> dict[str, Any]:  # Spark's name
        return {"type": "struct", "fields": self._fields}


def test_a_column_name_with_half_a_surrogate_pair_is_refused() -> None:
    inner = SparkSchema({"name": "x\udc00", "type": "string"}).jsonValue()
    with pytest.raises(InvalidInputError) as caught:
        as_topic_schema(SparkSchema({"name": "\ud800", "type": "long"}, {"name": "s", "type": inner}))
    assert (caught.value.kind, len(caught.value.problems)) == ("unsupported-schema", 2)
    assert str(caught.value).isascii()
    assert r"column 's.x\udc00' has a name with half a surrogate pair" in str(caught.value)


def test_an_error_about_half_a_surrogate_pair_can_be_printed_and_pickled() -> None:
    error = NotFoundError("no such topic", topic="\ud800", name="Zürich")
    assert str(error) == r"no such topic: topic=`\ud800` name=`Zürich`"
    str(error).encode()
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_location_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_store("/tmp/\ud800")
    assert caught.value.kind == "invalid-location"


def test_a_bad_text_says_what_it_is() -> None:
    assert str(BadText("c", 1, b"\xff")) == r"b'\xff' is not UTF-8"
    assert str(BadText("c", 1, None)) == "a text in it is not UTF-8"


def test_a_bad_text_beside_a_time_that_python_has_not_is_found() -> None:
    texts = pa.array([b"a", b"\xff"]).view(pa.string())
    times = pa.array([2**62, 2**62], pa.timestamp("us"))
    data = pa.table({"x": pa.StructArray.from_arrays([times, texts], ["t", "s"])})
    assert [(bad.row, bad.value) for bad in bad_texts(data)] == [(1, None)]


def test_a_bad_text_under_a_struct_that_is_null_is_left_out() -> None:
    texts = pa.array([b"a", b"\xff", b"b"]).view(pa.string())
    inner = pa.StructArray.from_arrays([texts], ["s"])
    given = pa.StructArray.from_arrays([inner], ["i"], mask=pa.array([False, True, False]))
    data = pa.table({"x": given})
    with pytest.raises(pa.ArrowInvalid, match="UTF8"):
        data.validate(full=True)
    found = conform(data, data.schema)
    found.validate(full=True)
    assert found.schema.equals(data.schema)
    assert found["x"].to_pylist() == [{"i": {"s": "a"}}, None, {"i": {"s": "b"}}]


BAD = pa.Array.from_buffers(
    pa.string(), 4, [None, pa.py_buffer(np.array([0, 1, 2, 3, 4], np.int32)), pa.py_buffer(b"a\xffcd")]
)
NULL = np.array([False, True, False, False])


def hiding(struct: Any) -> dict[str, Any]:
    """Return arrays in which a null struct with a bad text lies, at each place where it can."""
    ends, keys = pa.array([0, 1, 2, 4], pa.int32()), pa.array(list("wxyz"))
    hidden_list = pa.ListArray.from_arrays(ends, BAD, mask=pa.array([False, True, False]))
    return {
        "struct": struct,
        "list": pa.ListArray.from_arrays(ends, struct),
        "large list": pa.LargeListArray.from_arrays(ends.cast(pa.int64()), struct),
        "fixed list": pa.FixedSizeListArray.from_arrays(struct, 2),
        "map": pa.MapArray.from_arrays(ends, keys, struct),
        "struct of lists": pa.StructArray.from_arrays([pa.ListArray.from_arrays(ends, struct)], ["l"]),
        "map of lists": pa.MapArray.from_arrays(
            pa.array([0, 4]), keys, pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 4]), struct)
        ),
        "null list": hidden_list,
        "list of null lists": pa.ListArray.from_arrays(pa.array([0, 3]), hidden_list),
    }


STRUCTS = pa.StructArray.from_arrays([BAD], ["s"], mask=pa.array(NULL))


@pytest.mark.parametrize("place", hiding(STRUCTS))
def test_a_bad_text_that_no_reader_sees_is_left_out(place: str) -> None:
    column = hiding(STRUCTS)[place]
    given = pa.table({"c": column})
    with pytest.raises(pa.ArrowInvalid):
        given.validate(full=True)
    found = without_hidden_texts(given)
    found.validate(full=True)
    assert found.schema.equals(given.schema)
    assert found.to_pylist() == given.to_pylist()
