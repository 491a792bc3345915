"""What a fold and a decoder refuse of subscriptions: nobody who keeps the rules has written it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.core.memory_log import ORDERS, Log, rows
from tests.unit.core.subscriptions.acknowledging import (
    CREATE,
    NAME,
    RECORDS,
    TOPIC,
    below,
    each,
    now,
    some,
    subscribed,
    within,
)
from txnformat.core.entry import CommitEntry
from txnformat.core.fold import apply, apply_operation
from txnformat.core.folding import At
from txnformat.core.intents import Write
from txnformat.core.invariants import check_whole
from txnformat.core.operation_codec import decode_operation, encode_operation
from txnformat.core.operations import InitProducer, Operation
from txnformat.core.subscriptions.operations import (
    Ack,
    AckedPartition,
    AckMode,
    CreateSubscription,
    DeleteSubscription,
    SubscriptionStart,
)
from txnformat.core.subscriptions.state import ACK_RANGES_MAX
from txnformat.errors import (
    CorruptDataError,
    UnsupportedFeatureError,
)
from txnformat.persistent import replace

# --- what a fold refuses ------------------------------------------------------------------------------------


def _ack(*pairs: tuple[int, int], partition: int = 0, **more: Any) -> Ack:
    part = AckedPartition(partition, pairs)
    return Ack(TOPIC, NAME, AckMode.INDIVIDUAL, (part,), **more)


def _below(position: int, mode: AckMode = AckMode.CUMULATIVE, **more: Any) -> Ack:
    return Ack(TOPIC, NAME, mode, (AckedPartition(0, position=position),), **more)


ETL: dict[str, Any] = {"transactional_id": "etl", "producer_id": 0, "epoch": 0}
CUMULATIVE: dict[str, Any] = {"transactional_id": "cumulative", "producer_id": 1, "epoch": 0}
PREPARED: dict[str, Any] = {"transactional_id": "prepared", "producer_id": 2, "epoch": 0}

INVALID: list[Operation] = [
    CREATE,
    CreateSubscription("00000000-0000-4000-8000-000000000000", "new"),
    CreateSubscription(TOPIC, "new", (SubscriptionStart(99, 0),)),
    CreateSubscription(TOPIC, "new", (SubscriptionStart(0, RECORDS + 1),)),
    CreateSubscription(TOPIC, "new", (SubscriptionStart(0, 1), SubscriptionStart(0, 1))),
    DeleteSubscription(TOPIC, NAME),
    DeleteSubscription(TOPIC, "nobody"),
    replace(_ack((0, 1)), subscription="nobody"),
    replace(_ack((0, 1)), partitions=()),
    replace(_ack((0, 1)), partitions=(AckedPartition(0),)),
    replace(_ack((0, 1)), partitions=(AckedPartition(0, ((8, 9),)), AckedPartition(0, ((9, 10),)))),
    _ack((1, 2)),
    _ack((5, 6)),
    _ack((6, 7)),
    _ack((6, 7), **ETL),
    _ack((RECORDS, RECORDS + 1)),
    _ack((8, 9), partition=99),
    _ack((8, 9), transactional_id="etl", producer_id=0, epoch=7),
    _ack((8, 9), **PREPARED),
    _below(2),
    _below(7),
    _below(7, **CUMULATIVE),
    _below(4, **ETL),
    _below(3, **CUMULATIVE),
    _below(RECORDS + 1, **CUMULATIVE),
    _below(3, AckMode.SEEK),
    replace(_below(3, AckMode.SEEK, **ETL), partitions=(AckedPartition(1, position=3),)),
]


@pytest.mark.parametrize(
    "operation", INVALID, ids=[f"{type(op).__name__}-{i}" for i, op in enumerate(INVALID)]
)
def test_an_operation_that_breaks_a_rule_is_corrupt(operation: Operation) -> None:
    """[0, 2) and 5 are acknowledged, 6 is pending in ``etl``, everything below 4 in ``cumulative``, 10 in
    ``prepared``."""
    log, (etl, cumulative, prepared) = subscribed("etl", "cumulative", "prepared")
    log.commit(now(below(2), some(*each(5))))
    log.commit(within(etl, some(*each(6))))
    log.commit(within(cumulative, below(4)))
    log.commit(Write(prepared, acks=(some(*each(10)),), prepare=True))
    assert check_whole(log.state) == []
    assert isinstance(apply_operation(log.state, _ack((8, 9)), At(99, 99)), type(log.state))
    with pytest.raises(CorruptDataError):
        apply_operation(log.state, operation, At(99, 99))


def test_more_separate_ranges_than_the_cap_are_corrupt() -> None:
    log = Log(ORDERS, CREATE, Write(appends=rows(-1, 4 * ACK_RANGES_MAX)))
    odd = tuple((offset, offset + 1) for offset in range(1, 2 * ACK_RANGES_MAX + 2, 2))
    apply_operation(log.state, _ack(*odd[1:]), At(99, 99))
    with pytest.raises(CorruptDataError):
        apply_operation(log.state, _ack(*odd), At(99, 99))


def test_nothing_is_acknowledged_in_the_entry_that_opens_its_id() -> None:
    log, _ = subscribed()
    opening = InitProducer("new", log.state.next_producer_id, 0, ())
    ack = _below(1, transactional_id="new", producer_id=log.state.next_producer_id, epoch=0)
    entry = CommitEntry(
        entry=log.state.entry + 1,
        log_id=log.state.log_id,
        write_id="write",
        previous=log.state.entry_sha256,
        timestamp_ms=log.state.timestamp_ms + 1,
        engine="another",
        intents=("intent",),
        operations=(opening, ack),
    )
    with pytest.raises(CorruptDataError) as raised:
        apply(log.state, entry, "0" * 64)
    assert "opens a producer" in str(raised.value)


@pytest.mark.parametrize(
    "ranges",
    [[[3, 3]], [[4, 3]], [[1, 2], [2, 3]], [[5, 6], [1, 2]], [[-1, 2]], [[1]], [1, 2], [[1, 2**64]], "x"],
)
def test_ranges_that_are_none_do_not_decode(ranges: object) -> None:
    fields = encode_operation(_ack((1, 2)))
    assert decode_operation(fields, 1, path="an ack") == _ack((1, 2))
    fields["partitions"] = [{"partition": 0, "ranges": ranges}]
    with pytest.raises(CorruptDataError):
        decode_operation(fields, 1, path="an ack")


def test_a_mode_that_is_not_known_is_a_feature() -> None:
    with pytest.raises(UnsupportedFeatureError):
        decode_operation({**encode_operation(_below(1)), "mode": "batch"}, 1, path="an ack")
    with pytest.raises(CorruptDataError):
        decode_operation(encode_operation(_below(1, AckMode.SEEK, **ETL)), 1, path="an ack")
