"""Building one entry from the intents that wait: group commit's pure half.

Each intent is decided on the state after the one before it; a rejected one is left out, and what does not fit
into this entry waits for the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txnformat.core.decide import decide
from txnformat.core.entry import (
    ENTRY_BYTES_MAX,
    ITEMS_MAX,
    OPERATIONS_MAX,
    CommitEntry,
    encode_entry,
    listed,
    sha256_hex,
)
from txnformat.core.fold import At, apply_operation, finish_entry
from txnformat.core.intents import (
    EndTransaction,
    FreePartitions,
    Included,
    Intent,
    OpenProducer,
    Rejected,
    RemoveTopic,
    Verdict,
    Write,
)
from txnformat.core.operation_codec import encode_operation
from txnformat.core.operations import Append, EndTxn, GiveUp, Operation
from txnformat.core.state import LogState
from txnformat.core.wire.document import plain_json
from txnformat.errors import InvalidInputError, StorageError
from txnformat.keys import Place, embedded_key, own_key
from txnformat.persistent import replace
from txnformat.segments.payload import payload_record, with_payload
from txnformat.version import __version__

__all__ = ["CLOCK_SKEW_MS_MAX", "ENGINE", "Assembled", "assemble", "next_timestamp_ms"]

ENGINE = f"txnlog-py/{__version__}"

CLOCK_SKEW_MS_MAX = 30_000
"""How far a writer's clock may be from store time, and an entry's timestamp ahead of it."""

_GROUP_BYTES_MAX = ENTRY_BYTES_MAX // 2
"""Operations of a group are bounded by their plain JSON, well below the cap on the entry,"""
_GROUP_PAYLOAD_BYTES_MAX = 1024 * 1024
"""and their embedded files by this: each follower reads them, and a lost slot sends them again."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """An entry for the next slot, or none when no intent needs one."""

    verdicts: dict[str, Verdict]
    """Verdicts by intent id. An intent that is not here waits for the next entry."""
    entry: CommitEntry | None
    data: bytes
    """The entry's bytes, with its payload."""
    after: LogState
    """The state after the entry; the given one when there is none."""

    @property
    def sha256(self) -> str:
        """Hash of the entry's bytes."""
        return self.after.entry_sha256


def next_timestamp_ms(state: LogState, store_time_ms: int) -> int:
    """Return log time for the next entry: the store's time, but always above the entry before.

    Raises StorageError of kind ``log-time-ahead`` when the log's last timestamp is more than 30 s ahead of
    the store's time.
    """
    timestamp_ms = max(store_time_ms, state.timestamp_ms + 1)
    if timestamp_ms > store_time_ms + CLOCK_SKEW_MS_MAX:
        raise StorageError(
            "the log's time runs ahead of the store's time",
            kind="log-time-ahead",
            hint="a writer with a wrong clock wrote to this log; wait until time has caught up",
            log_time_ms=state.timestamp_ms,
            store_time_ms=store_time_ms,
        )
    return timestamp_ms


