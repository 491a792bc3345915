"""Invariants of consumer groups, for every state and every step.

Pure. See :mod:`txnformat.core.invariants`.
"""

from __future__ import annotations

from collections.abc import Iterator

from txnformat.core.entry import CommitEntry
from txnformat.core.groups.operations import CommitOffsets, DeleteGroup, GroupKey, JoinGroup
from txnformat.core.groups.state import GroupState
from txnformat.core.lifecycle.operations import DeleteTopic
from txnformat.core.operations import EndTxn, Expire, InitProducer
from txnformat.core.state import LogState
from txnformat.core.transactions.state import UNDECIDED, TransactionStatus

__all__ = ["check_groups", "check_groups_step"]

_Problems = Iterator[str]


def check_groups_step(before: LogState, entry: CommitEntry, after: LogState) -> list[str]:
    """Return the violations of what an entry does to groups; the cost is that of the groups it names."""
    named: set[str] = set()
    gone: set[str] = set()
    ended: set[str] = set()
    for operation in entry.operations:
        match operation:
            case JoinGroup() | CommitOffsets():
                named.add(operation.group)
                gone.discard(operation.group)
            case DeleteGroup():
                gone.add(operation.group)
            case Expire():
                gone |= set(operation.groups)
            case EndTxn() | InitProducer():
                ended.add(operation.transactional_id)
            case _:
                pass
    for transactional_id in ended:
        known = before.transactional_ids.get(transactional_id)
        named |= set(known.groups) if known is not None else set()
    left = [before.groups[name].generation for name in gone if name in before.groups]
    retired = max([before.retired_generation, *left])
    problems: list[str] = []
    if after.retired_generation < retired:
        problems.append(
            f"I18 entry {entry.entry}: generations up to {retired} are gone, not {after.retired_generation}"
        )
    problems += [f"I18 group {name}: it is still there" for name in sorted(gone) if name in after.groups]
    deleted = {op.topic_id for op in entry.operations if isinstance(op, DeleteTopic)}
    for name in sorted(named - gone):
        old, new = before.group(name), after.groups.get(name)
        if new is None:
            problems.append(f"I18 group {name}: it is gone")
            continue
        if new.generation < old.generation:
            problems.append(f"I18 group {name}: its generation goes back")
        if not _deleted_in(entry, name) and (
            new.commits < old.commits
            or any(
                key not in new.committed or new.committed[key].order < one.order
                for key, one in old.committed.items()
                if isinstance(key, str) or key.topic_id not in deleted
            )
        ):
            problems.append(f"I18 group {name}: a position goes back")
        problems += _check_group(name, new, after)
    return problems


def _deleted_in(entry: CommitEntry, name: str) -> bool:
    return any(
        (isinstance(op, DeleteGroup) and op.group == name) or (isinstance(op, Expire) and name in op.groups)
        for op in entry.operations
    )


def check_groups(state: LogState) -> list[str]:
    """Return the violations in the groups of one state."""
    problems: list[str] = []
    for name, group in sorted(state.groups.items()):
        problems += _check_group(name, group, state)
    for transactional_id, known in sorted(state.transactional_ids.items()):
        pending = {name for name, group in state.groups.items() if transactional_id in group.pending}
        if pending != known.groups:
            problems.append(
                f"I18 id {transactional_id}: it has positions pending of {sorted(pending)}, and names "
                f"{sorted(known.groups)}"
            )
        if known.abort_only and known.status is not TransactionStatus.ONGOING:
            problems.append(f"I18 id {transactional_id}: it is {known.status}, and can only be aborted")
    return problems


def _check_group(name: str, group: GroupState, state: LogState) -> _Problems:
    held: dict[GroupKey, int] = {}
    holding: set[GroupKey] = set()
    for transactional_id, pending in group.pending.items():
        known = state.transactional_ids.get(transactional_id)
        if known is None or known.status not in UNDECIDED or name not in known.groups or not pending:
            yield f"I18 group {name}: {transactional_id} has no open transaction with positions of it"
        for key, one in pending.items():
            held[key] = held.get(key, 0) + 1
            if one.holds:
                holding.add(key)
                if key in group.committed and group.committed[key].order > one.order:
                    yield f"I18 group {name}: what a transaction holds was committed since"
            if one.order >= group.commits:
                yield f"I18 group {name}: position {one.order} is pending, of {group.commits} commits"
    if any(held[key] > 1 for key in holding):
        yield f"I18 group {name}: what a transaction holds is pending in another"
    if any(one.order >= group.commits for one in group.committed.values()):
        yield f"I18 group {name}: a position is from after its {group.commits} commits"
