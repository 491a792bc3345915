"""Streamed uploads to a cloud: one conditional PUT while they are small, parts above that.

Nothing is visible before the last request. That of an upload in parts has no condition, since obstore knows
none for it: a HEAD before it says whether the name is taken. Names of data files are drawn at random and used
once (docs/internals/spec.md), so nothing else ever makes an object of such a name.
"""

from __future__ import annotations

import contextlib
from typing import Any

from txnformat.store.cloud.requests import CloudRequests
from txnformat.store.remote.answers import RequestFailedError
from txnformat.store.uploads import PART_BYTES, PARTS_IN_FLIGHT_MAX, PartedWriter, object_exists

__all__ = ["CloudWriter"]


class CloudWriter(PartedWriter[CloudRequests]):
    """One upload. Parts that went up stay invisible, until the store removes them: see docs/storage.md."""

    def _forget_parts(self) -> None:
        self._parts: Any = None
        self._size = 0

    def _has_parts(self) -> bool:
        return self._parts is not None

    def _abandon_parts(self) -> None:
        self._parts = None  # obstore's file is never closed: that would publish it

    def _send_part(self, data: bytes) -> None:
        def send(obstore: Any, client: Any) -> None:
            if self._parts is None:
                self._parts = obstore.open_writer(
                    client,
                    self._key,
                    buffer_size=PART_BYTES,
                    max_concurrency=PARTS_IN_FLIGHT_MAX,
                )
            self._parts.write(data)

        self._call("upload part", send)
        self._size += len(data)

    def _complete(self) -> None:
        if self._store.head(self._key) is not None:
            raise object_exists(self._store.url, self._key)
        if self._buffer:
            self._send_part(bytes(self._buffer))
        try:
            self._call("complete upload", lambda _, client: self._parts.close())
        except Exception:
            # The last answer may have been lost. Nothing but this upload makes an object of this name.
            with contextlib.suppress(RequestFailedError):
                found = self._store.head(self._key)
                if found is not None and found.size == self._size:
                    return
            raise

    def _call(self, doing: str, send: Any) -> None:
        try:
            self._store.request(doing, self._key, send, size=PART_BYTES, writes=True)
        except RequestFailedError as error:
            raise error.failure.error from None
