"""A published topic, read by engines that know nothing of txnlog, has exactly the rows of a snapshot at the
manifest's entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.views.tables import CASES, READERS, expected, row, write


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("case", CASES)
def test_a_published_topic_is_read_as_the_snapshot_at_its_entry(
    tmp_path: Path, case: str, reader: str
) -> None:
    log = CASES[case](tmp_path / "log")
    report = log.publish("t")
    assert not report.held_back
    table = log.published_tables()["t"]
    assert (table.entry, table.version) == (report.entry, 0)
    assert READERS[reader](table) == expected(log, table)
    write_more = case not in ("nested", "evolved schema", "renamed columns")
    if write_more:
        write(log, [row(n) for n in range(900, 910)])
        write(log, [row(n) for n in range(910, 920)], commit=False)
        log.publish("t")
        later = log.published_tables()["t"]
        assert later.version == 1
        assert READERS[reader](later) == expected(log, later) != expected(log, table)
        assert READERS[reader](table) == expected(log, table)
    log.close()
    assert log.verify(deep=True).ok
