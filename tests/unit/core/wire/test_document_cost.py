"""Documents are bounded before they are built: what is decompressed, and how many values there are to
parse.
"""

from __future__ import annotations

import pytest
from msgspec import structs

from txnformat.core.entry import ITEMS_MAX, OPERATIONS_MAX, CommitEntry, decode_entry, encode_entry, listed
from txnformat.core.operations import (
    AlterTopic,
    AppVersion,
    Cause,
    CreateTopic,
    EndTxn,
    Expire,
    Marker,
    Operation,
    Seal,
    SealedPartition,
    SealedSegment,
)
from txnformat.core.subscriptions.operations import Ack, AckedPartition, AckMode
from txnformat.core.wire.document import (
    PARSED_BYTES_PER_BYTE,
    PLAIN_BYTES_PER_BYTE,
    SMALL_BYTES_MAX,
    check_cost,
    decompressed,
    packed,
    parsed_bytes,
    plain_bytes_max,
    plain_text,
)
from txnformat.core.wire.entry_bytes import encode_stored
from txnformat.errors import CorruptDataError, InvalidInputError
from txnformat.protocol.follow import empty_state, parse_hint
from txnformat.types import ObjectRecord, Outcome

MIB = 1024 * 1024
TOPIC = "9a6f2a90-8a35-4a63-9d1b-1b8a1f8a2c33"


