"""A consumer's place in its group: the positions that the group has, and whether the consumer is its member.

The group is in the log that is read, or in another one: there the positions stand under the names
``<log id>/<topic id>/<partition>``, and come with that log's transactions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from txnformat.client.committer import operation_of
from txnformat.clock import Instant, waited_ms
from txnformat.consumers.group_offsets import GroupMetadata
from txnformat.consumers.settings import ConsumerSettings
from txnformat.consumers.uncut import Caller
from txnformat.core.groups.checks import check_generation
from txnformat.core.groups.operations import (
    NO_OFFSET,
    NO_POSITION,
    GroupKey,
    JoinGroup,
    OffsetCommit,
    PositionCommit,
)
from txnformat.core.groups.state import GroupState
from txnformat.core.intents import CommitResult, GroupOffsets, Intent, JoinAsMember, LeaveGroup, Write
from txnformat.core.state import LogState
from txnformat.digits import whole
from txnformat.errors import (
    CommitStateUnknownError,
    ConflictError,
    InvalidInputError,
    TxnLogError,
    repr_of,
)
from txnformat.log import TxnLog
from txnformat.types import IsolationLevel, TopicPartition

__all__ = ["Membership"]

logger = logging.getLogger("txnlog")

WAIT_MS_MIN = 50
"""Wait for a transaction that has positions pending; each further one is twice as long."""
WAIT_MS_MAX = 1_000
KEEP_MS = 24 * 3_600_000
"""After so long without use a group is used, so that it is not forgotten
(:mod:`txnformat.core.lifecycle.idle`) while it is read."""
KEEP_AGAIN_MS = 3_600_000
"""Shortest time between two attempts at that."""


class Membership:
    """The actions of a consumer of the log ``source`` in the name of a group, which is in ``log``.

    Not safe for threads.
    """

    def __init__(self, group: str, log: TxnLog, source: TxnLog, settings: ConsumerSettings) -> None:
        self.log = log
        self.generation: int | None = None
        """Generation in which the consumer is the member. If None, it is not a member, and does not look for
        one."""
        self._group = group
        self._source = source
        self._settings = settings
        self._known: dict[TopicPartition, int] = {}
        self._member = f"consumer-{log.committer.ids.new()[:8]}"
        self._kept: Instant | None = None
        self.caller = Caller()
        """The caller of the call that is under way."""
        self._unsettled: tuple[GroupOffsets | None, Intent] | None = None
        """A commit (None: a join) that may have landed."""

    @property
    def metadata(self) -> GroupMetadata:
        """Return what a producer needs to commit in the group's name."""
        return GroupMetadata(self._group, self.generation)

    # --- being the member -----------------------------------------------------------------------------------

    def is_member(self) -> bool:
        """Return whether the consumer is the group's member as far as is known. No request."""
        group = self._state_of(self.log.state)
        return (
            self.generation is not None and self.generation == group.generation and group.member is not None
        )

    def check(self) -> None:
        """Raise ConflictError (``member-fenced``) if the consumer was a member and is known to be no more.

        No request.
        """
        check_generation(self._group, self._state_of(self.log.state), self.generation)

    def join(self) -> None:
        """Become the member, and fence the one before; after CommitStateUnknownError call it again.

        Requests: 1 entry.
        """
        action = JoinAsMember(self._group, self._member, self._settings.session_timeout_ms)
        result = self._settle(None, action)
        self.generation = operation_of(result, JoinGroup).generation
        self._unsettled = None

    def leave(self) -> None:
        """Be the member no more. Requests: 1 entry; none when another consumer is it already. It never fails.

        A member that does not get through is removed when its session timeout is over.
        """
        if self.generation is not None and self.is_member():
            try:
                leave = LeaveGroup(self._group, self.generation)
                self.log.committer.commit(self.log.committer.intend(leave))
            except TxnLogError as error:
                logger.warning("group %s was not left: %s", self._group, error)
        self.generation = None

    # --- positions ------------------------------------------------------------------------------------------

    def fetch(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets of partitions that have one, once none of theirs is pending in a
        transaction.

        Requests: a look; while something is pending one more with each wait, of up to a second, and what it
        takes to end transactions whose time is over. Raises ConflictError (``offsets-pending``) when it still
        is after ``default_api_timeout_ms``.
        """
        wanted = {key: self._key(key) for key in keys}
        clock = self.log.committer.clock
        start, wait_ms = clock.now(), WAIT_MS_MIN
        while True:
            group = self._state_of(self.log.transactions.end_expired_if_permitted())
            pending = sorted({name for key in wanted.values() for name in group.pending_in(key)})
            if not pending:
                break
            left_ms = self._settings.default_api_timeout_ms - waited_ms(start, clock.now())
            if left_ms <= 0 or self.caller.is_gone:
                raise ConflictError(
                    "positions of the group are pending in an open transaction",
                    kind="offsets-pending",
                    hint="wait until it ends, or abort it: txnlog transactions abort",
                    group=self._group,
                    transactional_id=pending[0],
                    waited_ms=self._settings.default_api_timeout_ms,
                )
            clock.sleep(min(left_ms, wait_ms) / 1_000)
            wait_ms = min(2 * wait_ms, WAIT_MS_MAX)
        found = {key: self._offset(name, group.value(name)) for key, name in wanted.items()}
        self._known = self._known | found
        return {key: offset for key, offset in found.items() if offset != NO_OFFSET}

    def changed(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the positions that are not what was last known as committed."""
        return {key: offset for key, offset in positions.items() if self._known.get(key, NO_OFFSET) != offset}

    def offsets(
        self,
        positions: Mapping[TopicPartition, int],
        metadata: Mapping[TopicPartition, str],
        *,
        compared: bool,
    ) -> GroupOffsets:
        """Return positions as an intent has them; ``compared``: they replace what was last known as
        committed, and nothing else.
        """
        found: list[OffsetCommit] = []
        foreign: list[PositionCommit] = []
        for key in sorted(positions):
            offset, text = positions[key], metadata.get(key, "")
            known = self._known.get(key, NO_OFFSET)
            name = self._key(key)
            if isinstance(name, str):
                so_far = NO_POSITION if known == NO_OFFSET else str(known)
                foreign.append(PositionCommit(name, str(offset), text, so_far if compared else None))
            else:
                found.append(
                    OffsetCommit(key.topic_id, key.partition, offset, text, known if compared else None)
                )
        reads_all = self._settings.isolation is IsolationLevel.READ_UNCOMMITTED
        return GroupOffsets(self._group, tuple(found), tuple(foreign), self.generation, reads_all)

    def commit(self, wanted: GroupOffsets) -> None:
        """Commit positions; after CommitStateUnknownError the same commit may be repeated: it lands once.

        Requests: 1 entry.
        """
        self._settle(wanted, Write(offsets=(wanted,)))
        self.note(wanted)
        self._unsettled = None

    def keep(self, assigned: Iterable[TopicPartition], begun: Mapping[TopicPartition, int]) -> None:
        """Use a group that was idle for a day: commit again what is.

        It never fails. Requests: none; then 1 entry.

        One position of ``assigned`` is committed again, compared with what is committed; a member of which
        none is commits one of those where partitions were ``begun``.
        """
        group, now = self._state_of(self.log.state), self.log.committer.clock.now()
        if now.wall_ms - group.used_ms < KEEP_MS or group.pending:
            return
        if self._kept is not None and waited_ms(self._kept, now) < KEEP_AGAIN_MS:
            return
        self._kept = now
        names = [self._key(key) for key in assigned]
        found = next((name for name in names if name in group.committed), None)
        first = next(iter(begun), None)
        if found is not None:
            at = group.committed[found]
            wanted = self._one(found, at.value, at.metadata, at.value)
        elif (
            self.generation is not None
            and first is not None
            and self._known.get(first, NO_OFFSET) == NO_OFFSET
        ):
            name, value = self._key(first), begun[first]
            so_far = group.value(name)
            wanted = self._one(name, str(value) if isinstance(name, str) else value, "", so_far)
        else:
            return  # there is nothing to forget, or nothing to say
        try:
            self.log.committer.commit(self.log.committer.intend(Write(offsets=(wanted,))))
        except TxnLogError as error:  # another process that has used it has done what is needed
            logger.info("group %s was not used: %s", self._group, error)
            return
        if found is None:
            self.note(wanted)

    def _one(self, name: GroupKey, value: Any, text: str, expected: Any) -> GroupOffsets:
        """Return one position, which is not beyond the end, whatever the isolation level."""
        if isinstance(name, str):
            position = PositionCommit(name, value, text, expected)
            return GroupOffsets(self._group, (), (position,), self.generation, True)
        offset = OffsetCommit(name.topic_id, name.partition, value, text, expected)
        return GroupOffsets(self._group, (offset,), (), self.generation, True)

    def note(self, offsets: GroupOffsets) -> None:
        """Take note that positions are committed."""
        if self._unsettled is not None and self._unsettled[0] is not None:
            self._unsettled = None  # a commit before it; the same one after it is another
        known = {one.key: one.offset for one in offsets.offsets}
        for other in offsets.positions:
            _, topic_id, partition = other.name.split("/")
            known[TopicPartition(topic_id, int(partition))] = int(other.position)
        self._known = self._known | known

    # --- how they are done ----------------------------------------------------------------------------------

    def _settle(self, wanted: GroupOffsets | None, action: JoinAsMember | Write) -> CommitResult:
        """Commit an action, or repeat the intent of the same one whose outcome is unknown.

        It stays unsettled; the caller clears that as the last step.
        """
        committer = self.log.committer
        if self._unsettled is not None and self._unsettled[0] == wanted:
            intent = self._unsettled[1]
        else:
            intent = committer.intend(action)
        self._unsettled = wanted, intent
        try:
            result = committer.commit(intent)
        except CommitStateUnknownError:
            raise
        except TxnLogError:
            self._unsettled = None
            raise
        return result

    def _state_of(self, state: LogState) -> GroupState:
        return state.group(self._group)

    def _key(self, key: TopicPartition) -> GroupKey:
        source = self._source.log_id
        if source == self.log.log_id:
            return key
        return f"{source}/{key.topic_id}/{key.partition}"

    def _offset(self, name: GroupKey, value: int | str) -> int:
        """Return a committed value as an offset."""
        if isinstance(value, int):
            return value
        if value == NO_POSITION:
            return NO_OFFSET
        if (number := whole(value)) is not None:
            return number
        raise InvalidInputError(
            f"the position of group {repr_of(self._group)} in {repr_of(name)} is {repr_of(value, 80)}, "
            "not an offset",
            kind="foreign-position",
            hint="another application commits under this name: choose another group",
        )
