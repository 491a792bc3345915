"""``log.groups``: what an operator does about consumer groups: list, describe, set positions, delete."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from txnformat.arguments import check_flags, items, listed
from txnformat.client.committer import Committer
from txnformat.core.groups.listing import (
    GroupDetails,
    GroupListing,
    describe_group,
    known_group,
    list_groups,
)
from txnformat.core.groups.resets import (
    PartitionReset,
    Target,
    as_commits,
    check_resets,
    plan_resets,
    read_target,
    reset_keys,
)
from txnformat.core.intents import GroupOffsets, RemoveGroup, ResetOffsets
from txnformat.core.preview import preview_action
from txnformat.core.state import LogState
from txnformat.keys import check_reader_name
from txnformat.moments import as_moment_us
from txnformat.reading.sealed import SidecarCache
from txnformat.reading.times import first_at
from txnformat.reading.visible import count_records
from txnformat.types import OffsetRange, TopicPartition

TIME_US_MIN = -(2**63) + 1
"""No column of timestamps holds an older time."""

__all__ = ["DeletedGroup", "GroupReset", "Groups"]


@dataclass(frozen=True, slots=True)
class GroupReset:
    """Positions of a group that were set, or would be."""

    group: str
    offsets: tuple[PartitionReset, ...]
    """The new positions, by topic and partition."""
    entry: int | None
    """Entry that set them. If None, the call was a dry run."""


@dataclass(frozen=True, slots=True)
class DeletedGroup:
    """A group that was deleted, or would be."""

    group: str
    positions: int
    """Number of positions that went with it, foreign ones included."""
    entry: int | None
    """Entry that deleted it. If None, the call was a dry run."""


class Groups:
    """Consumer groups of a log, for operators. Got as ``log.groups``.

    Every call follows the log first. Requests: 1 GET when nothing is new; what changes a group 1 entry.
    """

    def __init__(self, committer: Committer, sidecars: SidecarCache) -> None:
        self._committer = committer
        self._sidecars = sidecars

    # --- looking --------------------------------------------------------------------------------------------

    def list(
        self, *, states: Iterable[str] | None = None, pattern: str | None = None
    ) -> tuple[GroupListing, ...]:
        """List groups and where each stands, by name.

        Parameters
        ----------
        states : iterable of str, optional
            Only these: "Stable" (it has a live member), "Empty", "Dead" (neither member nor positions); case
            does not matter.
        pattern : str, optional
            Only names that match this regular expression as a whole.

        Raises
        ------
        InvalidInputError
            Kinds ``unknown-group-state``, ``invalid-pattern``.
        """
        state, now_ms = self._committer.refresh_with_time()
        return tuple(list_groups(state, now_ms, states=states, pattern=pattern))

    def describe(self, group: str) -> GroupDetails:
        """Describe a group: its member, and of every position where it is, what is pending there, and how far
        it lags.

        The lag is exact: markers and aborted records do not count, nor does what lies behind the last stable
        offset.

        Requests: those of a refresh, and 1 GET, kept afterwards, for each sealed segment that a position lies
        inside.

        Raises
        ------
        NotFoundError
            Kind ``unknown-group``.
        """
        (found,) = self.describe_all([group])
        return found

    def describe_all(self, groups: Iterable[str] | None = None) -> tuple[GroupDetails, ...]:
        """Describe several groups (all, by name, without an argument) as of one moment; as :meth:`describe`
        each.
        """
        given = None if groups is None else listed("groups", groups)
        state, now_ms = self._committer.refresh_with_time()
        names = sorted(state.groups) if given is None else given
        count = partial(count_records, self._sidecars, state)
        return tuple(describe_group(state, check_reader_name(name, "group"), now_ms, count) for name in names)

    # --- changing -------------------------------------------------------------------------------------------

    def reset_offsets(
        self,
        group: str,
        topic: str | None = None,
        partitions: Sequence[int] | None = None,
        *,
        to: str
        | int
        | datetime.datetime
        | datetime.timedelta
        | Mapping[int, int]
        | Mapping[tuple[str, int], int],
        dry_run: bool = False,
        force: bool = False,
        create: bool = False,
    ) -> GroupReset:
        """Set positions of a group, all in one step.

        Its member, if there was one, is put out: it commits no more.

        Parameters
        ----------
        topic : str, optional
            Default: all partitions in which the group has a position.
        partitions : sequence of int, optional
            Only these of the topic.
        to : str, int, datetime, timedelta or mapping
            "earliest"; "latest" (the last stable offset); "current" (where it is, and "latest" where it has
            no position); an offset; "shift:+n" or "shift:-n"; a datetime (naive: UTC): the first record that
            is not older, "latest" without one; a timedelta: this long before now, by the store's time; a
            mapping of partition to offset, or without a topic of (topic, partition) to offset.
        dry_run : bool
            Only say what would be done, or why it could not be.
        force : bool
            Also when the group has a live member.
        create : bool
            Create the group if it does not exist.

        Raises
        ------
        NotFoundError
            Kind ``unknown-group``, ``unknown-topic``, ``unknown-partition``.
        OffsetOutOfRangeError
            A position is not from the log start to the last stable offset; nothing was changed.
        ConflictError
            Kind ``group-active``: it has a live member. Kind ``offsets-held``: a prepared transaction holds a
            position. Kinds ``offsets-changed``, ``offsets-pending``: what is to be shifted was committed
            meanwhile, or may be.
        InvalidInputError
            Kinds ``invalid-group-name``, ``invalid-reset-target``, ``invalid-offset``, ``invalid-reset``,
            ``no-position``.

        Notes
        -----
        Requests: those of a refresh, with a time those of finding it, and 1 entry.
        """
        check_flags(dry_run=dry_run, force=force, create=create)
        target = read_target(to, topic)
        check_reader_name(group, "group")
        state, now_ms = self._committer.refresh_with_time()
        found = state.group(group) if create else known_group(state, group)
        partitions = items(partitions, "partitions")
        keys = reset_keys(state, found, topic, partitions, target)
        resets = plan_resets(state, found, keys, target, self._at_time(state, target, now_ms))
        check_resets(state, resets)
        action = ResetOffsets(GroupOffsets(group, as_commits(state, resets, target)), now_ms, force)
        if dry_run:
            preview_action(state, action)
            return GroupReset(group, tuple(resets), None)
        done = self._committer.commit(self._committer.intend(action))
        return GroupReset(group, tuple(resets), done.entry)

    def _at_time(self, state: LogState, target: Target, now_ms: int) -> Callable[[TopicPartition], int]:
        if isinstance(target, datetime.timedelta):
            time_us = max(now_ms * 1_000 - target // datetime.timedelta(microseconds=1), TIME_US_MIN)
        else:
            time_us = as_moment_us(target, "to") if isinstance(target, datetime.datetime) else 0

        def find(key: TopicPartition) -> int:
            partition = state.partition(key)
            readable = OffsetRange(partition.log_start, partition.last_stable_offset)
            topic = state.topics[key.topic_id]
            found = first_at(self._sidecars, state, topic, key.partition, readable, time_us)
            return readable.end if found is None else found

        return find

    def delete(self, group: str, *, force: bool = False, dry_run: bool = False) -> DeletedGroup:
        """Delete a group with all its positions.

        Parameters
        ----------
        force : bool
            Also when it has a live member, which commits no more.
        dry_run : bool
            Only say what would be done, or why it could not be.

        Raises
        ------
        NotFoundError
            Kind ``unknown-group``.
        ConflictError
            Kind ``offsets-pending``: open transactions have positions of it. Kind ``group-active``: it has a
            live member.
        """
        check_flags(force=force, dry_run=dry_run)
        check_reader_name(group, "group")
        state, now_ms = self._committer.refresh_with_time()
        positions = len(known_group(state, group).committed)
        action = RemoveGroup(group, now_ms, force)
        if dry_run:
            preview_action(state, action)
            return DeletedGroup(group, positions, None)
        done = self._committer.commit(self._committer.intend(action))
        return DeletedGroup(group, positions, done.entry)
