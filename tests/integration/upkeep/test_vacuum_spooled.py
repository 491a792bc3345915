"""A vacuum of more objects than fit in memory: it comes to the same, part by part."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.upkeep.vacuum_world import GRACE, World, one_by_one, unnamed
from txnformat import keys
from txnformat.admin.garbage import VacuumReport
from txnformat.core.wire.small_documents import decode_condemned
from txnformat.errors import StorageError
from txnformat.store.base import ObjectInfo
from txnformat.store.wrapped import WrappedStore

MEMORY = "txnformat.verify.spool.MEMORY_BYTES"


@pytest.fixture(scope="module")
def template() -> World:
    with one_by_one():
        return World()


@pytest.fixture
def world(template: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(MEMORY, 200)
    with one_by_one():
        yield template.copied()


def told(report: VacuumReport) -> list[tuple[Any, ...]]:
    """Return the rows, without the examples: those of other parts may come first."""
    return [(row.fate, row.kind, row.why, row.objects, row.bytes) for row in report.rows]


def listed(world: World) -> set[str]:
    """Return the objects, without the ids of lists that a vacuum made."""
    length = len(keys.CONDEMNED_PREFIX) + 20
    return {
        info.key[:length] if info.key.startswith(keys.CONDEMNED_PREFIX) else info.key
        for info in world.store.list("")
    }


def test_parts_come_to_the_same_as_all_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    other = world.copied()
    for _ in range(3):
        world.wait()
        with monkeypatch.context() as patch:
            patch.setattr(MEMORY, 2**24)
            expected = [told(other.opened().vacuum(GRACE, dry_run=True)), told(other.opened().vacuum(GRACE))]
        assert [
            told(world.opened().vacuum(GRACE, dry_run=True)),
            told(world.opened().vacuum(GRACE)),
        ] == expected
        assert listed(world) == listed(other)
        assert unnamed(world.opened()) == unnamed(other.opened())
    assert unnamed(world.opened()) == set()
    world.check()


def test_lists_of_what_is_condemned_are_cut_and_go_each_with_the_last_of_its_objects(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txnformat.admin.vacuum.CONDEMNED_KEYS_MAX", 3)
    garbage = unnamed(world.opened())
    world.wait()
    log = world.opened()
    log.vacuum(GRACE)
    named = [info.key for info in world.store.list(keys.CONDEMNED_PREFIX)]
    documents = [decode_condemned(world.store.get(key) or b"", key, log.log_id).keys for key in named]
    assert sorted(map(len, documents)) == [2, *[3] * 5]
    assert {key for one in documents for key in one} == garbage
    assert all(list(one) == sorted(one) for one in documents)
    world.wait()
    store = Undeletable(world.store, documents[0][0])
    with pytest.raises(StorageError):
        world.opened(store).vacuum(GRACE)
    assert documents[0][0] in unnamed(world.opened())
    assert named[0] in {info.key for info in world.store.list(keys.CONDEMNED_PREFIX)}
    world.opened().vacuum(GRACE)
    assert unnamed(world.opened()) == set()
    assert not world.store.list(keys.CONDEMNED_PREFIX)


class Undeletable(WrappedStore):
    """A store with one object that its account may not delete."""

    def __init__(self, inner: Any, key: str) -> None:
        super().__init__(inner)
        self._key = key

    def delete(self, key: str) -> None:
        if key == self._key:
            raise StorageError("the store refuses", kind="permission-denied")
        super().delete(key)


class CutOff(WrappedStore):
    """A store whose first listing ends in the middle."""

    left = 10

    def list_each(self, prefix: str, take: Callable[[ObjectInfo], object]) -> None:
        def some(info: ObjectInfo) -> None:
            take(info)
            self.left -= 1
            if self.left == 0:
                raise StorageError("the connection broke", transient=True)

        super().list_each(prefix, some)


def test_a_listing_that_ends_in_the_middle_begins_anew_and_counts_nothing_twice(world: World) -> None:
    world.wait()
    expected = told(world.opened().vacuum(GRACE, dry_run=True))
    store = CutOff(world.store)
    assert told(world.opened(store).vacuum(GRACE, dry_run=True)) == expected
    assert store.left < 0


def test_a_full_temporary_directory_stops_the_vacuum_before_it_deletes_anything(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    for _ in range(2):
        world.wait()
        before = {info.key for info in world.store.list("")}
        with monkeypatch.context() as patch:
            patch.setattr(tempfile, "TemporaryFile", full)
            with pytest.raises(StorageError) as caught:
                world.opened().vacuum(GRACE)
        assert caught.value.kind == "disk-full"
        assert {info.key for info in world.store.list("")} == before
        world.opened().vacuum(GRACE)
    assert unnamed(world.opened()) == set()
