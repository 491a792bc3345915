"""From folded entries to a document: transactions with their records, samples of the state, totals. Pure.

A collector begins with the state before its window, and is given each entry with the state after it. Bounds
hold everything: of what is left out, a note of the document says how much.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from txnformat.admin.group_metrics import GroupMetrics, measure_groups
from txnformat.core.entry import CommitEntry
from txnformat.core.groups.operations import CommitOffsets
from txnformat.core.operations import Append, EndTxn, GiveUp, InitProducer, PrepareTxn, Stage
from txnformat.core.records.state import Transaction as TransactionKey
from txnformat.core.state import LogState
from txnformat.core.subscriptions.operations import Ack
from txnformat.core.transactions.state import TransactionalIdState, TransactionStatus
from txnformat.looking.costs import ObjectCounts
from txnformat.looking.ending import status_of
from txnformat.looking.model import EntryTotals, GroupAtSample, Partition, Place, Run, Sample, Transaction
from txnformat.types import Outcome, TopicPartition

__all__ = [
    "GROUPS_MAX",
    "PARTITIONS_MAX",
    "RUNS_MAX",
    "TRANSACTIONS_MAX",
    "Collected",
    "Collector",
    "samples_for",
]

PARTITIONS_MAX = 200
"""Most partitions that a document shows."""
TRANSACTIONS_MAX = 2_000
"""Most transactions of a document: the newest, and those that are open."""
RUNS_MAX = 10_000
"""Most runs of records of a document."""
GROUPS_MAX = 50
"""Most groups of a sample."""
SAMPLES_MAX, SAMPLES_MIN = 120, 20
"""Samples of a document, by how many partitions it shows."""
PLACES_MAX = 6_000
"""Most places of partitions in all samples together, beyond the fewest samples."""

END = {Outcome.COMMIT: "committed", Outcome.ABORT: "aborted"}
PLAIN = "plain"
GIVEN_UP = "given-up"


def samples_for(partitions: int) -> int:
    """Return how many samples a document with so many partitions has at most."""
    return max(SAMPLES_MIN, min(SAMPLES_MAX, PLACES_MAX // max(1, partitions)))


@dataclass(slots=True)
class _Growing:
    """A transaction as it is collected."""

    transactional_id: str
    producer_id: int
    epoch: int
    begin_entry: int
    begin_ms: int
    runs: list[tuple[TopicPartition, int, int, int]] = field(default_factory=list)
    records: int = 0
    bytes: int = 0
    staged: int = 0
    prepared_entry: int | None = None
    end_entry: int | None = None
    end_ms: int | None = None
    outcome: str = "open"
    cause: str = ""
    before_window: bool = False

    def add_run(self, key: TopicPartition, start: int, end: int, entry: int) -> None:
        """Add records; those that follow the last ones of the same entry make one run with them."""
        if self.runs and self.runs[-1] == (key, self.runs[-1][1], start, entry):
            self.runs[-1] = (key, self.runs[-1][1], end, entry)
        else:
            self.runs.append((key, start, end, entry))

    def end(self, entry: CommitEntry, outcome: str, cause: str) -> None:
        """Note the outcome."""
        self.end_entry, self.end_ms = entry.entry, entry.timestamp_ms
        self.outcome, self.cause = outcome, cause


@dataclass(frozen=True, slots=True)
class Collected:
    """A part of a document: what a collector has seen."""

    partitions: tuple[Partition, ...]
    transactions: tuple[Transaction, ...]
    samples: tuple[Sample, ...]
    entries: tuple[EntryTotals, ...]
    group_names: tuple[str, ...]
    notes: tuple[str, ...]


class Collector:
    """Collects what a document shows of the entries after ``base``.

    Parameters
    ----------
    base : LogState
        The state before the first entry of the window.
    topic : str or None
        The only topic to show.
    last : int
        The entry that the window is expected to end with: samples are spread over the entries up to it.
    """

    def __init__(self, base: LogState, topic: str | None, last: int) -> None:
        self.base = base
        self.state = base
        self.objects = ObjectCounts()
        self._topic = topic
        self._ended: deque[_Growing] = deque()
        self._open: dict[TransactionKey, _Growing] = {}
        self._runs = 0
        self._left_out = 0
        self._entries: list[EntryTotals] = []
        self._kept: list[LogState] = [base] if base.entry >= 0 else []
        self._every = max(1, (last - base.entry) // SAMPLES_MAX)
        for name in base.undecided:
            self._seed(name, base.transactional_ids[name])

    def _seed(self, name: str, known: TransactionalIdState) -> None:
        """Take over a transaction that was open before the window, with the records that the state
        still has.
        """
        found = _Growing(
            name,
            known.producer_id,
            known.epoch,
            known.started_entry or 0,
            known.started_ms or 0,
            before_window=True,
        )
        found.staged = sum(known.staged_records().values())
        if known.status is TransactionStatus.PREPARED:
            found.prepared_entry = known.used_entry
        for key in known.partitions:
            extents = self.base.partition(key).extents.array()
            own = extents[(extents["producer_id"] == known.producer_id) & (extents["epoch"] == known.epoch)]
            for row in own[["base_offset", "records", "entry", "size"]].tolist():
                start, records, entry, size = row
                found.add_run(key, start, start + records, entry)
                found.records += records
                found.bytes += size
        self._open[known.producer_id, known.epoch] = found

    def add(self, entry: CommitEntry, after: LogState, size: int) -> None:
        """Take the next entry."""
        self.objects.add(entry, size)
        records = total = 0
        for op in entry.operations:
            match op:
                case Append():
                    records += sum(part.records for part in op.partitions)
                    total += sum(part.size for part in op.partitions)
                    self._append(op, entry)
                case Stage():
                    self._of(op.transactional_id, op.producer_id, op.epoch, entry).staged += sum(
                        part.records for part in op.partitions
                    )
                    total += sum(part.size for part in op.partitions)
                case CommitOffsets() | Ack() if op.transactional_id is not None:
                    self._of(op.transactional_id, op.producer_id, op.epoch, entry)
                case PrepareTxn():
                    self._of(
                        op.transactional_id, op.producer_id, op.epoch, entry
                    ).prepared_entry = entry.entry
                case EndTxn():
                    records += self._end(op, entry)
                case InitProducer():
                    fenced = self._open.pop((op.producer_id, op.epoch - 1), None)
                    if fenced is not None:
                        fenced.end(entry, END[Outcome.ABORT], "init")
                        self._keep(fenced)
                case GiveUp():
                    self._give_up(op, entry)
                case _:
                    pass
        self._entries.append(EntryTotals(entry.entry, entry.timestamp_ms, records, total))
        self.state = after
        if entry.entry % self._every == 0:
            self._kept.append(after)
            if len(self._kept) > 2 * SAMPLES_MAX:
                self._every *= 2
                self._kept = [one for one in self._kept if one.entry % self._every == 0]

    def _of(self, name: str, producer_id: int, epoch: int, entry: CommitEntry) -> _Growing:
        """Return the open transaction, which begins here if it has not begun before."""
        found = self._open.get((producer_id, epoch))
        if found is None:
            found = _Growing(name, producer_id, epoch, entry.entry, entry.timestamp_ms)
            self._open[producer_id, epoch] = found
        return found

    def _append(self, op: Append, entry: CommitEntry) -> None:
        if op.transactional_id is None:
            found = _Growing("", op.producer_id, op.epoch, entry.entry, entry.timestamp_ms)
            found.end(entry, PLAIN, "")
        else:
            found = self._of(op.transactional_id, op.producer_id, op.epoch, entry)
        for part in op.partitions:
            key = TopicPartition(op.topic_id, part.partition)
            found.add_run(key, part.base_offset, part.base_offset + part.records, entry.entry)
            found.records += part.records
            found.bytes += part.size
        if op.transactional_id is None:
            self._keep(found)

    def _end(self, op: EndTxn, entry: CommitEntry) -> int:
        """Note the end of a transaction; return how many staged records it gave offsets."""
        found = self._open.pop((op.producer_id, op.epoch), None)
        if found is None:
            return 0  # it had nothing
        placed = 0
        for part in op.placed:
            found.add_run(
                part.topic_partition, part.base_offset, part.base_offset + part.records, entry.entry
            )
            placed += part.records
        found.records += placed
        found.end(entry, END[op.outcome], op.cause.value)
        self._keep(found)
        return placed

    def _give_up(self, op: GiveUp, entry: CommitEntry) -> None:
        """Move the records that a prepared transaction loses to a part of their own; the transaction stays
        prepared.
        """
        found = self._of(op.transactional_id, op.producer_id, op.epoch, entry)
        lost = {marker.topic_partition for marker in op.markers}
        part = _Growing(op.transactional_id, op.producer_id, op.epoch, found.begin_entry, found.begin_ms)
        part.before_window, part.prepared_entry = found.before_window, found.prepared_entry
        part.runs = [run for run in found.runs if run[0] in lost]
        part.records = sum(run[2] - run[1] for run in part.runs)
        found.runs = [run for run in found.runs if run[0] not in lost]
        found.records -= part.records
        part.end(entry, GIVEN_UP, "operator")
        self._keep(part)

    def _keep(self, found: _Growing) -> None:
        """Keep a transaction that has ended, and let the oldest go above the bounds."""
        self._ended.append(found)
        self._runs += len(found.runs)
        while self._ended and (len(self._ended) > TRANSACTIONS_MAX or self._runs > RUNS_MAX):
            self._runs -= len(self._ended.popleft().runs)
            self._left_out += 1

    # --- the document's part --------------------------------------------------------------------------------

    def collected(self, now_ms: int) -> Collected:
        """Return all of it as of the newest entry that was taken, and of a moment."""
        notes: list[str] = []
        shown = list(islice(self._shown(), PARTITIONS_MAX))
        count = (
            self.state.partition_count if self._topic is None else self.state.topic(self._topic).partitions
        )
        if count > len(shown):
            notes.append(
                f"{len(shown)} of {count} partitions are shown: choose a topic to see its first "
                f"{PARTITIONS_MAX}"
            )
        places = {key: index for index, (_, key) in enumerate(shown)}
        if self._left_out:
            notes.append(
                f"the {self._left_out} oldest transactions of the window that have ended are left out"
            )
        transactions, numbers = self._transactions(places, now_ms, notes)
        names: dict[str, int] = {}
        states = self._sampled(len(shown))
        samples = tuple(
            self._sample(state, shown, numbers, names, now_ms if state is self.state else state.timestamp_ms)
            for state in states
        )
        partitions = tuple(
            Partition(name, key.partition, self.base.partition(key).log_end) for name, key in shown
        )
        return Collected(partitions, transactions, samples, tuple(self._entries), tuple(names), tuple(notes))

    def _shown(self) -> Iterator[tuple[str, TopicPartition]]:
        topics = [self.state.topic(self._topic)] if self._topic is not None else self.state.topics.values()
        for topic in sorted(topics, key=lambda one: one.name):
            for number in range(topic.partitions):
                yield topic.name, TopicPartition(topic.topic_id, number)

    def _transactions(
        self, places: dict[TopicPartition, int], now_ms: int, notes: list[str]
    ) -> tuple[tuple[Transaction, ...], dict[TransactionKey, int]]:
        """Return the transactions by their beginnings, and the indexes of those that were open in some
        sample.
        """
        undecided = list(self._open.values())
        if len(undecided) > TRANSACTIONS_MAX:
            notes.append(f"{len(undecided) - TRANSACTIONS_MAX} open transactions are left out")
            undecided = sorted(undecided, key=lambda one: one.begin_entry)[:TRANSACTIONS_MAX]
        every = sorted([*self._ended, *undecided], key=lambda one: (one.begin_entry, one.producer_id))
        found: list[Transaction] = []
        numbers: dict[TransactionKey, int] = {}
        for one in every:
            runs = tuple(
                Run(places[key], start, end, entry) for key, start, end, entry in one.runs if key in places
            )
            if self._topic is not None and not runs and (one.end_entry is not None or one.runs):
                continue  # all of it is in other topics
            if one.outcome not in (PLAIN, GIVEN_UP):
                numbers[one.producer_id, one.epoch] = len(found)
            found.append(
                Transaction(
                    one.transactional_id,
                    one.producer_id,
                    one.epoch,
                    one.begin_entry,
                    one.begin_ms,
                    runs,
                    one.records,
                    one.bytes,
                    one.staged,
                    one.prepared_entry,
                    one.end_entry,
                    one.end_ms,
                    self._outcome(one, now_ms),
                    one.cause,
                    one.before_window,
                )
            )
        return tuple(found), numbers

    def _outcome(self, one: _Growing, now_ms: int) -> str:
        known = self.state.transactional_ids.get(one.transactional_id)
        if one.end_entry is not None or known is None:
            return one.outcome
        return status_of(known, now_ms)

    def _sampled(self, partitions: int) -> list[LogState]:
        """Return the states to show: spread evenly, and the newest."""
        most = samples_for(partitions)
        states = [one for one in self._kept if one.entry != self.state.entry]
        if len(states) >= most:
            states = [states[index * len(states) // (most - 1)] for index in range(most - 1)]
        return [*states, self.state]

    def _sample(
        self,
        state: LogState,
        shown: Iterable[tuple[str, TopicPartition]],
        numbers: dict[TransactionKey, int],
        names: dict[str, int],
        at_ms: int,
    ) -> Sample:
        places = []
        for _, key in shown:
            part = state.partition(key)
            holder = -1
            if part.open:
                holder = numbers.get(next(iter(part.open)), -2)
            places.append(Place(part.log_start, part.last_stable_offset, part.log_end, holder))
        undecided = []
        for name in sorted(state.undecided):
            known = state.transactional_ids[name]
            number = numbers.get((known.producer_id, known.epoch))
            if number is not None:
                undecided.append((number, status_of(known, at_ms)))
        groups = tuple(
            GroupAtSample(names.setdefault(one.group, len(names)), *_lag(one))
            for one in islice(measure_groups(state, at_ms), GROUPS_MAX)
        )
        return Sample(
            state.entry, at_ms, tuple(places), tuple(undecided), groups, state.segments.end, state.extents
        )


def _lag(group: GroupMetrics) -> tuple[int, bool]:
    return (
        sum(part.lag_records for part in group.partitions),
        all(part.lag_exact for part in group.partitions),
    )
