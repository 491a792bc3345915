"""The bytes of documents: canonical JSON, perhaps compressed, bounded before it is decoded
(:mod:`txnformat.core.wire.typed`).
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import msgspec
import pyarrow as pa

from txnformat.errors import CorruptDataError, InvalidInputError, repr_of
from txnformat.store.object_sizes import METADATA_BYTES_MAX, SMALL_BYTES_MAX

__all__ = [
    "METADATA_BYTES_MAX",
    "OBJECT_BYTES_MIN",
    "PARSED_BYTES_PER_BYTE",
    "SMALL_BYTES_MAX",
    "UNCOUNTED_BYTES_MAX",
    "ZSTD_MAGIC",
    "check_cost",
    "check_text",
    "decompressed",
    "encode_json",
    "packed",
    "parsed_bytes",
    "plain_bytes_max",
    "plain_chunks",
    "plain_json",
    "plain_text",
]


PLAIN_BYTES_PER_BYTE = 32
"""Most plain JSON of a document for each byte of the object that holds it; an object below 1 MiB counts as 1
MiB."""
PARSED_BYTES_PER_BYTE = 224
"""The same of memory once it is parsed, by :func:`parsed_bytes`."""
OBJECT_BYTES_MIN = 1024 * 1024
UNCOUNTED_BYTES_MAX = 4 * 1024 * 1024
"""Up to here plain JSON is parsed without an estimate: it takes thirty times its size at most."""

CHUNK = 1_000
"""Members of a list that :func:`plain_chunks` makes at once."""

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
COMPRESS_BYTES_MIN = 16 * 1024
"""Smaller documents stay plain JSON: easy to look at, and compression would not save a request."""


def _plain(value: object) -> object:
    """Return a text or a number of a class of its own, such as numpy's str_, as what it is."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"{value!r:.80} has no form in JSON")


_CANONICAL = msgspec.json.Encoder(order="sorted", enc_hook=_plain)


def encode_json(value: object) -> bytes:
    """Return canonical JSON (sorted keys, no spaces, UTF-8), compressed with zstd above a size."""
    return packed(plain_json(value))


def plain_json(value: object) -> bytes:
    """Return canonical JSON as it is before it is compressed."""
    return _CANONICAL.encode(value)


def plain_chunks(value: msgspec.Struct) -> Iterator[bytes]:
    """Yield :func:`plain_json` in pieces: the members of each long tuple by the thousand."""
    long = {
        name: found
        for name in value.__struct_fields__
        if isinstance(found := getattr(value, name), tuple) and len(found) > CHUNK
    }
    marks = {name: (f"\0{name}",) for name in long}
    rest = plain_json(msgspec.structs.replace(value, **marks))
    for name in sorted(long):
        before, _, rest = rest.partition(b"[" + plain_json(marks[name][0]) + b"]")
        yield before + b"["
        for start in range(0, len(long[name]), CHUNK):
            yield (b"," if start else b"") + plain_json(long[name][start : start + CHUNK])[1:-1]
        yield b"]"
    yield rest


def packed(data: bytes) -> bytes:
    """Return canonical JSON as it is stored."""
    if len(data) < COMPRESS_BYTES_MIN:
        return data
    compressed: bytes = pa.Codec("zstd", compression_level=3).compress(data, asbytes=True)
    return compressed


def plain_bytes_max(stored: int) -> int:
    """Return how many bytes of plain JSON an object of ``stored`` bytes may hold (inclusive)."""
    return min(PLAIN_BYTES_PER_BYTE * max(stored, OBJECT_BYTES_MIN), METADATA_BYTES_MAX)


def parsed_bytes(text: bytes) -> int:
    """Return an upper bound of the memory that JSON takes when it is parsed, by the number of its values;
    parses nothing.
    """
    return 2 * len(text) + 200 * text.count(b"{") + 64 * text.count(b"[") + 60 * text.count(b",")


def check_cost(text: bytes, stored: int, *, name: str) -> None:
    """Raise CorruptDataError about plain JSON of an object of ``stored`` bytes that no reader parses.

    Kind ``metadata-too-large``. Writers ask the same before they write.
    """
    if len(text) <= UNCOUNTED_BYTES_MAX:
        return
    most = plain_bytes_max(stored)
    if len(text) > most:
        raise _too_large(name, "when decompressed", most, len(text))
    most, cost = PARSED_BYTES_PER_BYTE * max(stored, OBJECT_BYTES_MIN), parsed_bytes(text)
    if cost > most:
        raise _too_large(name, "when parsed", most, cost)


def _too_large(name: str, when: str, expected: int, got: int | None) -> CorruptDataError:
    return CorruptDataError(
        f"a metadata object is too large {when}".rstrip(),
        kind="metadata-too-large",
        object=name,
        expected=f"at most {expected} bytes",
        got=f"more than {expected} bytes" if got is None else f"{got} bytes",
    )


def decompressed(data: bytes, *, name: str, bytes_max: int | None = None) -> bytes:
    """Return ``data``, decompressed if its first bytes say zstd.

    ``bytes_max`` may come of it (inclusive); by default as many as of an object of these bytes
    (:func:`plain_bytes_max`).
    """
    most = plain_bytes_max(len(data)) if bytes_max is None else bytes_max
    if not data.startswith(ZSTD_MAGIC):
        if len(data) > most:
            raise _too_large(name, "", most, len(data))
        return data
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            out = io.BytesIO()
            while chunk := stream.read(1 << 20):
                out.write(chunk)
                if out.tell() > most:
                    raise _too_large(name, "when decompressed", most, None)
    except (OSError, pa.ArrowException) as error:
        raise CorruptDataError(
            "a metadata object cannot be decompressed", object=name, expected="zstd", got=str(error)
        ) from error
    return out.getvalue()


def plain_text(data: bytes, *, name: str, stored: int | None = None) -> bytes:
    """Return the JSON that bytes hold (plain or zstd), once its costs are known.

    The bytes of the object that holds them, ``stored``, bound what is decompressed and parsed. None: a small
    document, of 64 KiB at most.
    """
    most = SMALL_BYTES_MAX if stored is None else plain_bytes_max(stored)
    text = decompressed(data, name=name, bytes_max=most)
    check_cost(text, most if stored is None else stored, name=name)
    return text


def check_text(value: str, *, name: str, bytes_max: int = 4096) -> str:
    """Return a user's text if it may be stored in metadata, else raise InvalidInputError."""
    try:
        if value and len(value.encode()) <= bytes_max:
            return value
    except UnicodeEncodeError:
        pass
    raise InvalidInputError(
        f"{name} {repr_of(value, 80)} is not valid", hint=f"use a text of 1 to {bytes_max} UTF-8 bytes"
    )
