"""The last look before the certificate: uploads that are under way, completed or left while it goes on."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.erasure.world import CANARY, GRACE, canaries, complete, made, pass_time, write
from tests.model.groups import ManualClock
from txnformat import keys
from txnformat.admin.erasure.status import ErasureStage
from txnformat.core.lifecycle.state import COMPLETE_MAX
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.unfinished import UnfinishedUpload
from txnlog import StorageError, TxnLog

WHERE = f"name LIKE '{CANARY}%'"


class Completing(MemoryStore):
    """Has an upload under way that is completed just before uploads are listed, once it is armed: as S3 does,
    it then lists the object alone."""

    pending: tuple[str, bytes] | None = None
    armed = False

    def unfinished_uploads(self, before_ms: int) -> list[UnfinishedUpload]:
        if self.pending is not None and self.armed:
            key, data = self.pending
            self.pending = None
            self.create(key, data)
        return [] if self.pending is None else [UnfinishedUpload(self.pending[0], "upload", 0)]


def test_an_upload_that_is_completed_while_the_last_look_goes_on_is_seen() -> None:
    clock = ManualClock()
    store = Completing(clock)
    log = made(store, clock)
    write(log, f"{CANARY}1", "a")
    data = store.get(next(iter(canaries(store))))
    assert data is not None
    late = keys.data_key(log.refresh().topic("t").directory, log.state.entry, str(uuid.uuid4()))
    store.pending = (late, data)
    log.erase("t", WHERE, requested_by="the desk")
    complete(log)
    (status,) = log.erasures()
    assert status.stage is ErasureStage.DELETING
    store.armed = True
    (status,) = log.maintain("erasures").erasures
    assert (status.stage, list(canaries(store))) == (ErasureStage.DELETING, [late])
    assert late in status.missing[0]
    entry = log.refresh().entry
    assert log.erasures()[0].missing[0].startswith("a check that vacuums")
    assert log.erasures(look=True)[0].missing == status.missing
    store.delete(late)
    assert log.erasures(look=True)[0].missing[0].startswith("only the certificate")
    assert log.refresh().entry == entry
    store.create(late, data)
    complete(log)
    assert log.erasures(look=True)[0].missing == ()
    (status,) = log.erasures()
    assert (status.stage, canaries(store)) == (ErasureStage.COMPLETE, {})


@pytest.mark.parametrize("late", [False, True], ids=["before the rewriting", "after it"])
def test_a_temporary_file_is_left_to_a_vacuum_whenever_it_was_written(tmp_path: Path, late: bool) -> None:
    """An erasure that was rewritten long before is due at the same look; a compactor that planned before the
    other one is killed."""
    clock = ManualClock()
    store = LocalStore(tmp_path, clock=clock)
    log = made(store, clock)
    write(log, f"{CANARY}1", "a")
    data = store.get(next(iter(canaries(store))))
    assert data is not None
    log.erase("t", "name = 'nobody'", requested_by="first")
    pass_time(log)
    left = tmp_path / log.refresh().topic("t").directory / "data" / f".tmp-{uuid.uuid4()}"

    between = clock.ms / 1000
    clock.sleep(600)
    log.erase("t", WHERE, requested_by="second")
    pass_time(log)
    log.vacuum(GRACE)
    pass_time(log)
    log.vacuum(GRACE)
    # The file from before is there as if the vacuum had been killed before it came to temporary files.
    left.write_bytes(data)
    written = clock.ms / 1000 if late else between
    os.utime(left, (written, written))
    status = log.maintain("erasures").erasures[-1]
    assert (status.requested_by, status.stage) == ("second", ErasureStage.DELETING)
    assert left.name in status.missing[0]
    complete(log)
    assert not left.exists()
    assert {one.stage for one in log.erasures()} == {ErasureStage.COMPLETE}


class Changing(LocalStore):
    """Has one temporary file when uploads are listed for the first time, and another one, or an error, at the
    second time."""

    left: Path | None = None
    fails = False
    listings = 0

    def unfinished_uploads(self, before_ms: int) -> Sequence[UnfinishedUpload]:
        if self.left is None:
            return super().unfinished_uploads(before_ms)
        self.listings += 1
        if self.listings == 2 and self.fails:
            raise StorageError("access denied", kind="access-denied")
        if self.listings == 2:
            self.left.unlink()
            self.left = self.left.with_name(f".tmp-{uuid.uuid4()}")
        self.left.write_bytes(b"")
        return super().unfinished_uploads(before_ms)


@pytest.mark.parametrize("fails", [False, True], ids=["other files", "an error"])
def test_temporary_files_of_writers_that_run_do_not_keep_the_certificate_back(
    tmp_path: Path, fails: bool
) -> None:
    clock = ManualClock()
    store = Changing(tmp_path, clock=clock)
    log = made(store, clock)
    write(log, f"{CANARY}1", "a")
    log.erase("t", WHERE, requested_by="the desk")
    for _ in range(3):
        pass_time(log)
        log.vacuum(GRACE)
    store.left = tmp_path / log.refresh().topic("t").directory / "data" / f".tmp-{uuid.uuid4()}"
    store.fails = fails
    (status,) = log.maintain("erasures").erasures
    assert store.listings == 2
    if fails:
        assert "unfinished uploads could not be listed: access denied" in status.missing[0]
    else:
        assert status.stage is ErasureStage.COMPLETE


class Abandoning(MemoryStore):
    """Has another client abandon an erasure while the last look goes on."""

    abandons: Callable[[], object] | None = None

    def unfinished_uploads(self, before_ms: int) -> list[UnfinishedUpload]:
        if self.abandons is not None:
            abandon, self.abandons = self.abandons, None
            abandon()
        return []


def test_more_than_the_state_keeps_are_completed_at_one_look_and_one_is_abandoned_meanwhile() -> None:
    clock = ManualClock()
    store = Abandoning(clock)
    log = made(store, clock)
    write(log, "a")
    erased = [
        log.erase("t", "n = -1", requested_by=str(number), key=f"{number:032}").status
        for number in range(COMPLETE_MAX + 2)
    ]
    for _ in range(2):
        pass_time(log)
        log.vacuum(GRACE)
    assert erased[1] is not None
    lost = erased[1].erasure_id
    other = TxnLog.open(store, clock=clock)
    store.abandons = lambda: other.abandon_erasure(lost, requested_by="the desk")
    told = log.maintain("erasures").erasures
    assert [one.requested_by for one in told] == ["0", *map(str, range(2, COMPLETE_MAX + 2))]
    assert {(one.stage, one.missing) for one in told} == {(ErasureStage.COMPLETE, ())}
    assert len(log.erasures()) == COMPLETE_MAX
