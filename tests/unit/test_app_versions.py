"""Application versions: a step is in the log once, and of two runs under one id the older one stops."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.unit.test_apply import assert_corrupt, entry_for
from tests.unit.test_decide import Log
from tests.unit.test_snapshot import checkpoint_of
from txnformat.app_versions import INSTANCE_BYTES_MAX, INSTANCES_MAX, NO_VERSION
from txnformat.entry import decode_entry, encode_entry
from txnformat.errors import CorruptDataError, InvalidInputError, StaleAppVersionError
from txnformat.intents import AppRef, Done, Included, Write
from txnformat.operations import AppVersion
from txnformat.snapshot import decode_snapshot, encode_snapshot
from txnformat.testing.entries import changed_entry
from txnformat.testing.strategies import make_append, make_topic

ORDERS = make_topic("orders", 1)
QUERY = ("spark-stream", "query")


def batch(version: int, run: str | None, *, is_next: bool = False) -> Write:
    """Return a write of one record as a batch of a query."""
    app = AppRef(*QUERY, version, run, is_next)
    return Write(appends=(make_append(ORDERS, {0: (-1, 1)}, content=f"{version} {run}"),), app=app)


def written(log: Log, version: int, run: str | None) -> int:
    """Write a batch, and return its entry."""
    assert isinstance(log.commit(batch(version, run)), Included)
    return log.state.entry


def kind_of(log: Log, write: Write) -> str:
    """Return why a write is refused."""
    error = log.refusal(write)
    assert isinstance(error, StaleAppVersionError)
    return error.kind


def test_a_restarted_run_repeats_the_newest_version_and_takes_over_with_the_next() -> None:
    log = Log(ORDERS)
    first = written(log, 0, "a")
    assert log.commit(batch(0, "b")) == Done(first)
    assert log.state.app_versions[QUERY].instances == ("a",), "a repetition writes nothing"
    written(log, 1, "b")
    assert log.state.app_versions[QUERY].instances == ("b", "a")


@pytest.mark.parametrize("version", [0, 1, 2, 7])
def test_a_run_that_was_superseded_is_refused_whatever_it_asks_for(version: int) -> None:
    log = Log(ORDERS)
    written(log, 0, "a")
    written(log, 1, "b")
    error = log.refusal(batch(version, "a"))
    assert isinstance(error, StaleAppVersionError)
    assert error.kind == "stale-instance"
    assert (error.values["newest"], error.values["newest_instance"]) == (1, "b")


def test_two_runs_from_a_checkpoint_and_its_copy_do_not_both_go_on() -> None:
    log = Log(ORDERS)
    written(log, 4, "a")
    written(log, 5, "a")
    assert isinstance(log.commit(batch(5, "copy")), Done), "this is what a restart looks like"
    written(log, 6, "copy")
    assert kind_of(log, batch(6, "a")) == "stale-instance"
    written(log, 7, "copy")


def test_the_newest_run_repeats_its_own_version() -> None:
    log = Log(ORDERS)
    written(log, 0, "a")
    entry = written(log, 1, "b")
    assert log.commit(batch(1, "b")) == Done(entry)
    assert log.commit(batch(1, None)) == Done(entry)
    assert kind_of(log, batch(0, "b")) == "stale-app-version"


def test_versions_without_an_instance_leave_the_instances_as_they_are() -> None:
    log = Log(ORDERS)
    written(log, 0, "a")
    written(log, 1, None)
    assert log.state.app_versions[QUERY].instances == ("a",)
    written(log, 2, "a")
    assert log.state.app_versions[QUERY].instances == ("a",), "the same run again is no other one"


def test_a_snapshot_keeps_the_instances() -> None:
    log = Log(ORDERS)
    written(log, 0, "a")
    written(log, 1, "b")
    data = encode_snapshot(log.state)
    read = decode_snapshot(data, checkpoint_of(log.state, data), log.state.log_id)
    assert read.app_versions == log.state.app_versions
    assert read.app_versions[QUERY].is_superseded("a")


def test_the_state_remembers_a_bounded_number_of_instances() -> None:
    known = NO_VERSION
    for version in range(INSTANCES_MAX + 3):
        known = known.followed_by(version, version, f"run {version}")
    assert known.instances == tuple(f"run {INSTANCES_MAX + 2 - back}" for back in range(INSTANCES_MAX))
    assert known.is_superseded("run 3")
    assert not known.is_superseded("run 2"), "forgotten"


def test_the_next_version_follows_the_newest_directly() -> None:
    log = Log(ORDERS)
    assert kind_of(log, batch(1, "a", is_next=True)) == "missing-versions"
    assert isinstance(log.commit(batch(0, "a", is_next=True)), Included)
    error = log.refusal(batch(2, "a", is_next=True))
    assert isinstance(error, StaleAppVersionError)
    assert (error.kind, error.values["expected"], error.values["got"]) == ("missing-versions", 1, 2)
    assert isinstance(log.commit(batch(1, "a", is_next=True)), Included)
    assert isinstance(log.commit(batch(1, "b", is_next=True)), Done)
    assert isinstance(log.commit(batch(5, "b")), Included), "who does not ask for it may leave some out"


def test_an_entry_in_which_a_superseded_instance_goes_on_is_corrupt() -> None:
    log = Log(ORDERS)
    written(log, 0, "a")
    written(log, 1, "b")
    entry, _ = entry_for(log.state, batch(2, "b"))
    stale = replace(entry, operations=(AppVersion(*QUERY, 2, instance="a"),))
    assert_corrupt(log.state, stale)


@pytest.mark.parametrize("instance", ["x" * (INSTANCE_BYTES_MAX + 1), 7, ["a"]])
def test_an_instance_that_is_no_short_text_does_not_decode(instance: object) -> None:
    log = Log(ORDERS)
    entry, _ = entry_for(log.state, batch(0, "PLACE"))
    data = encode_entry(entry)
    assert json.loads(data)["operations"][-1]["instance"] == "PLACE"
    assert decode_entry(data, entry.entry) == entry
    data = changed_entry(data, lambda doc: doc["operations"][-1].update(instance=instance))
    with pytest.raises(CorruptDataError, match="instance"):
        decode_entry(data, entry.entry)


@pytest.mark.parametrize(
    "app",
    [
        AppRef(*QUERY, 0, "ü" * 125),
        AppRef(*QUERY, 0, ""),
        AppRef("spark-stream", "x" * 4097, 0),
        AppRef("", "query", 0),
        AppRef(*QUERY, -1),
    ],
    ids=["instance-too-long", "instance-empty", "id-too-long", "namespace-empty", "negative"],
)
def test_what_no_reader_could_decode_is_never_written(app: AppRef) -> None:
    log = Log(ORDERS)
    assert isinstance(log.refusal(Write(app=app)), InvalidInputError)
    beside = Write(app=AppRef("spark-batch", "*/job", 0), apps_beside=(app,))
    assert isinstance(log.refusal(beside), InvalidInputError)
