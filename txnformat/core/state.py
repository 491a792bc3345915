"""LogState: everything that a log is after some entry. A value: folding makes a new one.

Windows bound everything that grows with history, or lifecycle operations remove it; the rest grows with live
things: topics, ids, partitions, and extents that are not sealed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec

from txnformat.arguments import is_text
from txnformat.core.app_versions.state import VersionAt
from txnformat.core.groups.state import GroupState
from txnformat.core.lifecycle.state import ErasureState
from txnformat.core.operations import Checkpoint, CreateTopic, TopicSetting
from txnformat.core.records.state import PartitionState
from txnformat.core.subscriptions.operations import SubscriptionKey
from txnformat.core.subscriptions.state import PartitionAcks, SubscriptionState
from txnformat.core.topics.schema import TopicSchema
from txnformat.core.transactions.state import MAX_TRANSACTION_TIMEOUT_MS, UNDECIDED, TransactionalIdState
from txnformat.errors import NotFoundError, UnsupportedFeatureError, repr_of
from txnformat.field_types import LOG_PARTITIONS_MAX, Count, LogTime, Text, Uuid
from txnformat.persistent import Vector, excluding, including, put, replace, without
from txnformat.types import FileRecord, ObjectRecord, SegmentListRecord, SegmentRecord, TopicPartition

__all__ = [
    "COLUMNS",
    "EMBEDDING",
    "FEATURES",
    "INTENT_WINDOW_ENTRIES",
    "KNOWN_FEATURES",
    "LIFECYCLE",
    "WITHOUT_EMBEDDING",
    "DeletedTopic",
    "Features",
    "IntentWindow",
    "LogState",
    "ProducerIdBlock",
    "TopicState",
    "UsedAt",
    "check_features",
    "topic_gone",
]

INTENT_WINDOW_ENTRIES = 1_000
"""Entries whose intent ids are remembered."""
_NEWER_ENTRIES = 32
"""How many of these, at most, are copied for each entry; the others are copied once for so many entries."""


class Features(NamedTuple):
    """Names of the features that readers, writers and maintenance must know."""

    reader: frozenset[str]
    writer: frozenset[str]
    maintenance: frozenset[str]


FEATURES = Features(frozenset({"base-1"}), frozenset({"base-1"}), frozenset({"base-1"}))
"""The features that every log has."""
LIFECYCLE = "lifecycle-1"
"""The feature that records may be removed: readers and writers must know that a log start moves."""
EMBEDDING = "embedding-1"
"""The feature that entries have payloads: readers and writers must know that a file may be a part of one."""
COLUMNS = "columns-1"
"""The feature that columns of topics are renamed and dropped: a column is its place, and no longer its name.
"""
KNOWN_FEATURES = Features(*(names | {LIFECYCLE, EMBEDDING, COLUMNS} for names in FEATURES))
"""The features that this version knows: a new log has them all."""
WITHOUT_EMBEDDING = Features(*(names - {EMBEDDING} for names in KNOWN_FEATURES))
"""The features of a new log whose creator lets no small transactions travel in their entries."""


def topic_gone(what: str, topic_id: str, **values: object) -> NotFoundError:
    """Return the error about a topic that was found by its name before, and is not there any more."""
    return NotFoundError(
        what,
        kind="topic-gone",
        hint="a topic that has the same name now is a different one: look it up by its name to use it",
        topic_id=topic_id,
        **values,
    )


def check_features(of: Literal["reader", "writer", "maintenance"], names: Iterable[str]) -> None:
    """Raise UnsupportedFeatureError about features that this version does not have and a log needs of
    readers, of writers, or of maintenance.
    """
    unknown = sorted(set(names) - getattr(KNOWN_FEATURES, of))
    if unknown:
        what = f"the log needs {of} features that this version does not have"
        raise UnsupportedFeatureError(what, hint="upgrade txnlog", features=unknown)


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic."""

    topic_id: str
    name: str
    directory: str
    partitions: int
    schema: TopicSchema = field(repr=False)
    created: CreateTopic = field(repr=False)
    """The operation that made it."""
    created_entry: int
    settings: tuple[TopicSetting, ...] = ()
    """The settings that differ from the default, by name, ascending."""

    @property
    def first_columns(self) -> tuple[str, ...]:
        """The columns that it was created with and still has; later ones are null in older records."""
        return self.schema.first_columns

    @property
    def shown_partitions(self) -> str:
        """The numbers of its partitions, for a message."""
        return "one partition, 0" if self.partitions == 1 else f"partitions 0 to {self.partitions - 1}"

    def check_partition(self, number: object) -> None:
        """Raise NotFoundError unless ``number`` is that of a partition: "0" and True only look like
        numbers.
        """
        if type(number) is not int or not 0 <= number < self.partitions:
            raise NotFoundError(
                "no such partition",
                kind="unknown-partition",
                hint=f"the topic has {self.shown_partitions}",
                topic=self.name,
                partition=number if type(number) is int else repr_of(number),
            )


