"""One step at a time, by hand: drives steps of the protocol over a dictionary, with every answer in the
test's power.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from txnformat import keys
from txnformat.core.assemble import Assembled, assemble
from txnformat.core.entry import sha256_hex
from txnformat.core.fold import apply
from txnformat.core.intents import Intent
from txnformat.core.state import LogState
from txnformat.core.wire.document import encode_json
from txnformat.errors import StorageError
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
from txnformat.protocol.follow import empty_state
from txnformat.protocol.view import View
from txnformat.store.base import CreateOutcome, CreateResult

__all__ = ["Hand"]

T = TypeVar("T")

LOG_ID = "00000000-0000-4000-8000-00000000beef"


class Hand:
    """A store, clocks and draws that do what the test says.

    ``before`` is called with every effect before it is performed: it may change the store, the clocks, or
    raise a StorageError. ``creates`` are answers to the next creates; one that is None lets the create
    happen.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {keys.FORMAT_KEY: encode_json({"format": 1, "log_id": LOG_ID})}
        self.effects: list[Effect] = []
        self.wall_ms = 1_000_000
        self.boot_ms: int | None = 5_000
        self.store_offset_ms = 0
        self.uniform = 0.5
        self.creates: list[CreateResult | None] = []
        self.before: Callable[[Effect], None] = lambda effect: None
        self._ids = itertools.count(1)

    def run(self, steps: Steps[T]) -> T:
        """Run steps to their end and return what they return."""
        answer: Any = None
        failure: StorageError | None = None
        while True:
            try:
                effect = steps.throw(failure) if failure is not None else steps.send(answer)
            except StopIteration as end:
                value: T = end.value
                return value
            self.effects.append(effect)
            answer, failure = None, None
            try:
                answer = self._perform(effect)
            except StorageError as error:
                failure = error

    def pass_time(self, milliseconds: int) -> None:
        """Let all clocks advance."""
        self.wall_ms += milliseconds
        if self.boot_ms is not None:
            self.boot_ms += milliseconds

    def new_id(self) -> str:
        """Return the next of a series of uuids."""
        return f"{next(self._ids):08x}-0000-4000-8000-000000000000"

    def requests(self) -> list[Effect]:
        """Return the effects so far that are round trips to the store; a Simultaneous is one."""
        kinds = GetObject | CreateObject | PutObject | ListObjects | Simultaneous
        return [effect for effect in self.effects if isinstance(effect, kinds)]

    def empty(self) -> LogState:
        """Return the state before entry 0."""
        return empty_state(self.objects[keys.FORMAT_KEY])

    def entry(self, state: LogState, *intents: Intent) -> tuple[Assembled, LogState]:
        """Return the entry that commits ``intents`` after ``state``, and the state after it; nothing is
        stored.
        """
        made = assemble(state, intents, store_time_ms=self.wall_ms, write_id=self.new_id())
        assert made.entry is not None, made.verdicts
        return made, apply(state, made.entry, sha256_hex(made.data))

    def others_commit(self, state: LogState, *intents: Intent) -> LogState:
        """Store the entry with which another client commits ``intents`` after ``state``; returns the state
        after it.
        """
        made, after = self.entry(state, *intents)
        self.objects[keys.entry_key(after.entry)] = made.data
        return after

    def view(self, state: LogState) -> View:
        """Return a view that was proven just now."""
        return View(state, self._times())

    def made_durable(self) -> list[str]:
        """Return the keys of what others made and these steps made durable, in order."""
        return [key for effect in self.effects if isinstance(effect, MakeDurable) for key in effect.keys]

    def slots_created(self) -> list[int | None]:
        """Return the slots that entries were sent to, in order."""
        return [
            keys.parse_entry_key(effect.key) for effect in self.effects if isinstance(effect, CreateObject)
        ]

    def sleeps(self) -> Sequence[float]:
        """Return the waits, in milliseconds."""
        return [effect.milliseconds for effect in self.effects if isinstance(effect, Sleep)]

    def _times(self) -> Times:
        return Times(self.wall_ms, self.boot_ms, self.wall_ms + self.store_offset_ms)

    def _perform(self, effect: Effect) -> Any:
        self.before(effect)
        match effect:
            case GetObject(key):
                return self.objects.get(key)
            case CreateObject(key, data):
                return self._create(key, data)
            case PutObject(key, data):
                self.objects[key] = data
                return None
            case ListObjects(prefix, start_after):
                return sorted(
                    key for key in self.objects if key.startswith(prefix) and key > (start_after or "")
                )
            case MakeDurable():
                return None
            case Simultaneous(requests):
                return [self._attempt(request) for request in requests]
            case Sleep(milliseconds):
                return self.pass_time(round(milliseconds))
            case ReadClock():
                return self._times()
            case DrawId():
                return self.new_id()
            case DrawUniform():
                return self.uniform

    def _attempt(self, request: GetObject | ListObjects) -> Any:
        try:
            return self._perform(request)
        except StorageError as error:
            return error

    def _create(self, key: str, data: bytes) -> CreateResult:
        planned = self.creates.pop(0) if self.creates else None
        if planned is not None:
            return planned
        if key in self.objects:
            return CreateResult(CreateOutcome.EXISTS)
        self.objects[key] = data
        return CreateResult(CreateOutcome.CREATED)
