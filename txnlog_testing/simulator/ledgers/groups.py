"""The judge of consumer groups in a simulated history: members, positions, and what was made of the input
below them.

Kept by the rules of the specification alone, from the operations of the entries as they land: the list of the
commit operations of each group, in log order, with what became of each. The position of a key is that of the
last of them that came into force, and everything else follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from txnformat.core.entry import CommitEntry
from txnformat.core.groups.operations import (
    NO_OFFSET,
    NO_POSITION,
    CommitOffsets,
    DeleteGroup,
    GroupKey,
    JoinGroup,
    OffsetCommit,
)
from txnformat.core.intents import Action, LeaveGroup, RemoveGroup, ResetOffsets, Write
from txnformat.core.operations import Expire
from txnformat.core.state import LogState
from txnformat.types import TopicPartition
from txnlog_testing.simulator.world import HistoryViolation

__all__ = ["Claim", "GroupLedger"]

Transaction = tuple[int, int]
"""Producer id and epoch."""


@dataclass(slots=True)
class _Commit:
    """One commit operation of one group."""

    who: Transaction | None
    values: dict[GroupKey, int | str]
    compared: frozenset[GroupKey]
    outcome: str
    """``now`` (outside of transactions), ``open``, ``commit`` or ``abort``."""


@dataclass(slots=True)
class _Group:
    generation: int = 0
    has_member: bool = False
    session_timeout_ms: int = 0
    used_ms: int = 0
    commits: list[_Commit] = field(default_factory=list)

    def value(self, key: GroupKey) -> int | str:
        for commit in reversed(self.commits):
            if commit.outcome in ("now", "commit") and key in commit.values:
                return commit.values[key]
        return NO_POSITION if isinstance(key, str) else NO_OFFSET

    def open(self, key: GroupKey) -> list[_Commit]:
        return [one for one in self.commits if one.outcome == "open" and key in one.values]


@dataclass(frozen=True, slots=True)
class Claim:
    """The origin that a record names: it was made of a group's input in [start, end)."""

    group: str
    key: TopicPartition
    start: int
    end: int


