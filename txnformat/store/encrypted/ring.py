"""The data keys of an encrypted log, as they are stored: each wrapped by a master key of the key client.

The first one is in ``format.json``, and so made in the same request as the log. Further ones are objects under ``_txnlog/keys/``, created if absent and never
replaced: their names have a generation of the data key and the number of its wrapping. The newest generation encrypts; each opens what it has encrypted.
"""

from __future__ import annotations

import os

from txnformat.errors import StorageError
from txnformat.keys import FORMAT_KEY, KEYS_PREFIX
from txnformat.store.base import CreateOutcome, ObjectStore
from txnformat.store.encrypted.documents import (
    CIPHER,
    ENCRYPTED_FORMAT,
    EncryptedFormat,
    EncryptionRecord,
    RingDocument,
    WrappedRecord,
    decode_format,
    decode_ring,
    encode,
    parse_ring_key,
    ring_key,
)
from txnformat.store.encrypted.envelope import KEY_BYTES, DataKey
from txnformat.store.encrypted.key_client import KeyClient, refused
from txnformat.store.object_sizes import SMALL_BYTES_MAX

__all__ = ["KeyRing", "first_format", "missing_key", "read_ring"]


class KeyRing:
    """The data keys of a log: those that are needed are unwrapped, once. Made by :func:`read_ring`."""

    def __init__(
        self, store: ObjectStore, client: KeyClient, found: EncryptedFormat, newest: dict[int, int]
    ) -> None:
        self.log_id = found.log_id
        self.first = found.encryption.key
        self._store = store
        self._client = client
        self._newest = {1: 0, **newest}
        """The newest wrapping of each generation."""
        self._keys: dict[int, DataKey] = {}

    @property
    def current(self) -> DataKey:
        """The key that encrypts."""
        return self.key(max(self._newest))

    def has(self, generation: int) -> bool:
        """Return whether the ring has a data key."""
        return generation in self._newest

    def key(self, generation: int) -> DataKey:
        """Return a data key. Requests: 1 GET at the first call, none for the first generation under its first master key.

        Raises StorageError of kinds ``key-missing``, ``key-refused`` and ``key-client-failed``.
        """
        found = self._keys.get(generation)
        if found is None:
            if not self.has(generation):
                raise missing_key(self._store.url, f"generation {generation}")
            found = self._keys[generation] = self._unwrapped(self._record(generation))
        return found

    def _record(self, generation: int) -> WrappedRecord:
        wrapping = self._newest[generation]
        if (generation, wrapping) == (1, 0):
            return self.first
        key = ring_key(generation, wrapping)
        data = self._store.get(key, SMALL_BYTES_MAX)
        if data is None:
            raise missing_key(self._store.url, key)
        try:
            found = decode_ring(data)
        except ValueError:
            found = None
        if (
            found is None
            or (found.format, found.log_id) != (1, self.log_id)
            or found.key.generation != generation
        ):
            raise StorageError(
                "an object of the log's key ring is damaged",
                kind="key-missing",
                hint="restore it from a copy: what was encrypted with its key cannot be read without",
                store=self._store.url,
                object=key,
            )
        return found.key

    def _unwrapped(self, record: WrappedRecord) -> DataKey:
        context = _context(self.log_id, record.generation)
        try:
            secret = self._client.unwrap(record.master_key, record.wrapped, context)
        except Exception as error:  # noqa: BLE001  # whatever the key client raises
            raise refused(error, self._store.url, record.master_key) from None
        key = DataKey(self.log_id, record.generation, bytes(secret))
        if len(secret) != KEY_BYTES or key.check() != record.check:
            raise StorageError(
                "the key client gave another key than the log's",
                kind="key-refused",
                hint="give the key client the master key that the log was made with",
                store=self._store.url,
                master_key=record.master_key,
            )
        return key

    def add(self) -> int:
        """Make a new data key, and return its generation. Requests: 1 conditional PUT.

        Raises StorageError of kind ``key-ring-changed``: another process was faster.
        """
        generation = max(self._newest) + 1
        self._create(generation, 0, os.urandom(KEY_BYTES))
        return generation

    def wrap_again(self) -> int:
        """Wrap each data key by the newest master key, and return how many were. Requests: 1 GET and 1 conditional PUT of each."""
        count = 0
        for generation, wrapping in sorted(self._newest.items()):
            self._create(generation, wrapping + 1, self.key(generation)._secret)
            count += 1
        return count

    def _create(self, generation: int, wrapping: int, secret: bytes) -> None:
        record = _wrapped(self._store, self._client, DataKey(self.log_id, generation, secret), secret)
        data = encode(RingDocument(1, record, self.log_id))
        key = ring_key(generation, wrapping)
        result = self._store.create(key, data)
        if result.outcome is CreateOutcome.REFUSED and result.error is not None:
            raise result.error
        if result.outcome is not CreateOutcome.CREATED and self._store.get(key, SMALL_BYTES_MAX) != data:
            raise result.error or StorageError(
                "another process changed the log's key ring meanwhile",
                kind="key-ring-changed",
                hint="call it again, if it is still to be done",
                store=self._store.url,
                object=key,
            )


