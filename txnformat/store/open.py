"""From what a user writes to the store that serves it."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from txnformat.clock import Clock
from txnformat.errors import InvalidInputError, UnsupportedStoreError, repr_of
from txnformat.file_urls import file_path
from txnformat.forking import renewed
from txnformat.store.base import ObjectStore, asked
from txnformat.store.encrypted.key_client import KeySource, key_source
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.options import shown_name
from txnformat.store.secrets import masked

__all__ = [
    "LOCAL_OPTION",
    "REMOTE",
    "Location",
    "as_store",
    "check_store",
    "follows_symlinks",
    "is_remote",
    "open_store",
    "reopening",
]

LOCAL_OPTION = "follow_symlinks"
"""The storage option of local disks."""

Location = str | os.PathLike[str] | ObjectStore
"""Where a log is: a path, a URL, or a store that is open already."""

_OF_STORES = ("get", "get_range", "head", "create", "put", "list")
"""Methods that every store has, and no other object."""

# Hadoop writes one slash (file:/tmp/log, dbfs:/log), all others two.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
REMOTE: dict[str, str] = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **dict.fromkeys(("abfs", "abfss", "az"), "azure"),
    "gs": "gcs",
}
"""Kinds of remote stores by the scheme of a URL; a kind is also the extra that brings its client."""
_ADAPTERS = {
    "s3": ("txnformat.store.s3.store", "S3Store"),
    "azure": ("txnformat.store.cloud.azure", "AzureStore"),
    "gcs": ("txnformat.store.cloud.gcs", "GcsStore"),
}
"""Module and class. Imported on demand: local users do not need it."""

_memory_lock = renewed(globals(), "_memory_lock", threading.Lock)
_memory_stores: WeakValueDictionary[str, MemoryStore] = WeakValueDictionary()


_FUSE = re.compile(r"/+(Volumes|dbfs)(/|$)")


def open_store(
    location: str | Path,
    clock: Clock | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> ObjectStore:
    """Return the store at ``location``. No IO: whether anything is there shows at the first request.

    ``location``: a path (relative ones count from the current directory), ``file:///path``, ``file:/path``,
    ``s3://bucket/path`` (also ``s3a://`` and ``s3n://``), ``gs://bucket/path``,
    ``abfss://container@account.dfs.core.windows.net/path`` (also ``abfs://``), ``az://container/path``, or,
    for tests within one process, ``memory://name``: the same store for the same name while anything holds it.
    ``clock``: where the store's time comes from, for a store without a clock of its own; else the own time.
    ``storage_options``: credentials, endpoint, … of a remote store; of a local disk ``follow_symlinks``; of
    an encrypted log ``key_client`` (docs/storage.md). Raises UnsupportedStoreError: no adapter for this
    scheme; InvalidInputError: no location at all, or an unknown or unfit storage option.
    """
    if not isinstance(location, str | Path):
        raise no_location(location)
    check_options(storage_options)
    text = str(location)
    _check_no_mount(text)
    source, storage_options = key_source(storage_options or {})
    store = _open_plain(location, text, clock, storage_options)
    return store if source is None else _encrypted(store, source)


def _encrypted(store: ObjectStore, source: KeySource) -> ObjectStore:
    try:
        module = import_module("txnformat.store.encrypted.store")
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("cryptography"):
            raise
        raise UnsupportedStoreError(
            "an encrypted log needs a package that is not installed: cryptography",
            hint="pip install 'txnlog[encryption]' for the Python that runs this; for Spark on its "
            "executors, too",
        ) from None
    found: ObjectStore = module.EncryptedStore(store, source)
    return found


def _open_plain(
    location: str | Path, text: str, clock: Clock | None, storage_options: Mapping[str, str]
) -> ObjectStore:
    match = None if isinstance(location, Path) else _SCHEME.match(text)
    scheme = "file" if match is None else match[1].lower()
    if scheme in REMOTE:
        return _remote_store(scheme, text, clock, storage_options)
    if scheme == "file":
        follow = follows_symlinks(storage_options)
        return _local_store(_file_path(text) if match else text, clock, follow)
    if match is not None and scheme == "memory":
        if storage_options:
            raise _no_option(storage_options, scheme)
        return _memory_store(text[match.end() :].lstrip("/"), clock)
    raise UnsupportedStoreError(
        f"there is no adapter for {scheme}://",
        hint=_OTHER_NAMES.get(
            scheme,
            "use s3://bucket/path, gs://bucket/path, abfss://container@account.dfs.core.windows.net/path, "
            "az://container/path, a path on a local disk or file:///path",
        ),
        scheme=scheme,
    )


_OTHER_NAMES = {
    **dict.fromkeys(
        ("wasb", "wasbs", "azure", "adl"), "write it as abfss://container@account.dfs.core.windows.net/path"
    ),
    "gcs": "write it as gs://bucket/path",
}
"""Hints about the schemes of other tools for stores that have an adapter."""


def _remote_store(
    scheme: str, text: str, clock: Clock | None, options: Mapping[str, str] | None
) -> ObjectStore:
    extra = REMOTE[scheme]
    module, name = _ADAPTERS[extra]
    try:
        if extra != "s3":
            import_module("obstore")
        adapter = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("txnformat"):
            raise
        raise UnsupportedStoreError(
            f"{scheme}:// needs a package that is not installed: {error.name.partition('.')[0]}",
            hint=f"pip install 'txnlog[{extra}]' for the Python that runs this; for Spark on its "
            "executors, too",
            scheme=scheme,
        ) from None
    store: ObjectStore = getattr(adapter, name)(text, options, clock)
    return store


def is_remote(location: str) -> bool:
    """Return whether a location is in a remote store: one with credentials and an endpoint."""
    return location.partition("://")[0].lower() in REMOTE


def _check_no_mount(text: str) -> None:
    """Refuse the mounts of Databricks: their FUSE file systems cannot take a name exactly once."""
    path = text[len("file:") :].removeprefix("//") if text.lower().startswith("file:") else text
    mount = _FUSE.match(path)
    if mount or text.lower().startswith("dbfs:"):
        raise UnsupportedStoreError(
            f"{'/' + mount[1] if mount else 'dbfs:/'} is a mount without hard links, so that a name "
            "cannot be taken "
            "exactly once",
            hint=_behind(path, mount),
            scheme="dbfs" if mount is None else "file",
        )


def _behind(path: str, mount: re.Match[str] | None) -> str:
    """Return how to find the URI of the cloud behind a mount, by the names in its path."""
    parts = [part for part in path[mount.end() :].split("/") if part] if mount else []
    if mount and mount[1] == "Volumes" and len(parts) >= 3:
        name, rest = ".".join(f"`{part}`" for part in parts[:3]), "/".join(parts[3:])
        told = f"DESCRIBE VOLUME {name} shows it as storage_location" + (f"; add /{rest}" if rest else "")
    elif mount and mount[1] == "Volumes":
        told = "DESCRIBE VOLUME shows it as storage_location"
    else:
        told = "dbutils.fs.mounts() or DESCRIBE EXTERNAL LOCATION show it"
    return (
        "use the cloud URI behind it: s3://bucket/path, gs://bucket/path or "
        f"abfss://container@account.dfs.core.windows.net/path; {told}"
    )


def _file_path(text: str) -> str:
    try:
        return file_path(text)
    except ValueError as error:
        raise InvalidInputError(
            str(error),
            kind="invalid-location",
            hint="write three slashes before an absolute path: file:///data/log",
            location=masked(text),
        ) from None


def follows_symlinks(options: Mapping[str, str]) -> bool:
    """Return whether symbolic links beneath a local root are followed: what the storage options of local
    disks say.

    Raises InvalidInputError of kind ``invalid-storage-option`` about an option that local disks do not have,
    or a value that is none.
    """
    check_options(options)
    unknown = [name for name in options if name.lower() != LOCAL_OPTION]
    if unknown:
        raise _no_option(unknown, "file")
    texts: list[Any] = list(options.values())
    values = {str(value).strip().lower() if isinstance(value, str | bool) else "" for value in texts}
    if len(values) > 1 or not values <= {"true", "false"}:
        raise InvalidInputError(
            f"storage option {LOCAL_OPTION} must be true or false", kind="invalid-storage-option"
        )
    return values == {"true"}


def _no_option(names: Iterable[str], scheme: str) -> InvalidInputError:
    others = f"; local disks have {LOCAL_OPTION}" if scheme == "file" else ""
    return InvalidInputError(
        [f"there is no storage option {shown_name(name)} of {scheme}://" for name in names],
        kind="invalid-storage-option",
        hint=f"these storage options are for s3://, gs://, abfss:// and az://{others}",
    )


def _local_store(path: str, clock: Clock | None, follow_symlinks: bool) -> LocalStore:
    if not path or "\0" in path or not _is_file_name(path):
        raise InvalidInputError(
            f"{path!r} is not a location",
            kind="invalid-location",
            hint="name a directory, such as /data/log or file:///data/log",
        )
    return LocalStore(path, clock, follow_symlinks=follow_symlinks)


def _is_file_name(path: str) -> bool:
    """Return whether the file system can have such a name: bytes that are no UTF-8 do, half a surrogate pair
    does not.
    """
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def _memory_store(name: str, clock: Clock | None) -> MemoryStore:
    with _memory_lock:
        store = _memory_stores.get(name)
        if store is None:
            store = _memory_stores[name] = MemoryStore(clock, name)
        return store


def as_store(location: Location, options: Mapping[str, str] | None) -> ObjectStore:
    """Return the store at a location, which may be a store."""
    if isinstance(location, str | os.PathLike):
        return open_store(os.fspath(location), storage_options=options)
    check_store(location)
    if options:
        raise InvalidInputError(
            "a store that is open already takes no storage options", kind="invalid-storage-option"
        )
    return location


def check_store(value: Any) -> None:
    """Refuse what is neither a store nor a way to name one."""
    if isinstance(value, type) or not all(callable(getattr(value, name, None)) for name in _OF_STORES):
        raise no_location(value)


def check_options(options: Any) -> None:
    """Refuse storage options that are no mapping with names; nothing of them is shown, since they may be
    secrets.
    """
    hint = 'pass them as in storage_options={"region": "eu-west-1"}'
    if options is not None and not isinstance(options, Mapping):
        what = f"storage_options is {type(options).__name__:.60}, not a mapping of text to text"
        raise InvalidInputError(what, kind="invalid-storage-option", hint=hint)
    odd = [name for name in options or () if not isinstance(name, str)]
    if odd:
        problems = [f"storage_options has {type(name).__name__:.60} as a name; use text" for name in odd[:20]]
        raise InvalidInputError(problems, kind="invalid-storage-option", hint=hint)


def no_location(value: object) -> InvalidInputError:
    """Return the error about what is no location."""
    return InvalidInputError(
        f"{masked(repr_of(value))} is not a location",
        kind="invalid-location",
        hint="name a directory, such as /data/log, or a URL, such as s3://bucket/path",
    )


def reopening(store: ObjectStore) -> Callable[[], ObjectStore] | None:
    """Return what opens the same store in another process, and can be pickled; it may hold credentials.

    None for a store that is part of this process: in memory, wrapped, or with a clock or system calls of its
    own.
    """
    found: Callable[[], ObjectStore] | None = asked(store, "reopening")
    return found
