"""The abort index: Kafka's bytes, Kafka's stop rule, and no silent acceptance of damage."""

from __future__ import annotations

import json
import struct
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from txnformat.core.transactions.abort_index import ENTRY_BYTES, AbortedTransaction, collect, decode, encode
from txnformat.errors import CorruptDataError, InternalError, UnsupportedFeatureError

DATA = Path(__file__).resolve().parents[3] / "golden" / "data"

ENTRY = AbortedTransaction(0x0102030405060708, 0x11, 0x0000000100000022, 0x33)
# Written out by hand, field by field: version, producer id, first offset, last offset, last stable offset.
ENTRY_IN_HEX = "00000102030405060708000000000000001100000001000000220000000000000033"
ENTRIES = [
    AbortedTransaction(7, 0, 10, 11),
    AbortedTransaction(1, 5, 15, 13),
    AbortedTransaction(7, 12, 40, 41),
]


def _with_version(data: bytes, position: int, version: int) -> bytes:
    return data[:position] + struct.pack(">h", version) + data[position + 2 :]


def test_an_entry_is_these_34_bytes() -> None:
    assert ENTRY_BYTES == 34
    assert encode([ENTRY]) == bytes.fromhex(ENTRY_IN_HEX)
    assert decode(bytes.fromhex(ENTRY_IN_HEX)) == [ENTRY]


def test_entries_keep_their_order_and_nothing_is_no_bytes() -> None:
    assert decode(encode(ENTRIES)) == ENTRIES
    assert encode([]) == b""
    assert decode(b"") == []


def test_an_entry_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        ENTRY.last_offset = 1  # type: ignore[misc]  # what is tested


# 256 has a zero low byte and 1 a zero high byte: both bytes of the version are read.
@pytest.mark.parametrize("version", [1, 256])
def test_a_later_version_is_refused_as_unsupported(version: int) -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        decode(_with_version(encode(ENTRIES), 34, version), name="a.txnindex")
    assert caught.value.values == {"object": "a.txnindex", "position": 34, "expected": 0, "got": version}


def test_a_later_version_is_recognised_before_its_length_is_judged() -> None:
    with pytest.raises(UnsupportedFeatureError):
        decode(_with_version(encode([ENTRY]), 0, 1)[:20])


def test_a_negative_version_is_damage() -> None:
    with pytest.raises(CorruptDataError) as caught:
        decode(_with_version(encode(ENTRIES), 68, -1), name="a.txnindex")
    assert caught.value.values == {"object": "a.txnindex", "position": 68, "expected": 0, "got": -1}


@pytest.mark.parametrize("length", [n for n in range(1, 3 * 34) if n % 34])
def test_a_partial_entry_is_damage(length: int) -> None:
    with pytest.raises(CorruptDataError) as caught:
        decode(encode(ENTRIES)[:length])
    assert caught.value.values["position"] == length // 34 * 34
    assert caught.value.values["expected"] == "34 bytes"
    assert caught.value.values["got"] == f"{length % 34} bytes"


@pytest.mark.parametrize("last_offset", [9, 10])
def test_a_last_offset_that_does_not_increase_is_damage_when_read(last_offset: int) -> None:
    data = encode([AbortedTransaction(7, 0, 10, 11)]) + encode([AbortedTransaction(8, 1, last_offset, 11)])
    with pytest.raises(CorruptDataError) as caught:
        decode(data)
    assert caught.value.values == {
        "object": ".txnindex",
        "position": 34,
        "expected": "> 10",
        "got": last_offset,
    }


@pytest.mark.parametrize("last_offset", [9, 10])
def test_a_last_offset_that_does_not_increase_is_never_written(last_offset: int) -> None:
    with pytest.raises(InternalError):
        encode([AbortedTransaction(7, 0, 10, 11), AbortedTransaction(8, 1, last_offset, 11)])


def test_a_value_beyond_64_bits_is_never_written() -> None:
    with pytest.raises(InternalError):
        encode([AbortedTransaction(7, 0, 2**63, 11)])


VECTORS: dict[str, Any] = json.loads((DATA / "abort_index_collect.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "case", VECTORS["cases"], ids=lambda case: f"{case['fetch_offset']}-{case['upper_bound']}"
)
def test_collect_returns_and_stops_as_kafka_does(case: dict[str, Any]) -> None:
    entries = [AbortedTransaction(*values) for values in VECTORS["entries"]]
    collected = collect(entries, case["fetch_offset"], case["upper_bound"])
    assert [entries.index(entry) for entry in collected.entries] == case["found"]
    assert collected.is_complete is case["is_complete"]


def test_collect_reads_no_entry_after_the_one_that_completes_the_answer() -> None:
    entries = iter(
        [AbortedTransaction(0, 0, 10, 8), AbortedTransaction(1, 8, 20, 21), AbortedTransaction(2, 30, 40, 41)]
    )
    assert collect(entries, 0, 8).is_complete
    assert next(entries).producer_id == 1


def test_collect_takes_an_entry_whose_marker_is_the_first_offset_of_the_range() -> None:
    entry = AbortedTransaction(0, 0, 10, 11)
    assert collect([entry], 10, 11).entries == (entry,)
    assert collect([entry], 11, 12).entries == ()
