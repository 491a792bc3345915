"""A share of `make bench-compaction`: the sizes that it tells; its times are for the benchmark."""

from __future__ import annotations

from bench.lifecycle.compaction import measure


def test_a_compaction_makes_one_file_whose_metadata_columns_are_counted() -> None:
    found = measure(5, 20, 1)
    assert (found.records, found.files_before, found.files) == (100, 5, 1)
    assert 0 < found.offset_bytes_per_record < found.metadata_bytes_per_record < found.bytes_per_record
