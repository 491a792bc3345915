"""Logs that a Python worker has open: Spark reuses its driver-side workers, so the next call starts warm."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar

from spark_datasource.options.storage import NO_STORAGE, Storage
from txnformat.core.entry import sha256_hex
from txnformat.core.intents import AppRef
from txnformat.core.state import LogState
from txnformat.core.wire.small_documents import decode_format
from txnformat.errors import ConflictError, CorruptDataError, StaleAppVersionError
from txnformat.keys import BOUNDARY_PREFIX, FORMAT_KEY, entry_key, parse_boundary_key
from txnformat.log import TxnLog
from txnformat.reading.sealed import SidecarCache
from txnformat.segments.payload import head_of
from txnformat.store.base import ObjectStore

__all__ = [
    "COMMIT_TRIES_MAX",
    "LOGS_MAX",
    "absolute",
    "check_planned",
    "check_same",
    "forget_log",
    "has_entry",
    "held_entry",
    "is_truncated",
    "log_with_id",
    "open_log",
    "sidecars_of",
]

COMMIT_TRIES_MAX = 3
"""How often one intent is handed in while its outcome is unknown; each try has its own deadline."""

T = TypeVar("T")

LOGS_MAX = 16
"""Logs that a worker keeps open: a job with new credentials every hour opens another one each time."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")

_logs: dict[tuple[str, Storage], TxnLog] = {}
"""Logs by path and storage options, the last used at the end. A worker runs one call at a time: no lock."""
_sidecars: dict[tuple[str, Storage], SidecarCache] = {}
"""Caches by URL of the store and storage options, the last used at the end: sidecars that one job may read
are not given to another."""


def absolute(path: str) -> str:
    """Return ``path`` so that it means the same in every process; URLs stay as they are."""
    return path if _SCHEME.match(path) else str(Path(path).absolute())


def open_log(path: str, storage: Storage = NO_STORAGE, *, newest: bool = True) -> TxnLog:
    """Return the log at ``path`` (:func:`absolute`), followed to its tip; unless ``newest``, nearly: where
    entries come by the hundred, it may be up to 99 behind.

    Requests: 2 GETs when it is open and nothing is new, one of them for the entry that was seen last: a log
    that was removed and made again under the same path, or restored to an older state, is another log. Raises
    NotFoundError of kind ``no-log``.
    """
    log, is_new = _opened(path, storage)
    if not is_new:
        log.refresh() if newest else log.committer.refresh_roughly()
    return log


def log_with_id(path: str, storage: Storage, log_id: str, born: int) -> TxnLog:
    """Return the log at ``path`` if it is the one that a write was planned on; errors as :func:`open_log`,
    :func:`check_planned`.

    Requests: 1 GET when it is open and was followed as far as the plan; then it is as it was last seen. Where
    others commit, too, those of a look instead, for an attempt would lose its slot.
    """
    log, _ = _opened(path, storage, looks=True)
    if log.state.entry < born:
        log.refresh()
    check_planned(log, log_id, born)
    return log


def check_planned(log: TxnLog, log_id: str, born: int) -> None:
    """Check that a log is the one that a write was planned on: else the files of its tasks may be gone.

    ``log``: followed at least as far as the plan, if it goes that far. ``born``: entry that had been folded
    when the write was planned. Raises ConflictError of kind ``log-replaced``: it is another one, or was
    restored to an older state.
    """
    check_same(
        log.state,
        log.url,
        log_id,
        born or -1,
        "the log at this path was replaced, or restored to an older state, after the write began",
        hint="nothing was written",
        born=born,
    )


def check_same(
    state: LogState,
    url: str,
    log_id: str,
    entry: int,
    what: str,
    *,
    hint: str,
    kind: str = "log-replaced",
    **values: object,
) -> None:
    """Raise ConflictError ``what`` unless a log has this id and entry; :func:`has_entry` also finds restored
    logs.
    """
    if state.log_id != log_id or state.entry < entry:
        raise ConflictError(
            what,
            kind=kind,
            hint=hint,
            path=url,
            expected=log_id,
            got=state.log_id,
            **values,
            entry=state.entry,
        )


