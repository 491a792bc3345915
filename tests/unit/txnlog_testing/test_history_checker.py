"""The history checker: each class shown by a history made by hand, and the near misses that are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.txnlog_testing.history_by_hand import Hand, crossed
from txnformat.errors import InvalidInputError
from txnformat.types import IsolationLevel
from txnlog_testing import check_history as command
from txnlog_testing.checker import (
    DEFINITIONS,
    KAFKA,
    TXNLOG,
    AnomalyClass,
    CommitOffsets,
    HistoryWriter,
    Poll,
    ReadOffsets,
    Send,
    StableOffset,
    TransactionTag,
    check_history,
)
from txnlog_testing.checker.cycles import components

CASES: dict[str, Callable[[Hand], None]] = {}
IMPLIED: dict[str, set[str]] = {
    "time-travel": {"inconsistent-offsets"},  # two values at one offset, whoever says so
    "partial-poll": {"int-poll-skip"},  # whoever passes over a part passes over it
}
"""What is found beside a class, because it follows from it."""


def case(function: Callable[[Hand], None]) -> Callable[[Hand], None]:
    CASES[function.__name__.strip("_").replace("_", "-").replace("g0", "G0").replace("g1", "G1")] = function
    return function


@case
def duplicate(h: Hand) -> None:
    h.send(Send("t/0", 1), Send("t/0", 2), f="send")
    h.poll((0, 1), (1, 2), (2, 1))


@case
def inconsistent_offsets(h: Hand) -> None:
    h.send(Send("t/0", 1, offset=0))
    h.send(Send("t/0", 2, offset=0), by="x")


@case
def g1a(h: Hand) -> None:
    h.send(Send("t/0", 1), end="fail")
    h.poll((0, 1))


@case
def precommitted_read(h: Hand) -> None:
    h.do("w", "txn", Send("t/0", 1), Poll({"t/0": ((0, 1),)}))


@case
def lost_write(h: Hand) -> None:
    h.send(Send("t/0", 1))
    h.send(Send("t/0", 2))
    h.send(Send("t/0", 3))
    h.poll((0, 1), (2, 3))


@case
def unseen(h: Hand) -> None:
    h.send(Send("t/0", 1))
    h.send(Send("t/0", 2))
    h.whole(t_0=[(0, 1)])


@case
def poll_skip(h: Hand) -> None:
    for value in range(3):
        h.send(Send("t/0", value))
    h.poll((0, 0), (1, 1), (2, 2), by="other")
    h.poll((0, 0))
    h.poll((2, 2))


@case
def nonmonotonic_poll(h: Hand) -> None:
    for value in range(2):
        h.send(Send("t/0", value))
    h.poll((0, 0), (1, 1))
    h.poll((1, 1))


@case
def int_poll_skip(h: Hand) -> None:
    for value in range(3):
        h.send(Send("t/0", value))
    h.poll((0, 0), (1, 1), (2, 2), by="other")
    h.poll((0, 0), (2, 2))


@case
def int_nonmonotonic_poll(h: Hand) -> None:
    for value in range(2):
        h.send(Send("t/0", value))
    h.poll((1, 1), (0, 0))


@case
def nonmonotonic_send(h: Hand) -> None:
    h.send(Send("t/0", 1, offset=1), f="send")
    h.send(Send("t/0", 2, offset=0), f="send")


@case
def int_nonmonotonic_send(h: Hand) -> None:
    h.send(Send("t/0", 1), Send("t/0", 2))
    h.poll((0, 2), (1, 1))


@case
def int_send_skip(h: Hand) -> None:
    h.event("a", "txn", "invoke", [Send("t/0", 1), Send("t/0", 3)])
    h.send(Send("t/0", 2), by="b", interleaved=True)
    h.event("a", "txn", "ok")
    h.poll((0, 1), (1, 2), (2, 3))


@case
def g0(h: Hand) -> None:
    crossed(h)


@case
def g0_process(h: Hand) -> None:
    h.event("b", "txn", "invoke", [Send("t/1", 3), Send("t/0", 4)])
    h.send(Send("t/0", 5), by="a")
    h.send(Send("t/1", 2), by="a")
    h.event("b", "txn", "ok")
    h.poll((0, 4), (1, 5), by="r1")  # b before a's first
    h.poll((0, 2), (1, 3), key="t/1", by="r2")  # a's second before b


@case
def g0_realtime(h: Hand) -> None:
    h.event("b", "txn", "invoke", [Send("t/1", 3), Send("t/0", 4)])
    h.send(Send("t/0", 5), by="a")
    h.send(Send("t/1", 2), by="c")
    h.event("b", "txn", "ok")
    h.poll((0, 4), (1, 5), by="r1")
    h.poll((0, 2), (1, 3), key="t/1", by="r2")


@case
def g1c(h: Hand) -> None:
    h.event("a", "txn", "invoke", [Send("t/0", 1)])
    h.event("b", "txn", "invoke", [Send("t/1", 2)])
    h.event("a", "txn", "ok", [Send("t/0", 1), Poll({"t/1": ((0, 2),)})])
    h.event("b", "txn", "ok", [Send("t/1", 2), Poll({"t/0": ((0, 1),)})])


@case
def g1c_process(h: Hand) -> None:
    h.event("b", "txn", "invoke", [Send("t/0", 1)])
    h.do("a", "poll", Poll({"t/0": ((0, 1),)}))
    h.do("a", "txn", Send("t/1", 2))
    h.event("b", "txn", "ok", [Send("t/0", 1), Poll({"t/1": ((0, 2),)})])


@case
def g1c_realtime(h: Hand) -> None:
    h.event("b", "txn", "invoke", [Send("t/0", 1)])
    h.do("a", "poll", Poll({"t/0": ((0, 1),)}))
    h.do("c", "txn", Send("t/1", 2))
    h.event("b", "txn", "ok", [Send("t/0", 1), Poll({"t/1": ((0, 2),)})])


@case
def torn(h: Hand) -> None:
    h.send(Send("t/0", 1), Send("t/1", 2), end="info")
    h.whole(t_0=[(0, 1)], t_1=[])


@case
def partial_poll(h: Hand) -> None:
    h.send(Send("t/0", 1), Send("t/0", 2), Send("t/0", 3))
    h.poll((0, 1), (1, 2), (2, 3), by="other")
    h.poll((0, 1), (2, 3))


@case
def lso_stall(h: Hand) -> None:
    h.send(Send("t/0", 1))
    h.do("o", "observe", StableOffset("t/0", 0, 2))


@case
def offset_atomicity(h: Hand) -> None:
    h.do("w", "txn", Send("t/0", 1), CommitOffsets("g", {"in/0": 5}))
    h.poll((0, 1))
    h.do("o", "observe", ReadOffsets("g", {"in/0": None}))


@case
def zombie_visible(h: Hand) -> None:
    h.do("new", "init", transaction=TransactionTag("p", epoch=2))
    h.send(Send("t/0", 1), by="old", end="info", transaction=TransactionTag("p", epoch=1))
    h.poll((0, 1))


@case
def stale_seq(h: Hand) -> None:
    tag = TransactionTag("p", epoch=1)
    h.send(Send("t/0", 1, sequence=0), Send("t/0", 2, sequence=0), transaction=tag)
    h.poll((0, 1), (1, 2))


@case
def resurrected(h: Hand) -> None:
    h.send(Send("t/0", 1), f="send")
    h.poll((0, 1))
    h.whole(t_0=[])


@case
def time_travel(h: Hand) -> None:
    h.send(Send("t/0", 1), f="send")
    h.send(Send("t/0", 2), f="send", end="info", by="x")
    h.poll((0, 1))
    h.poll((0, 2), by="r2")


@case
def unwritten(h: Hand) -> None:
    h.send(Send("t/0", 1))
    h.poll((0, 1), (1, 2))


def test_every_class_has_a_case_and_a_definition() -> None:
    assert {name.lower() for name in CASES} == {cls.value.lower() for cls in AnomalyClass}
    assert set(DEFINITIONS) == set(AnomalyClass)


@pytest.mark.parametrize("name", CASES)
def test_each_class_is_found_and_nothing_that_does_not_follow_from_it(name: str) -> None:
    hand = Hand()
    CASES[name](hand)
    found = hand.found()
    (cls,) = [cls for cls in AnomalyClass if cls.value.lower() == name.lower()]
    assert found.pop(cls.value) == 1
    assert set(found) == IMPLIED.get(name, set())


def test_kafkas_allowances() -> None:
    """What Kafka does not promise is told, and no violation."""
    for name, allowed in (("int-send-skip", True), ("G0", True), ("poll-skip", False), ("G1a", False)):
        hand = Hand()
        CASES[name](hand)
        report = check_history(hand.events, KAFKA)
        assert report.ok is allowed
        assert bool(report.allowed) is allowed
    hand = Hand()
    hand.do("r", "subscribe")
    poll_skip(hand)
    assert not check_history(hand.events, TXNLOG).ok
    report = check_history(hand.events, KAFKA)
    assert report.ok
    assert report.allowed == {AnomalyClass.POLL_SKIP: 1}


def test_a_report_says_what_was_found_and_what_could_not_be() -> None:
    hand = Hand()
    for value in range(150):
        hand.send(Send("t/0", value), end="fail")
    hand.poll(*enumerate(range(150)))
    report = hand.check()
    assert report.counts == {AnomalyClass.G1A: 150}
    assert len(report.anomalies) == len(report.of(AnomalyClass.G1A)) == 100
    one = report.anomalies[7]
    assert one.operations == (14, 300)
    assert (one.keys, one.values) == (("t/0",), (7,))
    text = str(report)
    assert "poll of r read 7 of t/0 as committed, but txn of w failed" in one.what
    assert "G1a: 150" in text
    assert "not judged, torn" in text
    plain = json.loads(json.dumps(report.to_json()))
    assert (plain["ok"], plain["counts"]) == (False, {"G1a": 150})
    assert set(plain["unjudged"]) == {
        "unseen",
        "torn",
        "resurrected",
        "offset-atomicity",
        "lso-stall",
        "zombie-visible",
        "stale-seq",
    }


def test_a_poll_of_a_snapshot_is_a_whole_one() -> None:
    hand = Hand()
    hand.poll((0, 1), isolation=IsolationLevel.SNAPSHOT)
    with pytest.raises(InvalidInputError, match="a poll of a snapshot is a whole one"):
        hand.check()


def test_one_value_of_two_writers_is_no_history() -> None:
    hand = Hand()
    hand.send(Send("t/0", 1), by="a")
    hand.send(Send("t/0", 1), by="b", f="send")
    with pytest.raises(InvalidInputError, match="a value was sent twice"):
        hand.check()
    hand = Hand()
    hand.send(Send("t/0", 1), Send("t/0", 1))
    with pytest.raises(InvalidInputError, match="a value was sent twice"):
        hand.check()
    hand = Hand()
    hand.send(Send("t/0", 1), Send("t/1", 1))
    assert hand.found() == {}


def test_components_of_a_long_circle_need_no_recursion() -> None:
    count = 50_000
    graph = {number: {(number + 1) % count: "ww"} for number in range(count)}
    graph[count] = {0: "ww"}
    assert [len(found) for found in components(graph)] == [count]


# --- the command --------------------------------------------------------------------------------------------


def test_the_command_reads_files_and_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, end in (("good", "ok"), ("bad", "fail")):
        with HistoryWriter(tmp_path / name / "a.jsonl") as history:
            with history.operation("w", "txn", [Send("t/0", 1)]) as op:
                op.ok() if end == "ok" else op.fail()
            with history.operation("r", "poll") as op:
                op.add(Poll({"t/0": ((0, 1),)}, whole=True))
    assert command.main([str(tmp_path / "good")]) == 0
    assert capsys.readouterr().out.startswith("clean: 2 operations, 1 values, 1 records read")
    assert command.main([str(tmp_path / "bad" / "a.jsonl"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["counts"] == {"G1a": 1}
    assert command.main([str(tmp_path / "none")]) == 2
    assert "there is no history" in capsys.readouterr().err
