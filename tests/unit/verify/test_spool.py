"""Rows come back whole, those of one key together, whether they fit in memory or not; and nothing is left of
the file."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnformat.errors import StorageError
from txnformat.verify.spool import PARTS, Spool

KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ROWS = st.lists(st.tuples(KEYS, st.integers(-(2**62), 2**62), st.text("ab\n\x00é", max_size=3)), max_size=60)


@given(ROWS, st.sampled_from([0, 40, 300, 10_000]))
def test_all_rows_come_back_and_those_of_a_key_in_order_and_in_one_part(
    rows: list[tuple[str, int, str]], memory_bytes: int
) -> None:
    with Spool(memory_bytes) as spool:
        for key, number, text in rows:
            spool.add(key, number, text)
        assert spool.is_spilled or memory_bytes or not rows
        parts = list(spool.parts())
    found = [row for part in parts for row in part]
    for key in {row[0] for row in rows}:
        assert [row for row in found if row[0] == key] == [[*row] for row in rows if row[0] == key]
        assert sum(any(row[0] == key for row in part) for part in parts) == 1
    assert len(found) == len(rows)


def test_rows_that_fit_are_one_part_in_their_order() -> None:
    with Spool() as spool:
        for number in range(1_000):
            spool.add(f"key-{number}", number)
        assert not spool.is_spilled
        assert list(spool.parts()) == [[[f"key-{number}", number] for number in range(1_000)]]


def test_rows_that_do_not_fit_are_divided_evenly_and_leave_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Spool(20_000) as spool:
        for number in range(10_000):
            spool.add(f"some-topic/data/{number}.parquet", number)
        assert spool.is_spilled
        assert list(tmp_path.iterdir()) == []
        sizes = [len(part) for part in spool.parts()]
    assert sum(sizes) == 10_000
    assert max(sizes) < 3 * 10_000 / PARTS


def test_a_temporary_directory_that_is_full_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with Spool(10) as spool, pytest.raises(StorageError) as caught:
        spool.add("a long key", 1)
    assert caught.value.kind == "disk-full"
    assert tempfile.gettempdir() in str(caught.value)
