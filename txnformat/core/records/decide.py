"""Deciding a write: appends, the end of a transaction, application versions, topics made on the way. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from msgspec import structs

from txnformat.core.app_versions.decide import check_grows, check_not_gone, find_version
from txnformat.core.app_versions.state import Content
from txnformat.core.groups.checks import check_group_offsets
from txnformat.core.groups.decide import commit_offsets
from txnformat.core.intents import (
    AppRef,
    Done,
    ProducerRef,
    TopicAppend,
    Write,
)
from txnformat.core.operations import (
    Append,
    AppendedPartition,
    AppVersion,
    CreateTopic,
    Operation,
    PendingPartition,
    Stage,
)
from txnformat.core.ownership import (
    directories,
    directory_in_use,
    named_before,
    shares_directory,
    topic_exists,
)
from txnformat.core.producers.state import AppendedRange, SequenceVerdict, SequenceWindow, classify
from txnformat.core.records.state import newest_schema
from txnformat.core.state import EMBEDDING, LIFECYCLE, LogState, topic_gone
from txnformat.core.subscriptions.decide import acknowledge
from txnformat.core.transactions.decide import check_identity, end, prepare
from txnformat.core.transactions.state import TransactionalIdState, TransactionStatus
from txnformat.errors import (
    ConflictError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    OutOfOrderSequenceError,
    ProducerIdConflictError,
    UnknownProducerIdError,
)
from txnformat.keys import Place, embedded_key, has_own_directory_only, is_topics_file, own_key
from txnformat.persistent import replace
from txnformat.types import IDEMPOTENT_EPOCH, NO_EPOCH, NO_PRODUCER, FileRecord, TopicPartition

__all__ = ["decide_write"]


def decide_write(state: LogState, write: Write) -> tuple[Operation, ...] | Done:
    """Return the operations of a write, Done for one that the log holds already, else raise."""
    if write.app is not None:
        done = find_version(state, write.app)
        if done is not None:
            return Done(done)
        check_grows(state, write.apps_beside)
    owner = None
    if write.producer is not None and write.producer.transactional_id is not None:
        owner = state.transactional_ids.get(write.producer.transactional_id)
        ended = check_identity(write.producer, write.producer.transactional_id, owner, write)
        if ended is not None:
            return ended
        if owner is not None and write.follows not in (None, owner.used_entry):
            return Done(owner.used_entry)
    created, renamed = _created(state, write.create)
    operations: list[Operation] = list(created)
    placing = _Placing(state, created, write.producer, owner)
    for append in _renamed(write.appends, renamed):
        operations += placing.stage(append) if write.deferred else placing.append(append)
    added = len(operations) > len(created)
    if write.appends and not added and write.end is None and not write.prepare:
        # Every partition was known: the answer is the original one.
        return placing.repeated(deferred=write.deferred)
    check_group_offsets(write.offsets)
    operations += [commit_offsets(state, one, write.producer, owner) for one in write.offsets]
    operations += acknowledge(state, write.acks, write.producer, owner)
    added = added or bool(write.offsets or write.acks)
    if write.end is not None:
        operations.append(end(state, write, owner, placing.ends, placing.staged))
    elif write.prepare and write.producer is not None:
        operations.append(prepare(write.producer, owner, added=added))
    if write.app is not None:
        apps = (write.app, *write.apps_beside)
        topics = _written(write, owner, renamed)
        check_not_gone(state, apps, _names(state, topics, created))
        known = topics if LIFECYCLE in state.features.reader else ()
        operations.append(_version(write.app, renamed, known))
        operations += [_version_beside(app, renamed, known) for app in write.apps_beside]
    if not operations:
        raise InvalidInputError("a write without any effect", kind="empty-write")
    return tuple(operations)


def _created(state: LogState, create: tuple[CreateTopic, ...]) -> tuple[list[CreateTopic], dict[str, str]]:
    """Return the topics that must be made, and the ids of those that other writers have made meanwhile."""
    created: list[CreateTopic] = []
    renamed: dict[str, str] = {}

    def taken() -> list[str]:
        return [*directories(state).values(), *(topic.directory for topic in created)]

    for wanted in create:
        topic_id = state.topic_ids.get(wanted.name)
        if topic_id is None:
            if (gone := state.deleted.get(wanted.directory)) is not None:
                raise directory_in_use(wanted, gone)
            if shares_directory(wanted.directory, taken):
                raise topic_exists(wanted.name)
            created.append(replace(wanted, intent=0))
            continue
        topic = state.topics[topic_id]
        if has_own_directory_only(topic.directory) and topic.directory != wanted.directory:
            raise topic_exists(wanted.name)  # what was uploaded could be another topic's
        mine = (wanted.partitions, wanted.fields, wanted.key_columns, wanted.timestamp_column)
        theirs = topic.created
        if mine != (theirs.partitions, theirs.fields, theirs.key_columns, theirs.timestamp_column):
            raise ConflictError(
                "another process has created the topic with another schema or partition count",
                kind="topic-exists",
                hint="describe the topic, and write data that fits it",
                topic=wanted.name,
                partitions=topic.partitions,
            )
        renamed[wanted.topic_id] = topic_id
    return created, renamed


def _renamed(appends: tuple[TopicAppend, ...], renamed: dict[str, str]) -> tuple[TopicAppend, ...]:
    """Return the appends with the ids that their topics have in the log."""
    if not renamed:
        return appends
    return tuple(
        replace(append, topic_id=renamed.get(append.topic_id, append.topic_id)) for append in appends
    )


def _written(write: Write, owner: TransactionalIdState | None, renamed: dict[str, str]) -> tuple[str, ...]:
    """Return the ids of the topics that a write creates, or that it, or its transaction, adds records to."""
    found = {wanted.topic_id for wanted in write.create} | {append.topic_id for append in write.appends}
    written = {renamed.get(topic_id, topic_id) for topic_id in found}
    if owner is not None:
        written |= {key.topic_id for key in owner.partitions} | {flush.topic_id for flush in owner.staged}
    return tuple(sorted(written))


def _names(state: LogState, topic_ids: tuple[str, ...], created: list[CreateTopic]) -> set[str]:
    made = {wanted.topic_id: wanted.name for wanted in created}
    return {made[one] if one in made else state.topics[one].name for one in topic_ids}


def _version(app: AppRef, renamed: dict[str, str], topics: tuple[str, ...]) -> AppVersion:
    """Return the operation of an application's version, its content with the ids that topics have in
    the log.
    """
    content = app.content
    if content is not None:
        content = Content(replace(one, topic_id=renamed.get(one.topic_id, one.topic_id)) for one in content)
    return AppVersion(
        app.namespace, app.app_id, app.version, instance=app.instance, content=content, topics=topics
    )


def _version_beside(app: AppRef, renamed: dict[str, str], topics: tuple[str, ...]) -> AppVersion:
    """Return the operation of a version beside that of the write: one that says its content is of these
    topics alone.
    """
    version = _version(app, renamed, topics)
    if version.content is None or not topics:
        return version
    return replace(version, topics=tuple(sorted(one.topic_id for one in version.content)))


class _Placing:
    """Finds the place of each append of one write: offsets from the log ends on, or in an open transaction's
    stages.
    """

    def __init__(
        self,
        state: LogState,
        created: list[CreateTopic],
        producer: ProducerRef | None,
        owner: TransactionalIdState | None,
    ) -> None:
        self._state = state
        self._created = created
        self._producer = producer
        self._owner = owner
        self._repeats: list[tuple[TopicPartition, AppendedRange]] = []
        self._files: set[str] = set()
        self._payload_bytes = 0
        self.ends: dict[TopicPartition, int] = {}
        """Log end after the appends."""
        self.staged: dict[TopicPartition, int] = {}
        """Records of the stages."""

    def append(self, append: TopicAppend) -> list[Append]:
        """Return the append with offsets, without the partitions that the log holds already; none when all
        are.
        """
        producer = self._producer
        if self._owner is not None and self._owner.staged:
            raise InternalError("a transaction that stages appends")
        _check_topic(self._state, self._created, producer, self._owner, append)
        placed = []
        known = len(self._repeats)
        for part, key in self._new(append, {}):
            base_offset = self._state.partition(key).log_end
            self.ends[key] = base_offset + part.records
            placed.append(AppendedPartition(**structs.asdict(part), base_offset=base_offset))
        if not placed:
            return []
        self._check_files(append, known)
        made = Append(
            topic_id=append.topic_id,
            producer_id=producer.producer_id if producer else NO_PRODUCER,
            epoch=producer.epoch if producer else NO_EPOCH,
            transactional_id=producer.transactional_id if producer else None,
            partition_count=append.partition_count,
            files=self._embedded(append) if append.payload else append.files,
            partitions=tuple(placed),
            batches=append.batches,
            table=append.table,
            section=append.section,
        )
        return [made]

    def _embedded(self, append: TopicAppend) -> tuple[FileRecord, ...]:
        """Return the files of an append with their places in the payload, as if it were of this write
        alone.
        """
        if EMBEDDING not in self._state.features.reader or append.table is not None:
            raise InternalError(
                "an append embeds its files, and the log or its batch table do not allow that"
            )
        files = []
        for file, data in zip(append.files, append.payload, strict=True):
            place = Place(self._state.entry + 1, self._payload_bytes)
            files.append(replace(file, key=embedded_key(file.key, place)))
            self._payload_bytes += len(data)
        return tuple(files)

    def stage(self, append: TopicAppend) -> list[Stage]:
        """Return the stage without the partitions that are staged already; none when all are."""
        producer, owner = self._producer, self._owner
        if producer is None or producer.transactional_id is None or owner is None or append.table is None:
            raise InternalError("only a transactional producer can stage, and only with a batch table")
        if append.payload:
            raise InternalError("a stage names objects")
        if owner.status is TransactionStatus.ONGOING and owner.partitions:
            raise InternalError("a transaction that appends stages")
        _check_topic(self._state, self._created, producer, owner, append)
        placed = []
        known = len(self._repeats)
        for part, key in self._new(append, owner.staged_sequences):
            self.staged[key] = part.records
            placed.append(part)
        if not placed:
            return []
        self._check_files(append, known)
        made = Stage(
            append.topic_id,
            producer.producer_id,
            producer.epoch,
            producer.transactional_id,
            append.partition_count,
            append.files,
            tuple(placed),
            append.table,
            append.section,
        )
        return [made]

    def _check_files(self, append: TopicAppend, repeats_before: int) -> None:
        """Refuse an append of which the log has a part, or a file: its files have been named, and a key is
        named once.
        """
        for key, known in self._repeats[repeats_before:]:
            raise OutOfOrderSequenceError(
                "the log holds a part of this append already: a repeat has to be the same as a whole",
                kind="repeated-in-part",
                hint="upload what is missing again, as an append of its own",
                topic_id=key.topic_id,
                partition=key.partition,
                entry=known.entry,
            )
        named = named_before(self._state, append.files)
        if named is None and not self._files.isdisjoint(own_key(file.key) for file in append.files):
            named = append.files[0].key
        if named is not None:
            raise ConflictError(
                "the log has named the file already",
                kind="file-named",
                hint="check whether the append is in the log; if it is not, upload its data again",
                topic_id=append.topic_id,
                object=named,
            )
        self._files.update(own_key(file.key) for file in append.files)

    def _new(
        self, append: TopicAppend, staged: Mapping[TopicPartition, SequenceWindow]
    ) -> Iterator[tuple[PendingPartition, TopicPartition]]:
        """Yield the partitions that the log does not hold yet, and note the others."""
        for part in append.partitions:
            key = TopicPartition(append.topic_id, part.partition)
            if key in self.ends or key in self.staged:
                raise InternalError(
                    "one write appends to a partition twice", topic_id=key.topic_id, partition=key.partition
                )
            if self._producer is not None:
                window = staged.get(key) or _window(self._state, self._producer, key)
                known = _known_range(self._state, self._producer, window, part, key)
                if known is not None:
                    self._repeats.append((key, known))
                    continue
            elif part.base_sequence != -1:
                raise InternalError("a sequence without a producer", base_sequence=part.base_sequence)
            yield part, key

    def repeated(self, *, deferred: bool) -> Done:
        """Return the original answer of a write of which nothing is new."""
        offsets = {} if deferred else {key: known.base_offset for key, known in self._repeats}
        return Done(max(known.entry for _, known in self._repeats), offsets)


def _window(state: LogState, producer: ProducerRef, key: TopicPartition) -> SequenceWindow:
    return state.partition(key).sequences.get((producer.producer_id, producer.epoch), ())


def _check_topic(
    state: LogState,
    created: list[CreateTopic],
    producer: ProducerRef | None,
    owner: TransactionalIdState | None,
    append: TopicAppend,
) -> None:
    topic = state.topics.get(append.topic_id)
    made = next((op for op in created if op.topic_id == append.topic_id), None)
    count = topic.partitions if topic else made.partitions if made else None
    if count is None:
        raise topic_gone("the topic of an append was deleted", append.topic_id)
    if count != append.partition_count and not _is_repeat(state, producer, owner, append):
        raise ConflictError(
            "the topic's partition count has changed since the records were distributed",
            kind="partition-count-changed",
            hint="distribute the records again",
            topic_id=append.topic_id,
            expected=append.partition_count,
            got=count,
        )
    beyond = [part.partition for part in append.partitions if not 0 <= part.partition < count]
    if beyond:
        raise NotFoundError(
            "no such partition", kind="unknown-partition", partitions=beyond, partition_count=count
        )
    newest = newest_schema(append.files)
    if newest > (topic.schema.schema_id if topic else 0):
        raise InternalError("a file has a schema that its topic does not have", schema_id=newest)
    directory = topic.directory if topic else made.directory if made else ""
    foreign = [file.key for file in append.files if not is_topics_file(file.key, directory)]
    if foreign:
        raise InternalError(
            "an append names files of another topic", expected=f"in {directory}/", got=foreign[:3]
        )


def _is_repeat(
    state: LogState, producer: ProducerRef | None, owner: TransactionalIdState | None, append: TopicAppend
) -> bool:
    """Return whether the log holds all of an append: then the topic may have grown since."""
    if producer is None:
        return False
    staged = owner.staged_sequences if owner else {}
    for part in append.partitions:
        key = TopicPartition(append.topic_id, part.partition)
        window = staged.get(key) or _window(state, producer, key)
        verdict, _ = classify(window, part.base_sequence, part.records, part.digest)
        if verdict is not SequenceVerdict.REPEAT:
            return False
    return True


def _known_range(
    state: LogState,
    producer: ProducerRef,
    window: SequenceWindow,
    part: PendingPartition,
    key: TopicPartition,
) -> AppendedRange | None:
    """Return what the window knows of a repeat, None for a new append, else raise."""
    if producer.transactional_id is None and producer.producer_id not in state.producers:
        _check_may_begin(state, producer)
    verdict, known = classify(window, part.base_sequence, part.records, part.digest)
    if verdict is SequenceVerdict.NEW:
        return None
    if verdict is SequenceVerdict.REPEAT:
        return known
    _refuse_sequence(verdict, producer, part, key, window[-1].last_sequence + 1 if window else 0)


def _check_may_begin(state: LogState, producer: ProducerRef) -> None:
    """Refuse ids that were never given, those whose sequences may have been forgotten, and those of
    transactional ids.
    """
    if state.may_begin(producer.producer_id):
        if producer.epoch != IDEMPOTENT_EPOCH:
            raise InternalError("a producer without a transactional id has no epochs", epoch=producer.epoch)
        return
    if producer.producer_id >= state.next_producer_id:
        what = "the log has never given this producer id"
    elif producer.producer_id < state.retired_below:
        what = "the log has forgotten this producer: it was idle for too long"
    else:
        what = "this producer id has a transactional id, and appends only with that"
    raise UnknownProducerIdError(
        what,
        hint="open a new producer",
        producer_id=producer.producer_id,
    )


def _refuse_sequence(
    verdict: SequenceVerdict,
    producer: ProducerRef,
    part: PendingPartition,
    key: TopicPartition,
    expected: int,
) -> NoReturn:
    values: dict[str, Any] = {
        "producer_id": producer.producer_id,
        "topic_id": key.topic_id,
        "partition": key.partition,
        "expected": expected,
        "got": part.base_sequence,
    }
    if verdict is SequenceVerdict.FORK:
        raise ProducerIdConflictError(
            "other data was appended under the same producer id and sequence",
            hint="two processes share one producer (a fork, a cloned machine): give each its own",
            **values,
        )
    if verdict is SequenceVerdict.UNKNOWN_PRODUCER:
        raise UnknownProducerIdError(
            "the partition does not know this producer, and its sequence does not start at 0",
            hint="open a new producer",
            **values,
        )
    raise OutOfOrderSequenceError(
        "the sequence has a gap, overlaps, or repeats something too old", hint="open a new producer", **values
    )
