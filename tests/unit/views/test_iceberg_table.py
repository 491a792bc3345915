"""The next version of an Iceberg table: its snapshots and manifests, what it remembers, and when there is
none."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyiceberg.table.metadata import TableMetadataUtil

from txnformat.core.operations import CreateTopic
from txnformat.core.state import TopicState
from txnformat.core.topics.schema import TopicSchema
from txnformat.errors import ConflictError, CorruptDataError, InvalidInputError
from txnformat.views import iceberg_table
from txnformat.views.iceberg_manifests import Listed, checked, decode_list, decode_manifest
from txnformat.views.iceberg_metadata import NOWHERE, decode_metadata, is_ours
from txnformat.views.iceberg_table import (
    IcebergTable,
    IcebergVersion,
    key_of,
    location_of,
    next_version,
    without_old,
)
from txnformat.views.wanted import Wanted

TOPIC_ID = "9a6f2a90-5f0b-4a0a-8f3c-2b0a3c4d5e6f"
UUID = "0a6f2a90-5f0b-4a0a-8f3c-2b0a3c4d5e6"
DIRECTORY = "t-9a6f2a90"
HERE = f"s3://bucket/root/{DIRECTORY}/_iceberg"
HOLD_MS = 10_000


def topic(**columns: pa.DataType) -> TopicState:
    schema = TopicSchema(pa.schema(list((columns or {"n": pa.int64()}).items())))
    return TopicState(
        TOPIC_ID, "t", DIRECTORY, 1, schema, CreateTopic(TOPIC_ID, "t", DIRECTORY, 1, (), ()), 0
    )


def path(name: str) -> str:
    return f"data/{ord(name[0]):020d}-{UUID}{name[1:] or '0'}.parquet"


def wanted(*files: tuple[str, int, int, int]) -> list[Wanted]:
    """Return files: name, records, smallest and largest entry."""
    return [Wanted(path(name), 100, rows, low, high) for name, rows, low, high in files]


def publish(
    table: IcebergTable,
    files: list[Wanted],
    entry: int,
    *,
    topic: TopicState = topic(),  # noqa: B008  # it is immutable
    location: str = HERE,
    rebuild: bool = False,
) -> IcebergVersion | None:
    """Publish at a second that has the entry's number."""
    return next_version(table, topic, location, files, entry, 1_000 * entry, HOLD_MS, rebuild=rebuild)


def made(*arguments: Any, **options: Any) -> IcebergVersion:
    version = publish(*arguments, **options)
    assert version is not None
    return version


def names(table: IcebergTable) -> list[str]:
    base = HERE.removesuffix("_iceberg")
    return sorted(chr(int(one.removeprefix(f"{base}data/")[:20])) for one in table.files)


def summaries(version: IcebergVersion) -> list[tuple[str, str, int]]:
    """Return operation, entry and number of added files of each snapshot."""
    assert version.table.metadata is not None
    return [
        (one.summary["operation"], one.summary["txnlog.entry"], int(one.summary["added-data-files"]))
        for one in version.table.metadata.snapshots
    ]


def read_back(version: IcebergVersion) -> IcebergTable:
    """Return the table as it is read from its bytes."""
    objects = dict(version.objects)
    metadata = decode_metadata(version.data, "k")
    assert metadata.snapshot is not None
    manifests = []
    for listed in decode_list(objects[key_of(metadata.snapshot.manifest_list, HERE, DIRECTORY)], "k"):
        known = [one for one in version.table.manifests if one.listed.path == listed.path]
        data = objects.get(key_of(listed.path, HERE, DIRECTORY))
        manifests += known if data is None else [decode_manifest(data, listed, "k")]
    return IcebergTable(version.table.version, metadata.snapshot.entry, metadata, tuple(manifests))


@pytest.fixture
def first() -> IcebergTable:
    return made(IcebergTable(), wanted(("a", 3, 1, 1), ("b", 4, 2, 2)), 5).table


