"""Requirements for every object store, as tests that any adapter can run.

Subclass :class:`StoreConformance` in a test module under a name that begins with ``Test``, and say in a
fixture
called ``store`` how an empty store is made::

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self) -> ObjectStore:
            return MyStore(...)

Needs pytest, as all of :mod:`txnlog_testing` may.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ClassVar, TypeVar

import pytest

from txnformat.errors import NotFoundError, StorageError
from txnformat.store.base import CreateOutcome, ObjectInfo, ObjectStore, created_ms, list_each, make_durable

__all__ = ["StoreConformance"]

KEY = "_txnlog/log/00000000000000000000.json"
THREADS = 8
LARGE_BYTES = 5 * 1024 * 1024

Answer = TypeVar("Answer")


class StoreConformance:
    """The behaviour that the commit protocol stands on. ``store`` is a fixture: an empty store."""

    races: ClassVar[int] = 25
    """How often threads race for one key."""
    skipped_marks: ClassVar[frozenset[str]] = frozenset()
    """Starts of a listing that this store gets wrong, and that no part of the log uses: each with its reason.
    """

    def test_create_succeeds_once(self, store: ObjectStore) -> None:
        """The first create wins; a second, even with the same bytes, changes nothing and says so."""
        assert store.create(KEY, b"first") == (CreateOutcome.CREATED, None)
        assert store.create(KEY, b"second") == (CreateOutcome.EXISTS, None)
        assert store.create(KEY, b"first") == (CreateOutcome.EXISTS, None)
        assert store.get(KEY) == b"first"

    def test_create_after_delete(self, store: ObjectStore) -> None:
        """A deleted key is free again: the store has no memory of it."""
        store.create(KEY, b"first")
        store.delete(KEY)
        assert store.create(KEY, b"second").outcome is CreateOutcome.CREATED
        assert store.get(KEY) == b"second"

    @pytest.mark.parametrize(
        "data", [b"", b"\0", bytes(range(256)) * 3, b"\r\n\x1a"], ids=["empty", "nul", "all", "text"]
    )
    def test_bytes_are_exact(self, store: ObjectStore, data: bytes) -> None:
        """A read returns exactly the bytes written, whichever way they were written."""
        store.create("a/created", data)
        store.put("a/put", data)
        with store.open_write("a/streamed") as writer:
            assert writer.write(data) == len(data)
        for key in ("a/created", "a/put", "a/streamed"):
            assert store.get(key) == data
            assert store.head(key) == ObjectInfo(key, len(data))

    def test_large_object(self, store: ObjectStore) -> None:
        """5 MiB go through every way of writing and reading."""
        data = bytes(range(251)) * (LARGE_BYTES // 251 + 1)
        store.create("a/created", data)
        with store.open_write("a/streamed") as writer:
            for start in range(0, len(data), 1_000_003):
                writer.write(memoryview(data)[start : start + 1_000_003])
        assert store.get("a/created") == store.get("a/streamed") == data
        assert store.get_range("a/streamed", 4_000_000, 1_000_000) == data[4_000_000:5_000_000]

    def test_an_object_that_is_too_large(self, store: ObjectStore) -> None:
        """More bytes than the caller, or the class of the key, allows is an error, and no repeat helps."""
        store.create("a/b", b"12345")
        store.put("_txnlog/latest", bytes(64 * 1024 + 1))
        assert store.get("a/b", 5) == b"12345"
        for key, bytes_max in (("a/b", 4), ("_txnlog/latest", None)):
            with pytest.raises(StorageError) as caught:
                store.get(key, bytes_max)
            assert caught.value.kind == "object-too-large"
            assert not caught.value.transient

    def test_missing_object(self, store: ObjectStore) -> None:
        """A missing object is None, a range of it NotFoundError, and its deletion no error."""
        assert store.get(KEY) is None
        assert store.head(KEY) is None
        with pytest.raises(NotFoundError):
            store.get_range(KEY, 0, 0)
        store.delete(KEY)

    def test_no_object_at_a_prefix_or_below_an_object(self, store: ObjectStore) -> None:
        """Neighbours in the key space are other keys."""
        store.create("a/b", b"x")
        assert store.get("a/b/c") is None
        assert store.head("a/b/c") is None
        assert store.get("a/bb") is None
        assert store.list("a/b/") == []
        store.delete("a/b/c")
        assert store.get("a/b") == b"x"

    @pytest.mark.parametrize(("start", "length"), [(0, 10), (0, 0), (3, 4), (9, 1), (10, 0)])
    def test_range_within_the_object(self, store: ObjectStore, start: int, length: int) -> None:
        """Start is inclusive, the length exact; an empty range may stand at the end."""
        store.create(KEY, b"0123456789")
        assert store.get_range(KEY, start, length) == b"0123456789"[start : start + length]

    @pytest.mark.parametrize(
        ("start", "length"), [(0, 11), (9, 2), (10, 1), (11, 0), (-1, 1), (-5, 2), (2, -1)]
    )
    def test_range_outside_the_object(self, store: ObjectStore, start: int, length: int) -> None:
        """A range is never cut short and never counted from the end."""
        store.create(KEY, b"0123456789")
        with pytest.raises(StorageError) as caught:
            store.get_range(KEY, start, length)
        assert caught.value.kind == "invalid-range"
        assert not caught.value.transient

    def test_what_others_made_can_be_made_durable(self, store: ObjectStore) -> None:
        """A client that answers from an object of others asks for this first; it changes nothing."""
        store.create(KEY, b"x")
        make_durable(store, [KEY])
        make_durable(store, [KEY, KEY])
        assert store.get(KEY) == b"x"

    def test_when_an_object_was_made(self, store: ObjectStore) -> None:
        """The age is by the store's time, which counts seconds on some stores; a missing object has none.

        A store that cannot tell keeps its old entries.
        """
        before = store.store_time_ms() - 2_000
        store.create(KEY, b"x")
        made = created_ms(store, KEY)
        assert created_ms(store, "a/b") is None
        assert made is None or before <= made <= store.store_time_ms() + 2_000

    def test_put_replaces(self, store: ObjectStore) -> None:
        """``put`` makes the object or replaces it, also by a shorter one."""
        store.put("_txnlog/latest", b"a longer first version")
        store.put("_txnlog/latest", b"short")
        assert store.get("_txnlog/latest") == b"short"
        assert store.create("_txnlog/latest", b"x").outcome is CreateOutcome.EXISTS
        assert store.list("_txnlog/") == [ObjectInfo("_txnlog/latest", 5)]

    def test_delete_is_idempotent(self, store: ObjectStore) -> None:
        """A second delete is no error, and touches nothing else."""
        store.create("a/x", b"1")
        store.create("a/xy", b"2")
        store.delete("a/x")
        store.delete("a/x")
        assert store.get("a/x") is None
        assert [info.key for info in store.list("a/")] == ["a/xy"]

    def test_stream_is_invisible_until_closed(self, store: ObjectStore) -> None:
        """Neither reads nor listings see an upload that is not closed; a second close does nothing."""
        store.create("a/other", b"")
        writer = store.open_write("a/data")
        assert writer.write(b"one") == 3
        assert writer.write(memoryview(b"two")) == 3
        assert store.get("a/data") is None
        assert store.head("a/data") is None
        assert [info.key for info in store.list("")] == ["a/other"]
        writer.close()
        writer.close()
        writer.abort()
        assert store.get("a/data") == b"onetwo"
        assert [info.key for info in store.list("")] == ["a/data", "a/other"]

    def test_stream_counts_bytes(self, store: ObjectStore) -> None:
        """A memoryview of wider items counts in bytes."""
        with store.open_write("a/data") as writer:
            assert writer.write(memoryview(b"12345678").cast("I")) == 8
        assert store.get("a/data") == b"12345678"

    def test_aborted_stream_leaves_nothing(self, store: ObjectStore) -> None:
        """``abort`` is idempotent; what follows it is refused; the key stays free."""
        writer = store.open_write("a/data")
        writer.write(b"x" * 100_000)
        writer.abort()
        writer.abort()
        for call in (lambda: writer.write(b"more"), writer.close):
            with pytest.raises(StorageError) as caught:
                call()
            assert caught.value.kind == "upload-ended"
        assert store.get("a/data") is None
        assert store.list("") == []
        assert store.create("a/data", b"y").outcome is CreateOutcome.CREATED

    def test_exception_aborts_a_stream(self, store: ObjectStore) -> None:
        """Leaving the ``with`` block by an exception publishes nothing and hides nothing."""
        with pytest.raises(KeyError), store.open_write("a/data") as writer:  # noqa: PT012  # the write comes first
            writer.write(b"half")
            raise KeyError
        assert store.get("a/data") is None
        assert store.list("") == []

    def test_stream_never_replaces(self, store: ObjectStore) -> None:
        """Closing an upload whose key was taken meanwhile fails, for good, and the object stays."""
        writer = store.open_write("a/data")
        writer.write(b"late")
        store.create("a/data", b"early")
        for kind in ("object-exists", "upload-ended"):
            with pytest.raises(StorageError) as caught:
                writer.close()
            assert caught.value.kind == kind
        assert store.get("a/data") == b"early"
        assert [info.key for info in store.list("")] == ["a/data"]

    def test_list_is_sorted_by_utf8_bytes(self, store: ObjectStore) -> None:
        """Keys come in the order of their UTF-8 bytes, across directories and beyond the BMP."""
        names = ["a-b", "a/b", "a.b", "a0", "aé", "az", "a/c/d", "a\uffee", "a\U0001f600", "B", "a/c-d"]
        keys = [f"t/{name}" for name in names]
        for key in keys:
            store.create(key, key.encode())
        expected = sorted(keys, key=str.encode)
        assert list(store.list("t/")) == [ObjectInfo(key, len(key.encode())) for key in expected]

    def test_a_listing_object_by_object_shows_each_once(self, store: ObjectStore) -> None:
        """In any order, and only those under the prefix."""
        for name in ("t/a", "t/b/1", "t/b/2", "t/bc", "u/a"):
            store.create(name, name.encode())
        for prefix in ("", "t/", "t/b", "t/b/", "v"):
            found: list[ObjectInfo] = []
            list_each(store, prefix, found.append)
            assert sorted(found) == sorted(store.list(prefix))

    def test_start_after_is_exclusive(self, store: ObjectStore) -> None:
        """The listing begins after the given key, wherever that lies, whether or not it exists."""
        keys = [f"t/{name}" for name in ("a", "a-b", "b/1", "b/2", "b/3/x", "b0", "c")]
        for key in keys:
            store.create(key, b"")
        marks = [*keys, "t/", "t/a!", "t/b", "t/b/", "t/b-", "t/b/2/z", "t/b/9", "t/b/~", "s", "z", "t/zz"]
        for mark in [mark for mark in marks if mark not in self.skipped_marks]:
            found = [info.key for info in store.list("t/", mark)]
            assert found == [key for key in keys if key.encode() > mark.encode()], mark

    def test_prefix(self, store: ObjectStore) -> None:
        """A prefix ends anywhere: at a slash, within a name, or nowhere."""
        keys = [
            "_txnlog/log/1",
            "_txnlog/log/10",
            "_txnlog/log/2",
            "_txnlog/logs",
            "t-1/data/x",
            "t-2/data/y",
        ]
        for key in keys:
            store.create(key, b"")
        prefixes = [
            "",
            "_txnlog/",
            "_txnlog/log",
            "_txnlog/log/",
            "_txnlog/log/1",
            "t-",
            "t-1/",
            "t-2/data/y",
            "x",
        ]
        for prefix in prefixes:
            found = [info.key for info in store.list(prefix)]
            assert found == [key for key in keys if key.startswith(prefix)], prefix
        assert [info.key for info in store.list("_txnlog/log/1", "_txnlog/log/1")] == ["_txnlog/log/10"]

    def test_empty_listing(self, store: ObjectStore) -> None:
        """Nothing there is an empty listing, not an error: in a new store, and where all was deleted."""
        assert store.list("") == []
        assert store.list("never/was/") == []
        store.create("a/b/c", b"")
        store.delete("a/b/c")
        assert store.list("a/") == []
        assert store.list("a/b/", "a/b/a") == []

    def test_store_time_comes_from_the_store(self, store: ObjectStore) -> None:
        """Milliseconds since the epoch, never going back unless the clock is set: a plausible year will
        do.
        """
        year_2020_ms, year_2100_ms = 1_577_836_800_000, 4_102_444_800_000
        assert year_2020_ms < store.store_time_ms() < year_2100_ms

    def test_url_names_the_store(self, store: ObjectStore) -> None:
        """Messages can say which store it was."""
        assert "://" in store.url

    def test_one_winner_of_concurrent_creates(self, store: ObjectStore) -> None:
        """Exactly one of several threads that create one key at the same moment wins, and its bytes are
        there.
        """

        def racer(key: str, number: int) -> CreateOutcome:
            return store.create(key, b"%d " % number * 1000).outcome

        for race in range(self.races):
            key = f"a/{race}"
            outcomes = _at_once(partial(racer, key))
            winners = [number for number, outcome in enumerate(outcomes) if outcome is CreateOutcome.CREATED]
            assert len(winners) == 1
            assert outcomes.count(CreateOutcome.EXISTS) == THREADS - 1
            assert store.get(key) == b"%d " % winners[0] * 1000
        assert len(store.list("a/")) == self.races

    def test_concurrent_puts_never_mix(self, store: ObjectStore) -> None:
        """A reader during replacements sees one version whole; in the end one writer's bytes are there."""
        versions = [b"%d " % number * 5000 for number in range(THREADS)]
        store.put("a/hint", versions[0])
        seen: list[bytes | None] = []

        def work(number: int) -> None:
            for _ in range(5):
                store.put("a/hint", versions[number])
                seen.append(store.get("a/hint"))

        _at_once(work)
        assert len(seen) == THREADS * 5
        assert set(seen) <= set(versions)
        assert store.get("a/hint") in versions


def _at_once(work: Callable[[int], Answer]) -> list[Answer]:
    """Return ``work(0)`` … of as many threads, all let go at the same moment."""
    barrier = threading.Barrier(THREADS)

    def one(number: int) -> Answer:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, range(THREADS)))
