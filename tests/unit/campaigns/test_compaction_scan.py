"""A share of `make bench-scan`: requests of a read fall by the number of files; its times are for the
benchmark."""

from __future__ import annotations

from bench.lifecycle.scan import measure


def test_a_compacted_topic_is_read_with_few_requests() -> None:
    found = measure(commits=60, records=5, rounds=1)
    assert (found.commits, found.records, found.files) == (60, 300, 1)
    assert found.requests_before >= 60
    assert found.requests <= 130, "the log's entries, an index, a footer and the data"
    assert min(found.read_s, found.dataset_s, found.speed) > 0
