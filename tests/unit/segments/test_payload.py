"""The bytes of an entry with a payload: what is cut off where."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnformat.core.wire.bundle import BUNDLE_ENTRIES, decode_bundle, encode_bundle
from txnformat.core.wire.entry_bytes import check_stored, encode_stored
from txnformat.errors import CorruptDataError
from txnformat.segments.payload import (
    END_BYTES,
    PayloadRecord,
    head_of,
    payload_of,
    payload_problem,
    payload_record,
    with_payload,
)

FIELDS = b'"entry":1,"format":1'


def entry(payload: bytes) -> bytes:
    """Return the bytes of an entry that names and has this payload."""
    named = payload_record(payload)
    said = (
        b""
        if named is None
        else b',"payload":{"sha256":"%s","size":%d}' % (named.sha256.encode(), named.size)
    )
    return with_payload(encode_stored(b"{" + FIELDS + said + b"}"), payload)


@given(st.binary(min_size=1), st.binary())
def test_head_and_payload_come_back(head: bytes, payload: bytes) -> None:
    if head.endswith(b"TXNLROWS"):
        return
    data = with_payload(head, payload)
    assert (head_of(data), payload_of(data)) == (head, payload)
    assert len(data) == len(head) + (len(payload) + END_BYTES if payload else 0)


@given(st.binary())
def test_bytes_that_are_no_entry_are_cut_without_an_error(data: bytes) -> None:
    for one in (data, data + b"TXNLROWS", data + b"\xff\xff\xff\xffTXNLROWS"):
        assert one.startswith(head_of(one))
        payload_of(one)


def test_a_size_that_is_more_than_the_bytes_leaves_no_head() -> None:
    data = b"{}" + b"payload" + (100).to_bytes(4, "big") + b"TXNLROWS"
    assert head_of(data) == b""


def test_a_bundle_has_heads() -> None:
    entries = [with_payload(b"{}", b"rows")] * BUNDLE_ENTRIES
    bundle = encode_bundle(entries)
    assert bundle is not None
    assert decode_bundle(bundle, "x") == [b"{}"] * BUNDLE_ENTRIES


def test_a_payload_is_compared_with_what_its_head_names() -> None:
    data = entry(b"rows")
    named = payload_record(b"rows")
    assert named == PayloadRecord(4, hashlib.sha256(b"rows").hexdigest())
    assert payload_problem(named, data) is None
    assert payload_problem(None, entry(b"")) is None
    assert payload_problem(None, data) is not None
    assert payload_problem(named, head_of(data)) == "nothing"
    assert payload_problem(named, with_payload(head_of(data), b"row5")) is not None


@pytest.mark.parametrize(
    "damaged",
    [
        lambda data: head_of(data),
        lambda data: with_payload(head_of(data), b"row5"),
        lambda data: with_payload(head_of(data), b"rows and more"),
        lambda data: data[:-1],
        lambda data: data[: len(head_of(data)) + 2],
    ],
    ids=["gone", "other bytes", "longer", "cut at its end", "cut inside"],
)
def test_a_slot_whose_payload_is_damaged_is_not_taken_for_whole(damaged: object) -> None:
    """The writer of a torn entry must not think that somebody else has the slot."""
    data = entry(b"rows")
    check_stored(data, name="x")
    assert callable(damaged)
    with pytest.raises(CorruptDataError):
        check_stored(damaged(data), name="x")


def test_a_payload_that_no_head_names_is_damage() -> None:
    with pytest.raises(CorruptDataError, match="payload"):
        check_stored(with_payload(entry(b""), b"rows"), name="x")


@pytest.mark.parametrize(
    "said", [b'{"sha256":"x","size":1}', b"1", b'{"size":0,"sha256":"%s"}' % (b"a" * 64)]
)
def test_a_head_that_names_its_payload_wrongly_is_damage(said: bytes) -> None:
    head = encode_stored(b"{" + FIELDS + b',"payload":' + said + b"}")
    with pytest.raises(CorruptDataError):
        check_stored(with_payload(head, b"r"), name="x")
