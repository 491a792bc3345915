"""A user of a producer, who writes down what is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tests.interrupts.ledger import Batch, Fate, Group
from tests.interrupts.world import NUMBERS, SEED, TEXTS, World
from txnformat.errors import CommitStateUnknownError, InvalidTransactionStateError, TxnLogError
from txnlog import Producer, ProducerStatus, Subscription, TxnLog

__all__ = ["User"]

VALUE_BYTES = 3_000
"""Of a large value: three chunks of 1,024 bytes."""


class User:
    """Calls a producer, and keeps the ledger of what its calls told."""

    def __init__(self, world: World, transactional_id: str | None, **settings: Any) -> None:
        self.world = world
        self.ledger = world.ledger
        settings = {"linger_ms": 60_000, "chunk_bytes": 1_024, **settings}
        self._settings = settings
        self._transactional_id = transactional_id
        self.producer = self._new()
        self.is_transactional = transactional_id is not None
        self.group: Group | None = None if self.is_transactional else self.ledger.begin(is_transaction=False)

    def _new(self) -> Producer:
        return Producer(TxnLog.open(self.world.store), self._transactional_id, **self._settings)

    def renew(self) -> None:
        """Make a new instance, as a process that starts anew."""
        self.producer = self._new()
        self.group = None if self.is_transactional else self.ledger.begin(is_transaction=False)

    @property
    def _may_be_prepared(self) -> bool:
        """Whether a close may leave the transaction to be ended by others."""
        return self.group is not None and self.group is self.ledger.prepared.get(self._transactional_id or "")

    @property
    def status(self) -> ProducerStatus:
        """The producer's."""
        return self.producer.status

    # --- the calls ------------------------------------------------------------------------------------------

    def init(self) -> None:
        """Get an identity."""
        self.producer.init()
        if self.status is ProducerStatus.PREPARED and self.group is None:
            self.group = self.ledger.prepared.get(self._transactional_id or "")

    def begin(self) -> None:
        """Begin a transaction."""
        if self.status is ProducerStatus.READY:
            self.group = None  # whatever became of the one before: it is over
        self.producer.begin()
        self.group = self.ledger.begin(is_transaction=True)

    def send(self, count: int = 3) -> None:
        """Send some records to a topic of numbers."""
        values = self.ledger.new_values(count)
        self._send(Batch(NUMBERS, values), lambda: self.producer.send(NUMBERS, [{"n": n} for n in values]))

    def send_table(self, count: int = 400) -> None:
        """Send an Arrow table that goes to one partition."""
        values = self.ledger.new_values(count)
        table = pa.table({"n": pa.array(values, pa.int64())})
        self._send(Batch(NUMBERS, values), lambda: self.producer.send(NUMBERS, table))

    def send_text(self, size: int = 12) -> None:
        """Send one record by key and value; a value beyond 1,024 bytes goes in chunks."""
        (value,) = self.ledger.new_values(1)
        data = f"{value:012}".encode().ljust(size, b".")
        self._send(Batch(TEXTS, (value,)), lambda: self.producer.send(TEXTS, key=str(value), value=data))

    def send_large(self) -> None:
        """Send a value of several chunks."""
        self.send_text(VALUE_BYTES)

    def _send(self, batch: Batch, call: Callable[[], None]) -> None:
        if self.group is None:  # not begun, as far as it was told
            self.group = self.ledger.begin(is_transaction=True)
        self.group.batches.append(batch)
        try:
            call()
        except CommitStateUnknownError:
            raise
        except TxnLogError:
            self.group.batches.remove(batch)  # a send that raises has kept nothing of its own
            raise
        batch.is_certain = True

    def send_offsets(self) -> None:
        """Let a group's position be committed with the transaction."""
        (number,) = self.ledger.new_values(1)
        name = f"group-{number}"
        self.producer.send_offsets(name, {(SEED, 0): 1})
        if self.group is not None:
            self.group.consumer_groups.append(name)

    def acknowledge(self) -> None:
        """Let a record of a subscription be acknowledged with the transaction."""
        offset = self.world.next_seed()
        with Subscription(self.producer._log, SEED, "readers") as subscription:
            self.acknowledge_one(subscription, offset)

    def acknowledge_one(self, subscription: Subscription, offset: int) -> None:
        """The same with a subscription that is there."""
        self.producer.acknowledge(subscription, [(0, offset)])
        if self.group is not None:
            self.group.acknowledged_offsets.append(offset)

    def flush(self) -> None:
        """Flush."""
        self.producer.flush()
        if not self.is_transactional:
            self._acknowledged()

    def _acknowledged(self) -> None:
        for batch in self.group.batches if self.group is not None else ():
            batch.is_acknowledged = True

    def prepare(self) -> None:
        """Let the transaction wait for its outcome."""
        if self.group is not None:
            self.ledger.prepared[self._transactional_id or ""] = self.group
        self.producer.prepare()

    def commit(self) -> None:
        """Commit."""
        group = self.group
        before = Fate.OPEN if group is None else group.fate
        if group is not None:
            group.fate = Fate.UNKNOWN
        try:
            self.producer.commit()
        except InvalidTransactionStateError as error:
            if group is not None:  # it was not tried
                group.fate = Fate.ABORTED if error.kind == "transaction-aborted" else before
            raise
        if group is not None:
            group.fate = Fate.ACKNOWLEDGED
        self.group = None

    def abort(self) -> None:
        """Abort."""
        try:
            self.producer.abort()
        except InvalidTransactionStateError as error:
            self._told(error)
            raise
        if self.group is not None:
            self.group.fate = Fate.ABORTED
        self.group = None

    def _told(self, error: InvalidTransactionStateError) -> None:
        if error.kind == "transaction-committed" and self.group is not None:
            self.group.fate = Fate.ACKNOWLEDGED
            self.group = None

    def close(self) -> None:
        """Close."""
        is_open = self.status not in (
            ProducerStatus.READY,
            ProducerStatus.UNINITIALISED,
            ProducerStatus.CLOSED,
        )
        is_prepared = self.producer.prepared is not None or self._may_be_prepared
        is_fenced = self.status is ProducerStatus.FENCED  # what it held was refused, and that was told
        try:
            self.producer.close()
        except InvalidTransactionStateError as error:
            self._told(error)
            raise
        if not self.is_transactional and not is_fenced:
            self._acknowledged()
        elif is_open and not is_prepared and not is_fenced and self.group is not None:
            self.group.fate = Fate.ABORTED
        self.group = None

    def leave(self, error: BaseException) -> None:
        """Leave the producer's ``with`` statement with an error; an error of its own is told as a note of
        that."""
        is_open = self.status not in (
            ProducerStatus.READY,
            ProducerStatus.UNINITIALISED,
            ProducerStatus.CLOSED,
        )
        is_prepared = self.producer.prepared is not None or self._may_be_prepared
        self.producer.__exit__(type(error), error, error.__traceback__)
        if getattr(error, "__notes__", None) or self.status is not ProducerStatus.CLOSED:
            self.group = None  # it says that it could not be closed; nothing is known
        elif not self.is_transactional:
            self._acknowledged()
        elif is_open and not is_prepared and self.group is not None:
            self.group.fate = Fate.ABORTED
        self.group = None

    def transaction(self) -> None:
        """Send in a ``with`` statement; what raises inside is aborted by it."""
        before, group = self.group, self.ledger.begin(is_transaction=True)
        values = self.ledger.new_values(3)
        batch = Batch(NUMBERS, values)
        group.batches.append(batch)
        group.fate = Fate.UNKNOWN
        self.group = group
        try:
            with self.producer.transaction() as transaction:
                transaction.send(NUMBERS, [{"n": n} for n in values])
                batch.is_certain = True
        except InvalidTransactionStateError as error:
            if error.kind in (
                "transaction-open",
                "call-interrupted",
            ):  # it was not begun: what is open is another one
                self.group = before
            raise
        group.fate = Fate.ACKNOWLEDGED
        self.group = None
