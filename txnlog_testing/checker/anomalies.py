"""Anomalies of a history, the anomalies that a system allows, and the report.

The first fifteen classes are those of Jepsen's workload for Kafka-like systems (jepsen.tests.kafka; the
notions of G0, G1a and G1c are Adya's); the others are what transactions, groups and a last stable offset add.
Each has its exact meaning in :data:`DEFINITIONS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from txnlog_testing.checker.vocabulary import Key, Value

__all__ = ["DEFINITIONS", "KAFKA", "TXNLOG", "Allowances", "Anomaly", "AnomalyClass", "Definition", "Report"]

KEPT = 100
"""Anomalies of each class that a report keeps; it counts all."""


class AnomalyClass(StrEnum):
    """The classes; :data:`DEFINITIONS` says what each means."""

    DUPLICATE = "duplicate"
    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    G1A = "G1a"
    PRECOMMITTED_READ = "precommitted-read"
    LOST_WRITE = "lost-write"
    UNSEEN = "unseen"
    POLL_SKIP = "poll-skip"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    INT_POLL_SKIP = "int-poll-skip"
    INT_NONMONOTONIC_POLL = "int-nonmonotonic-poll"
    NONMONOTONIC_SEND = "nonmonotonic-send"
    INT_NONMONOTONIC_SEND = "int-nonmonotonic-send"
    INT_SEND_SKIP = "int-send-skip"
    G0 = "G0"
    G0_PROCESS = "G0-process"
    G0_REALTIME = "G0-realtime"
    G1C = "G1c"
    G1C_PROCESS = "G1c-process"
    G1C_REALTIME = "G1c-realtime"
    TORN = "torn"
    PARTIAL_POLL = "partial-poll"
    LSO_STALL = "lso-stall"
    OFFSET_ATOMICITY = "offset-atomicity"
    ZOMBIE_VISIBLE = "zombie-visible"
    STALE_SEQ = "stale-seq"
    RESURRECTED = "resurrected"
    TIME_TRAVEL = "time-travel"
    UNWRITTEN = "unwritten"


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of a class."""

    when: str
    """When it is an anomaly."""
    unless: str
    """When it is not, or is not judged."""


