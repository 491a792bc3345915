"""The power of the history checker: no false alarm on valid histories; every seeded anomaly is found."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from txnlog_testing.checker import AnomalyClass, EventType, check_history
from txnlog_testing.checker.generate import generate_history
from txnlog_testing.checker.mutate import MUTATIONS, mutate

BLOCK = 50


@pytest.mark.parametrize("block", range(4))
def test_no_false_alarm_on_valid_histories(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        report = check_history(generate_history(seed))
        assert report.ok, f"seed {seed}: {report}"


def test_valid_histories_hold_what_a_checker_can_stumble_over() -> None:
    """Unknown and failed outcomes, operations that never end, every micro-operation; and all classes are
    judged."""
    events = [event for seed in range(20) for event in generate_history(seed)]
    assert {event.type for event in events} == set(EventType)
    assert len({event.f for event in events}) == 11
    assert len({type(micro).__name__ for event in events for micro in event.value or ()}) == 5
    unjudged: set[AnomalyClass] = set(AnomalyClass)
    for seed in range(5):
        unjudged &= set(check_history(generate_history(seed)).unjudged)
    assert unjudged == set()
    assert generate_history(1) == generate_history(1)


@pytest.mark.parametrize("block", range(4))
def test_every_seeded_anomaly_is_found(block: int) -> None:
    """Over 1,000 of them in the four blocks."""
    made: Counter[str] = Counter()
    for seed in range(block * 14, block * 14 + 14):
        events = generate_history(seed, rounds=4)
        for name, (_, classes) in MUTATIONS.items():
            mutated = mutate(events, name, random.Random(seed))
            if mutated is not None:
                made[name] += 1
                report = check_history(mutated)
                assert classes & set(report.counts), f"seed {seed}: {name} was not found: {report}"
    assert set(made) == set(MUTATIONS), "each of them has an occasion"
    assert sum(made.values()) > 250


def test_mutations_are_of_all_classes_but_those_that_need_a_hand() -> None:
    """What is left is shown by histories made by hand: variants of circles whose order comes from a
    process.
    """
    seeded = frozenset[AnomalyClass]().union(*(classes for _, classes in MUTATIONS.values()))
    assert set(AnomalyClass) - seeded == {
        AnomalyClass.G0_PROCESS,
        AnomalyClass.G0_REALTIME,
        AnomalyClass.G1C_PROCESS,
    }
