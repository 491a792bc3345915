"""A topic's files are the topic's: whether what is named for a topic lies in its directories. Pure.

The keys have the form of their kind already (:mod:`txnformat.keys`). The specification says in section 5
which operation may name which file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import NoReturn, TypeVar

from txnformat.core.folding import At, corrupt
from txnformat.core.operations import CreateTopic
from txnformat.core.state import DeletedTopic, LogState, TopicState, topic_gone
from txnformat.errors import ConflictError, CorruptDataError, TxnLogError
from txnformat.field_types import LOG_TIME_MS_MAX
from txnformat.keys import (
    check_topics_file,
    check_topics_sidecar,
    has_own_directory_only,
    is_topics_file,
    is_topics_sidecar,
)
from txnformat.types import FileRecord, SegmentRecord

__all__ = [
    "check_files",
    "check_segment",
    "check_snapshot",
    "directories",
    "directory_in_use",
    "named_before",
    "shares_directory",
    "topic_exists",
]

K = TypeVar("K")
V = TypeVar("V")


def directories(state: LogState) -> dict[str, str]:
    """Return the directory of each topic, by id."""
    return {topic_id: topic.directory for topic_id, topic in state.topics.items()}


def shares_directory(directory: str, taken: Callable[[], Collection[str]]) -> bool:
    """Return whether a topic that is to be created has the directory of another one: long names are cut in
    it.

    ``taken`` gives the directories of the topics that are there; it is called only for a name that is cut.
    """
    return has_own_directory_only(directory) and directory in taken()


def topic_exists(name: str) -> ConflictError:
    """Return what to raise about a topic that cannot be created: it, or its directory, is there."""
    return ConflictError(
        "the topic exists already", kind="topic-exists", hint="use it, or choose another name", topic=name
    )


def directory_in_use(wanted: CreateTopic, gone: DeletedTopic) -> TxnLogError:
    """Return what to raise about a topic that cannot be created since a deleted topic had its directory, or
    since it is that topic.
    """
    if gone.topic_id == wanted.topic_id:
        return topic_gone("the topic was created, and then deleted", wanted.topic_id, topic=wanted.name)
    return ConflictError(
        "the topic would have the directory of a topic that was deleted",
        kind="directory-in-use",
        hint="try again: the topic gets another id then",
        topic=wanted.name,
        directory=wanted.directory,
        deleted_topic_id=gone.topic_id,
    )


def check_files(topic: TopicState, files: Iterable[FileRecord], at: At) -> None:
    """Refuse segment files that an append or a stage names and that are not its topic's."""
    for file in files:
        if not is_topics_file(file.key, topic.directory):
            _foreign(topic, "a file", file.key, at)


def named_before(state: LogState, files: Iterable[FileRecord]) -> str | None:
    """Return the key of a file that an append or stage is to name, and that another one has named, as far as
    the state knows; None: there is none.

    The same key twice is one, too.
    """
    wanted = [file.key for file in files]
    if len(set(wanted)) < len(wanted):
        return next(key for key in wanted if wanted.count(key) > 1)
    return state.files.first_of(wanted)


def check_segment(topic: TopicState, record: SegmentRecord, at: At) -> None:
    """Refuse sidecars that a seal names and that are not its topic's."""
    for named in record.objects():
        if not is_topics_sidecar(named.key, topic.directory):
            _foreign(topic, "a sidecar", named.key, at)


def _foreign(topic: TopicState, what: str, key: str, at: At) -> NoReturn:
    what = f"an entry names {what} in the directory of another topic"
    corrupt(at, what, topic=topic.name, expected=f"in {topic.directory}/", got=key)


def check_snapshot(state: LogState, name: str) -> None:
    """Raise CorruptDataError about a state, decoded from snapshot ``name``, whose parts name what is not
    there.

    That is a file or sidecar of another topic (kind ``invalid-key``), or a topic, segment, file, batch table,
    open transaction, or what is pending in one, that the snapshot lacks; and a time that no entry has.
    """
    topics = directories(state)
    for topic_id, number in _named_partitions(state):
        _there(topics, topic_id, "topic", name)
        if number >= state.topics[topic_id].partitions:
            raise _missing(name, "partition", (topic_id, number))
    _check_open(state, name)
    _check_pending(state, name)
    _check_rows(state, name)
    for segment in state.segments:
        directory = _there(topics, segment.topic_id, "topic", name)
        for named in segment.objects():
            check_topics_sidecar(named.key, directory, where=name)
    files = dict(zip(state.files.numbers(), state.files, strict=True))
    for topic_id, number in _named_files(state, name):
        directory = _there(topics, topic_id, "topic", name)
        check_topics_file(_there(files, number, "file", name).key, directory, where=name)


