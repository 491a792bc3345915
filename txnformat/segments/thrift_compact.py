"""Thrift's compact protocol, as far as Parquet's footers and page headers use it: read with bounds, and
written.

Pure.

Nothing is taken on trust: a length is compared with the bytes that are left before anything is made of it,
and nesting ends at DEPTH_MAX. Values are int, bytes, bool, list, and a dict by field number for a struct.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

__all__ = [
    "DEPTH_MAX",
    "STOP",
    "Struct",
    "ThriftError",
    "field_header",
    "list_header",
    "numbers",
    "read_field",
    "read_list_header",
    "read_struct",
    "read_value",
    "read_varint",
    "signed",
    "varint",
    "zigzag",
]

DEPTH_MAX = 16
"""Deepest nesting of structs and lists (inclusive); a footer needs 7."""

STOP = b"\0"
"""The byte that ends a struct."""

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_BITS = {BYTE: 8, I16: 16, I32: 32, I64: 64}

Struct = dict[int, Any]


class ThriftError(ValueError):
    """The bytes are not what the protocol allows."""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned number of at most 64 bits, and where it ends."""
    if at < len(data) and data[at] < 0x80:  # as most are
        return data[at], at + 1
    value = shift = 0
    for place in range(at, min(at + 10, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 1 << 64:
                break
            return value, place + 1
        shift += 7
    raise ThriftError(f"no number at byte {at}")


def signed(data: bytes) -> int:
    """Return the signed number that is all of ``data``, up to 70 bits: a pattern told where it ends."""
    size = len(data)
    if size == 1:
        value = data[0] & 0x7F
    elif size == 2:
        value = data[0] & 0x7F | (data[1] & 0x7F) << 7
    elif size == 3:
        value = data[0] & 0x7F | (data[1] & 0x7F) << 7 | (data[2] & 0x7F) << 14
    else:
        value = shift = 0
        for byte in data:
            value |= (byte & 0x7F) << shift
            shift += 7
    return (value >> 1) ^ -(value & 1)


def read_struct(data: bytes, at: int, depth: int = 1) -> tuple[Struct, int]:
    """Return the struct that begins at ``at``, and where it ends.

    Raises ThriftError: the bytes end too early, nest too deep, name a field twice, or are of a type that
    there is not.
    """
    if depth > DEPTH_MAX:
        raise ThriftError(f"nested deeper than {DEPTH_MAX} at byte {at}")
    found: Struct = {}
    number = 0
    while True:
        number, kind, at = read_field(data, at, number)
        if not kind:
            return found, at
        if number in found:
            raise ThriftError(f"field {number} twice before byte {at}")
        found[number], at = read_value(data, at, kind, depth)


def read_field(data: bytes, at: int, before: int) -> tuple[int, int, int]:
    """Return number and type of the next field, and where its value begins; type 0 is the end of the
    struct.
    """
    header = _byte(data, at)
    at += 1
    if header == 0:
        return 0, 0, at
    if header >> 4:
        number = before + (header >> 4)
    else:
        value, at = read_varint(data, at)
        number = (value >> 1) ^ -(value & 1)
    if not 0 < number < 1 << 15 or not header & 15:
        raise ThriftError(f"field {number} is out of place before byte {at}")
    return number, header & 15, at


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise ThriftError(f"the bytes end at {len(data)}")
    return data[at]


def read_value(data: bytes, at: int, kind: int, depth: int = 1) -> tuple[Any, int]:
    """Return the value of a field, and where it ends."""
    if kind in (TRUE, FALSE):
        return kind == TRUE, at
    if kind == BINARY:
        length, at = read_varint(data, at)
        if length > len(data) - at:
            raise ThriftError(f"{length} bytes at byte {at} are more than there are")
        return data[at : at + length], at + length
    if kind == STRUCT:
        return read_struct(data, at, depth + 1)
    if kind in (LIST, SET):
        return _read_list(data, at, depth + 1)
    if kind == BYTE:
        byte = _byte(data, at)
        return byte - 256 * (byte > 127), at + 1
    if kind == DOUBLE:
        if len(data) - at < 8:
            raise ThriftError(f"the bytes end at {len(data)}")
        return struct.unpack_from("<d", data, at)[0], at + 8
    bits = _BITS.get(kind)
    if bits is None:  # also maps, which Parquet does not have
        raise ThriftError(f"type {kind} at byte {at}")
    number, at = read_varint(data, at)
    number = (number >> 1) ^ -(number & 1)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ThriftError(f"{number} at byte {at} has more than {bits} bits")
    return number, at


def _read_list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    kind, count, at = read_list_header(data, at)
    if depth > DEPTH_MAX:
        raise ThriftError(f"nested deeper than {DEPTH_MAX} at byte {at}")
    values: list[Any] = []
    for _ in range(count):
        if kind in (TRUE, FALSE):
            value, at = _byte(data, at) == TRUE, at + 1
        else:
            value, at = read_value(data, at, kind, depth)
        values.append(value)
    return values, at


def read_list_header(data: bytes, at: int) -> tuple[int, int, int]:
    """Return type and number of a list's elements, each of at least one byte, and where the first begins."""
    header = _byte(data, at)
    at += 1
    count = header >> 4
    if count == 15:
        count, at = read_varint(data, at)
    if count > len(data) - at:
        raise ThriftError(f"{count} elements at byte {at} are more than there are bytes")
    return header & 15, count, at


# --- writing ------------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """Return an unsigned number."""
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def zigzag(value: int) -> bytes:
    """Return a signed number of at most 64 bits."""
    return varint((value << 1) ^ (value >> 63))


def field_header(kind: int, number: int, before: int) -> bytes:
    """Return what stands before a field's value; ``before`` is the number of the field before it, 0 for the
    first.
    """
    return bytes([(number - before) << 4 | kind])


def list_header(kind: int, count: int) -> bytes:
    """Return what stands before a list's elements."""
    return bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind]) + varint(count)


def numbers(fields: Iterable[tuple[int, int, int]]) -> bytes:
    """Return a struct's number fields, given as type, number and value, ascending, without its end."""
    found = bytearray()
    before = 0
    for kind, number, value in fields:
        found += field_header(kind, number, before) + zigzag(value)
        before = number
    return bytes(found)
