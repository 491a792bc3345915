"""docs/cli.md says what the command line has, and the commands in the documentation work."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.meta.cli_reference import DOCUMENT, commands, exit_codes, written
from tests.meta.markdown import ROOT, blocks, codes, section, tables
from txnlog.cli import failures
from txnlog.cli.app import application


def test_the_reference_is_that_of_the_code() -> None:
    """If not: python -m tests.meta.cli_reference."""
    assert DOCUMENT.read_text(encoding="utf-8") == written()


def test_the_exit_codes_are_those_of_the_code() -> None:
    (table,) = tables(section(DOCUMENT.read_text(encoding="utf-8"), "## Errors and exit codes"))
    rows = {int(row[0]): codes(row[2]) for row in table.rows}
    assert {code: names for code, names in rows.items() if names} == {
        code: [cls.__name__ for cls in classes] for code, classes in exit_codes().items()
    }
    assert set(rows) - set(exit_codes()) == {
        0,
        failures.NEGATIVE,
        failures.INTERRUPTED,
        failures.TERMINATED,
        failures.BROKEN_PIPE,
    }


def _run(script: str, directory: Path) -> str:
    """Run shell commands as a user would, with ``txnlog`` being ours."""
    program = f'txnlog() {{ {shlex.quote(sys.executable)} -m txnlog "$@"; }}\n'
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", program + script],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("name", ["README.md", "docs/cli.md"])
def test_the_commands_work(name: str, tmp_path: Path) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    (script,) = [block.text for block in blocks(text) if block.info == "sh" and "txnlog " in block.text]
    assert "orders" in _run(script, tmp_path)


def test_every_command_that_is_named_exists() -> None:
    names = {name for name, _ in commands()} | set(application.commands)
    text = DOCUMENT.read_text(encoding="utf-8")
    for code in codes(text):
        if code.startswith("txnlog ") and not code.startswith("txnlog consume orders"):
            words = code.split()
            assert " ".join(words[1:3]) in names or words[1] in names, code


def test_the_program_is_installed_under_its_name() -> None:
    assert "txnlog = txnlog.__main__:main" in (ROOT / "setup.cfg").read_text(encoding="utf-8")
