"""Creating one slot: ours, lost, gone (it was truncated), refused, or unknown. Steps without IO.

Stores and their clients repeat a conditional PUT after a lost answer and then report a conflict for the
caller's own success. So an attempt is exactly one request, every repeat sends the same bytes to the same key,
and whenever the answer is not a plain success the slot is read back: whichever bytes are there decide.
"Absent" is not "failed": a late PUT may still land.
"""

from __future__ import annotations

from dataclasses import dataclass

from txnformat import keys
from txnformat.clock import waited_ms
from txnformat.core.wire.entry_bytes import check_stored
from txnformat.errors import CorruptDataError, StorageError
from txnformat.protocol.effects import CreateObject, DrawUniform, ReadClock, Sleep, Steps, Times
from txnformat.protocol.reads import get_object, make_durable
from txnformat.segments.payload import head_of
from txnformat.store.base import CreateOutcome

__all__ = ["Gone", "Lost", "Ours", "Refused", "SlotOutcome", "Unknown", "create_slot"]

RESEND_BACKOFF_MS = 20
RESEND_BACKOFF_MS_MAX = 5_000


@dataclass(frozen=True, slots=True)
class Ours:
    """Our bytes are in the slot, durable."""

    sent: Times
    """Clocks just before the first attempt was sent."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Another process's bytes are in the slot."""

    data: bytes
    """The head."""
    round_trip_ms: int = 0
    """How long a request took: the shorter of the last create and the read after it, of which a suspension
    met one at most."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The slot was taken and is no longer there: it was truncated. Reload; never send blindly again."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Known not to have landed, and it never will: the store refuses writes."""

    error: StorageError


@dataclass(frozen=True, slots=True)
class Unknown:
    """It may or may not have landed, or may still; or it did, and what is in the slot now is damaged."""

    error: StorageError | CorruptDataError | None


SlotOutcome = Ours | Lost | Gone | Refused | Unknown


def create_slot(number: int, data: bytes, *, deadline_ms: int) -> Steps[SlotOutcome]:
    """Create entry ``number`` with ``data``; an unclear answer stays unclear ``deadline_ms`` after the first
    attempt.
    """
    key = keys.entry_key(number)
    sent: Times = yield ReadClock()
    begun, attempts = sent, 0
    while True:
        result = yield CreateObject(key, data)
        attempts += 1
        if result.outcome is CreateOutcome.CREATED:
            return Ours(sent)
        if result.outcome is CreateOutcome.REFUSED and attempts == 1:
            return Refused(result.error)
        if result.error is not None and not result.error.transient:
            # Not even reading back can settle it (an fsync that failed after the object became visible).
            return Unknown(result.error)
        answered: Times = yield ReadClock()
        try:
            found = yield from get_object(key)
            if found == data:
                # The attempt that landed may have ended before it was durable.
                yield from make_durable(key)
                return Ours(sent)
        except StorageError as error:
            return Unknown(error)
        now: Times = yield ReadClock()
        if found is not None:
            return _lost(key, found, max(0, min(waited_ms(begun, answered), waited_ms(answered, now))))
        if result.outcome is CreateOutcome.EXISTS:
            return Gone()
        if waited_ms(sent, now) >= deadline_ms:
            return Unknown(result.error)
        spread = yield DrawUniform()
        yield Sleep(
            min(RESEND_BACKOFF_MS * 2 ** min(attempts, 10), RESEND_BACKOFF_MS_MAX) * (0.5 + spread / 2)
        )
        begun = yield ReadClock()


def _lost(key: str, found: bytes, round_trip_ms: int) -> Lost | Unknown:
    """Return that the slot is lost, if the bytes in it are as they were written: damaged ones may have been
    ours.
    """
    try:
        check_stored(found, name=key)
    except CorruptDataError as error:
        return Unknown(error)
    return Lost(head_of(found), round_trip_ms)
