"""The facade ``txnlog``: every name is there, and importing it costs nothing."""

from __future__ import annotations

import ast
import subprocess
import sys

import txnlog
from tests.meta.markdown import ROOT

NAMES: list[str] = vars(txnlog)["__all__"]


def test_every_name_is_there_and_listed() -> None:
    for name in NAMES:
        assert getattr(txnlog, name) is not None
    assert set(NAMES) <= set(dir(txnlog))


def test_type_checkers_see_every_name() -> None:
    """The stub re-exports each under its own name: without ``as``, none of them would be public."""
    stub = ast.parse((ROOT / "txnlog" / "__init__.pyi").read_text(encoding="utf-8"))
    names = {alias.name: alias.asname for node in stub.body for alias in getattr(node, "names", ())}
    assert names == {name: name for name in NAMES}


def test_the_stub_is_installed_with_the_package() -> None:
    """Without it there would be no names at all."""
    assert "*.pyi" in (ROOT / "setup.cfg").read_text(encoding="utf-8")


def test_no_name_needs_spark_before_it_is_used() -> None:
    """``from txnlog import *`` works where Spark is not installed."""
    code = "import sys; from txnlog import *; print(SparkTransaction.__name__, 'pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["SparkTransaction", "False"]


def test_importing_it_loads_nothing_heavy() -> None:
    """``txnlog --help`` and completions wait for it. Every name is loaded when it is first used."""
    code = "import sys, txnlog; print([name for name in ('pyarrow', 'numpy', 'rich') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
