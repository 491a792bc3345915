"""Second opinions about the keys that entries name. Pure.

I20: what is named for a topic lies in its directories (:mod:`txnformat.core.ownership`). I21: nothing is
named that was born below the vacuum's floor (:mod:`txnformat.core.lifecycle.vacuum`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from txnformat.core.entry import CommitEntry
from txnformat.core.lifecycle.operations import DeleteTopic, Replace, VacuumMark
from txnformat.core.operations import Append, Checkpoint, Seal, Stage
from txnformat.core.state import LogState, TopicState
from txnformat.types import SegmentRecord

__all__ = ["check_floor_step", "check_keys", "check_keys_step"]

_Problems = Iterator[str]
CUT_CHARS = 240
"""Characters of a topic's name that its directory has."""


def check_keys_step(entry: CommitEntry, after: LogState) -> _Problems:
    """Yield the violations of what one entry names; costs what it names."""
    deleted = {op.topic_id for op in entry.operations if isinstance(op, DeleteTopic)}
    for operation in entry.operations:
        if isinstance(operation, Append | Stage):
            for file in operation.files:
                yield from _file(file.key, after.topics.get(operation.topic_id))
        elif isinstance(operation, Seal):
            for segment in operation.segments:
                if segment.topic_id in deleted:
                    continue
                yield from _segment(segment.record, after)
        elif isinstance(operation, Replace) and operation.topic_id not in deleted:
            for one in operation.segments:
                yield from _segment(SegmentRecord(operation.topic_id, one.index), after)


def check_keys(state: LogState) -> _Problems:
    """Yield the violations in one state."""
    for key, partition in state.partitions.items():
        for row in partition.extents.array():
            first, count = (row["first_file"], row["file_count"]) if row["file"] < 0 else (row["file"], 1)
            yield from _files(state, int(first), int(count), key.topic_id)
    for known in state.transactional_ids.values():
        for flush in known.staged:
            yield from _files(state, flush.first_file, flush.file_count, flush.topic_id)
    for record in state.segments:
        yield from _segment(record, state)
    shared = Counter(topic.directory for topic in state.topics.values())
    for directory in sorted(directory for directory, count in shared.items() if count > 1):
        yield f"I20 {directory}: it is the directory of several topics"


def _files(state: LogState, first: int, count: int, topic_id: str) -> _Problems:
    for number in range(first, first + count):
        if number in state.files:
            yield from _file(state.files[number].key, state.topics.get(topic_id))


def _file(key: str, topic: TopicState | None) -> _Problems:
    if topic is None:
        return  # I13 says so
    own = re.escape(topic.directory)
    named = re.escape(topic.name) + "-[0-9a-f]{8}" if len(topic.name) < CUT_CHARS else own
    if not re.match(f"(?:{own}|{named})/data/", key):
        yield f"I20 {key}: it is named for topic {topic.name}, in whose directories it is not"


def _segment(record: SegmentRecord, state: LogState) -> _Problems:
    topic = state.topics.get(record.topic_id)
    for named in record.objects():
        if topic is None:
            yield f"I20 {record.index.key}: it is a segment of topic {record.topic_id}, which is not there"
            return
        if not named.key.startswith(f"{topic.directory}/segments/"):
            yield f"I20 {named.key}: it is named for topic {topic.name}, in whose directory it is not"


def check_floor_step(before: LogState, entry: CommitEntry, after: LogState) -> _Problems:
    """Yield the violations of I21 by one entry; costs what it names."""
    floor = before.vacuum_floor
    if not floor <= after.vacuum_floor < max(1, after.entry):
        yield f"I21 the floor goes from {floor} to {after.vacuum_floor}, in entry {after.entry}"
    for operation in entry.operations:
        if isinstance(operation, VacuumMark):
            floor = operation.floor
        elif floor and not isinstance(operation, Checkpoint):
            for key in _records(msgspec.to_builtins(operation)):
                if (born := re.search("/([0-9]{20})-[^/]*$", key)) and int(born[1]) < floor:
                    yield f"I21 {key}: it is named though the floor is {floor}"


def _records(value: Any) -> Iterator[str]:
    """Yield the texts that stand under the name ``key``, at any depth."""
    if isinstance(value, dict):
        if isinstance(key := value.get("key"), str):
            yield key
        for one in value.values():
            yield from _records(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _records(one)
