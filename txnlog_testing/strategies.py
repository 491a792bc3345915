"""Hypothesis strategies: random histories of a log, as commands that any state gives a meaning to.

A command is a few plain numbers. :class:`Clients` turns it into an intent with what the clients of a log know
at that moment, so that most commands are valid, and the rest are the mistakes that real clients make:
repeats, gaps, forks, stale identities.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import pyarrow as pa
from hypothesis import strategies as st

from txnformat import keys
from txnformat.core.intents import (
    Action,
    AllocateIds,
    AppRef,
    ChangeTopic,
    EndTransaction,
    Intent,
    OpenProducer,
    PendingPartition,
    ProducerRef,
    TopicAppend,
    Write,
)
from txnformat.core.operations import DEFERRED_TIMEOUT_MS, TIMEOUT_MS, Cause, CreateTopic
from txnformat.persistent import replace
from txnformat.types import BatchRecord, FileRecord, ObjectRecord, Outcome, TopicPartition
from txnlog_testing.models.naive_model import NaiveModel

__all__ = [
    "HISTORY_GROUPS_MAX",
    "OPENING",
    "Clients",
    "Command",
    "commands",
    "groups",
    "in_table",
    "make_append",
    "make_topic",
]

FIELDS: tuple[object, ...] = ({"name": "value", "type": "int64"},)
TOPICS = ("orders", "audit", "raw")
TRANSACTIONAL_IDS = ("etl-0", "etl-1", "größe 漢字")

HISTORY_GROUPS_MAX = 20

MISTAKES = (
    "none",
    "none",
    "none",
    "none",
    "none",
    "gap",
    "overlap",
    "fork",
    "repeat",
    "more",
    "epoch-",
    "epoch+",
)
"""Mistakes of a producer: half of the appends are right."""


@dataclass(frozen=True)
class Command:
    """One thing that a client wants."""

    what: str
    who: int
    topic: int
    partitions: tuple[int, ...]
    records: int
    mistake: str
    outcome: Outcome


commands = st.builds(
    Command,
    what=st.sampled_from(
        [
            *("append",) * 5,
            *("stage",) * 4,
            *("idempotent",) * 3,
            *("end",) * 3,
            *("bulk",) * 2,
            *("one-shot",) * 2,
            *("prepare",) * 2,
            *("timeout",) * 2,
            "operator",
            "open",
            "create",
            "alter",
            "allocate",
            "again",
        ]
    ),
    who=st.integers(0, 2),
    topic=st.integers(0, 2),
    partitions=st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True).map(tuple),
    records=st.integers(1, 4),
    mistake=st.sampled_from(MISTAKES),
    outcome=st.sampled_from(Outcome),
)
"""One command."""

_group = st.lists(commands, min_size=1, max_size=4)
groups = st.one_of(
    st.lists(_group, min_size=1, max_size=HISTORY_GROUPS_MAX),
    st.lists(_group, min_size=HISTORY_GROUPS_MAX // 2, max_size=HISTORY_GROUPS_MAX),
)
"""A history: commands that wait at the same time share a group. Half of the histories are long."""


OPENING = [
    [Command(what, who, who, (0,), 1, "none", Outcome.COMMIT) for who in range(3)]
    for what in ("create", "open", "allocate")
]
"""The usual beginning of a history: topics, producers and ids to work with."""


def make_topic(name: str, number: int = 0, partitions: int = 3) -> CreateTopic:
    """Return the operation that creates a topic; its id is that of ``name`` and ``number``."""
    topic_id = _uuid(f"{name} {number}")
    return CreateTopic(topic_id, name, keys.topic_directory(name, topic_id), partitions, FIELDS, (), None)


def in_table(append: TopicAppend) -> TopicAppend:
    """Return an append in the form in which it can be staged: a table has its batches."""
    digest = append.files[0].sha256
    table = ObjectRecord(keys.table_key(0, _uuid(append.files[0].key)), 100, digest)
    return replace(append, batches=(), table=table)


def _uuid(seed: str) -> str:
    text = hashlib.sha256(seed.encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


def make_append(
    topic: CreateTopic,
    parts: dict[int, tuple[int, int]],
    *,
    content: str,
    records_per_batch: int = 2,
    schema_id: int = 0,
) -> TopicAppend:
    """Return an append of one file.

    Parameters
    ----------
    parts : dict of int to (int, int)
        By partition: base sequence (-1 without a producer) and number of records.
    content : str
        Stands for the data: appends of other content have other digests.
    """
    digest = hashlib.sha256(content.encode()).hexdigest()
    batches: list[BatchRecord] = []
    pending: list[PendingPartition] = []
    for partition, (sequence, records) in parts.items():
        sizes = [min(records_per_batch, records - start) for start in range(0, records, records_per_batch)]
        for size in sizes:
            batches.append(BatchRecord(partition, 0, len(batches), 1, size, 8 * size, 1_000, 2_000))
        pending.append(
            PendingPartition(partition, records, len(sizes), sequence, digest[:16], 8 * records, 1_000, 2_000)
        )
    rows = sum(records for _, records in parts.values())
    key = keys.data_key(topic.directory, 0, _uuid(f"{content} {parts}"))  # a key is named by one append
    file = FileRecord(key, 1_000, digest, 100, digest, rows, schema_id)
    return TopicAppend(topic.topic_id, topic.partitions, (file,), tuple(pending), tuple(batches))


@dataclass
class Clients:
    """The knowledge of a log's clients: turns commands into intents."""

    model: NaiveModel
    following: dict[tuple[int, int, TopicPartition], int] = field(default_factory=dict)
    """Next sequences, also of intents that still wait."""
    sent: list[Intent] = field(default_factory=list)
    appended: dict[tuple[int, int], TopicAppend] = field(default_factory=dict)
    """The last append of each producer."""
    staging: set[tuple[int, int]] = field(default_factory=set)
    """Transactions that stage, also those whose first stage still waits."""

    def forget_pending(self) -> None:
        """Look at the log again: what was not committed did not use up any sequence."""
        self.following = {key: sent[-1].last + 1 for key, sent in self.model.sent.items()}
        how = self.model.undecided()
        self.staging = {
            (known.producer_id, known.epoch)
            for name, known in self.model.ids.items()
            if how.get(name) == "staged" or (known.prepared is not None and known.staged)
        }

    def intent(self, command: Command, slot: int) -> Intent:
        """Return the intent that ``command`` is at this moment."""
        if command.what == "again" and self.sent:
            return self.sent[(7 * command.who + 3 * command.topic + command.records) % len(self.sent)]
        intent = Intent(_uuid(f"intent {len(self.sent)}"), slot, self._action(command))
        self.sent.append(intent)
        return intent

    def _action(self, command: Command) -> Action:
        topic = self.model.topics.get(TOPICS[command.topic])
        name = TRANSACTIONAL_IDS[command.who]
        match command.what:
            case "open":
                return self._open(command, name)
            case "timeout" | "operator":
                return self._end_for_another(command, name)
            case "allocate":
                return AllocateIds(f"process {command.who}", 10)
            case "create" | "again":
                return make_topic(
                    TOPICS[command.topic], len(self.sent), 2 if command.mistake == "fork" else 3
                )
            case "alter" if topic is not None:
                return self._change(command, topic)
            case "bulk":
                return self._bulk(command, topic)
            case "end":
                return Write(self._producer(command, name), end=command.outcome)
            case "prepare" if command.records % 2:
                return Write(self._producer(command, name), prepare=True)
            case _:
                return self._producers_write(command, topic, name)

    def _producers_write(self, command: Command, topic: CreateTopic | None, name: str) -> Action:
        if topic is None:
            return make_topic(TOPICS[command.topic], len(self.sent), 3)
        if command.what == "idempotent":
            if self.model.next_producer_id == 0:
                return AllocateIds("process", 10)
            owned = {known.producer_id for known in self.model.ids.values()}
            free = [one for one in range(min(self.model.next_producer_id, 20)) if one not in owned]
            candidates = sorted(owned) if command.mistake == "epoch-" and owned else free or [50]
            return Write(
                *self._append(command, topic, ProducerRef(candidates[command.who % len(candidates)], 0))
            )
        end = command.outcome if command.what == "one-shot" else None
        producer = self._producer(command, name)
        deferred = self._is_deferred(command, producer)
        producer, appends = self._append(command, topic, producer)
        if deferred:
            appends = tuple(in_table(one) for one in appends)
        prepare = command.what == "prepare"
        return Write(producer, appends, end, deferred=deferred, prepare=prepare)

    def _is_deferred(self, command: Command, producer: ProducerRef) -> bool:
        """Return whether to stage: a transaction goes on as it began, but for a mistake."""
        who = (producer.producer_id, producer.epoch)
        is_open = any(who in self.model.open(key) for key in self.model.log)
        if who not in self.staging and not is_open:
            wanted = command.what == "stage" or (command.what != "append" and command.who == 1)
            if wanted:
                self.staging.add(who)
            return wanted
        return (who in self.staging) != (command.mistake == "more" and command.records == 4)

    def _open(self, command: Command, name: str) -> OpenProducer:
        timeouts = {
            "gap": (0, DEFERRED_TIMEOUT_MS),
            "overlap": (900_001, DEFERRED_TIMEOUT_MS),
            "fork": (TIMEOUT_MS, -1),
            "more": (TIMEOUT_MS, 7 * DEFERRED_TIMEOUT_MS + 1),
            "repeat": (1, 1),
            "epoch-": (900_000, 7 * DEFERRED_TIMEOUT_MS),
            "epoch+": (1_000 * command.records, 5_000),
        }
        return OpenProducer(name, *timeouts.get(command.mistake, (TIMEOUT_MS, DEFERRED_TIMEOUT_MS)))

    def _end_for_another(self, command: Command, name: str) -> EndTransaction:
        """Return an end by an operator or for a timeout: half of these at the first moment that allows it."""
        producer = self._producer(command, name)
        who = (name, producer.producer_id, producer.epoch)
        if command.what == "operator":
            return EndTransaction(*who, Cause.OPERATOR, force=command.outcome is Outcome.ABORT)
        known = self.model.ids.get(name)
        entry, began_ms = known.timed if known is not None else (-1, 0)
        expiry = self.model.expiry(name)
        if command.outcome is Outcome.COMMIT:
            at_ms = expiry[1] if expiry is not None else began_ms + DEFERRED_TIMEOUT_MS
            return EndTransaction(*who, Cause.TIMEOUT, at_ms + (0, -1, 1, -1_000)[command.records - 1])
        seen = entry + (0, -1, 0, 1)[command.records - 1]
        return EndTransaction(*who, Cause.TIMEOUT, observed_entry=seen)

    def _change(self, command: Command, topic: CreateTopic) -> ChangeTopic:
        more = {"gap": -1, "overlap": 0, "more": 10_000}.get(command.mistake, command.records)
        partitions = self.model.count(topic) + more if command.outcome is Outcome.COMMIT else None
        name = f"added {command.records % 3}"
        add = (pa.field(name, pa.int8(), nullable=command.mistake != "fork"),) if command.who == 0 else ()
        wider = (pa.int16(), pa.int32(), pa.int64())[len(command.partitions) - 1]
        return ChangeTopic(topic.topic_id, partitions, add, ((name, wider),) if command.who == 1 else ())

    def _now(self, command: Command, topic: CreateTopic) -> tuple[CreateTopic, int]:
        """Return a topic with the partitions that a client thinks it has, and the schema that it writes."""
        versions = 1 + len(self.model.columns.get(topic.topic_id, []))
        is_late = command.mistake == "epoch+"
        return (
            replace(topic, partitions=topic.partitions if is_late else self.model.count(topic)),
            command.records % versions,
        )

    def _producer(self, command: Command, name: str) -> ProducerRef:
        known = self.model.ids.get(name)
        if known is None:
            return ProducerRef(90 + command.who, 0, name)
        shift = {"epoch-": -1, "epoch+": 1}.get(command.mistake, 0)
        return ProducerRef(known.producer_id, max(0, known.epoch + shift), name)

    def _bulk(self, command: Command, topic: CreateTopic | None) -> Write:
        wanted = make_topic(TOPICS[command.topic], len(self.sent), 3)
        target = wanted if topic is None or command.mistake == "more" else topic
        if topic is not None and command.mistake == "more":
            wanted = target = replace(wanted, partitions=topic.partitions)
        parts = dict.fromkeys(command.partitions, (-1, command.records))
        schema_id = 0
        if target is topic:
            target, schema_id = self._now(command, topic)
        append = make_append(target, parts, content=f"bulk {len(self.sent)}", schema_id=schema_id)
        app = None
        if command.outcome is Outcome.COMMIT:
            version, _ = self.model.apps.get(("spark-batch", str(command.who)), (-1, -1))
            shift = {"repeat": 0, "overlap": -1}.get(command.mistake, 1)
            app = AppRef("spark-batch", str(command.who), max(0, version + shift))
        return Write(appends=(append,), app=app, create=(wanted,) if target is wanted else ())

    def _append(
        self, command: Command, topic: CreateTopic, producer: ProducerRef
    ) -> tuple[ProducerRef, tuple[TopicAppend, ...]]:
        who = (producer.producer_id, producer.epoch)
        last = self.appended.get(who)
        if command.mistake == "repeat" and last is not None:
            return producer, (last,)
        if command.mistake == "fork" and last is not None:
            other = tuple(replace(part, digest="f" * 16) for part in last.partitions)
            return producer, (replace(last, partitions=other),)
        shift = {"gap": 1, "overlap": -1}.get(command.mistake, 0)
        parts: dict[int, tuple[int, int]] = {}
        if command.mistake == "more" and last is not None and last.topic_id == topic.topic_id:
            parts = {part.partition: (part.base_sequence, part.records) for part in last.partitions}
        for one in command.partitions:
            key = (*who, TopicPartition(topic.topic_id, one))
            sequence = self.following.get(key, 0)
            parts.setdefault(one, (max(0, sequence + shift), command.records))
        now, schema_id = self._now(command, topic)
        append = make_append(now, parts, content=f"append {len(self.sent)}", schema_id=schema_id)
        if command.mistake == "more" and last is not None and last.topic_id == topic.topic_id:
            # Batches sent before keep their digest: the log has them, and only the rest is new.
            digests = {part.partition: part.digest for part in last.partitions}
            kept = (
                replace(part, digest=digests.get(part.partition, part.digest)) for part in append.partitions
            )
            append = replace(append, partitions=tuple(kept))
        for part in append.partitions:
            key = (*who, TopicPartition(topic.topic_id, part.partition))
            self.following[key] = max(self.following.get(key, 0), part.base_sequence + part.records)
        self.appended[who] = append
        return producer, (append,)
