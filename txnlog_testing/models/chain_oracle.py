"""Holds what writers were told against the chain itself, read entry by entry from the store.

Each piece of work has a mark of its own: the ``digest`` of what it appends. So what is in the log is known
without trusting intents, windows or any client's answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from txnformat import keys
from txnformat.core.entry import decode_entry
from txnformat.core.invariants import check_whole
from txnformat.core.operations import Append
from txnformat.core.state import LogState
from txnformat.errors import NotFoundError, TxnLogError
from txnformat.protocol.follow import empty_state, fold_bytes
from txnformat.store.base import ObjectStore

__all__ = ["Chain", "Report", "check_reports", "read_chain"]


class Report(NamedTuple):
    """One answer that a writer got."""

    mark: str
    """The digest of what it appends."""
    answer: str
    """``done``, ``unknown``, or ``failed``."""
    entry: int = -1
    """Entry of a done one."""
    offsets: tuple[tuple[int, int], ...] = ()
    """Pairs (partition, first offset) of a done one, sorted."""
    detail: str = ""
    """The error of any other one."""


class Landed(NamedTuple):
    """Where a piece of work is in the log."""

    entry: int
    offsets: tuple[tuple[int, int], ...]


class Chain(NamedTuple):
    """A log, folded from its first entry."""

    state: LogState
    landed: dict[str, list[Landed]]
    """The landed records, by mark."""
    problems: list[str]


def read_chain(store: ObjectStore) -> Chain:
    """Read every entry and fold it; what is wrong with the chain itself is among the problems."""
    format_data = store.get(keys.FORMAT_KEY)
    if format_data is None:
        raise NotFoundError("there is no log here", kind="no-log")
    state = empty_state(format_data)
    landed: dict[str, list[Landed]] = defaultdict(list)
    problems: list[str] = []
    sequences: dict[tuple[int, int, str, int], int] = {}
    numbers = sorted(
        number
        for number in map(keys.parse_entry_key, (info.key for info in store.list(keys.LOG_PREFIX)))
        if number is not None
    )
    if numbers != list(range(len(numbers))):
        problems.append("the entries are not numbered from 0 without a gap")
    for number in numbers:
        data = store.get(keys.entry_key(number)) or b""
        try:
            state = fold_bytes(state, data)
        except TxnLogError as error:
            problems.append(f"entry {number} cannot follow the one before it: {error}")
            break
        for op in decode_entry(data, number).operations:
            if isinstance(op, Append):
                offsets = tuple(sorted((part.partition, part.base_offset) for part in op.partitions))
                for mark in {part.digest for part in op.partitions}:
                    landed[mark].append(Landed(number, offsets))
                problems += _check_sequences(op, number, sequences)
    return Chain(state, landed, problems + check_whole(state))


def _check_sequences(op: Append, entry: int, expected: dict[tuple[int, int, str, int], int]) -> Iterable[str]:
    """Yield where the sequences of a producer are not contiguous from 0, and note how far they got."""
    if op.producer_id < 0:
        return
    for part in op.partitions:
        key = (op.producer_id, op.epoch, op.topic_id, part.partition)
        if part.base_sequence != expected.get(key, 0):
            yield (
                f"entry {entry}: producer {op.producer_id} epoch {op.epoch} partition {part.partition} "
                "goes on with "
                f"sequence {part.base_sequence}, expected {expected.get(key, 0)}"
            )
        expected[key] = part.base_sequence + part.records


def check_reports(chain: Chain, reports: Iterable[Report]) -> list[str]:
    """Return what is wrong with the chain, and every report that it does not bear out.

    Parameters
    ----------
    reports : iterable of Report
        Every answer; the last one of a mark is what its writer believes.
    """
    last: dict[str, Report] = {}
    problems = list(chain.problems)
    for report in reports:
        before = last.get(report.mark)
        if before is not None and before.answer != "unknown":
            problems.append(f"{report.mark} was answered twice: {before}, {report}")
        last[report.mark] = report
    problems += [f"{mark} is in the log and no client sent it" for mark in chain.landed if mark not in last]
    for mark, report in last.items():
        found = chain.landed.get(mark, [])
        if len(found) > 1:
            problems.append(f"{mark} is in the log twice, in the entries {[each.entry for each in found]}")
        elif report.answer == "done" and not found:
            problems.append(f"{mark} was reported as done in entry {report.entry} and is not in the log")
        elif report.answer == "done" and found[0] != (report.entry, report.offsets):
            problems.append(f"{mark} is at {found[0]} and was reported at {report.entry}, {report.offsets}")
        elif report.answer == "failed" and found:
            problems.append(
                f"{mark} was reported as failed ({report.detail}) and is in entry {found[0].entry}"
            )
    return problems
