"""The record in Kafka that has the positions of an export."""

from __future__ import annotations

import pytest

from txnformat.errors import ConflictError, CorruptDataError
from txnlog.kafka.positions import decode_positions, encode_positions, window_starts

POSITIONS = {"topic-a": {0: 5, 11: 0}, "topic-b": {3: 2**62}}


def test_positions_come_back() -> None:
    assert decode_positions(encode_positions("log", POSITIONS), "log") == POSITIONS


def test_those_of_another_log_are_refused() -> None:
    with pytest.raises(ConflictError) as raised:
        decode_positions(encode_positions("other", POSITIONS), "log")
    assert raised.value.kind == "export-of-another-log"


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b'{"format":2,"log_id":"log","topics":{}}',
        b'{"format":1,"log_id":"log","topics":{"t":{"0":-1}}}',
        b'{"format":1,"log_id":"log","topics":{"t":{"0":"1"}}}',
        b'{"format":1,"log_id":"log","topics":{"t":{"x":1}}}',
        b'{"format":1,"log_id":"log","topics":{"t":3}}',
    ],
)
def test_what_is_no_record_of_positions_is_refused(data: bytes | None) -> None:
    with pytest.raises(CorruptDataError) as raised:
        decode_positions(data, "log")
    assert raised.value.kind == "invalid-position"


def test_the_search_goes_back_from_the_end_and_ends_at_the_earliest_offset() -> None:
    assert window_starts(0, 10) == [0]
    assert window_starts(5, 1_000) == [984, 872, 5]
    assert window_starts(0, 0) == [0]
