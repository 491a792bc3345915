"""Topics and partitions of both sides; rates."""

from __future__ import annotations

import pytest

from txnformat.errors import InvalidInputError
from txnlog.kafka.pace import Pace
from txnlog.kafka.routing import as_routes, as_topics


def test_topics_are_named_in_three_ways() -> None:
    assert as_topics("a") == {"a": "a"}
    assert as_topics(["a", "b"]) == {"a": "a", "b": "b"}
    assert as_topics({"a": "x"}) == {"a": "x"}


@pytest.mark.parametrize("odd", [None, 3, [], {}, "", ["a", 3], {"a": 3}, {"": "a"}, [None]])
def test_other_topics_are_refused(odd: object) -> None:
    with pytest.raises(InvalidInputError) as raised:
        as_topics(odd)
    assert raised.value.kind == "invalid-topics"


def test_partitions_go_where_the_routes_say() -> None:
    assert [as_routes("same").target(number) for number in (0, 7)] == [0, 7]
    assert as_routes("key").target(7) is None
    assert as_routes({0: 3}).target(0) == 3


def test_every_partition_without_a_place_is_named() -> None:
    assert len(as_routes("same").problems("t", range(4), 2)) == 2
    assert as_routes("key").problems("t", range(4), 1) == []
    assert len(as_routes({0: 0, 1: 9}).problems("t", range(3), 2)) == 2


@pytest.mark.parametrize("odd", [None, "other", {}, {0: -1}, {"0": 1}, {True: 0}])
def test_other_routes_are_refused(odd: object) -> None:
    with pytest.raises(InvalidInputError) as raised:
        as_routes(odd)
    assert raised.value.kind == "invalid-partitions"


def test_a_pace_lets_no_more_pass_than_its_rate() -> None:
    pace = Pace(100)
    assert pace.wait_ms(1_000) == 0
    pace.passed(50, 1_000)
    assert pace.wait_ms(1_000) == 500
    assert pace.wait_ms(1_400) == 100
    pace.passed(10, 1_500)
    assert pace.wait_ms(1_500) == 100
    pace.passed(10, 9_000)  # what did not pass before is not made up for
    assert pace.wait_ms(9_000) == 100
    unlimited = Pace(None)
    unlimited.passed(10**9, 0)
    assert unlimited.wait_ms(0) == 0
