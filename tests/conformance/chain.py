"""A log in memory for conformance tests: real intents decided, every entry's bytes and every state kept."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from itertools import count
from typing import Any

import msgspec

from txnformat.client.driver import Driver
from txnformat.clock import SystemClock
from txnformat.core.assemble import assemble
from txnformat.core.entry import sha256_hex
from txnformat.core.intents import (
    Action,
    Included,
    Intent,
    OpenProducer,
    ProducerRef,
    Rejected,
    SealSegments,
    Verdict,
    Write,
)
from txnformat.core.invariants import check_whole
from txnformat.core.operations import Checkpoint, Seal
from txnformat.core.records.state import PartitionState
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot, state_digest
from txnformat.core.state import LogState
from txnformat.core.transactions.abort_index import AbortedTransaction
from txnformat.errors import TxnLogError
from txnformat.keys import snapshot_key
from txnformat.persistent import Columns, Vector
from txnformat.protocol.follow import fold_bytes
from txnformat.protocol.sealing import write_segments
from txnformat.reading.plan import plan_read
from txnformat.reading.sealed import SidecarCache
from txnformat.store.memory import MemoryStore
from txnformat.types import IsolationLevel, ObjectRecord, Outcome, TopicPartition
from txnlog_testing.seal_of import CountedIds
from txnlog_testing.strategies import make_append, make_topic

__all__ = ["ABORT", "COMMIT", "LOG_ID", "ORDERS", "Chain"]

LOG_ID = "0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11"
ORDERS = make_topic("orders")
COMMIT, ABORT = Outcome.COMMIT, Outcome.ABORT


class Chain:
    """A log with the topic ``orders`` of three partitions.

    Attributes
    ----------
    states : list of LogState
        After each entry; ``states[n]`` is the one after entry n.
    entries : list of bytes
        By number.
    now_ms : int
        Store time, milliseconds since the epoch; tests advance it.
    store : MemoryStore
        Holds the sidecars of seals; nothing else is stored.
    """

    def __init__(self, *producers: str) -> None:
        self.empty = LogState(LOG_ID, entry_sha256=sha256_hex(b"format"))
        self.states: list[LogState] = []
        self.entries: list[bytes] = []
        self.now_ms = 1_700_000_000_000
        self.store = MemoryStore()
        self._driver = Driver(self.store, SystemClock(), CountedIds())
        self._numbers = count()
        self._sequences: dict[tuple[int, int, int], int] = {}
        self.do(ORDERS, *map(OpenProducer, producers))

    @property
    def state(self) -> LogState:
        """The newest state."""
        return self.states[-1] if self.states else self.empty

    def intent(self, action: Action) -> Intent:
        """Return an intent that is sent to the next slot."""
        return Intent(f"intent {next(self._numbers)}", self.state.entry + 1, action)

    def group(self, *actions: Action) -> list[Verdict]:
        """Commit those actions that can be in one entry, and return what became of each."""
        intents = [self.intent(action) for action in actions]
        made = assemble(self.state, intents, store_time_ms=self.now_ms, write_id=f"write {len(self.entries)}")
        if made.entry is not None:
            self.entries.append(made.data)
            self.states.append(fold_bytes(self.state, made.data))
        return [made.verdicts[intent.intent_id] for intent in intents]

    def decide(self, action: Action) -> Verdict:
        """Commit one action if it can be, and return what became of it."""
        (verdict,) = self.group(action)
        return verdict

    def do(self, *actions: Action) -> None:
        """Commit actions, an entry for each."""
        for action in actions:
            verdict = self.decide(action)
            assert isinstance(verdict, Included), verdict

    def refusal(self, action: Action) -> TxnLogError:
        """Return why an action is refused. Nothing is written."""
        entries = len(self.entries)
        verdict = self.decide(action)
        assert isinstance(verdict, Rejected), verdict
        assert len(self.entries) == entries
        return verdict.error

    def producer(self, name: str) -> ProducerRef:
        """Return the current identity of a transactional id."""
        known = self.state.transactional_ids[name]
        return ProducerRef(known.producer_id, known.epoch, name)

    def write(
        self,
        producer: ProducerRef | None,
        records: int,
        *,
        sequence: int | None = None,
        partitions: tuple[int, ...] = (0,),
        content: str = "",
        end: Outcome | None = None,
    ) -> Write:
        """Return a write of ``records`` to each partition; its sequences follow the last write's by
        default.
        """
        parts: dict[int, tuple[int, int]] = {}
        for partition in partitions:
            first = -1
            if producer is not None:
                who = (producer.producer_id, producer.epoch, partition)
                first = self._sequences.get(who, 0) if sequence is None else sequence
                self._sequences[who] = first + records
            parts[partition] = (first, records)
        append = make_append(
            ORDERS,
            parts,
            content=content or f"rows {next(self._numbers)}",
            records_per_batch=records,
        )
        return Write(producer, (append,), end)

    def send(self, name: str | None, records: int, *partitions: int) -> int:
        """Append for a transactional id (None: without a producer); returns its first offset in the first
        partition."""
        number = (partitions or (0,))[0]
        offset = self.partition(number).log_end
        producer = None if name is None else self.producer(name)
        self.do(self.write(producer, records, partitions=partitions or (0,)))
        return offset

    def end(self, name: str, outcome: Outcome) -> int:
        """End the transaction of an id; returns the offset after its marker in partition 0."""
        self.do(Write(self.producer(name), end=outcome))
        return self.partition().log_end

    def partition(self, number: int = 0) -> PartitionState:
        """Return a partition of the newest state."""
        return self.state.partition(TopicPartition(ORDERS.topic_id, number))

    def stable(self, number: int = 0) -> int:
        """Return the last stable offset."""
        return self.partition(number).last_stable_offset

    def index(self, state: LogState | None = None, number: int = 0) -> list[AbortedTransaction]:
        """Return the abort index of a partition, of the newest state by default."""
        rows = (state or self.state).partition(TopicPartition(ORDERS.topic_id, number)).aborted.array()
        fields = ["producer_id", "first_offset", "last_offset", "last_stable_offset"]
        return [AbortedTransaction(*row) for row in rows[fields].tolist()]

    def offsets(
        self,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        *,
        state: LogState | None = None,
        start: int | None = None,
        end: int | None = None,
    ) -> list[int]:
        """Return the offsets of the records of partition 0 that a reader gets, out of sealed segments too."""
        plan = plan_read(
            SidecarCache(self.store),
            state or self.state,
            "orders",
            isolation=isolation,
            start=None if start is None else {0: start},
            end=None if end is None else {0: end},
            partitions=[0],
        )
        return [
            int(row["base_offset"]) + number
            for part in plan.partitions
            for row in part.rows
            for number in range(int(row["take"]))
        ]

    def seal(self) -> Seal:
        """Seal everything that can be sealed, and commit it."""
        seal = self._driver.run(write_segments(self.state))
        assert seal is not None
        self.do(SealSegments(seal))
        return seal

    def sidecar(self, named: ObjectRecord | None) -> bytes:
        """Return the bytes of a sidecar."""
        assert named is not None
        data = self.store.get(named.key)
        assert data is not None
        return data

    def folded(self, entry: int | None = None) -> LogState:
        """Return the state after ``entry``, folded again from the bytes of entry 0 on."""
        state = self.empty
        for data in self.entries[: None if entry is None else entry + 1]:
            state = fold_bytes(state, data)
        return state

    def reopened(self, snapshot_at: int) -> LogState:
        """Return the newest state as a process has it that opens the log from a snapshot and the entries
        after it."""
        data = encode_snapshot(self.states[snapshot_at])
        state = decode_snapshot(data, self.checkpoint(snapshot_at), LOG_ID)
        for tail in self.entries[snapshot_at + 1 :]:
            state = fold_bytes(state, tail)
        return state

    def checkpoint(self, entry: int) -> Checkpoint:
        """Return the operation that names the snapshot of the state after ``entry``."""
        data = encode_snapshot(self.states[entry])
        digest = state_digest(self.states[entry])
        return Checkpoint(entry, snapshot_key(entry, LOG_ID), len(data), sha256_hex(data), digest)

    def check_reopening(self) -> None:
        """Check that the newest state is the same from every snapshot and from entry 0, and keeps every
        invariant."""
        expected = _plain(self.state)
        assert _plain(self.folded()) == expected
        for entry in range(len(self.entries)):
            assert _plain(self.reopened(entry)) == expected, entry
        assert check_whole(self.state) == []


def _plain(value: Any) -> Any:
    """Return a state as values that compare field by field: a digest would only say what a snapshot says."""
    if isinstance(value, Columns):
        return value.array().tolist()
    if isinstance(value, Vector):
        return list(value)
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value) if one.compare}
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    return value
