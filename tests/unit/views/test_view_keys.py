"""Keys of views: recognised exactly, and nothing else is."""

from __future__ import annotations

import pytest

from txnformat import keys

DIRECTORY = "orders-9a6f2a90"


def test_keys_of_a_table_say_what_they_are() -> None:
    for table, has_offsets in ((DIRECTORY, False), (keys.offsets_location(DIRECTORY), True)):
        assert keys.delta_name(keys.delta_version_key(table, 7)) == (DIRECTORY, 7, False, has_offsets)
        assert keys.delta_name(keys.delta_checkpoint_key(table, 7)) == (DIRECTORY, 7, True, has_offsets)
        assert keys.delta_name(keys.delta_hint_key(table)) == (DIRECTORY, -1, False, has_offsets)


def test_keys_of_an_iceberg_table_say_what_they_are() -> None:
    digest = "0123456789abcdef" * 2
    assert keys.iceberg_name(keys.iceberg_version_key(DIRECTORY, 7)) == (DIRECTORY, 7, 0, True)
    assert keys.iceberg_name(keys.iceberg_list_key(DIRECTORY, 9, 7, digest)) == (DIRECTORY, 7, 9, False)
    assert keys.iceberg_name(keys.iceberg_manifest_key(DIRECTORY, 7, digest)) == (DIRECTORY, 7, 0, False)
    assert keys.iceberg_name(keys.iceberg_hint_key(DIRECTORY)) == (DIRECTORY, 0, 0, False)


def test_keys_of_manifests_say_entry_and_number() -> None:
    assert keys.manifest_name(keys.manifest_key(7)) == (7, 0, "delta")
    assert keys.manifest_name(keys.manifest_key(7, 12, "iceberg")) == (7, 12, "iceberg")
    assert keys.manifest_name(keys.manifest_key(7, 1, "delta-offsets")) == (7, 1, "delta-offsets")


@pytest.mark.parametrize(
    "key",
    [
        f"{DIRECTORY}/_delta_log/7.json",
        f"{DIRECTORY}/_delta_log/00000000000000000007.crc",
        f"{DIRECTORY}/_delta_log/00000000000000000007.checkpoint.0000000001.0000000002.parquet",
        f"x/{DIRECTORY}/_delta_log/00000000000000000007.json",
        f"../{DIRECTORY}/_delta_log/00000000000000000007.json",
        "_delta_log/00000000000000000007.json",
        "_views/delta/7.json",
        "_views/delta/00000000000000000007.0.json",
        "_views/delta/00000000000000000007.1.json\n",
        "_views/hudi/00000000000000000007.json",
        f"{DIRECTORY}/segments/_delta_log/00000000000000000007.json",
        f"{DIRECTORY}/data/x/_delta_log/00000000000000000007.json",
        f"{DIRECTORY}/_iceberg/v7.metadata.json",
        f"{DIRECTORY}/_iceberg/metadata/v07.metadata.json",
        f"{DIRECTORY}/_iceberg/metadata/v0.metadata.json",
        f"{DIRECTORY}/_iceberg/metadata/00007-0a6f2a90.metadata.json",
        f"{DIRECTORY}/_iceberg/metadata/7-0123.avro",
        f"{DIRECTORY}/_iceberg/data/x.parquet",
        f"x/{DIRECTORY}/_iceberg/metadata/v7.metadata.json",
    ],
)
def test_other_keys_are_none_of_them(key: str) -> None:
    assert keys.delta_name(key) is None
    assert keys.iceberg_name(key) is None
    assert keys.manifest_name(key) is None
