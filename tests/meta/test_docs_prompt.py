"""The pages can be pasted into the prompt of Python, block by block, each in a directory of its own.

Those that need Spark are pasted by tests/spark/test_docs_spark.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.meta.pages import PYTHON_PAGES, page
from tests.meta.prompt import Prompt, blocks_to_paste, unpasteable


@pytest.mark.parametrize("name", PYTHON_PAGES)
def test_a_page_runs_in_the_prompt(name: str, tmp_path: Path) -> None:
    """Top to bottom: each assertion of a block holds."""
    pasted = blocks_to_paste(name)
    assert pasted
    with Prompt(tmp_path) as prompt:
        for block in pasted:
            prompt.paste(block.text)


def test_the_prompt_is_that_of_the_environment_and_reports_what_fails(tmp_path: Path) -> None:
    with Prompt(tmp_path) as prompt:
        assert "\n3\n" in prompt.paste("for number in [1, 2, 3]:\n    print(number)\n")
        with pytest.raises(AssertionError, match=r"pasted 'assert 1 == 2':[\s\S]*AssertionError"):
            prompt.paste("assert 1 == 2\nx = 1")
        with pytest.raises(AssertionError, match="SyntaxError"):
            prompt.paste("for number in [1]:\n    x = number\ny = 2")
        assert re.search(r"\n5\n", prompt.paste("2 + 3"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("if True:\n    x = 1\ny = 2\n", 2),
        ("def f():\n    x = 1\n\n    return x\n", 3),
        ("x = (\n\n    1\n)\n\n\ndef f():\n    return 1\n\n\nf()\n", None),
        ('"""\n\nif\n"""\n', None),
    ],
)
def test_what_a_prompt_takes_otherwise_than_a_file_is_found(text: str, line: int | None) -> None:
    assert [found for found, _ in unpasteable(text)] == ([] if line is None else [line])


def test_pages_are_run_in_one_of_the_two_ways() -> None:
    for name in PYTHON_PAGES:
        assert not any(re.search(r"\bspark\b", block.text) for block in blocks_to_paste(name)), name
        assert page(name).startswith("# "), name
