"""Arrow arrays and scalars in rows: unsound ones, and ones that repeat a range, are refused before any look
at their values.

What once crashed Arrow runs in a process of its own.
"""

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.unit.columns.forked import ends_well
from txnformat.columns.arrow_cells import without_arrow
from txnformat.columns.arrow_types import list_of, struct_of
from txnformat.columns.conform import conform
from txnformat.core.topics.schema import KAFKA_SCHEMA
from txnformat.errors import InvalidInputError, TxnLogError, repr_of
from writers.rows import kafka_record, kafka_rows

TEXT = pa.string()
TEXTS = list_of(TEXT)
DEEP = list_of(list_of(pa.int64()))
COUNT = 100_000


def buffer(numbers: list[int], kind: str = "i4") -> Any:
    return pa.py_buffer(np.array(numbers, kind))


def far_view() -> Any:
    return pa.Array.from_buffers(
        pa.string_view(), 1, [None, buffer([100, 0, 1 << 20, 0]), pa.py_buffer(b"abc")]
    )


def far_list() -> Any:
    inner = pa.array([1, 2])
    return pa.Array.from_buffers(
        pa.large_list(pa.int64()), 2, [None, buffer([0, 1 << 40, 1], "i8")], children=[inner]
    )


def list_of_far_views() -> Any:
    return pa.Array.from_buffers(pa.list_(pa.string_view()), 1, [None, buffer([0, 1])], children=[far_view()])


def far_index() -> Any:
    return pa.DictionaryArray.from_arrays(pa.array([1 << 30], pa.int32()), pa.array(["x"]), safe=False)


def objects(value: Any) -> Any:
    column = np.empty(1, dtype=object)
    column[0] = value
    return column


@dataclass
class Holder:
    value: Any


UNSOUND: dict[str, Callable[[], Any]] = {
    "view": far_view,
    "list": far_list,
    "list of views": list_of_far_views,
    "scalar": lambda: list_of_far_views()[0],
    "struct scalar": lambda: pa.StructArray.from_arrays([list_of_far_views()], ["a"])[0],
    "index": far_index,
    "chunked": lambda: pa.chunked_array([far_view()]),
    "table": lambda: pa.table({"a": far_view()}),
    "batch": lambda: pa.record_batch({"a": far_view()}),
    "pandas": lambda: pd.Series(far_view(), dtype=pd.ArrowDtype(pa.string_view())),
}
FORMS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda value: value,
    "in a list": lambda value: [value],
    "in a pair": lambda value: [("a", value)],
    "in a dict": lambda value: {"a": value},
    "in objects": lambda value: objects(value),
    "in a namespace": lambda value: SimpleNamespace(a=value),
    "in a dataclass": Holder,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", UNSOUND)
def test_an_unsound_arrow_value_in_a_row_is_refused(name: str, form: str) -> None:
    def work(type_: pa.DataType, as_frame: bool) -> None:
        value = FORMS[form](UNSOUND[name]())
        conform(
            pd.DataFrame({"x": objects(value)}) if as_frame else [{"x": value}], pa.schema([("x", type_)])
        )

    types = (TEXT, TEXTS, DEEP, struct_of("a", [TEXTS]))
    ends_well(*(partial(work, type_, as_frame=False) for type_ in types), lambda: work(TEXTS, as_frame=True))


@pytest.mark.parametrize("name", ["scalar", "struct scalar", "index", "pandas", "chunked"])
def test_unsound_arrow_values_as_rows_are_refused(name: str) -> None:
    schema = pa.schema([("a", TEXTS)])
    ends_well(lambda: conform(UNSOUND[name](), schema))
    ends_well(lambda: conform([UNSOUND[name]()], schema))


@pytest.mark.parametrize("name", UNSOUND)
@pytest.mark.parametrize("form", FORMS)
def test_no_message_prints_an_unsound_arrow_value(name: str, form: str) -> None:
    def work() -> None:
        value = FORMS[form](UNSOUND[name]())
        raise InvalidInputError(repr_of(value), kind="schema-mismatch", hint=str(TxnLogError("x", got=value)))

    ends_well(work)


def test_messages_show_values_of_python_as_they_are() -> None:
    value: Any
    for value in (
        1,
        "a",
        b"a",
        [1, ("b", None)],
        {"b": 1, "a": {2}},
        frozenset(),
        1.5,
        pa.int64(),
        np.int8(5),
    ):
        assert repr_of(value) == repr(value)
    assert repr_of(pa.array([1, 2])) == "a value of the type Int64Array with the length 2"
    assert repr_of([pa.array([1])]) == "[a value of the type Int64Array with the length 1]"


def repeated_view() -> Any:
    views = np.tile(np.array([10_000, 0x78787878, 0, 0], np.int32), 10_000)
    return pa.Array.from_buffers(
        pa.string_view(), 10_000, [None, pa.py_buffer(views), pa.py_buffer(b"x" * 10_000)]
    )


def list_view() -> Any:
    starts, sizes = pa.array(np.zeros(COUNT, np.int32)), pa.array(np.full(COUNT, COUNT, np.int32))
    return pa.ListViewArray.from_arrays(starts, sizes, pa.array(np.zeros(COUNT, np.int8)))


