"""Random schemas of topics, and rows that fit them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from hypothesis import strategies as st

from txnformat.columns.arrow_types import list_of, map_of, struct_of
from txnformat.columns.variants import VARIANT, is_variant

__all__ = ["SCALARS", "SCHEMAS", "TABLES", "rows", "schemas_of"]

UTC = pa.timestamp("us", tz="UTC")
SCALARS = [
    pa.bool_(),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.decimal128(38, 10), pa.decimal128(1, 1), pa.decimal128(18, 0)),
    *(pa.string(), pa.binary(), pa.date32(), UTC, pa.timestamp("us")),
    *(pa.time64("us"), pa.duration("us"), VARIANT),
]
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)


LONGEST = datetime.timedelta(days=106_751_991)
"""Whole days of microseconds that fit 64 bits; longer ones are bad input."""


def structs(
    types: st.SearchStrategy[pa.DataType], names: st.SearchStrategy[str] = NAMES
) -> st.SearchStrategy[pa.DataType]:
    listed = st.lists(names, min_size=1, max_size=3, unique_by=str.lower)
    return listed.flatmap(
        lambda found: st.tuples(*(types for _ in found)).map(lambda kinds: struct_of(found, kinds))
    )


def schemas_of(
    scalars: list[pa.DataType], keys: list[pa.DataType], names: st.SearchStrategy[str] = NAMES
) -> st.SearchStrategy[pa.Schema]:
    """Return schemas whose columns, and parts of them, have these types and names, and whose maps have these
    keys."""
    types = st.recursive(
        st.sampled_from(scalars),
        lambda inner: st.one_of(
            inner.map(list_of), structs(inner, names), st.builds(map_of, st.sampled_from(keys), inner)
        ),
        max_leaves=5,
    )
    found = structs(types, names).map(
        lambda type_: pa.schema([field for field in type_ if not field.name.startswith("_")])
    )
    return found.filter(lambda schema: len(schema) > 0)


SCHEMAS = schemas_of(SCALARS, [pa.string(), pa.int32()])


def values(type_: pa.DataType) -> st.SearchStrategy[Any]:
    return st.none() | present(type_)


def present(type_: pa.DataType) -> st.SearchStrategy[Any]:
    if pt.is_map(type_):
        pairs = st.tuples(present(type_.key_type), values(type_.item_type))
        return st.lists(pairs, max_size=3)
    if is_variant(type_):
        return st.fixed_dictionaries({"value": st.binary(max_size=3), "metadata": st.binary(max_size=3)})
    if pt.is_struct(type_):
        return st.fixed_dictionaries({field.name: values(field.type) for field in type_})
    if pt.is_list(type_):
        return st.lists(values(type_.value_type), max_size=3)
    if pt.is_integer(type_):
        return st.integers(-(2 ** (type_.bit_width - 1)), 2 ** (type_.bit_width - 1) - 1)
    if pt.is_decimal(type_):
        digits = 10**type_.precision - 1
        # As many decimal places as the type has: pyarrow refuses to scale up what then has too many digits.
        return st.integers(-digits, digits).map(lambda units: Decimal(f"{units}e-{type_.scale}"))
    if pt.is_floating(type_):
        return st.floats(width=type_.bit_width, allow_nan=False)
    if pt.is_timestamp(type_):
        zone = st.just(datetime.UTC) if type_.tz else st.none()
        return st.datetimes(timezones=zone)
    if pt.is_time(type_):
        return st.times()
    if pt.is_duration(type_):
        return st.timedeltas(-LONGEST, LONGEST)
    if pt.is_date(type_):
        return st.dates()
    if pt.is_boolean(type_):
        return st.booleans()
    return st.binary(max_size=9) if pt.is_binary(type_) else st.text(st.characters(exclude_categories=["Cs"]))


def rows(schema: pa.Schema) -> st.SearchStrategy[list[dict[str, Any]]]:
    row = st.fixed_dictionaries({field.name: values(field.type) for field in schema})
    return st.lists(row, min_size=1, max_size=8)


TABLES = SCHEMAS.flatmap(lambda schema: rows(schema).map(lambda found: (schema, found)))
