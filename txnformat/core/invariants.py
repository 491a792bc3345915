"""Invariants of every state of a log, and of every step from one state to the next. Pure.

:func:`check_state` costs what the entry touched, so that it can run in production; :func:`check_whole`
derives everything again. Both return violations as ``I<n> <where>: <what>``, and an empty list when all
holds. They repeat the rules without using the fold: they are the second opinion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise

from txnformat.core.app_versions.invariants import check_app_versions_step
from txnformat.core.entry import CommitEntry
from txnformat.core.groups.invariants import check_groups, check_groups_step
from txnformat.core.groups.operations import CommitOffsets
from txnformat.core.key_invariants import check_floor_step, check_keys, check_keys_step
from txnformat.core.lifecycle.invariants import (
    check_deleted,
    check_deleted_step,
    check_erasures,
    check_erasures_step,
    deleted_in,
)
from txnformat.core.operations import (
    AllocateProducerIds,
    Append,
    EndTxn,
    Expire,
    GiveUp,
    InitProducer,
    PrepareTxn,
    Seal,
    Spill,
    Stage,
)
from txnformat.core.records.invariants import check_partition, check_partition_step
from txnformat.core.records.state import Transaction
from txnformat.core.state import INTENT_WINDOW_ENTRIES, LogState
from txnformat.core.subscriptions.invariants import check_subscriptions, check_subscriptions_step
from txnformat.core.subscriptions.operations import Ack
from txnformat.core.topics.invariants import check_topics_step, check_versions
from txnformat.core.transactions.state import UNDECIDED, TransactionalIdState, TransactionStatus
from txnformat.types import NO_PRODUCER, TopicPartition

__all__ = ["INVARIANTS", "check_state", "check_whole"]

INVARIANTS: dict[str, str] = {
    "I1": (
        "Entries chain: number, log id and previous hash continue the state; the state is at the last entry."
    ),
    "I2": "Log time strictly increases.",
    "I3": (
        "The log end, the log start and the trimmed entry never go back, and log start <= sealed end <= "
        "LSO <= log end."
    ),
    "I4": "The last stable offset never goes back.",
    "I5": (
        "Extents and markers together tile [spilled end, log end) exactly; they stay until they are "
        "sealed or spilled."
    ),
    "I6": (
        "Each open transaction in a partition belongs to an id with status Ongoing and has one first "
        "offset; each Ongoing id has its transactions listed there."
    ),
    "I7": (
        "A transactional id has its producer id for life, epochs never go back, and no producer id is "
        "given twice."
    ),
    "I8": (
        "The abort index is one entry per ABORT marker, in marker order: first data offset to the marker's."
    ),
    "I9": "A transaction has data before its marker, exactly one marker per partition, and nothing after it.",
    "I10": (
        "Sequences of one (producer id, epoch) in a partition are contiguous from 0; its window ends "
        "at the last."
    ),
    "I11": "Application versions grow.",
    "I12": "An intent id is in the window once, and the window is that of the last entries.",
    "I13": (
        "Topics only grow until they are deleted: partitions and versions of the schema are added, the "
        "rest stays; a place of a column is one column for ever; names and ids are unique."
    ),
    "I14": "An extent's records are in exactly one of a file and a table, and the state has it.",
    "I15": (
        "Sealed segments tile [listed end, sealed end); the sealed end is at most the LSO and never "
        "goes back."
    ),
    "I16": (
        "A transaction appends or stages; what is staged has its files and tables, and sequences from "
        "0 without gaps."
    ),
    "I17": (
        "The producers without a transactional id are those with sequences; ids below the retired "
        "bound do not return."
    ),
    "I18": (
        "A pending position is of an undecided transaction that names its group; a position that was "
        "compared is the only pending one of its partition in the group."
    ),
    "I19": (
        "No offset of a subscription is acknowledged or pending twice, nor beyond the LSO; what is "
        "pending is of an undecided transaction."
    ),
    "I20": (
        "All objects named for a topic lie in its directories: files of appends and stages, sidecars "
        "of segments."
    ),
    "I21": (
        "The vacuum's floor never goes back, is below the state's entry, and no entry after it names "
        "an object born below it."
    ),
    "I22": "Nothing in the state is of a deleted topic, whose directory no other topic has.",
    "I23": (
        "How far keys were compared, and which versions that has cost, never goes back; it is at most "
        "what is listed."
    ),
    "I24": (
        "An erasure never goes back; what it has rewritten is at most what is listed, and only a "
        "vacuum above its last replace completes it."
    ),
    "I25": (
        "Spills tile [sealed end, spilled end); one begins at the LSO or above, and leaves the state "
        "only with a seal or another spill of all of its offsets."
    ),
}
"""One line per invariant."""

_Problems = Iterator[str]


def check_state(before: LogState, entry: CommitEntry, after: LogState) -> list[str]:
    """Return the violations of the step from ``before``, which is taken to be sound, to ``after`` by
    ``entry``.

    The cost is that of what the entry's operations name (partitions and their open transactions, ids,
    topics), not that of the state.
    """
    touched = _touched(before, entry)
    problems = [*_check_chain(before, entry, after), *_check_ids_step(before, entry, after, touched)]
    problems += _check_owners_step(before, entry, after)
    problems += _check_producers_step(before, entry, after)
    for key in sorted(touched):
        old, new = before.partition(key), after.partition(key)
        problems += _prefixed(key, check_partition_step(old, new, after))
    problems += check_app_versions_step(before, entry, after)
    problems += check_groups_step(before, entry, after)
    problems += check_subscriptions_step(before, entry, after)
    problems += check_topics_step(before, entry, after)
    problems += _check_window_step(before, entry, after)
    problems += check_keys_step(entry, after)
    problems += check_floor_step(before, entry, after)
    problems += check_deleted_step(before, entry, after)
    problems += check_erasures_step(before, entry, after)
    return problems


def check_whole(state: LogState) -> list[str]:
    """Return the violations in one state, everything derived again from extents, markers and ids. O(state).

    Invariants that only a step can show (I1, I2, I4, I11) are not checked.
    """
    problems: list[str] = []
    for key, partition in sorted(state.partitions.items()):
        problems += _prefixed(key, check_partition(partition, state))
        topic = state.topics.get(key.topic_id)
        if topic is None or not 0 <= key.partition < topic.partitions:
            problems.append(f"I13 {_name(key)}: there is no such partition")
    for topic in state.topics.values():
        problems += check_versions(topic)
    problems += _check_ids(state)
    problems += check_groups(state)
    problems += check_subscriptions(state)
    problems += _check_window(state)
    problems += check_keys(state)
    problems += check_deleted(state)
    problems += check_erasures(state)
    if {topic.name: topic_id for topic_id, topic in state.topics.items()} != state.topic_ids:
        problems.append("I13 topics: names and ids do not match")
    if (count := sum(topic.partitions for topic in state.topics.values())) != state.partition_count:
        problems.append(f"I13 topics: they have {count} partitions, and {state.partition_count} are counted")
    return problems


def _name(key: TopicPartition) -> str:
    return f"{key.topic_id}/{key.partition}"


def _prefixed(key: TopicPartition, problems: Iterable[str]) -> list[str]:
    return [f"{problem.split(' ', 1)[0]} {_name(key)}: {problem.split(' ', 1)[1]}" for problem in problems]


def _touched(before: LogState, entry: CommitEntry) -> set[TopicPartition]:
    """Return the partitions that the entry may change."""
    touched: set[TopicPartition] = set()
    for op in entry.operations:
        match op:
            case Append():
                touched |= {TopicPartition(op.topic_id, part.partition) for part in op.partitions}
            case EndTxn():
                touched |= {marker.topic_partition for marker in op.markers}
                touched |= {part.topic_partition for part in op.placed}
            case GiveUp():
                touched |= {marker.topic_partition for marker in op.markers}
            case InitProducer():
                touched |= {marker.topic_partition for marker in op.aborted}
            case Seal():
                touched |= {
                    TopicPartition(segment.record.topic_id, part.partition)
                    for segment in op.segments
                    for part in segment.partitions
                }
            case Spill():
                touched |= {part.topic_partition for part in op.partitions}
            case _:
                pass  # not about partitions
        if isinstance(op, EndTxn | GiveUp | InitProducer):
            known = before.transactional_ids.get(op.transactional_id)
            touched |= set(known.partitions) if known else set()
    gone = deleted_in(entry)
    return {key for key in touched if key.topic_id not in gone}


def _check_chain(before: LogState, entry: CommitEntry, after: LogState) -> _Problems:
    if (entry.log_id, entry.entry, entry.previous) != (before.log_id, before.entry + 1, before.entry_sha256):
        yield f"I1 entry {entry.entry}: it does not chain to entry {before.entry}"
    if (after.log_id, after.entry) != (entry.log_id, entry.entry):
        yield f"I1 entry {entry.entry}: the state after it is at {after.entry}"
    if after.timestamp_ms != entry.timestamp_ms or (
        before.entry >= 0 and after.timestamp_ms <= before.timestamp_ms
    ):
        yield f"I2 entry {entry.entry}: log time goes from {before.timestamp_ms} to {after.timestamp_ms}"


def _named_ids(entry: CommitEntry) -> set[str]:
    return {
        operation.transactional_id
        for operation in entry.operations
        if isinstance(
            operation, Append | Stage | CommitOffsets | Ack | PrepareTxn | EndTxn | GiveUp | InitProducer
        )
        and operation.transactional_id is not None
    }


def _check_ids_step(
    before: LogState, entry: CommitEntry, after: LogState, touched: set[TopicPartition]
) -> _Problems:
    current: set[Transaction] = set()
    given = [
        (block.first, block.last)
        for op in entry.operations
        if isinstance(op, AllocateProducerIds)
        and (block := after.blocks.get(op.first)) is not None
        and block.entry == entry.entry
    ]
    expired = {name for op in entry.operations if isinstance(op, Expire) for name in op.transactional_ids}
    for name in sorted(_named_ids(entry)):
        old, new = before.transactional_ids.get(name), after.transactional_ids.get(name)
        if name in expired:
            old = None  # what the same entry opens again is a new one
        elif new is None:
            yield f"I7 id {name}: it is gone"
        if new is None:
            continue
        current.add((new.producer_id, new.epoch))
        if old is None:
            given.append((new.producer_id, new.producer_id))
        elif old.producer_id != new.producer_id or old.epoch > new.epoch:
            yield f"I7 id {name}: {(old.producer_id, old.epoch)} becomes {(new.producer_id, new.epoch)}"
        yield from _check_status(name, new, after)
        for key in sorted(touched & (set(new.partitions) | set(old.partitions if old else ()))):
            opened = after.partition(key).open.get((new.producer_id, new.epoch))
            if new.partitions.get(key) != opened:
                yield (
                    f"I6 id {name}: it began at {new.partitions.get(key)} of {_name(key)}, which says "
                    f"{opened}"
                )
    for key in sorted(touched):
        begun = set(after.partition(key).open) - set(before.partition(key).open)
        if begun - current:
            yield f"I6 {_name(key)}: no id has the open transactions {sorted(begun - current)}"
    yield from _check_given(sorted(given), before.next_producer_id, after.next_producer_id)


def _check_owners_step(before: LogState, entry: CommitEntry, after: LogState) -> _Problems:
    """I7: producer ids have the transactional ids as owners that have them, for those that the entry names or
    expires.
    """
    expired = {name for op in entry.operations if isinstance(op, Expire) for name in op.transactional_ids}
    for name in sorted(_named_ids(entry) | expired):
        old, new = before.transactional_ids.get(name), after.transactional_ids.get(name)
        for number in {known.producer_id for known in (old, new) if known is not None}:
            expected = name if new is not None and new.producer_id == number else None
            if after.owners.get(number) != expected:
                yield f"I7 producer id {number}: its owner is {after.owners.get(number)}, expected {expected}"


def _check_given(given: list[tuple[int, int]], first: int, end: int) -> _Problems:
    """Ranges of producer ids that were given must follow each other from ``first`` to ``end`` (exclusive)."""
    position = first
    for low, high in given:
        if low != position or high < low:
            yield f"I7 producer ids {low} to {high} are given, expected from {position}"
        position = high + 1
    if position != end:
        yield f"I7 the next producer id is {end}, expected {position}"


def _check_apart(given: list[tuple[int, int]], end: int) -> _Problems:
    """No two ranges that are still known share a producer id, and all lie below ``end``; gaps have
    expired.
    """
    for (low, high), (following, _) in pairwise([*given, (end, end)]):
        if high < low or following <= high:
            yield f"I7 producer ids {low} to {high} are given, and {following} again"


def _check_producers(state: LogState) -> _Problems:
    remembered = {
        producer_id
        for partition in state.partitions.values()
        for producer_id, epoch in partition.sequences
        if (producer_id, epoch) not in partition.open
    }
    if remembered != set(state.producers):
        yield f"I17 producers {sorted(state.producers)} are known, sequences of {sorted(remembered)}"
    if any(producer_id >= state.next_producer_id for producer_id in state.producers):
        yield f"I17 a producer is known whose id was never given, below {state.next_producer_id}"
    if state.retired_below > state.next_producer_id:
        yield f"I17 ids below {state.retired_below} are retired, above those that were given"


def _check_producers_step(before: LogState, entry: CommitEntry, after: LogState) -> _Problems:
    used = {
        op.producer_id
        for op in entry.operations
        if isinstance(op, Append) and op.transactional_id is None and op.producer_id != NO_PRODUCER
    }
    gone = {number for op in entry.operations if isinstance(op, Expire) for number in op.producers}
    if deleted_in(entry):
        if not set(after.producers) <= (set(before.producers) | used) - gone:
            yield f"I17 entry {entry.entry}: a producer comes with the deletion of a topic"
        yield from _check_producers(after)
    elif any((number in after.producers) != (number not in gone) for number in used | gone) or len(
        after.producers
    ) != len(before.producers) + sum(number not in before.producers for number in used - gone) - sum(
        number in before.producers for number in gone
    ):
        yield (
            f"I17 entry {entry.entry}: the producers are not those before, {sorted(used)} and without "
            f"{sorted(gone)}"
        )
    if after.retired_below != max([before.retired_below, *(number + 1 for number in gone)]):
        yield f"I17 entry {entry.entry}: ids below {after.retired_below} are retired"


def _check_status(name: str, known: TransactionalIdState, state: LogState) -> _Problems:
    is_open = known.status in UNDECIDED
    holds = bool(known.partitions or known.staged or known.groups or known.subscriptions)
    # A prepared transaction stays open when all that it had was in topics that were deleted, or was given up.
    if (is_open != holds and known.status is not TransactionStatus.PREPARED) or is_open != (
        known.started_entry is not None
    ):
        yield f"I6 id {name}: it is {known.status} with {len(known.partitions)} partitions"
    if is_open != (name in state.undecided):
        yield f"I6 id {name}: it is {known.status}, but {'not ' if is_open else ''}among the undecided"
    if known.last_end is not None and known.last_end.epoch >= known.epoch:
        yield f"I7 id {name}: epoch {known.epoch} is not above its last end's {known.last_end.epoch}"
    yield from _check_staged(name, known, state)


def _check_staged(name: str, known: TransactionalIdState, state: LogState) -> _Problems:
    if known.staged and known.partitions:
        yield f"I16 id {name}: its transaction both appends and stages"
    ends: dict[TopicPartition, int] = {}
    for flush in known.staged:
        files = range(flush.first_file, flush.first_file + flush.file_count)
        if flush.table not in state.tables or any(number not in state.files for number in files):
            yield (
                f"I16 id {name}: table {flush.table} or files from {flush.first_file} of a stage are "
                "not there"
            )
        for part in flush.partitions:
            key = TopicPartition(flush.topic_id, part.partition)
            if part.base_sequence != ends.get(key, 0):
                yield (
                    f"I16 id {name}: sequence {part.base_sequence} of {_name(key)}, expected "
                    f"{ends.get(key, 0)}"
                )
            ends[key] = part.base_sequence + part.records
    windows = {key: window[-1].last_sequence + 1 for key, window in known.staged_sequences.items()}
    if windows != ends:
        yield f"I16 id {name}: the windows of what is staged end at {windows}, expected {ends}"


def _check_ids(state: LogState) -> _Problems:
    given = [(block.first, block.last) for block in state.blocks.values()]
    given += [(known.producer_id, known.producer_id) for known in state.transactional_ids.values()]
    yield from _check_apart(sorted(given), state.next_producer_id)
    yield from _check_producers(state)
    if state.owners != {known.producer_id: name for name, known in state.transactional_ids.items()}:
        yield "I7 owners: producer ids have other owners than the transactional ids say"
    opened: dict[tuple[TopicPartition, Transaction], int] = {}
    for name, known in sorted(state.transactional_ids.items()):
        yield from _check_status(name, known, state)
        for key, first in known.partitions.items():
            opened[key, (known.producer_id, known.epoch)] = first
    found = {
        (key, transaction): first
        for key, partition in state.partitions.items()
        for transaction, first in partition.open.items()
    }
    for where in sorted(opened.keys() | found.keys()):
        if opened.get(where) != found.get(where):
            key, transaction = where
            yield (
                f"I6 {_name(key)}: {transaction} is open from {found.get(where)}, "
                f"its id says {opened.get(where)}"
            )


def _check_window_step(before: LogState, entry: CommitEntry, after: LogState) -> _Problems:
    entries = after.window.entries
    if not entries or entries[-1] != entry.intents:
        yield f"I12 entry {entry.entry}: the window does not end with its intents"
    if after.window.first + len(entries) != after.entry + 1:
        yield f"I12 entry {entry.entry}: the window ends at another entry"
    known = set(chain.from_iterable(before.window.entries)).intersection(entry.intents)
    twice = known | {intent for intent, count in Counter(entry.intents).items() if count > 1}
    for intent in sorted(twice):
        yield f"I12 intent {intent}: it is in the window twice"


def _check_window(state: LogState) -> _Problems:
    window = state.window
    if window.first + len(window.entries) != state.entry + 1 or len(window.entries) > INTENT_WINDOW_ENTRIES:
        yield f"I12 window: {len(window.entries)} entries from {window.first} on, at entry {state.entry}"
    counts = Counter(intent for ids in window.entries for intent in ids)
    for intent in sorted(intent for intent, count in counts.items() if count > 1):
        yield f"I12 intent {intent}: it is in the window {counts[intent]} times"
