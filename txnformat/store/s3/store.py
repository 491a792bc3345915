"""An object store in an S3 bucket: AWS, and every store that speaks S3 with atomic ``If-None-Match: *``.

``create`` is one PutObject with the condition, sent once: the outcome that it reports is the outcome of that
request, never of a repeat that met its own success (:mod:`txnformat.protocol.slot` reads the slot back and
decides). Reads, listings, deletions and plain PUTs may be repeated without harm, and are, for a while.

See the specification, section "Stores".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

from txnformat.arguments import is_utf8
from txnformat.digits import whole
from txnformat.errors import InvalidInputError, NotFoundError
from txnformat.store.base import CreateOutcome, CreateResult, ObjectInfo, check_range, too_large
from txnformat.store.object_sizes import bytes_max as object_bytes_max
from txnformat.store.remote.answers import Failure, RequestFailedError
from txnformat.store.remote.store import LISTED_KEYS_MAX, Root
from txnformat.store.s3.options import S3Options
from txnformat.store.s3.requests import S3Requests
from txnformat.store.s3.upload import S3Writer, checksum
from txnformat.store.unfinished import UnfinishedUpload
from txnformat.store.uploads import Writer

__all__ = ["S3Store"]

EMPTY_PAGES_MAX = 1_000
"""Pages of a listing that may follow each other without a key: S3 passes over deleted versions so."""
LISTED_EACH_MAX = 1_000_000_000
"""Keys of a listing that is taken answer by answer: a store whose listing does not end must not fill the
disk."""
KEY_BYTES_MAX = 1_024
"""Longest listed key (inclusive): S3's limit."""

