"""Measures of a log and of this process's commits, as values and as Prometheus' text. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, NamedTuple

from txnformat.admin.erasure.status import ErasureStage, stage_of
from txnformat.admin.group_metrics import GroupMetrics, group_samples, measure_groups
from txnformat.admin.prometheus import Sample, declared, render
from txnformat.client.commit_counts import CommitCounts, CommitOutcome, Summary
from txnformat.core.records.scan import committed
from txnformat.core.records.state import PartitionState
from txnformat.core.state import LogState
from txnformat.core.transactions.listing import is_late
from txnformat.core.transactions.state import UNDECIDED, TransactionalIdState, TransactionStatus
from txnformat.types import TopicPartition

__all__ = [
    "METRICS",
    "LogMetrics",
    "OldestTransaction",
    "PartitionMetrics",
    "PreparedTransactionAge",
    "measure",
]

METRICS = declared(
    """
txnlog_partition_log_start_offset{topic, partition} gauge: First offset that can be read.
txnlog_partition_log_end_offset{topic, partition} gauge: Offset of the next record: read_uncommitted ends before it.
txnlog_partition_last_stable_offset{topic, partition} gauge: Offset that read_committed ends before.
txnlog_partition_last_stable_offset_lag{topic, partition} gauge: Offsets that open transactions hold back: log end - last stable offset.
txnlog_partition_open_transactions{topic, partition} gauge: Transactions that are not decided.
txnlog_partition_late_transactions{topic, partition} gauge: Transactions with records there whose timeout is over and that have not been ended.
txnlog_partition_prepared_transactions{topic, partition} gauge: Transactions with records there whose outcome is decided elsewhere.
txnlog_partition_oldest_transaction_first_offset{topic, partition, transactional_id} gauge: First offset of the transaction that holds the last stable offset.
txnlog_partition_oldest_transaction_age_seconds{topic, partition, transactional_id} gauge: For how long that transaction has been open.
txnlog_partition_records{topic, partition} gauge: Records below the last stable offset, without markers; those removed from the oldest batch or segment of a partition count until all of it is removed.
txnlog_partition_aborted_records{topic, partition} gauge: Those of them that belong to aborted transactions.
txnlog_partition_bytes{topic, partition} gauge: Compressed bytes of the records below the last stable offset.
txnlog_partition_aborted_bytes{topic, partition} gauge: Those of them that belong to aborted transactions.
txnlog_groups{state} gauge: Consumer groups by state.
txnlog_group_committed_offset{group, topic, partition} gauge: Next offset that the group wants to read.
txnlog_group_lag_records{group, topic, partition} gauge: Committed records from there to the last stable offset; an upper bound when it lies inside a sealed segment, or spilled offsets wait for their seal.
txnlog_group_pending_offsets{group} gauge: Positions that are pending in transactions that are not decided.
txnlog_group_idle_seconds{group} gauge: Since the last entry that used the group.
txnlog_entries_total counter: Commit entries of the log.
txnlog_last_entry_timestamp_seconds gauge: Log time of the newest entry, since 1970-01-01 UTC.
txnlog_tail_entries gauge: Entries after the newest named snapshot: what opening the log reads.
txnlog_unsealed_extents gauge: Batches, and parts of batch tables, that the state holds.
txnlog_topics gauge: Topics.
txnlog_transactional_ids{status} gauge: Transactional ids by status.
txnlog_late_transactions gauge: Transactions whose timeout is over and that have not been ended, each counted once.
txnlog_prepared_transactions gauge: Transactions whose outcome is decided elsewhere, each counted once.
txnlog_oldest_prepared_transaction_age_seconds{transactional_id} gauge: For how long the oldest of them has been prepared.
txnlog_erasures{stage} gauge: Erasures that the state knows by stage: all that are not complete, and the last 100 complete ones.
txnlog_commits_total{outcome} counter: Commits of this process by what became of them.
txnlog_commit_attempts_total counter: Entries that this process has sent to a slot, lost and repeated ones included.
txnlog_commit_wait_seconds summary: From the call of a commit to its answer, in this process.
txnlog_commit_wait_max_seconds gauge: The longest of them since the log was opened.
txnlog_commit_group_size summary: Commits of this process that were decided together.
txnlog_commit_group_size_max gauge: The largest such group since the log was opened.
txnlog_requests_total{operation, object} counter: Requests of this process to the store, but for segment files.
"""  # noqa: E501  # one metric a line
)
"""Every metric. Each sample also has the label ``log``: where the log is."""


@dataclass(frozen=True, slots=True)
class OldestTransaction:
    """The open transaction with the smallest first offset in a partition: it holds the last stable offset."""

    transactional_id: str
    """Empty when no transactional id has it: it is hanging."""
    producer_id: int
    epoch: int
    first_offset: int
    age_ms: int
    """Since its first append anywhere; 0 when it is hanging."""


@dataclass(frozen=True, slots=True)
class PreparedTransactionAge:
    """The transaction that has been prepared for the longest time."""

    transactional_id: str
    producer_id: int
    epoch: int
    age_ms: int
    """Since it was prepared."""


@dataclass(frozen=True, slots=True)
class PartitionMetrics:
    """Measures of one partition."""

    topic: str
    partition: int
    log_start: int
    log_end: int
    last_stable_offset: int
    open_transactions: int
    late_transactions: int
    """With records here; their own time is over, and they are still open."""
    prepared_transactions: int
    """With records here; their outcome is decided elsewhere."""
    oldest_transaction: OldestTransaction | None
    records: int
    """Below the last stable offset, without markers."""
    aborted_records: int
    bytes: int
    """Compressed, below the last stable offset."""
    aborted_bytes: int

    @property
    def lag(self) -> int:
        """Return the offsets that open transactions hold back."""
        return self.log_end - self.last_stable_offset

    @property
    def aborted_share(self) -> float:
        """Return the part of the decided records that was aborted, 0 to 1; 0 when there are none."""
        return self.aborted_records / self.records if self.records else 0.0

    @property
    def aborted_bytes_share(self) -> float:
        """Return the part of the decided records' bytes that was aborted, 0 to 1; 0 when there are none."""
        return self.aborted_bytes / self.bytes if self.bytes else 0.0


