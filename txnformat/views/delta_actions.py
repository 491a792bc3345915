"""The actions of a Delta log, declared, and a version as lines of JSON. Pure.

Names of fields are those of Delta's protocol. Actions and fields that txnlog does not write are ignored when
a version is read: :mod:`~txnformat.views.delta_table` refuses versions that others have written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from txnformat.errors import CorruptDataError
from txnformat.version import __version__

__all__ = [
    "ENGINE",
    "ENTRY_PROPERTY",
    "READ_ONLY",
    "Add",
    "CommitInfo",
    "Format",
    "Line",
    "Metadata",
    "Protocol",
    "Remove",
    "Txn",
    "corrupt_view",
    "decode_version",
    "encode_version",
    "is_ours",
]

READ_ONLY = "txnlog.readOnly"
"""A writer feature that no engine has: so none of them writes to the table."""
ENTRY_PROPERTY = "txnlog.entry"
"""Property of a table: the entry that it shows."""
_ENGINE_NAME = "txnlog/"
ENGINE = f"{_ENGINE_NAME}{__version__}"


class Protocol(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The abilities that a table asks of its readers and writers."""

    minReaderVersion: int  # Delta's name
    minWriterVersion: int
    readerFeatures: tuple[str, ...] | None = None
    writerFeatures: tuple[str, ...] | None = None


class Format(Struct, frozen=True):
    """The format of a table's files."""

    provider: str = "parquet"
    options: Mapping[str, str] = msgspec.field(default_factory=dict)


class Metadata(Struct, frozen=True, kw_only=True):
    """The schema and the properties of a table."""

    id: str
    """The topic's id."""
    name: str | None = None
    description: str | None = None
    format: Format
    schemaString: str
    partitionColumns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = msgspec.field(default_factory=dict)
    createdTime: int | None = None


class Add(Struct, frozen=True, kw_only=True):
    """A file that the table has from a version on."""

    path: str
    """Relative to the topic's directory."""
    partitionValues: Mapping[str, str | None] = msgspec.field(default_factory=dict)
    size: int
    modificationTime: int
    dataChange: bool
    stats: str | None = None
    """JSON: records, and bounds of columns."""


class Remove(Struct, frozen=True, kw_only=True):
    """A file that the table no longer has: readers of older versions may still use it."""

    path: str
    deletionTimestamp: int | None = None
    dataChange: bool
    extendedFileMetadata: bool | None = None
    partitionValues: Mapping[str, str | None] | None = None
    size: int | None = None


class Txn(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far an application has come: the topic's id, and the entry that the table shows."""

    appId: str
    version: int
    lastUpdated: int | None = None


class CommitInfo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The writer of a version, and its reason: for people and for checks, not for readers of the table."""

    timestamp: int | None = None
    operation: str | None = None
    operationParameters: Mapping[str, Any] = msgspec.field(default_factory=dict)
    engineInfo: str | None = None
    entry: int | None = msgspec.field(default=None, name=ENTRY_PROPERTY)


class Line(Struct, frozen=True, omit_defaults=True):
    """A line of a version: one of its members is there."""

    commitInfo: CommitInfo | None = None
    protocol: Protocol | None = None
    metaData: Metadata | None = None
    txn: Txn | None = None
    remove: Remove | None = None
    add: Add | None = None


_ENCODER, _DECODER = msgspec.json.Encoder(), msgspec.json.Decoder(Line)


def encode_version(lines: Iterable[Line]) -> bytes:
    """Return the bytes of a version: a line of JSON for each action."""
    return _ENCODER.encode_lines(lines)


def decode_version(data: bytes, key: str) -> list[Line]:
    """Return the actions of a version. Raises CorruptDataError of kind ``corrupt-view``."""
    try:
        return _DECODER.decode_lines(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise corrupt_view(key, str(error)) from None


def corrupt_view(key: str, got: str) -> CorruptDataError:
    """Return the error about an object of a view that cannot be what txnlog wrote."""
    return CorruptDataError(
        "an object of a published view cannot be decoded",
        kind="corrupt-view",
        hint="the log itself is not affected; publish with rebuild=True (--rebuild) to rebuild the whole "
        "table",
        object=key,
        got=got,
    )


def is_ours(lines: Iterable[Line]) -> bool:
    """Return whether txnlog wrote a version."""
    infos = [line.commitInfo for line in lines if line.commitInfo is not None]
    return len(infos) == 1 and (infos[0].engineInfo or "").startswith(_ENGINE_NAME)
