"""A state that compresses too well is stored as it is; one that is too large is refused in words that say
what is too large."""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.core.full_state import LOG_ID, checkpoint_of
from txnformat.core.entry import sha256_hex
from txnformat.core.operations import CreateTopic
from txnformat.core.records.state import EXTENT, PartitionState
from txnformat.core.snapshot import codec
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot
from txnformat.core.state import LogState, TopicState
from txnformat.core.topics.schema import TopicSchema, fields_to_json
from txnformat.errors import InvalidInputError
from txnformat.keys import topic_directory
from txnformat.persistent import Columns, replace
from txnformat.types import TopicPartition


def with_topics(count: int, columns: int) -> LogState:
    """Return a state with topics of the same columns, as a program makes that has one for each customer."""
    schema = TopicSchema(pa.schema([pa.field(f"column_{number}", pa.string()) for number in range(columns)]))
    fields = tuple(fields_to_json(schema.arrow_schema))
    topics = {}
    for number in range(count):
        topic_id = str(uuid.uuid5(uuid.NAMESPACE_OID, str(number)))
        topic_id = f"{topic_id[:14]}4{topic_id[15:]}"
        name = f"customer-{number:06}.orders"
        made = CreateTopic(topic_id, name, topic_directory(name, topic_id), 1, fields, (), None)
        topics[topic_id] = TopicState(topic_id, name, made.directory, 1, schema, made, 0)
    return replace(
        LogState(LOG_ID, entry=1, entry_sha256=sha256_hex(b"format")),
        topics=topics,
        topic_ids={topic.name: topic_id for topic_id, topic in topics.items()},
        partition_count=count,
    )


def test_many_topics_with_the_same_columns_are_stored_as_they_are() -> None:
    """They compress to a hundredth of what readers parse for each byte that is stored."""
    state = with_topics(10_000, 60)
    data = encode_snapshot(state)
    assert len(data) > 16 * 2**20
    assert b"customer-000007.orders" in data, "not compressed"
    found = decode_snapshot(data, checkpoint_of(state, data), LOG_ID)
    assert (found.partition_count, len(found.topics)) == (10_000, 10_000)
    assert found.topics == state.topics


def test_what_readers_take_is_compressed() -> None:
    data = encode_snapshot(with_topics(1_000, 60))
    assert len(data) < 200_000


def test_rows_that_compress_too_well_are_stored_as_they_are() -> None:
    state = with_topics(1, 1)
    (topic_id,) = state.topics
    many = PartitionState(extents=Columns(EXTENT).append(np.zeros(600_000, EXTENT)))
    data = encode_snapshot(replace(state, partitions={TopicPartition(topic_id, 0): many}))
    assert len(data) > 600_000 * EXTENT.itemsize


@pytest.mark.parametrize(
    ("most", "what", "many"),
    [(50_000, "JSON", "topics and their columns"), (100_000, "tables", "batches that are not sealed")],
)
def test_a_state_that_is_too_large_is_refused_with_what_is_too_large(
    most: int, what: str, many: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = with_topics(100, 10)
    topic_id = next(iter(state.topics))
    rows = PartitionState(extents=Columns(EXTENT).append(np.zeros(1_000, EXTENT)))
    state = replace(state, partitions={TopicPartition(topic_id, 0): rows})
    encode_snapshot(state)
    monkeypatch.setattr(codec, "METADATA_BYTES_MAX", most)
    with pytest.raises(InvalidInputError, match=f"bytes of {what}, more than the cap of {most}") as caught:
        encode_snapshot(state)
    assert caught.value.kind == "metadata-too-large"
    assert many in str(caught.value)
    assert "takes commits" in str(caught.value)
