"""The bytes of an encrypted object: chunks, each encrypted and authenticated by AES-256-GCM. Pure.

Layout of a chunk, integers big-endian::

    magic       4 bytes "TXNS"
    version     u8      1
    flags       u8      1 in the last chunk of an object, else 0
    reserved    u16     0
    generation  u32     which data key of the log
    index       u32     number of the chunk, from 0
    previous    16      tag of the chunk before it; zeros in the first one
    nonce       12
    ciphertext          of CHUNK_BYTES; of the last chunk of 0 to CHUNK_BYTES
    tag         16

Everything before the nonce is authenticated with the ciphertext. Each object has keys of its own, derived
from a data key of the log, the log's id and the object's key: so the bytes of one object never open as
another one, nor in another log. The nonce is made of what is encrypted, by a keyed hash: equal bytes of an
object are encrypted equally, so that a request that is repeated stays the same request, and two nonces of an
object are equal only if the bytes are.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

__all__ = [
    "CHUNK_BYTES",
    "KEY_BYTES",
    "OVERHEAD_BYTES",
    "DataKey",
    "EnvelopeError",
    "ObjectCipher",
    "chunks_of",
    "encrypted_size",
    "generation_of",
    "plain_size",
]

CHUNK_BYTES = 64 * 1024
"""Plain bytes of a chunk; a ranged read fetches whole ones."""
KEY_BYTES = 32

_MAGIC = b"TXNS"
_VERSION = 1
_LAST = 1
_HEAD = struct.Struct(">4sBBHII16s")
_NONCE_BYTES = 12
_TAG_BYTES = 16
OVERHEAD_BYTES = _HEAD.size + _NONCE_BYTES + _TAG_BYTES
"""Bytes by which an encrypted chunk is longer than what it holds."""
ENCRYPTED_CHUNK_BYTES = CHUNK_BYTES + OVERHEAD_BYTES

_FIRST = bytes(_TAG_BYTES)


class EnvelopeError(ValueError):
    """Bytes are not what was encrypted under this name; the text says what is wrong."""


class DataKey:
    """A data key of a log. Shows nothing, and cannot be pickled."""

    def __init__(self, log_id: str, generation: int, secret: bytes) -> None:
        self.log_id = log_id
        self.generation = generation
        self.secret = secret

    def __repr__(self) -> str:
        return f"DataKey(generation={self.generation})"

    def __reduce__(self) -> str:
        raise TypeError("a data key does not leave its process")

    def derived(self, purpose: str, name: str, length: int) -> bytes:
        """Return bytes that only this key makes, for one purpose and name."""
        info = b"\0".join(part.encode() for part in ("txnlog", purpose, self.log_id, name))
        return HKDF(SHA256(), length, salt=None, info=info).derive(self.secret)

    def check(self) -> str:
        """Return a text that tells this key from others, and says nothing of it."""
        return self.derived("check", str(self.generation), 16).hex()


def chunks_of(size: int) -> int:
    """Return how many chunks hold an object of so many plain bytes; an empty one has a chunk, too."""
    return max(1, -(-size // CHUNK_BYTES))


def encrypted_size(size: int) -> int:
    """Return the bytes of an encrypted object that holds so many plain bytes."""
    return size + chunks_of(size) * OVERHEAD_BYTES


def plain_size(size: int) -> int:
    """Return how many plain bytes an encrypted object of so many bytes holds; 0 of what is no encrypted
    object.
    """
    return max(0, size - max(1, -(-size // ENCRYPTED_CHUNK_BYTES)) * OVERHEAD_BYTES)


def generation_of(data: bytes | memoryview) -> int:
    """Return which data key encrypted a chunk, as it says itself. Raises EnvelopeError."""
    if len(data) < OVERHEAD_BYTES:
        raise EnvelopeError("it is too short")
    magic, version, _, _, generation, _, _ = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise EnvelopeError("it is not encrypted")
    if version != _VERSION:
        raise EnvelopeError(f"its envelope has the version {version}, and this txnlog knows {_VERSION}")
    return int(generation)


class ObjectCipher:
    """Seals and opens the chunks of one object."""

    def __init__(self, key: DataKey, name: str) -> None:
        keys = key.derived("object", name, 2 * KEY_BYTES)
        self._generation = key.generation
        self._cipher = AESGCM(keys[:KEY_BYTES])
        self._nonces = keys[KEY_BYTES:]

    def encrypt(self, data: bytes) -> bytes:
        """Return an object, encrypted."""
        chunks = ChunkEncryption(self)
        parts = []
        count = chunks_of(len(data))
        view = memoryview(data)
        for index in range(count):
            start = index * CHUNK_BYTES
            parts.append(chunks.chunk(view[start : start + CHUNK_BYTES], is_last=index == count - 1))
        return b"".join(parts)

    def encrypt_chunk(self, index: int, previous: bytes, data: bytes | memoryview, *, is_last: bool) -> bytes:
        """Return a chunk, encrypted. ``previous``: the tag of the one before it."""
        head = _HEAD.pack(_MAGIC, _VERSION, _LAST if is_last else 0, 0, self._generation, index, previous)
        digest = hmac.new(self._nonces, head, hashlib.sha256)
        digest.update(data)
        nonce = digest.digest()[:_NONCE_BYTES]
        return b"".join((head, nonce, self._cipher.encrypt(nonce, data, head)))

    def decrypt(self, data: bytes) -> bytes:
        """Return what a whole object holds. Raises EnvelopeError."""
        return self.decrypt_from(data, 0, plain_size(len(data)))

    def decrypt_from(self, data: bytes, first: int, size: int) -> bytes:
        """Return what the chunks from number ``first`` on hold, of an object of ``size`` plain bytes.

        Raises EnvelopeError.
        """
        last = chunks_of(size) - 1
        parts: list[bytes] = []
        previous = _FIRST if first == 0 else None
        for index, chunk in enumerate(_split(data), first):
            if generation_of(chunk) != self._generation:
                raise EnvelopeError("a chunk was encrypted with another key")
            found = _HEAD.unpack_from(chunk)
            flags, place, before = found[1:3], found[5], found[6]
            if flags != (_VERSION, _LAST if index == last else 0) or place != index:
                raise EnvelopeError("a chunk is missing, or in another place")
            if previous not in (None, before):
                raise EnvelopeError("a chunk does not follow the one before it")
            head = bytes(chunk[: _HEAD.size])
            nonce, encrypted = (
                chunk[_HEAD.size : _HEAD.size + _NONCE_BYTES],
                chunk[_HEAD.size + _NONCE_BYTES :],
            )
            try:
                parts.append(self._cipher.decrypt(nonce, encrypted, head))
            except InvalidTag:
                raise EnvelopeError(
                    "its bytes, its name or its key are not those that it was encrypted with"
                ) from None
            previous = bytes(chunk[-_TAG_BYTES:])
        return parts[0] if len(parts) == 1 else b"".join(parts)


class ChunkEncryption:
    """The chunks of one object on their way, in order."""

    def __init__(self, cipher: ObjectCipher) -> None:
        self._cipher = cipher
        self._index = 0
        self._previous = _FIRST

    def chunk(self, data: bytes | memoryview, *, is_last: bool) -> bytes:
        """Return the next chunk, encrypted."""
        encrypted = self._cipher.encrypt_chunk(self._index, self._previous, data, is_last=is_last)
        self._index += 1
        self._previous = encrypted[-_TAG_BYTES:]
        return encrypted


def _split(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    for start in range(0, max(1, len(view)), ENCRYPTED_CHUNK_BYTES):
        yield view[start : start + ENCRYPTED_CHUNK_BYTES]
