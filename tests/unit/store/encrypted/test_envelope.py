"""Encrypted objects: what opens, and that nothing else does."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnformat.store.encrypted.envelope import (
    CHUNK_BYTES,
    OVERHEAD_BYTES,
    DataKey,
    EnvelopeError,
    ObjectCipher,
    chunks_of,
    encrypted_size,
    generation_of,
    plain_size,
)

LOG = "8f2c7a1e-0000-4000-8000-000000000001"
KEY = DataKey(LOG, 1, b"k" * 32)
NAME = "_txnlog/log/00000000000000000000.json"
SIZES = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES]
WHOLE = bytes(range(251)) * 1_000
"""Of four chunks."""
ENCRYPTED_CHUNK = CHUNK_BYTES + OVERHEAD_BYTES


def cipher(name: str = NAME, key: DataKey = KEY) -> ObjectCipher:
    return ObjectCipher(key, name)


@pytest.mark.parametrize("size", SIZES)
def test_what_was_sealed_opens_and_its_size_is_known(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    encrypted = cipher().encrypt(data)
    assert cipher().decrypt(encrypted) == data
    assert len(encrypted) == encrypted_size(size)
    assert generation_of(encrypted) == 1
    assert size < 64 or data[:64] not in encrypted


@given(st.integers(min_value=0, max_value=2**48))
def test_sizes_are_those_of_each_other(size: int) -> None:
    assert plain_size(encrypted_size(size)) == size
    assert encrypted_size(size) == size + chunks_of(size) * OVERHEAD_BYTES


@given(st.integers(min_value=0, max_value=2**20))
def test_no_size_is_below_zero(size: int) -> None:
    assert 0 <= plain_size(size) <= size


@pytest.mark.parametrize(
    "place", [*range(OVERHEAD_BYTES), OVERHEAD_BYTES + 5, ENCRYPTED_CHUNK + 3, ENCRYPTED_CHUNK + 20, -1]
)
def test_a_changed_byte_anywhere_does_not_open(place: int) -> None:
    encrypted = bytearray(cipher().encrypt(WHOLE))
    encrypted[place] ^= 1
    with pytest.raises(EnvelopeError):
        cipher().decrypt(bytes(encrypted))


@pytest.mark.parametrize(
    "changed",
    [
        lambda encrypted: encrypted[:-1],
        lambda encrypted: encrypted + b"\0",
        lambda encrypted: encrypted[: 2 * ENCRYPTED_CHUNK],
        lambda encrypted: encrypted[ENCRYPTED_CHUNK:],
        lambda encrypted: encrypted[:ENCRYPTED_CHUNK] * 2 + encrypted[2 * ENCRYPTED_CHUNK :],
        lambda encrypted: encrypted[ENCRYPTED_CHUNK : 2 * ENCRYPTED_CHUNK] + encrypted[:ENCRYPTED_CHUNK] + encrypted[2 * ENCRYPTED_CHUNK :],
        lambda encrypted: b"",
        lambda encrypted: encrypted[: OVERHEAD_BYTES - 1],
        lambda encrypted: WHOLE,
    ],
    ids=["short", "long", ("without the "
                          "end"), "without the beginning", "twice", "swapped", "empty", "head", "plain"],
)  # fmt: skip
def test_chunks_that_are_missing_or_elsewhere_do_not_open(changed: object) -> None:
    encrypted = cipher().encrypt(WHOLE)
    with pytest.raises(EnvelopeError):
        cipher().decrypt(changed(encrypted))  # type: ignore[operator]


@pytest.mark.parametrize(
    "other",
    [
        cipher("_txnlog/log/00000000000000000001.json"),
        cipher(key=DataKey(LOG, 1, b"o" * 32)),
        cipher(key=DataKey("8f2c7a1e-0000-4000-8000-000000000002", 1, b"k" * 32)),
        cipher(key=DataKey(LOG, 2, b"k" * 32)),
    ],
    ids=["name", "key", "log", "generation"],
)
def test_an_object_opens_under_its_name_in_its_log_with_its_key_only(other: ObjectCipher) -> None:
    with pytest.raises(EnvelopeError):
        other.decrypt(cipher().encrypt(b"rows"))


def test_chunks_of_two_objects_of_one_name_do_not_go_together() -> None:
    """Of two writers that race for a name the store sees both objects, whose keys are the same."""
    one = cipher().encrypt(b"a" * 3 * CHUNK_BYTES)
    other = cipher().encrypt(b"b" * 3 * CHUNK_BYTES)
    with pytest.raises(EnvelopeError):
        cipher().decrypt(one[:ENCRYPTED_CHUNK] + other[ENCRYPTED_CHUNK:])


def test_no_nonce_comes_again_unless_the_bytes_are_the_same() -> None:
    nonces = set()
    count = 0
    for data in (
        b"",
        b"\0",
        b"a",
        b"b",
        b"a" * CHUNK_BYTES,
        b"a" * (CHUNK_BYTES + 1),
        b"a" * 4 * CHUNK_BYTES,
    ):
        encrypted = cipher().encrypt(data)
        assert encrypted == cipher().encrypt(data)  # a repeated request sends the same bytes
        for start in range(0, len(encrypted), ENCRYPTED_CHUNK):
            nonces.add(encrypted[start + 32 : start + 44])
            count += 1
    assert len(nonces) == count - 1  # the full first chunk of two of these objects is the same chunk
    assert cipher("other").encrypt(b"a")[32:] != cipher().encrypt(b"a")[32:]


def test_a_later_version_is_told() -> None:
    data = cipher().encrypt(b"rows")
    with pytest.raises(EnvelopeError, match="version 2"):
        cipher().decrypt(data[:4] + b"\2" + data[5:])


def test_a_data_key_shows_nothing_and_stays_here() -> None:
    assert "k" * 32 not in repr(KEY)
    with pytest.raises(TypeError):
        pickle.dumps(KEY)
    assert KEY.check() != DataKey(LOG, 1, b"o" * 32).check()


def test_a_part_opens_alone_and_only_in_its_place() -> None:
    encrypted = cipher().encrypt(WHOLE)
    middle = encrypted[ENCRYPTED_CHUNK : 3 * ENCRYPTED_CHUNK]
    assert cipher().decrypt_from(middle, 1, len(WHOLE)) == WHOLE[CHUNK_BYTES : 3 * CHUNK_BYTES]
    with pytest.raises(EnvelopeError):  # alone it follows nothing
        cipher().decrypt_from(middle[:ENCRYPTED_CHUNK], 2, len(WHOLE))
    for first, size in ((0, len(WHOLE)), (2, len(WHOLE)), (1, 3 * CHUNK_BYTES)):
        with pytest.raises(EnvelopeError):
            cipher().decrypt_from(middle, first, size)
