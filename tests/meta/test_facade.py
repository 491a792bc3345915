"""The facade ``txnlog``: every name is there, and importing it costs nothing."""

from __future__ import annotations

import ast
import subprocess
import sys

import txnlog
from tests.meta.markdown import ROOT


def test_every_name_is_there_and_listed() -> None:
    for name in txnlog.__all__:
        assert getattr(txnlog, name) is not None
    assert set(txnlog.__all__) <= set(dir(txnlog))


def test_the_names_for_type_checkers_are_those_that_are_loaded_later() -> None:
    source = ast.parse((ROOT / "txnlog" / "__init__.py").read_text(encoding="utf-8"))
    (block,) = [node for node in source.body if isinstance(node, ast.If)]
    declared = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert declared == txnlog._LATER
    assert set(declared) <= set(txnlog.__all__)


def test_no_name_needs_spark_before_it_is_used() -> None:
    """``from txnlog import *`` works where Spark is not installed."""
    code = "import sys; from txnlog import *; print(SparkTransaction.__name__, 'pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["SparkTransaction", "False"]


def test_importing_it_loads_nothing_heavy() -> None:
    """``txnlog --help`` and completions wait for it. What needs pyarrow is in ``_LATER``."""
    code = "import sys, txnlog; print([name for name in ('pyarrow', 'numpy', 'rich') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
