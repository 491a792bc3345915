"""The SHA-256 of a stream, and its CRC-32 at every end of a write.

Small streams are digested where they are written. Those of large ones take a thread of their own: digesting a segment
file costs about a quarter of the time that encoding it does, and an encoder uses only one of the processor's cores.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["RunningDigest"]

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

    def crc32_at(self) -> dict[int, int]:
        """Return the running CRC-32 by the end of each update (bytes from the start), 0 included."""
        self.wait()
        return self._crc32_at

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
        self._crc32 = zlib.crc32(part, self._crc32)
        self._end += len(part)
        self._crc32_at[self._end] = self._crc32
