"""How many bytes an object of each class of key may have: a store stops reading there. Pure.

A larger object, of any writer, is refused before it is in memory. Objects that an entry names have their size
there, and are asked for with it.
"""

from __future__ import annotations

from txnformat import keys

__all__ = [
    "ABOUT_KEYS",
    "BUNDLE_BYTES_MAX",
    "CONDEMNED_BYTES_MAX",
    "ENTRY_BYTES_MAX",
    "METADATA_BYTES_MAX",
    "NOT_AUTHENTIC",
    "OTHER_BYTES_MAX",
    "SMALL_BYTES_MAX",
    "SNAPSHOT_BYTES_MAX",
    "TOO_LARGE",
    "bytes_max",
    "is_hint",
]

ENTRY_BYTES_MAX = 8 * 1024 * 1024
"""Largest commit entry as stored."""
BUNDLE_BYTES_MAX = 16 * 1024 * 1024
"""Largest bundle: entries that are larger together are read one by one."""
METADATA_BYTES_MAX = 256 * 1024 * 1024
"""Largest decompressed metadata object: more is refused before it fills the memory."""
SMALL_BYTES_MAX = 64 * 1024
"""Largest of the documents that have some hundred bytes: format.json, ``latest``, a block of producer ids."""
CONDEMNED_BYTES_MAX = 1024 * 1024
"""Largest list of condemned objects."""
SNAPSHOT_BYTES_MAX = 2 * METADATA_BYTES_MAX
"""Largest snapshot: its columns and its JSON."""
OTHER_BYTES_MAX = 1024 * 1024 * 1024
"""Largest object of every other class that is asked for without its size. Readers of segment files take
ranges of them."""

TOO_LARGE = "object-too-large"
"""Kind of the error about an object that has more."""
ABOUT_KEYS = frozenset({"log-not-encrypted", "key-refused", "key-missing", "key-client-failed"})
"""Kinds of errors about the keys of an encrypted log: nothing of it can be read."""
NOT_AUTHENTIC = "object-not-authentic"
"""Kind of the error about an object of an encrypted log that does not open."""

_SMALL = (keys.FORMAT_KEY, keys.LATEST_KEY, keys.BOUNDARY_PREFIX, keys.PROBE_PREFIX, keys.KEYS_PREFIX)
_BUNDLES = (keys.BUNDLE_PREFIX, keys.PAYLOAD_PREFIX)
_HINTS = (keys.LATEST_KEY, *_BUNDLES, keys.SNAPSHOT_PREFIX)
_SIDECARS = (".index", ".markers", ".txnindex")


def bytes_max(key: str) -> int:
    """Return how many bytes the object called ``key`` may have at most (inclusive)."""
    if key.startswith(keys.LOG_PREFIX):  # by far the most
        return ENTRY_BYTES_MAX
    if key.startswith(_SMALL):
        return SMALL_BYTES_MAX
    if key.startswith(_BUNDLES):
        return BUNDLE_BYTES_MAX
    if key.startswith(keys.SNAPSHOT_PREFIX):
        return SNAPSHOT_BYTES_MAX
    if key.startswith(keys.CONDEMNED_PREFIX):
        return CONDEMNED_BYTES_MAX
    if key.startswith(keys.TABLE_PREFIX) or key.endswith(_SIDECARS):
        return METADATA_BYTES_MAX
    return OTHER_BYTES_MAX


def is_hint(key: str) -> bool:
    """Return whether a log can be read without this object: one that is of no use is passed over."""
    return key.startswith(_HINTS)
