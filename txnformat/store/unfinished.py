"""Uploads that were begun and never finished: what they left takes space, and no listing shows it."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import NamedTuple

from txnformat.keys import TEMPORARY_PREFIX
from txnformat.store.base import ObjectStore, asked
from txnformat.store.beneath import Tree, nothing_there
from txnformat.store.posix import storage_error

__all__ = ["UnfinishedUpload", "discard_upload", "temporary_files", "unfinished_uploads"]

DEPTH_MAX = 2
"""Directories below the root that files are uploaded to: _txnlog/log, <topic>/data …"""


class UnfinishedUpload(NamedTuple):
    """The remains of one upload in a store."""

    key: str
    """Key of the object that it was to become; on a local file system that of the temporary file."""
    upload_id: str
    """Id of a multipart upload; empty for a temporary file."""
    size: int
    """Bytes; 0 where the store does not say."""


def unfinished_uploads(store: ObjectStore, before_ms: int) -> Sequence[UnfinishedUpload]:
    """Return the uploads that had begun before a time of the store (of files: that were not written to
    since).

    None of a store that cannot tell.

    Requests: 1 LIST for each 1,000.
    """
    found: Sequence[UnfinishedUpload] | None = asked(store, "unfinished_uploads", before_ms)
    return () if found is None else found


def discard_upload(store: ObjectStore, upload: UnfinishedUpload) -> None:
    """Give back the space of an upload that :func:`unfinished_uploads` has shown; one that is gone is no
    error.

    Requests: 1.
    """
    asked(store, "discard_upload", upload)


def temporary_files(tree: Tree, root: str, before_ms: int) -> list[UnfinishedUpload]:
    """Return the temporary files of a local store that were not written to since a time, ms since the
    epoch.
    """
    found: list[UnfinishedUpload] = []
    waiting = [("", 0)]

    def look(entry: os.DirEntry[str]) -> None:
        with nothing_there():
            if entry.is_dir(follow_symlinks=tree.follow_symlinks):
                if depth < DEPTH_MAX:
                    waiting.append((f"{directory}{entry.name}/", depth + 1))
            elif entry.name.startswith(TEMPORARY_PREFIX):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and status.st_mtime_ns // 1_000_000 < before_ms:
                    found.append(UnfinishedUpload(directory + entry.name, "", status.st_size))

    while waiting:
        directory, depth = waiting.pop()
        path = f"{root}/{directory}".removesuffix("/")
        try:
            tree.scan(path, look)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise storage_error(error, "list", path) from error
    return sorted(found)
