"""Random transactional histories give the same on a log and on a broker. ``make kafka-diff`` runs 100."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from tests.kafka.diff import IDS, KafkaSide, Step, compare, history
from tests.rounds import rounds


@pytest.mark.parametrize("seed", range(rounds(2, 40)))
def test_a_history_is_the_same_on_both_sides(
    broker: Broker, tmp_path: Path, name: Callable[[], str], seed: int
) -> None:
    assert compare(broker, tmp_path, name(), history(seed, 40)) == []


def test_histories_have_every_kind_of_step() -> None:
    drawn = [step for seed in range(20) for step in history(seed, 40)]
    assert {step.what for step in drawn} == {"begin", "send", "commit", "abort", "init", "zombie"}
    assert {step.who for step in drawn} == {*IDS, "plain"}


@pytest.mark.parametrize(
    ("method", "words"),
    [("abort", "last stable offsets"), ("send", "log ends")],
)
def test_a_side_that_goes_another_way_is_seen(
    broker: Broker,
    tmp_path: Path,
    name: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    words: str,
) -> None:
    """An abort that never comes, a record too few: the comparison is not blind."""
    monkeypatch.setattr("tests.kafka.diff.SETTLE_S", 0.2)
    monkeypatch.setattr(KafkaSide, method, lambda *_: None)
    steps = [Step("begin", "a"), Step("send", "a", 1, 2), Step("abort", "a")]
    (problem,) = compare(broker, tmp_path, name(), steps)
    assert words in problem


def test_an_abort_in_place_of_a_commit_is_seen(
    broker: Broker, tmp_path: Path, name: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both write a marker, so only what is visible and the abort index differ."""
    monkeypatch.setattr(KafkaSide, "commit", KafkaSide.abort)
    problems = compare(
        broker, tmp_path, name(), [Step("begin", "a"), Step("send", "a", 1, 2), Step("commit", "a")]
    )
    assert [problem.split(":")[0] for problem in problems] == [
        "partition 1, committed",
        "partition 1, aborted",
    ]
