"""Logs that a Python worker has open: Spark reuses its driver-side workers, so the next call starts warm."""

from __future__ import annotations

import re
from pathlib import Path

from spark_datasource.storage import NO_STORAGE, Storage
from txnformat.errors import ConflictError, NotFoundError
from txnformat.keys import FORMAT_KEY
from txnformat.log import TxnLog
from txnformat.sealed import SidecarCache
from txnformat.store.base import ObjectStore

__all__ = ["COMMIT_TRIES_MAX", "absolute", "forget_log", "log_with_id", "open_log", "sidecars_of"]

COMMIT_TRIES_MAX = 3
"""How often one intent is handed in while nobody can tell whether it landed; each try has its own deadline."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")

_logs: dict[tuple[str, Storage], tuple[bytes, TxnLog]] = {}
"""By path and storage options: the bytes of format.json and the log. A worker runs one call at a time: no lock."""
_sidecars: dict[tuple[str, Storage], SidecarCache] = {}
"""By URL of the store and storage options: what one job may read is not given to another."""


def absolute(path: str) -> str:
    """Return ``path`` so that it means the same in every process; URLs stay as they are."""
    return path if _SCHEME.match(path) else str(Path(path).absolute())


def open_log(path: str, storage: Storage = NO_STORAGE) -> TxnLog:
    """Return the log at ``path`` (:func:`absolute`), followed to its tip.

    Requests: 2 GETs when it is open and nothing is new, one of them for format.json: a log that was removed and
    made again under the same path is another log.

    Raises
    ------
    NotFoundError
        Kind ``no-log``.
    """
    place = path, storage
    if place not in _logs:
        log = TxnLog.open(path, storage_options=storage.options())
        _logs[place] = (_format(log), log)
        return log
    known, log = _logs[place]
    try:
        if _format(log) == known:
            log.refresh()
            return log
    except NotFoundError:
        del _logs[place]
        raise
    del _logs[place]
    return open_log(path, storage)


def log_with_id(path: str, storage: Storage, log_id: str) -> TxnLog:
    """Return the log at ``path`` that has this id. Requests: none when it is open: it is as it was last seen.

    Whoever knows the id has looked at format.json just now.

    Raises
    ------
    NotFoundError
        Kind ``no-log``.
    ConflictError
        Kind ``log-replaced``: there is another one.
    """
    known = _logs.get((path, storage))
    log = known[1] if known is not None and known[1].log_id == log_id else open_log(path, storage)
    if log.log_id != log_id:
        raise ConflictError(
            "the log at the path is another one than when the write began",
            kind="log-replaced",
            hint="nothing was written",
            path=path,
            expected=log_id,
            got=log.log_id,
        )
    return log


def forget_log(path: str, storage: Storage) -> None:
    """Open the log at ``path`` anew the next time: its store may have failed for good, other than the place itself."""
    _logs.pop((path, storage), None)


def sidecars_of(store: ObjectStore, storage: Storage = NO_STORAGE) -> SidecarCache:
    """Return the sidecars that this worker has read from a log's store so far."""
    return _sidecars.setdefault((store.url, storage), SidecarCache(store))


def _format(log: TxnLog) -> bytes:
    data = log.store.get(FORMAT_KEY)
    if data is None:
        raise NotFoundError(
            "there is no log here any more", kind="no-log", hint="check the path", path=log.url
        )
    return data