REPEATING: dict[str, Callable[[], Any]] = {
    "list view": list_view,
    "list of list views": lambda: pa.ListArray.from_arrays(pa.array([0, COUNT], pa.int32()), list_view()),
    "scalar": lambda: pa.ListArray.from_arrays(pa.array([0, COUNT], pa.int32()), list_view())[0],
    "string view": repeated_view,
    "dictionary": lambda: pa.DictionaryArray.from_arrays(np.zeros(10_000, np.int8), pa.array(["x" * 10_000])),
    "dictionary of lists": lambda: pa.DictionaryArray.from_arrays(
        np.zeros(10_000, np.int8), pa.array([[0] * 10_000])
    ),
    "runs": lambda: pa.RunEndEncodedArray.from_arrays(pa.array([2**31 - 2], pa.int32()), pa.array([5])),
    "nulls": lambda: pa.nulls(2**31 - 1),
    "structs": lambda: pa.Array.from_buffers(pa.struct([]), 2**31 - 1, [None]),
}


@pytest.mark.parametrize("name", REPEATING)
def test_an_arrow_array_that_repeats_a_range_is_refused(name: str) -> None:
    value = REPEATING[name]()
    with pytest.raises(InvalidInputError, match="repeats") as raised:
        conform([{"x": value}], pa.schema([("x", DEEP)]))
    assert raised.value.kind == "schema-mismatch"


SOUND: dict[str, Any] = {
    "numbers": pa.array([1, None]),
    "booleans": pa.array([True] * 100),
    "views": pa.array(["a", None, "b" * 50], pa.string_view())[1:],
    "bytes": pa.array([b"a" * 50], pa.binary_view()),
    "list view": pa.array([[1], [2]], pa.list_view(pa.int64())),
    "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
    "chunked": pa.chunked_array([[1], [2]]),
    "structs": pa.array([{"a": ["x"]}]),
    "map": pa.array([[("a", 1)]], pa.map_(TEXT, pa.int64())),
    "scalar": pa.scalar([{"a": ["x"]}]),
    "map scalar": pa.scalar([("a", 1)], pa.map_(TEXT, pa.int64())),
    "dictionary scalar": pa.array(["a"]).dictionary_encode()[0],
    "null": pa.scalar(None, pa.list_(pa.int64())),
    "run": pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array(["x"])),
    "fixed": pa.array([[1, 2]], pa.list_(pa.int64(), 2)),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_arrow_value_is_taken_as_its_values_in_python(name: str) -> None:
    value = SOUND[name]
    assert without_arrow(value) == (value.as_py() if isinstance(value, pa.Scalar) else value.to_pylist())


def test_arrow_backed_pandas_values_are_taken() -> None:
    value = pd.Series([[1], None], dtype=pd.ArrowDtype(pa.list_(pa.int64())))
    assert conform([{"x": value}], pa.schema([("x", DEEP)])).to_pylist() == [{"x": [[1], None]}]
    assert conform(list(pa.array([{"x": 1}])), pa.schema([("x", pa.int64())])).to_pylist() == [{"x": 1}]


class Boom(Exception):
    def __str__(self) -> str:
        raise self


class NoLength(list[Any]):
    def __len__(self) -> int:
        raise Boom


class NoClass:
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise Boom


DATA: dict[str, Callable[[], Any]] = {  # pytest asks values for their class
    "rows without a length": lambda: NoLength([{"key": b"a"}]),
    "data": NoClass,
    "row": lambda: [NoClass()],
    "headers": lambda: [{"headers": NoClass()}],
}


@pytest.mark.parametrize("name", DATA)
def test_what_the_class_of_the_data_raises_is_a_mismatch(name: str) -> None:
    schema = KAFKA_SCHEMA.arrow_schema
    with pytest.raises(InvalidInputError) as raised:
        conform(kafka_rows(KAFKA_SCHEMA, DATA[name](), lambda: datetime.datetime(2026, 1, 31)), schema)
    assert raised.value.kind == "schema-mismatch"
    with pytest.raises(InvalidInputError):
        conform(DATA[name](), schema)


def test_what_the_class_of_a_key_raises_is_a_mismatch() -> None:
    with pytest.raises(InvalidInputError) as raised:
        kafka_record(KAFKA_SCHEMA, NoClass(), b"a", None, pd.Timestamp("2026"))  # type: ignore[arg-type]
    assert raised.value.kind == "schema-mismatch"


class _NoHash(type):
    def __hash__(cls) -> int:
        raise Boom


class _NoEqual(type):
    def __eq__(cls, other: object) -> bool:
        raise Boom

    def __hash__(cls) -> int:
        raise Boom


class _NoName(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise Boom


@pytest.mark.parametrize("metaclass", [_NoHash, _NoEqual, _NoName])
@pytest.mark.parametrize("type_", [pa.int64(), DEEP, struct_of("a", [TEXT])])
def test_a_value_whose_metaclass_fails_is_a_mismatch(metaclass: type, type_: pa.DataType) -> None:
    value = metaclass("V", (), {})()
    shouting = metaclass("V", (), {"__repr__": lambda _: 1 / 0})()
    schema = pa.schema([("x", type_)])
    for data in (
        [{"x": value}],
        [{"x": [value]}],
        [{"x": shouting}],
        [value],
        value,
        pd.DataFrame({"x": [value]}),
    ):
        with pytest.raises(InvalidInputError) as raised:
            conform(data, schema)
        assert raised.value.kind == "schema-mismatch"
