"""Checks on what was sent: its order, and by whom: zombies, and numbers that were taken already."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise

from txnlog_testing.checker.anomalies import Anomaly, AnomalyClass
from txnlog_testing.checker.evidence import Evidence, Operation, Written
from txnlog_testing.checker.vocabulary import EventType, Function, Key, Value

__all__ = ["check_identities", "check_sends"]


def check_sends(evidence: Evidence) -> Iterator[Anomaly]:
    """Yield nonmonotonic-send, int-nonmonotonic-send and int-send-skip."""
    last: dict[tuple[str, Key], tuple[int, Operation]] = {}
    """The largest offset that it was told to be there, by process and key."""
    for one in evidence.operations:
        places: dict[Key, list[tuple[int, Value]]] = {}
        for send, found in evidence.values_of(one):
            if found.writer is one and found.place is not None:
                key, offset = found.place
                places.setdefault(key, []).append((offset, send.value))
        for key, records in places.items():
            if not one.unordered:
                yield from _inside(one, key, records)
            yield from _skips(evidence, one, key, [offset for offset, _ in records])
            before = last.get((one.process, key))
            first_offset, value = min(records)
            # This operation did not send the records of an earlier attempt.
            if before is not None and first_offset <= before[0] and one.began == one.invoked:
                what = (
                    f"{value!r} of {key} at {first_offset}, sent by {one}, is not behind what "
                    f"{before[1]} had sent: {before[0]}"
                )
                yield Anomaly(
                    AnomalyClass.NONMONOTONIC_SEND, what, (key,), (value,), (before[1].invoked, one.invoked)
                )
            if one.outcome is EventType.OK:
                highest = max(records)[0]
                last[one.process, key] = max((highest, one), before or (-1, one), key=lambda pair: pair[0])


def _inside(one: Operation, key: Key, records: list[tuple[int, Value]]) -> Iterator[Anomaly]:
    for (left, first), (right, second) in pairwise(records):
        if right <= left:
            what = f"{one} sent {first!r} before {second!r} to {key}, where they are at {left} and {right}"
            yield Anomaly(AnomalyClass.INT_NONMONOTONIC_SEND, what, (key,), (first, second), (one.invoked,))


def _skips(evidence: Evidence, one: Operation, key: Key, offsets: list[int]) -> Iterator[Anomaly]:
    if not one.is_isolated:
        return
    for offset in evidence.committed_line[key].between(min(offsets), max(offsets)):
        others = [found for found in evidence.values_at(key, offset) if _is_anothers(one, found)]
        if others:
            other = others[0].writer
            what = f"{others[0].value!r} of {other} is at {offset} of {key}, among the records of {one}"
            places = (one.invoked,) if other is None else (one.invoked, other.invoked)
            yield Anomaly(AnomalyClass.INT_SEND_SKIP, what, (key,), (others[0].value,), places)
            return


def _is_anothers(one: Operation, found: Written) -> bool:
    return found.writer is not one and all(writer is not one for writer, _ in found.writers)


# --- by whom ------------------------------------------------------------------------------------------------


def check_identities(evidence: Evidence) -> Iterator[Anomaly]:
    """Yield zombie-visible and stale-seq."""
    yield from _zombies_by_time(evidence)
    for key, line in evidence.committed_line.items():
        records = [
            (offset, found)
            for offset in line.offsets
            for found in evidence.values_at(key, offset)
            if found.writer is not None and found.writer.transaction is not None
        ]
        yield from _zombies_by_place(key, records)
        yield from _sequences(key, records)
    yield from _versions(evidence)


def _generations(one: Operation) -> Iterator[tuple[str, int]]:
    """Yield what of an operation's tag only grows."""
    if one.transaction is not None:
        if one.transaction.epoch is not None:
            yield "epoch", one.transaction.epoch
        if one.transaction.version is not None:
            yield "version", one.transaction.version


