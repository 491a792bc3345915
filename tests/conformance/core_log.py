"""A log in memory as the coordinator's tests need it: several intents in one entry, ids by name, every
epoch.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.conformance.chain import ABORT, COMMIT, ORDERS, Chain
from txnformat import keys
from txnformat.core.assemble import Assembled, assemble
from txnformat.core.intents import (
    Action,
    Done,
    EndTransaction,
    Included,
    Intent,
    OpenProducer,
    ProducerRef,
    TopicAppend,
    Write,
)
from txnformat.core.invariants import check_whole
from txnformat.core.operations import Cause, Operation
from txnformat.core.state import LogState
from txnformat.core.transactions.state import TransactionalIdState
from txnformat.persistent import replace
from txnformat.protocol.follow import fold_bytes
from txnformat.types import ObjectRecord, Outcome, TopicPartition
from txnlog_testing.strategies import make_append, make_topic

__all__ = ["ABORT", "AUDIT", "COMMIT", "NAME", "ORDERS", "CoreLog", "kinds", "orders", "rows", "staged"]

NAME = "etl"
AUDIT = make_topic("audit")


def rows(*partitions: int, sequence: int = 0, records: int = 2) -> tuple[TopicAppend, ...]:
    """Return an append to partitions of ``orders``, 0 by default."""
    parts = dict.fromkeys(partitions or (0,), (sequence, records))
    return (make_append(ORDERS, parts, content=f"{partitions} {sequence} {records}"),)


def staged(*partitions: int, sequence: int = 0, records: int = 2) -> tuple[TopicAppend, ...]:
    """Return the same in the form in which it can be staged: its batches are in a table."""
    (append,) = rows(*partitions, sequence=sequence, records=records)
    table = ObjectRecord(keys.table_key(0, append.files[0].key[-44:-8]), 100, "cd" * 32)
    return (replace(append, batches=(), table=table),)


def kinds(operations: Iterable[Operation]) -> list[str]:
    """Return the names of the operations' types."""
    return [type(operation).__name__ for operation in operations]


class CoreLog(Chain):
    """A chain with the topics ``orders`` and ``audit``; each state is held against the invariants."""

    def __init__(self, *actions: Action) -> None:
        super().__init__()
        self.do(AUDIT, *actions)

    def assemble(self, *intents: Intent) -> Assembled:
        """Commit what waits together, in one entry."""
        made = assemble(self.state, intents, store_time_ms=self.now_ms, write_id=f"write {len(self.entries)}")
        if made.entry is not None:
            self.entries.append(made.data)
            self.states.append(fold_bytes(self.state, made.data))
            assert check_whole(self.state) == []
        return made

    def apply(self, action: Action) -> tuple[Operation, ...]:
        """Commit what must be accepted; return its operations."""
        intent = self.intent(action)
        verdict = self.assemble(intent).verdicts[intent.intent_id]
        assert isinstance(verdict, Included), verdict
        return verdict.operations

    def done(self, action: Action) -> Done:
        """Repeat what the log must know; nothing is written."""
        entries = len(self.entries)
        verdict = self.decide(action)
        assert isinstance(verdict, Done), verdict
        assert len(self.entries) == entries
        return verdict

    def open(self, name: str = NAME) -> ProducerRef:
        """Open an id; return its identity."""
        self.apply(OpenProducer(name))
        return self.producer(name)

    def append(self, producer: ProducerRef, *partitions: int, sequence: int = 0) -> None:
        """Append two records to each partition (0 by default) under this identity."""
        self.apply(Write(producer, self.fresh(rows(*partitions, sequence=sequence))))

    def fresh(self, appends: tuple[TopicAppend, ...]) -> tuple[TopicAppend, ...]:
        """Return appends of the same content in files of their own: a file is named once."""
        return tuple(
            replace(
                append,
                files=tuple(
                    replace(file, key=file.key.replace("/data/0000", f"/data/{len(self.entries):04}"))
                    for file in append.files
                ),
            )
            for append in appends
        )

    def finish(self, producer: ProducerRef, outcome: Outcome) -> int:
        """End the transaction; return the entry that holds it."""
        self.apply(Write(producer, end=outcome))
        return self.state.entry

    def id(self, name: str = NAME) -> TransactionalIdState:
        """Return what the log knows of an id."""
        return self.state.transactional_ids[name]

    def prepare(self, producer: ProducerRef) -> None:
        """Prepare the transaction."""
        self.apply(Write(producer, prepare=True))

    def abort_for(self, cause: Cause, name: str = NAME, *, force: bool = False) -> EndTransaction:
        """Return an end by somebody else; one for a timeout says that its time is over."""
        known = self.id(name)
        now_ms = (known.expires_ms or 0) if cause is Cause.TIMEOUT else None
        return EndTransaction(name, known.producer_id, known.epoch, cause, now_ms, force=force)

    def replace_state(self, state: LogState) -> None:
        """Go on from another state."""
        self.states[-1] = state


def orders(partition: int) -> TopicPartition:
    """Return a partition of ``orders``."""
    return TopicPartition(ORDERS.topic_id, partition)
