"""An object store behind obstore: what Azure Blob Storage and Google Cloud Storage have in common, which is
nearly all.

``create`` is one PUT with the condition, sent once: the outcome that it reports is the outcome of that
request, never of a repeat that met its own success. Reads, listings, deletions and plain PUTs may be repeated
without harm, and are, by obstore.

See the specification, section "Stores".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from txnformat.clock import Clock, Ids, waited_ms
from txnformat.errors import NotFoundError, StorageError
from txnformat.store.base import CreateOutcome, CreateResult, ObjectInfo, check_range, too_large
from txnformat.store.cloud.errors import name_is_taken
from txnformat.store.cloud.requests import CloudRequests
from txnformat.store.cloud.store_time import AskedTime
from txnformat.store.cloud.upload import CloudWriter
from txnformat.store.object_sizes import bytes_max as object_bytes_max
from txnformat.store.remote.answers import RequestFailedError
from txnformat.store.remote.store import LISTED_KEYS_MAX, Root
from txnformat.store.uploads import Writer

__all__ = ["CloudStore"]

ATTEMPTS_MAX = 5
"""Most attempts to connect for a request that may be sent only once."""
LIST_CHUNK_KEYS = 1_000


class CloudStore(CloudRequests):
    """Objects below a prefix of a container; safe for many threads and many processes, but not across a fork.

    See :class:`~txnformat.store.remote.store.RemoteStore`.
    """

    lists_by_scanning: ClassVar[bool]
    """See :func:`~txnformat.store.base.lists_by_scanning`."""

    def _setup(self, root: Root, options: Any, clock: Clock | None, ids: Ids | None) -> None:
        super()._setup(root, options, clock, ids)
        self._time: AskedTime | None = None

    def store_time_ms(self) -> int:
        """Return the store's time, ms since the epoch, by the Date header of its endpoint.

        Requests: 1 HEAD a minute at most.
        """
        if self._time is None:
            self._time = AskedTime(
                self.clock, self.endpoint(), self.options.verify, self.options.connect_timeout_s
            )
        return self._time.now_ms()

    def get(self, key: str, bytes_max: int | None = None) -> bytes | None:
        most = object_bytes_max(key) if bytes_max is None else bytes_max

        def read(obstore: Any, client: Any) -> bytes:
            found = obstore.get(client, key)
            size = self._size(found.meta)
            if size > most:
                raise too_large(self.url, key, most, size)
            return bytes(found.bytes())

        try:
            return self._read("get", key, read, size=most)
        except RequestFailedError as error:
            self._check_missing(error)
            return None

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(self.url, key, start, length, 2**63)
        if length == 0:
            self._check_range(key, start, length)
            return b""

        def read(obstore: Any, client: Any) -> bytes | int:
            found = obstore.get(client, key, options={"range": (start, start + length)})
            if tuple(found.range) != (start, start + length):
                return self._size(found.meta)
            return bytes(found.bytes())

        try:
            data = self._read("get range", key, read, size=length)
        except RequestFailedError as error:
            if error.failure.status == 416:
                self._check_range(key, start, length)
                raise self.bad_answer(
                    "the store refuses a range that its object has", key=key, expected=length
                ) from None
            self._check_missing(error)
            raise NotFoundError("no such object", store=self.url, key=key) from None
        if isinstance(data, bytes) and len(data) == length:
            return data
        size = data if isinstance(data, int) else len(data)
        check_range(self.url, key, start, length, size)
        raise self._other_length(key, length)

    def head(self, key: str) -> ObjectInfo | None:
        found = self._meta(key)
        return None if found is None else ObjectInfo(key, self._size(found))

    def created_ms(self, key: str) -> int | None:
        """See :func:`~txnformat.store.base.created_ms`."""
        found = self._meta(key)
        return None if found is None else int(found["last_modified"].timestamp() * 1000)

    def _meta(self, key: str) -> Mapping[str, Any] | None:
        try:
            found: Mapping[str, Any] = self.request(
                "head", key, lambda obstore, client: obstore.head(client, key)
            )
        except RequestFailedError as error:
            self._check_missing(error)
            return None
        return found

    def create(self, key: str, data: bytes) -> CreateResult:
        def send(obstore: Any, client: Any) -> Any:
            return obstore.put(client, key, data, mode="create", use_multipart=False)

        begun = self.clock.now()
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                answer = self.request("create", key, send, size=len(data), repeats=False, writes=True)
            except RequestFailedError as error:
                failure = error.failure
                if name_is_taken(failure):
                    return CreateResult(CreateOutcome.EXISTS)
                # A request that never left this machine may be sent again: only connecting is repeated here.
                over = waited_ms(begun, self.clock.now()) >= self.options.request_timeout_s * 1000
                if failure.refused and failure.error.kind == "permission-denied" and self._is_taken(key):
                    return CreateResult(CreateOutcome.EXISTS)
                if failure.sent or not failure.error.transient or over or attempt == ATTEMPTS_MAX:
                    outcome = CreateOutcome.REFUSED if failure.refused else CreateOutcome.AMBIGUOUS
                    return CreateResult(outcome, failure.error)
            else:
                if not answer.get("e_tag"):  # a success that does not look like one
                    return CreateResult(CreateOutcome.AMBIGUOUS, self.bad_answer(key=key))
                return CreateResult(CreateOutcome.CREATED)
            self.pause(attempt)
        raise AssertionError  # the last attempt returns

    def _is_taken(self, key: str) -> bool:
        """Return whether a create was refused because the name is taken: of a client that may create and not
        replace, a store asks for rights before it looks at the condition.
        """
        try:
            return self.head(key) is not None
        except StorageError:
            return False

    def put(self, key: str, data: bytes) -> None:
        def send(obstore: Any, client: Any) -> Any:
            return obstore.put(client, key, data, mode="overwrite", use_multipart=False)

        try:
            self.request("put", key, send, size=len(data), writes=True)
        except RequestFailedError as error:
            raise error.failure.error from None

    def open_write(self, key: str) -> Writer:
        """Start a streamed upload: one conditional PUT if it stays small, parts otherwise."""
        return CloudWriter(self, key)

    def list(self, prefix: str, start_after: str | None = None) -> Sequence[ObjectInfo]:
        """Return the objects under ``prefix`` after ``start_after`` (exclusive).

        Requests: 1 per page of the store.

        obstore lists directories. For a prefix that ends within a name it lists what is directly in the
        directory, and what lies below the names that fit.
        """
        directory, _, rest = prefix.rpartition("/")
        found: list[ObjectInfo] = []

        def add(items: Sequence[Mapping[str, Any]]) -> None:
            for item in items:
                key = item["path"]
                if key.startswith(prefix) and (start_after is None or key.encode() > start_after.encode()):
                    found.append(ObjectInfo(key, self._size(item)))
            if len(found) > LISTED_KEYS_MAX:
                raise self._endless(len(found))

        def below(obstore: Any, client: Any, where: str | None) -> None:
            for chunk in obstore.list(client, where, offset=start_after, chunk_size=LIST_CHUNK_KEYS):
                add(chunk)

        def walk(obstore: Any, client: Any) -> None:
            found.clear()
            if not rest:
                below(obstore, client, directory or None)
                return
            here = obstore.list_with_delimiter(client, directory or None)
            add(here["objects"])
            for name in here["common_prefixes"]:
                if f"{name}/".startswith(prefix):
                    below(obstore, client, name)

        try:
            self._read("list", prefix, walk)
        except RequestFailedError as error:
            raise error.failure.error from None
        found.sort(key=lambda info: info.key.encode())
        return found

    def delete(self, key: str) -> None:
        """Delete the object; a missing one is no error. Where the store keeps versions, its versions stay."""
        try:
            self.request("delete", key, lambda obstore, client: obstore.delete(client, key))
        except RequestFailedError as error:
            self._check_missing(error)
