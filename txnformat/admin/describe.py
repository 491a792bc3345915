"""The description of a log for people and tools: offsets, open transactions, outcomes.

Values and pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from txnformat.columns.arrow_types import text_of_type
from txnformat.core.groups.listing import GroupListing, list_groups
from txnformat.core.operations import Cause, EndTxn, InitProducer, Stage
from txnformat.core.producers.ids import IdBlock
from txnformat.core.state import LogState, TopicState
from txnformat.core.transactions.listing import buffer_of
from txnformat.core.transactions.state import UNDECIDED
from txnformat.errors import NotFoundError
from txnformat.keys import check_transactional_id
from txnformat.protocol.effects import Steps
from txnformat.protocol.growth import Growth, growing
from txnformat.protocol.old_entries import OldEntries
from txnformat.types import Outcome, TopicPartition

__all__ = [
    "DroppedColumn",
    "LogDescription",
    "OpenTransaction",
    "PartitionOffsets",
    "TopicDescription",
    "TransactionDescription",
    "TransactionOutcome",
    "describe_log",
    "find_outcome",
    "known_outcome",
    "partition_offsets",
]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is not decided, in one partition."""

    transactional_id: str
    """Empty when it is hanging."""
    producer_id: int
    epoch: int
    first_offset: int
    """Its first record in this partition."""
    started_entry: int
    started_ms: int
    """Log time of its first append anywhere, ms since the epoch."""
    status: str
    """"Ongoing", "Prepared", or "Hanging": no transactional id has it, so nothing ends it."""
    expires_ms: int | None
    """Log time from which on any client may end it; None when it is prepared or hanging."""


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Offsets of one partition."""

    topic: str
    partition: int
    earliest: int
    """First readable offset (inclusive)."""
    last_stable_offset: int
    """Where read_committed ends (exclusive)."""
    log_end: int
    """Where read_uncommitted ends (exclusive)."""
    held_by: OpenTransaction | None
    """The open transaction that holds the last stable offset back."""
    aborted_transactions: int


@dataclass(frozen=True, slots=True)
class DroppedColumn:
    """A column that a topic had: its place stays empty."""

    place: int
    """Its number in the order in which the topic's columns appeared, from 0."""
    name: str
    """Its last name, which a column that was added later may have by now."""
    type: str


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic."""

    name: str
    topic_id: str
    partitions: int
    key_columns: tuple[str, ...]
    timestamp_column: str | None
    columns: dict[str, str]
    """Column name to type, as ``txnlog create-topic --column`` takes it: ``decimal(10,2)``, ``timestamp``,
    ``list<string>``."""
    offsets: tuple[PartitionOffsets, ...]
    settings: dict[str, int | str] = field(default_factory=dict)
    """The settings that differ from the default, by name."""
    dirty_ratio: float | None = None
    """Largest fraction of a partition's bytes whose keys a compaction has not compared with later ones. If
    None, the topic keeps all records of a key."""
    places: dict[str, int] = field(default_factory=dict)
    """The place of each column, by name: its number in the order in which the topic's columns appeared, from
    0. Names change; places do not."""
    dropped: tuple[DroppedColumn, ...] = ()
    """Columns that were dropped, by place."""


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """One transactional id."""

    transactional_id: str
    producer_id: int
    epoch: int
    status: str
    started_ms: int | None
    partitions: tuple[tuple[str, int], ...]
    """(topic, partition) of the open transaction's records that have offsets."""
    timeout_ms: int
    """Timeout of its transactions with offsets, counted from the first append."""
    deferred_timeout_ms: int
    """Timeout of its transactions whose records are staged, counted from the last stage."""
    buffer: str | None
    """"inline" when the open transaction's records have offsets, "deferred" when they are staged. If None, no
    transaction is open."""
    staged_records: tuple[tuple[str, int, int], ...]
    """(topic, partition, records) that the open transaction has staged."""
    expires_ms: int | None
    """Log time from which on any client may end the open transaction. If None, no transaction is open, or it
    is prepared."""


