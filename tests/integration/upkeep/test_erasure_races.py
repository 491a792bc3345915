"""Erasures beside compactors and other erasures, paused at requests; files that land late. ``make campaigns``
and ``make erasure`` take every request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from tests.erasure.meetings import assert_erased, compact, erase, filled, meetings, opened
from tests.erasure.world import CANARY, GRACE, PEOPLE, canaries, complete, made, names, pass_time, write
from tests.model.groups import ManualClock
from tests.rounds import rounds
from txnformat.core.lifecycle.state import COMPLETE_MAX
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import RequestKind
from txnlog import NotFoundError, Producer, TxnLog
from txnlog_testing.stores.faulty import Fault, FaultyStore

STRIDE = rounds(13, 1)
"""One request of so many."""


@pytest.mark.parametrize(
    ("first", "second"),
    [(compact, erase), (erase, compact), (erase, erase)],
    ids=["the compactor waits", "the erasure waits", "two calls"],
)
def test_clients_that_meet_at_any_request(
    first: Callable[[TxnLog], Any], second: Callable[[TxnLog], Any]
) -> None:
    assert meetings(first, second, STRIDE) > 20


def test_the_file_of_a_compactor_that_lost_lands_below_the_replace() -> None:
    """It planned before the erasure, and uploads afterwards: a vacuum above the erasure's replace
    deletes it.
    """
    log = filled()
    found: dict[str, Any] = {}

    def plan(operation: RequestKind, key: str, nth: int) -> Fault | None:
        if operation is RequestKind.OPEN_WRITE and not found:
            found["key"] = key
            found["status"] = erase(opened(log))
        return None

    compact(opened(log, FaultyStore(log.store, plan)))
    assert int(found["key"].rpartition("/")[2][:20]) < found["status"].replaced_entry
    assert found["key"] in canaries(log.store), "the orphan holds what was erased"
    complete(opened(log))
    assert log.store.head(found["key"]) is None
    assert_erased(log)


def test_a_compactor_names_no_file_of_which_an_erasure_has_replaced_a_part() -> None:
    """Its file has the records of two partitions. The erasure rewrites one of them, looks once more, and the
    compactor's entry lands before it says how far it came."""
    clock = ManualClock()
    log = made(MemoryStore(clock), clock)
    write(log, "a", f"{CANARY}1")
    write(log, "b", partition=1)
    log.maintain("seal")
    has_written, may_go_on = threading.Event(), threading.Event()
    rewritten: list[str] = []

    def waits(operation: RequestKind, key: str, nth: int) -> Fault | None:
        if operation is RequestKind.CREATE and key.endswith(".runs"):
            has_written.set()
            assert may_go_on.wait(60)
        return None

    compactor = threading.Thread(target=compact, args=(opened(log, FaultyStore(log.store, waits)),))

    def lets_go(operation: RequestKind, key: str, nth: int) -> Fault | None:
        if operation is RequestKind.CREATE and (rewritten or key.endswith(".runs")):
            rewritten.append(key)
            entries = [one for one in rewritten if one.startswith("_txnlog/log/")]
            if len(entries) == 2 and compactor.is_alive():  # after the replace, how far it came
                may_go_on.set()
                compactor.join()
        return None

    compactor.start()
    assert has_written.wait(60)
    erase(opened(log, FaultyStore(log.store, lets_go)))
    assert not compactor.is_alive()
    complete(opened(log))
    assert canaries(log.store) == {}
    assert names(opened(log)) == ["a", "b"]


def test_the_topic_is_altered_and_compacted_while_a_call_begins() -> None:
    """The files that the call finds then have a column that its first look at the topic did not."""

    def altered(log: TxnLog) -> None:
        log.alter_topic("t", partitions=3, add_columns=pa.schema([("extra", pa.string())]))
        compact(log)

    def follows(operation: RequestKind, key: str) -> bool:
        return operation is RequestKind.GET and key.startswith("_txnlog/log/")

    assert meetings(erase, altered, 1, follows) > 5