def _zombies_by_time(evidence: Evidence) -> Iterator[Anomaly]:
    """Judge who began when a newer generation had been acknowledged."""
    known: dict[tuple[str, str], tuple[list[int], list[tuple[int, Operation]]]] = {}
    for one in sorted(evidence.operations, key=lambda one: one.completed):
        if one.outcome is not EventType.OK or one.transaction is None:
            continue
        for what, generation in _generations(one):
            times, newest = known.setdefault((one.transaction.id, what), ([], []))
            if not newest or generation > newest[-1][0]:
                times.append(one.completed)
                newest.append((generation, one))
    for one in evidence.operations:
        if one.transaction is None:
            continue
        visible = [
            found for _, found in evidence.values_of(one) if found.writer is one and found.is_committed
        ]
        for what, generation in _generations(one) if visible else ():
            times, newest = known.get((one.transaction.id, what), ([], []))
            place = bisect_left(times, one.began) - 1
            if place >= 0 and newest[place][0] > generation:
                newer = newest[place][1]
                text = f"{one} began when {newer} had been acknowledged, and {visible[0].value!r} is there"
                keys = (visible[0].key or visible[0].scope,)
                yield Anomaly(
                    AnomalyClass.ZOMBIE_VISIBLE, text, keys, (visible[0].value,), (newer.invoked, one.invoked)
                )
                break


def _zombies_by_place(key: Key, records: list[tuple[int, Written]]) -> Iterator[Anomaly]:
    newest: dict[tuple[str, str], tuple[int, Operation]] = {}
    told: set[Operation] = set()
    for offset, found in records:
        one = found.writer
        assert one is not None
        assert one.transaction is not None
        for what, generation in _generations(one):
            which = (one.transaction.id, what)
            if which not in newest or generation > newest[which][0]:
                newest[which] = (generation, one)
            elif generation < newest[which][0] and one not in told:
                told.add(one)
                other = newest[which][1]
                text = f"{found.value!r} of {one} is at {offset} of {key}, behind a record of {other}"
                places = (other.invoked, one.invoked)
                yield Anomaly(AnomalyClass.ZOMBIE_VISIBLE, text, (key,), (found.value,), places)


def _sequences(key: Key, records: list[tuple[int, Written]]) -> Iterator[Anomaly]:
    largest: dict[tuple[str, int | None], tuple[int, Written]] = {}
    for offset, found in records:
        one = found.writer
        assert one is not None
        assert one.transaction is not None
        for writer, send in found.writers:
            if writer is not one or send.sequence is None:
                continue
            which = (one.transaction.id, one.transaction.epoch)
            before = largest.get(which)
            if before is not None and send.sequence <= before[0]:
                text = (
                    f"{found.value!r} at {offset} of {key} has sequence {send.sequence} of {one}, "
                    f"behind {before[0]}"
                )
                places = (
                    (one.invoked,) if before[1].writer is None else (before[1].writer.invoked, one.invoked)
                )
                values = tuple(dict.fromkeys((before[1].value, found.value)))
                yield Anomaly(AnomalyClass.STALE_SEQ, text, (key,), values, places)
            else:
                largest[which] = (send.sequence, found)


def _versions(evidence: Evidence) -> Iterator[Anomaly]:
    """Judge attempts of one version: there is one that sent all that is there."""
    attempts: dict[tuple[str, int], set[Operation]] = {}
    told: set[tuple[str, int]] = set()
    for found in evidence.values.values():
        tag = found.writers[0][0].transaction if found.writers else None
        if tag is None or tag.version is None or found.first_read is None:
            continue
        which = (tag.id, tag.version)
        writers = {one for one, _ in found.writers if one.f is Function.TXN}
        if not writers or which in told:
            continue
        before = attempts.setdefault(which, writers)
        if before & writers:
            attempts[which] = before & writers
            continue
        told.add(which)
        first, second = (min(some, key=lambda one: one.number) for some in (before, writers))
        text = f"{first} and {second} are both there, {found.value!r} of the second"
        keys = (found.key or found.scope,)
        yield Anomaly(AnomalyClass.STALE_SEQ, text, keys, (found.value,), (first.invoked, second.invoked))
