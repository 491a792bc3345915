"""Writing snapshots: when, and the steps. Without IO, like :mod:`txnformat.protocol.follow`.

A snapshot makes opening cheap; a log without any is complete. So every failure here leaves the log as it was,
and an object that no entry came to name is left to the vacuum.
"""

from __future__ import annotations

from txnformat import keys
from txnformat.clock import waited_ms
from txnformat.core.entry import sha256_hex
from txnformat.core.operations import Checkpoint
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot, state_digest
from txnformat.core.state import LogState
from txnformat.core.wire.document import encode_json
from txnformat.core.wire.small_documents import LatestDocument
from txnformat.errors import CorruptDataError, StorageError
from txnformat.protocol.effects import (
    CreateObject,
    DrawId,
    DrawUniform,
    PutObject,
    ReadClock,
    Sleep,
    Steps,
    Times,
)
from txnformat.protocol.reads import get_object, make_durable
from txnformat.protocol.view import View
from txnformat.store.base import CreateOutcome

__all__ = ["create_object", "snapshot_bound", "snapshot_due", "write_hint", "write_snapshot"]

TAIL_ENTRIES_MIN = 100
"""A tail of up to so many entries is never worth a snapshot."""
BYTES_PER_ENTRY = 64 * 1024
"""Bytes of a snapshot that cost an opener about as much as one more entry in the tail."""
OTHERS_PROBABILITY = 1 / 16
"""How likely a commit beyond twice the bound writes the snapshot that its author should have written."""
CREATE_PATIENCE_MS = 60_000
"""How long a metadata object that fails for now is tried again."""
CREATE_BACKOFF_MS = 100
CREATE_BACKOFF_MS_MAX = 5_000


def snapshot_bound(state: LogState) -> int:
    """Return K: the entries after the newest named snapshot (inclusive) that need no newer one."""
    size = state.checkpoints[-1].size if state.checkpoints else 0
    return max(TAIL_ENTRIES_MIN, size // BYTES_PER_ENTRY)


def snapshot_due(state: LogState, appended_by_us: bool, uniform: float) -> bool:
    """Return whether this process should write a snapshot of ``state``, the one right after an entry, now.

    The tail are the entries after the newest named snapshot, or after entry 0. The author of the entry that
    makes it longer than K writes the snapshot. Should that author die, others do once it is longer than 2 K,
    each with probability 1/16 per own commit: soon a process does, and rarely two at once. ``uniform`` is in
    [0, 1), drawn anew for every entry.
    """
    if not appended_by_us:
        return False
    tail = state.entry - (state.checkpoints[-1].entry if state.checkpoints else 0)
    bound = snapshot_bound(state)
    return tail == bound + 1 or (tail > 2 * bound and uniform < OTHERS_PROBABILITY)


def write_snapshot(view: View) -> Steps[Checkpoint]:
    """Write the view's state, read it back, and return the operation that names it.

    The operation is to be committed with :class:`~txnformat.core.intents.TakeCheckpoint`; only then does the
    snapshot count. Requests: 1 PUT, 1 GET. Raises as :func:`create_object`.
    """
    state = view.state
    data = encode_snapshot(state)
    uuid = yield DrawId()
    checkpoint = Checkpoint(
        state.entry, keys.snapshot_key(state.entry, uuid), len(data), sha256_hex(data), state_digest(state)
    )
    found = yield from create_object(checkpoint.key, data)
    # A process that opens the log from it must arrive at our own fold: decoding compares the digests.
    decode_snapshot(found, checkpoint, state.log_id)
    return checkpoint


def create_object(key: str, data: bytes) -> Steps[bytes]:
    """Create a metadata object under a fresh key, and return it as read back.

    A passing failure is tried again for a minute, with growing pauses; a lasting failure is not. Raises
    StorageError (refused, or failed for too long) and CorruptDataError (what was read back is not what was
    written).
    """
    begun: Times = yield ReadClock()
    wait_ms: float = CREATE_BACKOFF_MS
    while True:
        result = yield CreateObject(key, data)
        if result.outcome is CreateOutcome.REFUSED:
            raise result.error
        # "Exists" is our own earlier attempt, and "ambiguous" may have landed: the object itself says.
        error: StorageError | None = result.error
        found: bytes | None = None
        try:
            found = yield from get_object(key)
        except StorageError as failed:
            error = failed
        if found is not None and found != data:
            raise CorruptDataError(
                "an object that was just written reads back differently",
                object=key,
                expected=sha256_hex(data),
                got=sha256_hex(found),
            )
        if found is not None:
            if result.outcome is not CreateOutcome.CREATED:
                yield from make_durable(key)  # before an entry names it
            return found
        now: Times = yield ReadClock()
        left_ms = CREATE_PATIENCE_MS - waited_ms(begun, now)
        if (error is not None and not error.transient) or left_ms <= 0:
            break
        spread = yield DrawUniform()
        yield Sleep(min(wait_ms * (0.5 + spread / 2), left_ms))
        wait_ms = min(2 * wait_ms, CREATE_BACKOFF_MS_MAX)
    raise StorageError(
        "a metadata object could not be written",
        kind=None if error is None else error.kind,
        hint="the log is complete without it",
        object=key,
        cause=str(error),
    ) from error


def write_hint(checkpoint: Checkpoint) -> Steps[None]:
    """Tell openers where to begin: replace ``latest``.

    Call it once an entry names the checkpoint. Requests: 1 PUT.

    It is a hint: a lost or stale one costs an opener a listing, never correctness.
    """
    yield PutObject(
        keys.LATEST_KEY,
        encode_json(LatestDocument(checkpoint.entry, checkpoint.key, checkpoint.sha256)),
    )
