"""The table of docs/open-transactions.md is what a real log shows when it is asked."""

from __future__ import annotations

from bench.buffers import BUFFERS, PAGE, table, with_table
from tests.meta.markdown import ROOT
from writers.settings import Buffer

TEXT = (ROOT / PAGE).read_text(encoding="utf-8")


def test_the_table_is_what_a_real_log_shows() -> None:
    assert with_table(TEXT, table()) == TEXT, "run python -m bench.buffers --page"


def test_every_buffer_has_its_column_and_its_paragraph() -> None:
    assert set(BUFFERS) == set(Buffer)
    for buffer in Buffer:
        assert f"\n* `{buffer}`" in TEXT
