"""Which types may take the place of which: in a topic, in a Delta table, in an Iceberg table. Pure.

============================================  =====  =====  =======
from, to                                      topic  Delta  Iceberg
============================================  =====  =====  =======
int8 → int16 → int32                          yes    yes    one type
int8, int16, int32 → int64                    yes    yes    yes
float32 → float64                             yes    yes    yes
decimal: more digits before the point         yes    yes    yes
decimal: more digits behind the point         yes    yes    no
int8, int16, int32 → float64                  no     yes    no
integers → decimal with room for all of them  no     yes    no
date → timestamp without a zone               no     yes    no
============================================  =====  =====  =======

A topic takes those after which a value is what it was, of the same kind: sums of rows, and statistics of old
files, then hold for the new type. Sources: the sections "Type Widening" of Delta's protocol and "Schema
Evolution" of Iceberg's specification, version 2.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

__all__ = ["is_wider", "is_wider_in_delta", "is_wider_in_iceberg"]

_INTEGER_DIGITS = {8: 10, 16: 10, 32: 10, 64: 20}
"""Digits before the point that Delta wants of a decimal in place of an integer, by the integer's bits."""


def is_wider(new: pa.DataType, old: pa.DataType) -> bool:
    """Return whether a topic's column of type ``old`` may get ``new``: another type of the same kind, that
    holds each of its values exactly.
    """
    if new.equals(old):
        return False
    if pt.is_signed_integer(old) and pt.is_signed_integer(new):
        return bool(new.bit_width > old.bit_width)
    if pt.is_float32(old):
        return bool(pt.is_float64(new))
    if pt.is_decimal128(old) and pt.is_decimal128(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    return False


def is_wider_in_delta(new: pa.DataType, old: pa.DataType) -> bool:
    """Return whether a column of a Delta table with the feature ``typeWidening`` may change from ``old`` to
    ``new``.
    """
    if is_wider(new, old):
        return True
    if pt.is_signed_integer(old):
        if pt.is_float64(new):
            return bool(old.bit_width <= 32)
        return bool(pt.is_decimal128(new) and new.precision - new.scale >= _INTEGER_DIGITS[old.bit_width])
    return bool(pt.is_date32(old) and new.equals(pa.timestamp("us")))


def is_wider_in_iceberg(new: pa.DataType, old: pa.DataType) -> bool:
    """Return whether a column of an Iceberg table may change from ``old`` to ``new``: integers of up to 32
    bits are one type there, which is no change.
    """
    if pt.is_decimal128(new):
        return is_wider(new, old) and bool(new.scale == old.scale)
    return is_wider(new, old) and bool(new.bit_width == 64)
