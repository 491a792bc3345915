"""Creating a log: its format.json, and its first entry when that says something of its own."""

from __future__ import annotations

from dataclasses import replace

from txnformat import keys
from txnformat.client.committer import Committer
from txnformat.clock import Ids
from txnformat.core.entry import FORMAT_VERSION
from txnformat.core.state import EMBEDDING
from txnformat.core.transactions.state import DEFERRED_TIMEOUT_MS_MAX
from txnformat.core.wire.document import encode_json
from txnformat.core.wire.small_documents import FormatDocument
from txnformat.errors import ConflictError, CorruptDataError, InvalidInputError, StorageError, repr_of
from txnformat.protocol.commit import writable
from txnformat.store.base import CreateOutcome, ObjectStore
from txnformat.store.probe import require_fit

__all__ = ["begin_log", "check_max_timeout", "create_format"]


def create_format(store: ObjectStore, ids: Ids) -> bool:
    """Create format.json; False when another one is there."""
    # A log that has lost its format.json must not get another: its entries would never chain to that. Asked
    # twice, because another creator may have written format.json and the first entry in between.
    missing = store.head(keys.FORMAT_KEY) is None
    if missing and store.list(keys.LOG_PREFIX) and store.head(keys.FORMAT_KEY) is None:
        raise CorruptDataError(
            "there are commit entries, but the log's format.json is missing",
            kind="format-missing",
            hint="restore it from a copy; nothing was written",
            object=keys.FORMAT_KEY,
            path=store.url,
        )
    require_fit(store, ids)
    data = encode_json(FormatDocument(FORMAT_VERSION, ids.new()))
    answer = store.create(keys.FORMAT_KEY, data)
    if answer.outcome is CreateOutcome.CREATED:
        return True
    if answer.outcome is CreateOutcome.REFUSED and answer.error is not None:
        raise answer.error
    found = store.get(keys.FORMAT_KEY)
    if found is None:
        raise answer.error or StorageError("the log could not be created", transient=True, path=store.url)
    return found == data


def check_max_timeout(longest_ms: int) -> None:
    """Raise InvalidInputError unless a log can allow its producers this timeout."""
    if type(longest_ms) is not int or not 1 <= longest_ms <= DEFERRED_TIMEOUT_MS_MAX:
        raise InvalidInputError(
            f"max_transaction_timeout_ms is {repr_of(longest_ms)}, not a whole number from 1 to "
            f"{DEFERRED_TIMEOUT_MS_MAX}",
            kind="invalid-transaction-timeout",
            hint="give milliseconds; 900000, a quarter of an hour, by default",
        )


def begin_log(
    committer: Committer, max_transaction_timeout_ms: int | None, *, embedding: bool | None
) -> None:
    """Write the first entry of a log that was just created.

    ``embedding`` None: as the settings say. Requests: 1 entry.

    Raises ConflictError of kind ``log-exists`` when another process has written it, and it differs.
    """
    longest_ms = max_transaction_timeout_ms
    if longest_ms is None:
        longest_ms = committer.settings.max_transaction_timeout_ms
    embeds = committer.settings.embedding if embedding is None else embedding
    settings = replace(committer.settings, max_transaction_timeout_ms=longest_ms, embedding=embeds)
    state = committer.run(lambda view: writable(view, settings))
    other_timeout = longest_ms not in (None, state.max_transaction_timeout_ms)
    if other_timeout or embedding not in (None, EMBEDDING in state.features.reader):
        raise ConflictError(
            "another process has written the log's first entry, and it differs",
            kind="log-exists",
            hint="open it with TxnLog.open",
            path=committer.store.url,
            max_transaction_timeout_ms=state.max_transaction_timeout_ms,
            embedding=EMBEDDING in state.features.reader,
        )
