"""The short run of `make power-cuts`; that it would find what it looks for; and one real ``kill -9``.

A process is killed before some of its system calls here, and before each of them by `make power-cuts`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.power.dying_process import APP
from tests.power.scenes import KILLED, SCENES, kill_everywhere
from tests.power.world import Machine, Tally
from tests.rounds import rounds
from txnformat import keys
from txnformat.core.intents import Write
from txnformat.store.local import LocalStore
from txnlog import TxnLog
from txnlog_testing.power_cut import CutPosix, Disk

ROOT = Path(__file__).resolve().parents[2]
SHORT = ("creating", "transactions, deferred", "idempotent", "sealing", "hundred", "groups")
"""Scenes of the short run: transactions of the other buffers make the same system calls."""
EVERY = rounds(17, 1)
"""Processes are killed before each call of this distance."""
FORGOTTEN = ("takes a version", "commits what is prepared")


class Forgetful(LocalStore):
    """A store whose readers make nothing durable."""

    def make_durable(self, keys: Sequence[str]) -> None:
        pass


class Unsynced(CutPosix):
    """A process that never syncs a directory."""

    def fsync_directory(self, directory: int) -> None:
        pass


class Torn(CutPosix):
    """A process that never syncs a file."""

    def fsync_file(self, file: int) -> None:
        pass


def _killed_while_it_answers(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("dying_process.py")), str(root)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, ""), done.stderr


def _holds_app(log: TxnLog) -> bool:
    return (APP.namespace, APP.app_id) in log.refresh().app_versions


@pytest.mark.parametrize("make_store", [LocalStore, Forgetful])
@pytest.mark.parametrize("asks", ["repeats", "reads"])
def test_what_a_killed_process_linked_and_did_not_sync_is_durable_before_anybody_is_told(
    tmp_path: Path, make_store: type[LocalStore], asks: str
) -> None:
    """The next process says "committed", then the power is cut: it stays so. Without the guard it was
    gone.
    """
    _killed_while_it_answers(tmp_path / "root")
    disk = Disk(tmp_path)
    disk.load(unsynced=[f"root/{keys.entry_key(2)}"])
    held = [_holds_app(TxnLog.open(tree.store("root"))) for tree in disk.survivors()]
    assert sorted(held) == [False, True], "a power cut now takes the entry away, or not"

    log = TxnLog.open(make_store(tmp_path / "root", posix=CutPosix(disk)))
    if asks == "repeats":
        assert log.committer.commit(log.committer.intend(Write(app=APP))).repeated
    assert _holds_app(log)
    held = [_holds_app(TxnLog.open(tree.store("root"))) for tree in disk.survivors()]
    assert all(held) == (make_store is LocalStore)


@pytest.mark.parametrize("embeds", [True, False])
@pytest.mark.parametrize("name", rounds(SHORT, tuple(SCENES)))
def test_what_was_told_survives_a_power_cut_at_every_system_call(name: str, embeds: bool) -> None:
    tally = Tally()
    machine = Machine(tally, name, embeds=embeds)
    try:
        SCENES[name](machine)
    finally:
        machine.close()
    assert tally.problems == []
    assert tally.calls["link"] >= 3
    assert tally.judged >= 10


@pytest.mark.parametrize("name", ["creates", *KILLED])
def test_what_the_next_process_tells_survives_a_power_cut(name: str) -> None:
    tally = Tally()
    for _ in kill_everywhere(name, "auto", lambda label: Machine(tally, label), EVERY):
        pass
    assert tally.problems == []
    assert tally.histories > 1


@pytest.mark.parametrize("name", rounds(FORGOTTEN, (*FORGOTTEN, "creates", "commits", "alters")))
def test_a_store_whose_readers_make_nothing_durable_is_found_out(name: str) -> None:
    tally = Tally()
    for _ in kill_everywhere(name, "auto", lambda label: Machine(tally, label, Forgetful)):
        if tally.problems:
            return
    pytest.fail("not found")


@pytest.mark.parametrize("posix", [Unsynced, Torn])
def test_a_store_that_skips_a_sync_is_found_out(posix: type[CutPosix]) -> None:
    tally = Tally()
    machine = Machine(tally, "creating", make_posix=posix)
    try:
        SCENES["creating"](machine)
    finally:
        machine.close()
    assert tally.problems
