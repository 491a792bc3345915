"""Requests to S3: how often each is sent, how long a call goes on, and what an answer must have."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from txnformat.clock import Clock, Ids, waited_ms
from txnformat.errors import StorageError
from txnformat.store.remote.answers import Failure, RequestFailedError
from txnformat.store.remote.store import RemoteStore, Root
from txnformat.store.remote.store_time import StoreTime
from txnformat.store.s3.client import connection
from txnformat.store.s3.errors import REQUEST_ERRORS, failure_of
from txnformat.store.s3.options import S3Options, own_endpoint
from txnformat.store.s3.patience import Patience
from txnformat.store.secrets import hide_in

__all__ = ["S3Requests"]

ATTEMPTS_MAX = 6
"""Most attempts of a request that may be repeated, and of connecting for one that may not."""

CONTACT_MS = 4_000
"""How long to go on trying to reach an endpoint that never answered; from then on each request has one
attempt."""


class S3Requests(RemoteStore):
    """The part of a store in S3 that sends requests; streamed uploads need no more of it."""

    options: S3Options

    def _setup(self, root: Root, options: S3Options, clock: Clock | None, ids: Ids | None) -> None:
        super()._setup(root, options, clock, ids)
        self._time = StoreTime(self.clock)
        self._patience = Patience(self.clock, options.request_timeout_s)
        self._is_reached: bool | None = None  # False: not, after all attempts
        self._has_answered = False  # like S3

    def endpoint(self) -> str:
        """See :meth:`RemoteStore.endpoint`."""
        return self.options.endpoint_url or own_endpoint(os.environ) or "AWS"

    def request_once(self, operation: str, key: str | None, **arguments: Any) -> dict[str, Any]:
        """Send one request, once; only connecting for it is tried again. Raises RequestFailedError."""
        return self._attempts(operation, key, arguments, None, lambda failure: not failure.sent)

    def request(
        self, operation: str, key: str | None, *, bytes_max: int | None = None, **arguments: Any
    ) -> dict[str, Any]:
        """Send a request that may be repeated without harm. Raises RequestFailedError.

        An object in the answer may have ``bytes_max`` bytes (inclusive); it is read no further.
        """
        return self._attempts(operation, key, arguments, bytes_max, lambda _: True)

    def _attempts(
        self,
        operation: str,
        key: str | None,
        arguments: dict[str, Any],
        bytes_max: int | None,
        may_repeat: Callable[[Failure], bool],
    ) -> dict[str, Any]:
        call = (operation, key, *map(arguments.get, ("Range", "PartNumber", "Prefix")))
        begun = self._patience.begin(call)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                answer = self._send(operation, key, arguments, bytes_max, self._patience.left_s(begun))
            except RequestFailedError as error:
                failure = error.failure
                was_last = attempt == ATTEMPTS_MAX
                if failure.sent:
                    self._is_reached = True
                elif self._is_reached is None:
                    was_last |= waited_ms(begun, self.clock.now()) >= CONTACT_MS
                    self._is_reached = False if was_last else None
                # Callers repeat reads, too: where nothing ever answered, their attempts would multiply with
                # these.
                was_last |= self._is_reached is False
                # A store that answers too slowly gets no more time by being asked again.
                was_last |= self._patience.is_over(begun)
                if was_last or not failure.error.transient or not may_repeat(failure):
                    self._patience.failed(failure.error)
                    raise
            else:
                self._is_reached = True
                return answer
            self.pause(attempt)
        raise AssertionError  # the last attempt returns or raises

    def _send(
        self,
        operation: str,
        key: str | None,
        arguments: dict[str, Any],
        bytes_max: int | None,
        patience_s: float,
    ) -> dict[str, Any]:
        arguments = {"Bucket": self.root.container, **arguments}
        if key is not None:
            arguments["Key"] = self._full(key)
        arguments |= self.options.object_arguments(operation)
        if self.options.requester_pays:
            arguments["RequestPayer"] = "requester"
        sent = self._time.now()
        try:
            answer = connection(self.options).call(operation, arguments, bytes_max, patience_s)
        except StorageError as error:  # there was no connection to be made
            raise RequestFailedError(Failure(error, True, False)) from None
        except REQUEST_ERRORS as error:
            self._learn(sent, getattr(error, "response", None))
            where = self.url if key is None else f"{self.url}/{key}"
            failure = failure_of(error, operation, where, None if self._has_answered else self.endpoint())
            self._has_answered |= failure.status > 0
            hide_in(failure.error, self.options.mask)
            failure = failure._replace(code=self.options.mask(failure.code))
        else:
            self._learn(sent, answer)
            self._has_answered = True
            return answer
        # Raised out here, without the library's error as its context: a store may have put headers into that
        # one's text.
        raise RequestFailedError(failure)

    def _learn(self, sent: Any, answer: Any) -> None:
        headers = (answer or {}).get("ResponseMetadata", {}).get("HTTPHeaders", {})
        self._time.learn(sent, headers.get("date"))

    def _is_missing(self, failure: Failure) -> bool:
        # A 404 without a body (HEAD) does not say what is missing; the next request that is no HEAD does.
        return failure.status == 404 and failure.code != "NoSuchBucket"

    def field(self, answer: Mapping[str, Any], name: str) -> Any:
        """Return a field that an answer of the store must have."""
        found = answer.get(name)
        if found is None:
            raise self._lacking(name)
        return found

    def _size(self, answer: Mapping[str, Any], name: str) -> int:
        size = int(self.field(answer, name))
        if not 0 <= size < 2**63:
            raise self._lacking(name)
        return size

    def _lacking(self, name: str) -> StorageError:
        return self.bad_answer(
            "the store's answer lacks a required part",
            "try again; check the storage option endpoint_url if it stays so",
            missing=name,
        )

    def bad_answer(self, *what: str, **values: Any) -> StorageError:
        """See :meth:`RemoteStore.bad_answer`; with a note if the call's time is over."""
        return self._patience.failed(super().bad_answer(*what, **values))

    def _full(self, key: str) -> str:
        return f"{self.root.prefix}/{key}" if self.root.prefix else key
