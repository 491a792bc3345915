"""The SHA-256 of a stream, and its CRC-32 at every end of a write.

Small streams are digested where they are written. Those of large ones take a thread of their own: digesting a
segment file costs about a quarter of the time that encoding it does, and an encoder uses only one of the
processor's cores.
"""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

from zlib_ng import zlib_ng

__all__ = ["RunningDigest", "crc32_of_part"]

THREAD_BYTES = 4 * 1024 * 1024
"""Streams that have grown to this get a thread."""

HANDOVER_BYTES = 1024 * 1024
"""Handed over at a time: a thread is woken for no less."""

HANDED_OVER_MAX = 8
"""Hand-overs that may wait; then the writer does, so that memory stays bounded."""


class RunningDigest:
    """Digests a stream. One thread at a time may call it; after :meth:`close`, none."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._crc32 = 0
        self._crc32_at = {0: 0}
        self._end = 0
        self._taken: list[bytes | memoryview] = []
        self._taken_bytes = 0
        self._taken_end = 0
        self._pool: ThreadPoolExecutor | None = None
        self._pending: deque[Future[None]] = deque()

    def update(self, data: bytes | memoryview) -> None:
        """Take in the next bytes of the stream; they must not change until :meth:`wait`."""
        size = len(data)
        self._taken_end += size
        if self._taken_end < THREAD_BYTES:
            self._digest_part(data)
            return
        self._taken.append(data)
        self._taken_bytes += size
        if self._taken_bytes >= HANDOVER_BYTES:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="txnlog-digest")
            while len(self._pending) >= HANDED_OVER_MAX:
                self._pending.popleft().result()
            self._pending.append(self._pool.submit(self._digest, self._take()))

    def wait(self) -> None:
        """Return when all that was taken in is digested."""
        while self._pending:
            self._pending.popleft().result()
        self._digest(self._take())

    def hexdigest(self) -> str:
        """Return the SHA-256 of all that was taken in."""
        self.wait()
        return self._sha256.hexdigest()

    def crc32(self, start: int, length: int) -> int | None:
        """Return the CRC-32 of a part, whose bytes are gone; None unless it begins and ends where updates
        did.
        """
        self.wait()
        at = self._crc32_at
        if start not in at or start + length not in at:
            return None
        return crc32_of_part(at[start], at[start + length], length)

    def close(self) -> None:
        """End the thread, if there is one. Idempotent; never raises."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _take(self) -> list[bytes | memoryview]:
        taken, self._taken, self._taken_bytes = self._taken, [], 0
        return taken

    def _digest(self, parts: list[bytes | memoryview]) -> None:
        for part in parts:
            self._digest_part(part)

    def _digest_part(self, part: bytes | memoryview) -> None:
        self._sha256.update(part)
        self._crc32 = zlib_ng.crc32(part, self._crc32)
        self._end += len(part)
        self._crc32_at[self._end] = self._crc32


# CRC-32 is linear over GF(2): the running value after a part of a stream equals the value before it, advanced
# over as many
# zero bytes, xor the part's own (the method of ``crc32_combine`` in zlib).

_POLYNOMIAL = 0xEDB88320
"""The reflected polynomial of zlib's CRC-32: bit 31 is the coefficient of x^0."""

Tables = tuple[list[int], list[int], list[int], list[int]]


def crc32_of_part(before: int, through: int, length: int) -> int:
    """Return ``zlib.crc32(part)``.

    ``before``, ``through``: running ``zlib.crc32`` of the stream up to the start of the part, and up to its
    end. ``length``: bytes of the part, at least 0.
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
