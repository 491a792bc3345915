"""Application versions: a step is in the log once, and of two runs under one id the older one stops."""

from __future__ import annotations

import json

import pytest

from tests.unit.core.entries import assert_corrupt, entry_for
from tests.unit.core.full_state import checkpoint_of
from tests.unit.core.memory_log import Log
from txnformat.core.app_versions.state import (
    INSTANCE_BYTES_MAX,
    INSTANCES_MAX,
    NO_VERSION,
    Content,
    TopicContent,
)
from txnformat.core.entry import decode_entry, encode_entry
from txnformat.core.intents import AppRef, Done, Included, Write
from txnformat.core.operations import AppVersion
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot
from txnformat.errors import CorruptDataError, InvalidInputError, StaleAppVersionError
from txnformat.persistent import replace
from txnlog_testing.entries import changed_entry
from txnlog_testing.strategies import make_append, make_topic

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


# --- contents -----------------------------------------------------------------------------------------------

HASH = "0123456789abcdef" * 2


def content_of(*topic_ids: str) -> Content:
    """Return a content of one row of each topic."""
    return Content(TopicContent(topic_id, 1, HASH) for topic_id in topic_ids)


def test_a_content_is_in_the_entry_and_not_in_the_state() -> None:
    """So a reader that does not know it folds to the same state, and its snapshots are as good."""
    plain, telling = Log(ORDERS), Log(ORDERS)
    write = batch(0, "a")
    assert write.app is not None
    content = content_of(ORDERS.topic_id)
    told = replace(write, app=replace(write.app, content=content))
    entries = [entry_for(log.state, one)[0] for log, one in ((plain, write), (telling, told))]
    for entry, expected in zip(entries, (None, content), strict=True):
        (version,) = (op for op in entry.operations if isinstance(op, AppVersion))
        assert version.content == expected
        assert decode_entry(encode_entry(entry), entry.entry) == entry
    for log, one in ((plain, write), (telling, told)):
        log.commit(one)
    assert telling.state.app_versions == plain.state.app_versions


def test_a_version_without_a_content_encodes_as_it_did_before() -> None:
    entry, _ = entry_for(Log(ORDERS).state, batch(0, "a"))
    assert json.loads(encode_entry(entry))["operations"][-1] == {
        "operation": "app_version",
        "intent": 0,
        "namespace": "spark-stream",
        "app_id": "query",
        "version": 0,
        "instance": "a",
    }


def test_a_content_names_the_topic_that_somebody_else_has_made() -> None:
    theirs, mine = make_topic("fresh", 1), replace(make_topic("fresh", 1), topic_id=OTHER)
    log = Log(theirs)
    app = AppRef("spark-batch", "fresh/job", 1, content=content_of(OTHER))
    verdict = log.commit(Write(app=app, create=(mine,)))
    assert isinstance(verdict, Included)
    assert verdict.operations == (
        AppVersion("spark-batch", "fresh/job", 1, content=content_of(theirs.topic_id)),
    )


OTHER = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, None),
        ({"scheme": 1, "topics": []}, ()),
        (
            {"scheme": 1, "topics": [{"topic_id": OTHER, "records": 1, "hash": HASH, "more": 1}]},
            content_of(OTHER),
        ),
        ({"scheme": 2, "topics": {"of": "later"}}, None),
    ],
    ids=["null", "nothing", "with a field of later", "of another scheme"],
)
def test_a_content_of_another_scheme_is_none(content: object, expected: Content | None) -> None:
    entry, _ = entry_for(Log(ORDERS).state, batch(0, "a"))
    data = changed_entry(encode_entry(entry), lambda doc: doc["operations"][-1].update(content=content))
    (version,) = (op for op in decode_entry(data, entry.entry).operations if isinstance(op, AppVersion))
    assert version.content == expected


@pytest.mark.parametrize(
    "content",
    [
        7,
        [],
        {"topics": []},
        {"scheme": 1},
        {"scheme": "1", "topics": []},
        {"scheme": 1, "topics": [{"topic_id": "orders", "records": 1, "hash": HASH}]},
        {"scheme": 1, "topics": [{"topic_id": OTHER, "records": 0, "hash": HASH}]},
        {"scheme": 1, "topics": [{"topic_id": OTHER, "records": 1, "hash": HASH[1:]}]},
        {"scheme": 1, "topics": [{"topic_id": OTHER, "records": 1, "hash": 5}]},
        {"scheme": 1, "topics": [{"topic_id": OTHER, "records": 1, "hash": HASH}] * 2},
    ],
)
def test_a_content_that_is_none_does_not_decode(content: object) -> None:
    entry, _ = entry_for(Log(ORDERS).state, batch(0, "a"))
    data = changed_entry(encode_entry(entry), lambda doc: doc["operations"][-1].update(content=content))
    with pytest.raises(CorruptDataError):
        decode_entry(data, entry.entry)
