"""Batch tables, sidecars and snapshots are as the specification says."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from tests.meta.markdown import codes, section
from tests.meta.spec_samples import (
    CHECKPOINT,
    OPERATIONS,
    SAMPLES,
    SEGMENT_RECORD,
    SHA,
    SPEC,
    STAGE,
    TOPIC,
    UUID,
    one_table,
)
from txnformat.core import snapshot
from txnformat.core.app_versions import VersionAt
from txnformat.core.groups.state import Committed, GroupState, Member, PendingPosition
from txnformat.core.operations import (
    Cause,
)
from txnformat.core.producers.state import AppendedRange
from txnformat.core.ranges import Ranges
from txnformat.core.records.batch_table import TABLE_ROW
from txnformat.core.records.state import ABORTED, EXTENT, MARKER, SEGMENT, PartitionState
from txnformat.core.sealing.segment_list import SegmentPart, encode_segment_list
from txnformat.core.sealing.sidecar import INDEX_ROW, MARKER_ROW
from txnformat.core.snapshot_rows import (
    AppVersionRow,
    BlockRow,
    GroupRow,
    PartitionRow,
    ProducerRow,
    StateRow,
    SubscriptionRow,
    TopicRow,
    TotalsRow,
    TransactionalIdRow,
)
from txnformat.core.snapshot_state import encode_state
from txnformat.core.state import FEATURES, IntentWindow, LogState, ProducerIdBlock, TopicState, UsedAt
from txnformat.core.subscriptions.state import PartitionAcks, PendingAcks, SubscriptionState
from txnformat.core.topics.evolution import next_version
from txnformat.core.topics.schema import TopicSchema
from txnformat.core.transactions.state import LastEnd, StagedFlush, TransactionalIdState, TransactionStatus
from txnformat.persistent import Vector
from txnformat.types import FileRecord, Outcome, TopicPartition


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
    assert codes(sections[-2][1].replace("(int32)", "")) == list(snapshot._FILES)
    assert [name for name, kind in snapshot._FILES.items() if kind == pa.int32()] == ["schema_id"]
    assert codes(sections[-1][1]) == list(snapshot._TABLES)
    columns = {codes(row[0])[0]: row[1] for row in one_table(SNAPSHOTS, "table").rows}
    assert columns == {
        "extents": _dtype_in_words(EXTENT),
        "markers": _dtype_in_words(MARKER),
        "aborted": _dtype_in_words(ABORTED),
        "segments": _dtype_in_words(SEGMENT),
    }


def _sample_state() -> dict[str, Any]:
    """Return the JSON section of a state in which nothing is empty."""
    key = TopicPartition(UUID, 0)
    first = TopicSchema.from_json(TOPIC.fields, TOPIC.key_columns, None)
    schema = next_version(first, SAMPLES[-1].fields)  # type: ignore[union-attr]
    assert schema is not None
    opened = PartitionState(
        log_end=5, open={(0, 0): 0}, sequences={(0, 0): (AppendedRange(0, 4, "0123456789abcdef", 0, 1),)}
    )
    ongoing = TransactionalIdState(
        0,
        1,
        TransactionStatus.ONGOING,
        {key: 0},
        1,
        2,
        LastEnd(0, Outcome.COMMIT, Cause.PRODUCER, 1),
        (StagedFlush(UUID, 0, 0, 0, 1, STAGE.partitions),),
        {key: (AppendedRange(0, 4, "0123456789abcdef", -1, 1),)},
        1,
        2,
        frozenset({"readers"}),
        frozenset({(UUID, "billing")}),
        True,
        3,
        4,
    )
    group = GroupState(
        3,
        Member("a process", 45_000, 1),
        2,
        {key: Committed(5, "a note", 0, 1, 2), "another log/0": Committed("17", "", 0, 1, 2)},
        {"etl": {key: PendingPosition(5, "", 1, True), "another log/0": PendingPosition("18", "", 1, False)}},
        1,
        2,
    )
    subscription = SubscriptionState(
        {0: PartitionAcks(1, Ranges.of([(2, 3)]), {"etl": PendingAcks(Ranges.of([(4, 5)]), 2)})}, 1, 1, 2
    )
    row = encode_state(
        LogState(
            log_id=UUID,
            entry=2,
            entry_sha256=SHA,
            timestamp_ms=3,
            features=FEATURES,
            topics={UUID: TopicState(UUID, "orders", TOPIC.directory, 2, schema, TOPIC, 1)},
            topic_ids={"orders": UUID},
            partitions={key: opened},
            transactional_ids={"etl": ongoing},
            next_producer_id=1001,
            blocks={1: ProducerIdBlock("a process", 1, 1000, 1, 2)},
            app_versions={("spark-batch", "nightly"): VersionAt(7, 2, ("a run",))},
            checkpoints=(CHECKPOINT,),
            window=IntentWindow(0, ((UUID,),)),
            segments=Vector([SEGMENT_RECORD]),
            max_transaction_timeout_ms=1,
            producers={3: UsedAt(1, 2)},
            retired_below=3,
            groups={"readers": group},
            retired_generation=1,
            subscriptions={(UUID, "billing"): subscription},
        )
    )
    state: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(row))
    assert tuple(state) == StateRow.__struct_fields__, "nothing of it is left out"
    return state


def test_the_spec_names_exactly_the_fields_of_a_snapshot_s_state() -> None:
    state = _sample_state()
    rows = {tuple(codes(row[0])): row[1] for row in one_table(SNAPSHOTS, "`state`: field").rows}
    assert sorted(name for names in rows for name in names) == sorted(state)
    notes = {name: text for names, text in rows.items() for name in names}
    for name in (
        "features",
        "blocks",
        "app_versions",
        "partitions",
        "transactional_ids",
        "window",
        "topics",
        "groups",
        "subscriptions",
    ):
        value = state[name][0] if isinstance(state[name], list) else state[name]
        extra = {"entry", "create_topic", "fields"} if name in ("window", "topics") else set()
        assert set(codes(notes[name])) - extra - set(value) == set(), name
        assert set(value) <= set(codes(notes[name])), name
    words = " ".join(SNAPSHOTS.split())
    (known,), (partition,), (group,) = state["transactional_ids"], state["partitions"], state["groups"]
    (subscription,) = state["subscriptions"]
    for row, declared in (
        (state["topics"][0], TopicRow),
        (known, TransactionalIdRow),
        (state["blocks"][0], BlockRow),
        (state["producers"][0], ProducerRow),
        (state["app_versions"][0], AppVersionRow),
        (partition, PartitionRow),
        (partition["sealed"], TotalsRow),
        (group, GroupRow),
        (subscription, SubscriptionRow),
    ):
        assert tuple(row) == declared.__struct_fields__, "the sample has every field"
    for item in (
        known["partitions"][0],
        known["last_end"],
        {name: value for name, value in known["staged"][0].items() if name != "partitions"},
        known["staged_sequences"][0],
        partition["open"][0],
        partition["sequences"][0],
        partition["sequences"][0]["appends"][0],
        group["member"],
        group["committed"][0],
        group["pending"][0],
        known["subscriptions"][0],
        subscription["partitions"][0],
        subscription["partitions"][0]["pending"][0],
    ):
        names = re.escape(" ".join(f"`{name}`" for name in item)).replace("\\ ", r"(?: \([^)]*\))? ")
        assert re.search(names, words), list(item)


def test_the_states_of_a_transactional_id_are_named() -> None:
    match = re.search(r"`status` is ([^.]+)\.", " ".join(SNAPSHOTS.split()))
    assert match is not None
    assert set(codes(match[1])) == set(TransactionStatus)


def test_the_spec_names_the_columns_of_sidecars_and_segment_lists_in_order() -> None:
    rows = {row[0]: row[2] for row in one_table(section(SPEC, "### 6.6 Sealed segments"), "sidecar").rows}
    index, _, file = rows["`.index`"].partition(", then the file's record: ")
    assert index == _dtype_in_words(INDEX_ROW)
    assert codes(file) == [f"file_{name}" for name in FileRecord.__struct_fields__]
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
