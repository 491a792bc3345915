"""The hash of rows, held against its definition in the specification: value by value, in whole numbers of
Python.

What Arrow is free to do with a value must not show: offsets of 32 and 64 bits, views, dictionaries, run-ends,
slices, what lies under nulls, narrower numbers, chunks.
"""

from __future__ import annotations

import datetime
import hashlib
import itertools
import math
import struct
from collections.abc import Iterable
from decimal import Context, Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txnformat.columns.arrow_types import list_of, map_of, struct_of
from txnformat.columns.multiset import BLOCK_ROWS, LONG_BYTES, NO_ROWS, Multiset, multiset_of
from txnformat.errors import InternalError

# --- the definition -----------------------------------------------------------------------------------------

ALL = 2**64 - 1
STEP, FOLD = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
NULL, ENTRY = 0xA0761D6478BD642F, 0xE7037ED1A0B428DB
Value = tuple[int, int]


def mix(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & ALL
    x = (x ^ x >> 27) * 0x94D049BB133111EB & ALL
    return x ^ x >> 31


def parts(found: Iterable[tuple[Value, int]]) -> Value:
    first = second = 0
    for (one, other), key in found:
        part = mix(one ^ key)
        both = part ^ other
        first, second = first + part, second + ((both ^ both >> 32) * FOLD)
    return first & ALL, second & ALL


def key_of(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


def fields(values: Iterable[tuple[str, Any, pa.DataType]]) -> Value:
    return parts((value_of(value, kind), key_of(name)) for name, value, kind in values if value is not None)


def in_order(words: Iterable[Value]) -> Value:
    return parts((word, (index + 1) * STEP & ALL) for index, word in enumerate(words))


def value_of(value: Any, kind: pa.DataType) -> Value:
    """Return the two words of a value that is not null."""
    if pt.is_struct(kind):
        return fields((field.name, value[field.name], field.type) for field in kind)
    if pt.is_map(kind):
        both = [fields([("key", key, kind.key_type), ("value", item, kind.item_type)]) for key, item in value]
        first, second = parts((one, ENTRY) for one in both)
        return (first + len(both)) & ALL, second
    if pt.is_list(kind):
        first, second = in_order(
            (NULL, 0) if one is None else value_of(one, kind.value_type) for one in value
        )
        return (first + len(value)) & ALL, second
    if isinstance(value, str | bytes):
        data = value.encode() if isinstance(value, str) else value
        words = [data[start : start + 8] for start in range(0, len(data), 8)]
        first, second = in_order((int.from_bytes(word, "little"), 0) for word in words)
        return (first + len(data)) & ALL, second
    if isinstance(value, Decimal):
        number = int(value.scaleb(38, _EXACT)) % 2**256
        return in_order((number >> 64 * index & ALL, 0) for index in range(4))
    if isinstance(value, float):
        (bits,) = struct.unpack("<Q", struct.pack("<d", math.nan if math.isnan(value) else value + 0.0))
        return bits, 0
    return _as_number(value) & ALL, 0


_EXACT = Context(prec=80)
_EPOCH = datetime.date(1970, 1, 1)


def _as_number(value: Any) -> int:
    if isinstance(value, datetime.datetime):
        plain = value.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)
        return plain // datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.date):
        return (value - _EPOCH).days
    if isinstance(value, datetime.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(microseconds=1)
    return int(value)


def defined(table: pa.Table) -> Multiset:
    """Return what the specification says of a table."""
    kinds = {field.name: field.type for field in table.schema}
    columns = {name: table.column(name).to_pylist() for name in kinds}
    firsts = seconds = 0
    for row in range(table.num_rows):
        one, other = fields((name, values[row], kinds[name]) for name, values in columns.items())
        first = mix((one + STEP) & ALL)
        firsts, seconds = firsts + first, seconds + mix(other ^ first)
    return Multiset(table.num_rows, firsts & ALL, seconds & ALL)


# --- rows ---------------------------------------------------------------------------------------------------

UTC = datetime.UTC
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): st.text(max_size=20),
    pa.binary(): st.binary(max_size=40),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(UTC)),
    pa.timestamp("us"): st.datetimes(),
    pa.time64("us"): st.times(),
    pa.duration("us"): st.timedeltas(datetime.timedelta(days=-9_999), datetime.timedelta(days=9_999)),
    pa.decimal128(12, 2): st.decimals(-(10**9), 10**9, places=2),
    pa.decimal128(38, 38): st.decimals("-0.9", "0.9", places=38),
    pa.decimal128(38, 0): st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
}


