"""The key client that is built in: master keys in a file or an environment variable, for tests and small
installations.

JSON: ``{"current": "2026-11", "keys": {"2026-11": "<32 bytes in base64>", "2025": "…"}}``. New data keys are
wrapped by ``current``; the others open older ones.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Annotated

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Meta, Struct

from txnformat.store.encrypted.key_client import KeyRefusedError

__all__ = ["KeyFile", "new_key_file"]

_NONCE_BYTES = 12
_KEY_BYTES = 32


class _Keys(Struct, frozen=True, forbid_unknown_fields=True):
    current: Annotated[str, Meta(min_length=1, max_length=200)]
    keys: Annotated[dict[str, bytes], Meta(min_length=1, max_length=1_000)]


_DECODER = msgspec.json.Decoder(_Keys)


class KeyFile:
    """Master keys in a file (``file``) or a variable (``env``), read at each use, so that a changed file
    counts at once.
    """

    def __init__(self, kind: str, where: str) -> None:
        self._kind = kind
        self._where = str(Path(where).absolute()) if kind == "file" else where

    def __repr__(self) -> str:
        return f"KeyFile({self._kind!r}, {self._where!r})"

    def wrap(self, key: bytes, context: str) -> tuple[str, bytes]:
        """See :class:`~txnformat.store.encrypted.key_client.KeyClient`."""
        keys = self._read()
        nonce = os.urandom(_NONCE_BYTES)
        return keys.current, nonce + _cipher(keys, keys.current).encrypt(nonce, key, context.encode())

    def unwrap(self, master_key: str, wrapped: bytes, context: str) -> bytes:
        """See :class:`~txnformat.store.encrypted.key_client.KeyClient`."""
        cipher = _cipher(self._read(), master_key)
        try:
            return cipher.decrypt(wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], context.encode())
        except (InvalidTag, ValueError):
            raise KeyRefusedError("the key of this name is another one") from None

    def _read(self) -> _Keys:
        if self._kind == "env":
            text = os.environ.get(self._where, "").encode()
            if not text:
                raise KeyRefusedError(f"the variable {self._where} is not set")
        else:
            try:
                text = Path(self._where).read_bytes()
            except OSError as error:
                raise KeyRefusedError(f"{self._where}: {error.strerror or 'it cannot be read'}") from None
        try:
            return _DECODER.decode(text)
        except ValueError:
            place = f"the variable {self._where}" if self._kind == "env" else self._where
            raise KeyRefusedError(
                f'{place} is not {{"current": "NAME", "keys": {{"NAME": "32 bytes in base64"}}}}'
            ) from None


def _cipher(keys: _Keys, name: str) -> AESGCM:
    key = keys.keys.get(name)
    if key is None:
        raise KeyRefusedError("there is no key of this name")
    if len(key) != _KEY_BYTES:
        raise KeyRefusedError("the key of this name does not have 32 bytes")
    return AESGCM(key)


def new_key_file(name: str) -> str:
    """Return the text of a key file with one new key."""
    key = base64.b64encode(os.urandom(_KEY_BYTES)).decode()
    return msgspec.json.encode({"current": name, "keys": {name: key}}).decode()
