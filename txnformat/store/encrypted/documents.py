"""``format.json`` of an encrypted log, and the objects of its key ring, each declared once. Pure."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from txnformat.field_types import Name, Positive, Text
from txnformat.keys import KEYS_PREFIX

__all__ = [
    "ENCRYPTED_FORMAT",
    "EncryptedFormat",
    "EncryptionRecord",
    "RingDocument",
    "WrappedRecord",
    "decode_format",
    "decode_ring",
    "encode",
    "parse_ring_key",
    "plain_format",
    "ring_key",
]

ENCRYPTED_FORMAT = 2
"""The format that ``format.json`` of an encrypted log says: versions before encryption refuse it."""

CIPHER = "aes-256-gcm"

_RING_KEY = re.compile(rf"{KEYS_PREFIX}([0-9]{{10}})-([0-9]{{10}})\.json")


class WrappedRecord(Struct, frozen=True):
    """A data key, wrapped by a master key."""

    check: Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z", description="32 hex digits")]
    """A text that tells the data key from others."""
    generation: Annotated[int, Meta(ge=1, le=2**32 - 1)]
    master_key: Name
    """The master key, as the key client calls it."""
    wrapped: Annotated[bytes, Meta(min_length=1, max_length=16 * 1024)]
    """The key client's answer; base64 in the document."""


class EncryptionRecord(Struct, frozen=True):
    """How a log is encrypted."""

    cipher: Text
    key: WrappedRecord
    """The log's first data key."""


class EncryptedFormat(Struct, frozen=True):
    """``format.json`` of an encrypted log."""

    encryption: EncryptionRecord
    format: Positive
    log_id: Text


class RingDocument(Struct, frozen=True):
    """A further data key of a log, or one of its data keys wrapped by another master key."""

    format: Positive
    key: WrappedRecord
    log_id: Text
    proof: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z", description="64 hex digits")]
    """Only the first data key makes it, of the rest and of the number of the wrapping."""


class _PlainFormat(Struct, frozen=True):
    format: Positive
    log_id: Text


_ENCODER = msgspec.json.Encoder(order="sorted")
_PLAIN, _FORMAT, _RING = (
    msgspec.json.Decoder(_PlainFormat),
    msgspec.json.Decoder(EncryptedFormat),
    msgspec.json.Decoder(RingDocument),
)


def encode(document: Struct) -> bytes:
    """Return canonical JSON."""
    return _ENCODER.encode(document)


def plain_format(log_id: str) -> bytes:
    """Return ``format.json`` as the callers of an encrypted store see it: that of a log without encryption,
    which the chain of entries begins with.
    """
    return _ENCODER.encode(_PlainFormat(1, log_id))


def decode_format(data: bytes) -> tuple[int, str, EncryptedFormat | None]:
    """Return the format and the log's id that ``format.json`` says, and of an encrypted log all of it.

    Raises ValueError.
    """
    found = _PLAIN.decode(data)
    if found.format != ENCRYPTED_FORMAT:
        return found.format, found.log_id, None
    whole = _FORMAT.decode(data)
    if whole.encryption.cipher != CIPHER or whole.encryption.key.generation != 1:
        raise ValueError("the cipher or the first key is not one that this version knows")
    return found.format, found.log_id, whole


def decode_ring(data: bytes) -> RingDocument:
    """Return an object of the key ring. Raises ValueError."""
    return _RING.decode(data)


def ring_key(generation: int, wrapping: int) -> str:
    """Return the key of an object of the key ring: a data key, as it is wrapped for the nth time (from 0)."""
    return f"{KEYS_PREFIX}{generation:010d}-{wrapping:010d}.json"


def parse_ring_key(key: str) -> tuple[int, int] | None:
    """Return generation and wrapping that a key names; None of another key."""
    match = _RING_KEY.fullmatch(key)
    return None if match is None else (int(match[1]), int(match[2]))
