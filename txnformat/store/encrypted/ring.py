"""The data keys of an encrypted log, as they are stored: each wrapped by a master key of the key client.

The first one is in ``format.json``, and so made in the same request as the log. Further ones are objects
under ``_txnlog/keys/``, created if absent and never replaced: their names have a generation of the data key
and the number of its wrapping. The newest generation encrypts; each opens what it has encrypted.

Such an object has a proof that only the first data key makes: right to create objects, and to wrap keys, is
not enough to put a key into the ring.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping

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


WRAP_ROUNDS_MAX = 20
"""How often the ring is listed anew until no data key needs another master key than the newest: others may
add keys meanwhile."""


class KeyRing:
    """The data keys of a log: those that are needed are unwrapped, once. Made by :func:`read_ring`."""

    def __init__(
        self, store: ObjectStore, client: KeyClient, found: EncryptedFormat, newest: Mapping[int, int]
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
        """The key that encrypts.

        Raises StorageError of kind ``key-missing``, too, where the newest key that was seen is stored no
        more.
        """
        newest = self._generation_max()
        if newest not in self._newest:
            raise missing_key(self._store.url, ring_key(newest, 0))
        return self.key(newest)

    @property
    def is_open(self) -> bool:
        """Whether a data key is unwrapped."""
        return bool(self._keys)

    def at_hand(self, generation: int | None = None) -> DataKey | None:
        """Return a data key, or the one that encrypts, if it is unwrapped already; None otherwise.

        Needs no lock: no request, no call of the key client.
        """
        if generation is None:
            generation = self._generation_max()
            if generation not in self._newest:
                return None
        return self._keys.get(generation)

    def _generation_max(self) -> int:
        return max(max(self._newest), max(self._keys, default=0))

    def adopt(self, known: KeyRing) -> None:
        """Keep the keys that an older ring of the same log has unwrapped: no call of the key client is needed
        for them, and none is lost.
        """
        if (known.log_id, known.first.check) == (self.log_id, self.first.check):
            self._keys = {**known._keys, **self._keys}

    def has(self, generation: int) -> bool:
        """Return whether the ring has a data key."""
        return generation in self._newest or generation in self._keys

    def key(self, generation: int) -> DataKey:
        """Return a data key.

        Requests: 1 GET at the first call, none for the first generation under its first master key; 1 LIST
        and 1 GET more where the key was wrapped anew meanwhile.

        Raises StorageError of kinds ``key-missing``, ``key-refused`` and ``key-client-failed``.
        """
        found = self._keys.get(generation)
        if found is None:
            if not self.has(generation):
                raise missing_key(self._store.url, f"generation {generation}")
            try:
                found = self._opened(generation)
            except StorageError as error:
                before = self._newest[generation]
                if error.kind not in ("key-refused", "key-missing"):
                    raise
                self._list()
                if self._newest.get(generation, before) == before:
                    raise
                found = self._opened(generation)
            self._keys = {
                **self._keys,
                generation: found,
            }  # readers without the lock see one dict or the other
        return found

    def _list(self) -> None:
        self._newest = {1: 0, **listed(self._store)}

    def _opened(self, generation: int) -> DataKey:
        """Return a data key out of its newest wrapping, once that is proven to be of this log."""
        wrapping = self._newest[generation]
        if (generation, wrapping) == (1, 0):
            return self._unwrapped(self.first)
        document = self._document(generation, wrapping)
        if generation == 1:
            key = self._unwrapped(document.key)
            first = key if key.check() == self.first.check else None
        else:
            first = self.key(1)
            key = None
        if first is None or not hmac.compare_digest(proof_of(first, document.key, wrapping), document.proof):
            raise self._damaged(ring_key(generation, wrapping))
        return self._unwrapped(document.key) if key is None else key

    def _document(self, generation: int, wrapping: int) -> RingDocument:
        key = ring_key(generation, wrapping)
        data = self._store.get(key, SMALL_BYTES_MAX)
        if data is None:
            raise missing_key(self._store.url, key)
        try:
            found = decode_ring(data)
        except ValueError:
            raise self._damaged(key) from None
        if (found.format, found.log_id, found.key.generation) != (1, self.log_id, generation):
            raise self._damaged(key)
        return found

    def _damaged(self, key: str) -> StorageError:
        return StorageError(
            "an object of the log's key ring is damaged, or was not written by a client of this log",
            kind="key-missing",
            hint="restore it from a copy; delete it, if no copy of the log has it",
            store=self._store.url,
            object=key,
        )

    def _unwrapped(self, record: WrappedRecord) -> DataKey:
        return _unwrapped(self._store, self._client, self.log_id, record)

    def add(self) -> int:
        """Make a new data key, and return its generation. Requests: 1 conditional PUT.

        Raises StorageError of kind ``key-ring-changed``: another process was faster.
        """
        generation = self._generation_max() + 1
        self._create(0, _new_key(self.log_id, generation))
        return generation

    def wrap_again(self) -> int:
        """Wrap each data key by the newest master key, and return how many were; afterwards none needs an
        older one.

        Requests: 1 GET and 1 conditional PUT of each, and 1 LIST and 1 GET of each to look.
        """
        count, target = 0, ""
        for _ in range(WRAP_ROUNDS_MAX):
            due = [one for one in sorted(self._newest) if not target or self._master(one) != target]
            if not due:
                return count
            for generation in due:
                target = self._create(self._newest[generation] + 1, self.key(generation))
                count += 1
            self._list()
        raise StorageError(
            "other processes still use another master key",
            kind="key-ring-changed",
            hint="give all processes the same newest master key, and call it again",
            store=self._store.url,
        )

    def _master(self, generation: int) -> str:
        wrapping = self._newest[generation]
        named = self.first if not wrapping and generation == 1 else self._document(generation, wrapping).key
        return named.master_key

    def _create(self, wrapping: int, made: DataKey) -> str:
        """Put a data key into the ring, and return the name of the master key that wraps it."""
        record = _wrapped(self._store, self._client, made)
        data = encode(RingDocument(1, record, self.log_id, proof_of(self.key(1), record, wrapping)))
        key = ring_key(made.generation, wrapping)
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
        return record.master_key


def proof_of(first: DataKey, record: WrappedRecord, wrapping: int) -> str:
    """Return the text without which an object of the ring does not count: only a client that has the first
    data key makes it.
    """
    return first.derived("ring", f"{wrapping} {encode(record).decode()}", 32).hex()


def _new_key(log_id: str, generation: int) -> DataKey:
    return DataKey(log_id, generation, os.urandom(KEY_BYTES))


def _context(log_id: str, generation: int) -> str:
    return f"txnlog:{log_id}:{generation}"


def _unwrapped(store: ObjectStore, client: KeyClient, log_id: str, record: WrappedRecord) -> DataKey:
    try:
        given = client.unwrap(record.master_key, record.wrapped, _context(log_id, record.generation))
    except Exception as error:  # noqa: BLE001  # whatever the key client raises
        raise refused(error, store.url, record.master_key) from None
    key = _key_of(log_id, record.generation, given)
    if key is None or key.check() != record.check:
        raise StorageError(
            "the key client gave another key than the log's",
            kind="key-refused",
            hint="give the key client the master key that the log was made with",
            store=store.url,
            master_key=record.master_key,
        )
    return key


def _key_of(log_id: str, generation: int, given: object) -> DataKey | None:
    is_key = isinstance(given, bytes) and len(given) == KEY_BYTES
    return DataKey(log_id, generation, given) if is_key else None  # type: ignore[arg-type]


def _wrapped(store: ObjectStore, client: KeyClient, key: DataKey) -> WrappedRecord:
    """Return a data key wrapped, once the key client has opened it again: nothing is stored that it does not
    open.
    """
    try:
        answer = client.wrap(key.secret, _context(key.log_id, key.generation))
    except Exception as error:  # noqa: BLE001  # whatever the key client raises
        raise refused(error, store.url, "the newest") from None
    record = _record_of(key, answer)
    if record is None:
        raise StorageError(
            "the key client answered something that is not a wrapped key; nothing was stored",
            kind="key-refused",
            hint="wrap returns a text of 1 to 255 bytes, the name of the master key, and 1 to 16,384 "
            "bytes, the wrapped key",
            store=store.url,
        )
    _unwrapped(store, client, key.log_id, record)
    return record


def _record_of(key: DataKey, answer: object) -> WrappedRecord | None:
    """Return what a key client has answered as a record; None if it would not be read back."""
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], bytes):
        return None
    record = WrappedRecord(key.check(), key.generation, *answer)
    try:
        read = decode_ring(encode(RingDocument(1, record, key.log_id, "0" * 64))).key
    except (TypeError, ValueError):
        return None
    return record if read == record else None


def first_format(store: ObjectStore, client: KeyClient, log_id: str) -> bytes:
    """Return ``format.json`` of a new encrypted log, with a new data key.

    Raises as the key client: ``key-refused``, ``key-client-failed``.
    """
    record = _wrapped(store, client, _new_key(log_id, 1))
    return encode(EncryptedFormat(EncryptionRecord(CIPHER, record), ENCRYPTED_FORMAT, log_id))


def read_ring(store: ObjectStore, client: KeyClient) -> KeyRing | None:
    """Return the key ring of a log; None where no log is. Requests: 1 GET, 1 LIST."""
    data = store.get(FORMAT_KEY)
    if data is None:
        return None
    return ring_of(store, client, data)


def ring_of(store: ObjectStore, client: KeyClient, data: bytes) -> KeyRing:
    found = encrypted_format(store, data)
    return KeyRing(store, client, found, listed(store))


def listed(store: ObjectStore) -> dict[int, int]:
    """Return the newest wrapping of each generation that has an object. Requests: 1 LIST."""
    newest: dict[int, int] = {}
    for info in store.list(KEYS_PREFIX):
        name = parse_ring_key(info.key)
        if name is not None:
            newest[name[0]] = max(name[1], newest.get(name[0], 0))
    return newest


def encrypted_format(store: ObjectStore, data: bytes) -> EncryptedFormat:
    """Return what ``format.json`` of an encrypted log says.

    Raises StorageError of kind ``log-not-encrypted`` about another one.
    """
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