class DeletedTopic(msgspec.Struct, frozen=True, gc=False):
    """A topic that was deleted: objects may still be in its directory, so no other topic gets that.

    A snapshot has it as it is.
    """

    directory: Text
    topic_id: Uuid
    entry: Count
    """Entry that deleted it."""


class ProducerIdBlock(msgspec.Struct, frozen=True, gc=False):
    """Ids that one process may hand out. A snapshot has it as it is."""

    owner: Text
    first: Count
    """Inclusive."""
    last: Count
    """Inclusive."""
    entry: Count
    timestamp_ms: LogTime = 0
    """Log time of that entry."""


class UsedAt(NamedTuple):
    """The last entry that a producer appended in."""

    entry: int
    timestamp_ms: int
    """Log time of that entry."""


class IntentWindow:
    """Intent ids of the last entries, so that an operation without a natural key is not applied twice.

    A value.
    """

    __slots__ = ("_newer", "_older", "first")

    def __init__(self, first: int = 0, entries: tuple[tuple[str, ...], ...] = ()) -> None:
        self.first = first
        """Entry that the window begins with (inclusive)."""
        self._older = entries
        """Ids up to those of the newest entries: the last of them are in the window."""
        self._newer: tuple[tuple[str, ...], ...] = ()
        """Ids of the newest entries, which are few, so that one more costs little."""

    def __len__(self) -> int:
        """Return the number of entries."""
        return min(len(self._older) + len(self._newer), INTENT_WINDOW_ENTRIES)

    @property
    def entries(self) -> tuple[tuple[str, ...], ...]:
        """Ids of the entries from ``first`` on."""
        return (self._older + self._newer)[-INTENT_WINDOW_ENTRIES:]

    def __eq__(self, other: object) -> bool:
        """Return whether both windows have the same ids of the same entries."""
        if not isinstance(other, IntentWindow):
            return NotImplemented
        return (self.first, self.entries) == (other.first, other.entries)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Show first and entries."""
        return f"IntentWindow(first={self.first}, entries={self.entries})"

    def __reduce__(self) -> tuple[type[IntentWindow], tuple[int, tuple[tuple[str, ...], ...]]]:
        """Let copies and pickles have what is in the window."""
        return IntentWindow, (self.first, self.entries)

    def find(self, intent: str, first_slot: int) -> int | None:
        """Return the entry that holds ``intent``, looked for from ``first_slot`` (inclusive) on."""
        begin, entries = self.first + len(self) - len(self._newer), self._newer
        if first_slot < begin:
            begin, entries = self.first, self.entries
        for index in range(max(first_slot - begin, 0), len(entries)):
            if intent in entries[index]:
                return begin + index
        return None

    def covers(self, first_slot: int) -> bool:
        """Return whether every entry from ``first_slot`` on is in the window."""
        return first_slot >= self.first

    def push(self, entry: int, intents: tuple[str, ...]) -> IntentWindow:
        """Return the window after one more entry."""
        after = IntentWindow()
        after._older, after._newer = self._older, (*self._newer, intents)
        if len(after._newer) > _NEWER_ENTRIES:
            after._older, after._newer = after.entries, ()
        after.first = entry + 1 - len(after)
        return after


class LogState(msgspec.Struct, frozen=True):
    """A log after entry ``entry``."""

    log_id: str
    entry: int = -1
    """Number of the last folded entry; -1 for a log without any."""
    entry_sha256: str = ""
    """sha256 of that entry's bytes (of format.json when there is none)."""
    timestamp_ms: int = 0
    """Log time: the last entry's timestamp."""
    features: Features = FEATURES
    topics: Mapping[str, TopicState] = msgspec.field(default_factory=dict)
    """The topics, by topic id."""
    topic_ids: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Topic id by name."""
    deleted: Mapping[str, DeletedTopic] = msgspec.field(default_factory=dict)
    """Topics that were deleted since the vacuum's floor, by directory."""
    partition_count: int = 0
    """Number of partitions of all topics, with those that hold nothing."""
    partitions: Mapping[TopicPartition, PartitionState] = msgspec.field(default_factory=dict)
    """Partitions that hold or held something; one that is not here is empty."""
    transactional_ids: Mapping[str, TransactionalIdState] = msgspec.field(default_factory=dict)
    owners: Mapping[int, str] = msgspec.field(default_factory=dict)
    """Transactional id by producer id."""
    undecided: AbstractSet[str] = frozenset()
    """Transactional ids with an open or prepared transaction."""
    max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS
    """Longest timeout that a producer may ask for, of transactions with offsets."""
    next_producer_id: int = 0
    blocks: Mapping[int, ProducerIdBlock] = msgspec.field(default_factory=dict)
    """Blocks of producer ids that were given, by their first id; in ascending order."""
    producers: Mapping[int, UsedAt] = msgspec.field(default_factory=dict)
    """Producers without a transactional id that the log remembers sequences of, by id."""
    retired_below: int = 0
    """Producer ids below that are not in ``producers`` may have been forgotten: they append nothing any more.
    """
    app_versions: Mapping[tuple[str, str], VersionAt] = msgspec.field(default_factory=dict)
    """The newest versions, by (namespace, application id)."""
    groups: Mapping[str, GroupState] = msgspec.field(default_factory=dict)
    """Consumer groups by name."""
    retired_generation: int = 0
    """Largest generation of a group that has left the state: new groups go on from it, so that none comes
    twice."""
    subscriptions: Mapping[SubscriptionKey, SubscriptionState] = msgspec.field(default_factory=dict)
    """The subscriptions, by topic id and name; they never expire."""
    files: Vector[FileRecord] = msgspec.field(default_factory=Vector)
    """Segment files that extents in the state may refer to."""
    tables: Vector[ObjectRecord] = msgspec.field(default_factory=Vector)
    """Batch tables that extents in the state refer to."""
    segments: Vector[SegmentRecord] = msgspec.field(default_factory=Vector)
    """Sealed segments that are not in the segment list."""
    segment_lists: tuple[SegmentListRecord, ...] = ()
    """The lists that describe all segments below number ``listed_segments``, oldest first. Each is at least
    twice as large as the next, about."""
    listed_segments: int = 0
    extents: int = 0
    """Number of extents in all partitions."""
    checkpoints: tuple[Checkpoint, ...] = ()
    """The newest two named snapshots, oldest first."""
    window: IntentWindow = msgspec.field(default_factory=IntentWindow)
    vacuum_floor: int = 0
    """No operation names an object any more that was born below this entry."""
    truncate_older_than_ms: int = -1
    """Maintenance deletes commit entries older than this; -1: entries are kept."""
    erasures: Mapping[str, ErasureState] = msgspec.field(default_factory=dict)
    """The erasures by id, in the order of their requests: all that are not complete, and the newest complete
    ones."""

    def with_transactional_id(self, name: str, known: TransactionalIdState) -> LogState:
        """Return the state with what is known of one transactional id replaced."""
        owners, undecided = self.owners, self.undecided
        if known.producer_id not in owners:
            owners = put(owners, known.producer_id, name)
        is_undecided = known.status in UNDECIDED
        if is_undecided != (name in undecided):
            undecided = (including if is_undecided else excluding)(undecided, name)
        ids = put(self.transactional_ids, name, known)
        return replace(self, transactional_ids=ids, owners=owners, undecided=undecided)

    def lacks(self, feature: str) -> bool:
        """Return whether the log's readers need not know a feature.

        A log without an entry lacks none: the first entry names them all.
        """
        return self.entry >= 0 and feature not in self.features.reader

    def may_begin(self, producer_id: int) -> bool:
        """Return whether a producer without a transactional id that the log does not remember may append its
        first record.

        Its id must have been given, not be retired, and not be a transactional id's.
        """
        if not self.retired_below <= producer_id < self.next_producer_id:
            return False
        return producer_id not in self.owners

    def group(self, name: str) -> GroupState:
        """Return a consumer group; one that is not there has no positions and no member."""
        return self.groups.get(name) or GroupState(generation=self.retired_generation)

    def without_groups(self, names: Collection[str]) -> LogState:
        """Return the state without some groups, which are there. Their members are fenced for ever."""
        if not names:
            return self
        gone = [self.groups[name].generation for name in names]
        kept = without(self.groups, names)
        return replace(self, groups=kept, retired_generation=max([self.retired_generation, *gone]))

    def may_have(self, more_partitions: int) -> bool:
        """Return whether all topics together may have so many partitions more."""
        return self.partition_count + more_partitions <= LOG_PARTITIONS_MAX

    def topic(self, name: str) -> TopicState:
        """Return the topic called ``name``, or raise NotFoundError naming what there is."""
        # Not all that users pass can be hashed.
        topic_id = self.topic_ids.get(name) if is_text(name) else None
        if topic_id is None:
            parts = name.replace(",", " ").split() if is_text(name) else []
            several = len(parts) > 1 and all(part in self.topic_ids for part in parts)
            raise NotFoundError(
                "no such topic",
                kind="unknown-topic",
                hint="these are several names: give each by itself"
                if several
                else "create it with create_topic, or check the name",
                topic=name,
                topics=sorted(self.topic_ids)[:20],
            )
        return self.topics[topic_id]

    def topic_of(self, topic_id: str, what: str) -> TopicState:
        """Return a topic by its id, or raise NotFoundError of kind ``topic-gone``: the topic of ``what`` was
        deleted.
        """
        topic = self.topics.get(topic_id)
        if topic is None:
            raise topic_gone(f"the topic of {what} was deleted", topic_id)
        return topic

    def subscription(self, topic_id: str, name: str) -> SubscriptionState:
        """Return a subscription of a topic that is there, or raise NotFoundError naming what there is."""
        known = self.subscriptions.get((topic_id, name)) if is_text(name) else None
        if known is None:
            raise NotFoundError(
                "no such subscription",
                kind="unknown-subscription",
                hint="create it (log.subscriptions.create, txnlog subscriptions create), or check the name",
                topic=self.topics[topic_id].name,
                subscription=name,
                subscriptions=sorted(other for of, other in self.subscriptions if of == topic_id)[:20],
            )
        return known

    def acks(self, subscription: SubscriptionState, key: TopicPartition) -> PartitionAcks:
        """Return a subscription's part in a partition of its topic, for readers.

        Records below the log start count as acknowledged.
        """
        return subscription.partition(key.partition).from_log_start(self.partition(key).log_start)

    def kept_acks(self, subscription: SubscriptionState, key: TopicPartition) -> PartitionAcks:
        """Return the same for acknowledgements: it tells which removed records are acknowledged."""
        return subscription.partition(key.partition).kept(self.partition(key).log_start)

    def partition(self, topic_partition: TopicPartition) -> PartitionState:
        """Return a partition's state; an untouched one is empty."""
        return self.partitions.get(topic_partition, _EMPTY)


_EMPTY = PartitionState()
