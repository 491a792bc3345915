"""Automatic registration: the module that Spark imports in every worker is light and never raises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LIGHT = """
import sys
import pyspark_txnlog
assert pyspark_txnlog.DefaultSource.name() == "txnlog"
heavy = {"pyarrow", "numpy", "txnformat.log", "writers", "spark_datasource.options.write"} & set(sys.modules)
assert not heavy, heavy
"""
BROKEN = """
import sys
sys.modules["spark_datasource.datasource"] = None  # importing it raises ImportError
import pyspark_txnlog
assert not hasattr(pyspark_txnlog, "DefaultSource")
"""


@pytest.mark.parametrize("script", [LIGHT, BROKEN], ids=["light", "never-raising"])
def test_importing_the_registration_module_is(script: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(ROOT)}, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
