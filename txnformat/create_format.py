"""Creating a log: its format.json."""

from __future__ import annotations

from txnformat import keys
from txnformat.clock import Ids
from txnformat.document import encode_json
from txnformat.entry import FORMAT_VERSION
from txnformat.errors import CorruptDataError, StorageError
from txnformat.store.base import CreateOutcome, ObjectStore
from txnformat.store.probe import require_fit

__all__ = ["create_format"]


def create_format(store: ObjectStore, ids: Ids) -> bool:
    """Create format.json; False when somebody else's is there."""
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
    data = encode_json({"format": FORMAT_VERSION, "log_id": ids.new()})
    answer = store.create(keys.FORMAT_KEY, data)
    if answer.outcome is CreateOutcome.CREATED:
        return True
    if answer.outcome is CreateOutcome.REFUSED and answer.error is not None:
        raise answer.error
    found = store.get(keys.FORMAT_KEY)
    if found is None:
        raise answer.error or StorageError("the log could not be created", transient=True, path=store.url)
    return found == data
