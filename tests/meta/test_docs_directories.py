"""Examples of the documentation share no directory, so that a user can run two pages in one."""

from __future__ import annotations

import re

from tests.meta.markdown import ROOT, blocks

_MADE = re.compile(
    r"""(?:TxnLog\.(?:create|open_or_create)\(|TXNLOG_ROOT=|in_directory\(|checkpointLocation",? |parquet\()\s*f?["']?(\.?[\w./-]+)"""
)
"""Where the examples of a page put a log, or something else."""


def test_examples_of_two_pages_can_run_in_one_directory() -> None:
    """Else the second page's ``create`` finds the log of the first."""
    pages: dict[str, set[str]] = {}
    for path in (ROOT / "README.md", *ROOT.glob("docs/*.md")):
        text = "\n".join(block.text for block in blocks(path.read_text(encoding="utf-8")))
        for name in _MADE.findall(text):
            pages.setdefault(name.removeprefix("./").partition("/")[0], set()).add(path.name)
    assert {"shop", "cli-log", "intake-checkpoint"} <= set(pages)
    shared = {name: found for name, found in pages.items() if len(found) > 1}
    assert not shared, f"name these differently on each page: {shared}"