def _context(log_id: str, generation: int) -> str:
    return f"txnlog:{log_id}:{generation}"


def _wrapped(store: ObjectStore, client: KeyClient, key: DataKey, secret: bytes) -> WrappedRecord:
    try:
        master_key, wrapped = client.wrap(secret, _context(key.log_id, key.generation))
    except Exception as error:  # noqa: BLE001  # whatever the key client raises
        raise refused(error, store.url, "the newest") from None
    return WrappedRecord(key.check(), key.generation, str(master_key), bytes(wrapped))


def first_format(store: ObjectStore, client: KeyClient, log_id: str) -> bytes:
    """Return ``format.json`` of a new encrypted log, with a new data key. Raises as the key client: ``key-refused``, ``key-client-failed``."""
    secret = os.urandom(KEY_BYTES)
    record = _wrapped(store, client, DataKey(log_id, 1, secret), secret)
    return encode(EncryptedFormat(EncryptionRecord(CIPHER, record), ENCRYPTED_FORMAT, log_id))


def read_ring(store: ObjectStore, client: KeyClient) -> KeyRing | None:
    """Return the key ring of a log; None where no log is. Requests: 1 GET, 1 LIST."""
    data = store.get(FORMAT_KEY)
    if data is None:
        return None
    return ring_of(store, client, data)


def ring_of(store: ObjectStore, client: KeyClient, data: bytes) -> KeyRing:
    found = encrypted_format(store, data)
    newest: dict[int, int] = {}
    for info in store.list(KEYS_PREFIX):
        name = parse_ring_key(info.key)
        if name is not None:
            newest[name[0]] = max(name[1], newest.get(name[0], 0))
    return KeyRing(store, client, found, newest)


def encrypted_format(store: ObjectStore, data: bytes) -> EncryptedFormat:
    """Return what ``format.json`` of an encrypted log says. Raises StorageError of kind ``log-not-encrypted`` about another one."""
    try:
        version, _, found = decode_format(data)
    except ValueError:
        version, found = 0, None
    if found is not None:
        return found
    if version == 1:
        raise StorageError(
            "the log is not encrypted, and a key client was given",
            kind="log-not-encrypted",
            hint="leave the storage option key_client out, if you know that the log was made without it",
            store=store.url,
        )
    raise StorageError(
        "format.json is not that of an encrypted log",
        kind="key-missing",
        hint="restore it from a copy, or upgrade txnlog",
        store=store.url,
        object=FORMAT_KEY,
    )


def missing_key(url: str, what: str) -> StorageError:
    """Return the error about a data key that the ring does not have."""
    return StorageError(
        "the log's key ring lacks a data key",
        kind="key-missing",
        hint="restore the objects under _txnlog/keys from a copy",
        store=url,
        key=what,
    )