@dataclass(frozen=True, slots=True)
class LogMetrics:
    """Measures of a log after one entry, and of this process's commits to it."""

    url: str
    log_id: str
    entry: int
    """The newest entry; -1 for a log without any."""
    timestamp_ms: int
    """Its log time."""
    measured_ms: int
    """The moment at which ages are measured: the store's time, or log time where that is ahead."""
    tail_entries: int
    """After the newest named snapshot."""
    unsealed_extents: int
    topics: int
    transactional_ids: dict[str, int]
    """Number of transactional ids, by status."""
    late_transactions: int
    """Their own time is over, and they are still open; also those whose records are staged."""
    prepared_transactions: int
    oldest_prepared: PreparedTransactionAge | None
    erasures: dict[str, int]
    """Number of erasures, by stage."""
    partitions: tuple[PartitionMetrics, ...]
    groups: tuple[GroupMetrics, ...]
    commits: CommitCounts
    """Counts of this process, since it opened the log."""

    @property
    def entries(self) -> int:
        """Return the number of entries of the log."""
        return self.entry + 1

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        plain = asdict(self)
        for part, measured in zip(plain["partitions"], self.partitions, strict=True):
            part["lag"] = measured.lag
            part["aborted_share"] = measured.aborted_share
            part["aborted_bytes_share"] = measured.aborted_bytes_share
        requests = {
            f"{operation} {object_}": count for (operation, object_), count in self.commits.requests.items()
        }
        plain["commits"] = {
            "attempts": self.commits.attempts,
            "outcomes": {outcome.value: self.commits.outcomes.get(outcome, 0) for outcome in CommitOutcome},
            "wait_ms": asdict(self.commits.wait_ms),
            "group_size": asdict(self.commits.group_size),
            "requests": requests,
        }
        return plain

    def to_prometheus(self) -> str:
        """Return the measures in Prometheus' text format, version 0.0.4."""
        return render(METRICS, self.samples())

    def samples(self) -> Iterator[Sample]:
        """Yield every value with its labels."""
        log = (("log", self.url),)
        samples = (self._partition_samples(), group_samples(self.groups), self._log_samples())
        for sample in chain(*samples, self._process_samples()):
            yield sample._replace(labels=log + sample.labels)

    def _partition_samples(self) -> Iterator[Sample]:
        for part in self.partitions:
            labels = (("topic", part.topic), ("partition", str(part.partition)))
            for name, value in (
                ("log_start_offset", part.log_start),
                ("log_end_offset", part.log_end),
                ("last_stable_offset", part.last_stable_offset),
                ("last_stable_offset_lag", part.lag),
                ("open_transactions", part.open_transactions),
                ("late_transactions", part.late_transactions),
                ("prepared_transactions", part.prepared_transactions),
                ("records", part.records),
                ("aborted_records", part.aborted_records),
                ("bytes", part.bytes),
                ("aborted_bytes", part.aborted_bytes),
            ):
                yield Sample(f"txnlog_partition_{name}", labels, value)
            oldest = part.oldest_transaction
            if oldest is not None:
                holder = (*labels, ("transactional_id", oldest.transactional_id))
                name = "txnlog_partition_oldest_transaction"
                yield Sample(f"{name}_first_offset", holder, oldest.first_offset)
                yield Sample(f"{name}_age_seconds", holder, oldest.age_ms / 1000)

    def _log_samples(self) -> Iterator[Sample]:
        yield Sample("txnlog_entries_total", (), self.entries)
        yield Sample("txnlog_last_entry_timestamp_seconds", (), self.timestamp_ms / 1000)
        yield Sample("txnlog_tail_entries", (), self.tail_entries)
        yield Sample("txnlog_unsealed_extents", (), self.unsealed_extents)
        yield Sample("txnlog_topics", (), self.topics)
        for status, count in self.transactional_ids.items():
            yield Sample("txnlog_transactional_ids", (("status", status),), count)
        for stage, count in self.erasures.items():
            yield Sample("txnlog_erasures", (("stage", stage),), count)
        yield Sample("txnlog_late_transactions", (), self.late_transactions)
        yield Sample("txnlog_prepared_transactions", (), self.prepared_transactions)
        if self.oldest_prepared is not None:
            holder = (("transactional_id", self.oldest_prepared.transactional_id),)
            name = "txnlog_oldest_prepared_transaction_age_seconds"
            yield Sample(name, holder, self.oldest_prepared.age_ms / 1000)

    def _process_samples(self) -> Iterator[Sample]:
        counts = self.commits
        for outcome in CommitOutcome:
            yield Sample(
                "txnlog_commits_total", (("outcome", outcome.value),), counts.outcomes.get(outcome, 0)
            )
        yield Sample("txnlog_commit_attempts_total", (), counts.attempts)
        yield from _summary("txnlog_commit_wait_seconds", counts.wait_ms, 1000)
        yield Sample("txnlog_commit_wait_max_seconds", (), counts.wait_ms.max / 1000)
        yield from _summary("txnlog_commit_group_size", counts.group_size, 1)
        yield Sample("txnlog_commit_group_size_max", (), counts.group_size.max)
        for (operation, object_), count in sorted(counts.requests.items()):
            labels = (("operation", operation.value), ("object", object_.value))
            yield Sample("txnlog_requests_total", labels, count)