_A = AnomalyClass
DEFINITIONS: Mapping[AnomalyClass, Definition] = {
    _A.DUPLICATE: Definition(
        "a value is at more than one offset",
        "a reader of uncommitted records saw several attempts of one transaction",
    ),
    _A.INCONSISTENT_OFFSETS: Definition(
        "one offset of a partition has more than one value: as readers saw it, or committed sends were told",
        "a send that failed, or of which nothing is known, had been told the offset",
    ),
    _A.G1A: Definition(
        "a reader of committed records saw a value of which every writer failed",
        "the writer's outcome is unknown; or the reader asked for uncommitted records",
    ),
    _A.PRECOMMITTED_READ: Definition(
        "a transaction read, as committed, what it had itself sent and not yet committed",
        "it read uncommitted records",
    ),
    _A.LOST_WRITE: Definition(
        "no reader has read a committed value, though something behind it was read: at a higher offset, "
        "or sent "
        "after it was acknowledged, or later in the same operation",
        "no reader began at the partition's beginning, and the value lies before all that was read; or "
        "its writer's "
        "outcome is unknown and nothing of it was read",
    ),
    _A.UNSEEN: Definition(
        "a value that was acknowledged before a whole read of its partition began is not there, and was "
        "never read",
        "it is a lost-write; or there was no whole read: readers may lag",
    ),
    _A.POLL_SKIP: Definition(
        "between two operations of one reader it passed over a committed value that others read; in the "
        "order of "
        "commits: one that was sent after something that it saw, and acknowledged before something that "
        "it saw was sent",
        "the reader was assigned, set or restarted in between",
    ),
    _A.NONMONOTONIC_POLL: Definition(
        "a later operation of a reader went back: to an offset that it had passed; in the order of "
        "commits: to a record "
        "that it had, or to one acknowledged before something that it had was sent",
        "the reader was assigned, set or restarted in between",
    ),
    _A.INT_POLL_SKIP: Definition(
        "as poll-skip, inside one operation, or inside the range of offsets that a poll says it read",
        "the partition's assignment changed during the operation",
    ),
    _A.INT_NONMONOTONIC_POLL: Definition(
        "as nonmonotonic-poll, inside one "
        "operation", "the partition's assignment changed during the operation"
    ),
    _A.NONMONOTONIC_SEND: Definition(
        "what a process sent in one operation stands behind what it sent in a later one",
        "the first one's outcome was not known when the second began",
    ),
    _A.INT_NONMONOTONIC_SEND: Definition(
        "records of one operation do not stand in the order in which it sent them",
        "the operation is unordered",
    ),
    _A.INT_SEND_SKIP: Definition(
        "another's committed record stands between those of a transaction",
        "the transaction is interleaved, or it is no transaction",
    ),
    _A.G0: Definition(
        "transactions overwrote each other in a circle: one is before the other in this partition, behind "
        "it in that",
        "one of them is interleaved",
    ),
    _A.G0_PROCESS: Definition(
        "as G0, with the order in which a process did its operations", "one of them is interleaved"
    ),
    _A.G0_REALTIME: Definition(
        "as G0, with the order of operations that ended before others began",
        "one of them is interleaved",
    ),
    _A.G1C: Definition(
        "information flowed in a circle: each operation read from, or wrote behind, the one before it",
        "it takes the order of an interleaved transaction's records",
    ),
    _A.G1C_PROCESS: Definition("as G1c, with the order in which a process did its operations", "as G1c"),
    _A.G1C_REALTIME: Definition(
        "as G1c, with the order of operations that ended before others began", "as G1c"
    ),
    _A.TORN: Definition(
        "one whole read of committed records shows some records of a transaction, and not others of the "
        "same partitions; "
        "or all whole reads after the quiesce together do",
        "the transaction failed: that is G1a; sends outside of transactions",
    ),
    _A.PARTIAL_POLL: Definition(
        "a reader of committed records saw some of a transaction's records in a partition and passed over "
        "another; in the "
        "order of commits: one poll shows a part of what the transaction wrote to the poll's partitions",
        "it has not come to the other one's offset yet",
    ),
    _A.LSO_STALL: Definition(
        "the last stable offset was below the log's end although every transaction that sent to the "
        "partition had ended for "
        "the allowed time; or it went back",
        "a transaction's outcome was unknown, and neither its next instance had opened nor was there a "
        "quiesce",
    ),
    _A.OFFSET_ATOMICITY: Definition(
        "a group's position and the outputs that were committed with it do not agree: the position of a "
        "transaction that "
        "failed, or whose outputs a whole read lacks; an older position than that of a transaction that "
        "was acknowledged or read",
        "a newer commit of the same group may have set the position",
    ),
    _A.ZOMBIE_VISIBLE: Definition(
        "a committed record has an epoch, or a version, that was over: a newer one's record is before it "
        "in the partition, "
        "or a newer one had been acknowledged before its operation began",
        "the operation began before the newer one was acknowledged, and its records are before the newer "
        "one's",
    ),
    _A.STALE_SEQ: Definition(
        "a sequence number of one producer and epoch is there twice, or behind a larger one; or two attempts "
        "of one version are there, each with records of its own",
        "the records have no sequence, or are not committed",
    ),
    _A.RESURRECTED: Definition(
        "a committed record was read, and is missing from a whole read that began later",
        "no reader had read it before that read began",
    ),
    _A.TIME_TRAVEL: Definition(
        "two reads of one offset gave different "
        "values", "only what a send was told differs: inconsistent-offsets"
    ),
    _A.UNWRITTEN: Definition(
        "a value was read that no producer sent", "the history has no sends to that topic"
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Allowances:
    """The anomalies that a system allows.

    Parameters
    ----------
    name : str
    allowed : frozenset of AnomalyClass
        Found, told, and no violation.
    allowed_subscribed : frozenset of AnomalyClass
        The same for what a process does while it is subscribed.
    writes_isolated : bool
        Whether transactions that are not interleaved write all their records at one moment; else G1c goes
        without the order of writes.
    stall_ms : int
        How long after the last transaction's end the last stable offset may stand below the log's end.
    """

    name: str
    allowed: frozenset[AnomalyClass] = frozenset()
    allowed_subscribed: frozenset[AnomalyClass] = frozenset()
    writes_isolated: bool = True
    stall_ms: int = 0


TXNLOG = Allowances("txnlog")
"""Nothing is allowed: a commit is one entry. Transactions that were flushed into an inline buffer are marked
as interleaved."""
KAFKA = Allowances(
    "kafka",
    allowed=frozenset({_A.INT_SEND_SKIP, _A.G0, _A.G0_PROCESS, _A.G0_REALTIME}),
    allowed_subscribed=frozenset({_A.POLL_SKIP, _A.NONMONOTONIC_POLL}),
    writes_isolated=False,
    stall_ms=10_000,
)
"""As Jepsen's workload allows Kafka: writes are never isolated, and a rebalance may move a subscribed reader.
"""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One thing that is wrong."""

    cls: AnomalyClass
    what: str
    """A sentence."""
    keys: tuple[Key, ...] = ()
    values: tuple[Value, ...] = ()
    operations: tuple[int, ...] = ()
    """Places in the history at which the operations involved begin."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "class": self.cls.value,
            "what": self.what,
            "keys": list(self.keys),
            "values": list(self.values),
            "operations": list(self.operations),
        }


@dataclass(slots=True)
class Report:
    """The findings of a check."""

    events: int
    operations: int
    allowances: Allowances
    anomalies: list[Anomaly] = field(default_factory=list)
    """Violations: of each class the first 100."""
    counts: Counter[AnomalyClass] = field(default_factory=Counter)
    """Number of all violations, by class."""
    allowed: Counter[AnomalyClass] = field(default_factory=Counter)
    """Number of the findings that are allowed, by class."""
    values: int = 0
    """Values that were sent or read."""
    records_read: int = 0
    """Records in all polls."""
    unjudged: dict[AnomalyClass, str] = field(default_factory=dict)
    """Classes that the history says nothing about, and why."""

    @property
    def ok(self) -> bool:
        """Return whether nothing was found but what is allowed."""
        return not self.counts

    def add(self, anomaly: Anomaly, *, subscribed: bool = False) -> None:
        """Count something that was found."""
        allowed = self.allowances.allowed | (
            self.allowances.allowed_subscribed if subscribed else frozenset()
        )
        if anomaly.cls in allowed:
            self.allowed[anomaly.cls] += 1
            return
        self.counts[anomaly.cls] += 1
        if self.counts[anomaly.cls] <= KEPT:
            self.anomalies.append(anomaly)

    def of(self, cls: AnomalyClass) -> list[Anomaly]:
        """Return the violations of a class."""
        return [one for one in self.anomalies if one.cls is cls]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "ok": self.ok,
            "events": self.events,
            "operations": self.operations,
            "values": self.values,
            "records_read": self.records_read,
            "allowances": self.allowances.name,
            "counts": _plain(self.counts),
            "allowed": _plain(self.allowed),
            "unjudged": {cls.value: why for cls, why in self.unjudged.items()},
            "anomalies": [one.to_json() for one in self.anomalies],
        }

    def __str__(self) -> str:
        verdict = "clean" if self.ok else f"{sum(self.counts.values())} anomalies"
        size = f"{self.operations} operations, {self.values} values, {self.records_read} records read"
        lines = [f"{verdict}: {size}, held against what {self.allowances.name} promises"]
        for cls, count in sorted(self.counts.items()):
            lines.append(f"  {cls.value}: {count}")
            lines += [f"    {_text(one)}" for one in self.of(cls)[:5]]
            if count > 5:
                lines.append(f"    … and {count - 5} more")
        lines += [f"  allowed, {cls.value}: {count}" for cls, count in sorted(self.allowed.items())]
        lines += [f"  not judged, {cls.value}: {why}" for cls, why in self.unjudged.items()]
        return "\n".join(lines)


def _text(one: Anomaly) -> str:
    places = ", ".join(f"#{place}" for place in one.operations[:8])
    return f"{one.what} [{places}]" if places else one.what


def _plain(counts: Counter[AnomalyClass]) -> dict[str, int]:
    return {cls.value: counts[cls] for cls in AnomalyClass if counts[cls]}
