"""What processes were told before the power was cut, and whether a log still says so."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from txnformat.core.intents import AppRef
from txnformat.types import Outcome
from txnlog import TxnLog

__all__ = [
    "Aborted",
    "Acknowledged",
    "AppVersion",
    "Committed",
    "Ended",
    "Ends",
    "Exists",
    "Fact",
    "GroupAt",
    "HasTopic",
    "Prepared",
    "Seen",
]

Row = tuple[int, int, int]
"""Partition, offset, value."""


def rows_of(log: TxnLog, topic: str, isolation: str = "read_committed") -> list[Row]:
    """Return the rows of a topic."""
    found = log.read(topic, isolation=isolation, columns=["_partition", "_offset", "n"]).read_all()
    return list(zip(*(found[name].to_pylist() for name in ("_partition", "_offset", "n")), strict=True))


class Fact:
    """Something that was told. ``check`` returns what is wrong with it now."""

    def check(self, log: TxnLog) -> str | None:
        raise NotImplementedError


@dataclass(frozen=True)
class Exists(Fact):
    """There is this log."""

    log_id: str

    def check(self, log: TxnLog) -> str | None:
        return None if log.log_id == self.log_id else f"another log: {log.log_id}"


@dataclass(frozen=True)
class HasTopic(Fact):
    """The topic is there, with at least these partitions."""

    name: str
    topic_id: str
    partitions: int

    def check(self, log: TxnLog) -> str | None:
        state = log.refresh()
        if state.topic_ids.get(self.name) != self.topic_id:
            return "the topic is gone, or another one"
        found = len(log.offsets(self.name))
        return None if found >= self.partitions else f"{found} partitions"


@dataclass(frozen=True)
class Committed(Fact):
    """These values are visible, each once."""

    topic: str
    values: tuple[int, ...]

    def check(self, log: TxnLog) -> str | None:
        counts = Counter(value for _, _, value in rows_of(log, self.topic))
        wrong = {value: counts[value] for value in self.values if counts[value] != 1}
        return f"seen so often: {wrong}" if wrong else None


@dataclass(frozen=True)
class Aborted(Fact):
    """These values are never visible."""

    topic: str
    values: tuple[int, ...]

    def check(self, log: TxnLog) -> str | None:
        shown = {value for _, _, value in rows_of(log, self.topic)} & set(self.values)
        return f"visible: {shown}" if shown else None


@dataclass(frozen=True)
class Seen(Fact):
    """A reader saw these rows where they are."""

    topic: str
    isolation: str
    rows: tuple[Row, ...]

    def check(self, log: TxnLog) -> str | None:
        lost = set(self.rows) - set(rows_of(log, self.topic, self.isolation))
        return f"lost: {sorted(lost)}" if lost else None


@dataclass(frozen=True)
class Ends(Fact):
    """A partition ended there, and was stable up to there."""

    topic: str
    ends: tuple[tuple[int, int], ...]

    def check(self, log: TxnLog) -> str | None:
        found = [(one.last_stable_offset, one.log_end) for one in log.offsets(self.topic)]
        back = [
            (then, now)
            for then, now in zip(self.ends, found, strict=False)
            if now[0] < then[0] or now[1] < then[1]
        ]
        return f"went back: {back}" if back or len(found) < len(self.ends) else None


@dataclass(frozen=True)
class Ended(Fact):
    """A transaction ended so."""

    transactional_id: str
    epoch: int
    outcome: Outcome

    def check(self, log: TxnLog) -> str | None:
        found = log.outcome(self.transactional_id, self.epoch).outcome
        return None if found is self.outcome else f"ended otherwise: {found}"


@dataclass(frozen=True)
class Prepared(Fact):
    """A transaction waits for its outcome, and can be committed. Looked at once: that ends it."""

    token: str
    topic: str
    values: tuple[int, ...]

    def check(self, log: TxnLog) -> str | None:
        log.commit_prepared(self.token)
        return Committed(self.topic, self.values).check(log)


@dataclass(frozen=True)
class AppVersion(Fact):
    """A version of an application is taken."""

    app: AppRef

    def check(self, log: TxnLog) -> str | None:
        held = log.refresh().app_versions.get((self.app.namespace, self.app.app_id))
        return None if held is not None and held.version >= self.app.version else f"held: {held}"


@dataclass(frozen=True)
class GroupAt(Fact):
    """A group's position was committed."""

    group: str
    topic: str
    offset: int

    def check(self, log: TxnLog) -> str | None:
        positions = log.groups.describe(self.group).positions
        found = [one.current_offset or 0 for one in positions if one.topic == self.topic]
        return None if found and found[0] >= self.offset else f"at {found}"


@dataclass(frozen=True)
class Acknowledged(Fact):
    """So many records of a subscription are acknowledged, or more."""

    topic: str
    name: str
    acknowledged: int

    def check(self, log: TxnLog) -> str | None:
        left = log.subscriptions.describe(self.topic, self.name).unacknowledged
        found = len(rows_of(log, self.topic)) - left
        return None if found >= self.acknowledged else f"{found} acknowledged"
