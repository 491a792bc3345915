"""Where an import begins, and how its positions are kept."""

from __future__ import annotations

import pytest

from txnformat.errors import CorruptDataError, InvalidInputError, NotFoundError, OffsetOutOfRangeError
from txnlog.kafka.places import (
    NO_ID,
    Bounds,
    Lost,
    Place,
    Position,
    Start,
    Whenever,
    begin,
    position_name,
    positions_of,
)

HELD = {0: Bounds(10, 20), 1: Bounds(0, 5)}


def starts(
    known: dict[int, Position],
    start: Start | None = None,
    on_lost: Whenever = Whenever.STOP,
    *,
    empty: bool = True,
) -> tuple[dict[int, int], list[Lost]]:
    return begin("t", "id", HELD, known, start=start, on_lost=on_lost, target_is_empty=empty)


def test_positions_come_back_as_they_were_written() -> None:
    name, position = position_name("cluster", Place("a.b", 3)), Position(7, "topic-id")
    committed = {
        name: position.text(),
        position_name("other", Place("a.b", 0)): "1 x",
        "kafka:cluster/a.bc/1": "2 y",
    }
    assert positions_of(committed, "cluster", "a.b") == {3: position}


@pytest.mark.parametrize("text", ["", "7", "x id", "-1 id", "7 "])
def test_a_text_that_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(CorruptDataError) as raised:
        positions_of({"kafka:c/t/0": text}, "c", "t")
    assert raised.value.kind == "invalid-position"
    with pytest.raises(CorruptDataError):
        positions_of({"kafka:c/t/x": "1 id"}, "c", "t")


def test_an_empty_topic_begins_at_the_earliest_offsets() -> None:
    assert starts({}) == ({0: 10, 1: 0}, [])
    assert starts({}, Start.LATEST) == ({0: 20, 1: 5}, [])


def test_a_topic_with_records_and_no_positions_needs_a_start() -> None:
    with pytest.raises(InvalidInputError) as raised:
        starts({}, empty=False)
    assert raised.value.kind == "import-without-position"
    assert starts({}, Start.EARLIEST, empty=False) == ({0: 10, 1: 0}, [])


def test_a_partition_that_was_added_begins_at_its_earliest_offset_whatever_start_says() -> None:
    assert starts({0: Position(12, "id")}, Start.LATEST, empty=False) == ({0: 12, 1: 0}, [])


@pytest.mark.parametrize(
    ("offset", "then", "lost"), [(9, 10, [Lost("t", 0, 9, 10)]), (21, 20, [])], ids=["removed", "beyond"]
)
def test_a_position_outside_stops_or_goes_on(offset: int, then: int, lost: list[Lost]) -> None:
    known = {0: Position(offset, "id"), 1: Position(5, "id")}
    with pytest.raises(OffsetOutOfRangeError) as raised:
        starts(known)
    assert raised.value.values == {
        "topic": "t",
        "partition": 0,
        "position": offset,
        "earliest": 10,
        "latest": 20,
    }
    assert starts(known, on_lost=Whenever.CONTINUE) == ({0: then, 1: 5}, lost)


@pytest.mark.parametrize("offset", [10, 20])
def test_both_ends_are_inside(offset: int) -> None:
    assert starts({0: Position(offset, "id"), 1: Position(0, "id")})[0][0] == offset


def test_a_topic_with_another_id_stops_or_begins_anew() -> None:
    known = {0: Position(12, "old"), 1: Position(5, "old")}
    with pytest.raises(NotFoundError) as raised:
        starts(known)
    assert raised.value.kind == "kafka-topic-replaced"
    assert starts(known, on_lost=Whenever.CONTINUE) == ({0: 10, 1: 0}, [])
    assert starts({0: Position(12, NO_ID), 1: Position(5, NO_ID)})[0] == {0: 12, 1: 5}
