"""The judge of records in a simulated history: where each one is, who may see it, and who ended its transaction.

Kept by the rules of the specification alone, from the operations of the entries as they land: nothing here is taken from
the fold, and everything is compared with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from txnformat.core.entry import CommitEntry
from txnformat.core.groups.operations import CommitOffsets, DeleteGroup, JoinGroup
from txnformat.core.intents import EndTransaction, ExpireIdle, Intent, ProducerRef, RemoveTopic, Write
from txnformat.core.lifecycle.operations import DeleteTopic, Replace, Trim, VacuumMark
from txnformat.core.operations import (
    Append,
    Cause,
    EndTxn,
    Expire,
    InitProducer,
    Marker,
    Operation,
    PrepareTxn,
    Seal,
    Stage,
)
from txnformat.core.records.visibility import committed_mask
from txnformat.core.sealing.sidecar import BatchOutcome, decode_index
from txnformat.core.state import LogState
from txnformat.core.subscriptions.operations import Ack, CreateSubscription, DeleteSubscription
from txnformat.persistent import Rows
from txnformat.reading.sealed import SidecarCache
from txnformat.types import ObjectRecord, OffsetRange, Outcome, TopicPartition
from txnlog_testing.simulator.ack_ledger import AckLedger
from txnlog_testing.simulator.group_ledger import GroupLedger
from txnlog_testing.simulator.removal_ledger import RemovalLedger
from txnlog_testing.simulator.world import HistoryViolation, Sender

__all__ = ["Ledger"]

_OUTCOMES = {"plain": BatchOutcome.PLAIN, "commit": BatchOutcome.COMMITTED, "abort": BatchOutcome.ABORTED}
Transaction = tuple[int, int]
"""Producer id and epoch."""


@dataclass(slots=True)
class Data:
    """What one append or stage brought for one partition."""

    digest: str
    key: TopicPartition
    sequence: int
    records: int
    who: Transaction
    base: int | None
    """First offset; None while staged, and for good when that was aborted."""
    outcome: str
    """``plain``, ``open``, ``commit`` or ``abort``; ``gone``: it was open in a prepared transaction when its topic was deleted."""
    commit_entry: int = -1


class Ledger:
    """Every record of one history.

    Parameters
    ----------
    get : callable
        Returns a stored object, without faults.
    hits : Counter
        Counts what happened.
    """

    def __init__(self, get: Callable[[str], bytes | None], hits: Counter[str]) -> None:
        self._get = get
        self._hits = hits
        self._data: dict[str, Data] = {}
        """By digest."""
        self._of: dict[Transaction, list[Data]] = {}
        self._in: dict[TopicPartition, list[Data]] = {}
        """What has offsets, in their order."""
        self._ends: dict[TopicPartition, int] = {}
        self._stable: dict[TopicPartition, int] = {}
        self._ended: dict[TopicPartition, list[tuple[int, str, int]]] = {}
        """Of each partition's ended transactions, in the order of their markers: (first offset, outcome, marker)."""
        self._landed_ms: list[int] = []
        """True time at which each entry landed."""
        self._timeouts: dict[int, tuple[int, int]] = {}
        """By producer id: of transactions with offsets, and of those that stage."""
        self._timed: dict[Transaction, tuple[int, int, bool]] = {}
        """What an open transaction's time counts from: entry, its log time; and whether it stages."""
        self._prepared: set[Transaction] = set()
        self._intents: dict[str, Intent] = {}
        self._used_ms: dict[str | int, int] = {}
        """Log time of the last operation of a transactional id, or of a producer without one."""
        self._id_of: dict[str, int] = {}
        self.groups = GroupLedger(self._outcome_of, self._bounds, hits)
        self.acks = AckLedger(self._outcome_of, self._bounds, hits)
        self.removals = RemovalLedger(hits)
        self._compacted: set[tuple[TopicPartition, int]] = set()
        self._acknowledged: dict[Transaction, set[str]] = {}
        self.decisions: dict[Transaction, Outcome] = {}
        """What whoever decides prepared transactions has made up its mind to; kept elsewhere, it survives crashes."""

    # What callers are told.

    def called(self, intent: Intent) -> None:
        """Note what somebody asks for."""
        self._intents[intent.intent_id] = intent

    def acknowledged(self, intent: Intent) -> None:
        """Judge a success: all that its producer was told to be there in a committed transaction is there."""
        write = intent.action
        if not isinstance(write, Write) or write.producer is None or write.producer.transactional_id is None:
            return
        who = (write.producer.producer_id, write.producer.epoch)
        told = self._acknowledged.setdefault(who, set())
        told |= {part.digest for append in write.appends for part in append.partitions}
        if write.end is None:
            return
        for digest in sorted(told):
            data = self._data.get(digest)
            if write.end is Outcome.COMMIT and (data is None or data.outcome not in ("commit", "gone")):
                raise HistoryViolation(f"data {digest} of a committed transaction is lost: {data}")
            if write.end is Outcome.ABORT and data is not None and data.outcome not in ("abort", "gone"):
                raise HistoryViolation(f"data {digest} of an aborted transaction is there: {data}")

    def has_all(self, write: Write) -> bool:
        """Return whether everything that a write brings has landed."""
        return all(part.digest in self._data for append in write.appends for part in append.partitions)

    def _outcome_of(self, digest: str) -> str | None:
        data = self._data.get(digest)
        return None if data is None else data.outcome

    def _bounds(self, key: TopicPartition) -> tuple[int, int]:
        end = self._ends.get(key, 0)
        undecided = (one.base for one in self._in.get(key, ()) if one.outcome == "open")
        return min((base for base in undecided if base is not None), default=end), end

    # What lands.

    def adopt(self, now_ms: int) -> None:
        """Take over an entry of a past without records."""
        self._landed_ms.append(now_ms)

    def on_entry(self, entry: CommitEntry, after: LogState, sender: Sender, now_ms: int) -> None:
        """Judge an entry that has just landed at true time ``now_ms``."""
        self._landed_ms.append(now_ms)
        touched: set[TopicPartition] = set()
        for op in entry.operations:
            self._note_use(op, entry.timestamp_ms)
            self.removals.check_named(op)
            match op:
                case Append():
                    if op.transactional_id is not None:
                        place = (entry.entry, entry.timestamp_ms, False)
                        self._timed.setdefault((op.producer_id, op.epoch), place)
                    touched |= self._append(op, entry.entry)
                case Stage():
                    self._timed[op.producer_id, op.epoch] = (entry.entry, entry.timestamp_ms, True)
                    self._stage(op)
                case PrepareTxn():
                    self._prepared.add((op.producer_id, op.epoch))
                    self.groups.prepared((op.producer_id, op.epoch))
                    self._hits["prepared"] += 1
                case EndTxn():
                    self._check_end(op, entry, sender)
                    touched |= self._end(op, entry)
                case InitProducer():
                    touched |= self._init(op, entry)
                case Expire():
                    self._expire(op, entry)
                case Seal() | Replace():
                    self._check_segments(op)
                case Trim() | DeleteTopic() | VacuumMark():
                    self._remove(op, entry)
                case _:
                    self._concern_readers(op, entry)
        for key in sorted(touched & self._ends.keys()):
            self._check_visible(after, key)
        self.removals.check(after)
        self.groups.check(after)
        self.acks.check(after)

    def _concern_readers(self, op: Operation, entry: CommitEntry) -> None:
        """Judge what brings no record and ends nothing."""
        match op:
            case JoinGroup() | CommitOffsets() | DeleteGroup():
                self._note_open(op, entry)
                intent = self._intents.get(entry.intents[op.intent])
                self.groups.on_operation(op, entry, intent.action if intent is not None else None)
            case CreateSubscription() | DeleteSubscription() | Ack():
                self._note_open(op, entry)
                self.acks.on_operation(op)
            case _:
                pass

    def _note_open(self, op: object, entry: CommitEntry) -> None:
        """Note that a transaction is open from here on, if nothing of it was there before."""
        if isinstance(op, CommitOffsets | Ack) and op.transactional_id is not None:
            self._timed.setdefault((op.producer_id, op.epoch), (entry.entry, entry.timestamp_ms, False))

    def _note_use(self, op: object, now_ms: int) -> None:
        match op:
            case Append() | CommitOffsets() | Ack() if op.transactional_id is None:
                if op.producer_id >= 0:
                    self._used_ms[op.producer_id] = now_ms
            case Append() | CommitOffsets() | Ack() | Stage() | PrepareTxn() | EndTxn() | InitProducer():
                self._used_ms[op.transactional_id or ""] = now_ms
                self._id_of[op.transactional_id or ""] = op.producer_id
            case _:
                pass

    def _expire(self, op: Expire, entry: CommitEntry) -> None:
        """Check that nobody is forgotten who has something open, or was there after the intent's cutoff."""
        intent = self._intents[entry.intents[op.intent]]
        assert isinstance(intent.action, ExpireIdle)
        undecided = {producer_id for producer_id, _ in (*self._timed, *self._prepared)}
        for name in op.transactional_ids:
            if self._used_ms.pop(name) > intent.action.id_cutoff_ms or self._id_of[name] in undecided:
                raise HistoryViolation(f"transactional id {name} is forgotten before its time")
            self._hits["transactional id expired"] += 1
        for producer_id in op.producers:
            if self._used_ms.pop(producer_id) > intent.action.cutoff_ms:
                raise HistoryViolation(f"producer {producer_id} is forgotten before its time")
        self.groups.expired(op, intent.action.group_cutoff_ms)

    def _init(self, op: InitProducer, entry: CommitEntry) -> set[TopicPartition]:
        self._timeouts[op.producer_id] = (op.timeout_ms, op.deferred_timeout_ms)
        who = (op.producer_id, op.epoch - 1)
        self._timed.pop(who, None)
        self.groups.ended(who, "abort", "init", entry.timestamp_ms)
        self.acks.ended(who, "abort")
        if who in self._prepared:
            raise HistoryViolation(f"an init ended a prepared transaction: {op}")
        if who not in self._of:
            return set()
        self._hits["init aborted a transaction"] += 1
        return self._decide(who, "abort", op.aborted, entry.entry)

    def _append(self, op: Append, entry: int) -> set[TopicPartition]:
        who = (op.producer_id, op.epoch)
        for part in op.partitions:
            key = TopicPartition(op.topic_id, part.partition)
            outcome = "plain" if op.transactional_id is None else "open"
            data = Data(part.digest, key, part.base_sequence, part.records, who, None, outcome, entry)
            self._add(data)
            self._place(data, part.base_offset)
        return {TopicPartition(op.topic_id, part.partition) for part in op.partitions}

    def _stage(self, op: Stage) -> None:
        self._hits["staged"] += 1
        for part in op.partitions:
            key = TopicPartition(op.topic_id, part.partition)
            who = (op.producer_id, op.epoch)
            self._add(Data(part.digest, key, part.base_sequence, part.records, who, None, "open"))

    def _add(self, data: Data) -> None:
        if data.digest in self._data:
            raise HistoryViolation(f"data {data.digest} is in the log twice")
        self._data[data.digest] = data
        if data.outcome == "open":
            self._of.setdefault(data.who, []).append(data)

    def _place(self, data: Data, base: int) -> None:
        end = self._ends.get(data.key, 0)
        if base != end:
            raise HistoryViolation(
                f"data {data.digest} is placed at {base}, the log of {data.key} ends at {end}"
            )
        data.base = base
        self._in.setdefault(data.key, []).append(data)
        self._ends[data.key] = base + data.records

    def _end(self, op: EndTxn, entry: CommitEntry) -> set[TopicPartition]:
        who = (op.producer_id, op.epoch)
        self.groups.ended(who, op.outcome.value, op.cause.value, entry.timestamp_ms)
        self.acks.ended(who, op.outcome.value)
        if op.outcome is Outcome.COMMIT:
            staged = [one for one in self._of.get(who, ()) if one.base is None and one.outcome == "open"]
            totals: Counter[TopicPartition] = Counter()
            for one in staged:
                totals[one.key] += one.records
            if totals != {part.topic_partition: part.records for part in op.placed}:
                raise HistoryViolation(f"{op} does not place what was staged: {totals}")
            for part in op.placed:
                base = part.base_offset
                for one in staged:
                    if one.key == part.topic_partition:
                        self._place(one, base)
                        base += one.records
            self._hits["placed what was staged"] += bool(staged)
        return self._decide(who, op.outcome.value, op.markers, entry.entry)

    def _decide(
        self, who: Transaction, outcome: str, markers: tuple[Marker, ...], entry: int
    ) -> set[TopicPartition]:
        first: dict[TopicPartition, int] = {}
        self._prepared.discard(who)
        self._timed.pop(who, None)
        for one in self._of.pop(who, ()):
            one.outcome, one.commit_entry = outcome, entry
            if one.base is not None:
                first.setdefault(one.key, one.base)
        if {marker.topic_partition for marker in markers} != set(first):
            raise HistoryViolation(
                f"transaction {who} is marked in {markers}, not where its records are: {first}"
            )
        for marker in markers:
            end = self._ends[marker.topic_partition]
            if marker.offset != end:
                raise HistoryViolation(f"{marker} is not at the log end {end}")
            self._ends[marker.topic_partition] = end + 1
            ended = self._ended.setdefault(marker.topic_partition, [])
            ended.append((first[marker.topic_partition], outcome, end))
        return set(first)

    def _check_end(self, op: EndTxn, entry: CommitEntry, sender: Sender) -> None:
        """Check that somebody who may end a transaction asked for just this end."""
        who = (op.producer_id, op.epoch)
        was_prepared = who in self._prepared
        intent = self._intents.get(entry.intents[op.intent])
        action = intent.action if intent is not None else None
        self._hits[f"ended by {op.cause}"] += 1
        if op.cause is Cause.PRODUCER:
            ref = ProducerRef(*who, op.transactional_id)
            if not isinstance(action, Write) or (action.producer, action.end) != (ref, op.outcome):
                raise HistoryViolation(f"{op} is the doing of {action}")
            if was_prepared:
                self._hits["ended what was prepared"] += 1
                if self.decisions.get(who) is not op.outcome:
                    raise HistoryViolation(f"{op}, but it was decided: {self.decisions.get(who)}")
        elif op.cause is Cause.OPERATOR and isinstance(action, RemoveTopic):
            touches = any(one.key.topic_id == action.topic_id for one in self._of.get(who, ()))
            if not action.force or was_prepared or not touches:
                raise HistoryViolation(f"{op} is the doing of {action}")
            self._hits["ended by the deletion of a topic"] += 1
        elif op.cause is Cause.OPERATOR:
            if not isinstance(action, EndTransaction) or action.cause is not Cause.OPERATOR:
                raise HistoryViolation(f"{op} is the doing of {action}")
            if was_prepared and not action.force:
                raise HistoryViolation(f"{op} ends what is prepared without force")
            self._hits["ended by force"] += was_prepared
        elif was_prepared:
            raise HistoryViolation(f"{op} ends what is prepared")
        else:
            self._check_timeout(op, entry, sender)

    def _check_timeout(self, op: EndTxn, entry: CommitEntry, sender: Sender) -> None:
        """Check one of the two proofs by true clocks."""
        who = (op.producer_id, op.epoch)
        if who not in self._timed:
            raise HistoryViolation(f"{op} ends what is not open")
        timed_entry, since_ms, stages = self._timed[who]
        allowed = self._timeouts[op.producer_id][stages]
        # A clock that jumped back after it was read is no proof against what it said then.
        by_store = sender.latest_ms >= since_ms + allowed
        landed_ms = self._landed_ms[timed_entry]
        by_watching = sender.counts_suspended_time and sender.sent_ms - landed_ms >= allowed
        if not by_store and not by_watching:
            raise HistoryViolation(
                f"{op} comes before its time: {allowed} ms from {since_ms}, which landed at {landed_ms}; {sender}"
            )
        self._hits["timed out by the store's time" if by_store else "timed out by watching"] += 1
        self._hits["staged records timed out"] += stages
        self._hits["timed out in a log whose time ran ahead"] += (
            entry.timestamp_ms > max(sender.store_times) + 30_000
        )

    def _remove(self, op: Trim | DeleteTopic | VacuumMark, entry: CommitEntry) -> None:
        match op:
            case Trim():
                for part in op.partitions:
                    key = TopicPartition(op.topic_id, part.partition)
                    committed = [
                        (one.base, one.base + one.records, one.commit_entry)
                        for one in self._in.get(key, ())
                        if one.base is not None and one.outcome in ("plain", "commit")
                    ]
                    self.removals.trim(op, part, committed, self._bounds(key)[0])
            case DeleteTopic():
                self._delete(op, self._intents[entry.intents[op.intent]])
            case VacuumMark():
                self.removals.mark(op, entry.entry)

    def _delete(self, op: DeleteTopic, intent: Intent) -> None:
        """Forget a topic: only prepared transactions, which the operation and its user name, may have had something open in it."""
        action = intent.action
        if not isinstance(action, RemoveTopic) or not {*op.prepared} <= {*action.prepared}:
            raise HistoryViolation(f"{op} is the doing of {action}")
        named = {self._id_of[name] for name in op.prepared}
        for who, held in self._of.items():
            here = [one for one in held if one.key.topic_id == op.topic_id]
            if here and (who not in self._prepared or who[0] not in named):
                raise HistoryViolation(f"{op} takes {here} from transaction {who}")
            for one in here:
                one.outcome = "gone"
            held[:] = [one for one in held if one.outcome != "gone"]
            self._hits["prepared transaction lost a topic"] += bool(here)
        for known in (self._in, self._ends, self._stable, self._ended):
            for key in [key for key in known if key.topic_id == op.topic_id]:
                del known[key]
        self.removals.forget(op.topic_id)
        self._hits["topic deleted"] += 1

    # What readers see.

    def _check_visible(self, state: LogState, key: TopicPartition) -> None:
        """Compare what read_committed shows of a partition, above its sealed end, with what it must show."""
        partition = state.partition(key)
        here = self._in.get(key, [])
        undecided = [one.base for one in here if one.outcome == "open" and one.base is not None]
        stable = min(undecided, default=self._ends[key])
        if (partition.log_end, partition.last_stable_offset) != (self._ends[key], stable):
            raise HistoryViolation(
                f"{key} has log end and LSO {partition.log_end}, {partition.last_stable_offset}, "
                f"not {self._ends[key]}, {stable}"
            )
        if stable < self._stable.get(key, 0):
            raise HistoryViolation(f"the LSO of {key} went back from {self._stable[key]} to {stable}")
        self._stable[key] = stable
        extents = partition.extents.array()
        extents = extents[extents["base_offset"] < stable]
        mask = committed_mask(
            extents["base_offset"],
            extents["base_offset"] + extents["records"] - 1,
            extents["producer_id"],
            extents["transactional"].astype(np.bool_),
            partition.aborted.array(),
        )
        # One row for each: what clients append here is never more than one batch of a partition.
        shown = extents[["base_offset", "base_sequence", "records"]][mask].tolist()
        right = [
            (one.base, one.sequence, one.records)
            for one in here
            if one.base is not None
            and partition.sealed_end <= one.base < stable
            and one.outcome in ("plain", "commit")
        ]
        if shown != right:
            raise HistoryViolation(f"read_committed shows {shown} of {key}, not {right}")

    def _check_segments(self, op: Seal | Replace) -> None:
        if isinstance(op, Seal):
            self._check_seal(op)
        else:
            self._check_replace(op)

    def _check_seal(self, seal: Seal) -> None:
        """Check what the sidecars say of each record, and note seams that transactions cross."""
        for segment in seal.segments:
            named: ObjectRecord = segment.record.index
            index = decode_index(self._get(named.key), named)
            for part in segment.partitions:
                key = TopicPartition(segment.record.topic_id, part.partition)
                rows = index.partition(part.partition)
                told = {
                    offset: int(row["outcome"])
                    for row in rows
                    for offset in range(int(row["base_offset"]), int(row["base_offset"] + row["records"]))
                }
                right = {
                    offset: int(_OUTCOMES[one.outcome])
                    for one in self._in.get(key, ())
                    if one.base is not None and part.start_offset <= one.base < part.end_offset
                    for offset in range(one.base, one.base + one.records)
                }
                if told != right:
                    raise HistoryViolation(f"a segment of {key} says {told}, not {right}")
                over = [
                    outcome
                    for first, outcome, marker in self._ended.get(key, ())
                    if first < part.end_offset <= marker
                ]
                if "abort" in over and "commit" in over[over.index("abort") :]:
                    self._hits["abort before a commit over a seal's seam"] += 1

    def _check_sealed(self, state: LogState, key: TopicPartition, sidecars: SidecarCache) -> None:
        """Compare what the segments of a partition show, from its log start on, with what was committed there."""
        partition = state.partition(key)
        wanted = OffsetRange(partition.log_start, partition.sealed_end)
        shown: set[int] = set()
        for part in sidecars.segments(state, key, wanted):
            index = sidecars.index(part.record.index)
            if index.is_compacted:
                shown |= _offsets(index.runs_of(key.partition, part.range))
                continue
            rows = index.partition(key.partition)
            for row in rows[rows["outcome"] != int(BatchOutcome.ABORTED)]:
                shown |= set(range(int(row["base_offset"]), int(row["base_offset"] + row["records"])))
        right = self._committed(key)
        if shown & set(range(*wanted)) != right & set(range(*wanted)):
            raise HistoryViolation(f"the segments of {key} show {sorted(shown)}, not {sorted(right)}")

    def _committed(self, key: TopicPartition) -> set[int]:
        return {
            offset
            for one in self._in.get(key, ())
            if one.base is not None and one.outcome in ("plain", "commit")
            for offset in range(one.base, one.base + one.records)
        }

    def _check_replace(self, op: Replace) -> None:
        """Check that compacted segments have all committed records of their ranges from the log start on, and no others."""
        for segment in op.segments:
            index = decode_index(self._get(segment.index.key), segment.index)
            for part in segment.partitions:
                key = TopicPartition(op.topic_id, part.partition)
                told = _offsets(
                    index.runs_of(part.partition, OffsetRange(part.start_offset, part.end_offset))
                )
                committed = self._committed(key) & set(range(part.start_offset, part.end_offset))
                left = {offset for offset in committed if offset >= self.removals.start(key)}
                if not left <= told <= committed:
                    raise HistoryViolation(f"a compacted segment of {key} has {told}, not {committed}")
                self._hits["compacted"] += 1
                self._hits["compacted once more"] += (key, part.start_offset) in self._compacted
                self._compacted.add((key, part.start_offset))

    def check_end(self, state: LogState, sidecars: SidecarCache) -> None:
        """Compare all partitions once more, what is sealed included; and no batch table may be left that nothing refers to."""
        for key in sorted(self._in):
            self._check_visible(state, key)
            self._check_sealed(state, key, sidecars)
        used = {flush.table for known in state.transactional_ids.values() for flush in known.staged}
        for partition in state.partitions.values():
            used |= set(partition.extents.array()["table"].tolist()) - {-1}
        if set(state.tables.numbers()) != used:
            raise HistoryViolation(
                f"the state has the tables {list(state.tables.numbers())}, and needs {used}"
            )


def _offsets(runs: Rows) -> set[int]:
    """Return the offsets of runs of which each is one batch, without gaps."""
    return {offset for run in runs for offset in range(int(run["start_offset"]), int(run["end_offset"]))}