@dataclass(frozen=True, slots=True)
class LogDescription:
    """A whole log after one entry."""

    url: str
    log_id: str
    entry: int
    timestamp_ms: int
    topics: tuple[TopicDescription, ...]
    transactions: tuple[TransactionDescription, ...]
    groups: tuple[GroupListing, ...]
    """Consumer groups, by name."""
    producer_id_blocks: tuple[IdBlock, ...]
    """Which process may hand out which producer ids, ascending; those that are used up included."""
    max_transaction_timeout_ms: int
    """Longest timeout of transactions with offsets that a producer may ask for."""
    growing: tuple[Growth, ...] = ()
    """Parts of the state that stay in it until the operator acts."""
    boundary: int = 0
    """Entries below (exclusive) may be deleted; their history is in bundles. 0: a truncation has not been
    run."""
    truncate_older_than_ms: int = -1
    """Maintenance deletes commit entries older than this; -1: entries are kept."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; blocks of ids in Kafka's form."""
        return asdict(self) | {
            "producer_id_blocks": [block.to_dict() for block in self.producer_id_blocks],
            "growing": [msgspec.structs.asdict(one) for one in self.growing],
        }


@dataclass(frozen=True, slots=True)
class TransactionOutcome:
    """How a transaction ended."""

    transactional_id: str
    epoch: int
    outcome: Outcome | None
    """The outcome; None while the transaction is open."""
    cause: Cause | None
    entry: int | None
    """Entry of its end."""


def partition_offsets(state: LogState, topic: TopicState) -> list[PartitionOffsets]:
    """Return the offsets of every partition of a topic, and the transaction that holds each back."""
    names = {
        (known.producer_id, known.epoch): (name, known) for name, known in state.transactional_ids.items()
    }
    found = []
    for number in range(topic.partitions):
        partition = state.partition(TopicPartition(topic.topic_id, number))
        holder = None
        if partition.open:
            transaction = min(partition.open, key=lambda key: partition.open[key])
            first_offset = partition.open[transaction]
            named = names.get(transaction)
            if named is None:
                holder = OpenTransaction("", *transaction, first_offset, 0, 0, "Hanging", None)
            else:
                name, known = named
                holder = OpenTransaction(
                    name,
                    *transaction,
                    first_offset,
                    known.started_entry or 0,
                    known.started_ms or 0,
                    known.status.value,
                    known.expires_ms,
                )
        found.append(
            PartitionOffsets(
                topic.name,
                number,
                partition.log_start,
                partition.last_stable_offset,
                partition.log_end,
                holder,
                partition.aborted_transactions,
            )
        )
    return found


def describe_log(
    state: LogState,
    url: str,
    store_time_ms: int,
    dirty_ratios: Mapping[str, float] | None = None,
    boundary: int = 0,
) -> LogDescription:
    """Return the description of a state; members of groups live or not as of the store's time, or log time if
    that is ahead.

    ``dirty_ratios``: by topic id.
    """
    topics = tuple(
        TopicDescription(
            topic.name,
            topic.topic_id,
            topic.partitions,
            topic.schema.key_columns,
            topic.schema.timestamp_column,
            {field.name: text_of_type(field.type) for field in topic.schema.arrow_schema},
            tuple(partition_offsets(state, topic)),
            {one.name: one.value for one in topic.settings},
            (dirty_ratios or {}).get(topic.topic_id),
            dict(
                zip(
                    topic.schema.arrow_schema.names,
                    topic.schema.places_of(topic.schema.schema_id),
                    strict=True,
                )
            ),
            tuple(
                DroppedColumn(place, one.name, text_of_type(one.type))
                for place, one in topic.schema.dropped()
            ),
        )
        for topic in sorted(state.topics.values(), key=lambda topic: topic.name)
    )
    transactions = tuple(
        TransactionDescription(
            name,
            known.producer_id,
            known.epoch,
            known.status.value,
            known.started_ms,
            tuple(sorted((state.topics[key.topic_id].name, key.partition) for key in known.partitions)),
            known.timeout_ms,
            known.deferred_timeout_ms,
            buffer_of(known),
            tuple(
                sorted(
                    (state.topics[key.topic_id].name, key.partition, count)
                    for key, count in known.staged_records().items()
                )
            ),
            known.expires_ms,
        )
        for name, known in sorted(state.transactional_ids.items())
    )
    blocks = tuple(IdBlock(block.owner, block.first, block.last) for block in state.blocks.values())
    return LogDescription(
        url,
        state.log_id,
        state.entry,
        state.timestamp_ms,
        topics,
        transactions,
        tuple(list_groups(state, max(store_time_ms, state.timestamp_ms))),
        blocks,
        state.max_transaction_timeout_ms,
        growing(state),
        boundary,
        state.truncate_older_than_ms,
    )