def test_the_first_version_has_everything() -> None:
    version = made(IcebergTable(), wanted(("a", 3, 1, 1), ("b", 4, 2, 2)), 5)
    assert (version.table.version, version.table.entry) == (1, 5)
    assert names(version.table) == ["a", "b"]
    assert summaries(version) == [("append", "5", 2)]
    metadata = TableMetadataUtil.parse_raw(version.data.decode())
    assert metadata.location == HERE
    assert metadata.current_snapshot_id == 5_000
    assert set(metadata.refs) == {"main", "entry-5"}
    assert is_ours(decode_metadata(version.data, "k"), 1, TOPIC_ID)
    assert not is_ours(decode_metadata(version.data, "k"), 2, TOPIC_ID)


def test_no_engine_has_a_place_to_write_to_or_may_delete(first: IcebergTable) -> None:
    assert first.metadata is not None
    properties = first.metadata.properties
    assert properties["gc.enabled"] == "false"
    assert properties["write.data.path"] == properties["write.metadata.path"] == NOWHERE


def test_an_empty_topic_is_a_table_with_an_empty_snapshot() -> None:
    version = made(IcebergTable(), [], 5)
    assert summaries(version) == [("append", "5", 0)]
    assert read_back(version).manifests == ()
    assert publish(version.table, [], 9) is None


def test_there_is_no_version_without_a_difference(first: IcebergTable) -> None:
    same = wanted(("a", 3, 1, 1), ("b", 4, 2, 2))
    assert publish(first, same, 9) is None
    assert publish(first, same, 9, topic=topic(n=pa.int64(), m=pa.string())) is not None


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        # New records alone.
        ([("a", 3, 1, 1), ("b", 4, 2, 2), ("c", 1, 6, 6)], [("append", "7", 1)]),
        # Written together: the same 7 records,
        ([("c", 7, 1, 2)], [("replace", "7", 1)]),
        # and newer ones in a file of their own: readers of changes see these alone.
        ([("c", 7, 1, 2), ("d", 1, 6, 6)], [("replace", "5", 1), ("append", "7", 1)]),
        # One record is gone.
        ([("c", 6, 1, 2)], [("overwrite", "7", 1)]),
        # A newer record is in the file of the older ones.
        ([("c", 8, 1, 6)], [("overwrite", "7", 1)]),
        # A file is gone.
        ([("b", 4, 2, 2)], [("delete", "7", 0)]),
    ],
)
def test_snapshots_say_how_the_data_changes(
    first: IcebergTable, files: list[tuple[str, int, int, int]], expected: list[tuple[str, str, int]]
) -> None:
    version = made(first, wanted(*files), 7)
    assert summaries(version)[1:] == expected
    assert names(version.table) == [name for name, *_ in files]
    assert version.table.entry == 7
    TableMetadataUtil.parse_raw(version.data.decode())


def test_a_table_is_the_same_read_from_its_bytes(first: IcebergTable) -> None:
    version = made(first, wanted(("b", 4, 2, 2), ("c", 1, 6, 6)), 7)
    found = read_back(version)
    assert found.metadata == version.table.metadata
    assert found.files == version.table.files
    assert without_old(found, 7_000) == without_old(version.table, 7_000)
    assert len(without_old(found, 7_000)) == 3
    assert len(without_old(found, 7_001)) == 2


def test_removed_files_are_remembered_for_the_hold_time_and_no_longer(first: IcebergTable) -> None:
    table = made(first, wanted(("b", 4, 2, 2)), 6).table
    for entry in (7, 16):
        table = made(table, wanted(("b", 4, 2, 2), (chr(100 + entry), 1, entry, entry)), entry).table
        assert any(one.gone for one in table.manifests)
        assert without_old(table, 6_000) - set(table.files)
    table = made(table, wanted(("d", 6, 2, 16)), 17).table
    assert len(without_old(table, 0) - set(table.files)) == 3  # b and the two others, and no longer a


