"""Which page has what: the one place that tests name pages of the documentation in."""

from __future__ import annotations

from pathlib import Path

from tests.meta.markdown import ROOT

__all__ = ["INTERNALS", "PYTHON_PAGES", "SPARK_PAGES", "page", "text_of_pages"]

PYTHON_PAGES = (
    "docs/concepts.md",
    "docs/consume.md",
    "docs/engines.md",
    "docs/internals/history-checker.md",
    "docs/open-transactions.md",
    "docs/operate.md",
    "docs/produce.md",
    "docs/troubleshoot.md",
)
"""Pages with blocks of Python, none of which needs Spark."""

SPARK_PAGES = (
    "README.md",
    "docs/start.md",
    "docs/spark-read.md",
    "docs/spark-write.md",
    "docs/spark-streams.md",
    "docs/from-delta.md",
    "docs/from-kafka.md",
)
"""Pages some of whose blocks need a session of Spark."""

INTERNALS = ROOT / "docs" / "internals"


def page(name: Path | str) -> str:
    """Return the text of a page, by its path in the checkout."""
    return (ROOT / name).read_text(encoding="utf-8")


def text_of_pages(*names: str) -> str:
    """Return the texts of pages of docs/, one behind the other."""
    return "\n".join(page(f"docs/{name}.md") for name in names)
