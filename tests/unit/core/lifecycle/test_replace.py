"""Listed segments get compacted ones in their place: every rule of the operation, in the decision and in the
fold."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from tests.unit.core.lifecycle.replaced_world import (
    KEY,
    NEW,
    OLD,
    SHA,
    UUID,
    compacted,
    intent,
    listed,
    named,
    operation,
)
from tests.unit.core.memory_log import COMMIT, ORDERS, Log, rows
from txnformat.core.fold import apply_operation
from txnformat.core.folding import At
from txnformat.core.intents import (
    EnableFeatures,
    Included,
    OpenProducer,
    SealSegments,
    TrimTopic,
    Write,
)
from txnformat.core.invariants import check_whole
from txnformat.core.lifecycle.compaction import groups_of
from txnformat.core.lifecycle.operations import (
    CleanedPartition,
    CompactedSegment,
    Replace,
    ReplacedList,
    Trim,
    TrimmedPartition,
)
from txnformat.core.operations import Seal
from txnformat.core.producers.absence import is_absent
from txnformat.core.records.state import SEGMENT, SealedTotals
from txnformat.core.sealing.segment_list import SegmentPart
from txnformat.core.state import LIFECYCLE, LogState
from txnformat.core.topics.settings import as_settings
from txnformat.errors import ConflictError, CorruptDataError, UnsupportedFeatureError
from txnformat.keys import sidecar_key
from txnformat.types import ObjectRecord, SegmentRecord
from txnlog_testing.seal_of import seal_of


def folded(state: LogState, op: Replace) -> LogState:
    return apply_operation(state, op, At(state.entry + 1, state.timestamp_ms + 1))


def test_a_compaction_changes_lists_totals_and_the_revision_and_nothing_else() -> None:
    log = listed()
    before = log.state.partition(KEY)
    assert isinstance(log.commit(intent(operation(compacted(log)))), Included)
    after = log.state.partition(KEY)
    assert log.state.segment_lists == (NEW,)
    assert (after.revision, before.revision) == (1, 0)
    assert after.sealed == SealedTotals(4, 50, 0, 0, 0)
    assert after == msgspec.structs.replace(before, sealed=after.sealed, revision=1)
    assert check_whole(log.state) == []


def test_a_log_must_be_upgraded_first() -> None:
    log = listed(upgraded=False)
    assert isinstance(log.refusal(intent(operation(compacted(log)))), UnsupportedFeatureError)
    with pytest.raises(CorruptDataError, match="without the feature"):
        folded(log.state, operation(compacted(log)))


@pytest.mark.parametrize(
    ("part", "lists", "log_start"),
    [
        ({"revision": 1}, {}, 0),
        ({}, {}, 1),
        ({}, {"lists": (ReplacedList(NEW.key, NEW),)}, 0),
        ({}, {"lists": (ReplacedList(OLD.key, named(2, 1)),)}, 0),
    ],
    ids=["revision", "log start", "no such list", "another beginning"],
)
def test_what_another_client_has_changed_is_refused(
    part: dict[str, int], lists: dict[str, Any], log_start: int
) -> None:
    log = listed()
    error = log.refusal(intent(operation(compacted(log, **part), **lists), log_start))
    assert isinstance(error, ConflictError)
    assert error.kind == "replace-superseded"


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"revision": 1}, "another revision"),
        ({"end_offset": 7}, "compacted offsets"),
        ({"start_offset": 6}, "compacted offsets"),
        ({"records": 5}, "more than what it replaces"),
        ({"start_offset": 3}, "more than what it replaces"),
        ({"old_aborted_records": 1}, "more than what it replaces"),
        ({"runs": 0}, "more than what it replaces"),
        ({"runs": 5}, "more than what it replaces"),
        ({"old_records": 5}, "does not have"),
        ({"size": 0, "old_size": 10**6}, "does not have"),
        ({"old_records": 5, "records": 4, "old_aborted_records": 1}, "does not have"),
    ],
)
def test_a_compaction_that_does_not_fit_its_partition_is_corrupt(values: dict[str, int], what: str) -> None:
    log = listed()
    with pytest.raises(CorruptDataError, match=what):
        folded(log.state, operation(compacted(log, **values)))


def test_ranges_of_a_partition_ascend() -> None:
    log = listed()
    size = log.state.partition(KEY).sealed.size
    halves = [
        compacted(log, end_offset=3, records=2, old_records=2, old_size=size // 2),
        compacted(log, start_offset=3, records=2, old_records=2, old_size=size - size // 2),
    ]
    assert folded(log.state, operation(*halves)).partition(KEY).revision == 1
    with pytest.raises(CorruptDataError, match="compacted offsets"):
        folded(log.state, operation(*reversed(halves)))


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"topic_id": UUID}, "no topic"),
        ({"lists": (ReplacedList(NEW.key, NEW),)}, "not there"),
        ({"lists": (ReplacedList(OLD.key, NEW), ReplacedList(OLD.key, NEW))}, "not there"),
    ],
)
def test_a_compaction_of_what_is_not_there_is_corrupt(changed: dict[str, Any], what: str) -> None:
    log = listed()
    with pytest.raises(CorruptDataError, match=what):
        folded(log.state, operation(compacted(log), **changed))


def test_runs_of_another_topic_are_corrupt() -> None:
    log = listed()
    other = ObjectRecord(sidecar_key("other-00000000", 0, UUID, "runs"), 10, SHA)
    with pytest.raises(CorruptDataError, match="directory of another topic"):
        folded(log.state, operation(segments=(CompactedSegment(other, (compacted(log),)),)))


def test_a_trim_that_was_counted_before_a_compaction_is_refused() -> None:
    log = listed()
    log.commit(intent(operation(compacted(log))))
    trim = Trim(ORDERS.topic_id, (TrimmedPartition(0, 6, 3, 4, 50, 0, 0),))
    error = log.refusal(TrimTopic(trim, (0,)))
    assert isinstance(error, ConflictError)
    assert error.kind == "trim-superseded"
    assert isinstance(log.commit(TrimTopic(trim, (0,), revisions=(1,))), Included)


def test_a_seal_that_takes_in_a_list_which_was_replaced_leaves_it_out() -> None:
    log = listed()
    merged = Seal((), named(3), log.state.segments.end, replaced_lists=(OLD.key,))
    log.commit(intent(operation(compacted(log))))
    error = log.refusal(SealSegments(merged))
    assert isinstance(error, ConflictError)
    assert error.kind == "seal-superseded"


def test_a_revision_proves_that_a_compaction_has_not_landed() -> None:
    log = listed()
    action = intent(operation(compacted(log)))
    assert is_absent(log.state, action)
    log.commit(action)
    assert not is_absent(log.state, action)


# --- what is written together -------------------------------------------------------------------------------


def parts_of(*sizes: int) -> list[SegmentPart]:
    """Return parts that follow each other; a negative size is that of a compacted one."""
    found = []
    for number, size in enumerate(sizes):
        row = np.zeros(1, SEGMENT)
        row["start_offset"], row["end_offset"] = number, number + 1
        row["size"] = row["records"] = abs(size)
        key = sidecar_key(ORDERS.directory, number, UUID, "runs" if size < 0 else "index")
        found.append(SegmentPart(SegmentRecord(ORDERS.topic_id, ObjectRecord(key, 1, SHA)), row[0]))
    return found


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((), []),
        ((5,), [(0, 1)]),
        ((-5,), []),
        ((500,), [(0, 1)]),
        ((-500,), []),
        ((5, 5, 5), [(0, 3)]),
        ((60, 60, 60), [(0, 2), (2, 3)]),
        ((5, -500, 5), [(0, 1), (2, 3)]),
        ((-90, 5), [(1, 2)]),
        ((-10, 5), [(0, 2)]),
        ((-90, 20), [(0, 2)]),
        ((-40, -5, 3), [(1, 3)]),
        ((-40, -20, -10, 5), [(0, 4)]),
        ((-5, -5), [(0, 2)]),
    ],
)
def test_parts_are_written_together_up_to_the_target_and_rarely_twice(
    sizes: tuple[int, ...], expected: list[tuple[int, int]]
) -> None:
    groups = groups_of(parts_of(*sizes), 100)
    assert [(group[0].range.start, group[-1].range.end) for group in groups] == expected


@pytest.mark.parametrize("rewritten", [-2, -8])
def test_a_second_compaction_has_nothing_to_do_whatever_size_the_first_gave_its_part(rewritten: int) -> None:
    """Few records take more bytes when they are written anew, for each row then has metadata columns."""
    older, newer = parts_of(-13, 3)
    assert groups_of([older, newer], 100) == [[newer]]
    part = parts_of(0, rewritten)[1]
    part.row["records"] = newer.row["records"]
    assert groups_of([older, part], 100) == []


def test_each_record_is_written_a_few_times_however_often_a_log_is_compacted() -> None:
    sizes: list[int] = []
    written = 0
    for _ in range(1_000):
        sizes.append(1)
        groups = groups_of(parts_of(*sizes), 200)
        for group in reversed(groups):
            first, last = group[0].range.start, group[-1].range.end
            total = sum(map(abs, sizes[first:last]))
            written += total
            sizes[first:last] = [-total]
    assert sum(map(abs, sizes)) == 1_000
    assert written < 1_000 * 12
    assert len(sizes) < 20


def keyed(policy: str = "compact", has_key: bool = True) -> Log:
    """Return the log of :func:`listed` whose topic keeps the latest record of each key."""
    settings = as_settings({"cleanup.policy": policy})
    key_columns = (ORDERS.fields[0]["name"],) if has_key else ()
    topic = msgspec.structs.replace(ORDERS, key_columns=key_columns, settings=settings)
    log = Log(EnableFeatures((LIFECYCLE,)), topic, OpenProducer("etl"))
    log.commit(Write(log.producer(), rows(), end=COMMIT))
    log.commit(Write(log.producer(), rows(content="more"), end=COMMIT))
    seal = seal_of(log.state)
    log.commit(SealSegments(Seal(seal.segments, OLD, len(seal.segments))))
    return log


def fewer(log: Log, *cleaned: CleanedPartition) -> Replace:
    """Return the operation that leaves one of four records, and says so."""
    return operation(compacted(log, records=1), cleaned=cleaned)


ALL = CleanedPartition(0, 6, 6, 3)


def test_a_compaction_that_keeps_the_latest_records_says_which_versions_it_costs() -> None:
    log = keyed()
    assert isinstance(log.commit(intent(fewer(log, ALL))), Included)
    after = log.state.partition(KEY)
    assert (after.cleaned_end, after.cleaned_entry, after.horizons) == (6, 3, ())
    assert after.sealed.records == 1
    assert check_whole(log.state) == []


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_only_a_topic_with_the_policy_loses_records_to_later_ones(policy: str) -> None:
    log = keyed(policy)
    assert isinstance(log.commit(intent(fewer(log, ALL))), Included) == (policy == "compact")


def test_what_another_client_has_compared_meanwhile_is_not_taken_back() -> None:
    log = keyed()
    log.commit(intent(fewer(log, ALL)))
    again = operation(
        compacted(log, revision=1, records=1, old_records=1, old_size=50),
        cleaned=(CleanedPartition(0, 5, 5, 3),),
        lists=(ReplacedList(NEW.key, named(3)),),
    )
    error = log.refusal(intent(again))
    assert isinstance(error, ConflictError)
    assert error.kind == "replace-superseded"
    with pytest.raises(CorruptDataError, match="goes back"):
        folded(log.state, again)


@pytest.mark.parametrize(
    "cleaned", [(ALL, ALL), (CleanedPartition(1, 0, 0, -1),), (CleanedPartition(1, 0, 0, -1), ALL)]
)
def test_cleaned_partitions_ascend_and_are_replaced(cleaned: tuple[CleanedPartition, ...]) -> None:
    log = keyed()
    with pytest.raises(CorruptDataError, match="do not ascend"):
        folded(log.state, fewer(log, *cleaned))


def test_a_topic_without_keys_has_no_later_records_of_a_key() -> None:
    log = keyed(has_key=False)
    with pytest.raises(CorruptDataError, match="without key columns"):
        folded(log.state, fewer(log, ALL))
