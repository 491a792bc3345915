"""A real process that maintains a log on a local disk is killed by SIGKILL in the middle of each task."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.maintenance.deaths import WRITES, examine, requests_of
from tests.maintenance.tasks import TASKS, world_of
from txnformat.store.local import LocalStore


@pytest.mark.parametrize("name", TASKS)
def test_a_process_is_killed_in_the_middle_of_a_task(name: str, tmp_path: Path) -> None:
    task, left = TASKS[name], world_of(name).copied()
    root = tmp_path / "log"
    for key, data in left.store._objects.items():
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    writes = [one for one in requests_of(task, left) if one[0] in WRITES]
    middle = (len(writes) - 1) // 2
    killed = subprocess.run(
        [sys.executable, "-m", "tests.maintenance.killed", name, root, str(left.clock.ms), str(middle)],
        cwd=Path(__file__).parents[2],
        check=False,
    )
    # A task whose last write is its last request is over before it can die.
    assert killed.returncode in (-signal.SIGKILL, 0 if len(writes) == 1 else -signal.SIGKILL)
    store = LocalStore(root)
    objects = {info.key: store.get(info.key) or b"" for info in store.list("")}
    assert objects != left.store._objects
    left.store._created_ms = {
        key: left.store._created_ms.get(key, left.clock.now().wall_ms) for key in objects
    }
    left.store._objects = objects
    left.store.renew()
    examine(task, left, in_use=False)
