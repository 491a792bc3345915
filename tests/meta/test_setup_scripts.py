"""What `make demo` and `make test` do first on a fresh machine, where something is missing: one clear
message."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Hides every directory in which the script looks for Java: in a mount namespace of its own, so only for this
# process.
HIDE_JAVA = """
for directory in /usr/lib/jvm /usr/java /usr/local/java /opt/java /opt/jdk* /usr/local/openjdk*; do
    if [ -d "$directory" ]; then mount -t tmpfs none "$directory" || exit 77; fi
done
exec scripts/find-java
"""


def _environment(home: Path, **changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYTHON")}
    return {**kept, "HOME": str(home), "TXNLOG_NO_INSTALL": "1", **changes}


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_without_java_one_message_says_what_to_install(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or _run([unshare, "--mount", "true"], _environment(tmp_path)).returncode != 0:
        pytest.skip("hiding the machine's Java needs a mount namespace, which this machine does not allow")
    environment = _environment(tmp_path, PATH="/usr/sbin:/usr/bin:/sbin:/bin")  # no version manager's Java
    done = _run([unshare, "--mount", "sh", "-c", HIDE_JAVA], environment)
    if done.returncode == 77:
        pytest.skip("hiding the machine's Java needs the right to mount")
    assert done.returncode == 1
    assert done.stdout == ""
    (message,) = done.stderr.splitlines()
    assert message.startswith("txnlog: Spark needs Java 17 or later")
    assert "apt-get install" in message
    assert "JAVA_HOME" in message


def test_a_java_home_without_java_is_said_and_passed_over(tmp_path: Path) -> None:
    done = _run(["scripts/find-java"], _environment(tmp_path, JAVA_HOME=str(tmp_path)))
    assert f"JAVA_HOME={tmp_path} holds no Java 17 or later" in done.stderr
    if done.returncode == 0:
        assert (Path(done.stdout.strip()) / "bin" / "java").is_file()


def test_without_a_browser_one_message_says_what_to_install(tmp_path: Path) -> None:
    """The tests of pages are then skipped: nothing fails."""
    for name in ("sh", "dirname", "printf", "id"):
        found = shutil.which(name)
        if found is not None:
            (tmp_path / name).symlink_to(found)
    done = _run(["scripts/find-chromium"], _environment(tmp_path, PATH=str(tmp_path), TXNLOG_CHROMIUM=""))
    assert (done.returncode, done.stdout) == (0, "")
    (message,) = done.stderr.splitlines()
    assert message.startswith("txnlog: no Chromium was found")
    assert "apt-get install" in message


def test_a_browser_that_is_named_is_taken(tmp_path: Path) -> None:
    program = tmp_path / "browser"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    done = _run(["scripts/find-chromium"], _environment(tmp_path, TXNLOG_CHROMIUM=str(program)))
    assert (done.returncode, done.stdout) == (0, f"{program}\n")


def test_a_python_that_is_none_is_refused_in_one_line(tmp_path: Path) -> None:
    done = _run(["scripts/find-python"], _environment(tmp_path, PYTHON=str(tmp_path / "python")))
    assert done.returncode == 1
    assert done.stderr == f"txnlog: PYTHON={tmp_path / 'python'} is not Python 3.11 or later\n"


def test_a_python_is_found(tmp_path: Path) -> None:
    done = _run(["scripts/find-python"], _environment(tmp_path))
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_file()


def _dry(target: str) -> list[str]:
    done = _run(["make", "-n", *target.split()], dict(os.environ))
    assert done.returncode == 0, done.stderr
    return done.stdout.replace("\\\n", " ").split()


def test_make_test_and_make_faults_run_each_test_once() -> None:
    """Of the two and CI, which runs both, none leaves a test out."""
    left = {word.removeprefix("--ignore=") for word in _dry("test") if word.startswith("--ignore=")}
    faults = {word for word in _dry("faults") if word.startswith("tests/")}
    assert left == faults
    assert len(faults) > 20
    assert [name for name in faults if not (ROOT / name).exists()] == []
    assert {"scripts/run", "tests"} <= set(_dry("test"))
    assert not [word for word in _dry("test TESTS=tests/power") if word.startswith("--ignore=")]
    targets = next(
        line
        for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
        if line.startswith("for ")
    )
    assert {"test", "faults"} <= set(targets.replace(";", " ").split())
