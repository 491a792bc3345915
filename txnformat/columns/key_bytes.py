"""The bytes of a record's key, from which its partition is hashed, and by which compaction knows the records
of one key.

They are a function of the topic's key columns, whose number,
order and types never change. One key column is encoded as Kafka's serializers do, big-endian:

=====================================
============================================================================== type of the column
bytes =====================================
============================================================================== string, binary, fixed-size
binary      UTF-8; as they are int8 … int64, uint8 … uint64           of the type's own width, two's
complement bool                                   one byte, 0 or 1 float16, float32, float64              IEEE
754 bits, every NaN as the quiet one with no sign; -0.0 and 0.0 differ date32, date64, time, timestamp,
the stored integer (in the unit that the column's type names), 4 or 8 bytes duration decimal
unscaled value, two's complement, of the type's storage width dictionary                             as its
value type =====================================
==============================================================================

Several key columns are their encodings one after another, each behind its length as a big-endian int32; -1
and no bytes for a null (Kafka's protocol type NULLABLE_BYTES). A null in a single key column is no key at
all: such records go to the partition whose turn it is, as a null key does in Kafka.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from txnformat.errors import InvalidInputError

__all__ = ["encode_keys"]

_BYTES = frozenset(
    {pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()}
)


def encode_keys(columns: Sequence[Any]) -> Any:
    """Return the bytes of each record's key, as the module's table defines them.

    ``columns``: the key columns in the topic's order, of equal length, each already of its type in the
    topic's schema. Returns pyarrow.LargeBinaryArray: null where the only key column is null; never null for
    several columns. Raises InvalidInputError: no column, columns of different lengths, or a type that cannot
    be a key (nested types, intervals).
    """
    if not columns:
        raise InvalidInputError("a key needs at least one column", hint="records without keys take turns")
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        raise InvalidInputError("key columns differ in length", lengths=lengths)
    encoded = [_encode_column(_one_array(column)) for column in columns]
    if len(encoded) == 1:
        return encoded[0]
    parts: list[Any] = []
    for component in encoded:
        sizes = pc.fill_null(pc.binary_length(component), -1).to_numpy(zero_copy_only=False)
        parts += [_fixed_width(sizes.astype(">i4"), None), component.fill_null(b"")]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


def _one_array(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def _encode_column(column: Any) -> Any:
    """Return one key column as large_binary, nulls kept."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _encode_column(column.dictionary_decode())
    if kind in _BYTES or pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_boolean(kind):
        return _encode_column(column.cast(pa.uint8()))
    if not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind)) or pa.types.is_interval(kind):
        raise InvalidInputError(
            "a column of this type cannot be a key", type=kind, hint="cast it to a string"
        )
    width = kind.bit_width // 8
    data = column.buffers()[1]
    values = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    values = values[column.offset * width : (column.offset + len(column)) * width].reshape(len(column), width)
    if pa.types.is_floating(kind):
        numbers = values.view(np.dtype(f"f{width}"))
        values = np.where(np.isnan(numbers), numbers.dtype.type(np.nan), numbers).view(np.uint8)
    # Arrow's values are in the machine's order; in a key the most significant byte comes first.
    big_endian = values if sys.byteorder == "big" else values[:, ::-1]
    return _fixed_width(
        big_endian, column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
    )


def _fixed_width(values: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None) -> Any:
    """Return each row's bytes as large_binary. ``valid``: False where the result is null; None: no nulls."""
    count = len(values)
    data = np.ascontiguousarray(values)
    width = data.nbytes // count if count else 0
    offsets = np.arange(count + 1, dtype=np.int64) * width
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        pa.large_binary(), count, [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