def _of_parts(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    pairs = st.lists(kinds, min_size=1, max_size=3)
    return st.one_of(
        kinds.map(list_of),
        pairs.map(lambda found: struct_of("abc"[: len(found)], found)),
        st.builds(map_of, st.sampled_from([pa.string(), pa.int64()]), kinds),
    )


types = st.recursive(st.sampled_from(list(VALUES)), _of_parts, max_leaves=4)


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Return values of a type, nulls included."""
    found: st.SearchStrategy[Any]
    if pt.is_map(kind):
        keys = values_of(kind.key_type).filter(lambda key: key is not None)
        found = st.lists(
            st.tuples(keys, values_of(kind.item_type)), max_size=4, unique_by=lambda pair: pair[0]
        )
    elif pt.is_list(kind):
        found = st.lists(values_of(kind.value_type), max_size=4)
    elif pt.is_struct(kind):
        found = st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    else:
        found = VALUES[kind]
    return st.one_of(st.none(), found, found, found)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Return rows of a few columns."""
    kinds = draw(st.lists(types, min_size=1, max_size=4))
    count = draw(st.integers(0, 8))
    columns = [
        pa.array(draw(st.lists(values_of(kind), min_size=count, max_size=count)), kind) for kind in kinds
    ]
    return pa.table(columns, names=[f"column {number}" for number in range(len(kinds))])


# --- other forms of the same values -------------------------------------------------------------------------

WIDER = {
    pa.int8(): [pa.int16(), pa.int64()],
    pa.int32(): [pa.int64()],
    pa.float32(): [pa.float64()],
    pa.string(): [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    pa.binary(): [pa.large_binary(), pa.binary_view()],
    pa.date32(): [pa.date64()],
    pa.decimal128(12, 2): [pa.decimal64(12, 2), pa.decimal128(20, 5), pa.decimal256(12, 2)],
}


def reformed(array: Any, random: Random) -> Any:
    """Return an array of the same values in another form."""
    kind = array.type
    if pt.is_list(kind) and random.random() < 0.7:
        form = random.choice([pa.list_, pa.large_list, pa.list_view])
        inner = [one for one in WIDER.get(kind.value_type, []) if not pt.is_dictionary(one)]
        array = pa.array(array.to_pylist(), form(random.choice([kind.value_type, *inner])))
    elif pt.is_struct(kind):
        columns = [reformed(array.field(index), random) for index in range(kind.num_fields)]
        array = pa.StructArray.from_arrays(
            columns, names=[field.name for field in kind], mask=array.is_null()
        )
    elif kind in WIDER and random.random() < 0.7:
        wider = random.choice(WIDER[kind])
        array = array.dictionary_encode() if pt.is_dictionary(wider) else array.cast(wider)
    elif not pt.is_nested(kind) and random.random() < 0.3:
        array = (
            pc.run_end_encode(array) if len(array) and random.random() < 0.5 else array.dictionary_encode()
        )
    return array


def sliced(array: Any, random: Random) -> Any:
    """Return the same values as a slice of more of them."""
    around = [array.slice(0, random.randrange(len(array) + 1)) for _ in range(2)]
    return pa.concat_arrays([around[0], array, around[1]]).slice(len(around[0]), len(array))


def chunked(array: Any, random: Random) -> pa.ChunkedArray:
    """Return the same values in chunks."""
    bounds = [0, *sorted(random.randrange(len(array) + 1) for _ in range(random.randrange(4))), len(array)]
    pieces = [array.slice(start, end - start) for start, end in itertools.pairwise(bounds)]
    return pa.chunked_array(pieces, array.type)


@given(tables(), st.randoms(use_true_random=False))
@settings(max_examples=150)
def test_the_hash_is_that_of_the_definition_in_whatever_form_the_values_come(
    table: pa.Table, random: Random
) -> None:
    expected = defined(table)
    assert multiset_of(table) == expected
    columns = []
    for column in table.columns:
        array = reformed(column.combine_chunks(), random)
        if not pt.is_run_end_encoded(array.type):
            array = sliced(array, random)
        columns.append(chunked(array, random))
    assert multiset_of(pa.table(columns, names=table.schema.names)) == expected


@given(tables(), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_neither_the_order_of_rows_and_columns_counts_nor_how_they_are_cut(
    table: pa.Table, random: Random
) -> None:
    whole = multiset_of(table)
    order = random.sample(range(table.num_rows), table.num_rows)
    names = random.sample(table.schema.names, len(table.schema.names))
    mixed = table.take(pa.array(order, pa.int64())).select(names)
    cut = random.randrange(table.num_rows + 1)
    assert multiset_of(mixed.slice(0, cut)) + multiset_of(mixed.slice(cut)) == whole
    assert multiset_of(mixed) == whole
    more = mixed.append_column("of later", pa.nulls(table.num_rows, pa.string()))
    assert multiset_of(more) == whole, "a column that was added later is null"


@given(tables(), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_another_set_of_rows_has_another_hash(table: pa.Table, random: Random) -> None:
    """Rows that are left out, doubled, or exchanged a value for that of another row."""
    whole = multiset_of(table)
    if not table.num_rows:
        assert whole == NO_ROWS
        return
    row = random.randrange(table.num_rows)
    one = table.slice(row, 1)
    assert multiset_of(pa.concat_tables([table, one])) != whole
    doubled = pa.concat_tables([table.slice(0, row), table.slice(row + 1), one, one]).slice(1)
    gone = table.slice(0, 1) if row else table.slice(1, 1)
    if table.num_rows > 1 and gone.to_pylist() != one.to_pylist():
        assert (multiset_of(doubled).hash != whole.hash) == (defined(doubled) != defined(table))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"a": [1, 2], "b": [3, 4]}, {"a": [1, 2], "b": [4, 3]}),
        ({"a": [1, 2], "b": [3, 4]}, {"a": [3, 4], "b": [1, 2]}),
        ({"a": [0]}, {"a": [None]}),
        ({"a": [""]}, {"a": [None]}),
        ({"a": ["a"]}, {"a": ["a\0"]}),
        ({"a": ["ab" * 8]}, {"a": ["ba" * 8]}),
        ({"a": ["x" * 8 + "y" * 8]}, {"a": ["y" * 8 + "x" * 8]}),
        ({"a": [[]]}, {"a": [None]}),
        ({"a": [[None]]}, {"a": [[]]}),
        ({"a": [[1, 2]]}, {"a": [[2, 1]]}),
        ({"a": [[[1], []]]}, {"a": [[[], [1]]]}),
        ({"a": [[0]]}, {"a": [[0, 0]]}),
        ({"a": [{"x": 1, "y": 2}]}, {"a": [{"x": 2, "y": 1}]}),
        ({"a": [{"x": None}]}, {"a": [None]}),
        ({"a": [1.0]}, {"a": [1.0000000000000002]}),
        ({"a": ["z" * LONG_BYTES * 2]}, {"a": ["z" * LONG_BYTES * 2 + "z"]}),
        ({"a": ["y" + "z" * LONG_BYTES * 2]}, {"a": ["z" * LONG_BYTES * 2 + "y"]}),
        ({"a": [1, 1]}, {"a": [2, 2]}),
    ],
)
def test_what_differs_does_not_hash_alike(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert multiset_of(pa.table(before)).hash != multiset_of(pa.table(after)).hash


def test_long_texts_and_many_rows_are_as_defined() -> None:
    """They are hashed in pieces."""
    texts = [
        "ab" * (LONG_BYTES // 2),
        "c" * (LONG_BYTES * 2 + 3),
        "",
        None,
        "d" * (LONG_BYTES - 1),
        "é" * LONG_BYTES,
    ]
    table = pa.table({"text": pa.array(texts), "n": range(len(texts))})
    assert multiset_of(table) == defined(table)
    uneven = pa.table({"text": [f"{n}" * (1 + n % 7 * (n % 50 == 0) * 20) for n in range(1_000)]})
    assert multiset_of(uneven) == defined(uneven)
    rows = pa.table({"n": np.arange(BLOCK_ROWS * 2 + 5), "text": [f"{n}" for n in range(BLOCK_ROWS * 2 + 5)]})
    assert multiset_of(rows) == defined(rows)
    pieces = pa.concat_tables([rows.slice(start, 7) for start in range(0, rows.num_rows, 7)])
    assert multiset_of(pieces) == defined(rows)


def test_zeros_and_nans_are_one_value_each() -> None:
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], np.uint64).view(np.float64)
    for nan in nans:
        assert multiset_of(pa.table({"f": pa.array([nan])})) == multiset_of(pa.table({"f": [math.nan]}))
    assert multiset_of(pa.table({"f": [-0.0]})) == multiset_of(pa.table({"f": [0.0]}))
    narrow = np.array([0x7FA00000, 0xFFC00000], np.uint32).view(np.float32)
    assert multiset_of(pa.table({"f": narrow})) == multiset_of(pa.table({"f": [math.nan, math.nan]}))
    assert multiset_of(pa.table({"f": narrow.astype(np.float16)})).records == 2