def _summary(name: str, summary: Summary, divisor: int) -> Iterator[Sample]:
    yield Sample(name, (), summary.sum / divisor, "_sum")
    yield Sample(name, (), summary.count, "_count")


class _Volume(NamedTuple):
    records: int
    aborted_records: int
    bytes: int
    aborted_bytes: int


def measure(state: LogState, url: str, store_time_ms: int, commits: CommitCounts) -> LogMetrics:
    """Return the measures of a state at the store's time: transactions of an idle log grow older all the
    same.

    O(partitions + extents in the state). No requests.
    """
    now_ms = max(store_time_ms, state.timestamp_ms)
    statuses = Counter(known.status for known in state.transactional_ids.values())
    stages = Counter(stage_of(one) for one in state.erasures.values())
    ongoing = {
        (known.producer_id, known.epoch): (name, known)
        for name, known in state.transactional_ids.items()
        if known.status in UNDECIDED
    }
    partitions = tuple(
        _partition(
            topic.name, number, state.partition(TopicPartition(topic.topic_id, number)), ongoing, now_ms
        )
        for topic in sorted(state.topics.values(), key=lambda topic: topic.name)
        for number in range(topic.partitions)
    )
    return LogMetrics(
        url=url,
        log_id=state.log_id,
        entry=state.entry,
        timestamp_ms=state.timestamp_ms,
        measured_ms=now_ms,
        tail_entries=state.entry - (state.checkpoints[-1].entry if state.checkpoints else -1),
        unsealed_extents=state.extents,
        topics=len(state.topics),
        transactional_ids={status.value: statuses[status] for status in TransactionStatus},
        late_transactions=sum(is_late(known, now_ms) for _, known in ongoing.values()),
        prepared_transactions=statuses[TransactionStatus.PREPARED],
        oldest_prepared=_oldest_prepared(ongoing.values(), now_ms),
        erasures={stage.value: stages[stage] for stage in ErasureStage},
        partitions=partitions,
        groups=measure_groups(state, now_ms),
        commits=commits,
    )


