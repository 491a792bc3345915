"""The tables of a snapshot are bounded together, whatever each of them declares."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.limits.hundred_cases import CASES
from txnformat.errors import CorruptDataError


def test_the_tables_of_a_snapshot_decompress_to_no_more_together_than_one_may(tmp_path: Path) -> None:
    (case,) = (case for case in CASES if case.key == "snapshot-all")
    assert case.make(tmp_path) < 1024 * 1024
    with pytest.raises(CorruptDataError, match="bytes when decompressed, more than"):
        case.use(tmp_path)