_LOCATION = re.compile(r"[sS]3[aAnN]?://([^/]*)(?:/(.*))?", re.DOTALL)
_IN_QUERY = re.compile(
    r"[?&;](?:aws_|storage\.)?(?:key|secret|token|access_?key|secret_?|session_?)[a-z_.]*=", re.IGNORECASE
)
_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}")  # what botocore sends; AWS made capitals and underscores once
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class S3Store(S3Requests):
    """Objects below a prefix of a bucket; safe for many threads and many processes, also after a fork.

    ``location``: ``s3://bucket/path`` (``s3a://`` and ``s3n://`` mean the same). ``options``: storage options
    (:mod:`txnformat.store.s3.options`). See :class:`~txnformat.store.remote.store.RemoteStore`.
    """

    @classmethod
    def read(cls, location: str, options: Mapping[str, str]) -> tuple[Root, S3Options]:
        """See :meth:`RemoteStore.read`."""
        return _parse(location), S3Options.parse(options)

    def reopening(self) -> Callable[[], Self] | None:
        """See :meth:`RemoteStore.reopening`; None also for one of a subclass."""
        return super().reopening() if type(self) is S3Store else None

    def store_time_ms(self) -> int:
        """Return the store's time, ms since the epoch, by its Date headers.

        Requests: 1 HEAD if none came yet.
        """
        if self._time.estimate_ms() is None:
            self.head("_txnlog/format.json")
        return self._time.known_ms(self.url)

    def get(self, key: str, bytes_max: int | None = None) -> bytes | None:
        most = object_bytes_max(key) if bytes_max is None else bytes_max
        try:
            data: bytes = self.request("get_object", key, bytes_max=most)["Body"]
        except RequestFailedError as error:
            if error.failure.too_large is not None:
                raise too_large(self.url, key, most, error.failure.too_large.got) from None
            self._check_missing(error)
            return None
        return data

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(self.url, key, start, length, 2**63)
        if length == 0:
            self._check_range(key, start, length)
            return b""
        try:
            answer = self.request(
                "get_object", key, bytes_max=length, Range=f"bytes={start}-{start + length - 1}"
            )
        except RequestFailedError as error:
            if error.failure.too_large is not None:
                got = error.failure.too_large.got
                raise self._other_length(key, length, got="more" if got is None else got) from None
            if error.failure.status == 416:
                found = self.head(key)
                check_range(self.url, key, start, length, 0 if found is None else found.size)
            self._check_missing(error)
            raise NotFoundError("no such object", store=self.url, key=key) from None
        data: bytes = answer["Body"]
        if len(data) != length:
            size = whole(str(answer.get("ContentRange", "")).rpartition("/")[2])
            check_range(self.url, key, start, length, len(data) if size is None else size)
            raise self._other_length(key, length, got=len(data))
        return data

    def head(self, key: str) -> ObjectInfo | None:
        answer = self._headers(key)
        return None if answer is None else ObjectInfo(key, self._size(answer, "ContentLength"))

    def created_ms(self, key: str) -> int | None:
        """See :func:`~txnformat.store.base.created_ms`."""
        answer = self._headers(key)
        return None if answer is None else int(self.field(answer, "LastModified").timestamp() * 1000)

    def _headers(self, key: str) -> dict[str, Any] | None:
        try:
            return self.request("head_object", key)
        except RequestFailedError as error:
            self._check_missing(error)
            return None

    def create(self, key: str, data: bytes) -> CreateResult:
        try:
            answer = self.request_once("put_object", key, **self.write_arguments(data), IfNoneMatch="*")
        except RequestFailedError as error:
            return self.create_result(error.failure)
        if not answer.get("ETag"):
            # A success that does not look like one: an error in the body of a 200, or a proxy's own page.
            return CreateResult(CreateOutcome.AMBIGUOUS, self.bad_answer(key=key))
        return CreateResult(CreateOutcome.CREATED)

    def put(self, key: str, data: bytes) -> None:
        try:
            self.request("put_object", key, **self.write_arguments(data))
        except RequestFailedError as error:
            raise error.failure.error from None

    def open_write(self, key: str) -> Writer:
        """Start a streamed upload: one conditional PUT if it stays small, a multipart upload otherwise."""
        return S3Writer(self, key, self._ids.new())

    def list(self, prefix: str, start_after: str | None = None) -> Sequence[ObjectInfo]:
        """Return the objects under ``prefix`` after ``start_after`` (exclusive).

        Requests: 1 per 1,000 keys.
        """
        found = [info for page in self._pages(prefix, start_after, LISTED_KEYS_MAX) for info in page]
        # Directory buckets of S3 Express are in no order, and ignore where to start.
        found.sort(key=lambda info: info.key.encode())
        if start_after is not None:
            found = [info for info in found if info.key.encode() > start_after.encode()]
        return found

    def list_each(self, prefix: str, take: Callable[[ObjectInfo], object]) -> None:
        """Call ``take`` with the objects under ``prefix``, in the order of the store; one answer is held at a
        time.

        Requests: 1 per 1,000 keys.
        """
        for page in self._pages(prefix, None, LISTED_EACH_MAX):
            for info in page:
                take(info)

    def _pages(self, prefix: str, start_after: str | None, keys_max: int) -> Iterator[Sequence[ObjectInfo]]:
        """Yield the answers of a listing, of at most about ``keys_max`` keys."""
        arguments: dict[str, Any] = {"Prefix": self._full(prefix)}
        if start_after is not None:
            arguments["StartAfter"] = self._full(start_after)
        count = empty = 0
        while True:
            try:
                page = self.request("list_objects_v2", None, **arguments)
            except RequestFailedError as error:
                raise error.failure.error from None
            found = []
            for item in page.get("Contents", ()):
                full = self.field(item, "Key")
                if len(full.encode()) > KEY_BYTES_MAX:
                    raise self._lacking("Key")
                key = full.removeprefix(self._full(""))
                found.append(ObjectInfo(key, self._size(item, "Size")))
            yield found
            if not page.get("IsTruncated"):
                return
            before, arguments["ContinuationToken"] = (
                arguments.get("ContinuationToken"),
                self.field(page, "NextContinuationToken"),
            )
            empty = 0 if page.get("Contents") else empty + 1
            count += len(found)
            if before == arguments["ContinuationToken"] or empty > EMPTY_PAGES_MAX or count > keys_max:
                raise self._endless(count)

    def delete(self, key: str) -> None:
        """Delete the object; a missing one is no error. In a versioned bucket its versions stay."""
        try:
            self.request("delete_object", key)
        except RequestFailedError as error:
            self._check_missing(error)

    def unfinished_uploads(self, before_ms: int) -> Sequence[UnfinishedUpload]:
        """Return the multipart uploads under the prefix that were initiated before a time.

        Requests: 1 per 1,000.
        """
        arguments: dict[str, Any] = {"Prefix": self._full("")}
        found: list[UnfinishedUpload] = []
        while True:
            try:
                page = self.request("list_multipart_uploads", None, **arguments)
            except RequestFailedError as error:
                raise error.failure.error from None
            for item in page.get("Uploads", ()):
                key = self.field(item, "Key").removeprefix(self._full(""))
                if self.field(item, "Initiated").timestamp() * 1000 < before_ms:
                    found.append(UnfinishedUpload(key, self.field(item, "UploadId"), 0))
            if not page.get("IsTruncated"):
                return sorted(found)
            markers = {name: self.field(page, f"Next{name}") for name in ("KeyMarker", "UploadIdMarker")}
            if markers.items() <= arguments.items() or len(found) > LISTED_KEYS_MAX:
                raise self._endless(len(found))
            arguments |= markers

    def keeps_versions(self) -> bool:
        """Return whether the bucket keeps old versions, also when it only did so once: those are still there.

        Requests: 1.
        """
        try:
            answer = self.request("get_bucket_versioning", None)
        except RequestFailedError as error:
            raise error.failure.error from None
        return bool(answer.get("Status"))

    def discard_upload(self, upload: UnfinishedUpload) -> None:
        """Abort a multipart upload; its parts go. One that is gone is no error."""
        try:
            self.request("abort_multipart_upload", upload.key, UploadId=upload.upload_id)
        except RequestFailedError as error:
            self._check_missing(error)

    def write_arguments(self, data: bytes) -> dict[str, Any]:
        """Return the arguments of a PutObject with ``data``."""
        return {"Body": data, "ChecksumCRC32": checksum(data), **self.options.write_arguments()}

    def create_result(self, failure: Failure) -> CreateResult:
        """Return what a failed conditional create comes to."""
        if failure.status == 412:
            return CreateResult(CreateOutcome.EXISTS)
        return CreateResult(
            CreateOutcome.REFUSED if failure.refused else CreateOutcome.AMBIGUOUS, failure.error
        )


