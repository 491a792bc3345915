"""Checks on values: what was lost, doubled, read though it failed, seen in part, seen and then gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from txnlog_testing.checker.anomalies import Anomaly, AnomalyClass
from txnlog_testing.checker.evidence import NEVER, Evidence, Operation, Polled, Written
from txnlog_testing.checker.holding import WholeReads
from txnlog_testing.checker.readers import Coverage, Run
from txnlog_testing.checker.vocabulary import EventType, Function, Key, Value, topic_of

__all__ = ["check_reads", "check_whole_reads", "check_writes"]


def _anomaly(
    cls: AnomalyClass,
    what: str,
    found: Written,
    operations: Iterable[Operation | None] = (),
    keys: Iterable[Key] | None = None,
) -> Anomaly:
    named = found.key or found.scope
    places = tuple(dict.fromkeys(one.invoked for one in operations if one is not None))
    return Anomaly(cls, what, tuple(keys) if keys is not None else (named,), (found.value,), places)


def check_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """Yield what is wrong with what was read: G1a, precommitted-read, unwritten, and with where it was:
    duplicate, inconsistent-offsets, time-travel."""  # noqa: D209  # one list
    for polled in evidence.polls:
        for key, records in polled.poll.records.items():
            for offset, value in records:
                yield from _check_record(evidence, polled, key, offset, value)
    for found in evidence.values.values():
        places = dict(found.places)
        if len(found.writers) == 1 and found.writers[0][0].outcome is not EventType.FAIL:
            places |= found.loose_places  # else an attempt that was given up may be there as well
        if len(places) > 1:
            where = ", ".join(f"{key} at {offset}" for key, offset in places)
            yield _anomaly(
                AnomalyClass.DUPLICATE,
                f"value {found.value!r} is there {len(places)} times: {where}",
                found,
                [found.writer],
                dict.fromkeys(key for key, _ in places),
            )
    for (key, offset), values in evidence.at.items():
        if len(values) > 1:
            named = tuple(values)
            text = " and ".join(repr(value) for value in named)
            yield Anomaly(AnomalyClass.INCONSISTENT_OFFSETS, f"{key} at {offset} has {text}", (key,), named)
            polled_values = tuple(value for value, was_read in values.items() if was_read)
            if len(polled_values) > 1:
                text = " and ".join(repr(value) for value in polled_values)
                yield Anomaly(
                    AnomalyClass.TIME_TRAVEL, f"reads of {key} at {offset} gave {text}", (key,), polled_values
                )


def _check_record(
    evidence: Evidence, polled: Polled, key: Key, offset: int, value: Value
) -> Iterator[Anomaly]:
    found = evidence.written(key, value)
    if not found.writers:
        if topic_of(key) in evidence.sent_topics:
            what = f"{key} at {offset} has {value!r}, which no client sent"
            yield _anomaly(AnomalyClass.UNWRITTEN, what, found, [polled.operation])
        return
    if not polled.is_committed_only:
        return
    if all(one.outcome is EventType.FAIL for one, _ in found.writers):
        writer = found.writers[0][0]
        what = f"{polled.operation} read {value!r} of {key} as committed, but {writer} failed"
        yield _anomaly(AnomalyClass.G1A, what, found, [writer, polled.operation])
    if any(one is polled.operation for one, _ in found.writers):
        what = f"{polled.operation} read its own {value!r} of {key} as committed before it ended"
        yield _anomaly(AnomalyClass.PRECOMMITTED_READ, what, found, [polled.operation])


# --- what was written, and is not there ---------------------------------------------------------------------


def check_writes(evidence: Evidence, runs: list[Run], wholes: WholeReads) -> Iterator[Anomaly]:
    """Yield lost-write, and unseen: acknowledged values that no reader read."""
    committed_only = {
        key for polled in evidence.polls if polled.is_committed_only for key in polled.poll.records
    }
    by_key: dict[Key, list[Run]] = {}
    for run in runs:
        if run.is_committed_only or run.key not in committed_only:
            by_key.setdefault(run.key, []).append(run)
    coverage = {key: Coverage(evidence, found) for key, found in by_key.items()}
    last_whole: dict[Key, Polled] = {}
    for polled in wholes.polls:
        last_whole |= dict.fromkeys(evidence.covered(polled.poll.records), polled)
    lost: set[int] = set()
    for one in evidence.operations:
        behind: set[Key] = set()
        for send, found in reversed(list(evidence.values_of(one))):
            is_read = found.first_read is not None if send.key in committed_only else found.is_read
            if is_read:
                behind.add(send.key)
                continue
            if found.writer is not one or not found.is_committed or id(found) in lost:
                continue
            in_order = send.key in behind and not one.unordered and one.f is Function.TXN
            if in_order or _is_owed(one, found, coverage.get(send.key)):
                lost.add(id(found))
                what = (
                    f"{send.value!r} of {send.key} was committed by {one}, and no reader read it, "
                    "though the records behind it were read"
                )
                yield _anomaly(AnomalyClass.LOST_WRITE, what, found, [one])
                continue
            whole = last_whole.get(send.key)
            if whole is None or found.is_read or one.completed > whole.operation.invoked:
                continue
            if wholes.must_show(whole, send.key, found):
                what = (
                    f"{send.value!r} of {send.key} was committed by {one}; a whole read that began "
                    "later lacks it"
                )
                yield _anomaly(AnomalyClass.UNSEEN, what, found, [one, whole.operation])


def _is_owed(one: Operation, found: Written, coverage: Coverage | None) -> bool:
    """Return whether readers have passed where it must be."""
    if coverage is None:
        return False
    if any(coverage.has_offset(offset) for _, offset in found.places):
        return True
    return one.outcome is EventType.OK and coverage.has_time(one.began, one.completed)


# --- whole reads --------------------------------------------------------------------------------------------


def check_whole_reads(evidence: Evidence, wholes: WholeReads) -> Iterator[Anomaly]:
    """Yield torn, and resurrected: judged on reads of all that there is."""
    torn: set[Operation] = set()
    for polled in wholes.polls:
        yield from _torn(evidence, wholes, [polled], torn)
    final = [polled for polled in wholes.polls if polled.operation.invoked > evidence.quiesced_at]
    if len(final) > 1:
        began = min(polled.operation.invoked for polled in final)
        yield from _torn(evidence, wholes, final, torn, began)
    yield from _resurrected(evidence, wholes)


def _seen(evidence: Evidence, polls: Iterable[Polled]) -> dict[Operation, set[tuple[str, Value]]]:
    """Return by transaction what the polls show of it."""
    seen: dict[Operation, set[tuple[str, Value]]] = {}
    for polled in polls:
        for key, records in polled.poll.records.items():
            for _, value in records:
                found = evidence.written(key, value)
                if found.writer is not None and found.writer.f is Function.TXN:
                    seen.setdefault(found.writer, set()).add((found.scope, value))
    return seen


def _torn(
    evidence: Evidence,
    wholes: WholeReads,
    polls: list[Polled],
    torn: set[Operation],
    settled_before: int = NEVER + 1,
) -> Iterator[Anomaly]:
    for one, values in _seen(evidence, polls).items():
        if one in torn or one.settled >= settled_before:
            continue
        missing = [
            found
            for send, found in evidence.values_of(one)
            if (found.scope, found.value) not in values
            and any(wholes.must_show(polled, send.key, found) for polled in polls)
        ]
        if missing:
            torn.add(one)
            shown = ", ".join(f"{found.value!r} of {found.key or found.scope}" for found in missing[:3])
            what = (
                f"{one} is seen in part: {len(values)} of its records are there, {len(missing)} are "
                f"not, such as {shown}"
            )
            yield Anomaly(
                AnomalyClass.TORN,
                what,
                tuple(dict.fromkeys(send.key for send in one.sends)),
                tuple(found.value for found in missing),
                (one.invoked, *(polled.operation.invoked for polled in polls)),
            )


def _resurrected(evidence: Evidence, wholes: WholeReads) -> Iterator[Anomaly]:
    by_key: dict[Key, list[Polled]] = {}
    for polled in wholes.polls:
        for key in polled.poll.records:
            by_key.setdefault(key, []).append(polled)
    seen_in = {
        (index, key): {offset for offset, _ in polled.poll.records[key]}
        for key, polls in by_key.items()
        for index, polled in enumerate(polls)
    }
    for found in evidence.values.values():
        for key, offset in found.places:
            if found.first_read is None or key not in by_key:
                continue
            for index, polled in enumerate(by_key[key]):
                if polled.operation.invoked < found.first_read.told or offset in seen_in[index, key]:
                    continue
                if wholes.must_show(polled, key, found):
                    what = (
                        f"{found.value!r} of {key} at {offset} was read, and is missing from a whole "
                        "read that began later"
                    )
                    yield _anomaly(
                        AnomalyClass.RESURRECTED, what, found, [found.first_read, polled.operation]
                    )
                    break
