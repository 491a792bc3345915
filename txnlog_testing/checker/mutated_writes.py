"""Mutations of what was written, by whom, and of what became of it."""

from __future__ import annotations

from dataclasses import replace

from txnlog_testing.checker.anomalies import AnomalyClass
from txnlog_testing.checker.history_view import (
    HistoryView,
    changed_at,
    in_polls,
    in_sends,
    inserted,
    pairs_of,
    said,
    swapped,
)
from txnlog_testing.checker.mutation_list import finds
from txnlog_testing.checker.vocabulary import (
    Event,
    EventType,
    Function,
    Key,
    Poll,
    TransactionTag,
    Value,
)

__all__ = ()

_A = AnomalyClass


@finds(_A.LOST_WRITE, _A.UNSEEN)
def _delete_an_acknowledged_record(view: HistoryView) -> list[Event] | None:
    acknowledged = [op for op in view.single if op.outcome is EventType.OK]
    op = view.choose(acknowledged)
    if op is None:
        return None
    gone = view.rng.choice(op.sends).value
    return in_polls(view.events, lambda record: None if record[1] == gone else record)


@finds(_A.TORN)
def _tear_a_transaction(view: HistoryView) -> list[Event] | None:
    op = view.choose([op for op in view.single if op.f is Function.TXN and len(op.sends) > 1])
    if op is None:
        return None
    events = view.events
    if op.end is not None and op.outcome is EventType.OK:
        events = changed_at(events, op.end, type=EventType.INFO, value=None)
    gone = view.rng.choice(op.sends).value
    return in_polls(events, lambda record: None if record[1] == gone else record)


@finds(_A.G1A)
def _fail_what_was_read(view: HistoryView) -> list[Event] | None:
    op = view.choose([op for op in view.single if op.outcome is EventType.OK])
    if op is None or op.end is None:
        return None
    polls = tuple(micro for micro in view.events[op.end].value or () if isinstance(micro, Poll))
    return changed_at(view.events, op.end, type=EventType.FAIL, value=polls or None)


@finds(_A.ZOMBIE_VISIBLE)
def _fence_who_is_read(view: HistoryView) -> list[Event] | None:
    tagged = [op for op in view.single if op.transaction is not None and op.transaction.epoch is not None]
    op = view.choose(tagged)
    if op is None or op.transaction is None or op.transaction.epoch is None:
        return None
    newer = TransactionTag(op.transaction.id, epoch=op.transaction.epoch + 100)
    return inserted(
        view.events,
        op.invoke,
        said(Function.INIT, EventType.INVOKE, transaction=newer),
        said(Function.INIT, EventType.OK, transaction=newer),
    )


@finds(_A.STALE_SEQ)
def _repeat_a_sequence(view: HistoryView) -> list[Event] | None:
    pairs = [pair for op in view.single for pair in pairs_of(op) if pair[0].sequence is not None]
    pair = view.choose(pairs)
    if pair is None:
        return None
    first, second = pair
    return in_sends(
        view.events,
        lambda send: replace(send, sequence=first.sequence) if send.value == second.value else send,
    )


@finds(_A.INT_NONMONOTONIC_SEND)
def _reorder_a_transaction(view: HistoryView) -> list[Event] | None:
    pair = view.choose([pair for op in view.single for pair in pairs_of(op)])
    return None if pair is None else swapped(view, pair[0].value, pair[1].value)


@finds(_A.INT_SEND_SKIP)
def _interleave_a_transaction(view: HistoryView) -> list[Event] | None:
    of = {send.value: op for op in view.single for send in op.sends}
    options = []
    for records in view.final.values():
        for (_, before), (_, one), (_, after) in zip(records, records[1:], records[2:], strict=False):
            op = of.get(one)
            if op is None or op.f is not Function.TXN or op.interleaved or after not in of:
                continue
            if of.get(before) is op and of[after] is not op:
                options.append((one, after))
    pair = view.choose(options)
    return None if pair is None else swapped(view, *pair)


@finds(_A.G0)
def _cross_two_transactions(view: HistoryView) -> list[Event] | None:
    """Swap the records of two in one partition, where each has one, and leave them in another."""
    isolated = [op for op in view.single if op.f is Function.TXN and not op.interleaved]
    options = []
    for number, one in enumerate(isolated):
        for other in isolated[number + 1 :]:
            both = {send.key for send in one.sends} & {send.key for send in other.sends}
            for key in sorted(both) if len(both) > 1 else ():
                mine = [send.value for send in one.sends if send.key == key]
                theirs = [send.value for send in other.sends if send.key == key]
                if len(mine) == len(theirs) == 1:
                    options.append((mine[0], theirs[0]))
    pair = view.choose(options)
    return None if pair is None else swapped(view, *pair)


@finds(_A.NONMONOTONIC_SEND)
def _send_behind_the_next(view: HistoryView) -> list[Event] | None:
    last: dict[tuple[str, Key], Value] = {}
    options = []
    for op in view.single:
        if op.f is not Function.SEND or op.outcome is not EventType.OK:
            continue
        process = view.events[op.invoke].process
        mine = {send.key: send.value for send in reversed(op.sends)}
        options += [(last[process, key], value) for key, value in mine.items() if (process, key) in last]
        last |= {(process, send.key): send.value for send in op.sends}
    pair = view.choose(options)
    return None if pair is None else swapped(view, *pair)


@finds(_A.INCONSISTENT_OFFSETS)
def _tell_a_wrong_offset(view: HistoryView) -> list[Event] | None:
    options = []
    for op in view.single:
        for send in op.sends if op.outcome is EventType.OK else ():
            others = [offset for offset, value in view.final[send.key] if value != send.value]
            if send.offset is not None and others:
                options.append((send, view.rng.choice(others)))
    chosen = view.choose(options)
    if chosen is None:
        return None
    wrong, offset = chosen
    return in_sends(
        view.events,
        lambda send: (
            replace(send, offset=offset) if send.value == wrong.value and send.offset is not None else send
        ),
    )


@finds(_A.STALE_SEQ)
def _take_a_version_twice(view: HistoryView) -> list[Event] | None:
    tags = sorted(
        {
            op.transaction.version
            for op in view.ops
            if op.transaction is not None and op.transaction.version is not None
            if all(send.value in view.in_final for send in op.sends)
        }
    )
    chosen = view.choose([tag for tag in tags if tag - 1 in tags])
    if chosen is None:
        return None
    return [
        replace(event, transaction=replace(event.transaction, version=chosen - 1))
        if event.transaction is not None and event.transaction.version == chosen
        else event
        for event in view.events
    ]
