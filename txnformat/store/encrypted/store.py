"""A store in front of another: what callers hand it is encrypted on its way, and opened on its way back.

In the clear are the names of objects, their sizes (but for a constant for each 64 KiB) and times;
``format.json``, the key ring, and the objects that probe a store.

An encrypted store raises nothing but StorageError about keys and damaged objects, as a store does:
``log-not-encrypted``, ``key-refused``, ``key-client-failed``, ``key-missing``, and ``object-not-authentic``
about an object that was changed, moved or damaged after it was encrypted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from txnformat.errors import StorageError
from txnformat.forking import renew_after_fork
from txnformat.keys import FORMAT_KEY, KEYS_PREFIX, PROBE_PREFIX
from txnformat.store.base import (
    CreateOutcome,
    CreateResult,
    ObjectInfo,
    ObjectStore,
    ObjectWriter,
    check_range,
    list_each,
    range_of,
)
from txnformat.store.encrypted.documents import decode_format, plain_format
from txnformat.store.encrypted.envelope import (
    CHUNK_BYTES,
    OVERHEAD_BYTES,
    ChunkEncryption,
    DataKey,
    EnvelopeError,
    ObjectCipher,
    chunks_of,
    encrypted_size,
    generation_of,
    plain_size,
)
from txnformat.store.encrypted.key_client import KeySource
from txnformat.store.encrypted.key_clients import make_client
from txnformat.store.encrypted.ring import KeyRing, encrypted_format, first_format, listed, read_ring
from txnformat.store.object_sizes import bytes_max as object_bytes_max
from txnformat.store.open import reopening
from txnformat.store.uploads import Writer, writer_ended
from txnformat.store.wrapped import WrappedStore

__all__ = ["EncryptedStore"]


class EncryptedStore(WrappedStore):
    """Seals what goes into ``inner``, and opens what comes out. The constructor makes no request.

    The key ring is read at the first need: 1 GET and 1 LIST, and 1 GET of a key that is not the first one.
    """

    is_encrypted = True
    """See :func:`~txnformat.store.base.is_encrypted`."""

    def __init__(self, inner: ObjectStore, source: KeySource) -> None:
        super().__init__(inner)
        self._source = source
        self._client = make_client(source)
        self._ring: KeyRing | None = None
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Make a new lock: another thread of the parent may hold the old one."""
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"EncryptedStore({self._inner!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return EncryptedStore, (self._inner, self._source)

    def reopening(self) -> Callable[[], ObjectStore] | None:
        """Return what makes an equal store in another process; None where that of the store within cannot be
        made.
        """
        inner = reopening(self._inner)
        return None if inner is None else partial(_reopened, inner, self._source)

    # --- keys -----------------------------------------------------------------------------------------------

    def ring(self) -> KeyRing:
        """Return the key ring. Raises StorageError."""
        with self._lock:
            return self._ring or self.read_keys_again()

    def read_keys_again(self) -> KeyRing:
        """Read the key ring anew.

        The old one counts until that is done, and keys that it has unwrapped are kept. Requests: 1 GET, 1
        LIST. Raises StorageError.
        """
        with self._lock:
            found, known = read_ring(self._inner, self._client), self._ring
            if found is None:
                raise StorageError(
                    "there is no log here, so there is no key",
                    kind="key-missing",
                    hint="create the log with TxnLog.create, or check the path",
                    store=self.url,
                )
            if known is not None:
                found.adopt(known)
            self._ring = found
            return found

    def rotate_key(self, *, master: bool) -> int:
        """Make a new data key, or wrap all data keys by the newest master key (``master``).

        Returns how many were made or wrapped.

        Raises StorageError of kind ``key-ring-changed``: another process was faster.
        """
        with self._lock:
            ring = self.read_keys_again()
            if master:
                count = ring.wrap_again()
            else:
                ring.add()
                count = 1
            self.read_keys_again()
            return count

    def _cipher_for(self, key: str) -> ObjectCipher:
        return ObjectCipher(self._current(), key)

    def _current(self) -> DataKey:
        """Return the key that encrypts.

        A thread that finds it at hand does not wait for one that is calling the key client.
        """
        ring = self._ring
        found = None if ring is None else ring.at_hand()
        if found is None:
            with self._lock:
                found = self.ring().current
        return found

    def _key_of(self, key: str, generation: int, *, look: bool) -> DataKey:
        """Return a data key; ``look`` reads the ring anew where it has none.

        A thread that finds the key at hand does not wait, either.
        """
        ring = self._ring
        found = None if ring is None else ring.at_hand(generation)
        if found is None:
            with self._lock:
                ring = self.ring()
                if look and not ring.has(generation):
                    ring = self.read_keys_again()
                if not ring.has(generation):
                    missing = f"the key ring under {KEYS_PREFIX} has no key of generation {generation}"
                    raise self._not_authentic(key, EnvelopeError(missing))
                found = ring.key(generation)
        return found

    def _decrypted(self, key: str, read: Callable[[ObjectCipher], bytes], generation: int) -> bytes:
        """Return what ``read`` makes of an object; when it fails the ring is read anew: there may be a new
        key, or another log in this place.
        """
        for attempt in (1, 2):
            cipher = ObjectCipher(self._key_of(key, generation, look=attempt == 1), key)
            try:
                return read(cipher)
            except EnvelopeError as error:
                if attempt == 2:
                    raise self._not_authentic(key, error) from None
            self.read_keys_again()
        raise AssertionError  # the second attempt returns or raises

    def _not_authentic(self, key: str, error: EnvelopeError) -> StorageError:
        return StorageError(
            "an object of the encrypted log does not open",
            kind="object-not-authentic",
            hint="it was changed, moved or damaged after it was written: restore it from a copy; txnlog "
            "verify lists all that is damaged",
            store=self.url,
            object=key,
            cause=str(error),
        )

    def _generation(self, key: str, data: bytes) -> int:
        try:
            return generation_of(data)
        except EnvelopeError as error:
            raise self._not_authentic(key, error) from None

    # --- the store ------------------------------------------------------------------------------------------

    def get(self, key: str, bytes_max: int | None = None) -> bytes | None:
        if key == FORMAT_KEY:
            return self._format()
        if _is_clear(key):
            return super().get(key, bytes_max)
        most = object_bytes_max(key) if bytes_max is None else bytes_max
        data = super().get(key, encrypted_size(most))
        if data is None:
            return None
        return self._decrypted(key, lambda cipher: cipher.decrypt(data), self._generation(key, data))

    def _format(self) -> bytes | None:
        """Return ``format.json`` as that of a log without encryption."""
        data = super().get(FORMAT_KEY)
        if data is None:
            return None
        found = encrypted_format(self._inner, data)
        ring = self._ring
        if ring is not None and (ring.log_id, ring.first) != (found.log_id, found.encryption.key):
            with self._lock:
                if self._ring is ring:
                    self._ring = None  # another log is in its place
        ring = self._ring
        if ring is None or not ring.is_open:
            self._current()  # a reader without the key learns it here, before it reads anything else
        return plain_format(found.log_id)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """See :meth:`ObjectStore.get_range`.

        Requests: 1 HEAD besides: call :func:`~txnformat.store.base.range_of` where the size is known.
        """
        if _is_clear(key):
            return super().get_range(key, start, length)
        found = super().head(key)
        size = 0 if found is None else plain_size(found.size)
        if found is None:
            return super().get_range(key, start, length)  # raises that it is missing
        check_range(self.url, key, start, length, size)
        return self.get_range_of(key, start, length, size)

    def get_range_of(self, key: str, start: int, length: int, size: int) -> bytes:
        """See :func:`~txnformat.store.base.range_of`. Requests: 1 ranged GET, of whole chunks."""
        if _is_clear(key):
            return range_of(self._inner, key, start, length, size)
        check_range(self.url, key, start, length, size)
        first = min(start, max(0, size - 1)) // CHUNK_BYTES
        last = min((start + max(1, length) - 1) // CHUNK_BYTES, chunks_of(size) - 1)
        begin = first * (CHUNK_BYTES + OVERHEAD_BYTES)
        end = min((last + 1) * (CHUNK_BYTES + OVERHEAD_BYTES), encrypted_size(size))
        data = super().get_range(key, begin, end - begin)
        found = self._decrypted(
            key, lambda cipher: cipher.decrypt_from(data, first, size), self._generation(key, data)
        )
        offset = start - first * CHUNK_BYTES
        return found if len(found) == length and not offset else found[offset : offset + length]

    def head(self, key: str) -> ObjectInfo | None:
        found = super().head(key)
        return None if found is None else _plain(found)

    def create(self, key: str, data: bytes) -> CreateResult:
        if _is_clear(key) and key != FORMAT_KEY:
            return super().create(key, data)
        try:
            encrypted = self._first_format(data) if key == FORMAT_KEY else self._cipher_for(key).encrypt(data)
        except StorageError as error:
            return CreateResult(CreateOutcome.REFUSED, error)  # nothing was sent
        result = super().create(key, encrypted)
        if key == FORMAT_KEY:
            with self._lock:
                self._ring = None  # of a log that was here before
        return result

    def _first_format(self, data: bytes) -> bytes:
        """Return ``format.json`` of the log that is to be created.

        Requests: 1 LIST, and 1 GET if there are keys.
        """
        _, log_id, _ = decode_format(data)
        left = listed(self._inner)
        if left and super().get(FORMAT_KEY) is None:
            raise StorageError(
                "keys of another encrypted log are left here",
                kind="keys-left-over",
                hint="delete the objects under _txnlog/keys if their log is gone, or restore its format.json",
                store=self.url,
                generations=sorted(left),
            )
        return first_format(self._inner, self._client, log_id)

    def put(self, key: str, data: bytes) -> None:
        super().put(key, data if _is_clear(key) else self._cipher_for(key).encrypt(data))

    def open_write(self, key: str) -> ObjectWriter:
        if _is_clear(key):
            return super().open_write(key)
        cipher = self._cipher_for(key)
        return _EncryptingWriter(self, key, super().open_write(key), cipher)

    def list(self, prefix: str, start_after: str | None = None) -> Sequence[ObjectInfo]:
        found = super().list(prefix, start_after)
        return [_plain(info) for info in found if not info.key.startswith(KEYS_PREFIX)]

    def list_each(self, prefix: str, take: Callable[[ObjectInfo], object]) -> None:
        """See :func:`~txnformat.store.base.list_each`."""

        def opened(info: ObjectInfo) -> None:
            if not info.key.startswith(KEYS_PREFIX):
                take(_plain(info))

        list_each(self._inner, prefix, opened)


class _EncryptingWriter(Writer):
    """A streamed upload that is encrypted on its way; holds at most two chunks."""

    def __init__(self, store: EncryptedStore, key: str, out: ObjectWriter, cipher: ObjectCipher) -> None:
        self._place = store.url, key
        self._out = out
        self._chunks = ChunkEncryption(cipher)
        self._buffer = bytearray()
        self._closed = False
        self._ended = False

    def write(self, data: bytes | memoryview) -> int:
        if self._ended:
            raise writer_ended(*self._place)
        view = memoryview(data).cast("B")
        # A full chunk waits until more follows it, because the last one is marked as such.
        for start in range(0, view.nbytes, CHUNK_BYTES):
            self._buffer += view[start : start + CHUNK_BYTES]
            if len(self._buffer) > CHUNK_BYTES:
                try:
                    self._out.write(self._chunks.chunk(bytes(self._buffer[:CHUNK_BYTES]), is_last=False))
                except BaseException:
                    self.abort()  # a part of a chunk may be out: the object can only be given up
                    raise
                del self._buffer[:CHUNK_BYTES]
        return view.nbytes

    def close(self) -> None:
        if self._closed:
            return
        if self._ended:
            raise writer_ended(*self._place)
        try:
            self._out.write(self._chunks.chunk(bytes(self._buffer), is_last=True))
            self._out.close()
            self._closed = True
        finally:
            self.abort()

    def abort(self) -> None:
        self._ended = True
        self._buffer = bytearray()
        if not self._closed:
            self._out.abort()


def _is_clear(key: str) -> bool:
    return key == FORMAT_KEY or key.startswith((PROBE_PREFIX, KEYS_PREFIX))


def _plain(info: ObjectInfo) -> ObjectInfo:
    return info if _is_clear(info.key) else ObjectInfo(info.key, plain_size(info.size))


def _reopened(inner: Callable[[], ObjectStore], source: KeySource) -> ObjectStore:
    return EncryptedStore(inner(), source)
