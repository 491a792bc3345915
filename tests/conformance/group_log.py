"""A log in memory for the tests of consumer groups: offsets committed at once and in transactions, and what
is known of them."""

from __future__ import annotations

from tests.conformance.chain import ORDERS, Chain
from txnformat.core.groups.operations import OffsetCommit
from txnformat.core.groups.state import GroupState
from txnformat.core.intents import Done, GroupOffsets, JoinAsMember, Write
from txnformat.types import Outcome, TopicPartition

__all__ = ["GROUP", "RECORDS", "GroupLog", "part"]

GROUP = "readers"
RECORDS = 1_000
"""In each partition: what may be committed."""


def part(number: int) -> TopicPartition:
    """Return a partition of ``orders``."""
    return TopicPartition(ORDERS.topic_id, number)


class GroupLog(Chain):
    """A chain with records in all partitions of ``orders``, and transactional ids that are open."""

    def __init__(self, *producers: str) -> None:
        super().__init__(*producers)
        self.do(self.write(None, RECORDS, partitions=(0, 1, 2)))

    def commit(
        self,
        offsets: dict[int, int],
        name: str | None = None,
        *,
        group: str = GROUP,
        metadata: str = "",
        generation: int | None = None,
        expected: int | None = None,
        end: Outcome | None = None,
    ) -> Write:
        """Return a commit of offset by partition: in the transaction of ``name``, or at once."""
        commits = tuple(
            OffsetCommit(ORDERS.topic_id, number, offset, metadata, expected)
            for number, offset in offsets.items()
        )
        producer = None if name is None else self.producer(name)
        return Write(producer, end=end, offsets=(GroupOffsets(group, commits, generation=generation),))

    def done(self, action: Write) -> int:
        """Repeat what the log must know; returns the entry of the original answer. Nothing is written."""
        entries = len(self.entries)
        verdict = self.decide(action)
        assert isinstance(verdict, Done), verdict
        assert len(self.entries) == entries
        return verdict.entry

    def join(self, group: str = GROUP) -> int:
        """Let a new member join, and return its generation."""
        self.do(JoinAsMember(group, f"member {len(self.entries)}", 45_000))
        return self.state.groups[group].generation

    def group_state(self, group: str = GROUP) -> GroupState:
        """Return what the log knows of a group."""
        return self.state.groups.get(group, GroupState())

    def committed(self, group: str = GROUP) -> dict[int, int]:
        """Return the offsets that are in force, by partition."""
        return {
            key.partition: int(found.value)
            for key, found in self.group_state(group).committed.items()
            if isinstance(key, TopicPartition)
        }

    def pending(self, name: str, group: str = GROUP) -> dict[int, int]:
        """Return the offsets that a transaction has pending, by partition."""
        return {
            key.partition: int(found.value)
            for key, found in self.group_state(group).pending.get(name, {}).items()
            if isinstance(key, TopicPartition)
        }

    def settled(self, number: int = 0, group: str = GROUP) -> bool:
        """Return whether a stable read of an offset has an answer: nothing of it is pending."""
        return not self.group_state(group).pending_in(part(number))
