"""The vacuum beside published tables: it keeps their files for the hold time, says so, and removes the tables
of deleted topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.views.held import DAY_S, GRACE, NUMBERS, World
from tests.integration.views.tables import READERS, expected
from txnformat import keys
from txnformat.admin.garbage import Fate, Kind, Why
from txnformat.store.local import LocalStore
from txnlog import ConflictError, TxnLog


def check(world: World) -> None:
    """The table shows the snapshot at the manifest's entry."""
    table = world.log.published_tables()["t"]
    assert READERS["deltalake"](table) == expected(world.log, table)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "log")


def test_files_of_the_published_table_stay_and_those_of_older_versions_for_the_hold_time(
    world: World,
) -> None:
    world.log.publish()
    published = world.files()
    first = world.log.published_tables()["t"]
    world.log.compact("t", min_lag_ms=0)
    assert Why.PUBLISHED.value in world.vacuums()
    assert published <= world.files()
    check(world)
    world.log.publish()
    assert Why.PUBLISHED.value in world.vacuums()
    assert READERS["deltalake"](first) == ["{'n': 0}", "{'n': 1}", "{'n': 2}", "{'n': 3}"]
    world.clock.sleep(3 * DAY_S)
    assert Why.PUBLISHED.value not in world.vacuums()
    assert not published & world.files()
    check(world)
    report = world.log.verify(deep=True)
    assert report.ok, report.problems


def test_a_vacuum_without_views_asks_for_none(world: World) -> None:
    report = world.log.vacuum(GRACE)
    assert not [row for row in report.rows if row.kind is Kind.VIEW]


def test_the_table_of_a_deleted_topic_goes_after_the_grace(world: World) -> None:
    world.log.publish()
    directory = world.log.state.topic("t").directory
    world.log.create_topic("other", NUMBERS)
    world.log.delete_topic("t")
    world.write(1, "other")
    report = world.log.vacuum(GRACE)
    assert [row.why for row in report.rows if row.kind is Kind.VIEW] == [Why.LIVE, Why.DELETED_TOPIC]
    for _ in range(3):
        world.clock.sleep(GRACE.total_seconds() + 1)
        world.write(1, "other")
        world.log.vacuum(GRACE)
    assert list(world.store.list(f"{directory}/")) == []
    world.log.publish("other")


def test_a_topic_that_is_created_and_published_meanwhile_keeps_its_table(world: World) -> None:
    world.log.publish()
    other = TxnLog.open(
        LocalStore(world.log.url.removeprefix("file://"), clock=world.clock), clock=world.clock
    )
    world.log.create_topic("new", NUMBERS)
    world.log.publish("new")
    other.vacuum(GRACE)
    assert world.store.list(keys.delta_prefix(world.log.state.topic("new").directory))


def test_old_manifests_go_and_the_newest_stays(world: World) -> None:
    for number in range(3):
        world.write(number)
        world.log.publish()
    newest = world.log.publish().manifest
    world.vacuums(1)
    assert len(world.store.list(keys.manifest_prefix("delta"))) == 3
    world.clock.sleep(4 * DAY_S)
    world.write(7)
    report = world.log.vacuum(GRACE)
    assert report.count(Fate.DELETED, Kind.VIEW) == 2
    assert [info.key for info in world.store.list(keys.manifest_prefix("delta"))] == [newest]


def test_a_table_that_cannot_be_read_holds_all_files_of_its_topic(world: World) -> None:
    world.log.publish()
    world.log.compact("t", min_lag_ms=0)
    directory = world.log.state.topic("t").directory
    world.store.create(keys.delta_checkpoint_key(directory, 7), b"no parquet")
    before = world.files()
    report = world.vacuums()
    assert "cannot be read" in report
    assert before <= world.files()


def test_a_version_that_cannot_be_decoded_holds_all_files_of_its_topic(world: World) -> None:
    """The version may name files that the log no longer has: a reader that has it may still use them."""
    world.log.publish()
    world.log.compact("t", min_lag_ms=0)
    directory = world.log.state.topic("t").directory
    world.store.create(keys.delta_version_key(directory, 1), b"no JSON")
    world.log.compact("t", min_lag_ms=0)
    before = world.files()
    world.clock.sleep(4 * DAY_S)
    assert "cannot be read" in world.vacuums()
    assert before <= world.files()


def test_a_version_of_another_program_is_told(world: World) -> None:
    world.log.publish()
    directory = world.log.state.topic("t").directory
    world.store.create(keys.delta_version_key(directory, 1), b'{"commitInfo":{"engineInfo":"other"}}')
    (note,) = world.log.vacuum(GRACE).notes
    assert "--rebuild" in note
    with pytest.raises(ConflictError):
        world.log.publish()
    check(world)


def test_an_erasure_is_complete_once_the_topic_is_published_again(world: World) -> None:
    world.log.publish()
    world.log.erase("t", "n = 2", requested_by="a test", key="ab" * 16)
    for _ in range(4):
        world.vacuums(1)
        world.log.maintain("erasures")
    assert [one.is_complete for one in world.log.erasures()] == [False]
    (looked,) = world.log.maintain("erasures").erasures
    assert "publish the topic first" in looked.missing[0]
    world.log.publish()
    check(world)
    for _ in range(4):
        world.vacuums(1)
        world.log.maintain("erasures")
    assert [one.is_complete for one in world.log.erasures()] == [True]
    check(world)


def test_old_versions_go_with_a_checkpoint_and_the_table_is_as_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txnformat.admin.publishing.delta.CHECKPOINT_VERSIONS", 5)
    for number in range(6):
        world.write(number)
        world.log.publish()
    world.clock.sleep(4 * DAY_S)
    for number in range(6):
        world.write(number)
        world.log.publish()
    directory = world.log.state.topic("t").directory
    found = [keys.delta_name(info.key) for info in world.store.list(keys.delta_prefix(directory))]
    versions = sorted(name.version for name in found if name and not name.is_checkpoint and name.version >= 0)
    assert versions == list(range(5, 12))
    check(world)
    other = TxnLog.open(
        LocalStore(world.log.url.removeprefix("file://"), clock=world.clock), clock=world.clock
    )
    world.write(1)
    assert other.publish().topics[0].version == 12
    check(world)
