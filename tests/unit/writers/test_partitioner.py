"""Keys go where Kafka puts them; records without a key take turns."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnformat.errors import InvalidInputError
from writers.partitioner import (
    KEYS_AT_ONCE_MIN,
    NO_PARTITION,
    assign_partitions,
    encode_keys,
    murmur2,
    murmur2_of_array,
    partition_for_keys,
    split_by_partition,
)

DATA = Path(__file__).resolve().parents[2] / "golden" / "data"
HASHES: dict[str, int] = json.loads((DATA / "murmur2.json").read_text(encoding="utf-8"))["hashes"]


def _reference(key: bytes) -> int:
    """Return murmur2 as the Java code computes it, byte by byte."""
    m = 0x5BD1E995
    h = 0x9747B28C ^ len(key)
    for i in range(len(key) // 4):
        k = key[4 * i] | key[4 * i + 1] << 8 | key[4 * i + 2] << 16 | key[4 * i + 3] << 24
        k = k * m % 2**32
        k = (k ^ k >> 24) * m % 2**32
        h = (h * m % 2**32) ^ k
    rest = len(key) - len(key) % 4
    if len(key) % 4 == 3:
        h ^= key[rest + 2] << 16
    if len(key) % 4 >= 2:
        h ^= key[rest + 1] << 8
    if len(key) % 4 >= 1:
        h = (h ^ key[rest]) * m % 2**32
    h = (h ^ h >> 13) * m % 2**32
    h ^= h >> 15
    return struct.unpack(">i", struct.pack(">I", h))[0]  # type: ignore[no-any-return]  # "i" gives an int


def _partition(key: bytes, partitions: int) -> int:
    return (_reference(key) & 0x7FFFFFFF) % partitions


@pytest.mark.parametrize(("key", "expected"), HASHES.items())
def test_murmur2_gives_kafkas_published_hashes(key: str, expected: int) -> None:
    assert murmur2(key.encode()) == expected
    assert murmur2_of_array(pa.array([key])).tolist() == [expected]
    # Enough keys for the path that hashes many at once.
    assert murmur2_of_array(pa.array([key] * 100)).tolist() == [expected] * 100
    assert _reference(key.encode()) == expected


@given(st.lists(st.binary(max_size=40), max_size=80), st.integers(1, 500))
def test_hash_and_partition_of_an_array_equal_the_scalar_reference(
    keys: list[bytes], partitions: int
) -> None:
    expected = [_reference(key) for key in keys]
    assert murmur2_of_array(pa.array(keys, pa.binary())).tolist() == expected
    assert [murmur2(key) for key in keys] == expected
    found = partition_for_keys(pa.array(keys, pa.binary()), partitions)
    assert found.dtype == np.int32
    assert found.tolist() == [_partition(key, partitions) for key in keys]


@pytest.mark.parametrize("long_keys", [1, KEYS_AT_ONCE_MIN - 1, KEYS_AT_ONCE_MIN, KEYS_AT_ONCE_MIN + 1])
def test_few_or_many_long_keys_among_short_ones(long_keys: int) -> None:
    keys = [bytes([i]) * 3 for i in range(50)] + [bytes(range(200 + i)) for i in range(long_keys)]
    assert murmur2_of_array(pa.array(keys)).tolist() == [_reference(key) for key in keys]


def test_nulls_have_no_partition() -> None:
    keys = pa.array(["a", None, "b"])
    assert partition_for_keys(keys, 7).tolist() == [_partition(b"a", 7), NO_PARTITION, _partition(b"b", 7)]
    assert partition_for_keys(pa.chunked_array([keys, keys]), 7)[4] == NO_PARTITION


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.binary(3),
    ],
    ids=str,
)
def test_every_string_and_binary_type_gives_the_same_partitions(kind: Any) -> None:
    keys = pa.array([b"abc", None, b"xyz", b"123"]).cast(kind)
    expected = [_partition(b"abc", 11), NO_PARTITION, _partition(b"xyz", 11), _partition(b"123", 11)]
    assert partition_for_keys(keys, 11).tolist() == expected
    assert partition_for_keys(encode_keys([keys]), 11).tolist() == expected


def test_slices_and_chunks_are_hashed_from_their_own_offsets() -> None:
    keys = [None if i % 5 == 0 else str(i) * (i % 9) for i in range(100)]
    whole = pa.array(keys, pa.string())
    expected = [NO_PARTITION if key is None else _partition(key.encode(), 13) for key in keys]
    for start in (0, 3, 11, 99, 100):
        assert partition_for_keys(whole.slice(start), 13).tolist() == expected[start:]
        assert partition_for_keys(encode_keys([whole.slice(start)]), 13).tolist() == expected[start:]
    chunked = pa.chunked_array([whole.slice(0, 7), whole.slice(7, 0), whole.slice(7)])
    assert partition_for_keys(chunked, 13).tolist() == expected
    assert encode_keys([chunked]).to_pylist() == [None if key is None else key.encode() for key in keys]


def test_no_keys_and_empty_keys() -> None:
    assert partition_for_keys(pa.array([], pa.string()), 3).tolist() == []
    assert partition_for_keys(pa.chunked_array([], pa.string()), 3).tolist() == []
    assert partition_for_keys(pa.array(["", ""]), 3).tolist() == [_partition(b"", 3)] * 2
    assert encode_keys([pa.array([], pa.int64())]).to_pylist() == []


@pytest.mark.parametrize("partitions", [0, -1, 2**31])
def test_a_number_of_partitions_out_of_range_is_refused(partitions: int) -> None:
    with pytest.raises(InvalidInputError):
        partition_for_keys(pa.array(["a"]), partitions)
    with pytest.raises(InvalidInputError):
        split_by_partition(pa.table({"k": ["a"]}), (), partitions, 0)


DAY = datetime.date(1970, 1, 11)
MOMENT = datetime.datetime(1970, 1, 1, 0, 0, 1)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("grün", pa.string(), "grün".encode()),
        (b"\x00\xff", pa.binary(), b"\x00\xff"),
        (-2, pa.int8(), b"\xfe"),
        (-2, pa.int16(), b"\xff\xfe"),
        (-2, pa.int32(), b"\xff\xff\xff\xfe"),
        (4711, pa.int64(), b"\x00\x00\x00\x00\x00\x00\x12\x67"),
        (2**64 - 2, pa.uint64(), b"\xff\xff\xff\xff\xff\xff\xff\xfe"),
        (True, pa.bool_(), b"\x01"),
        (False, pa.bool_(), b"\x00"),
        (1.5, pa.float16(), b"\x3e\x00"),
        (1.5, pa.float32(), b"\x3f\xc0\x00\x00"),
        (-0.0, pa.float64(), b"\x80" + bytes(7)),
        (math.nan, pa.float64(), b"\x7f\xf8" + bytes(6)),
        (DAY, pa.date32(), b"\x00\x00\x00\x0a"),
        (DAY, pa.date64(), struct.pack(">q", 864_000_000)),
        (datetime.time(0, 0, 2), pa.time32("s"), b"\x00\x00\x00\x02"),
        (MOMENT, pa.timestamp("us"), struct.pack(">q", 1_000_000)),
        (MOMENT, pa.timestamp("ms", "UTC"), struct.pack(">q", 1_000)),
        (datetime.timedelta(seconds=3), pa.duration("s"), struct.pack(">q", 3)),
        (decimal.Decimal("-0.02"), pa.decimal128(10, 2), b"\xff" * 15 + b"\xfe"),
        (decimal.Decimal("2.56"), pa.decimal256(50, 2), bytes(30) + b"\x01\x00"),
        ("a", pa.dictionary(pa.int8(), pa.string()), b"a"),
    ],
    ids=str,
)
def test_one_key_column_is_encoded_by_its_type(value: object, kind: Any, expected: bytes) -> None:
    column = pa.array([None, value, None, value], kind)
    assert encode_keys([column]).to_pylist() == [None, expected, None, expected]
    assert encode_keys([column.slice(1, 2)]).to_pylist() == [expected, None]
    assert encode_keys([pa.chunked_array([column, column.slice(3)])]).to_pylist()[3:] == [expected, expected]


def test_every_nan_is_one_key() -> None:
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001], np.uint64)
    assert len(set(encode_keys([pa.array(bits.view(np.float64))]).to_pylist())) == 1


def test_a_long_key_goes_where_kafkas_long_serializer_puts_it() -> None:
    values = list(range(-50, 50))
    expected = [_partition(struct.pack(">q", value), 12) for value in values]
    assert partition_for_keys(encode_keys([pa.array(values, pa.int64())]), 12).tolist() == expected


def test_several_columns_are_encoded_with_their_lengths_and_null_is_length_minus_one() -> None:
    encoded = encode_keys([pa.array(["ab", None, ""]), pa.array([1, 2, None], pa.int16())])
    assert encoded.to_pylist() == [
        b"\x00\x00\x00\x02ab" + b"\x00\x00\x00\x02\x00\x01",
        b"\xff\xff\xff\xff" + b"\x00\x00\x00\x02\x00\x02",
        b"\x00\x00\x00\x00" + b"\xff\xff\xff\xff",
    ]
    assert NO_PARTITION not in partition_for_keys(encoded, 5)


TEXTS = st.lists(
    st.tuples(st.none() | st.text(max_size=3), st.none() | st.text(max_size=3)), min_size=1, max_size=20
)


@given(TEXTS)
def test_different_composite_keys_have_different_bytes(rows: list[tuple[str | None, str | None]]) -> None:
    encoded = encode_keys([pa.array([row[i] for row in rows], pa.string()) for i in range(2)])
    assert len(set(encoded.to_pylist())) == len(set(rows))


@pytest.mark.parametrize(
    "columns",
    [
        [],
        [pa.array([[1]])],
        [pa.array([{"a": 1}])],
        [pa.array([None])],
        [pa.array([(1, 2, 3)], pa.month_day_nano_interval())],
        [pa.array([1]), pa.array([1, 2])],
    ],
    ids=["none", "list", "struct", "null", "interval", "lengths"],
)
def test_what_cannot_be_a_key_is_refused(columns: list[Any]) -> None:
    with pytest.raises(InvalidInputError):
        encode_keys(columns)


def test_batches_without_keys_take_turns_and_survive_a_change_of_partitions() -> None:
    table = pa.table({"k": ["a"]})
    turns = []
    turn = 0
    for _ in range(4):
        ((partition, _),), turn = split_by_partition(table, (), 3, turn)
        turns.append(partition)
    assert turns == [0, 1, 2, 0]
    ((partition, _),), turn = split_by_partition(table, (), 3, 7)
    assert (partition, turn) == (1, 2)


def test_the_keyless_records_of_a_batch_share_one_turn() -> None:
    partitions, turn = assign_partitions([pa.array(["a", None, "b", None])], 5, 3)
    assert partitions.tolist() == [_partition(b"a", 5), 3, _partition(b"b", 5), 3]
    assert turn == 4
    partitions, turn = assign_partitions([pa.array([None], pa.string())], 3, 7)
    assert (partitions.tolist(), turn) == ([1], 2)


def test_a_batch_of_keyed_records_takes_no_turn() -> None:
    _, turn = assign_partitions([pa.array(["a", "b"])], 5, 3)
    assert turn == 3


def test_a_buffer_of_offsets_may_have_padding_of_any_length() -> None:
    offsets = pa.py_buffer(np.array([0, 1, 3], np.int64).tobytes() + b"\0\0\0")
    keys = pa.Array.from_buffers(pa.large_binary(), 2, [None, offsets, pa.py_buffer(b"abc")])
    assert murmur2_of_array(keys).tolist() == [murmur2(b"a"), murmur2(b"bc")]
    assert murmur2_of_array(keys.slice(1)).tolist() == [murmur2(b"bc")]
    numbers = pa.Array.from_buffers(pa.int64(), 2, [None, pa.py_buffer(b"\0" * 19)])
    assert encode_keys([numbers.slice(1)]).to_pylist() == [b"\0" * 8]
