"""Streamed uploads to S3: one conditional PUT while they are small, a multipart upload above that.

Parts go up in the background, a few at a time. Nothing is visible before the last request, and that one
carries the condition too, so an upload never replaces an object.
"""

from __future__ import annotations

import base64
import contextlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from zlib_ng import zlib_ng

from txnformat.store.remote.answers import RequestFailedError
from txnformat.store.s3.requests import S3Requests
from txnformat.store.uploads import CLOSE_ATTEMPTS_MAX, PARTS_IN_FLIGHT_MAX, PartedWriter, object_exists

__all__ = ["S3Writer", "checksum"]

UPLOAD_ID_KEY = "txnlog-upload"
"""User metadata that tells whose object it is, when the answer to the last request was lost."""


def checksum(data: bytes) -> str:
    """Return the CRC-32 of ``data`` as S3 writes it: the store compares it with what it received."""
    return base64.b64encode(zlib_ng.crc32(data).to_bytes(4, "big")).decode()


class S3Writer(PartedWriter[S3Requests]):
    """One upload.

    Dropped without ``close`` or ``abort`` it may leave parts: see the bucket rule in docs/storage.md.
    """

    def __init__(self, store: S3Requests, key: str, upload_id: str) -> None:
        super().__init__(store, key)
        self._id = upload_id

    def _forget_parts(self) -> None:
        self._multipart: str | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._flying: deque[Future[dict[str, Any]]] = deque()
        self._parts: list[dict[str, Any]] = []
        self._number = 0

    def _has_parts(self) -> bool:
        return self._multipart is not None

    def _abandon_parts(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
        upload, self._multipart = self._multipart, None
        if upload is not None and not self._closed:
            # Parts that stay are invisible, and the bucket's rule for old uploads removes them.
            with contextlib.suppress(RequestFailedError):
                self._store.request("abort_multipart_upload", self._key, UploadId=upload)

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