def _check_open(state: LogState, name: str) -> None:
    """Refuse transactional ids that name open transactions which their partitions lack.

    A partition's transaction that no id names is a hanging one: ``transactions find-hanging`` shows it,
    ``abort`` ends it.
    """
    opened = {
        (key, producer): first
        for key, partition in state.partitions.items()
        for producer, first in partition.open.items()
    }
    for known in state.transactional_ids.values():
        for key, first in known.partitions.items():
            if opened.pop((key, (known.producer_id, known.epoch)), None) != first:
                raise _missing(name, "transaction", (*key, known.producer_id, known.epoch))


def _check_pending(state: LogState, name: str) -> None:
    """Refuse positions and acknowledgements that are pending by ids which do not name them, and ids that name
    those that are not pending.
    """
    pending: set[object] = {(one, holder) for one, group in state.groups.items() for holder in group.pending}
    pending.update(
        (key, holder)
        for key, subscription in state.subscriptions.items()
        for holder in subscription.holders()
    )
    named: set[object] = {
        (one, holder)
        for holder, known in state.transactional_ids.items()
        for one in chain(known.groups, known.subscriptions)
    }
    for wanted in pending ^ named:
        raise _missing(name, "transaction" if wanted in pending else "pending position", wanted)


def _check_rows(state: LogState, name: str) -> None:
    """Refuse rows of partitions that name segments of other topics or none, or are of times that no entry
    has.
    """
    topic_of = {
        number: segment.topic_id
        for number, segment in zip(state.segments.numbers(), state.segments, strict=True)
    }
    for key, partition in state.partitions.items():
        for number in set(partition.segments.array()["segment"].tolist()):
            if topic_of.get(number) != key.topic_id:
                raise _missing(name, "segment", number)
        for rows in (partition.extents, partition.markers):
            times = rows.array()["timestamp_ms"]
            if len(times) and not 0 <= times.min() <= times.max() <= LOG_TIME_MS_MAX:
                raise _missing(name, "time", int(times.max()))


def _named_partitions(state: LogState) -> Iterator[tuple[str, int]]:
    """Yield topic and number of the partitions that hold something, that groups have positions in, and that
    subscriptions name.
    """
    yield from state.partitions
    for group in state.groups.values():
        for key in chain(group.committed, *group.pending.values()):
            if not isinstance(key, str):
                yield key
    for (topic_id, _), subscription in state.subscriptions.items():
        yield topic_id, 0
        yield from ((topic_id, number) for number in subscription.partitions)


def _named_files(state: LogState, name: str) -> Iterator[tuple[str, int]]:
    """Yield topic and number of each file that extents and stages name, themselves or through batch tables.

    The caller stops at the first number that is not there: so these are never more than the rows of the
    snapshot.
    """
    named: dict[str, set[int]] = {}
    runs: set[tuple[int, int, str]] = set()
    used: set[int] = set()
    for key, partition in state.partitions.items():
        used.update(one.table for one in partition.spills)
        extents = partition.extents.array()
        in_table = extents["table"] >= 0
        named.setdefault(key.topic_id, set()).update(extents["file"][~in_table].tolist())
        if in_table.any():
            found = extents[in_table]
            used.update(found["table"].tolist())
            runs.update((*run, key.topic_id) for run in found[["first_file", "file_count"]].tolist())
    for known in state.transactional_ids.values():
        for flush in known.staged:
            used.add(flush.table)
            runs.add((flush.first_file, flush.file_count, flush.topic_id))
    if used:
        tables = dict.fromkeys(state.tables.numbers())
        for number in used:
            _there(tables, number, "table", name)
    for topic_id, numbers in named.items():
        for number in numbers:
            yield topic_id, number
    end = 0
    for first, count, topic_id in sorted(runs):
        if first < end:  # a file is of one append: so the runs together are no longer than the list of files
            raise _missing(name, "file", first)
        end = first + count
        for number in range(first, end):
            yield topic_id, number


def _there(known: Mapping[K, V], wanted: K, what: str, name: str) -> V:
    if wanted not in known:
        raise _missing(name, what, wanted)
    return known[wanted]


def _missing(name: str, what: str, wanted: object) -> CorruptDataError:
    return CorruptDataError(
        f"a snapshot names a {what} that it lacks",
        hint="the log is complete without it: its entries are read",
        object=name,
        got=wanted,
    )
