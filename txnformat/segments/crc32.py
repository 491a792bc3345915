"""CRC-32 of a part of a stream from the running values at its two ends, without the bytes.

A streamed Parquet file tells only at its end where its column chunks lay; by then their bytes are gone. CRC-32 is
linear over GF(2): the value after a part equals the value before it, advanced over as many zero bytes, xor the
part's own (the method of ``crc32_combine`` in zlib).
"""

from __future__ import annotations

from functools import cache

__all__ = ["crc32_of_part"]

_POLYNOMIAL = 0xEDB88320
"""The reflected polynomial of zlib's CRC-32: bit 31 is the coefficient of x^0."""

Tables = tuple[list[int], list[int], list[int], list[int]]


def crc32_of_part(before: int, through: int, length: int) -> int:
    """Return ``zlib.crc32(part)``.

    ``before``, ``through``: running ``zlib.crc32`` of the stream up to the start of the part, and up to its end. ``length``:
    bytes of the part, at least 0.
    """
    bit = 0
    while length:
        if length & 1:
            table = _tables(bit)
            before = (
                table[0][before & 255]
                ^ table[1][before >> 8 & 255]
                ^ table[2][before >> 16 & 255]
                ^ table[3][before >> 24]
            )
        length >>= 1
        bit += 1
    return before ^ through


@cache
def _tables(bit: int) -> Tables:
    """Return the tables that advance a CRC over ``2**bit`` zero bytes: one for each of its four bytes."""
    power = 1 << 31 >> 8  # x^8: one byte
    for _ in range(bit):
        power = _multiply(power, power)
    images = [_multiply(power, 1 << index) for index in range(32)]
    tables: Tables = ([0], [0], [0], [0])
    for byte, table in enumerate(tables):
        for image in images[8 * byte : 8 * byte + 8]:
            table.extend([value ^ image for value in table])
    return tables


def _multiply(left: int, right: int) -> int:
    """Return the product of two polynomials modulo the CRC's."""
    product = 0
    mask = 1 << 31
    while mask:
        if left & mask:
            product ^= right
        right = right >> 1 ^ (_POLYNOMIAL if right & 1 else 0)
        mask >>= 1
    return product
