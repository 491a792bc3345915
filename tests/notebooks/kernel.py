"""Runs a notebook as a kernel does, in a process of its own: ``python -m tests.notebooks.kernel NOTEBOOK
VARIABLE ROOT TIMES OUT``.

All code cells run in one namespace. The last time there is a ``dbutils`` with a widget, as Databricks has it,
and the environment variable leads nowhere. What a cell printed and the pictures that it drew go to the file
OUT, as JSON: a list for each time, with a list for each cell. After a cell the check of
``tests/notebooks/checks`` runs that has its name. Tracebacks name the cell and the line.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import io
import json
import os
import runpy
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["CHECKS", "PICTURE", "TEXT"]

CHECKS = Path(__file__).parent / "checks"
TEXT, PICTURE = "stream", "display_data"
DPI = 72


def _check(path: Path) -> Callable[[str, dict[str, Any]], None]:
    """Return what runs the check of a cell, if there is one, on a namespace."""
    file = CHECKS / f"{path.stem[3:]}.py"
    checks: dict[str, Any] = {}
    if file.exists():
        checks = runpy.run_path(str(file))

    def check(cell: str, namespace: dict[str, Any]) -> None:
        found = checks.get(f"after_{cell.replace('-', '_')}")
        if found is not None:
            found(types.SimpleNamespace(**namespace))

    return check


def _pictures() -> list[dict[str, Any]]:
    """Return the figures that are there as a kernel stores them, and close them."""
    if importlib.util.find_spec("matplotlib") is None or "matplotlib.pyplot" not in sys.modules:
        return []
    import matplotlib.pyplot as plt

    found = []
    for number in plt.get_fignums():
        figure = plt.figure(number)
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
        data = {
            "image/png": base64.b64encode(png.getvalue()).decode(),
            "text/plain": [f"<{str(figure).replace('Figure(', 'Figure size ').rstrip(')')}>"],
        }
        found.append({"output_type": PICTURE, "data": data, "metadata": {}})
    plt.close("all")
    return found


def _run(path: Path, namespace: dict[str, Any], root: str) -> list[list[dict[str, Any]]]:
    """Run all code cells; return the outputs of each, with ``/data`` in place of the root."""
    check = _check(path)
    outputs = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile("".join(cell["source"]), f"<{cell['id']}>", "exec"), namespace)  # noqa: S102  # our own notebooks
        found: list[dict[str, Any]] = []
        if text := said.getvalue().replace(root, "/data"):
            found.append({"output_type": TEXT, "name": "stdout", "text": text.splitlines(keepends=True)})
        outputs.append(found + _pictures())
        check(cell["id"], namespace)
    return outputs


def _main(path: str, variable: str, root: str, times: str, out: str) -> None:
    os.environ[variable] = root
    widgets = types.SimpleNamespace(text=lambda *_: None, get=lambda name: {"root": root}[name])
    databricks = {"dbutils": types.SimpleNamespace(widgets=widgets)}
    found = []
    for names in ({}, databricks)[-int(times) :]:
        if names:
            os.environ[variable] = "/nowhere"
        found.append(_run(Path(path), {"__name__": "__main__", **names}, root))
        print("logs:", len(list(Path(root).iterdir())))
    Path(out).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    _main(*sys.argv[1:])