def find_outcome(state: LogState, transactional_id: str, epoch: int) -> Steps[TransactionOutcome | None]:
    """Look up how transaction (transactional id, epoch) ended: in the state, else back through the history.

    Raises NotFoundError of kind ``history-gone``: it ended before the entries that are left. Requests: none
    when it is the id's last, else 1 GET per entry looked at, newest first; of deleted entries 1 per hundred.
    """
    known = state.transactional_ids.get(transactional_id)
    if known is None or type(epoch) is not int or epoch > known.epoch or epoch < 0:
        return None
    if epoch == known.epoch:
        is_open = known.status in UNDECIDED
        return TransactionOutcome(transactional_id, epoch, None, None, None) if is_open else None
    last = known.last_end
    if last is None or epoch > last.epoch:
        return None
    if epoch == last.epoch:
        return TransactionOutcome(transactional_id, epoch, last.outcome, last.cause, last.entry)
    number = last.entry - 1
    opened: int | None = None
    entries = OldEntries(state.entry)
    while number >= 0:
        entry = yield from entries.read(number)
        for op in reversed(entry.operations):
            if not isinstance(op, EndTxn | InitProducer | Stage) or op.producer_id != known.producer_id:
                continue
            if isinstance(op, InitProducer) and op.epoch == epoch + 1:
                opened = number
            found = _told_by(op, epoch, number, opened)
            if found is not None:
                return found if found.outcome is not None else None
        number -= 1
    return None


def _told_by(
    op: EndTxn | InitProducer | Stage, epoch: int, entry: int, opened: int | None
) -> TransactionOutcome | None:
    """Return how a transaction ended if an operation of its producer says it; without an outcome: it sent
    nothing.

    ``opened`` is the entry that opened the producer just after the transaction, ``op`` or a later one. It
    names what it aborted only when that had offsets: of what was staged, the stages before it tell.
    """
    name = op.transactional_id
    if isinstance(op, EndTxn) and op.epoch == epoch:
        return TransactionOutcome(name, epoch, op.outcome, op.cause, entry)
    if opened is not None and (
        (isinstance(op, InitProducer) and op.epoch == epoch + 1 and op.aborted)
        or (isinstance(op, Stage) and op.epoch == epoch)
    ):
        return TransactionOutcome(name, epoch, Outcome.ABORT, Cause.INIT, opened)
    if not isinstance(op, Stage) and op.epoch <= epoch:
        return TransactionOutcome(name, epoch, None, None, None)
    return None


def known_outcome(state: LogState, transactional_id: str, epoch: int) -> Steps[TransactionOutcome]:
    """As :func:`find_outcome`, raising NotFoundError when the log knows no such transaction."""
    found = yield from find_outcome(state, check_transactional_id(transactional_id), epoch)
    if found is None:
        raise NotFoundError(
            "the log knows no such transaction",
            kind="unknown-transaction",
            hint="a transaction that sent nothing leaves no trace",
            transactional_id=transactional_id,
            epoch=epoch,
        )
    return found
