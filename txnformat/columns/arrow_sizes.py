"""An upper bound of the size of Arrow tables, computed in a fraction of the time that ``Table.nbytes`` takes
where the columns are flat.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.types as pt

__all__ = ["OfSchema", "bytes_at_most"]

T = TypeVar("T")

KNOWN_MAX = 1_000

BITMAP_BYTES = 3
"""Bytes counted for a value's bit in the bitmap of nulls, at most: two bytes where a chunk has a single one,
and a margin."""

_OFFSETS = {pa.string().id: 4, pa.binary().id: 4, pa.large_string().id: 8, pa.large_binary().id: 8}
"""Width of the offsets of a type's values, in bytes."""

_PLACES = {4: struct.Struct("=i").unpack_from, 8: struct.Struct("=q").unpack_from}


class OfSchema(Generic[T]):
    """Results of a function of a schema, kept by the schema's identity: a topic's schema is one object for
    all of its commits.
    """

    def __init__(self, function: Callable[[pa.Schema], T]) -> None:
        self._function = function
        self._known: dict[int, tuple[pa.Schema, T]] = {}

    def __call__(self, schema: pa.Schema) -> T:
        """Return ``function(schema)``."""
        known = self._known.get(id(schema))
        if known is None or known[0] is not schema:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            known = self._known[id(schema)] = (schema, self._function(schema))
        return known[1]


class _Flat(NamedTuple):
    """Sizes that are known for tables of a schema without nested types."""

    row_bytes: int
    """Bytes of a row at most, but for those of texts and binaries."""
    offsets: tuple[tuple[int, int], ...]
    """Number of each column whose values have offsets, and the width of these."""


def _flat(schema: pa.Schema) -> _Flat | None:
    """Return None of a schema with other columns than flat ones."""
    row_bytes, offsets = 0, []
    for number, type_ in enumerate(schema.types):
        width = _OFFSETS.get(type_.id)
        if width is not None:
            offsets.append((number, width))
        elif pt.is_primitive(type_) or pt.is_decimal(type_) or pt.is_fixed_size_binary(type_):
            width = type_.bit_width // 8 + 1
        else:
            return None
        row_bytes += width + BITMAP_BYTES
    return _Flat(row_bytes, tuple(offsets))


_flat_of = OfSchema(_flat)


def bytes_at_most(table: pa.Table, schema: pa.Schema) -> int:
    """Return a number that ``table.nbytes`` is not above.

    Buffers are not trusted: they may be shared, or larger than what they hold.

    ``schema``: that of the table; best always the same object, for what is known of it is kept.
    """
    flat = _flat_of(schema)
    if flat is None:
        return int(table.nbytes)
    found: int = table.num_rows * flat.row_bytes
    for number, width in flat.offsets:
        for chunk in table.column(number).iterchunks():
            found += _value_bytes(chunk, width)
    return found


def _value_bytes(array: Any, width: int) -> int:
    count = len(array)
    if not count:
        return 0
    first, offsets, place = width * array.offset, array.buffers()[1], _PLACES[width]
    (start,), (end,) = place(offsets, first), place(offsets, first + width * count)
    return int(end - start)
