"""The topics of a log have at most 200,000 partitions together: decisions refuse more, the fold and snapshots
call it corrupt."""

from __future__ import annotations

import uuid
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.core.full_state import LOG_ID, checkpoint_of
from txnformat.core.assemble import assemble
from txnformat.core.decide import decide
from txnformat.core.entry import sha256_hex
from txnformat.core.fold import apply
from txnformat.core.intents import ChangeTopic, Included, Intent, Rejected
from txnformat.core.invariants import check_state, check_whole
from txnformat.core.operations import CreateTopic
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot
from txnformat.core.state import LogState, TopicState
from txnformat.core.topics.schema import TopicSchema, fields_to_json
from txnformat.errors import CorruptDataError, InvalidInputError
from txnformat.field_types import LOG_PARTITIONS_MAX, PARTITIONS_MAX
from txnformat.keys import topic_directory
from txnformat.persistent import replace

SCHEMA = TopicSchema(pa.schema([pa.field("id", pa.int32())]))


def topic(number: int, partitions: int) -> CreateTopic:
    topic_id = str(uuid.UUID(int=number, version=4))
    name = f"t{number}"
    return CreateTopic(
        topic_id,
        name,
        topic_directory(name, topic_id),
        partitions,
        tuple(fields_to_json(SCHEMA.arrow_schema)),
        (),
        None,
    )


def folded(state: LogState, *actions: CreateTopic | ChangeTopic) -> LogState:
    intents = [Intent(f"{state.entry} {number}", state.entry + 1, one) for number, one in enumerate(actions)]
    made = assemble(state, intents, store_time_ms=1_700_000_000_000, write_id="write")
    assert made.entry is not None, made.verdicts
    after = apply(state, made.entry, made.sha256)
    assert check_state(state, made.entry, after) == []
    assert check_whole(after) == []
    return after


@cache
def with_partitions(count: int) -> LogState:
    """Return a log whose topics have ``count`` partitions together."""
    sizes = [PARTITIONS_MAX] * (count // PARTITIONS_MAX)
    sizes += [count % PARTITIONS_MAX] if count % PARTITIONS_MAX else []
    empty = LogState(LOG_ID, entry_sha256=sha256_hex(b"format"))
    state = folded(empty, *(topic(number, size) for number, size in enumerate(sizes)))
    assert state.partition_count == count
    return state


FULL = LOG_PARTITIONS_MAX
LAST = topic(FULL // PARTITIONS_MAX - 1, 0).topic_id


def creates(partitions: int) -> CreateTopic:
    return topic(999, partitions)


def grows(partitions: int) -> ChangeTopic:
    return ChangeTopic(LAST, partitions, (), ())


CASES = [
    (FULL - 1, creates(1), 1),
    (FULL - 7, creates(7), 7),
    (FULL - 1, grows(PARTITIONS_MAX), 1),
    (FULL - 7, grows(PARTITIONS_MAX), 7),
]


@pytest.mark.parametrize(("before", "action", "more"), CASES)
def test_a_log_may_have_as_many_partitions_as_the_cap(before: int, action: Any, more: int) -> None:
    state = folded(with_partitions(before), action)
    assert state.partition_count == FULL == before + more


@pytest.mark.parametrize(("before", "more"), [(FULL, 1), (FULL - 7, 8)])
def test_a_topic_with_more_partitions_than_the_log_may_have_is_rejected(before: int, more: int) -> None:
    verdict = decide(with_partitions(before), Intent("one", 1, creates(more)))
    assert isinstance(verdict, Rejected)
    assert (type(verdict.error), verdict.error.kind) == (InvalidInputError, "invalid-partitions")
    assert (
        f"{more} more partitions are too many: the topics of the log have {before}, and at most {FULL}"
        in str(verdict.error)
    )


def test_a_topic_that_grows_beyond_the_cap_is_rejected() -> None:
    state = folded(with_partitions(FULL - 7), creates(5))
    verdict = decide(state, Intent("one", 2, grows(PARTITIONS_MAX - 4)))
    assert isinstance(verdict, Rejected)
    assert (type(verdict.error), verdict.error.kind) == (InvalidInputError, "invalid-alter")
    assert "3 more partitions are too many: the topics of the log have 199998, and at most 200000" in str(
        verdict.error
    )
    assert isinstance(decide(state, Intent("one", 2, grows(PARTITIONS_MAX - 5))), Included)


@pytest.mark.parametrize(("before", "action", "_more"), CASES)
def test_an_entry_that_goes_beyond_the_cap_is_corrupt(before: int, action: Any, _more: int) -> None:
    made = assemble(
        with_partitions(before), [Intent("one", 1, action)], store_time_ms=1_700_000_000_001, write_id="write"
    )
    assert made.entry is not None
    # The entry is the one that reaches the cap; here the log has one partition more before it.
    fuller = replace(with_partitions(before), partition_count=before + 1)
    with pytest.raises(CorruptDataError, match="more partitions than it may have") as caught:
        apply(fuller, made.entry, made.sha256)
    assert caught.value.values["maximum"] == FULL


def test_a_snapshot_has_at_most_as_many_partitions_as_the_cap() -> None:
    full = with_partitions(FULL)
    data = encode_snapshot(full)
    assert decode_snapshot(data, checkpoint_of(full, data), LOG_ID).partition_count == FULL
    one = TopicState(creates(1).topic_id, creates(1).name, creates(1).directory, 1, SCHEMA, creates(1), 0)
    beyond = replace(
        full,
        topics={**full.topics, one.topic_id: one},
        topic_ids={**full.topic_ids, one.name: one.topic_id},
    )
    data = encode_snapshot(beyond)
    with pytest.raises(CorruptDataError) as caught:
        decode_snapshot(data, checkpoint_of(beyond, data), LOG_ID)
    assert (caught.value.values["field"], caught.value.values["got"]) == ("topics", str(FULL + 1))
