"""Clients of a simulated history: what users of a log do, as state machines.

A client says what it wants committed (:meth:`Client.wanted`) and is told the answers
(:meth:`Client.answered`). Until an answer is definite it asks again with the same intent, as the protocol
demands; a crash forgets what was in flight, and the next instance goes on from what the log says.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from txnformat import keys
from txnformat.core.intents import (
    Action,
    AllocateIds,
    AppRef,
    ChangeTopic,
    CommitResult,
    EnableFeatures,
    Intent,
    PendingPartition,
    ProducerRef,
    TopicAppend,
    Write,
)
from txnformat.core.operations import AllocateProducerIds, CreateTopic
from txnformat.core.state import EMBEDDING, LIFECYCLE, LogState, TopicState
from txnformat.errors import TxnLogError
from txnformat.persistent import replace
from txnformat.types import NO_TIMESTAMP_MS, BatchRecord, FileRecord, TopicPartition
from txnlog_testing.simulator.oracle import is_definite

__all__ = [
    "BulkClient",
    "Client",
    "GrowingClient",
    "IdempotentClient",
    "StaleClient",
    "ToldClient",
    "TopicClient",
    "Uploads",
    "create_topic",
]

TOPICS = (("orders", 2), ("audit", 1))
PARTITIONS_MAX = 5
"""Up to here the common topics grow."""
FIELDS: tuple[object, ...] = ({"name": "n", "type": "int64"},)


class Uploads(Protocol):
    """Writes the files of appends, where a history has some."""

    def __call__(
        self,
        topic: TopicState,
        born: int,
        schema_id: int,
        records: Sequence[tuple[int, int, str]],
        *,
        is_embedded: bool,
    ) -> tuple[FileRecord, tuple[BatchRecord, ...], tuple[bytes, ...]]:
        """Write one file.

        ``records``: partition, number of records, and digest of each batch. The last of the answer is the
        bytes of an embedded file.
        """
        ...


@dataclass(slots=True, eq=False)
class Client:
    """The part that all clients share: intents that wait for a definite answer.

    Parameters
    ----------
    rng : random.Random
        The history's.
    new_id : callable
        Gives uuids from the seed.
    """

    rng: random.Random
    new_id: Callable[[], str]
    pending: list[Intent] = field(default_factory=list)
    is_stopping: bool = False
    """Wants nothing new; set when the history ends."""
    uploads: Uploads | None = field(default=None, kw_only=True)
    """Where the files of appends are put. None: the files that appends name are not there, for nothing reads
    them."""
    embedding_share: float = field(default=0.6, kw_only=True)
    """Share of the files of a log that embeds that go into entries."""

    @property
    def is_pending(self) -> bool:
        """Return whether an answer is missing."""
        return bool(self.pending)

    def wanted(self, state: LogState) -> list[Intent]:
        """Return the intents to commit now: those that wait, in their order, else new ones."""
        if not self.pending and not self.is_stopping:
            self.pending = [Intent(self.new_id(), state.entry + 1, action) for action in self.plan(state)]
        return list(self.pending)

    def plan(self, state: LogState) -> list[Action]:
        """Return what to do next, given what the process knows."""
        raise NotImplementedError

    def answered(self, intent: Intent, answer: CommitResult | TxnLogError, state: LogState) -> None:
        """Take the answer to an intent; ``state`` is what the process knows now."""
        if intent not in self.pending or not is_definite(answer):
            return
        self.pending.remove(intent)
        if isinstance(answer, CommitResult):
            self.succeeded(intent, answer)
        else:
            self.failed(intent, answer)

    def succeeded(self, intent: Intent, result: CommitResult) -> None:
        """Go on after a success."""

    def failed(self, intent: Intent, error: TxnLogError) -> None:
        """Go on after a definite no."""

    def crashed(self) -> None:
        """Forget what only this process knew."""
        self.pending = []

    def _append(
        self,
        state: LogState,
        keys_: list[TopicPartition],
        sequence: Callable[[TopicPartition], int],
        *,
        may_embed: bool = False,
    ) -> TopicAppend:
        """Return an append of 1 to 3 records to each of some partitions of one topic."""
        topic = state.topics[keys_[0].topic_id]
        counts = [self.rng.randint(1, 3) for _ in keys_]
        file = _file(topic.directory, max(0, state.entry), self.new_id(), sum(counts))
        file = replace(file, schema_id=self.rng.randint(0, topic.schema.schema_id))
        parts = tuple(
            PendingPartition(
                key.partition, count, 1, sequence(key), f"{self.rng.getrandbits(64):016x}", 10,
                NO_TIMESTAMP_MS, NO_TIMESTAMP_MS,
            )
            for key, count in zip(keys_, counts, strict=True)
        )  # fmt: skip
        batches = tuple(
            BatchRecord(part.partition, 0, index, 1, part.records, 10, NO_TIMESTAMP_MS, NO_TIMESTAMP_MS)
            for index, part in enumerate(parts)
        )
        payload: tuple[bytes, ...] = ()
        if self.uploads is not None:
            brought = [(part.partition, part.records, part.digest) for part in parts]
            embeds = (
                may_embed and EMBEDDING in state.features.reader and self.rng.random() < self.embedding_share
            )
            file, batches, payload = self.uploads(
                topic, max(0, state.entry), file.schema_id, brought, is_embedded=embeds
            )
            parts = tuple(replace(part, size=batch.size) for part, batch in zip(parts, batches, strict=True))
        return TopicAppend(topic.topic_id, topic.partitions, (file,), parts, batches, payload=payload)

    def _some_partitions(self, state: LogState) -> list[TopicPartition]:
        """Return at least one partition of one of the common topics; none when there is none yet."""
        there = [state.topics[state.topic_ids[name]] for name, _ in TOPICS if name in state.topic_ids]
        if not there:
            return []
        topic = self.rng.choice(there)
        found = [TopicPartition(topic.topic_id, number) for number in range(topic.partitions)]
        return self.rng.sample(found, self.rng.randint(1, len(found)))


def _file(directory: str, born: int, uuid: str, rows: int) -> FileRecord:
    digest = uuid.replace("-", "") * 2
    return FileRecord(keys.data_key(directory, born, uuid), 100, digest, 20, digest, rows)


def create_topic(name: str, partitions: int, topic_id: str) -> CreateTopic:
    """Return the operation that creates a topic of one column."""
    return CreateTopic(topic_id, name, keys.topic_directory(name, topic_id), partitions, FIELDS, (), None)


@dataclass(slots=True, eq=False)
class TopicClient(Client):
    """Creates the topics if they are missing; every process has one, and they race."""

    create: Callable[[str, int, str], CreateTopic] = create_topic
    features: tuple[str, ...] = (LIFECYCLE,)
    """Features of topics with settings."""

    def plan(self, state: LogState) -> list[Action]:
        """Return one topic that this process has not seen yet."""
        missing = [(name, partitions) for name, partitions in TOPICS if name not in state.topic_ids]
        if not missing:
            return []
        made = self.create(*missing[0], self.new_id())
        if made.settings and state.lacks(LIFECYCLE):
            return [EnableFeatures(self.features)]
        return [made]


@dataclass(slots=True, eq=False)
class GrowingClient(Client):
    """Lets the common topics grow now and then, often on a view that is not the newest; others do it too."""

    def plan(self, state: LogState) -> list[Action]:
        """Return a change of one topic, which may be none by the time that it is decided."""
        there = [state.topics[state.topic_ids[name]] for name, _ in TOPICS if name in state.topic_ids]
        if not there or self.rng.random() < 0.7:
            return []
        topic = self.rng.choice(there)
        partitions = topic.partitions + 1 if topic.partitions < PARTITIONS_MAX else None
        name = f"added {self.rng.randint(0, 2)}"
        add = (pa.field(name, pa.int32()),) if partitions is None or self.rng.random() < 0.5 else ()
        widen = ((name, pa.int64()),) if self.rng.random() < 0.3 else ()
        return [ChangeTopic(topic.topic_id, partitions, () if widen else add, widen)]


@dataclass(slots=True, eq=False)
class IdempotentClient(Client):
    """A producer without a transactional id: several appends in flight, in the order of their sequences."""

    ids: list[int] = field(default_factory=list)
    producer_id: int | None = None
    sequences: dict[TopicPartition, int] = field(default_factory=dict)

    def plan(self, state: LogState) -> list[Action]:
        """Get ids, or append 1 to 3 times."""
        if self.producer_id is None and not self.ids:
            return [AllocateIds("simulated", 2)]
        if self.producer_id is None:
            self.producer_id = self.ids.pop()
            self.sequences = {}
        planned: list[Action] = []
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            partitions = self._some_partitions(state)
            if not partitions:
                break
            append = self._append(state, partitions, lambda key: self.sequences.get(key, 0), may_embed=True)
            for part in append.partitions:
                key = TopicPartition(append.topic_id, part.partition)
                self.sequences[key] = part.base_sequence + part.records
            planned.append(Write(ProducerRef(self.producer_id, 0), (append,)))
        return planned

    def succeeded(self, intent: Intent, result: CommitResult) -> None:
        """Take the ids that were given."""
        for op in result.operations:
            if isinstance(op, AllocateProducerIds):
                self.ids = list(range(op.first, op.last + 1))

    def failed(self, intent: Intent, error: TxnLogError) -> None:
        """Sequences after a hole are worthless: go on with another id."""
        self.pending = []
        self.producer_id = None

    def crashed(self) -> None:
        """Forget the ids: no other client uses them."""
        Client.crashed(self)
        self.producer_id, self.ids = None, []


@dataclass(slots=True, eq=False)
class BulkClient(Client):
    """A batch engine: appends without a producer under an application version, which another process may
    repeat.
    """

    app_id: str = "app"

    def plan(self, state: LogState) -> list[Action]:
        """Append under the next version, under one that was used already, or under none."""
        partitions = self._some_partitions(state)
        if not partitions:
            return []
        append = self._append(state, partitions, lambda key: -1, may_embed=True)
        choice = self.rng.random()
        if choice < 0.2:
            return [Write(appends=(append,))]
        known = state.app_versions.get(("sim", self.app_id))
        newest = known.version if known else 0
        version = newest + 1 if choice < 0.8 or not known else newest if choice < 0.92 else max(0, newest - 1)
        app = AppRef("sim", self.app_id, version)
        if choice > 0.7 or self.uploads is not None:
            return [Write(appends=(append,), app=app)]
        made = create_topic(f"made-{self.rng.randint(0, 4)}", 1, self.new_id())
        uuid = self.new_id()
        records = self.rng.randint(1, 3)
        part = PendingPartition(
            0, records, 1, -1, f"{self.rng.getrandbits(64):016x}", 10, NO_TIMESTAMP_MS, NO_TIMESTAMP_MS
        )
        batch = BatchRecord(0, 0, 0, 1, records, 10, NO_TIMESTAMP_MS, NO_TIMESTAMP_MS)
        file = _file(made.directory, max(0, state.entry), uuid, records)
        other = TopicAppend(made.topic_id, 1, (file,), (part,), (batch,))
        return [Write(appends=(append, other), app=app, create=(made,))]


@dataclass(slots=True, eq=False)
class ToldClient(Client):
    """Appends to a topic of which it was told by its creator, often before its own view has it."""

    told: Callable[[], LogState] | None = None
    """Returns the knowledge of all other clients."""

    def plan(self, state: LogState) -> list[Action]:
        """Append to the newest topic."""
        known = self.told() if self.told else state
        if not known.topics:
            return []
        newest = max(known.topics.values(), key=lambda topic: (topic.created_entry, topic.topic_id))
        append = self._append(known, [TopicPartition(newest.topic_id, 0)], lambda key: -1)
        return [Write(appends=(append,))]


@dataclass(slots=True, eq=False)
class StaleClient(Client):
    """Repeats, once, calls from so long ago that the window of intent ids no longer reaches them."""

    def plan(self, state: LogState) -> list[Action]:
        """Nothing new."""
        return []

    def wanted(self, state: LogState) -> list[Intent]:
        """Return the old intents while they wait."""
        return [intent for intent in self.pending if not state.window.covers(intent.first_slot)]
