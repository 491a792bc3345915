"""Runs the Python blocks of a Markdown file in this process, top to bottom in one namespace: tests look at
what they leave."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.meta.markdown import ROOT, blocks

__all__ = ["NOT_RUN", "in_directory", "run_blocks"]

NOT_RUN = re.compile(r"<!-- not run: .{10,} -->")
"""The comment before a block that is not run, with the reason."""

_NEEDS_SPARK = re.compile(r"\bspark\b")


@contextmanager
def in_directory(path: Path) -> Iterator[None]:
    """Work in a directory."""
    before = Path.cwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


def run_blocks(name: str, namespace: dict[str, Any], *, with_spark: bool, text: str | None = None) -> int:
    """Run the Python blocks of a file and return how many were run.

    Parameters
    ----------
    name : str
        Path in the checkout; tracebacks show it, with the right lines.
    namespace : dict
        Globals of the blocks.
    with_spark : bool
        Whether blocks that need Spark are run; else they are passed over.
    text : str, optional
        In place of the file's.
    """
    count = 0
    for block in blocks((ROOT / name).read_text(encoding="utf-8") if text is None else text):
        if block.info != "python" or NOT_RUN.fullmatch(block.before):
            continue
        if _NEEDS_SPARK.search(block.text) and not with_spark:
            continue
        source = "\n" * (block.line - 1) + block.text
        exec(compile(source, str(ROOT / name), "exec"), namespace)  # noqa: S102  # our own documentation
        count += 1
    return count
