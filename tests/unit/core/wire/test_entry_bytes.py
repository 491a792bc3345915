"""An entry vouches for itself: whatever is changed in its bytes, it is not read as another one."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.golden_roots import ROOTS
from txnformat import keys
from txnformat.core.entry import decode_entry, encode_entry
from txnformat.core.wire.document import ZSTD_MAGIC, plain_json
from txnformat.core.wire.entry_bytes import (
    FIELDS_WITHOUT_CHECKSUM,
    decode_stored,
    encode_stored,
    has_checksum,
)
from txnformat.errors import CorruptDataError
from txnlog_testing.entries import changed_entry, without_checksum

FIELD, FIELD_BYTES = b',"x_sha256":"', 79
FRAME, FRAME_BYTES = bytes.fromhex("572a4d1820000000"), 40


def golden(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((ROOTS / name / keys.LOG_PREFIX).iterdir())]


ENTRIES = golden("with-checksum")
OLD_ENTRIES = golden("without-checksum")
(COMPRESSED,) = [number for number, data in enumerate(ENTRIES) if data.startswith(ZSTD_MAGIC)]
PLAIN = len(ENTRIES) - 1


def incompressible() -> bytes:
    """Return an entry whose compressed bytes use more of zstd than repetitions."""
    texts = [f"{random.Random(seed).getrandbits(64):x}" for seed in range(1_500)]
    data = changed_entry(ENTRIES[PLAIN], lambda doc: doc.update(intents=[*doc["intents"], *texts]))
    assert data.startswith(ZSTD_MAGIC)
    return data


def assert_refused(data: bytes, number: int) -> CorruptDataError:
    with pytest.raises(CorruptDataError) as caught:
        decode_entry(data, number)
    assert caught.value.values["object"] == keys.entry_key(number)
    assert {"expected", "got"} <= caught.value.values.keys()
    return caught.value


def older_reader(data: bytes) -> dict[str, Any]:
    """Return an entry as the version before there were checksums decodes it: its code, shortened."""
    if data.startswith(ZSTD_MAGIC):
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            data = b"".join(iter(lambda: stream.read(1 << 20), b""))
    document: dict[str, Any] = json.loads(data)
    return {name: document[name] for name in FIELDS_WITHOUT_CHECKSUM}


# --- damage -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(len(ENTRIES)))
def test_no_flipped_bit_of_an_entry_goes_unseen(number: int) -> None:
    """Every bit of every entry: small ones, and one that is compressed."""
    data = bytearray(ENTRIES[number])
    decode_entry(bytes(data), number)
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        assert_refused(bytes(data), number)
        data[bit // 8] ^= 1 << bit % 8


def test_no_flipped_bit_of_a_large_compressed_entry_goes_unseen() -> None:
    data = bytearray(incompressible())
    decode_entry(bytes(data), PLAIN)
    for bit in range(0, 8 * len(data), 3):
        data[bit // 8] ^= 1 << bit % 8
        assert_refused(bytes(data), PLAIN)
        data[bit // 8] ^= 1 << bit % 8


def damaged_ends(data: bytes) -> Iterator[bytes]:
    """Yield entries whose last bytes, those that say that there is a checksum, are damaged in every way."""
    for at in range(len(data) - FIELD_BYTES - 3, len(data)):
        yield data[:at]
        yield data[:at] + data[at + 1 :]
        yield data[:at] + bytes(len(data) - at)
        yield data[:at] + b" " * (len(data) - at - 1) + data[-1:]
        yield data[:at] + data[-1:]
        for value in range(256):
            if value != data[at]:
                yield data[:at] + bytes([value]) + data[at + 1 :]
            yield data[:at] + bytes([value]) + data[at:]
    yield from (data + tail for tail in (b"x", b" ", b"\n", b"\0", FRAME, data))


@pytest.mark.parametrize("number", [COMPRESSED, PLAIN])
def test_damage_of_the_checksum_does_not_switch_it_off(number: int) -> None:
    data = ENTRIES[number]
    # A plain entry of which exactly the field's 78 bytes are cut out, or blank, is one of an older writer. No
    # accident does
    # that and lets the brace stay.
    stripped = data[:-FIELD_BYTES]
    legal = {data, stripped + b"}", stripped + b" " * (FIELD_BYTES - 1) + b"}"}
    for damaged in damaged_ends(data):
        if damaged not in legal:
            assert_refused(damaged, number)


def test_a_renamed_or_misspelt_checksum_is_not_a_field_to_ignore() -> None:
    data = ENTRIES[PLAIN]
    digits = data[-FIELD_BYTES + len(FIELD) : -2]
    for name in (b"x_sha257", b"X_sha256", b"entry", b"x_sha256x", b"sha256", b"x", b""):
        assert_refused(data.replace(b"x_sha256", name), PLAIN)
    assert_refused(data.replace(digits, digits.upper()), PLAIN)
    assert_refused(data.replace(FIELD, b', "x_sha256":"'), PLAIN)
    error = assert_refused(data.replace(b"x_sha256", b"x_sha257"), PLAIN)
    assert (error.kind, error.values["got"]) == ("wrong-checksum", "'x_sha257'")


def test_whichever_layer_of_a_compressed_entry_is_gone_the_other_one_tells() -> None:
    data = ENTRIES[COMPRESSED]
    assert data[-FRAME_BYTES:-32] == FRAME
    assert_refused(data[:-FRAME_BYTES], COMPRESSED)
    for magic in range(0x50, 0x60):  # all of them are frames that decompressors pass over
        if magic != FRAME[0]:
            assert_refused(data[:-FRAME_BYTES] + bytes([magic]) + data[-FRAME_BYTES + 1 :], COMPRESSED)
    bare = without_checksum(data)
    assert decode_entry(bare, COMPRESSED) == decode_entry(data, COMPRESSED)
    assert_refused(bare + FRAME + hashlib.sha256(bare).digest(), COMPRESSED)
    plain = ENTRIES[PLAIN]
    assert_refused(plain + FRAME + hashlib.sha256(plain).digest(), PLAIN)
    # A frame that fits around a document that does not.
    wrong = pa.Codec("zstd").compress(
        changed_entry(plain, lambda _: None).replace(b'"entry":', b'"entry":1'), asbytes=True
    )
    assert_refused(wrong + FRAME + hashlib.sha256(wrong).digest(), PLAIN)


def test_the_error_names_the_checksum_and_what_the_bytes_have() -> None:
    data = ENTRIES[PLAIN]
    changed = data.replace(b'"base_offset":', b'"base_offset":1')
    error = assert_refused(changed, PLAIN)
    assert error.kind == "wrong-checksum"
    assert error.values["expected"] == f"sha256 {data[-66:-2].decode()}"
    assert error.values["got"] == hashlib.sha256(changed[:-FIELD_BYTES]).hexdigest()


# --- versions -----------------------------------------------------------------------------------------------


def test_entries_are_written_with_a_checksum_in_its_place() -> None:
    for number, data in enumerate(ENTRIES):
        assert encode_entry(decode_entry(data, number)) == data
        assert has_checksum(data)
        if number != COMPRESSED:
            document = json.loads(data)
            assert list(document) == sorted(document)
            assert data.endswith(document["x_sha256"].encode() + b'"}')
            assert document["x_sha256"] == hashlib.sha256(data[:-FIELD_BYTES]).hexdigest()


@pytest.mark.parametrize("data", [*ENTRIES, incompressible()])
def test_an_older_reader_gets_the_same_entry(data: bytes) -> None:
    assert older_reader(data) == older_reader(without_checksum(data))
    assert not has_checksum(without_checksum(data))


def test_entries_of_older_writers_are_read() -> None:
    for number, data in enumerate(OLD_ENTRIES):
        assert decode_entry(data, number).entry == number
        assert not has_checksum(data)
    assert {data[:4] == ZSTD_MAGIC for data in OLD_ENTRIES} == {True, False}


def test_fields_to_come_are_ignored_in_entries_with_a_checksum_only() -> None:
    data = ENTRIES[PLAIN]
    known = decode_entry(data, PLAIN)
    assert decode_entry(changed_entry(data, lambda doc: doc.update(note={"a": 1})), PLAIN) == known
    bare = json.loads(without_checksum(data))
    assert decode_entry(plain_json(bare), PLAIN) == known
    error = assert_refused(plain_json(bare | {"note": {"a": 1}}), PLAIN)
    assert (error.kind, error.values["got"]) == ("wrong-checksum", "'note'")


def test_texts_that_look_like_a_checksum_are_no_checksum() -> None:
    text = 'x,"x_sha256":"' + "0" * 64
    data = changed_entry(ENTRIES[PLAIN], lambda doc: doc.update(write_id=text))
    assert decode_entry(data, PLAIN).write_id == text
    assert decode_entry(without_checksum(data), PLAIN).write_id == text


def test_short_bytes_are_no_entry() -> None:
    for data in (b"", b"{}", FIELD, FRAME, FRAME + bytes(32), ZSTD_MAGIC, b'"}', encode_stored(b"{}")):
        with pytest.raises(CorruptDataError):
            decode_entry(data, 0)
    assert decode_stored(b"{}", name="x") == b"{}"
