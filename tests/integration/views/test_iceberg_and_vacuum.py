"""The vacuum beside Iceberg tables: it keeps their files for the hold time, says so, and removes the tables
of deleted topics."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.integration.views.held import DAY_S, GRACE, NUMBERS, World
from tests.integration.views.published import check_iceberg, iceberg_table
from tests.integration.views.tables import ICEBERG_READERS
from txnformat import keys
from txnformat.admin.garbage import Fate, Kind, Why

READ = ICEBERG_READERS["pyiceberg"]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "log")


def test_files_of_the_published_table_stay_and_those_of_older_versions_for_the_hold_time(
    world: World,
) -> None:
    world.log.publish(format="iceberg")
    published = world.files()
    first = world.log.published_tables(format="iceberg")["t"]
    world.log.compact("t", min_lag_ms=0)
    assert Why.PUBLISHED.value in world.vacuums()
    assert published <= world.files()
    check_iceberg(world.log)
    world.log.publish(format="iceberg")
    assert Why.PUBLISHED.value in world.vacuums()
    assert READ(first) == ["{'n': 0}", "{'n': 1}", "{'n': 2}", "{'n': 3}"]
    world.clock.sleep(3 * DAY_S)
    assert Why.PUBLISHED.value not in world.vacuums()
    assert not published & world.files()
    check_iceberg(world.log)
    report = world.log.verify(deep=True)
    assert report.ok, report.problems


def test_the_table_of_a_deleted_topic_goes_after_the_grace(world: World) -> None:
    world.log.publish(format="iceberg")
    directory = world.log.state.topic("t").directory
    world.log.create_topic("other", NUMBERS)
    world.log.delete_topic("t")
    world.write(1, "other")
    report = world.log.vacuum(GRACE)
    assert {row.why for row in report.rows if row.kind is Kind.VIEW} == {Why.LIVE, Why.DELETED_TOPIC}
    for _ in range(3):
        world.clock.sleep(GRACE.total_seconds() + 1)
        world.write(1, "other")
        world.log.vacuum(GRACE)
    assert list(world.store.list(f"{directory}/")) == []


def test_old_manifests_go_and_the_newest_of_each_format_stays(world: World) -> None:
    delta = world.log.publish().manifest
    for number in range(3):
        world.write(number)
        world.log.publish(format="iceberg")
    newest = world.log.publish(format="iceberg").manifest
    world.clock.sleep(4 * DAY_S)
    world.write(7)
    world.log.vacuum(GRACE)
    left = [info.key for info in world.store.list(keys.VIEWS_PREFIX)]
    assert {delta, newest} <= set(left)  # those after the older of the two stay as well
    world.log.publish()
    report = world.log.vacuum(GRACE)
    assert report.count(Fate.DELETED, Kind.VIEW) == 3
    assert newest in {info.key for info in world.store.list(keys.VIEWS_PREFIX)}


@pytest.mark.parametrize("how", ["damaged", "foreign", "no package"])
def test_a_table_that_cannot_be_read_holds_all_files_of_its_topic(
    world: World, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the package, or behind a version of another program, nothing says which files readers use."""
    world.log.publish(format="iceberg")
    directory = world.log.state.topic("t").directory
    key = keys.iceberg_version_key(directory, 2)
    if how == "damaged":
        world.store.create(key, b"no JSON")
    elif how == "foreign":
        world.store.create(key, world.store.get(keys.iceberg_version_key(directory, 1)) or b"")
    else:
        monkeypatch.setitem(sys.modules, "pyiceberg.manifest", None)
    world.log.compact("t", min_lag_ms=0)
    world.log.compact("t", min_lag_ms=0)
    before = world.files()
    world.clock.sleep(4 * DAY_S)
    assert "cannot be read" in world.vacuums()
    assert before <= world.files()
    monkeypatch.undo()
    world.log.publish(format="iceberg", rebuild=how != "no package")
    check_iceberg(world.log)


def test_an_erasure_is_complete_once_the_topic_is_published_again(world: World) -> None:
    world.log.publish(format="iceberg")
    world.log.erase("t", "n = 2", requested_by="a test", key="ab" * 16)
    for _ in range(4):
        world.vacuums(1)
        world.log.maintain("erasures")
    assert [one.is_complete for one in world.log.erasures()] == [False]
    (looked,) = world.log.maintain("erasures").erasures
    assert "publish the topic first" in looked.missing[0]
    world.log.publish(format="iceberg")
    check_iceberg(world.log)
    for _ in range(4):
        world.vacuums(1)
        world.log.maintain("erasures")
    assert [one.is_complete for one in world.log.erasures()] == [True]
    check_iceberg(world.log)


def test_a_vacuum_keeps_what_only_the_other_format_still_names(world: World) -> None:
    world.log.publish()
    world.log.publish(format="iceberg")
    old = world.files()
    world.log.compact("t", min_lag_ms=0)
    world.log.publish()
    world.clock.sleep(4 * DAY_S)
    world.vacuums()
    assert old <= world.files()
    check_iceberg(world.log)
    assert len(iceberg_table(world.log).files) == 4
