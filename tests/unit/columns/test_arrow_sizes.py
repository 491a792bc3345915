"""How large tables are at most: never below what pyarrow counts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnformat.columns.arrow_sizes import KNOWN_MAX, OfSchema, bytes_at_most

VALUES: dict[pa.DataType, Any] = {
    pa.int8(): 1,
    pa.int64(): 1,
    pa.bool_(): True,
    pa.float16(): 1.0,
    pa.float64(): 1.0,
    pa.timestamp("us", "UTC"): 1,
    pa.date32(): 1,
    pa.decimal128(20, 2): None,
    pa.binary(5): b"12345",
    pa.string(): "a text",
    pa.large_string(): "a text",
    pa.binary(): b"some bytes",
    pa.large_binary(): b"some bytes",
    pa.null(): None,
    pa.dictionary(pa.int8(), pa.string()): "a text",
    pa.list_(pa.int64()): [1, 2],
    pa.struct([("a", pa.int8()), ("b", pa.string())]): {"a": 1, "b": "x"},
    pa.string_view(): "a text that is longer than twelve bytes",
}


@given(
    st.sampled_from(list(VALUES)),
    st.lists(st.lists(st.booleans(), max_size=20), max_size=4),
    st.integers(0, 30),
    st.integers(0, 40),
)
def test_no_table_is_larger_than_it_is_told_at_most(
    type_: pa.DataType, chunks: list[list[bool]], first: int, count: int
) -> None:
    arrays = [pa.array([VALUES[type_] if there else None for there in one], type_) for one in chunks]
    table = pa.table({"n": pa.chunked_array(arrays, type_)})
    for one in (table, table.slice(first, count), table.slice(first, count).combine_chunks()):
        assert one.nbytes <= bytes_at_most(one, one.schema)


def test_buffers_that_columns_share_count_for_each() -> None:
    """The size of all buffers together would be far below what is counted, and stored."""
    one = pa.array(["x" * 1_000] * 100)
    table = pa.table({str(number): pa.chunked_array([one, one]) for number in range(10)})
    assert table.get_total_buffer_size() * 10 < table.nbytes <= bytes_at_most(table, table.schema)


@pytest.mark.parametrize("type_", [pa.int64(), pa.string()], ids=str)
def test_a_slice_counts_as_what_is_inside(type_: pa.DataType) -> None:
    table = pa.table({"n": pa.array([VALUES[type_]] * 100_000, type_)})
    assert bytes_at_most(table.slice(50_000, 10), table.schema) < 20 * 10


def test_what_is_known_of_a_schema_is_that_schemas() -> None:
    """Ids of objects come again when these are gone; a schema that is known stays."""
    asked: list[list[str]] = []

    def names(schema: pa.Schema) -> list[str]:
        asked.append(schema.names)
        return list(schema.names)

    of_schema = OfSchema(names)
    kept = pa.schema([("kept", pa.int8())])
    for number in range(KNOWN_MAX + 10):
        assert of_schema(pa.schema([(str(number), pa.int8())])) == [str(number)]
    assert of_schema(kept) == of_schema(kept) == ["kept"]
    assert len(asked) == KNOWN_MAX + 11
    assert len(of_schema._known) <= KNOWN_MAX
