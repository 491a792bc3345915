"""The stored bytes of a commit entry: canonical JSON that carries its own checksum, perhaps compressed. Pure.

The next entry's ``previous`` covers every entry but the newest, which nothing covers but itself. Section 4.1
of the specification says which bytes are checked, and how damage of the checksum itself differs from an entry
whose writer knows no checksum.
"""

from __future__ import annotations

import hashlib
from typing import NoReturn

import msgspec

from txnformat.core.wire.document import METADATA_BYTES_MAX, ZSTD_MAGIC, check_cost, decompressed, packed
from txnformat.errors import CorruptDataError
from txnformat.segments.payload import PayloadRecord, head_of, payload_problem

__all__ = [
    "FIELDS_WITHOUT_CHECKSUM",
    "RESTORE",
    "check_stored",
    "decode_stored",
    "encode_stored",
    "has_checksum",
]

FIELDS_WITHOUT_CHECKSUM = frozenset(
    ["format", "entry", "log_id", "write_id", "previous", "timestamp_ms", "engine", "intents", "operations"]
)
"""All top-level fields of an entry whose writer knows no checksum."""

RESTORE = "restore it from a copy; verify lists everything that is wrong"
"""The hint about an entry that is missing or damaged."""
_FIELD = b',"x_sha256":"'
_FIELD_BYTES = len(_FIELD) + 64 + len(b'"}')
"""The end of a document with a checksum."""

# A skippable frame of zstd (RFC 8878, 3.1.2): magic number, length of what follows, both little-endian.
_FRAME = bytes.fromhex("572a4d18") + (32).to_bytes(4, "little")
_FRAME_BYTES = len(_FRAME) + 32


def encode_stored(plain: bytes) -> bytes:
    """Return an entry as it is stored, from the canonical JSON of its document without a checksum."""
    body = plain[:-1]
    text = body + _FIELD + hashlib.sha256(body).hexdigest().encode() + b'"}'
    if len(text) > METADATA_BYTES_MAX:
        return text  # above every cap: no reader decompresses more
    data = packed(text)
    return data if data is text else data + _FRAME + hashlib.sha256(data).digest()


def has_checksum(data: bytes) -> bool:
    """Return whether an entry that can be decoded carries a checksum."""
    if data.startswith(ZSTD_MAGIC):
        return _is_framed(data)
    return _is_signed(data)


def decode_stored(data: bytes, *, name: str) -> bytes:
    """Return the plain JSON of the entry at key ``name``, once its checksum is right; nothing else of it is
    looked at.

    Raises CorruptDataError: kind ``wrong-checksum`` (not the bytes that were written, or a damaged checksum),
    or no JSON object.
    """
    stored = data
    is_framed = _is_framed(data)
    if is_framed:
        stored = data[:-_FRAME_BYTES]
        _compare(name, data[-32:].hex(), stored)
    text = decompressed(stored, name=name)
    is_signed = _is_signed(text)
    if is_signed:
        said = text[-_FIELD_BYTES + len(_FIELD) : -2].decode("ascii", "backslashreplace")
        _compare(name, said, memoryview(text)[:-_FIELD_BYTES])
    # Whichever layer damage has made unrecognisable, the other one, or the fields, tell that it was there.
    if is_framed != (is_signed and stored.startswith(ZSTD_MAGIC)):
        shown = [part for part, there in (("field", is_signed), ("frame", is_framed)) if there]
        _fail(name, "the checksum's field, and its frame if compressed, or neither", f"only the {shown[0]}")
    check_cost(text, len(stored), name=name)
    if not is_signed and (further := sorted(_top_level(text, name).keys() - FIELDS_WITHOUT_CHECKSUM)):
        _fail(name, "no further fields without a checksum", f"{', '.join(map(ascii, further)):.200}")
    return text


def check_stored(data: bytes, *, name: str) -> None:
    """Raise CorruptDataError unless the checksum of an entry is right, its head is a JSON object, and its
    payload the one that this names.
    """
    fields = _top_level(decode_stored(head_of(data), name=name), name)
    named = fields.get("payload")
    problem = payload_problem(None if named is None else _payload_named(named, name), data)
    if problem is not None:
        _fail(name, str(named and bytes(named)), problem, "the payload of a commit entry is damaged")


def _payload_named(value: msgspec.Raw, name: str) -> PayloadRecord:
    try:
        return msgspec.json.decode(value, type=PayloadRecord)
    except ValueError as error:
        raise CorruptDataError(
            "a commit entry does not say what its payload is",
            object=name,
            expected="size, sha256",
            got=str(error),
        ) from error


_TOP_LEVEL = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _top_level(text: bytes, name: str) -> dict[str, msgspec.Raw]:
    """Return the fields of an entry's document; their values are passed over."""
    try:
        return _TOP_LEVEL.decode(text)
    except (ValueError, RecursionError) as error:
        raise CorruptDataError(
            "a metadata object is not a JSON object", object=name, expected="object", got=str(error)
        ) from error


def _is_framed(data: bytes) -> bool:
    return data.startswith(_FRAME, max(0, len(data) - _FRAME_BYTES)) and len(data) > _FRAME_BYTES


def _is_signed(text: bytes) -> bool:
    return text.startswith(_FIELD, max(0, len(text) - _FIELD_BYTES)) and text.endswith(b'"}')


def _compare(name: str, said: str, data: bytes | memoryview) -> None:
    got = hashlib.sha256(data).hexdigest()
    if said != got:
        _fail(name, f"sha256 {said}", got, "a commit entry does not match its checksum")


def _fail(
    name: str, expected: str, got: str, what: str = "the checksum of a commit entry is damaged"
) -> NoReturn:
    raise CorruptDataError(what, kind="wrong-checksum", hint=RESTORE, object=name, expected=expected, got=got)
