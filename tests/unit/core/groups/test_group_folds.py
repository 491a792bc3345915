"""What folding an operation of consumer groups refuses: an entry that breaks a rule is corrupt."""

from __future__ import annotations

import pytest

from tests.unit.core.groups.positions import GROUP, JOIN, at, with_records, within
from tests.unit.core.memory_log import COMMIT, ORDERS, opened
from txnformat.core.fold import apply_operation
from txnformat.core.folding import At
from txnformat.core.groups.operations import CommitOffsets, DeleteGroup, JoinGroup, OffsetCommit
from txnformat.core.intents import (
    Write,
)
from txnformat.core.operations import Cause, EndTxn, Expire, Operation, PrepareTxn
from txnformat.errors import (
    CorruptDataError,
)
from txnformat.persistent import replace


def _offset(offset: int = 1, partition: int = 0, expected: int | None = None) -> OffsetCommit:
    return OffsetCommit(ORDERS.topic_id, partition, offset, "", expected)


INVALID: list[Operation] = [
    JoinGroup(group=GROUP, generation=1, member="again", session_timeout_ms=1_000),
    JoinGroup(group=GROUP, generation=3, member="too far", session_timeout_ms=1_000),
    CommitOffsets(GROUP, ()),
    CommitOffsets(GROUP, (_offset(), _offset(2))),
    CommitOffsets(GROUP, (_offset(11),)),
    CommitOffsets(GROUP, (_offset(partition=99),)),
    CommitOffsets(GROUP, (OffsetCommit("00000000-0000-4000-8000-000000000000", 0, 0),)),
    CommitOffsets(GROUP, (_offset(),), generation=2),
    CommitOffsets(GROUP, (_offset(expected=3),)),
    CommitOffsets(GROUP, (_offset(expected=-1),)),
    CommitOffsets(GROUP, (_offset(),), transactional_id="etl", producer_id=0, epoch=7),
    CommitOffsets(GROUP, (_offset(),), transactional_id="prepared", producer_id=2, epoch=0),
    CommitOffsets(GROUP, (_offset(partition=1),)),
    DeleteGroup(GROUP),
    DeleteGroup("nobody"),
    EndTxn("doomed", 1, 0, COMMIT, Cause.PRODUCER, ()),
    PrepareTxn("doomed", 1, 0),
    Expire((), (), (), (GROUP,)),
    Expire((), (), (), ("nobody",)),
]


@pytest.mark.parametrize(
    "operation", INVALID, ids=[f"{type(op).__name__}-{i}" for i, op in enumerate(INVALID)]
)
def test_an_operation_that_breaks_a_rule_is_corrupt(operation: Operation) -> None:
    log, (producer, doomed, prepared) = with_records("etl", "doomed", "prepared")
    log.commit(JOIN)
    log.commit(within(producer, 3))
    log.commit(Write(prepared, offsets=(at(3, -1, partition=1),), prepare=True))
    other = "another-group"
    log.commit(Write(doomed, offsets=(replace(at(3, -1), group=other),)))
    log.commit(Write(offsets=(replace(at(4), group=other),)))
    assert log.state.transactional_ids["doomed"].abort_only
    with pytest.raises(CorruptDataError):
        apply_operation(log.state, operation, At(99, 99))


def test_the_same_operations_are_sound_where_they_keep_the_rules() -> None:
    log, _ = opened()
    state = log.state
    for operation in (
        JoinGroup(group=GROUP, generation=1, member="first", session_timeout_ms=1_000),
        CommitOffsets(GROUP, (_offset(0, expected=-1),), generation=1),
        DeleteGroup(GROUP),
    ):
        state = apply_operation(state, operation, At(99, 99))
    assert state.groups == {}