def _oldest_prepared(
    undecided: Iterable[tuple[str, TransactionalIdState]], now_ms: int
) -> PreparedTransactionAge | None:
    prepared = [
        (known.used_ms, name, known)
        for name, known in undecided
        if known.status is TransactionStatus.PREPARED
    ]
    if not prepared:
        return None
    since_ms, name, known = min(prepared, key=lambda one: one[:2])
    return PreparedTransactionAge(name, known.producer_id, known.epoch, max(0, now_ms - since_ms))


def _partition(
    topic: str,
    number: int,
    partition: PartitionState,
    ongoing: dict[tuple[int, int], tuple[str, TransactionalIdState]],
    now_ms: int,
) -> PartitionMetrics:
    oldest = None
    if partition.open:
        transaction = min(partition.open, key=lambda key: partition.open[key])
        name, known = ongoing.get(transaction, ("", None))
        age_ms = now_ms - known.started_ms if known and known.started_ms is not None else 0
        oldest = OldestTransaction(name, *transaction, partition.open[transaction], age_ms)
    named = [ongoing[transaction][1] for transaction in partition.open if transaction in ongoing]
    return PartitionMetrics(
        topic,
        number,
        partition.log_start,
        partition.log_end,
        partition.last_stable_offset,
        len(partition.open),
        sum(is_late(known, now_ms) for known in named),
        sum(known.status is TransactionStatus.PREPARED for known in named),
        oldest,
        *_volume(partition),
    )


def _volume(partition: PartitionState) -> _Volume:
    sealed = partition.sealed
    # Spilled offsets below the last stable offset wait for their seal; until then only their object says what
    # was aborted,
    # and a spill in which the last stable offset lies counts as nothing.
    passed = [one for one in partition.spills if one.end_offset <= partition.last_stable_offset]
    records = sealed.records + sum(one.records for one in passed)
    size = sealed.size + sum(one.size for one in passed)
    if not len(partition.extents):  # most are, where there are many
        return _Volume(records, sealed.aborted_records, size, sealed.aborted_size)
    extents = partition.extents.array()
    extents = extents[extents["base_offset"] < partition.last_stable_offset]
    aborted = extents[~committed(partition, extents)]
    return _Volume(
        records + int(extents["records"].sum()),
        sealed.aborted_records + int(aborted["records"].sum()),
        size + int(extents["size"].sum()),
        sealed.aborted_size + int(aborted["size"].sum()),
    )