def test_ids_and_sequence_numbers_of_snapshots_rise_whatever_the_clock_says(first: IcebergTable) -> None:
    late = next_version(first, topic(), HERE, wanted(("c", 7, 1, 2), ("d", 1, 6, 6)), 7, 10, HOLD_MS)
    assert late is not None
    assert late.table.metadata is not None
    found = [(one.snapshot_id, one.sequence_number) for one in late.table.metadata.snapshots]
    assert found == [(5_000, 1), (5_001, 2), (5_002, 3)]
    assert [one.parent_snapshot_id for one in late.table.metadata.snapshots] == [None, 5_000, 5_001]


def test_small_manifests_are_written_together(first: IcebergTable) -> None:
    table, files = first, wanted(("a", 3, 1, 1), ("b", 4, 2, 2))
    most = 0
    for number in range(2 * iceberg_table.MANIFESTS_MAX):
        files = [*files, Wanted(f"data/{500 + number:020d}-{UUID}0.parquet", 1, 1, 6 + number, 6 + number)]
        version = made(table, files, 6 + number)
        assert read_back(version).files == version.table.files
        table = version.table
        most = max(most, len(table.manifests))
    assert most == iceberg_table.MANIFESTS_MAX
    assert len(table.files) == len(files)
    assert {one.sequence for one in table.files.values()} == set(range(1, 42))


def test_a_metadata_file_names_the_snapshots_of_the_hold_time_and_so_many_of_them(
    first: IcebergTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, files = first, wanted(("a", 3, 1, 1), ("b", 4, 2, 2))
    monkeypatch.setattr(iceberg_table, "SNAPSHOTS_MAX", 8)
    for number in range(20):
        files = [*files, Wanted(f"data/{500 + number:020d}-{UUID}0.parquet", 1, 1, 6 + number, 6 + number)]
        table = made(table, files, 6 + number).table
    assert table.metadata is not None
    assert [one.snapshot_id for one in table.metadata.snapshots] == [1_000 * one for one in range(18, 26)]
    monkeypatch.setattr(iceberg_table, "SNAPSHOTS_MAX", 100)
    table = made(table, files[:-1], 30).table
    assert table.metadata is not None
    assert [one.snapshot_id for one in table.metadata.snapshots] == [*range(20_000, 26_000, 1_000), 30_000]
    assert set(table.metadata.refs) == {"main", *(f"entry-{one}" for one in range(20, 26)), "entry-30"}


def test_columns_keep_their_ids_when_others_come_and_types_grow(first: IcebergTable) -> None:
    later = made(
        first,
        wanted(("c", 7, 1, 2)),
        7,
        topic=topic(n=pa.int64(), s=pa.struct([("n", pa.int8())]), t=pa.list_(pa.string())),
    ).table
    assert later.metadata is not None
    assert later.metadata.schema is not None
    assert [one["id"] for one in later.metadata.schema.fields] == [1, 2, 4]
    assert later.metadata.last_column_id == 5
    assert [one.schema_id for one in later.metadata.schemas] == [0, 1]
    assert [one.schema_id for one in later.metadata.snapshots] == [0, 1]
    mapping = msgspec.json.decode(later.metadata.properties["schema.name-mapping.default"])
    assert mapping[1] == {"field-id": 2, "names": ["s"], "fields": [{"field-id": 3, "names": ["n"]}]}
    assert mapping[3]["names"] == ["_partition"]


def test_a_rebuild_states_every_file_again_and_remembers_what_went(first: IcebergTable) -> None:
    second = made(first, wanted(("b", 4, 2, 2)), 6).table
    version = made(second, wanted(("b", 4, 2, 2), ("c", 1, 6, 6)), 6, rebuild=True)
    assert summaries(version) == [("overwrite", "6", 2)]
    assert read_back(version).files == version.table.files
    assert names(version.table) == ["b", "c"]
    assert len(without_old(version.table, 6_000)) == 3
    blind = made(IcebergTable(7), wanted(("b", 4, 2, 2)), 9, rebuild=True)
    assert (blind.table.version, names(blind.table)) == (8, ["b"])


def test_another_scheme_states_every_file_again_and_another_place_is_refused(first: IcebergTable) -> None:
    files = wanted(("a", 3, 1, 1))
    version = made(first, files, 7, location=HERE.replace("s3://", "s3a://"))
    assert {one.partition("://")[0] for one in without_old(version.table, 7_000)} == {"s3a"}
    assert len(without_old(version.table, 7_000)) == 2
    there = HERE.replace("bucket", "other")
    with pytest.raises(ConflictError, match="other") as caught:
        publish(first, files, 7, location=there)
    assert caught.value.kind == "view-elsewhere"
    assert made(first, files, 7, location=there, rebuild=True).table.metadata.location == there  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("url", "scheme", "location"),
    [
        ("file:///a/b", "", f"file:///a/b/{DIRECTORY}/_iceberg"),
        ("file:///a/b", "file", f"file:///a/b/{DIRECTORY}/_iceberg"),
        ("s3://b/r", "", f"s3://b/r/{DIRECTORY}/_iceberg"),
        ("s3://b", "s3a", f"s3a://b/{DIRECTORY}/_iceberg"),
        ("s3://b", "file", None),
        ("file:///a", "s3", None),
        ("memory://a", "", None),
    ],
)
def test_paths_have_the_scheme_of_the_root_or_one_for_the_same_store(
    url: str, scheme: str, location: str | None
) -> None:
    if location is not None:
        assert location_of(url, scheme, DIRECTORY, "t") == location
    else:
        with pytest.raises(InvalidInputError, match=url) as caught:
            location_of(url, scheme, DIRECTORY, "t")
        assert caught.value.kind == "wrong-view-scheme"


