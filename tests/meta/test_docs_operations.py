"""Pages for operators and docs/engines.md name what the code has, and docs/troubleshoot.md every failure that
is not bad input."""

from __future__ import annotations

import ast
import re

import pytest

from tests.meta.cli_reference import commands
from tests.meta.kinds import KINDS, PACKAGES
from tests.meta.markdown import ROOT, codes, prose, section, tables
from tests.meta.pages import page, text_of_pages
from txnformat.admin.maintenance import METRICS as UPKEEP
from txnformat.admin.metrics import METRICS
from txnformat.errors import UnsupportedStoreError
from txnformat.store.open import open_store
from txnformat.verify.report import ProblemKind

OPERATIONS = text_of_pages("operate", "troubleshoot")
ENGINES = page("docs/engines.md")
DATABRICKS = section(ENGINES, "## Databricks, and other managed Spark")

CLASSES = {
    "CommitStateUnknownError", "ConflictError", "CorruptDataError", "ProducerFencedError", "StaleAppVersionError",
    "StorageError", "UnsupportedFeatureError", "UnsupportedStoreError", "UploadExpiredError",
}  # fmt: skip
"""Those whose cause is not the caller's input or the order of its calls."""


def _raised() -> set[str]:
    """Return the kinds that the packages give to errors of these classes, and those of the stores'
    answers.
    """
    found: set[str] = set()
    for folder in PACKAGES:
        for path in (ROOT / folder).rglob("*.py"):
            if "testing" in path.parts or path.name == "faulty.py":
                continue
            text = path.read_text(encoding="utf-8")
            found.update(re.findall(r'_?Meaning\(\s*"([a-z-]+)"', text))
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES:
                    kinds = [word.value for word in node.keywords if word.arg == "kind"]
                    found.update(str(kind.value) for kind in kinds if isinstance(kind, ast.Constant))
    return found


def _listed() -> set[str]:
    (table,) = tables(section(OPERATIONS, "## Kinds"))
    return {kind for row in table.rows for kind in codes(row[0])}


INPUT = {"name-too-long", "not-a-directory", "not-a-file"}
"""A path that the caller gave."""


def test_every_failure_that_is_not_bad_input_has_a_line() -> None:
    raised = _raised()
    assert len(raised) > 40
    assert raised - INPUT <= _listed()


def test_every_kind_that_is_named_is_one_that_the_code_can_give() -> None:
    assert _listed() <= KINDS


@pytest.mark.parametrize("text", [OPERATIONS, ENGINES], ids=["operations", "engines"])
def test_every_code_and_metric_that_is_named_exists(text: str) -> None:
    named = {
        code.removeprefix("TXNLOG_").lower().replace("_", "-")
        for code in re.findall(r"TXNLOG_[A-Z_]+\b", prose(text))
    }
    assert named <= KINDS
    assert (
        set(re.findall(r"\btxnlog_[a-z_]+", text)) - {"txnlog_testing", "txnlog_airflow"}
        <= METRICS.keys() | UPKEEP.keys()
    )


@pytest.mark.parametrize("text", [OPERATIONS, ENGINES], ids=["operations", "engines"])
def test_every_command_that_is_named_exists(text: str) -> None:
    names = {name for name, _ in commands()}
    called = [code.split()[1:3] for code in codes(prose(text)) if code.startswith("txnlog ")]
    assert called
    for words in called:
        groups = {name.split()[0] for name in names} if len(words) == 1 else set()
        assert " ".join(words) in names or words[0] in names | groups, words


def test_alerts_are_on_metrics_that_are_there() -> None:
    (table,) = tables(section(OPERATIONS, "### Alerts"))
    named = [re.findall(r"txnlog_[a-z_]+", row[0]) for row in table.rows]
    assert all(named)
    assert {name for names in named for name in names} <= METRICS.keys() | UPKEEP.keys()


def test_what_databricks_has_to_bring_is_what_the_package_requires() -> None:
    setup = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    assert "pyspark>=4.1\n" in setup
    assert "needs Spark 4.1 [code]" in DATABRICKS
    assert "pyarrow>=24\n" in setup
    assert "pyarrow 24 or later" in DATABRICKS


def test_the_places_of_databricks_are_taken_or_refused_as_the_page_says() -> None:
    (table,) = tables(section(ENGINES, "### Storage and credentials"))
    said = {code: row[1] for row in table.rows for code in codes(row[0]) if "/" in code}
    assert {"s3://bucket/prefix", "gs://bucket/prefix", "/Volumes/…", "dbfs:/…"} <= said.keys()
    for place, answer in said.items():
        try:
            open_store(place.replace("…", "a/b"))
            is_refused = False
        except UnsupportedStoreError:
            is_refused = True
        assert is_refused == answer.startswith("refused"), place


def test_every_block_about_databricks_says_that_it_was_not_run() -> None:
    assert DATABRICKS.count("```python") == DATABRICKS.count("<!-- not run: needs a") > 3
    assert "has been run on Databricks" in DATABRICKS.strip().split("\n\n")[0]


def test_what_verify_finds_is_listed_as_the_code_describes_it() -> None:
    (listed,) = tables(section(OPERATIONS, "## What verify finds"))
    assert [codes(row[0]) for row in listed.rows] == [[kind.value] for kind in ProblemKind]
