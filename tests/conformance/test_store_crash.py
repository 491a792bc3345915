"""``kill -9`` of a writing process: nothing torn is ever visible, nothing acknowledged is lost."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from txnformat.store.base import CreateOutcome
from txnformat.store.local import TEMPORARY_PREFIX, LocalStore

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("crashing_process.py")
STEPS_MAX = 40

_spec = importlib.util.spec_from_file_location("crashing_process", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
crashing_process = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(crashing_process)
KEY: str = crashing_process.KEY


@contextmanager
def _process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _killed_before_each_step(
    root: Path, action: str, prepared: bytes | None
) -> Iterator[tuple[str, LocalStore]]:
    """Yield (system call that was not made any more, the store as a new process finds it)."""
    for number in range(1, STEPS_MAX):
        place = root / str(number)
        if prepared is not None:
            LocalStore(place).put(KEY, prepared)
        with _process("step", str(place), action, str(number)) as process:
            line = _line(process)
        if line == "done":
            return
        assert line.startswith("before ")
        yield line.removeprefix("before "), LocalStore(place)
    pytest.fail("the action has no end")


@pytest.mark.parametrize("action", ["create", "stream"])
def test_kill_before_each_system_call_of_a_create(tmp_path: Path, action: str) -> None:
    """Before the link nothing is there, from the link on all of it; the key stays usable; no leftover
    matters."""
    steps: list[str] = []
    for step, store in _killed_before_each_step(tmp_path, action, None):
        # What follows the link: the temporary name goes, the directory is synced.
        linked = bool(steps) and (
            steps[-1] == "link" or (steps[-1] == "unlink" and step == "fsync_directory")
        )
        steps.append(step)
        assert store.get(KEY) == (b"new object" if linked else None), steps
        assert [info.key for info in store.list("")] == ([KEY] if linked else []), steps
        again = store.create(KEY, b"of another process")
        assert again.outcome is (CreateOutcome.EXISTS if linked else CreateOutcome.CREATED), steps
        assert store.get(KEY) == (b"new object" if linked else b"of another process")
    assert steps[-4:] == ["fsync_file", "link", "unlink", "fsync_directory"]


def test_kill_before_each_system_call_of_a_put(tmp_path: Path) -> None:
    """The old object or the new one, whole."""
    steps: list[str] = []
    for step, store in _killed_before_each_step(tmp_path, "put", b"old"):
        replaced = bool(steps) and steps[-1] == "replace"
        steps.append(step)
        assert store.get(KEY) == (b"new object" if replaced else b"old"), steps
        assert [info.key for info in store.list("")] == [KEY]
    assert steps[-3:] == ["fsync_file", "replace", "fsync_directory"]


@pytest.mark.parametrize("acknowledged", [1, 2, 5, 10, 17, 30])
def test_kill_at_any_moment_of_a_stream_of_writes(tmp_path: Path, acknowledged: int) -> None:
    """All visible data is whole, and all acknowledged data is visible."""
    with _process("stream", str(tmp_path)) as process:
        numbers = [int(_line(process)) for _ in range(acknowledged)]
        process.kill()
        assert process.stdout is not None
        numbers += [int(line) for line in process.stdout]  # acknowledged before the signal arrived
    assert numbers == list(range(len(numbers)))

    store = LocalStore(tmp_path)
    visible = {int(info.key.removeprefix("a/")): info for info in store.list("a/")}
    assert set(numbers) <= set(visible) <= {*numbers, len(numbers)}
    for number, info in visible.items():
        assert store.get(info.key) == crashing_process.object_bytes(number)
    leftovers = [path.name for path in (tmp_path / "a").iterdir() if path.name not in map(str, visible)]
    assert len(leftovers) <= 1
    assert all(name.startswith(TEMPORARY_PREFIX) for name in leftovers)
