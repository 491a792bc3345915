"""Mechanisms 41 to 45: an open transaction keeps readers of its partitions waiting, and for how long."""

from __future__ import annotations

import pytest

from tests.lingering.lingering import NUMBERS, Scene, send
from txnformat.core.operations import Cause
from txnformat.errors import TransactionTimedOutError
from txnlog import Producer


def test_42_an_open_transaction_blocks_its_own_partition_only() -> None:
    scene = Scene()
    scene.log.create_topic("u", NUMBERS)
    waiting = scene.begun("waiting", 1, partition=0)
    other = scene.begun("other", 2, partition=0)
    send(other, 3, partition=1)
    other.send("u", [{"n": 4}])
    other.commit()
    assert (scene.read(0), scene.read(1)) == ([], [3])
    assert scene.log.read("u").read_all().column("n").to_pylist() == [4]
    waiting.commit()
    assert scene.read(0) == [1, 2]


def test_42_plain_records_behind_an_open_transaction_wait_too() -> None:
    """Pulsar: an open transaction pins later writes without a transaction as well."""
    scene = Scene()
    waiting = scene.begun("waiting", 1)
    with Producer(scene.log) as plain:
        plain.send("t", [{"n": 2}], partition=0)
    assert scene.read() == []
    waiting.abort()
    assert scene.read() == [2]


def test_42_a_deferred_transaction_blocks_nobody() -> None:
    scene = Scene()
    waiting = scene.begun("waiting", 1, buffer="deferred")
    other = scene.begun("other", 2, buffer="deferred")
    other.commit()
    assert scene.read() == [2]
    waiting.commit()
    assert scene.read() == [2, 1], "in the order of the commits"


@pytest.mark.parametrize("first_commits", [True, False], ids=["committed", "aborted"])
def test_44_the_later_transaction_commits_first_and_is_received_after_the_earlier_has_ended(
    first_commits: bool,
) -> None:
    scene = Scene()
    first = scene.begun("txn1", 1)
    second = scene.begun("txn2", 2)
    second.commit()
    assert scene.read() == []
    first.commit() if first_commits else first.abort()
    assert scene.read() == ([1, 2] if first_commits else [2]), "in the order of producing"


@pytest.mark.parametrize("how", ["commits", "aborts", "is left"])
@pytest.mark.parametrize("timeout_ms", [3_000, 30_000])
def test_45_with_timeouts_and_readers_from_the_latest_offset(timeout_ms: int, how: str) -> None:
    """The demonstration on Kafka: timeouts of 3 s and 30 s, a reader that begins at the end of what was
    there."""
    scene = Scene()
    with Producer(scene.log) as plain:
        plain.send("t", [{"n": 0}], partition=0)
    latest = scene.stable()
    first = scene.begun("txn1", 1, transaction_timeout_ms=timeout_ms)
    second = scene.begun("txn2", 2, transaction_timeout_ms=30_000)
    second.commit()
    scene.clock.ms += timeout_ms - 1_000
    assert scene.read(start=latest) == [], "txn1 is open and in time"
    if how != "is left":
        first.commit() if how == "commits" else first.abort()
        assert scene.read(start=latest) == ([1, 2] if how == "commits" else [2])
        return
    scene.clock.ms += 2_000
    assert scene.read(start=latest) == [], "nobody has ended it yet"
    with Producer(scene.other_process(), "anybody") as anybody, anybody.transaction() as txn:
        txn.send("t", [{"n": 3}], partition=0)
    assert scene.read(start=latest) == [2, 3], "a writer that came along ended it with its own entry"
    assert scene.log.outcome("txn1", 0).cause is Cause.TIMEOUT
    with pytest.raises(TransactionTimedOutError):
        first.commit()
    first.abort()
    first.begin()
    send(first, 4)
    first.commit()
    assert scene.read(start=latest) == [2, 3, 4], "its producer goes on with a new transaction"


def test_45_a_reader_that_may_ends_what_is_over() -> None:
    scene = Scene()
    scene.begun("left", 1, transaction_timeout_ms=3_000)
    with Producer(scene.log) as plain:
        plain.send("t", [{"n": 2}], partition=0)
    scene.clock.ms += 3_100  # entries are a millisecond apart, however still the clock stands
    assert scene.read() == []
    assert scene.read(end_expired=True) == [2]


def test_45_one_who_only_watches_ends_it_even_in_a_log_whose_time_ran_ahead() -> None:
    """A writer ten years ahead: its transaction would expire in ten years by any clock, but not by watching
    it."""
    scene = Scene()
    ten_years = 10 * 365 * 24 * 3_600_000
    scene.clock.ms += ten_years
    scene.begun("wrong clock", 1, transaction_timeout_ms=3_000)
    scene.clock.ms -= ten_years
    watcher = scene.other_process()
    watcher.refresh()
    scene.clock.ms += 2_999
    assert watcher.maintain("timeouts").timed_out == ()
    scene.clock.ms += 1
    assert watcher.maintain("timeouts").timed_out == ("wrong clock",)
    assert scene.stable() == 2