def has_entry(store: ObjectStore, entry: int, sha256: str) -> bool | None:
    """Return whether an entry (-1: format.json) is unchanged, and so its history; None: it is gone.

    Requests: 1 GET; if it is another one also 1 LIST.

    In a slot below the boundary, which was deleted, a writer that slept may have left another entry: that
    says nothing of the log.
    """
    data = store.get(FORMAT_KEY if entry < 0 else entry_key(entry))
    if data is None:
        return None
    if sha256_hex(head_of(data)) == sha256:
        return True
    return None if entry >= 0 and _is_below_boundary(store, entry) else False


def is_truncated(store: ObjectStore, log_id: str, entry: int) -> bool:
    """Return whether the log is still the one with this id, and an entry that is gone may have been deleted
    by a truncation.

    Requests: 1 GET, 1 LIST.
    """
    data = store.get(FORMAT_KEY)
    return data is not None and decode_format(data).log_id == log_id and _is_below_boundary(store, entry)


def _is_below_boundary(store: ObjectStore, entry: int) -> bool:
    boundaries = (parse_boundary_key(info.key) for info in store.list(BOUNDARY_PREFIX))
    return any(one is not None and entry < one for one in boundaries)


def held_entry(state: LogState, app: AppRef | None, later: str, *, hint: str) -> int | None:
    """Return the entry that holds an application's version; None when it is still to be written.

    Raises StaleAppVersionError, saying ``later``: the log holds a later version.
    """
    known = None if app is None else state.app_versions.get(app.key)
    if app is None or known is None or known.version < app.version:
        return None
    if known.version > app.version:
        raise StaleAppVersionError(
            later, hint=hint, app_id=app.app_id, version=app.version, newest=known.version
        )
    return known.entry


def forget_log(path: str, storage: Storage) -> None:
    """Open the log at ``path`` anew the next time: its store may have failed for good, other than the place
    itself.
    """
    _logs.pop((path, storage), None)


def sidecars_of(store: ObjectStore, storage: Storage = NO_STORAGE) -> SidecarCache:
    """Return the sidecars that this worker has read from a log's store so far."""
    return _last_used(_sidecars, (store.url, storage), SidecarCache(store))


def _opened(path: str, storage: Storage, *, looks: bool = False) -> tuple[TxnLog, bool]:
    """Return the log, and whether it was opened just now.

    ``looks``: it is to be followed where others commit. Requests: 1 GET when it was open before.
    """
    place = path, storage
    log = _logs.pop(place, None)
    # Else what is written next would be an entry of another log, or of another history.
    is_new = log is None or not ((looks and _goes_on(log)) or _is_unchanged(log))
    if log is None or is_new:
        log = TxnLog.open(path, storage_options=storage.options())
    return _last_used(_logs, place, log), is_new


def _is_unchanged(log: TxnLog) -> bool:
    return bool(has_entry(log.store, log.state.entry, log.state.entry_sha256))


def _goes_on(log: TxnLog) -> bool:
    """Follow the log where others commit, and return whether an entry was found that goes on from the last
    one that was seen.
    """
    if not log.committer.expects_others():
        return False
    before = log.state.entry
    try:
        return log.refresh().entry > before
    except CorruptDataError:
        return False  # perhaps it is another log: opened anew, it is judged by itself


def _last_used(kept: dict[tuple[str, Storage], T], place: tuple[str, Storage], new: T) -> T:
    """Return what is kept of a place, or else what is new, and keep it longer than the rest."""
    kept[place] = kept.pop(place, new)
    if len(kept) > LOGS_MAX:
        del kept[next(iter(kept))]
    return kept[place]
