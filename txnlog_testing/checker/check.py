"""The check of a history: all classes, one report."""

from __future__ import annotations

from collections.abc import Sequence

from txnlog_testing.checker.anomalies import TXNLOG, Allowances, AnomalyClass, Report
from txnlog_testing.checker.cycles import check_cycles
from txnlog_testing.checker.evidence import Evidence
from txnlog_testing.checker.holding import WholeReads
from txnlog_testing.checker.position_checks import check_positions, check_stable_offsets
from txnlog_testing.checker.readers import check_polls, runs_of
from txnlog_testing.checker.send_checks import check_identities, check_sends
from txnlog_testing.checker.value_checks import check_reads, check_whole_reads, check_writes
from txnlog_testing.checker.vocabulary import CommitOffsets, Event, ReadOffsets, StableOffset

__all__ = ["check_history"]


def check_history(events: Sequence[Event], allowances: Allowances = TXNLOG) -> Report:
    """Judge a history.

    Parameters
    ----------
    events : sequence of Event
        In order of time, as :func:`read_history` returns them.
    allowances : Allowances
        What the system does not promise: TXNLOG, KAFKA, or others.

    Returns
    -------
    Report
        ``report.ok`` is whether nothing was found but what is allowed.

    Raises
    ------
    InvalidInputError
        A value was sent twice other than by several transactions, or a poll of a snapshot is not whole (kind
        ``invalid-history``).

    Notes
    -----
    Pure. Linear in the events and their records, but for sorting by offset.
    """
    evidence = Evidence(events)
    report = Report(len(events), len(evidence.operations), allowances)
    report.values = len(evidence.values)
    report.records_read = sum(
        len(records) for polled in evidence.polls for records in polled.poll.records.values()
    )
    runs = runs_of(evidence)
    wholes = WholeReads(evidence, writes_isolated=allowances.writes_isolated)
    for anomaly in (
        *check_reads(evidence),
        *check_writes(evidence, runs, wholes),
        *check_whole_reads(evidence, wholes),
        *check_sends(evidence),
        *check_identities(evidence),
        *check_positions(evidence, wholes),
        *check_stable_offsets(evidence, allowances.stall_ms),
        *check_cycles(evidence, writes_isolated=allowances.writes_isolated),
    ):
        report.add(anomaly)
    for anomaly, subscribed in check_polls(evidence, runs):
        report.add(anomaly, subscribed=subscribed)
    report.unjudged = _unjudged(evidence)
    return report


def _unjudged(evidence: Evidence) -> dict[AnomalyClass, str]:
    """Return the classes that a history cannot show, and why."""
    found: dict[AnomalyClass, str] = {}
    if not any(polled.poll.whole and polled.is_committed_only for polled in evidence.polls):
        why = "no read of committed records was a whole one"
        found |= dict.fromkeys((AnomalyClass.UNSEEN, AnomalyClass.TORN, AnomalyClass.RESURRECTED), why)
    kinds = {type(micro) for one in evidence.operations for micro in one.value}
    if not {CommitOffsets, ReadOffsets} <= kinds:
        found[AnomalyClass.OFFSET_ATOMICITY] = "no group's positions were both committed and looked at"
    if StableOffset not in kinds:
        found[AnomalyClass.LSO_STALL] = "no last stable offset was looked at"
    tags = [one.transaction for one in evidence.operations if one.transaction is not None]
    if not tags:
        found[AnomalyClass.ZOMBIE_VISIBLE] = "no operation says which transaction it is"
    sequences = any(send.sequence is not None for one in evidence.operations for send in one.sends)
    if not sequences and all(tag.version is None for tag in tags):
        found[AnomalyClass.STALE_SEQ] = "there are neither sequences nor versions"
    return found