def _entry(filler: bytes, size: int) -> bytes:
    head = (
        b'{"engine":"e","entry":0,"format":1,"intents":[],"log_id":"l","operations":[],"previous":"'
        + b"0" * 64
        + b'","timestamp_ms":1,"write_id":"w","x_":['
    )
    return encode_stored(head + filler * (size // len(filler)) + b"0]}")


@pytest.mark.parametrize(
    ("filler", "size", "told"),
    [
        (b"0,", 255 * MIB, "when decompressed"),
        (b"0,", 33 * MIB, "when decompressed"),
        (b"[],", 24 * MIB, "when parsed"),
        (b'{"":0},', 24 * MIB, "when parsed"),
    ],
)
def test_an_entry_of_few_bytes_that_stands_for_many_is_refused(filler: bytes, size: int, told: str) -> None:
    """24 kB took 6.4 GiB: the cap on the decompressed bytes is by far too late for what they are built
    into.
    """
    data = _entry(filler, size)
    assert len(data) < 30_000
    with pytest.raises(CorruptDataError, match=told) as caught:
        decode_entry(data, 0)
    assert caught.value.kind == "metadata-too-large"


@pytest.mark.parametrize(
    "data", [packed(b'{"entry":0,"x":[' + b"0," * (100 * MIB) + b"0]}"), b" " * (SMALL_BYTES_MAX + 1)]
)
def test_small_documents_have_64_kib_at_most(data: bytes) -> None:
    assert parse_hint(data) is None
    with pytest.raises(CorruptDataError) as caught:
        empty_state(data)
    assert caught.value.kind == "metadata-too-large"


def test_a_larger_object_may_hold_more_in_proportion() -> None:
    assert plain_bytes_max(0) == plain_bytes_max(MIB) == PLAIN_BYTES_PER_BYTE * MIB
    assert plain_bytes_max(2 * MIB) == 2 * plain_bytes_max(MIB)
    assert plain_bytes_max(100 * MIB) == 256 * MIB
    text = b"[" + b"0," * (4 * MIB)
    assert parsed_bytes(text) > PARSED_BYTES_PER_BYTE * MIB
    check_cost(text, 3 * MIB, name="x")
    with pytest.raises(CorruptDataError, match="when parsed"):
        check_cost(text, MIB, name="x")


def test_decompression_stops_at_its_bound() -> None:
    data = packed(b"0" * 100_000)
    assert decompressed(data, name="x", bytes_max=100_000) == b"0" * 100_000
    with pytest.raises(CorruptDataError, match="too large when decompressed"):
        decompressed(data, name="x", bytes_max=99_999)
    assert plain_text(b"{}", name="x") == b"{}"


def _end(markers: int) -> CommitEntry:
    found = tuple(Marker(TOPIC, number % 10_000, 5) for number in range(markers))
    return _entry_of(
        EndTxn(
            transactional_id="x", producer_id=0, epoch=0, outcome=Outcome.ABORT, cause=Cause.PRODUCER,
            markers=found, placed=(), intent=0,
        )
    )  # fmt: skip


def _acks(ranges: int) -> CommitEntry:
    parts = tuple(
        AckedPartition(number, tuple((2 * one, 2 * one + 1) for one in range(ranges)))
        for number in range(10_000)
    )
    return _entry_of(Ack(TOPIC, "s", AckMode.INDIVIDUAL, parts, None, -1, -1, 0))


def _entry_of(*operations: Operation) -> CommitEntry:
    return CommitEntry(
        entry=0,
        log_id="l",
        write_id="w",
        previous="0" * 64,
        timestamp_ms=1,
        engine="e",
        intents=("i",),
        operations=operations,
    )


def test_what_a_writer_makes_can_be_read() -> None:
    """A transaction may be in all partitions that a log can have; the writer refuses what no reader would
    take."""
    entry = _end(ITEMS_MAX)
    assert decode_entry(encode_entry(entry), 0) == entry
    entry = _acks(20)
    assert decode_entry(encode_entry(entry), 0) == entry
    with pytest.raises(InvalidInputError, match="more than any reader takes") as caught:
        encode_entry(_acks(200))
    assert caught.value.kind == "entry-too-large"


def test_what_operations_list_together_is_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    """8 kB of seeks, each in all partitions of a topic, took 2 s: what each of them costs has another
    bound.
    """
    entry = _end(ITEMS_MAX // 2)
    larger = structs.replace(entry, operations=(*entry.operations, *_end(ITEMS_MAX // 2 + 1).operations))
    with pytest.raises(InvalidInputError, match=f"list {ITEMS_MAX + 1} partitions") as caught:
        encode_entry(larger)
    assert caught.value.kind == "entry-too-large"
    monkeypatch.setattr("txnformat.core.entry.ITEMS_MAX", ITEMS_MAX + 1)
    data = encode_entry(larger)
    assert len(decode_entry(data, 0).operations) == 2
    monkeypatch.undo()
    with pytest.raises(CorruptDataError, match=f"{ITEMS_MAX + 1} items"):
        decode_entry(data, 0)


def test_an_operation_counts_by_its_longest_list() -> None:
    (end,) = _end(7).operations
    assert listed(end) == 7
    assert listed(Expire(("a",), (1, 2, 3), (), ("g",), 0)) == 3
    assert listed(AppVersion("n", "a", 1, 0)) == 0


def test_columns_count_with_the_fields_of_structs_and_seals_by_their_partitions() -> None:
    """17 kB that make 50 topics with a struct of 9,990 fields took 2.6 s."""
    struct = {"name": "s", "type": {"struct": [{"name": "a", "type": "int8"}, {"name": "b", "type": "int8"}]}}
    assert listed(CreateTopic(TOPIC, "t", "t", 1, (struct,), (), None, 0)) == 3
    assert listed(AlterTopic(TOPIC, 1, 1, (struct, struct), 0)) == 6
    assert listed(AlterTopic(TOPIC, 2, 1)) == 0
    part = SealedPartition(0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0)
    index = ObjectRecord("i", 1, "0" * 64)
    segments = [SealedSegment(topic_id=TOPIC, index=index, partitions=(part,) * count) for count in (3, 4)]
    assert listed(Seal(tuple(segments))) == 7
    assert listed(Seal((), None, 1, 0, ("a", "b"))) == 2


def test_intents_are_capped() -> None:
    text = (
        b'{"engine":"e","entry":0,"format":1,"intents":[' + b'"i",' * OPERATIONS_MAX + b'"i"],"log_id":"l",'
    )
    text += b'"operations":[],"previous":"' + b"0" * 64 + b'","timestamp_ms":1,"write_id":"w"}'
    with pytest.raises(CorruptDataError, match=f"at most {OPERATIONS_MAX} intents"):
        decode_entry(encode_stored(text), 0)
