"""Batch tables, sidecars and snapshots are as the specification says."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from tests.meta.markdown import codes, section
from tests.meta.spec_samples import (
    OPERATIONS,
    SEGMENT_RECORD,
    SPEC,
    UUID,
    one_table,
)
from txnformat.core.producers.state import AppendedRange
from txnformat.core.records.batch_table import TABLE_ROW
from txnformat.core.records.state import ABORTED, EXTENT, MARKER, SEGMENT, SealedTotals
from txnformat.core.sealing.segment_list import SegmentPart, encode_segment_list
from txnformat.core.sealing.sidecar import INDEX_ROW, MARKER_ROW, RUN_ROW
from txnformat.core.snapshot import codec as snapshot
from txnformat.core.snapshot import sections as sections_module
from txnformat.core.snapshot.groups import CommittedRow, GroupRow, MemberRow, PendingRow
from txnformat.core.snapshot.rows import (
    AppVersionRow,
    FeaturesRow,
    OpenRow,
    PartitionRow,
    ProducerRow,
    SequencesRow,
    StagedSequencesRow,
    StartRow,
    StateRow,
    SubscriptionKeyRow,
    TopicRow,
    TransactionalIdRow,
    WindowRow,
)
from txnformat.core.snapshot.subscriptions import AcksRow, PendingAcksRow, SubscriptionRow
from txnformat.core.state import ProducerIdBlock
from txnformat.core.transactions.state import LastEnd, StagedFlush, TransactionStatus
from txnformat.types import FileRecord, TopicPartition


def _dtype_in_words(dtype: np.dtype[Any]) -> str:
    return " ".join(
        f"`{name}`" + ("(int32)" if dtype[name] == np.int32 else "") for name in dtype.names or ()
    )


def test_the_spec_names_the_columns_of_a_batch_table_in_order() -> None:
    match = re.search(
        r"in this order: ((?:`\w+` )+)\(int32\) ((?:`\w+` )+)\(int64\)", " ".join(OPERATIONS.split())
    )
    assert match is not None
    names = TABLE_ROW.names or ()
    assert codes(match[1]) == [name for name in names if TABLE_ROW[name] == np.int32]
    assert codes(match[2]) == [name for name in names if TABLE_ROW[name] == np.int64]
    assert codes(match[1]) + codes(match[2]) == list(names)


SNAPSHOTS = section(SPEC, "## 10. Snapshots")


def test_the_spec_names_the_sections_of_a_snapshot_and_their_columns_in_order() -> None:
    sections = one_table(SNAPSHOTS, "section").rows
    assert [name for row in sections for name in codes(row[0])] == list(snapshot._SECTIONS)
    assert codes(sections[0][0]) + codes(sections[1][0]) == list(snapshot._SECTIONS[:-2])
    assert codes(sections[-2][1].replace("(int32)", "")) == list(sections_module.FILES)
    assert [name for name, kind in sections_module.FILES.items() if kind == pa.int32()] == ["schema_id"]
    assert codes(sections[-1][1]) == list(sections_module.TABLES)
    columns = {codes(row[0])[0]: row[1] for row in one_table(SNAPSHOTS, "table").rows}
    assert columns == {
        "extents": _dtype_in_words(EXTENT),
        "markers": _dtype_in_words(MARKER),
        "aborted": _dtype_in_words(ABORTED),
        "segments": _dtype_in_words(SEGMENT),
    }


DECLARED: dict[str, type[msgspec.Struct]] = {
    "features": FeaturesRow,
    "topics": TopicRow,
    "transactional_ids": TransactionalIdRow,
    "blocks": ProducerIdBlock,
    "app_versions": AppVersionRow,
    "window": WindowRow,
    "partitions": PartitionRow,
    "groups": GroupRow,
    "subscriptions": SubscriptionRow,
}
"""By field of a snapshot's state: what it holds."""


def test_the_spec_names_exactly_the_fields_of_a_snapshot_s_state() -> None:
    notes = {name: row[1] for row in one_table(SNAPSHOTS, "`state`: field").rows for name in codes(row[0])}
    assert sorted(notes) == sorted(StateRow.__struct_fields__)
    for name, declared in DECLARED.items():
        extra = {"entry", "create_topic", "fields"} if name in ("window", "topics") else set()
        assert set(codes(notes[name])) - extra - set(declared.__struct_fields__) == set(), name
        assert set(declared.__struct_fields__) <= set(codes(notes[name])), name


@pytest.mark.parametrize(
    ("declared", "without"),
    [
        (StartRow, ()),
        (LastEnd, ()),
        (StagedFlush, ("partitions",)),
        (StagedSequencesRow, ()),
        (OpenRow, ()),
        (SequencesRow, ()),
        (AppendedRange, ()),
        (MemberRow, ()),
        (CommittedRow, ("name", "position")),
        (PendingRow, ()),
        (SubscriptionKeyRow, ()),
        (AcksRow, ()),
        (PendingAcksRow, ()),
        (ProducerRow, ()),
        (SealedTotals, ()),
    ],
)
def test_the_spec_lists_the_fields_of_a_row_in_order(declared: Any, without: tuple[str, ...]) -> None:
    names = getattr(declared, "__struct_fields__", None) or declared._fields
    listed = " ".join(f"`{name}`" for name in names if name not in without)
    assert re.search(re.escape(listed).replace("\\ ", r"(?: \([^)]*\))? "), " ".join(SNAPSHOTS.split()))


def test_the_states_of_a_transactional_id_are_named() -> None:
    match = re.search(r"`status` is ([^.]+)\.", " ".join(SNAPSHOTS.split()))
    assert match is not None
    assert set(codes(match[1])) == set(TransactionStatus)


def test_the_spec_names_the_columns_of_sidecars_and_segment_lists_in_order() -> None:
    rows = {row[0]: row[2] for row in one_table(section(SPEC, "### 6.6 Sealed segments"), "sidecar").rows}
    index, _, file = rows["`.index`"].partition(", then the file's record: ")
    assert index == _dtype_in_words(INDEX_ROW)
    assert codes(file) == [f"file_{name}" for name in FileRecord.__struct_fields__]
    assert rows["`.runs`"].partition(", then")[0] == _dtype_in_words(RUN_ROW)
    assert rows["`.markers`"] == _dtype_in_words(MARKER_ROW)
    listed, _, sidecars = rows["segment list"].partition(", then ")
    assert listed == "`topic_id`(dictionary) `partition`(int32) " + _dtype_in_words(SEGMENT)
    names = [
        *codes(listed),
        *(prefix + name for prefix in codes(sidecars)[3:] for name in codes(sidecars)[:3]),
    ]
    data = encode_segment_list(
        {TopicPartition(UUID, 0): (SegmentPart(SEGMENT_RECORD, np.zeros(1, SEGMENT)[0]),)}
    )
    with pa.ipc.open_file(data) as reader:
        assert reader.schema.names == names
        dictionaries = [field.name for field in reader.schema if pa.types.is_dictionary(field.type)]
    assert dictionaries == [name for name in names if name == "topic_id" or name.endswith(("_key", "sha256"))]
