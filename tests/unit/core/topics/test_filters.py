"""The columns of which compacted files have Bloom filters."""

from __future__ import annotations

import pyarrow as pa
import pytest

from txnformat.core.topics.filters import bloom_columns, check_filters
from txnformat.core.topics.schema import as_topic_schema
from txnformat.core.topics.settings import as_settings
from txnformat.errors import InvalidInputError

TYPES = {
    "n": pa.int64(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "day": pa.date32(),
    "price": pa.decimal128(10, 2),
    "real": pa.float64(),
    "small": pa.float32(),
    "yes": pa.bool_(),
    "many": pa.list_(pa.int64()),
    "one": pa.struct([("n", pa.int64())]),
}
SCHEMA = as_topic_schema(pa.schema(TYPES))


def test_names_are_taken_once_without_spaces_around_them() -> None:
    assert bloom_columns(as_settings({"compact.bloom.columns": " text, n ,text"})) == ("n", "text")
    assert bloom_columns(()) == ()


def test_whole_values_with_one_form_of_bytes_can_have_a_filter() -> None:
    check_filters(as_settings({"compact.bloom.columns": "n,text,bytes,day,price"}), SCHEMA)


@pytest.mark.parametrize("name", ["real", "small", "yes", "many", "one", "other"])
def test_a_column_without_a_filter_is_named_by_the_error(name: str) -> None:
    settings = {"compact.bloom.columns": f"n,{name}"}
    with pytest.raises(InvalidInputError, match=f"names '{name}'") as caught:
        check_filters(as_settings(settings), SCHEMA)
    assert caught.value.kind == "invalid-setting"
