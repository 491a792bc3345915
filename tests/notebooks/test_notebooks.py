"""Every notebook is valid, says what it claims with asserts, and runs from top to bottom."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.jvm import spark_environment
from tests.rounds import rounds

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

DIRECTORY = "TXNLOG_ROOT"
"""Where notebooks put their logs."""

ONCE = rounds(("03_streaming.ipynb",), ())
"""Notebooks that run as Databricks has it only, unless it is `make campaigns`: most of their time is Spark's."""

SECONDS_MAX = 900
"""A notebook that runs longer hangs; most of its time is Spark's start."""

# Runs the code cells in one namespace, as a kernel does, and then again in another one, where Databricks' widget says what
# the environment said before. Tracebacks name the cell and the line. The pictures that a kernel would show are counted.
RUN = """
import json, os, sys, types
path, variable, root, times = sys.argv[1:]
os.environ[variable] = root
widgets = types.SimpleNamespace(text=lambda *_: None, get=lambda name: {"root": root}[name])
for names in ({}, {"dbutils": types.SimpleNamespace(widgets=widgets)})[-int(times):]:
    namespace = {"__name__": "__main__", **names}
    for cell in json.load(open(path, encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            source, name = "".join(cell["source"]), f"<{cell['id']}>"
            exec(compile(source, name, "exec"), namespace)
    if "matplotlib.pyplot" in sys.modules:
        print("pictures:", len(sys.modules["matplotlib.pyplot"].get_fignums()))
        sys.modules["matplotlib.pyplot"].close("all")
    print("logs:", len(os.listdir(root)))
    os.environ[variable] = "/nowhere"
"""


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _run(path: Path, folder: Path, times: int = 2) -> subprocess.CompletedProcess[str]:
    """Run a notebook in one directory, with another one to write to; the last time as Databricks has it."""
    (folder / "cwd").mkdir(parents=True, exist_ok=True)
    (folder / "out").mkdir(exist_ok=True)
    env = {
        **os.environ,
        **spark_environment(folder),
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "spark"),
        "PYTHONWARNINGS": "error::DeprecationWarning:__main__",
        "MPLBACKEND": "Agg",
        "MPLCONFIGDIR": str(folder / "matplotlib"),
    }
    return subprocess.run(
        [sys.executable, "-c", RUN, str(path), DIRECTORY, str(folder / "out"), str(times)],
        cwd=folder / "cwd",
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )


def test_there_are_notebooks_and_their_names_give_an_order() -> None:
    assert [path.name[:3] for path in NOTEBOOKS] == [
        f"{number:02d}_" for number in range(1, len(NOTEBOOKS) + 1)
    ]
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_has_the_form_that_jupyter_asks_for(path: Path) -> None:
    """What the JSON schema of notebook format 4.5 requires of what we use of it."""
    notebook = _read(path)
    assert set(notebook) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"]["kernelspec"].keys() >= {"name", "display_name"}
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in notebook["cells"]:
        code = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert set(cell) == {"cell_type", "id", "metadata", "source"} | code
        assert cell["cell_type"] in ("code", "markdown")
        assert re.fullmatch(r"[a-zA-Z0-9-_]{1,64}", cell["id"])
        assert isinstance(cell["metadata"], dict)
        assert all(isinstance(line, str) for line in cell["source"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_plain_python_without_stored_results(path: Path) -> None:
    asserts = 0
    for cell in _read(path)["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert (cell["execution_count"], cell["outputs"]) == (None, [])
        tree = ast.parse("".join(cell["source"]))  # a magic or a shell command is no Python
        asserts += sum(isinstance(node, ast.Assert) for node in ast.walk(tree))
    assert asserts >= 3


@pytest.mark.timeout(SECONDS_MAX + 60)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_twice_in_the_same_place_and_writes_nowhere_else(path: Path, tmp_path: Path) -> None:
    """As "run all" does it twice, the second time as Databricks has it: the place comes from a widget."""
    times = 1 if path.name in ONCE else 2
    done = _run(path, tmp_path, times)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"^pictures: [1-9]", done.stdout, re.MULTILINE)) == times
    assert re.findall(r"^logs: (.*)", done.stdout, re.MULTILINE) == ["1", "2"][:times]
    assert len(list((tmp_path / "out").iterdir())) == times
    assert not list((tmp_path / "cwd").iterdir())


def test_a_notebook_that_fails_is_reported(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "id": "last", "source": ["x = 1\n", "assert x == 2"]}]
    (tmp_path / "bad.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    done = _run(tmp_path / "bad.ipynb", tmp_path / "run")
    assert done.returncode == 1
    assert '"<last>", line 2' in done.stderr
