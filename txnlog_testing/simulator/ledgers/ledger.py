"""The judge of records in a simulated history: where each one is, who may see it, and who ended its
transaction.

Kept by the rules of the specification alone, from the operations of the entries as they land: nothing here is
taken from the fold, and everything is compared with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from txnformat.core.entry import CommitEntry
from txnformat.core.groups.operations import CommitOffsets, DeleteGroup, JoinGroup
from txnformat.core.intents import (
    ExpireIdle,
    FreePartitions,
    Intent,
    RemoveTopic,
    Write,
)
from txnformat.core.lifecycle.operations import (
    AbandonErasure,
    AdvanceErasure,
    CompleteErasure,
    DeleteTopic,
    Replace,
    RequestErasure,
    Trim,
    VacuumMark,
)
from txnformat.core.operations import (
    Append,
    EndTxn,
    Expire,
    GiveUp,
    InitProducer,
    Marker,
    Operation,
    PrepareTxn,
    Seal,
    Stage,
    Upgrade,
)
from txnformat.core.state import EMBEDDING, LogState
from txnformat.core.subscriptions.operations import Ack, CreateSubscription, DeleteSubscription
from txnformat.reading.sealed import SidecarCache
from txnformat.types import Outcome, TopicPartition
from txnlog_testing.simulator.ledgers.acks import AckLedger
from txnlog_testing.simulator.ledgers.ends import Data, EndJudge, Transaction
from txnlog_testing.simulator.ledgers.groups import GroupLedger
from txnlog_testing.simulator.ledgers.removals import RemovalLedger
from txnlog_testing.simulator.ledgers.rewrites import RewriteLedger
from txnlog_testing.simulator.ledgers.visible import VisibleJudge
from txnlog_testing.simulator.world import HistoryViolation, Sender

__all__ = ["Ledger"]


class Ledger(EndJudge, VisibleJudge):
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
        """Data by digest."""
        self._of: dict[Transaction, list[Data]] = {}
        self._in: dict[TopicPartition, list[Data]] = {}
        """The parts that have offsets, in their order."""
        self._ends: dict[TopicPartition, int] = {}
        self._stable: dict[TopicPartition, int] = {}
        self._ended: dict[TopicPartition, list[tuple[int, str, int]]] = {}
        """For each partition the ended transactions, in the order of their markers: (first offset, outcome,
        marker)."""
        self._landed_ms: list[int] = []
        self._begins_embedding = False
        """True time at which each entry landed."""
        self._timeouts: dict[int, tuple[int, int]] = {}
        """Timeouts by producer id: of transactions with offsets, and of those that stage."""
        self._timed: dict[Transaction, tuple[int, int, bool]] = {}
        """The entry from which an open transaction's time counts, its log time, and whether the transaction
        stages."""
        self._prepared: set[Transaction] = set()
        self._intents: dict[str, Intent] = {}
        self._used_ms: dict[str | int, int] = {}
        """Log time of the last operation of a transactional id, or of a producer without one."""
        self._id_of: dict[str, int] = {}
        self.groups = GroupLedger(self._outcome_of, self._bounds, hits)
        self.acks = AckLedger(self._outcome_of, self._bounds, hits)
        self.removals = RemovalLedger(hits)
        self.rewrites: RewriteLedger | None = None
        """The rewrites of a history whose files hold records; None: of any other."""
        self._compacted: set[tuple[TopicPartition, int]] = set()
        self._acknowledged: dict[Transaction, set[str]] = {}
        self.decisions: dict[Transaction, Outcome] = {}
        """The outcomes on which the decider of prepared transactions has settled; kept elsewhere, they
        survive crashes."""

    # The answers to callers.

    def called(self, intent: Intent) -> None:
        """Note the request of a client."""
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
            if write.end is Outcome.COMMIT and (
                data is None or (data.outcome not in ("commit", "gone") and not data.given_up)
            ):
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

    # The entries that land.

    def adopt(self, now_ms: int) -> None:
        """Take over an entry of a past without records."""
        self._landed_ms.append(now_ms)

    def on_entry(self, entry: CommitEntry, after: LogState, sender: Sender, now_ms: int) -> None:
        """Judge an entry that has just landed at true time ``now_ms``."""
        self._landed_ms.append(now_ms)
        self._note_first(entry)
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
                case EndTxn() | GiveUp():
                    touched |= self._finish(op, entry, sender)
                case InitProducer():
                    touched |= self._init(op, entry)
                case Expire():
                    self._expire(op, entry)
                case Seal():
                    self._check_seal(op)
                case Trim() | DeleteTopic() | VacuumMark():
                    self._remove(op, entry)
                case _:
                    self._rewrite(op, entry, after)
        for key in sorted(touched & self._ends.keys()):
            self._check_visible(after, key)
        self.removals.check(after)
        self.groups.check(after)
        self.acks.check(after)

    def _rewrite(self, op: Operation, entry: CommitEntry, after: LogState) -> None:
        """Judge what writes records anew, or leaves some out."""
        match op:
            case Replace():
                self._check_replace(op, entry, after)
            case RequestErasure() | AdvanceErasure() | CompleteErasure() | AbandonErasure():
                assert self.rewrites is not None
                self.rewrites.on_erasure(op, entry, after, frozenset(self._timed))
            case _:
                self._concern_readers(op, entry)

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
        """Check that no producer is forgotten that has something open, or was active after the intent's
        cutoff.
        """
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

    def _note_first(self, entry: CommitEntry) -> None:
        for op in entry.operations if entry.entry == 0 else ():
            if isinstance(op, Upgrade):
                self._begins_embedding = EMBEDDING in op.reader
                self._hits["begins without embedding"] += not self._begins_embedding

    def _append(self, op: Append, entry: int) -> set[TopicPartition]:
        who = (op.producer_id, op.epoch)
        if any(file.place is not None for file in op.files):
            self._hits["embedded"] += 1
            self._hits["embedded where the first entry allows it"] += self._begins_embedding
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
        if self.rewrites is not None:
            self.rewrites.landed(data.digest, len(self._landed_ms) - 1, data.who)
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

    def _finish(self, op: EndTxn | GiveUp, entry: CommitEntry, sender: Sender) -> set[TopicPartition]:
        if isinstance(op, GiveUp):
            return self._give_up(op, entry)
        self._check_end(op, entry, sender)
        return self._end(op, entry)

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
        return self._mark(who, first, outcome, markers)

    def _mark(
        self,
        who: Transaction,
        first: dict[TopicPartition, int],
        outcome: str,
        markers: tuple[Marker, ...],
    ) -> set[TopicPartition]:
        """Judge and place the markers of a transaction. ``first``: its first offsets where it ends."""
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

    def _give_up(self, op: GiveUp, entry: CommitEntry) -> set[TopicPartition]:
        """Take from a prepared transaction what an operator gives up by its name."""
        who = (op.producer_id, op.epoch)
        intent = self._intents[entry.intents[op.intent]]
        action = intent.action
        lost = {marker.topic_partition for marker in op.markers}
        first: dict[TopicPartition, int] = {}
        for one in [one for one in self._of.get(who, ()) if one.key in lost and one.base is not None]:
            one.outcome, one.commit_entry, one.given_up = "abort", entry.entry, True
            self._of[who].remove(one)
            first.setdefault(one.key, one.base or 0)
        ends = dict(action.ends) if isinstance(action, FreePartitions) else {}
        if (
            who not in self._prepared
            or not isinstance(action, FreePartitions)
            or op.transactional_id not in action.prepared
            or any(
                key.topic_id != action.topic_id or base >= ends.get(key.partition, 0)
                for key, base in first.items()
            )
        ):
            raise HistoryViolation(f"{op} takes {first} for {action}")
        self._hits["prepared transaction lost a partition"] += 1
        return self._mark(who, first, "abort", op.markers)

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
                    if self.rewrites is not None:
                        # Compaction has cut batches, and put records of several entries together.
                        gone = self.rewrites.gone_of(key)
                        committed = [
                            (offset, offset + 1, known.commit_entry)
                            for offset, known in self.committed_rows(key).items()
                            if offset not in gone
                        ]
                    self.removals.trim(
                        op, part, committed, self._bounds(key)[0], is_exact=self.rewrites is None
                    )
            case DeleteTopic():
                self._delete(op, self._intents[entry.intents[op.intent]])
            case VacuumMark():
                self.removals.mark(op, entry.entry)

    def _delete(self, op: DeleteTopic, intent: Intent) -> None:
        """Forget a topic: only prepared transactions, which the operation and its user name, may have had
        something open in it.
        """
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

    def check_end(self, state: LogState, sidecars: SidecarCache) -> None:
        """Compare all partitions once more, what is sealed included; and no batch table may be left that
        nothing refers to.
        """
        for key in sorted(self._in):
            self._check_visible(state, key)
            self._check_sealed(state, key, sidecars)
        used = {flush.table for known in state.transactional_ids.values() for flush in known.staged}
        for partition in state.partitions.values():
            used |= set(partition.extents.array()["table"].tolist()) - {-1}
            used |= {spill.table for spill in partition.spills}
        if set(state.tables.numbers()) != used:
            raise HistoryViolation(
                f"the state has the tables {list(state.tables.numbers())}, and needs {used}"
            )
