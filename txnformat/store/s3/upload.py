"""Streamed uploads to S3: one conditional PUT while they are small, a multipart upload above that.

Parts go up in the background, a few at a time. Nothing is visible before the last request, and that one carries the
condition too, so an upload never replaces an object.
"""

from __future__ import annotations

import base64
import contextlib
import zlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from txnformat.forking import renew_after_fork
from txnformat.store.base import CreateOutcome
from txnformat.store.s3.errors import RequestFailedError
from txnformat.store.writer import Writer, object_exists, writer_ended

if TYPE_CHECKING:
    from txnformat.store.s3.store import S3Store

__all__ = ["PART_BYTES", "S3Writer", "checksum"]

PART_BYTES = 16 * 1024 * 1024
"""Size of a part, and the largest object that goes up in one PUT (inclusive). 10,000 parts are S3's limit: 156 GiB."""

PARTS_IN_FLIGHT_MAX = 3
"""Bounds the memory of an upload: so many parts, and the one that is being filled."""

CLOSE_ATTEMPTS_MAX = 6

UPLOAD_ID_KEY = "txnlog-upload"
"""User metadata that tells whose object it is, when the answer to the last request was lost."""


def checksum(data: bytes) -> str:
    """Return the CRC-32 of ``data`` as S3 writes it: the store compares it with what it received."""
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


class S3Writer(Writer):
    """One upload. Dropped without ``close`` or ``abort`` it may leave parts: see the bucket rule in docs/storage.md."""

    def __init__(self, store: S3Store, key: str, upload_id: str) -> None:
        self._store = store
        self._key = key
        self._id = upload_id
        self._closed = False
        self._forget(ended=False)
        renew_after_fork(self)

    def renew(self) -> None:
        """End in a forked child, without a request: the upload is the parent's."""
        self._forget(ended=True)

    def _forget(self, *, ended: bool) -> None:
        self._ended = ended
        self._buffer = bytearray()
        self._multipart: str | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._flying: deque[Future[dict[str, Any]]] = deque()
        self._parts: list[dict[str, Any]] = []
        self._number = 0

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes; returns their number. Requests: 1 for each full part, and 1 before the first."""
        if self._ended:
            raise writer_ended(self._store.url, self._key)
        view = memoryview(data).cast("B")
        try:
            for start in range(0, view.nbytes, PART_BYTES):
                self._buffer += view[start : start + PART_BYTES]
                if len(self._buffer) > PART_BYTES:
                    self._send_part(bytes(self._buffer[:PART_BYTES]))
                    del self._buffer[:PART_BYTES]
        except BaseException:
            self.abort()
            raise
        return view.nbytes

    def close(self) -> None:
        """Make the object visible and durable. Requests: 1, and of a large upload 1 for its last part."""
        if self._closed:
            return
        if self._ended:
            raise writer_ended(self._store.url, self._key)
        try:
            if self._multipart is None:
                self._put()
            else:
                self._complete()
            self._closed = True
        finally:
            self.abort()

    def abort(self) -> None:
        """Drop what was written; idempotent; never raises. Requests: 1 if parts were uploaded."""
        self._ended = True
        self._buffer = bytearray()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
        upload, self._multipart = self._multipart, None
        if upload is not None and not self._closed:
            # Parts that stay are invisible, and the bucket's rule for old uploads removes them.
            with contextlib.suppress(RequestFailedError):
                self._store.request("abort_multipart_upload", self._key, UploadId=upload)

    # --- small ----------------------------------------------------------------------------------------------------------

    def _put(self) -> None:
        """Create the object; whether an unclear attempt was applied is read back, as for a slot."""
        data = bytes(self._buffer)
        for attempt in range(1, CLOSE_ATTEMPTS_MAX + 1):
            result = self._store.create(self._key, data)
            if result.outcome is CreateOutcome.CREATED:
                return
            if result.outcome is CreateOutcome.EXISTS:
                if attempt > 1 and self._store.get(self._key) == data:
                    return  # an earlier attempt, whose answer was lost
                raise object_exists(self._store.url, self._key)
            error = result.error or self._store.bad_answer(key=self._key)
            if not error.transient or error.patience_over or attempt == CLOSE_ATTEMPTS_MAX:
                raise error
            self._store.pause(attempt)

    # --- large ----------------------------------------------------------------------------------------------------------

    def _send_part(self, data: bytes) -> None:
        if self._multipart is None:
            answer = self._request(
                "create_multipart_upload",
                **self._store.options.write_arguments(),
                ChecksumAlgorithm="CRC32",
                Metadata={UPLOAD_ID_KEY: self._id},
            )
            self._multipart = self._store.field(answer, "UploadId")
            self._pool = ThreadPoolExecutor(PARTS_IN_FLIGHT_MAX, thread_name_prefix="txnlog-upload")
        assert self._pool is not None
        while len(self._flying) >= PARTS_IN_FLIGHT_MAX:
            self._parts.append(self._flying.popleft().result())
        self._number += 1
        self._flying.append(self._pool.submit(self._part, self._number, data))

    def _part(self, number: int, data: bytes) -> dict[str, Any]:
        crc32 = checksum(data)
        answer = self._request(
            "upload_part", UploadId=self._multipart, PartNumber=number, Body=data, ChecksumCRC32=crc32
        )
        return {"PartNumber": number, "ETag": self._store.field(answer, "ETag"), "ChecksumCRC32": crc32}

    def _complete(self) -> None:
        if self._buffer:
            self._send_part(bytes(self._buffer))
        while self._flying:
            self._parts.append(self._flying.popleft().result())
        arguments = {"UploadId": self._multipart, "MultipartUpload": {"Parts": self._parts}}
        for attempt in range(1, CLOSE_ATTEMPTS_MAX + 1):
            try:
                answer = self._store.request_once(
                    "complete_multipart_upload", self._key, IfNoneMatch="*", **arguments
                )
                if answer.get("ETag"):
                    return
                error = self._store.bad_answer(key=self._key)
            except RequestFailedError as caught:
                failure = caught.failure
                # 404: the upload is no longer there, which is how a completed one looks to the next attempt.
                if attempt > 1 and failure.status in (404, 412) and self._is_ours():
                    return
                if failure.status == 412:
                    raise object_exists(self._store.url, self._key) from None
                error = failure.error
            if not error.transient or error.patience_over or attempt == CLOSE_ATTEMPTS_MAX:
                raise error
            self._store.pause(attempt)

    def _is_ours(self) -> bool:
        try:
            answer = self._store.request("head_object", self._key)
        except RequestFailedError:
            return False
        return bool(answer.get("Metadata", {}).get(UPLOAD_ID_KEY) == self._id)

    def _request(self, operation: str, **arguments: Any) -> dict[str, Any]:
        try:
            return self._store.request(operation, self._key, **arguments)
        except RequestFailedError as error:
            raise error.failure.error from None
