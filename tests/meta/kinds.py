"""The kinds of errors, as the product's source names them."""

from __future__ import annotations

import re

from tests.meta.markdown import ROOT
from txnformat import errors

__all__ = ["KINDS", "PACKAGES"]

PACKAGES = ("spark_datasource", "txnformat", "txnlog/kafka", "txnlog/schemas", "txnlog/tables", "writers")
"""Folders with code that raises errors of kinds; beside them the modules of ``txnlog`` itself."""

KINDS = {
    *re.findall(
        r'(?:kind=|_?Meaning\(\s*)"([a-z-]+)"',
        "\n".join(
            path.read_text(encoding="utf-8")
            for path in (
                *(ROOT / "txnlog").glob("*.py"),
                *(path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")),
            )
        ),
    ),
    *(getattr(errors, name).default_kind for name in errors.__all__),
}
