"""Mutations of what was read and observed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from txnlog_testing.checker.anomalies import AnomalyClass
from txnlog_testing.checker.history_view import (
    HistoryView,
    PolledAt,
    Record,
    changed_at,
    in_polls,
    inserted,
    said,
    with_poll,
)
from txnlog_testing.checker.mutation_list import finds
from txnlog_testing.checker.vocabulary import (
    Event,
    EventType,
    Function,
    Key,
    Order,
    Poll,
    ReadOffsets,
    StableOffset,
)

__all__ = ()

_A = AnomalyClass


@finds(_A.DUPLICATE)
def _read_a_record_twice(view: HistoryView) -> list[Event] | None:
    polled = view.choose([one for one in view.polls if one.poll.whole and any(one.poll.records.values())])
    if polled is None:
        return None
    key = view.rng.choice([key for key, records in polled.poll.records.items() if records])
    records = polled.poll.records[key]
    again = (records[-1][0] + 50, view.rng.choice(records)[1])
    return with_poll(view.events, polled, {**polled.poll.records, key: (*records, again)})


def _of_two(view: HistoryView, least: int, *, committed: bool = False) -> Iterator[tuple[PolledAt, Key]]:
    """Yield polls by offset with so many records of a partition, all of which are there at the end."""
    for polled in view.polls:
        if (
            polled.poll.whole
            or polled.poll.order is not Order.OFFSET
            or (committed and not polled.reads_committed)
        ):
            continue
        for key, records in polled.poll.records.items():
            if len(records) >= least and all(value in view.in_final for _, value in records):
                yield polled, key


@finds(_A.INT_NONMONOTONIC_POLL)
def _reorder_a_poll(view: HistoryView) -> list[Event] | None:
    chosen = view.choose(list(_of_two(view, 2)))
    if chosen is None:
        return None
    polled, key = chosen
    records = list(polled.poll.records[key])
    place = view.rng.randrange(len(records) - 1)
    records[place : place + 2] = records[place + 1], records[place]
    return with_poll(view.events, polled, {**polled.poll.records, key: tuple(records)})


@finds(_A.UNWRITTEN)
def _alter_a_value(view: HistoryView) -> list[Event] | None:
    value = view.choose(sorted(view.places, key=str))
    if value is None:
        return None
    return in_polls(view.events, lambda record: (record[0], "altered") if record[1] == value else record)


@finds(_A.TIME_TRAVEL)
def _let_two_readers_differ(view: HistoryView) -> list[Event] | None:
    chosen = view.choose(list(_of_two(view, 2)))
    if chosen is None:
        return None
    polled, key = chosen
    (o1, v1), (o2, v2), *rest = polled.poll.records[key]
    return with_poll(view.events, polled, {**polled.poll.records, key: ((o1, v2), (o2, v1), *rest)})


@finds(_A.NONMONOTONIC_POLL)
def _repeat_a_poll(view: HistoryView) -> list[Event] | None:
    polled = view.choose(
        [
            one
            for one in view.polls
            if not one.poll.whole and any(one.poll.records.values()) and _alone(view, one)
        ]
    )
    if polled is None:
        return None
    again = view.events[polled.place]
    return inserted(view.events, polled.place + 1, replace(again, type=EventType.INVOKE, value=None), again)


def _alone(view: HistoryView, polled: PolledAt) -> bool:
    return view.events[polled.place].f is Function.POLL


@finds(_A.POLL_SKIP)
def _drop_a_poll(view: HistoryView) -> list[Event] | None:
    """Drop one that has others of its run before and behind it, with records of the same partition."""
    options = []
    by_process: dict[str, list[PolledAt | None]] = {}
    at = {
        polled.place: polled
        for polled in view.polls
        if polled.poll.order is Order.OFFSET and not polled.poll.whole
    }
    for place, event in enumerate(view.events):
        if place in at:
            by_process.setdefault(event.process, []).append(at[place])
        elif event.f in (Function.ASSIGN, Function.SUBSCRIBE, Function.SEEK, Function.CRASH):
            by_process.setdefault(event.process, []).append(None)
    for found in by_process.values():
        for before, one, after in zip(found, found[1:], found[2:], strict=False):
            if before is None or one is None or after is None or not _alone(view, one):
                continue
            for key, records in one.poll.records.items():
                others = before.poll.records.get(key) and after.poll.records.get(key)
                if others and any(value in view.in_final for _, value in records):
                    options.append(one)
    chosen = view.choose(options)
    if chosen is None:
        return None
    return changed_at(view.events, chosen.place, value=None)


@finds(_A.INT_POLL_SKIP)
def _cut_out_of_a_poll(view: HistoryView) -> list[Event] | None:
    chosen = view.choose(list(_of_two(view, 3)))
    if chosen is None:
        return None
    polled, key = chosen
    records = polled.poll.records[key]
    place = view.rng.randrange(1, len(records) - 1)
    return with_poll(
        view.events, polled, {**polled.poll.records, key: records[:place] + records[place + 1 :]}
    )


@finds(_A.PARTIAL_POLL)
def _cut_a_transaction_out_of_a_poll(view: HistoryView) -> list[Event] | None:
    of = {send.value: op for op in view.single if op.f is Function.TXN for send in op.sends}
    options = []
    for polled, key in _of_two(view, 3, committed=True):
        records = polled.poll.records[key]
        for place in range(1, len(records) - 1):
            op = of.get(records[place][1])
            if op is not None and any(
                of.get(value) is op for _, value in records[:place] + records[place + 1 :]
            ):
                options.append((polled, key, place))
    chosen = view.choose(options)
    if chosen is None:
        return None
    polled, key, place = chosen
    records = polled.poll.records[key]
    return with_poll(
        view.events, polled, {**polled.poll.records, key: records[:place] + records[place + 1 :]}
    )


@finds(_A.PARTIAL_POLL)
def _split_a_commit(view: HistoryView) -> list[Event] | None:
    of = {send.value: op for op in view.single if op.f is Function.TXN for send in op.sends}
    options = []
    for polled in view.polls:
        if polled.poll.order is not Order.COMMIT:
            continue
        seen = [value for records in polled.poll.records.values() for _, value in records if value in of]
        options += [(polled, value) for value in seen if sum(of[other] is of[value] for other in seen) > 1]
    chosen = view.choose(options)
    if chosen is None:
        return None
    polled, gone = chosen
    records = {
        key: tuple(record for record in old if record[1] != gone) for key, old in polled.poll.records.items()
    }
    return with_poll(view.events, polled, records)


@finds(_A.RESURRECTED)
def _let_a_record_disappear(view: HistoryView) -> list[Event] | None:
    final = [
        polled for polled in view.polls if polled.poll.whole and polled.poll.records == _part(view, polled)
    ]
    earlier = {
        value
        for polled in view.polls
        if polled.reads_committed and not polled.poll.whole
        for records in polled.poll.records.values()
        for _, value in records
    }
    options = [
        (polled, key, record)
        for polled in final[-1:]
        for key, records in polled.poll.records.items()
        for record in records
        if record[1] in earlier
    ]
    chosen = view.choose(options)
    if chosen is None:
        return None
    polled, key, gone = chosen
    left = tuple(record for record in polled.poll.records[key] if record != gone)
    return with_poll(view.events, polled, {**polled.poll.records, key: left})


def _part(view: HistoryView, polled: PolledAt) -> dict[Key, tuple[Record, ...]]:
    return {key: records for key, records in view.final.items() if key in polled.poll.records}


@finds(_A.LSO_STALL)
def _hold_the_stable_offset(view: HistoryView) -> list[Event] | None:
    if not view.final:
        return None
    key = view.rng.choice(sorted(view.final))
    return inserted(
        view.events,
        len(view.events),
        said(Function.OBSERVE, EventType.INVOKE),
        said(Function.OBSERVE, EventType.OK, StableOffset(key, 3, 4)),
    )


@finds(_A.LSO_STALL)
def _let_the_stable_offset_go_back(view: HistoryView) -> list[Event] | None:
    looks = [
        (place, micro)
        for place, event in enumerate(view.events)
        for micro in event.value or ()
        if isinstance(micro, StableOffset) and micro.last_stable_offset > 0
    ]
    chosen = view.choose(looks)
    if chosen is None:
        return None
    place, look = chosen
    less = StableOffset(look.key, look.last_stable_offset - 1, look.last_stable_offset - 1)
    return inserted(
        view.events,
        view.rng.randint(place + 1, len(view.events)),
        said(Function.OBSERVE, EventType.INVOKE),
        said(Function.OBSERVE, EventType.OK, less),
    )


@finds(_A.OFFSET_ATOMICITY)
def _forget_a_position(view: HistoryView) -> list[Event] | None:
    ends = [
        op.end
        for op in view.ops
        if op.end is not None and op.outcome is EventType.OK and view.events[op.end].process == "copier"
    ]
    end = view.choose(ends)
    if end is None:
        return None
    return inserted(
        view.events,
        view.rng.randint(end + 1, len(view.events)),
        said(Function.OBSERVE, EventType.INVOKE),
        said(Function.OBSERVE, EventType.OK, ReadOffsets("group-copier", {"in/0": None})),
    )


@finds(_A.PRECOMMITTED_READ)
def _read_what_is_not_committed(view: HistoryView) -> list[Event] | None:
    op = view.choose([op for op in view.single if op.f is Function.TXN and op.outcome is EventType.OK])
    if op is None or op.end is None:
        return None
    value = view.rng.choice(op.sends).value
    key, offset = view.places[value]
    said = view.events[op.end].value or op.sends
    return changed_at(view.events, op.end, value=(*said, Poll({key: ((offset, value),)})))


@finds(_A.G1C_REALTIME)
def _read_the_future(view: HistoryView) -> list[Event] | None:
    op = view.choose(view.single)
    if op is None:
        return None
    value = view.rng.choice(op.sends).value
    key, offset = view.places[value]
    return inserted(
        view.events,
        0,
        said(Function.POLL, EventType.INVOKE),
        said(Function.POLL, EventType.OK, Poll({key: ((offset, value),)})),
    )


@finds(_A.G1C)
def _let_two_read_each_other(view: HistoryView) -> list[Event] | None:
    ended = [op for op in view.single if op.f is Function.TXN and op.outcome is EventType.OK]
    if len(ended) < 2:
        return None
    events = view.events
    one, other = view.rng.sample(ended, 2)
    for reader, writer in ((one, other), (other, one)):
        value = writer.sends[0].value
        key, offset = view.places[value]
        assert reader.end is not None
        said = events[reader.end].value or reader.sends
        events = changed_at(events, reader.end, value=(*said, Poll({key: ((offset, value),)})))
    return events
