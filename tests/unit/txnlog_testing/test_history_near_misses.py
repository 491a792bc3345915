"""The history checker: what looks like an anomaly and is none, and faces of the classes that are easily
overlooked."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.unit.txnlog_testing.history_by_hand import UNCOMMITTED, Hand, crossed
from txnformat.types import IsolationLevel
from txnlog_testing.checker import (
    CommitOffsets,
    Order,
    Poll,
    ReadOffsets,
    Send,
    StableOffset,
    TransactionTag,
)

# --- what is no anomaly -------------------------------------------------------------------------------------


def _clean(**lines: Callable[[Hand], None]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("make", lines.values(), ids=[name.replace("_", " ") for name in lines])


def _unknown_that_is_there(h: Hand) -> None:
    h.send(Send("t/0", 1), Send("t/1", 2), end="info")
    h.whole(t_0=[(0, 1)], t_1=[(0, 2)])


def _unknown_that_is_not_there(h: Hand) -> None:
    h.send(Send("t/0", 1), Send("t/1", 2), end=None)
    h.do("op", "quiesce")
    h.whole(t_0=[], t_1=[])


def _sends_outside_of_transactions_in_part(h: Hand) -> None:
    h.send(Send("t/0", 1), Send("t/1", 2), f="send", end="info")
    h.whole(t_0=[(0, 1)], t_1=[])


def _a_failed_write_read_as_uncommitted(h: Hand) -> None:
    h.send(Send("t/0", 1), end="fail")
    h.send(Send("t/0", 2))
    h.poll((0, 1), (2, 2), isolation=UNCOMMITTED)
    h.poll((2, 2))


def _attempts_of_one_transaction(h: Hand) -> None:
    tag = TransactionTag("q", version=3)
    h.send(Send("t", 1), Send("t", 2), by="a", end="fail", transaction=tag, unordered=True)
    h.send(Send("t", 1), Send("t", 2), by="b", end=None, transaction=tag, unordered=True)
    h.do("r", "poll", Poll({"t/0": ((4, 2),), "t/1": ((7, 1),)}))
    h.send(Send("t", 1), Send("t", 2), by="c", transaction=tag, unordered=True)
    h.whole(t_0=[(4, 2)], t_1=[(7, 1)])


def _the_same_work_again_in_another_transaction(h: Hand) -> None:
    h.send(Send("t/0", 1), end="fail", transaction=TransactionTag("p", epoch=1))
    h.send(Send("t/0", 1), end="info", transaction=TransactionTag("p", epoch=2))
    h.send(Send("t/0", 1), transaction=TransactionTag("p", epoch=3))
    h.whole(t_0=[(2, 1)])


def _readers_that_lag(h: Hand) -> None:
    for value in range(4):
        h.send(Send("t/0", value))
    h.poll((0, 0))
    h.poll((2, 2), by="late")


def _a_reader_that_was_set_anew(h: Hand) -> None:
    for value in range(3):
        h.send(Send("t/0", value))
    h.poll((0, 0), (1, 1))
    h.do("r", "seek", keys=("t/0",))
    h.poll((0, 0))
    h.do("r", "crash")
    h.poll((2, 2))
    h.do("r", "subscribe")
    h.poll((0, 0), (1, 1), (2, 2))
    h.event("r", "poll", "invoke")  # and dies
    h.poll((0, 0))


def _a_partition_that_moved_during_a_poll(h: Hand) -> None:
    for value in range(3):
        h.send(Send("t/0", value))
    h.poll((0, 0), (1, 1), (2, 2), by="other")
    h.poll((0, 0), (1, 1))
    h.do("r", "poll", Poll({"t/0": ((0, 0),)}), Poll({"t/0": ((2, 2),)}), rebalanced=("t/0",))
    h.poll((1, 1))


def _interleaved_transactions(h: Hand) -> None:
    crossed(h, interleaved=True)


def _an_open_transaction_holds_a_whole_read_back(h: Hand) -> None:
    h.send(Send("t/0", 1), by="open", end=None, interleaved=True)
    h.send(Send("t/0", 2), Send("t/1", 3))
    h.whole(t_0=[], t_1=[(0, 3)])
    h.do("o", "observe", StableOffset("t/0", 0, 3))


def _a_snapshot_passes_over_what_is_open(h: Hand) -> None:
    h.event("open", "txn", "invoke", [Send("t/0", 1)], interleaved=True)
    h.send(Send("t/0", 2, offset=1))
    h.do("s", "poll", Poll({"t/0": ((1, 2),)}, isolation=IsolationLevel.SNAPSHOT, whole=True))
    h.event("open", "txn", "ok", [Send("t/0", 1, offset=0)], interleaved=True)


def _a_range_that_ends_before(h: Hand) -> None:
    h.send(Send("t/0", 1, offset=0))
    h.send(Send("t/0", 2, offset=2))
    h.do("r", "poll", Poll({"t/0": ((0, 1),)}, whole=True, ranges={"t/0": (0, 2)}))


def _the_next_instance_ended_what_was_open(h: Hand) -> None:
    h.send(Send("t/0", 1), end="info", transaction=TransactionTag("p", epoch=1), interleaved=True)
    h.do("o", "observe", StableOffset("t/0", 0, 1))
    h.do("w2", "init", transaction=TransactionTag("p", epoch=2))
    h.do("o", "observe", StableOffset("t/0", 2, 2))


def _a_zombie_that_was_in_time(h: Hand) -> None:
    h.event("old", "txn", "invoke", [Send("t/0", 1)], transaction=TransactionTag("p", epoch=1))
    h.do("new", "init", transaction=TransactionTag("p", epoch=2))
    h.send(Send("t/0", 2), by="new", transaction=TransactionTag("p", epoch=2))
    h.event("old", "txn", "info", transaction=TransactionTag("p", epoch=1))
    h.poll((0, 1), (2, 2))


def _positions_of_who_may_be_the_last(h: Hand) -> None:
    h.event("a", "txn", "invoke", [CommitOffsets("g", {"in/0": 5})])
    h.do("b", "txn", CommitOffsets("g", {"in/0": 7}))
    h.do("o", "observe", ReadOffsets("g", {"in/0": 7}))
    h.event("a", "txn", "ok")
    h.do("o", "observe", ReadOffsets("g", {"in/0": 5}))
    h.do("c", "commit", CommitOffsets("g", {"in/0": 6}), end="info")
    h.do("o", "observe", ReadOffsets("g", {"in/0": 6}))


def _the_order_of_commits(h: Hand) -> None:
    h.event("a", "txn", "invoke", [Send("t/0", 1), Send("t/0", 3)], interleaved=True)
    h.send(Send("t/0", 2))
    h.event("a", "txn", "ok", [Send("t/0", 1, offset=0), Send("t/0", 3, offset=3)], interleaved=True)
    h.poll((1, 2), order=Order.COMMIT)
    h.poll((0, 1), (3, 3), order=Order.COMMIT)


@_clean(
    unknown_that_is_there=_unknown_that_is_there,
    unknown_that_is_not_there=_unknown_that_is_not_there,
    sends_in_part=_sends_outside_of_transactions_in_part,
    uncommitted=_a_failed_write_read_as_uncommitted,
    attempts=_attempts_of_one_transaction,
    same_work=_the_same_work_again_in_another_transaction,
    lag=_readers_that_lag,
    set_anew=_a_reader_that_was_set_anew,
    rebalanced=_a_partition_that_moved_during_a_poll,
    interleaved=_interleaved_transactions,
    held_back=_an_open_transaction_holds_a_whole_read_back,
    snapshot=_a_snapshot_passes_over_what_is_open,
    shorter_range=_a_range_that_ends_before,
    next_instance=_the_next_instance_ended_what_was_open,
    zombie_in_time=_a_zombie_that_was_in_time,
    positions=_positions_of_who_may_be_the_last,
    commit_order=_the_order_of_commits,
)
def test_what_may_be_is_not_found(make: Callable[[Hand], None]) -> None:
    hand = Hand()
    make(hand)
    assert hand.found() == {}


# --- other faces of the classes -----------------------------------------------------------------------------


def _torn_over_two_final_reads(h: Hand) -> None:
    h.send(Send("t/0", 1), Send("t/1", 2), end="info")
    h.do("op", "quiesce")
    h.whole(t_0=[(0, 1)])
    h.whole(t_1=[])


def _torn_where_the_partition_is_not_known(h: Hand) -> None:
    h.send(Send("t", 1), Send("t", 2), end=None, unordered=True)
    h.whole(t_0=[(0, 1)], t_1=[])


def _a_snapshot_that_lacks_what_was_acknowledged(h: Hand) -> None:
    h.send(Send("t/1", 1), by="open", end=None, interleaved=True)
    h.send(Send("t/0", 2), Send("t/1", 3))
    h.do("s", "poll", Poll({"t/0": ((0, 2),), "t/1": ()}, isolation=IsolationLevel.SNAPSHOT, whole=True))


def _split_in_the_order_of_commits(h: Hand) -> None:
    h.send(Send("t/0", 1), Send("t/1", 2))
    h.do("r", "poll", Poll({"t/0": ((0, 1),), "t/1": ()}, order=Order.COMMIT))
    h.do("r", "poll", Poll({"t/0": (), "t/1": ((0, 2),)}, order=Order.COMMIT))


def _skipped_in_the_order_of_commits(h: Hand) -> None:
    for value in range(3):
        h.send(Send("t/0", value))
    h.poll((0, 0), (1, 1), (2, 2), by="other")
    h.poll((0, 0), order=Order.COMMIT)
    h.poll((2, 2), order=Order.COMMIT)


def _again_in_the_order_of_commits(h: Hand) -> None:
    h.send(Send("t/0", 1))
    h.poll((0, 1), order=Order.COMMIT)
    h.poll((0, 1), order=Order.COMMIT)


def _backwards_in_the_order_of_commits(h: Hand) -> None:
    h.send(Send("t/0", 1))
    h.send(Send("t/0", 2))
    h.poll((1, 2), (0, 1), order=Order.COMMIT)


def _the_end_of_a_range(h: Hand) -> None:
    for value in range(2):
        h.send(Send("t/0", value))
    h.poll((0, 0), (1, 1), by="other")
    h.poll((0, 0), ranges={"t/0": (0, 2)})


def _stable_offset_that_went_back(h: Hand) -> None:
    h.do("o", "observe", StableOffset("t/0", 5, 5))
    h.do("o", "observe", StableOffset("t/0", 4, 4))


def _position_of_a_failed_transaction(h: Hand) -> None:
    h.do("w", "txn", CommitOffsets("g", {"in/0": 5}), end="fail")
    h.do("o", "observe", ReadOffsets("g", {"in/0": 5}))


def _position_without_its_outputs(h: Hand) -> None:
    h.do("w", "txn", Send("t/0", 1), CommitOffsets("g", {"in/0": 5}), end="info")
    h.do("o", "observe", ReadOffsets("g", {"in/0": 5}))
    h.whole(t_0=[])


def _a_zombie_behind_its_successor(h: Hand) -> None:
    h.event("old", "txn", "invoke", [Send("t/0", 1)], transaction=TransactionTag("p", epoch=1))
    h.send(Send("t/0", 2), by="new", transaction=TransactionTag("p", epoch=2))
    h.event("old", "txn", "info", transaction=TransactionTag("p", epoch=1))
    h.poll((0, 2), (2, 1))


def _an_older_version_behind_a_newer(h: Hand) -> None:
    h.send(Send("t/0", 2), by="new", transaction=TransactionTag("q", version=2))
    h.send(Send("t/0", 1), by="old", end="info", transaction=TransactionTag("q", version=1))
    h.poll((0, 2), (1, 1))


def _one_version_twice(h: Hand) -> None:
    h.send(Send("t/0", 1), by="a", transaction=TransactionTag("q", version=1))
    h.send(Send("t/0", 2), by="b", transaction=TransactionTag("q", version=1))
    h.poll((0, 1), (1, 2))


def _the_same_work_twice(h: Hand) -> None:
    h.send(Send("t/0", 1), transaction=TransactionTag("p", epoch=1))
    h.send(Send("t/0", 1), transaction=TransactionTag("p", epoch=2))
    h.poll((0, 1), (2, 1))


def _lost_by_time_alone(h: Hand) -> None:
    h.send(Send("t/0", 1))
    h.send(Send("t/0", 2))
    h.poll((1, 2), ranges={"t/0": (0, 2)})


def _lost_among_what_its_transaction_wrote(h: Hand) -> None:
    h.send(Send("t/0", 1), Send("t/0", 2), end="info")
    h.poll((1, 2))


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (_torn_over_two_final_reads, {"torn": 1}),
        (_torn_where_the_partition_is_not_known, {"torn": 1}),
        (_a_snapshot_that_lacks_what_was_acknowledged, {"torn": 1, "unseen": 1}),
        (_split_in_the_order_of_commits, {"partial-poll": 2}),
        (_skipped_in_the_order_of_commits, {"poll-skip": 1}),
        (_again_in_the_order_of_commits, {"nonmonotonic-poll": 1}),
        (_backwards_in_the_order_of_commits, {"int-nonmonotonic-poll": 1}),
        (_the_end_of_a_range, {"int-poll-skip": 1}),
        (_stable_offset_that_went_back, {"lso-stall": 1}),
        (_position_of_a_failed_transaction, {"offset-atomicity": 1}),
        (_position_without_its_outputs, {"offset-atomicity": 1}),
        (_a_zombie_behind_its_successor, {"zombie-visible": 1}),
        (_an_older_version_behind_a_newer, {"zombie-visible": 2}),
        (_one_version_twice, {"stale-seq": 1}),
        (_the_same_work_twice, {"duplicate": 1}),
        (_lost_by_time_alone, {"lost-write": 1}),
        (_lost_among_what_its_transaction_wrote, {"lost-write": 1}),
    ],
)
def test_other_faces_of_the_classes(make: Callable[[Hand], None], found: Mapping[str, int]) -> None:
    hand = Hand()
    make(hand)
    assert hand.found() == found
