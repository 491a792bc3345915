"""A publisher that loses the creation of a version to another one: no table goes back, and no manifest says
that it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.integration.views.published import (
    Meanwhile,
    actions,
    check,
    check_iceberg,
    fresh,
    iceberg_table,
    rows,
)
from tests.integration.views.tables import SCHEMA, write
from txnformat import keys
from txnformat.admin.publishing.reports import PublishReport
from txnformat.store.requests import RequestKind
from txnlog import TxnLog


class Format(NamedTuple):
    """A format of tables, and where its versions are."""

    name: str
    first: int
    """The number of a table's first version."""
    key: Callable[[str, int], str]
    """Returns the key of a version: of a topic's directory, and its number."""
    entries: Callable[[TxnLog], list[int]]
    """Returns the entries that the versions of a topic's table show, the oldest first."""
    check: Callable[[TxnLog], None]
    """Compares the newest table with the log."""


def _delta_entries(log: TxnLog) -> list[int]:
    newest = log.publish("t").topics[0].version
    return [actions(log, version, "txn")[0]["version"] for version in range(newest + 1)]


def _iceberg_entries(log: TxnLog) -> list[int]:
    metadata = iceberg_table(log).metadata
    assert metadata is not None
    return [one.entry for one in metadata.snapshots]


DELTA = Format("delta", 0, keys.delta_version_key, _delta_entries, check)
ICEBERG = Format("iceberg", 1, keys.iceberg_version_key, _iceberg_entries, check_iceberg)
FORMATS = pytest.mark.parametrize("format_", [DELTA, ICEBERG], ids=lambda one: one.name)


def lost(log: TxnLog, format_: Format, version: int, other: Callable[[TxnLog], object]) -> PublishReport:
    """Publish all topics; before the creation of a version of ``t`` another process does something."""
    key = format_.key(log.refresh().topic("t").directory, version)

    def happens() -> None:
        assert log.store.head(key) is None, "the publisher was to come first"
        with fresh(log) as another:
            other(another)
        assert log.store.head(key) is not None, "the publisher was to lose the version"

    store = Meanwhile(log, RequestKind.CREATE, key, happens)
    with TxnLog.open(store) as first:
        report = first.publish(format=format_.name)
    assert store.key == key
    return report


@FORMATS
@pytest.mark.parametrize("is_first", [True, False], ids=["of a new table", "of a known table"])
def test_a_later_entry_that_won_a_version_is_not_followed_by_an_older_one(
    log: TxnLog, format_: Format, is_first: bool
) -> None:
    if not is_first:
        log.publish(format=format_.name)
        write(log, rows(20))
    version = format_.first + (not is_first)

    def publish_later(another: TxnLog) -> None:
        write(another, rows(21))
        another.publish(format=format_.name)

    report = lost(log, format_, version, publish_later)
    later = fresh(log).published_tables(format=format_.name)["t"]
    (one,) = report.topics
    assert report.entry < later.entry
    assert (one.version, one.is_new, one.superseded_by) == (version, False, later.entry)
    assert later.version == version
    assert log.store.head(format_.key(one.directory.partition("/")[0], version + 1)) is None
    assert format_.entries(log)[-1] == later.entry
    assert format_.entries(log) == sorted(set(format_.entries(log)))
    format_.check(log)


@FORMATS
def test_the_same_entry_that_won_a_version_is_the_publishers_own(log: TxnLog, format_: Format) -> None:
    report = lost(log, format_, format_.first, lambda another: another.publish(format=format_.name))
    (one,) = report.topics
    assert (one.version, one.is_new, one.superseded_by) == (format_.first, False, None)
    assert report.manifest is not None
    format_.check(log)


@FORMATS
def test_an_older_entry_that_won_a_version_is_followed_by_the_newer_one(log: TxnLog, format_: Format) -> None:
    """The other process is late: it settled its files before the newer records came."""
    before = {info.key for info in log.store.list("")}
    old = log.publish(format=format_.name).entry
    made = {
        info.key: log.store.get(info.key) or b""
        for info in log.store.list("")
        if info.key not in before and keys.is_of_view(info.key)
    }
    for key in made:
        log.store.delete(key)
    write(log, rows(20))

    def land(another: TxnLog) -> None:
        for key, data in made.items():
            another.store.create(key, data)

    report = lost(log, format_, format_.first, land)
    (one,) = report.topics
    assert (one.version, one.is_new, one.superseded_by) == (format_.first + 1, True, None)
    assert format_.entries(log) == [old, report.entry]
    assert report.manifest is not None
    format_.check(log)


@FORMATS
def test_a_publication_of_which_a_table_is_newer_has_no_manifest(log: TxnLog, format_: Format) -> None:
    """The other table shows its entry: together they would tear transactions."""
    log.create_topic("other", SCHEMA, settings={"embed": "false"})
    write(log, rows(20), topic="other")

    def publish_later(another: TxnLog) -> None:
        write(another, rows(21))
        another.publish("t", format=format_.name)

    report = lost(log, format_, format_.first, publish_later)
    other, t = report.topics
    assert (other.topic, other.is_new, other.superseded_by) == ("other", True, None)
    assert t.superseded_by is not None
    assert report.manifest is None
    found = [keys.manifest_name(info.key) for info in log.store.list(keys.manifest_prefix(format_.name))]
    assert [one.entry for one in found if one is not None] == [t.superseded_by]


@FORMATS
def test_publications_of_topic_after_topic_at_one_entry_share_a_manifest(
    log: TxnLog, format_: Format
) -> None:
    log.create_topic("other", SCHEMA, settings={"embed": "false"})
    write(log, rows(20), topic="other")
    first, second = (log.publish(topic, format=format_.name) for topic in ("t", "other"))
    assert first.entry == second.entry
    assert first.manifest != second.manifest
    tables = fresh(log).published_tables(first.entry, format_.name)
    assert {one.topic: one.version for one in tables.values()} == {
        "t": format_.first,
        "other": format_.first,
    }
    fresh(log).publish("t", format=format_.name)
    assert fresh(log).published_tables(format=format_.name) == tables
    format_.check(log)
