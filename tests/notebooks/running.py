"""Notebooks as files, their runs, and their stored outputs. ``python -m tests.notebooks.running [01 …]`` runs
notebooks and stores what they show."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.jvm import spark_environment

__all__ = [
    "NOTEBOOKS",
    "SECONDS_MAX",
    "code_cells",
    "read_notebook",
    "run_notebook",
    "same_text",
    "texts",
]

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

DIRECTORY = "TXNLOG_ROOT"
"""Where notebooks put their logs."""

SECONDS_MAX = 900
"""A notebook that runs longer hangs; most of its time is Spark's start."""


def read_notebook(path: Path) -> dict[str, Any]:
    """Return a notebook as its file has it."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells of code, in their order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run_notebook(path: Path, folder: Path, times: int = 2) -> subprocess.CompletedProcess[str]:
    """Run a notebook in one directory, ``cwd``, with another one to write to, ``out``; the last time as
    Databricks has it. ``outputs.json`` has what it showed."""
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
    kernel = [sys.executable, "-m", "tests.notebooks.kernel", str(path), DIRECTORY, str(folder / "out")]
    return subprocess.run(
        [*kernel, str(times), str(folder / "outputs.json")],
        cwd=folder / "cwd",
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )


def texts(outputs: list[dict[str, Any]]) -> str:
    """Return what a cell printed."""
    return "".join("".join(one["text"]) for one in outputs if one["output_type"] == "stream")


def same_text(one: str, other: str) -> bool:
    """Return whether two outputs differ in nothing but what each run makes anew: the names of logs and
    ids.
    """
    return _without_ids(one) == _without_ids(other)


def _without_ids(text: str) -> str:
    return re.sub(r"\b[0-9a-f]{8,}\b", "*", text)


def _store(path: Path) -> None:
    """Run a notebook once, and store what it shows."""
    with tempfile.TemporaryDirectory() as folder:
        done = run_notebook(path, Path(folder), times=1)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        (outputs,) = json.loads((Path(folder) / "outputs.json").read_text(encoding="utf-8"))
    notebook = read_notebook(path)
    for number, (cell, shown) in enumerate(zip(code_cells(notebook), outputs, strict=True), 1):
        cell["execution_count"], cell["outputs"] = number, shown
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{path.name}: stored")


if __name__ == "__main__":
    for notebook in NOTEBOOKS:
        if not sys.argv[1:] or notebook.name[:2] in sys.argv[1:]:
            _store(notebook)