def test_what_lies_under_nulls_does_not_count() -> None:
    clean = pa.array([1, None, 3], pa.int64())
    validity = clean.buffers()[0]
    dirty = pa.Array.from_buffers(pa.int64(), 3, [validity, pa.py_buffer(np.array([1, 99, 3]))])
    assert multiset_of(pa.table({"n": dirty})) == multiset_of(pa.table({"n": clean}))
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 4]), pa.array([1, 2, 3, 4]), mask=pa.array([False, True, False])
    )
    assert multiset_of(pa.table({"l": lists})) == multiset_of(pa.table({"l": [[1], None, [4]]}))
    inner = pa.StructArray.from_arrays([pa.array([1, 2, 3])], ["x"], mask=pa.array([False, True, False]))
    assert multiset_of(pa.table({"s": inner})) == multiset_of(pa.table({"s": [{"x": 1}, None, {"x": 3}]}))
    maps = map_of(pa.string(), pa.int64())
    held = pa.array([[("a", 1)], [("b", 2)], [("c", 3), ("d", None)]], maps)
    masked = pa.Array.from_buffers(
        maps,
        3,
        [validity, held.buffers()[1]],
        children=[
            pa.StructArray.from_arrays([held.keys, held.items], fields=[maps.key_field, maps.item_field])
        ],
    )
    assert multiset_of(pa.table({"m": masked})) == multiset_of(
        pa.table({"m": pa.array([[("a", 1)], None, [("d", None), ("c", 3)]], maps)})
    )


def test_what_is_stored_never_changes_its_meaning() -> None:
    """The numbers are those of the first version."""
    table = pa.table(
        {
            "id": pa.array([1, 2, None], pa.int64()),
            "amount": pa.array([Decimal("1.50"), None, Decimal("-7.25")], pa.decimal128(12, 2)),
            "name": ["ann", "größe 漢字", ""],
            "tags": pa.array([["a", None], [], None], pa.list_(pa.string())),
            "at": pa.array([0.1, -0.0, math.nan]),
        }
    )
    assert multiset_of(table) == defined(table)
    assert multiset_of(table).hash == "a3381216437d6be5627bcb5c77bbaf6c"
    assert NO_ROWS.hash == "0" * 32


def test_types_that_no_topic_has_are_refused() -> None:
    with pytest.raises(InternalError, match="uint64"):
        multiset_of(pa.table({"n": pa.array([1], pa.uint64())}))
