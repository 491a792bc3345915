"""Clients of a simulated history that have to do with subscriptions: those that share one, and those that
make output of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from txnformat.core.intents import Acks, Action, Intent, Write
from txnformat.core.ranges import Ranges
from txnformat.core.state import LogState
from txnformat.core.subscriptions.operations import (
    AckedPartition,
    AckMode,
    CreateSubscription,
    DeleteSubscription,
    SubscriptionStart,
)
from txnformat.errors import TxnLogError
from txnformat.persistent import replace
from txnformat.types import TopicPartition
from txnlog_testing.simulator.clients import Client
from txnlog_testing.simulator.ledgers.acks import AckClaim
from txnlog_testing.simulator.transactions import TIMEOUTS, Decisions, TransactionalClient

__all__ = ["ACK_HITS", "ACK_KINDS", "AcknowledgingClient", "SharingClient", "WorkingClient", "ack_client"]

ACK_HITS = frozenset(
    {
        "acknowledged: cumulative",
        "acknowledged: cumulative in a transaction",
        "acknowledged: individual",
        "acknowledged: individual in a transaction",
        "acknowledged: seek",
        "acknowledgements ended: abort",
        "acknowledgements ended: commit",
        "answer ack-pending",
        "answer already-acknowledged",
        "output and acknowledgements agree",
        "subscription deleted",
    }
)
"""Events that histories with subscriptions must have met."""
ACK_KINDS = ("sharing", "acknowledging", "acknowledging", "working", "working", "working")
"""The kinds from which the clients of such a history are drawn."""

INPUT, OUTPUT = "orders", "audit"
SHARED, WORK = "shared", "work"
"""A subscription in which every client acts without regard to the others, and one whose records are made into
output."""


def _some_acks(rng: random.Random, state: LogState) -> Acks | None:
    """Return an acknowledgement of the shared subscription; often its records are not free any more."""
    topic_id = state.topic_ids.get(INPUT)
    if topic_id is None:
        return None
    stable = state.partition(TopicPartition(topic_id, 0)).last_stable_offset
    end = rng.randint(1, max(1, stable + (rng.random() < 0.05)))
    if rng.random() < 0.3:
        return Acks(topic_id, SHARED, AckMode.CUMULATIVE, (AckedPartition(0, (), end),))
    starts = sorted(rng.sample(range(end), min(end, rng.randint(1, 3))))
    ranges = Ranges.of([(start, start + 1) for start in starts]).pairs()
    return Acks(topic_id, SHARED, AckMode.INDIVIDUAL, (AckedPartition(0, tuple(ranges)),))


@dataclass(slots=True, eq=False)
class SharingClient(Client):
    """Creates the subscriptions, acknowledges outside of transactions, seeks, deletes."""

    def plan(self, state: LogState) -> list[Action]:
        """Return one of these."""
        topic_id = state.topic_ids.get(INPUT)
        if topic_id is None:
            return []
        if (topic_id, WORK) not in state.subscriptions:
            return [CreateSubscription(topic_id, WORK)]
        if (topic_id, SHARED) not in state.subscriptions:
            stable = state.partition(TopicPartition(topic_id, 0)).last_stable_offset
            start = self.rng.randint(0, min(2, stable))
            return [CreateSubscription(topic_id, SHARED, (SubscriptionStart(0, start),) if start else ())]
        choice = self.rng.random()
        if choice < 0.08:
            return [DeleteSubscription(topic_id, SHARED)]
        acks = _some_acks(self.rng, state)
        if acks is None or choice > 0.6:
            return []
        if choice < 0.2:
            position = self.rng.randint(0, 3)
            acks = replace(acks, mode=AckMode.SEEK, partitions=(AckedPartition(0, (), position),))
        return [Write(acks=(acks,))]


@dataclass(slots=True, eq=False)
class AcknowledgingClient(TransactionalClient):
    """Acknowledges in transactions, mostly beside records."""

    def beside(self, state: LogState, write: Write) -> Write | None:
        """Return a write with acknowledgements, or with nothing else."""
        acks = _some_acks(self.rng, state)
        if acks is None or self.rng.random() < 0.2:
            return write
        if self.rng.random() < 0.3:
            write = replace(write, appends=(), deferred=False)
        return replace(write, acks=(acks,))

    def failed(self, intent: Intent, error: TxnLogError) -> None:
        """Abort after a conflict, now and then go on without."""
        _refused(self, intent, error)


@dataclass(slots=True, eq=False)
class WorkingClient(TransactionalClient):
    """Takes free records of a subscription, and acknowledges them in the transaction of what it makes of
    them.

    Many do so at once, without knowing of each other: the acknowledgement decides.
    """

    claim: Callable[[str, AckClaim], None] | None = None
    """Tells the judge what a record is made of."""

    def _some_partitions(self, state: LogState) -> list[TopicPartition]:
        return [TopicPartition(state.topic_ids[OUTPUT], 0)] if OUTPUT in state.topic_ids else []

    def beside(self, state: LogState, write: Write) -> Write | None:
        """Return a write of what is made of some free records, with their acknowledgement; None: there are
        none.
        """
        topic_id = state.topic_ids.get(INPUT, "")
        subscription = state.subscriptions.get((topic_id, WORK))
        if subscription is None:
            return None
        number = self.rng.randint(0, 1)
        stable = state.partition(TopicPartition(topic_id, number)).last_stable_offset
        acks = subscription.partition(number)
        free = (Ranges.of([(0, stable)]) - acks.whole() - acks.held()).pairs() if stable else []
        offsets = [offset for start, end in free for offset in range(start, end)][:4]
        if not offsets:
            return None
        taken = sorted(self.rng.sample(offsets, self.rng.randint(1, len(offsets))))
        (append,) = write.appends
        assert self.claim is not None
        self.claim(append.partitions[0].digest, AckClaim((topic_id, WORK), number, tuple(taken)))
        # One by one: a cumulative acknowledgement passes over records that another client has acknowledged
        # meanwhile.
        ranges = tuple(Ranges.of([(offset, offset + 1) for offset in taken]).pairs())
        work = Acks(topic_id, WORK, AckMode.INDIVIDUAL, (AckedPartition(number, ranges),))
        return replace(write, acks=(work,))

    def failed(self, intent: Intent, error: TxnLogError) -> None:
        """Abort after a conflict."""
        _refused(self, intent, error)


def _refused(client: TransactionalClient, intent: Intent, error: TxnLogError) -> None:
    if error.kind in ("ack-pending", "already-acknowledged", "offset-out-of-range", "unknown-subscription"):
        client.must_abort = client.is_open
        return
    TransactionalClient.failed(client, intent, error)


def ack_client(
    kind: str,
    rng: random.Random,
    new_id: Callable[[], str],
    decisions: Decisions,
    put: Callable[[str, bytes], None],
    claims: dict[str, AckClaim],
) -> Client:
    """Return a client of a kind: ``sharing``, ``acknowledging`` or ``working``."""
    name = f"{kind}-{rng.randint(0, 3)}"
    if kind == "sharing":
        return SharingClient(rng, new_id)
    if kind == "acknowledging":
        return AcknowledgingClient(
            rng, new_id, [], False, name, decisions, put, timeouts=TIMEOUTS[2:], one_shots=0.2, ends=0.4
        )
    return WorkingClient(
        rng, new_id, [], False, name, decisions, put, timeouts=TIMEOUTS[2:], claim=claims.__setitem__
    )