def holds_credentials(location: str) -> bool:
    """Return whether a location has something before the bucket, as in ``s3://ID:SECRET@bucket``, or options
    behind ``?``.

    A secret may have slashes, so that ``@`` comes after the first of them.
    """
    _, _, rest = location.partition(":")
    return bool(re.search("[:@]", rest.lstrip("/").partition("/")[0]) or _IN_QUERY.search(rest))


def _parse(location: str) -> Root:
    match = _LOCATION.fullmatch(location)
    bucket, path = (match[1], match[2] or "") if match else ("", "")
    parts = path.rstrip("/").split("/") if path.strip("/") else []
    if holds_credentials(location):  # nothing of it is repeated
        raise InvalidInputError(
            "an S3 URL must not hold credentials, and the name of a bucket has neither : nor @",
            kind="invalid-location",
            hint="pass them as the storage options key and secret",
        )
    if (
        not _BUCKET.fullmatch(bucket)
        or not is_utf8(location)
        or _CONTROL.search(location)
        or any(part in ("", ".", "..") for part in parts)
    ):
        raise InvalidInputError(
            f"{location!r:.300} is not a location",
            kind="invalid-location",
            hint="write s3://bucket/path, without empty parts; a bucket's name has a-z 0-9 . _ and - only",
        )
    prefix = "/".join(parts)
    return Root(f"s3://{bucket}/{prefix}".rstrip("/"), bucket, prefix)
