"""Bytes changed in many ways, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

__all__ = ["every_byte", "several"]

HUGE = (
    b"\xff\xff\xff\xff\x0f",  # the largest unsigned 32-bit number, of thrift
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # the largest signed 64-bit number
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # the smallest
    b"\xff\xff\xff\x7f",
    b"\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x00" * 8,
    b"\x19\xfc\xff\xff\xff\x7f",  # a list of very many structs
    b"\x1c" * 64,  # structs in structs
)


def every_byte(data: bytes, start: int, end: int, times: int, seed: int) -> Iterator[bytes]:
    """Yield copies of ``data`` of which one byte of [start, end) is another: each byte, ``times`` times."""
    drawn = random.Random(seed)
    for at in range(start, end):
        bits = [data[at] ^ 1 << bit for bit in range(8)]
        values = [*drawn.sample(bits, 8), data[at] + 1 & 0xFF, data[at] - 1 & 0xFF, 0, 0xFF, 0x7F, 0x80]
        for value in list(dict.fromkeys(value for value in values if value != data[at]))[:times]:
            yield data[:at] + bytes([value]) + data[at + 1 :]


def several(data: bytes, start: int, end: int, count: int, seed: int) -> Iterator[bytes]:
    """Yield ``count`` copies of ``data`` with several changes in [start, end): of bytes, of numbers, of
    lengths."""
    drawn = random.Random(seed)
    for _ in range(count):
        found = bytearray(data[start:end])
        for _ in range(drawn.choice((1, 1, 2, 3, 8))):
            at = drawn.randrange(len(found)) if found else 0
            match drawn.randrange(6):
                case 0 if found:
                    found[at] = drawn.randrange(256)
                case 1:
                    found[at:at] = drawn.randbytes(drawn.randrange(1, 9))
                case 2:
                    del found[at : at + drawn.randrange(1, 17)]
                case 3:
                    huge = drawn.choice(HUGE)
                    found[at : at + drawn.choice((0, len(huge)))] = huge
                case 4:
                    piece = found[at : at + drawn.randrange(1, 65)]
                    to = drawn.randrange(len(found) + 1)
                    found[to : to + drawn.choice((0, len(piece)))] = piece
                case _:
                    found[at : at + 4] = drawn.choice((0, 1, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)).to_bytes(
                        4, "little"
                    )
        yield data[:start] + bytes(found) + data[end:]
