"""``format.json``, the hint ``latest`` and a vacuum's lists of condemned objects, each declared once.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

from msgspec import Meta, Struct

from txnformat.core.wire.document import decompressed, encode_json, plain_text
from txnformat.core.wire.typed import Typed, check_version, fail
from txnformat.errors import CorruptDataError, UnsupportedFeatureError
from txnformat.field_types import Count, LogTime, Positive, Text
from txnformat.keys import FORMAT_KEY, LATEST_KEY, named_after, parse_condemned_key, parse_probe_key
from txnformat.store.encrypted.documents import ENCRYPTED_FORMAT

__all__ = [
    "CONDEMNED_KEYS_MAX",
    "LOG_ENCRYPTED",
    "BoundaryDocument",
    "CondemnedDocument",
    "FormatDocument",
    "FormatVersion",
    "LatestDocument",
    "decode_condemned",
    "decode_format",
    "decode_latest",
    "decode_version",
    "encode_condemned",
]

LOG_ENCRYPTED = "log-encrypted"
"""Kind of the error about an encrypted log without a key."""
CONDEMNED_KEYS_MAX = 10_000
"""Objects in one list."""
CONDEMNED_PLAIN_BYTES_MAX = 4 * 1024 * 1024
"""JSON of one list: a key has at most about 330 bytes."""


class FormatDocument(Struct, frozen=True):
    """The document that makes a root a log."""

    format: Positive
    log_id: Text


class LatestDocument(Struct, frozen=True):
    """Where an opener may begin: the newest snapshot."""

    entry: Count
    key: Text
    sha256: Text | None = None


class CondemnedDocument(Struct, frozen=True):
    """Objects that the state after an entry does not name, and that no entry can name any more."""

    format: Positive
    log_id: Text
    entry: Count
    timestamp_ms: LogTime
    """The store's time when the list was written."""
    keys: Annotated[
        tuple[Text, ...],
        Meta(min_length=1, max_length=CONDEMNED_KEYS_MAX, description=f"1 to {CONDEMNED_KEYS_MAX} keys"),
    ]
    """Ascending."""


class BoundaryDocument(Struct, frozen=True):
    """The content of a boundary, for people: its key says everything that readers need."""

    format: Positive
    log_id: Text


class FormatVersion(Struct, frozen=True):
    """The field that every document has; those of a later version may have other fields besides."""

    format: Positive


_VERSION, _FORMAT, _LATEST, _CONDEMNED = (
    Typed[FormatVersion](FormatVersion),
    Typed[FormatDocument](FormatDocument),
    Typed[LatestDocument](LatestDocument),
    Typed[CondemnedDocument](CondemnedDocument),
)


def decode_version(data: bytes) -> int:
    """Return the version that ``format.json`` says; a later one may have other fields.

    Raises UnsupportedFeatureError of kind ``log-encrypted`` about that of an encrypted log: a store that has
    its key shows another one.
    """
    found = _VERSION.decode(plain_text(data, name=FORMAT_KEY), name=FORMAT_KEY).format
    if found == ENCRYPTED_FORMAT:
        raise UnsupportedFeatureError(
            "the log is encrypted, and no key was given",
            kind="log-encrypted",
            hint="give the storage option key_client that the log was made with",
            object=FORMAT_KEY,
        )
    return found


def decode_format(data: bytes) -> FormatDocument:
    """Return what ``format.json`` says, checked."""
    return _FORMAT.decode(plain_text(data, name=FORMAT_KEY), name=FORMAT_KEY)


def decode_latest(data: bytes) -> LatestDocument:
    """Return what ``latest`` says, checked; its key may be of anything."""
    return _LATEST.decode(plain_text(data, name=LATEST_KEY), name=LATEST_KEY)


def encode_condemned(log_id: str, entry: int, timestamp_ms: int, keys: Sequence[str]) -> bytes:
    """Return the bytes of a list of condemned objects; at most CONDEMNED_KEYS_MAX, ascending."""
    return encode_json(CondemnedDocument(1, log_id, entry, timestamp_ms, tuple(keys)))


def decode_condemned(data: bytes, key: str, log_id: str) -> CondemnedDocument:
    """Return what a list of condemned objects of a log says, checked.

    Raises CorruptDataError, UnsupportedFeatureError.
    """
    text = decompressed(data, name=key, bytes_max=CONDEMNED_PLAIN_BYTES_MAX)
    check_version("a list of condemned objects", 1, _VERSION.decode(text, name=key).format, name=key)
    found = _CONDEMNED.decode(text, name=key)
    name = parse_condemned_key(key)
    for field, expected, got in (
        ("log_id", log_id, found.log_id),
        ("entry", None if name is None else name.born, found.entry),
    ):
        if expected != got:
            fail(key, field, str(expected), got)
    for one, other in pairwise(("", *found.keys)):
        if other <= one:
            fail(key, "keys", "keys in ascending order", other)
        if named_after(other) is None and parse_probe_key(other) is None:
            raise CorruptDataError(
                "an object key is not one that a txnlog writer makes",
                kind="invalid-key",
                hint="do not vacuum this log before its origin is clear",
                where=key,
                key=repr(other),
            )
    return found
