"""Upkeep in a simulated history, by the product's own code: compaction of files and keys, erasures and their
certificates, the vacuum, truncation, trims, readers.

Each keeper is a process. Its jobs make their requests one by one (:mod:`txnlog_testing.simulator.blocking`),
so everything races with everything, under all faults.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from txnformat import keys
from txnformat.admin.compaction import compact
from txnformat.admin.erasure.call import abandon, erase
from txnformat.admin.erasure.certificate import certify
from txnformat.admin.trimming import trim_to
from txnformat.admin.truncation import truncate, write_needed_snapshots
from txnformat.admin.vacuum import vacuum
from txnformat.core.intents import EnableFeatures, RemoveTopic, SealSegments
from txnformat.core.state import EMBEDDING, LIFECYCLE, LogState, TopicState
from txnformat.core.transactions.state import TransactionStatus
from txnformat.errors import (
    CommitStateUnknownError,
    FormatError,
    InternalError,
    NotFoundError,
    StorageError,
    TxnLogError,
)
from txnformat.protocol.commit import CommitSettings
from txnformat.protocol.effects import Sleep, Steps
from txnformat.protocol.old_entries import OldEntries
from txnformat.protocol.sealing import sealable_end, write_segments
from txnformat.protocol.view import View
from txnformat.reading.plan import plan_read
from txnformat.reading.resolving import read_plan
from txnformat.reading.rows import read_rows
from txnformat.reading.sealed import SidecarCache
from txnformat.store.base import ObjectStore
from txnformat.types import IsolationLevel, TopicPartition
from txnlog_testing.simulator.blocking import Program, SimCommitter
from txnlog_testing.simulator.contents import KEYS, Row
from txnlog_testing.simulator.ledgers.rewrites import Condition
from txnlog_testing.simulator.oracle import Oracle
from txnlog_testing.simulator.world import HistoryViolation, Process, World

__all__ = [
    "READER_JOBS",
    "TRUNCATION_HITS",
    "TRUNCATION_JOBS",
    "UPKEEP_HITS",
    "UPKEEP_JOBS",
    "Keeper",
    "Truncating",
]

TRUNCATION_HITS = frozenset({"boundary written", "old entry read", "truncated"})
UPKEEP_HITS = frozenset(
    {
        "compacted by the product",
        "begins without embedding",
        "embedded",
        "embedded where the first entry allows it",
        "erased records",
        "erasure abandoned",
        "erasure advanced",
        "erasure complete",
        "erasure requested",
        "erasure waits for entries",
        "old plan read",
        "read by offsets",
        "read overtaken",
        "taken by keys",
        "tombstone taken",
        "vacuum condemned",
        "vacuum deleted",
        "version read",
        "version refused",
    }
)
"""Events that histories with upkeep must have met."""

TRUNCATION_JOBS = ("days", "truncate", "hours", "truncate", "truncate", "look_back")
UPKEEP_JOBS = (
    "erase", "compact", "vacuum", "hours", "certify", "vacuum", "hours", "compact", "erase", "vacuum",
    "certify", "trim", "delete", "abandon", "truncate",
)  # fmt: skip
READER_JOBS = ("read", "read", "read_old_plan", "read_old_plan", "read_version", "hours")
"""Jobs of the three sorts of keepers; each does them in an order of its own, again and again."""

GRACE = datetime.timedelta(hours=2)
HOUR_MS = 3_600_000
WEEK = datetime.timedelta(days=7)
WEEK_MS = 7 * 24 * HOUR_MS
ERASURE_KEY = "0123456789abcdef0123456789abcdef"
"""Key of all erasures of a history, so that each process may go on with what another one has begun."""
REFUSALS = frozenset(
    {
        "already-upgraded",
        "commit-contention",
        "commit-too-old",
        "clock-skew",
        "erasure-superseded",
        "log-time-ahead",
        "not-sealed",
        "offset-out-of-range",
        "replace-superseded",
        "topic-gone",
        "topic-in-use",
        "transaction-prepared",
        "trim-superseded",
        "unknown-erasure",
        "unknown-topic",
        "upgrade-required",
        "upload-expired",
        "version-trimmed",
    }
)
"""Kinds of errors that a job may be told; any other is a defect."""
DAMAGES = frozenset({"broken-chain", "damaged-bundle"})
"""Kinds of errors with which a truncation refuses damaged bundles: it deletes nothing."""


@dataclass(slots=True, eq=False)
class Keeper:
    """A process that does jobs, one after another, each on what it knows from the one before."""

    world: World
    oracle: Oracle
    process: Process
    settings: CommitSettings
    jobs: tuple[str, ...] = ()
    """Names of methods; what is named twice is done twice as often."""
    features: tuple[str, ...] = (LIFECYCLE,)
    last: str = ""
    """Job that the process does when the history ends; empty: none."""
    pauses: tuple[int, ...] = (20, 300, 2_000)
    has_payloads: bool = False
    """Whether its committer writes and reads payload bundles."""
    view: View | None = None
    committer: SimCommitter | None = None
    planned: list[str] = field(default_factory=list)

    def crashed(self) -> None:
        """Forget everything."""
        for intent in self.committer.in_flight if self.committer is not None else ():
            self.oracle.abandoned(intent)
        self.view = self.committer = None

    def main(self) -> Steps[None]:
        """Do jobs until the history ends; then see that everything can be brought to an end."""
        rng = self.world.rng
        while not self.world.is_finishing:
            yield Sleep(rng.choice(self.pauses))
            if not self.planned:
                self.planned = list(self.jobs)
                rng.shuffle(self.planned)
            yield from self._do(self.planned.pop())
        if self.last:
            yield from self._do(self.last)

    def _do(self, name: str) -> Steps[None]:
        job: Callable[[SimCommitter], None] = getattr(self, name)
        self.world.note(f"{self.process.name:6} begins {name}")
        program = Program()
        committer = SimCommitter(
            self.world, self.process, self.oracle, program, self.settings, self.view,
            has_payloads=self.has_payloads,
        )  # fmt: skip
        self.committer = committer
        told = "done"
        try:
            yield from program.steps(partial(self._after_upgrade, job, committer))
        except (StorageError, CommitStateUnknownError) as error:
            told = error.kind
        except (FormatError, InternalError) as error:
            told = error.kind
            if told not in DAMAGES or not self.world.bad_bundles:
                raise HistoryViolation(
                    f"{name} of {self.process.name} calls a sound log corrupt: {error}"
                ) from error
        except TxnLogError as error:
            told = error.kind
            if told not in REFUSALS:
                raise HistoryViolation(f"{name} of {self.process.name} fails: {error}") from error
        self.committer = None
        if committer.view is not None:
            self.oracle.seen(self.process.name, self.view, committer.view, deep=self.world.is_finishing)
            self.view = committer.view
        self.world.note(f"{self.process.name:6} ends {name}: {told}")
        self.world.hits[f"{name} {told}"] += 1

    def _after_upgrade(self, job: Callable[[SimCommitter], None], committer: SimCommitter) -> None:
        if committer.refresh().lacks(LIFECYCLE):
            committer.commit(committer.intend(EnableFeatures(self.features)))
        job(committer)

    # Jobs.

    def hours(self, committer: SimCommitter) -> None:
        """Let more than the grace of the vacuum pass."""
        self.world.leap(HOUR_MS * 3)

    def days(self, committer: SimCommitter) -> None:
        """Let entries become old enough to go."""
        self.world.leap(WEEK_MS + HOUR_MS)

    def truncate(self, committer: SimCommitter) -> None:
        """Let old entries go."""
        write_needed_snapshots(committer, WEEK)
        self._truncated(truncate(committer, WEEK))

    def _truncated(self, report: Any) -> None:
        self.world.hits["boundary written"] += report.new_boundary
        self.world.hits["truncated"] += report.count("deleted", "entry") > 0
        self.world.hits["entries deleted"] += report.count("deleted", "entry")

    def look_back(self, committer: SimCommitter) -> None:
        """Read old entries: no slot that was created again is taken for one."""
        state = committer.refresh()
        old = OldEntries(state.entry)
        numbers = [self.world.rng.randint(0, state.entry) for _ in range(3)]
        for number in (*numbers, *self.oracle.recreated):
            try:
                found = committer.read(old.read(number))
            except NotFoundError:
                if not self.world.bad_bundles:
                    raise
                continue  # its bundle is not what it should be
            if found != self.oracle.entries[number]:
                raise HistoryViolation(
                    f"entry {number} is read as {found}, the chain has {self.oracle.entries[number]}"
                )
            self.world.hits["old entry read"] += 1

    def vacuum(self, committer: SimCommitter) -> None:
        """Delete what nothing names."""
        report = vacuum(committer, GRACE)
        for fate in ("condemned", "deleted"):
            self.world.hits[f"vacuum {fate}"] += any(row.fate == fate for row in report.rows)

    def compact(self, committer: SimCommitter) -> None:
        """Compact files and keys."""
        target = self.world.rng.choice((1, 10**6))
        compact(committer, SidecarCache(committer.store), target_bytes=target, min_lag_ms=0)

    def trim(self, committer: SimCommitter) -> None:
        """Move log starts."""
        state = committer.refresh()
        topic = self._some_topic(state)
        if topic is None:
            return
        wanted = {}
        for number in range(topic.partitions):
            partition = state.partition(TopicPartition(topic.topic_id, number))
            end = sealable_end(partition)
            if partition.log_start < end and self.world.rng.random() < 0.5:
                wanted[number] = self.world.rng.randint(partition.log_start + 1, end)
        trim_to(committer, SidecarCache(committer.store), topic, wanted)

    def delete(self, committer: SimCommitter) -> None:
        """Delete a topic; clients create it again under its name."""
        topic = self._some_topic(committer.refresh())
        if topic is not None and self.world.rng.random() < 0.2:
            committer.commit(committer.intend(RemoveTopic(topic.topic_id, force=True)))

    def erase(self, committer: SimCommitter) -> None:
        """Erase, or go on with an erasure that any process has begun."""
        state = committer.refresh()
        rewrites = self.oracle.ledger.rewrites
        topic = self._some_topic(state)
        if topic is None or rewrites is None:
            return
        opened = [
            rewrites.conditions[one.condition]
            for one in state.erasures.values()
            if one.rewritten_entry < 0 and one.topic_id in state.topics
        ]
        self._erase(committer, self.world.rng.choice(opened) if opened else self._condition(topic.topic_id))

    def _erase(self, committer: SimCommitter, condition: Condition) -> None:
        rewrites = self.oracle.ledger.rewrites
        assert rewrites is not None
        text = f"{condition.topic_id}\n{condition.sql}".encode()
        told = hmac.new(ERASURE_KEY.encode(), text, hashlib.sha256).hexdigest()
        rewrites.conditions[told] = condition
        erase(
            committer,
            SidecarCache(committer.store),
            committer.state.topics[condition.topic_id].name,
            condition.sql,
            requested_by="a simulated user",
            key=ERASURE_KEY,
            all_rows=True,
        )

    def _condition(self, topic_id: str) -> Condition:
        rng = self.world.rng
        if rng.random() < 0.6:
            key = rng.randrange(KEYS)
            return Condition(topic_id, f"k = {key}", lambda row: row.k == key)
        rewrites = self.oracle.ledger.rewrites
        assert rewrites is not None
        last = len(rewrites.contents.batch_of)
        first = rng.randrange(last + 1)

        def matches(row: Row) -> bool:
            return first <= row.n < last

        return Condition(topic_id, f"n >= {first} AND n < {last}", matches)

    def certify(self, committer: SimCommitter) -> None:
        """Complete the erasures of which nothing is left."""
        certify(committer)

    def abandon(self, committer: SimCommitter) -> None:
        """Give up an erasure now and then."""
        opened = [one for one in committer.refresh().erasures.values() if one.complete_entry < 0]
        if opened and self.world.rng.random() < 0.15:
            abandon(committer, self.world.rng.choice(opened).erasure_id, requested_by="a simulated user")

    def finish(self, committer: SimCommitter) -> None:
        """Bring all erasures to an end; only a prepared transaction may hold one up."""
        rewrites = self.oracle.ledger.rewrites
        assert rewrites is not None
        for _ in range(3):
            state = committer.refresh()
            opened = [one for one in state.erasures.values() if one.complete_entry < 0]
            if not opened:
                return
            self.days(committer)  # more than any timeout of a transaction
            committer.end_expired()
            for one in opened:
                if one.rewritten_entry < 0 and one.topic_id in committer.refresh().topics:
                    self._erase(committer, rewrites.conditions[one.condition])
            if EMBEDDING in committer.refresh().features.reader:
                self._let_entries_go(committer)
            for _ in range(2):
                self.hours(committer)
                self.vacuum(committer)
            self.certify(committer)
        state = committer.refresh()
        prepared = any(
            state.transactional_ids[name].status is TransactionStatus.PREPARED for name in state.undecided
        )
        left = [one for one in state.erasures.values() if one.complete_entry < 0]
        if EMBEDDING in state.features.reader:
            # Truncation keeps the newest entries, and with them the payloads that they have.
            oldest = min(_slots(self.world.store))
            self.world.hits["erasure waits for entries"] += any(one.rewritten_entry >= oldest for one in left)
            left = [one for one in left if one.rewritten_entry < oldest]
        if left and not prepared:
            raise HistoryViolation(f"erasures never come to an end: {left}")

    def _let_entries_go(self, committer: SimCommitter) -> None:
        """Seal, so that no payload is needed any more, and delete the old entries."""
        while (seal := committer.read(write_segments(committer.refresh()))) is not None:
            committer.commit(committer.intend(SealSegments(seal)))
        for _ in range(2):
            self.days(committer)
            self.truncate(committer)

    # Readers.

    def read(self, committer: SimCommitter) -> None:
        """Read what is committed, slowly, from a plan that may grow old; other processes change everything
        meanwhile.
        """
        state = committer.refresh()
        topic = self._some_topic(state)
        if topic is None:
            return
        sidecars = SidecarCache(committer.store)
        plan = plan_read(sidecars, state, topic.name)
        before = {
            number: self._expected(state, TopicPartition(topic.topic_id, number))
            for number in range(topic.partitions)
        }
        committer.clock.sleep(self.world.rng.choice((0, 5, 60, 600)))
        with closing(read_plan(sidecars, committer.refresh, plan, ["_partition", "_offset", "n"])) as batches:
            shown = _numbers(batches, self._slowly(committer))
        self._check(topic, before, shown)
        self.world.hits["read by offsets"] += 1

    def read_old_plan(self, committer: SimCommitter) -> None:
        """Read the files of a plan within the grace of the vacuum, without another look at the log."""
        state = committer.refresh()
        topic = self._some_topic(state)
        if topic is None:
            return
        sidecars = SidecarCache(committer.store)
        plan = plan_read(sidecars, state, topic.name)
        since = self.world.time.now_ms
        committer.clock.sleep(self.world.rng.choice((5, 60, 600)))
        try:
            for part in plan.partitions:
                rows = read_rows(
                    committer.store, topic.name, topic.schema, part.partition, part.rows,
                    plan.files.__getitem__, ["_partition", "_offset", "n"],
                )  # fmt: skip
                _numbers(rows, self._slowly(committer))
        except TxnLogError as error:
            if isinstance(error, StorageError):
                raise
            age = self.world.time.now_ms - since
            if age < GRACE // datetime.timedelta(milliseconds=1):
                raise HistoryViolation(f"a plan of {age} ms ago cannot be read: {error}") from error
            self.world.hits["plan too old"] += 1
            return
        self.world.hits["old plan read"] += 1

    def read_version(self, committer: SimCommitter) -> None:
        """Read an older version, or be refused."""
        rewrites = self.oracle.ledger.rewrites
        state = committer.refresh()
        topic = self._some_topic(state)
        if topic is None or rewrites is None:
            return
        sidecars = SidecarCache(committer.store)
        numbers = [TopicPartition(topic.topic_id, number) for number in range(topic.partitions)]
        lost = max(state.partition(key).cleaned_entry for key in numbers)
        last = lost if self.world.rng.random() < 0.6 and lost > topic.created_entry else state.entry
        version = self.world.rng.randint(topic.created_entry, last)
        before = {key: dict(rewrites.gone_of(key)) for key in numbers}
        try:
            plan = plan_read(sidecars, state, topic.name, isolation=IsolationLevel.SNAPSHOT, as_of=version)
            with closing(
                read_plan(sidecars, committer.refresh, plan, ["_partition", "_offset", "n"])
            ) as batches:
                shown = _numbers(batches, self._slowly(committer))
        except TxnLogError as error:
            if error.kind == "version-trimmed":
                self.world.hits["version refused"] += 1
            raise
        if topic.topic_id not in self.oracle.state.topics:
            return
        for key in numbers:
            if not self.oracle.state.partition(key).log_start:
                rewrites.check_version(key, version, shown.get(key.partition, {}), before[key])

    def _slowly(self, committer: SimCommitter) -> Callable[[], None]:
        def pause() -> None:
            if self.world.rng.random() < 0.3:
                committer.clock.sleep(self.world.rng.choice((1, 10, 60)))

        return pause

    def _expected(self, state: LogState, key: TopicPartition) -> dict[int, int]:
        """Return what a reader of a state, which is the newest, is to be shown: numbers by offset."""
        ledger, partition = self.oracle.ledger, self.oracle.states[state.entry + 1].partition(key)
        assert ledger.rewrites is not None
        gone = ledger.rewrites.gone_of(key)
        return {
            offset: known.row.n
            for offset, known in ledger.committed_rows(key).items()
            if partition.log_start <= offset < partition.last_stable_offset
            and known.commit_entry <= state.entry
            and offset not in gone
        }

    def _check(
        self, topic: TopicState, before: dict[int, dict[int, int]], shown: dict[int, dict[int, int]]
    ) -> None:
        if topic.topic_id not in self.oracle.state.topics:
            return
        rewrites = self.oracle.ledger.rewrites
        assert rewrites is not None
        for number, expected in before.items():
            key = TopicPartition(topic.topic_id, number)
            seen = shown.get(number, {})
            more = {offset: name for offset, name in seen.items() if expected.get(offset) != name}
            start = self.oracle.state.partition(key).log_start
            lost = [
                offset
                for offset in expected.keys() - seen.keys()
                if offset >= start and offset not in rewrites.gone_of(key)
            ]
            # Records that went between its look at the log and the plan may be there or not.
            more = {
                offset: name for offset, name in more.items() if rewrites.gone_of(key).get(offset) is None
            }
            if more or lost:
                raise HistoryViolation(f"a reader of {key} is shown {more}, and not {lost}")
            self.world.hits["read overtaken"] += expected.keys() != seen.keys()

    # Everything else.

    def _some_topic(self, state: LogState) -> TopicState | None:
        return state.topics[self.world.rng.choice(sorted(state.topics))] if state.topics else None


def _slots(store: ObjectStore) -> list[int]:
    """Return the numbers of the entries that are there."""
    found = (keys.parse_entry_key(info.key) for info in store.list(keys.LOG_PREFIX))
    return [slot for slot in found if slot is not None]


def _numbers(batches: Iterator[Any], pause: Callable[[], None]) -> dict[int, dict[int, int]]:
    """Return the numbers of records by partition and offset; each must be there once."""
    found: dict[int, dict[int, int]] = {}
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("_partition", "_offset", "n")]
        for partition, offset, number in zip(*columns, strict=True):
            if offset in found.setdefault(partition, {}):
                raise HistoryViolation(f"a reader is shown {partition}/{offset} twice")
            found[partition][offset] = number
        pause()
    return found


@dataclass(slots=True, eq=False)
class Truncating(Keeper):
    """An operator that truncates: it looks after nothing else, and lets days pass."""

    def truncate(self, committer: SimCommitter) -> None:
        """Let old entries go; others write the snapshots that it takes."""
        self._truncated(truncate(committer, WEEK))
