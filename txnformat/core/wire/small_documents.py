"""``format.json`` and the hint ``latest``, each declared once. Pure."""

from __future__ import annotations

from msgspec import Struct

from txnformat.core.wire.document import plain_text
from txnformat.core.wire.typed import Typed
from txnformat.field_types import Count, Positive, Text
from txnformat.keys import FORMAT_KEY, LATEST_KEY

__all__ = [
    "FormatDocument",
    "FormatVersion",
    "LatestDocument",
    "decode_format",
    "decode_latest",
    "decode_version",
]


class FormatDocument(Struct, frozen=True):
    """What makes a root a log."""

    format: Positive
    log_id: Text


class LatestDocument(Struct, frozen=True):
    """Where an opener may begin: the newest snapshot."""

    entry: Count
    key: Text
    sha256: Text | None = None


class FormatVersion(Struct, frozen=True):
    """The field that every document has; those of a later version may have other fields besides."""

    format: Positive


_VERSION, _FORMAT, _LATEST = (
    Typed[FormatVersion](FormatVersion),
    Typed[FormatDocument](FormatDocument),
    Typed[LatestDocument](LatestDocument),
)


def decode_version(data: bytes) -> int:
    """Return the version that ``format.json`` says; a later one may have other fields."""
    return _VERSION.decode(plain_text(data, name=FORMAT_KEY), name=FORMAT_KEY).format


def decode_format(data: bytes) -> FormatDocument:
    """Return what ``format.json`` says, checked."""
    return _FORMAT.decode(plain_text(data, name=FORMAT_KEY), name=FORMAT_KEY)


def decode_latest(data: bytes) -> LatestDocument:
    """Return what ``latest`` says, checked; its key may be of anything."""
    return _LATEST.decode(plain_text(data, name=LATEST_KEY), name=LATEST_KEY)