def test_files_are_compacted_and_deleted_while_a_call_reads_them() -> None:
    """The call plans anew: when it looks for records, when it writes what stays, and when it looks again."""

    def swept(log: TxnLog) -> None:
        compact(log)
        for _ in range(2):
            pass_time(log)
            log.vacuum(GRACE)

    def reads(operation: RequestKind, key: str) -> bool:
        return operation is RequestKind.GET_RANGE and "/data/" in key

    assert meetings(erase, swept, 1, reads) > 6


@pytest.mark.parametrize("suffix", [".runs", ".json"], ids=["when it writes", "when it commits"])
def test_a_call_sleeps_until_its_erasure_left_the_state(suffix: str) -> None:
    """Another call completed it, and a hundred others were completed after it. The error says so."""
    log = filled()
    done = False

    def others() -> None:
        other = opened(log)
        erase(other)
        complete(other)
        for number in range(COMPLETE_MAX):
            other.erase("t", "n = -1", requested_by="x", key=f"{number:032}")
        complete(other)
        assert len(other.erasures()) == COMPLETE_MAX

    def plan(operation: RequestKind, key: str, nth: int) -> None:
        nonlocal done
        requested = bool(opened(log).erasures())
        if not done and requested and operation is RequestKind.CREATE and key.endswith(suffix):
            done = True
            others()

    with pytest.raises(NotFoundError, match="it is complete, and 100 others were completed after it") as got:
        erase(opened(log, FaultyStore(log.store, plan)))
    assert (got.value.kind, done) == ("unknown-erasure", True)
    assert canaries(log.store) == {}


def test_two_first_calls_with_the_same_key_make_one_erasure() -> None:
    """A transaction is open, so neither call is done at once; the second comes before each entry that the
    first one writes."""
    for place in count():
        log = filled()
        producer = Producer(log, "open", buffer="inline")
        producer.init()
        producer.begin()
        producer.send("t", [{"name": "d", "n": 1}], partition=1)
        producer.flush()
        left = place

        def plan(operation: RequestKind, key: str, nth: int) -> None:
            nonlocal left
            left -= operation is RequestKind.CREATE and key.startswith("_txnlog/log/")
            if left == -1:
                left = -2
                erase(opened(log))  # noqa: B023  # used within the round

        first = erase(opened(log, FaultyStore(log.store, plan)))
        assert [one.erasure_id for one in opened(log).erasures()] == [first.erasure_id], place
        producer.abort()
        producer.close()
        assert_erased(log)
        if left >= 0:
            break
    assert place > 2


def _keyed() -> TxnLog:
    """Return a log whose key x was written twice; an older part has the other record."""
    clock = ManualClock()
    log = TxnLog.create(MemoryStore(clock), clock=clock)
    log.create_topic("t", PEOPLE, key_columns=["name"], settings={"cleanup.policy": "compact"})
    for rows in ([("x", 1), ("y", 1)], [("z", 5)], [("x", 666)], [("q", 1)]):
        with Producer(log, "p", buffer="inline") as producer, producer.transaction():
            producer.send("t", [{"name": name, "n": number} for name, number in rows], partition=0)
        log.maintain("seal")
    return log


def _rows(log: TxnLog) -> list[tuple[str, int]]:
    found = log.read("t", columns=["name", "n"]).read_all().to_pylist()
    return sorted((row["name"], row["n"]) for row in found)


def test_key_compaction_takes_no_record_that_is_the_latest_since_an_erasure() -> None:
    """The pass compared keys with a record that an erasure has removed: it begins anew."""
    seen = set()
    for place in count(0, rounds(3, 1)):
        log = _keyed()
        left = place
        after: list[tuple[str, int]] = []

        def erase(operation: object, key: str, nth: int) -> None:
            nonlocal left
            left -= 1
            if left == -1:
                other = TxnLog.open(log.store, clock=log.committer.clock)  # noqa: B023  # used within the round
                other.erase("t", "n = 666", requested_by="the desk", key="k" * 32)
                after.extend(_rows(other))  # noqa: B023

        slow = TxnLog.open(FaultyStore(log.store, erase), clock=log.committer.clock)
        slow.compact("t", min_lag_ms=0, target_bytes=1)
        if left >= 0:
            break
        assert _rows(TxnLog.open(log.store, clock=log.committer.clock)) == after, place
        seen.add(("x", 1) in after)
    assert seen == {True, False}, "before the erasure, and after the older record was removed"