def assemble(state: LogState, intents: Sequence[Intent], *, store_time_ms: int, write_id: str) -> Assembled:
    """Decide waiting intents, in the order in which they came, and build the entry after ``state``;
    ``write_id`` is fresh for this attempt.
    """
    at = At(state.entry + 1, max(store_time_ms, state.timestamp_ms + 1))
    draft = state
    verdicts: dict[str, Verdict] = {}
    accepted: list[str] = []
    only_ends = True
    operations: list[Operation] = []
    opened: set[str] = set()
    touched: set[str] = set()
    payload = _Payload(at.entry)
    size = items = 0
    for intent in intents:
        if _must_wait(intent, opened, touched):
            continue
        verdict = decide(draft, intent)
        if isinstance(verdict, Included):
            cost = _size(verdict.operations) if len(intents) > 1 else 0
            more = sum(map(listed, verdict.operations))
            if operations and (
                size + cost > _GROUP_BYTES_MAX
                or payload.size + _payload_bytes(intent) > _GROUP_PAYLOAD_BYTES_MAX
                or items + more > ITEMS_MAX
                or len(operations) + len(verdict.operations) > OPERATIONS_MAX
            ):
                break
            size += cost
            items += more
            for op in verdict.operations:
                numbered = replace(op, intent=len(accepted)) if accepted else op  # decided as number 0
                if isinstance(numbered, Append) and isinstance(intent.action, Write):
                    numbered = payload.take(numbered, intent.action)
                draft = apply_operation(draft, numbered, at)
                operations.append(numbered)
            accepted.append(intent.intent_id)
            only_ends &= isinstance(intent.action, EndTransaction)
            _note(intent, opened, touched)
            if isinstance(
                intent.action, RemoveTopic | FreePartitions
            ):  # what it aborts may be opened in the next entry
                touched.update(
                    op.transactional_id for op in verdict.operations if isinstance(op, EndTxn | GiveUp)
                )
        verdicts[intent.intent_id] = verdict
    if not operations:
        return Assembled(verdicts, None, b"", state)
    entry = CommitEntry(
        entry=at.entry,
        log_id=state.log_id,
        write_id=write_id,
        previous=state.entry_sha256,
        # An entry that only ends transactions is not delayed by clock skew.
        timestamp_ms=at.timestamp_ms if only_ends else next_timestamp_ms(state, store_time_ms),
        engine=ENGINE,
        intents=tuple(accepted),
        operations=tuple(operations),
        payload=payload_record(payload.data),
    )
    try:
        head = encode_entry(entry)
    except InvalidInputError as error:
        # Only a lone intent can be too large: a group stops growing far below the cap.
        return Assembled({accepted[0]: Rejected(error)}, None, b"", state)
    # The draft has folded every operation already: folding the entry again would give the same.
    data = with_payload(head, payload.data)
    return Assembled(verdicts, entry, data, finish_entry(draft, entry, sha256_hex(head), at))


class _Payload:
    """The embedded files of one entry while it is built."""

    def __init__(self, entry: int) -> None:
        self._entry = entry
        self._parts: list[bytes] = []
        self.size = 0

    @property
    def data(self) -> bytes:
        """The bytes of the files."""
        return b"".join(self._parts)

    def take(self, op: Append, write: Write) -> Append:
        """Take in the embedded files of an append, which is of ``write``, and return it with their places in
        this entry.
        """
        if op.files[0].place is None:
            return op
        known = {
            file.key: data
            for append in write.appends
            for file, data in zip(append.files, append.payload, strict=False)
        }
        files = []
        for file in op.files:
            key = own_key(file.key)
            files.append(replace(file, key=embedded_key(key, Place(self._entry, self.size))))
            self._parts.append(known[key])
            self.size += file.size
        return replace(op, files=tuple(files))


def _payload_bytes(intent: Intent) -> int:
    return intent.action.payload_bytes if isinstance(intent.action, Write) else 0


def _size(operations: Sequence[Operation]) -> int:
    return sum(len(plain_json(encode_operation(op))) for op in operations)


def _producer_of(intent: Intent) -> str | None:
    if isinstance(intent.action, OpenProducer | EndTransaction):
        return intent.action.transactional_id
    if isinstance(intent.action, Write) and intent.action.producer is not None:
        return intent.action.producer.transactional_id
    return None


def _must_wait(intent: Intent, opened: set[str], touched: set[str]) -> bool:
    """Return whether the intent may not share the entry: an init never does with other steps of its id."""
    name = _producer_of(intent)
    if name is None:
        return False
    return name in opened or (isinstance(intent.action, OpenProducer) and name in touched)


def _note(intent: Intent, opened: set[str], touched: set[str]) -> None:
    name = _producer_of(intent)
    if name is not None:
        (opened if isinstance(intent.action, OpenProducer) else touched).add(name)
