"""A topic that is published as an Iceberg table, read by engines that know nothing of txnlog, has exactly the
rows of a snapshot at the manifest's entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.views.published import check_iceberg
from tests.integration.views.tables import CASES, ICEBERG_READERS, expected, opened, row, write


@pytest.mark.parametrize("reader", ICEBERG_READERS)
@pytest.mark.parametrize("case", CASES)
def test_a_published_topic_is_read_as_the_snapshot_at_its_entry(
    tmp_path: Path, case: str, reader: str
) -> None:
    read = ICEBERG_READERS[reader]
    log = CASES[case](tmp_path / "a log")
    report = log.publish("t", format="iceberg")
    assert not report.held_back
    table = log.published_tables(format="iceberg")["t"]
    assert (table.entry, table.version) == (report.entry, 1)
    assert read(table) == expected(log, table)
    if case not in ("nested", "evolved schema", "renamed columns"):
        write(log, [row(n) for n in range(900, 910)])
        write(log, [row(n) for n in range(910, 920)], commit=False)
        log.publish("t", format="iceberg")
        later = log.published_tables(format="iceberg")["t"]
        assert later.version == 2
        assert read(later) == expected(log, later) != expected(log, table)
        assert read(table) == expected(log, table)
        named = opened(later).snapshot_by_name(f"entry-{table.entry}")
        assert named is not None
        assert named.snapshot_id == table.snapshot_id
    check_iceberg(log)
    log.close()
    assert log.verify(deep=True).ok
