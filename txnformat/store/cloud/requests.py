"""Requests to a cloud by obstore, and what an answer must have."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from txnformat.clock import waited_ms
from txnformat.errors import StorageError
from txnformat.store.cloud.client import LARGE_BYTES, client_for
from txnformat.store.cloud.errors import failure_of, is_missing
from txnformat.store.remote.answers import Failure, RequestFailedError, Words
from txnformat.store.remote.store import RemoteStore
from txnformat.store.secrets import hide_in

__all__ = ["CloudRequests"]

Answer = TypeVar("Answer")


class CloudRequests(RemoteStore):
    """The part of a store in a cloud that sends requests; streamed uploads need no more of it."""

    words: ClassVar[Words]

    @abstractmethod
    def make_client(self, client: Any, retry: Any) -> Any:
        """Return a client of obstore with these settings."""

    def request(
        self,
        doing: str,
        key: str,
        send: Callable[[Any, Any], Answer],
        *,
        size: int = 0,
        repeats: bool = True,
        writes: bool = False,
    ) -> Answer:
        """Return what ``send``, given the module obstore and a client, returns. Raises RequestFailedError.

        ``size``: bytes that go either way, at most. ``repeats``: whether the request may be sent again.
        ``writes``: whether it makes an object.
        """
        import obstore
        from obstore.exceptions import BaseError

        begun = self.clock.now()
        try:
            root = self.root, self.endpoint()
            client = client_for(
                root,
                self.options,
                self.make_client,
                repeats=repeats,
                is_large=size > LARGE_BYTES,
                writes=writes,
            )
            return send(obstore, client)
        except StorageError:
            raise
        except (BaseError, OSError, ValueError) as error:
            failure = failure_of(
                error, doing, f"{self.url}/{key}", self.words, expired=self.options.has_expired(begun.wall_ms)
            )
        hide_in(failure.error, self.options.mask)
        if waited_ms(begun, self.clock.now()) >= self.options.request_timeout_s * 1000:
            failure.error.patience_over = True
        # Raised out here, without the library's error as its context: that one's text may hold what must not
        # show.
        raise RequestFailedError(failure)

    def _is_missing(self, failure: Failure) -> bool:
        return is_missing(failure)

    def _size(self, meta: Mapping[str, Any]) -> int:
        size = int(meta["size"])
        if not 0 <= size < 2**63:
            raise self.bad_answer("the store's answer lacks a required part", "try again", missing="size")
        return size

    def _read(self, doing: str, key: str, send: Callable[[Any, Any], Answer], size: int = 0) -> Answer:
        """Return what :meth:`request` does; an answer that broke off in its body, which obstore does not ask
        for again, is asked for once more.
        """
        try:
            return self.request(doing, key, send, size=size)
        except RequestFailedError as error:
            if error.failure.error.kind != "connection-lost" or error.failure.error.patience_over:
                raise
        return self.request(doing, key, send, size=size)