@pytest.mark.parametrize(
    "strange",
    [
        f"s3://bucket/root/other-9a6f2a90/{path('a')}",
        f"s3://elsewhere/root/{DIRECTORY}/{path('a')}",
        f"s3://bucket/root/{DIRECTORY}/../{path('a')}",
        f"s3://bucket/root/{DIRECTORY}/data/x.parquet",
        "s3://bucket/root/_txnlog/format.json",
    ],
)
def test_paths_that_lead_out_of_the_topic_are_refused(strange: str) -> None:
    assert key_of(f"s3://bucket/root/{DIRECTORY}/{path('a')}", HERE, DIRECTORY) == f"{DIRECTORY}/{path('a')}"
    with pytest.raises(CorruptDataError) as caught:
        key_of(strange, HERE, DIRECTORY)
    assert caught.value.kind == "corrupt-view"


def test_only_bytes_with_the_hash_of_their_key_reach_the_decoder(first: IcebergTable) -> None:
    version = made(first, wanted(("b", 4, 2, 2), ("c", 1, 6, 6)), 7)
    for key, data in version.objects:
        assert checked(data, key) == data
        for changed in (data[:-1], b"", data + b"x", bytes([data[0] ^ 1]) + data[1:]):
            with pytest.raises(CorruptDataError) as caught:
                checked(changed, key)
            assert caught.value.kind == "corrupt-view"


@pytest.mark.parametrize("data", [b"", b"no avro", b"Obj\x01"])
def test_bytes_that_are_no_manifest_are_named(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        decode_list(data, "k")
    with pytest.raises(CorruptDataError):
        decode_manifest(data, Listed("k", len(data), 1, 1, 1, (1, 0, 0), (1, 0, 0)), "k")


def test_columns_that_iceberg_does_not_have_are_named() -> None:
    for type_, words in (
        (pa.duration("us"), "duration"),
        (pa.list_(pa.duration("us")), "c.element"),
        (
            pa.struct(
                [
                    pa.field("value", pa.binary()),
                    pa.field("metadata", pa.binary(), metadata={"variant": "true"}),
                ]
            ),
            "variant",
        ),
    ):
        with pytest.raises(InvalidInputError, match=words) as caught:
            publish(IcebergTable(), [], 5, topic=topic(c=type_))
        assert caught.value.kind == "unsupported-view-schema"
    with pytest.raises(InvalidInputError, match=r"a\.b"):
        publish(IcebergTable(), [], 5, topic=topic(**{"a.b": pa.int8(), "a": pa.struct([("b", pa.int8())])}))
    assert made(IcebergTable(), [], 5, topic=topic(**{"a b": pa.time64("us")}))
