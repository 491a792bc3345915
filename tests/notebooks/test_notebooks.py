"""Every notebook is valid, runs from top to bottom, and shows what is stored in it."""

from __future__ import annotations

import ast
import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from tests.notebooks.kernel import CHECKS, PICTURE
from tests.notebooks.running import (
    NOTEBOOKS,
    SECONDS_MAX,
    code_cells,
    read_notebook,
    run_notebook,
    same_text,
    texts,
)
from tests.rounds import rounds

TWICE = rounds(("01_quickstart.ipynb",), tuple(path.name for path in NOTEBOOKS))
"""Notebooks that run both ways; the others run as Databricks has it, unless it is `make campaigns`: most of
their time goes to the start of Spark, or of writers that are killed."""

VARIES = "varies"
"""Tag of cells that show measurements: no two runs show the same."""

PIXELS_OFF_MAX = 0.02
"""Share of the pixels of a stored picture that may differ from those of a run: letters are drawn a little
differently by another version."""


def test_there_are_notebooks_and_their_names_give_an_order() -> None:
    assert [path.name[:3] for path in NOTEBOOKS] == [
        f"{number:02d}_" for number in range(1, len(NOTEBOOKS) + 1)
    ]
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_has_the_form_that_jupyter_asks_for(path: Path) -> None:
    """What the JSON schema of notebook format 4.5 requires of what we use of it."""
    notebook = read_notebook(path)
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
    assert [cell["execution_count"] for cell in code_cells(notebook)] == list(
        range(1, len(code_cells(notebook)) + 1)
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_plain_python_for_readers_and_its_checks_are_elsewhere(path: Path) -> None:
    """No magic, so that it runs anywhere, and no assert, which readers would have to read;
    ``tests/notebooks/checks`` has them."""
    ids = set()
    for cell in code_cells(read_notebook(path)):
        tree = ast.parse("".join(cell["source"]))  # a magic or a shell command is no Python
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.Assert)], cell["id"]
        ids.add(f"after_{cell['id'].replace('-', '_')}")
    checks = ast.parse((CHECKS / f"{path.stem[3:]}.py").read_text(encoding="utf-8"))
    assert sum(isinstance(node, ast.Assert) for node in ast.walk(checks)) >= 3
    assert {node.name for node in checks.body if isinstance(node, ast.FunctionDef)} <= ids


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_begins_with_what_it_needs(path: Path) -> None:
    """The package by ``%pip``, a root that executors see, and credentials."""
    notebook = read_notebook(path)
    before, install, root = (cell for cell in notebook["cells"] if cell["id"].startswith("start-"))
    assert all(line.startswith("# ") for line in install["source"])
    assert "%pip install" in install["source"][0]
    text, source = "".join(before["source"]), "".join(root["source"])
    for word in ("/Volumes/", "executors", "redentials", "widget", "secret"):
        assert word in text
    assert 'dbutils.widgets.get("root")' in source
    assert "TXNLOG_ROOT" in source
    assert "tempfile" not in source


@pytest.mark.timeout(SECONDS_MAX + 60)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_twice_and_shows_what_is_stored_in_it(path: Path, tmp_path: Path) -> None:
    """As "run all" does it twice in the same place, the second time as Databricks has it: the place comes
    from a widget. It writes nowhere else."""
    times = 2 if path.name in TWICE else 1
    done = run_notebook(path, tmp_path, times)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^logs: (.*)", done.stdout, re.MULTILINE) == ["1", "2"][:times]
    assert len(list((tmp_path / "out").iterdir())) == times
    assert not list((tmp_path / "cwd").iterdir())
    stored = [(cell, cell["outputs"]) for cell in code_cells(read_notebook(path))]
    assert [one for _, outputs in stored for one in outputs if one["output_type"] == PICTURE]
    for run in json.loads((tmp_path / "outputs.json").read_text(encoding="utf-8")):
        for (cell, outputs), shown in zip(stored, run, strict=True):
            where = (
                f"{path.name}, {cell['id']}: `python -m tests.notebooks.running {path.name[:2]}` "
                "stores it anew"
            )
            assert [one["output_type"] for one in outputs] == [one["output_type"] for one in shown], where
            pairs = [pair for pair in zip(outputs, shown, strict=True) if pair[0]["output_type"] == PICTURE]
            assert [one["data"]["text/plain"] for one, _ in pairs] == [
                other["data"]["text/plain"] for _, other in pairs
            ], where
            if VARIES not in cell["metadata"].get("tags", ()):
                assert same_text(texts(outputs), texts(shown)), f"{where}\n{texts(shown)}"
                for one, other in pairs:
                    assert _pixels_off(one, other) <= PIXELS_OFF_MAX, where


def _pixels(output: dict[str, Any]) -> Any:
    return matplotlib.image.imread(io.BytesIO(base64.b64decode(output["data"]["image/png"])))


def _pixels_off(one: dict[str, Any], other: dict[str, Any]) -> float:
    left, right = _pixels(one), _pixels(other)
    if left.shape != right.shape:
        return 1.0
    return float((np.abs(left - right).max(axis=2) > 0.1).mean())


def _failing(tmp_path: Path, *source: str) -> str:
    cells = [{"cell_type": "code", "id": "last", "source": list(source)}]
    (tmp_path / "00_bad.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    done = run_notebook(tmp_path / "00_bad.ipynb", tmp_path / "run")
    assert done.returncode == 1
    return done.stderr


def test_a_notebook_that_fails_is_reported(tmp_path: Path) -> None:
    assert '"<last>", line 2' in _failing(tmp_path, "x = 1\n", "assert x == 2")


def test_other_texts_and_other_pictures_are_seen(tmp_path: Path) -> None:
    assert same_text("/data/quickstart-0a1b2c3d\n3 rows", "/data/quickstart-99999999\n3 rows")
    assert not same_text("3 rows", "4 rows")
    source = (
        "import matplotlib.pyplot as plt\n",
        "plt.subplots()[1].bar([1, 2], [1, 1])\n",
        "plt.subplots()[1].bar([1, 2], [1, 2])\n",
        "plt.subplots()[1].bar([1, 2], [1, 1])\n",
    )
    cells = [{"cell_type": "code", "id": "only", "source": list(source)}]
    (tmp_path / "00_drawn.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    done = run_notebook(tmp_path / "00_drawn.ipynb", tmp_path / "run", times=1)
    assert done.returncode == 0, done.stderr
    ((shown,),) = json.loads((tmp_path / "run" / "outputs.json").read_text(encoding="utf-8"))
    assert _pixels_off(shown[0], shown[2]) == 0
    assert _pixels_off(shown[0], shown[1]) > PIXELS_OFF_MAX