class GroupLedger:
    """Every group of one history.

    Parameters
    ----------
    outcome_of : callable
        Returns what became of the data with a digest: ``plain``, ``open``, ``commit`` or ``abort``; None: not
        there.
    stable : callable
        Returns a partition's last stable offset and its log end, at this moment of an entry.
    hits : Counter
        Counts what happened.
    """

    def __init__(
        self,
        outcome_of: Callable[[str], str | None],
        stable: Callable[[TopicPartition], tuple[int, int]],
        hits: Counter[str],
    ) -> None:
        self._outcome_of = outcome_of
        self._stable = stable
        self._hits = hits
        self._groups: dict[str, _Group] = {}
        self._broken: set[Transaction] = set()
        """Members that had compared a position which another member has committed since."""
        self._prepared: set[Transaction] = set()
        self._retired = 0
        """Highest generation of a group that is gone."""
        self._touched: set[str] = set()
        self.claims: dict[str, Claim] = {}
        """Claims by digest of the data, from any sender."""

    def on_operation(
        self, op: JoinGroup | CommitOffsets | DeleteGroup, entry: CommitEntry, action: Action | None
    ) -> None:
        """Judge an operation."""
        group = self._groups.setdefault(op.group, _Group(self._retired))
        self._touched.add(op.group)
        match op:
            case JoinGroup():
                self._join(op, group, action)
            case CommitOffsets():
                self._commit(op, group, action)
            case DeleteGroup():
                forced = isinstance(action, RemoveGroup) and action.force
                seen_ms = action.store_time_ms if isinstance(action, RemoveGroup) else 0
                self._check_idle(op, group, seen_ms, forced=forced)
                if any(one.outcome == "open" for one in group.commits):
                    raise HistoryViolation(f"{op} deletes a group with pending positions")
                self._hits["group deleted"] += 1
                self._retired = max(self._retired, self._groups.pop(op.group).generation)
                return
        group.used_ms = entry.timestamp_ms

    def _join(self, op: JoinGroup, group: _Group, action: Action | None) -> None:
        if op.generation != group.generation + 1:
            raise HistoryViolation(f"{op} follows generation {group.generation}")
        if isinstance(action, LeaveGroup) and action.generation != group.generation:
            raise HistoryViolation(f"{op}: a member of generation {action.generation} leaves")
        if isinstance(action, ResetOffsets):
            self._check_idle(op, group, action.store_time_ms, forced=action.force)
            self._hits["group reset"] += 1
        self._hits["member fenced"] += group.has_member and op.member is not None
        group.generation, group.has_member = op.generation, op.member is not None
        group.session_timeout_ms = op.session_timeout_ms

    def _check_idle(self, op: JoinGroup | DeleteGroup, group: _Group, seen_ms: int, *, forced: bool) -> None:
        if group.has_member and not forced and seen_ms < group.used_ms + group.session_timeout_ms:
            raise HistoryViolation(f"{op} puts out a live member")

    def _commit(self, op: CommitOffsets, group: _Group, action: Action | None) -> None:
        if op.generation is not None and (op.generation != group.generation or not group.has_member):
            raise HistoryViolation(f"{op} is not of generation {group.generation}, or of no member")
        if isinstance(action, ResetOffsets) and group.has_member:
            raise HistoryViolation(f"{op} resets a group whose member may still commit")
        who = None if op.transactional_id is None else (op.producer_id, op.epoch)
        for commit in op.commits():
            others = [one for one in group.open(commit.key) if one.who != who]
            if isinstance(commit, OffsetCommit):
                self._check_readable(op, commit, action)
            if commit.expected is not None and (commit.expected != group.value(commit.key) or others):
                raise HistoryViolation(
                    f"{commit} of {op.group} takes the place of {group.value(commit.key)}, beside {others}"
                )
            for one in others:
                if one.who is not None and commit.key in one.compared:
                    if one.who in self._prepared:
                        raise HistoryViolation(f"{op} breaks what the prepared {one.who} holds")
                    self._broken.add(one.who)
                    self._hits["hold broken"] += 1
        values = {commit.key: commit.value for commit in op.commits()}
        compared = frozenset(commit.key for commit in op.commits() if commit.expected is not None)
        group.commits.append(_Commit(who, values, compared, "now" if who is None else "open"))
        self._hits["position committed" if who is None else "position pending"] += 1

    def _check_readable(self, op: CommitOffsets, commit: OffsetCommit, action: Action | None) -> None:
        asked = action.offsets if isinstance(action, Write) else ()
        dirty = any(one.group == op.group and one.read_uncommitted for one in asked)
        stable, end = self._stable(commit.key)
        if commit.offset > (end if dirty else stable):
            raise HistoryViolation(f"{commit} lies beyond what can be read: {stable}, {end}")

    def prepared(self, who: Transaction) -> None:
        """Note that a transaction waits for an outcome that is decided elsewhere."""
        if who in self._broken:
            raise HistoryViolation(f"{who} is prepared, and can only be aborted")
        self._prepared.add(who)

    def ended(self, who: Transaction, outcome: str, cause: str, now_ms: int) -> None:
        """Note the end of a transaction (outcome ``commit`` or ``abort``); it need not have any position."""
        if outcome == "commit" and who in self._broken:
            raise HistoryViolation(f"{who} is committed, and a position that it had compared has changed")
        self._broken.discard(who)
        self._prepared.discard(who)
        for name, group in self._groups.items():
            for order, one in enumerate(group.commits):
                if one.who == who and one.outcome == "open":
                    one.outcome = outcome
                    group.used_ms = now_ms
                    self._touched.add(name)
                    self._hits[f"positions ended: {outcome} by {cause}"] += 1
                    later = group.commits[order + 1 :]
                    if outcome == "commit" and any(
                        other.outcome in ("now", "commit") and other.values.keys() & one.values.keys()
                        for other in later
                    ):
                        self._hits["position was overtaken by a later commit"] += 1

    def expired(self, op: Expire, before_ms: int) -> None:
        """Judge that only groups were forgotten that no client has used after ``before_ms``."""
        for name in op.groups:
            group = self._groups.pop(name)
            self._retired = max(self._retired, group.generation)
            self._touched.add(name)
            lives_ms = group.used_ms + group.session_timeout_ms if group.has_member else 0
            if max(group.used_ms, lives_ms) > before_ms or any(
                one.outcome == "open" for one in group.commits
            ):
                raise HistoryViolation(f"group {name} is forgotten before its time")
            self._hits["group expired"] += 1

    def check(self, after: LogState) -> None:
        """Compare the groups that the entry concerned with what the log says of them, and all claims with
        positions.
        """
        for name in sorted(self._touched):
            self._check_group(name, after)
        self._touched.clear()
        self.check_claims()

    def _check_group(self, name: str, after: LogState) -> None:
        group, shown = self._groups.get(name), after.groups.get(name)
        if group is None or shown is None:
            if group is not None or shown is not None:
                raise HistoryViolation(f"group {name} is {shown}, not {group}")
            return
        keys = {key for one in group.commits for key in one.values}
        right = {key: value for key in keys if (value := group.value(key)) not in (NO_OFFSET, NO_POSITION)}
        told = {key: one.value for key, one in shown.committed.items()}
        if told != right:
            raise HistoryViolation(f"the positions of {name} are {told}, not {right}")
        pending = {
            (one.who, key): one.values[key]
            for key in keys
            for one in group.open(key)  # the last one of a transaction wins
        }
        ids = after.transactional_ids
        told_pending = {
            ((ids[owner].producer_id, ids[owner].epoch), key): one.value
            for owner, found in shown.pending.items()
            for key, one in found.items()
        }
        if told_pending != pending:
            raise HistoryViolation(f"pending of {name} is {told_pending}, not {pending}")
        if (shown.generation, shown.member is not None) != (group.generation, group.has_member):
            raise HistoryViolation(f"group {name} has generation {shown.generation}, not {group.generation}")
        for key in keys:
            holders = {
                one.who for one in group.open(key) if key in one.compared and one.who not in self._broken
            }
            if len(holders) > 1:
                raise HistoryViolation(f"{holders} all hold {key} of {name}")

    def check_claims(self) -> None:
        """Check that what was made of a group's input and is committed is made of just what lies below its
        position.
        """
        made: dict[tuple[str, TopicPartition], list[tuple[int, int]]] = {}
        for digest, claim in self.claims.items():
            ranges = made.setdefault((claim.group, claim.key), [])
            if self._outcome_of(digest) in ("plain", "commit"):
                ranges.append((claim.start, claim.end))
        for (name, key), ranges in made.items():
            group = self._groups.get(name)
            position = group.value(key) if group is not None else NO_OFFSET
            at = 0
            for start, end in sorted(ranges):
                if start != at:
                    raise HistoryViolation(
                        f"{name} made {sorted(ranges)} of {key}: a loss or a double at {at}"
                    )
                at = end
            if at != (0 if position == NO_OFFSET else position):
                raise HistoryViolation(f"{name} made {sorted(ranges)} of {key}, its position is {position}")
            self._hits["output and position agree"] += at > 0
