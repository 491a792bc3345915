"""The next version of a table: what it adds and removes, which of it is a change of data, and when there is
none."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from txnformat.core.operations import CreateTopic
from txnformat.core.state import TopicState
from txnformat.core.topics.schema import TopicSchema
from txnformat.errors import CorruptDataError
from txnformat.views.delta_actions import decode_version, encode_version, is_ours
from txnformat.views.delta_checkpoint import decode_checkpoint, encode_checkpoint
from txnformat.views.delta_table import Change, DeltaTable, change_of, folded, without_tombstones
from txnformat.views.delta_types import delta_schema
from txnformat.views.wanted import Wanted

TOPIC_ID = "9a6f2a90-5f0b-4a0a-8f3c-2b0a3c4d5e6f"
SCHEMA = TopicSchema(pa.schema([("n", pa.int64())]))
TOPIC = TopicState(
    TOPIC_ID, "t", "t-9a6f2a90", 1, SCHEMA, CreateTopic(TOPIC_ID, "t", "t-9a6f2a90", 1, (), ()), 0
)


def wanted(*files: tuple[str, int, int, int]) -> dict[str, Wanted]:
    """Return files by path: path, records, smallest and largest entry."""
    return {path: Wanted(path, 100, rows, low, high) for path, rows, low, high in files}


def published(table: DeltaTable, files: dict[str, Wanted], entry: int, *, rebuild: bool = False) -> Change:
    schema = delta_schema(SCHEMA.arrow_schema, "t")
    change = change_of(table, TOPIC, schema, files, entry, 1_000 * entry, rebuild=rebuild)
    assert change is not None
    return change


def after(table: DeltaTable, change: Change) -> DeltaTable:
    return folded(table, TOPIC_ID, [(table.version + 1, change.lines)])


def changes(change: Change) -> dict[str, bool]:
    """Return ``dataChange`` by path; a file that goes has a minus before it."""
    added = {line.add.path: line.add.dataChange for line in change.lines if line.add}
    return added | {f"-{line.remove.path}": line.remove.dataChange for line in change.lines if line.remove}


@pytest.fixture
def first() -> DeltaTable:
    return after(DeltaTable(), published(DeltaTable(), wanted(("a", 3, 1, 1), ("b", 4, 2, 2)), 5))


def test_the_first_version_has_everything(first: DeltaTable) -> None:
    assert (first.version, first.entry, first.published_ms) == (0, 5, 5_000)
    assert list(first.files) == ["a", "b"]
    assert first.protocol is not None
    assert first.protocol.writerFeatures == ("txnlog.readOnly",)
    assert first.metadata is not None
    century = "interval 36525 days"
    assert first.metadata.configuration == {
        "txnlog.entry": "5",
        "delta.deletedFileRetentionDuration": century,
        "delta.logRetentionDuration": century,
        "delta.enableExpiredLogCleanup": "false",
    }


def test_there_is_no_version_without_a_difference(first: DeltaTable) -> None:
    schema = delta_schema(SCHEMA.arrow_schema, "t")
    same = wanted(("a", 3, 1, 1), ("b", 4, 2, 2))
    assert change_of(first, TOPIC, schema, same, 9, 9_000) is None
    wider = delta_schema(pa.schema([("n", pa.int64()), ("m", pa.string())]), "t")
    assert change_of(first, TOPIC, wider, same, 9, 9_000) is not None


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        # Written together: the same 7 records, and newer ones in a file of their own.
        ([("c", 7, 1, 2), ("d", 1, 6, 6)], {"c": False, "d": True, "-a": False, "-b": False}),
        # One record is gone.
        ([("c", 6, 1, 2)], {"c": True, "-a": True, "-b": True}),
        # A newer record is in the file of the older ones.
        ([("c", 8, 1, 6)], {"c": True, "-a": True, "-b": True}),
        # A whole file is gone, and another came.
        ([("b", 4, 2, 2), ("d", 3, 6, 6)], {"d": True, "-a": True}),
    ],
)
def test_a_version_says_whether_its_data_changes(
    first: DeltaTable, files: list[tuple[str, int, int, int]], expected: dict[str, bool]
) -> None:
    assert changes(published(first, wanted(*files), 7)) == expected


def test_a_rebuild_states_every_file_again(first: DeltaTable) -> None:
    change = published(first, wanted(("a", 3, 1, 1), ("c", 1, 6, 6)), 7, rebuild=True)
    assert changes(change) == {"a": False, "c": True, "-b": True}
    assert [line.protocol for line in change.lines if line.protocol]


def test_a_table_is_the_same_read_from_its_versions_and_from_its_checkpoint(first: DeltaTable) -> None:
    change = published(first, wanted(("c", 7, 1, 2)), 7)
    data = encode_version(change.lines)
    assert is_ours(decode_version(data, "k"))
    second = folded(first, TOPIC_ID, [(1, decode_version(data, "k"))])
    assert second == after(first, change)
    assert set(second.removed) == {"a", "b"}
    found = decode_checkpoint(encode_checkpoint(second, TOPIC_ID), "k", 1, TOPIC_ID)
    assert (found.version, found.entry, found.published_ms, found.checkpoint) == (1, 7, 7_000, 1)
    assert found.protocol == second.protocol
    assert found.metadata == second.metadata
    assert {path: one.size for path, one in found.files.items()} == {"c": 100}
    assert set(found.removed) == {"a", "b"}
    assert replace(without_tombstones(second, 7_001)).removed == {}
    assert without_tombstones(second, 7_000).removed == second.removed


@pytest.mark.parametrize("data", [b"{", b"[1]", b'{"add": 1}', b"\xff"])
def test_what_is_no_version_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptDataError) as caught:
        decode_version(data, "the key")
    assert caught.value.kind == "corrupt-view"
    with pytest.raises(CorruptDataError):
        decode_checkpoint(data, "the key", 1, TOPIC_ID)


@pytest.mark.parametrize(
    "data", [b"", b'{"commitInfo":{"engineInfo":"other"}}', b'{"txn":{"appId":"a","version":1}}']
)
def test_a_version_without_our_name_is_of_another_program(data: bytes) -> None:
    assert not is_ours(decode_version(data, "k"))
