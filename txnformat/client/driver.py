"""Runs steps against a real store, clock and source of ids: the imperative shell, and nothing else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from txnformat.client.commit_counts import CommitCounter
from txnformat.client.entry_listing import list_after
from txnformat.clock import Clock, Ids
from txnformat.errors import StorageError
from txnformat.keys import LOG_PREFIX, parse_entry_key
from txnformat.protocol.effects import (
    CreateObject,
    DrawId,
    DrawUniform,
    Effect,
    GetObject,
    ListObjects,
    MakeDurable,
    PutObject,
    ReadClock,
    Simultaneous,
    Sleep,
    Steps,
    Times,
)
from txnformat.segments.payload import head_of, payload_of
from txnformat.spans import span
from txnformat.store.base import CreateOutcome, CreateResult, ObjectStore, make_durable
from txnformat.store.recent import recent_payloads
from txnformat.store.requests import RequestKind

__all__ = ["Driver"]

T = TypeVar("T")

REQUESTS_IN_FLIGHT_MAX = 16


class Driver:
    """Performs the effects of steps, one step at a time on the calling thread, and counts requests."""

    def __init__(
        self, store: ObjectStore, clock: Clock, ids: Ids, counter: CommitCounter | None = None
    ) -> None:
        self.store = store
        self.clock = clock
        self.ids = ids
        self._counter = counter or CommitCounter()
        self._recent = recent_payloads(store)

    def run(self, steps: Steps[T]) -> T:
        """Run ``steps`` to their end and return what they return; errors they raise pass through."""
        answer: Any = None
        failure: StorageError | None = None
        while True:
            try:
                effect = steps.throw(failure) if failure is not None else steps.send(answer)
            except StopIteration as end:
                value: T = end.value
                return value
            answer, failure = None, None
            try:
                answer = self._perform(effect)
            except StorageError as error:
                failure = error

    def _perform(self, effect: Effect) -> Any:
        match effect:
            case GetObject(key):
                self._counter.request(RequestKind.GET, key)
                data = self.store.get(key)
                self._keep(key, data)
                return data
            case CreateObject(key, data):
                self._counter.request(RequestKind.CREATE, key)
                return self._create(key, data)
            case PutObject(key, data):
                self._counter.request(RequestKind.PUT, key)
                return self.store.put(key, data)
            case ListObjects(prefix, start_after):
                self._counter.request(RequestKind.LIST, prefix)
                return list_after(self.store, prefix, start_after)
            case MakeDurable(keys):
                return make_durable(self.store, keys)
            case Simultaneous(requests):
                return self._simultaneous(requests)
            case Sleep(milliseconds):
                return self.clock.sleep(milliseconds / 1000)
            case ReadClock():
                now = self.clock.now()
                return Times(now.wall_ms, now.boot_ms, self.store.store_time_ms())
            case DrawId():
                return self.ids.new()
            case DrawUniform():
                return self.ids.uniform()

    def _create(self, key: str, data: bytes) -> CreateResult:
        if not key.startswith(LOG_PREFIX):
            return self._sent(key, data)
        with span("attempt", log=self.store.url, entry=parse_entry_key(key), size=len(data)) as one:
            result = self._sent(key, data)
            if one:
                one.set(outcome=result.outcome.value)
                if result.error is not None:
                    one.failed(result.error)
            return result

    def _sent(self, key: str, data: bytes) -> CreateResult:
        try:
            result = self.store.create(key, data)
        except StorageError as error:  # in place of an answer: it may have created the object
            return CreateResult(CreateOutcome.AMBIGUOUS, error)
        if result.outcome is CreateOutcome.CREATED:
            self._keep(key, data)
        return result

    def _keep(self, key: str, data: bytes | None) -> None:
        """Keep an entry for the readers of this process, and for its bundles."""
        number = parse_entry_key(key) if data is not None and key.startswith(LOG_PREFIX) else None
        if number is not None and data is not None:
            self._recent.keep(number, payload_of(data), head_of(data))

    def _simultaneous(self, requests: tuple[GetObject | ListObjects, ...]) -> list[Any]:
        def attempt(request: GetObject | ListObjects) -> Any:
            try:
                return self._perform(request)
            except StorageError as error:
                return error

        # Where a read is a system call, a thread costs more than the read.
        in_flight = min(len(requests), self.store.reads_in_flight, REQUESTS_IN_FLIGHT_MAX)
        if in_flight <= 1:
            return [attempt(request) for request in requests]
        with ThreadPoolExecutor(in_flight) as pool:
            try:
                return list(pool.map(attempt, requests))
            except RuntimeError:
                # No thread can be started: the interpreter shuts down, or the machine has no more. Reads may
                # be
                # repeated, so go without.
                pass
        return [attempt(request) for request in requests]
