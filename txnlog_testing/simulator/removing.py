"""The client of a simulated history that removes: records below a log start, topics, and what a vacuum may
delete.
"""

from __future__ import annotations

from dataclasses import dataclass

from txnformat.admin.trimming import count_trim
from txnformat.core.intents import Action, EnableFeatures, FreePartitions, MarkVacuum, RemoveTopic
from txnformat.core.state import LIFECYCLE, LogState
from txnformat.core.transactions.state import TransactionStatus
from txnformat.reading.sealed import SidecarCache
from txnformat.types import TopicPartition
from txnlog_testing.simulator.clients import Client

__all__ = ["REMOVAL_HITS", "RemovingClient"]

REMOVAL_HITS = frozenset(
    {
        "answer topic-gone",
        "answer topic-in-use",
        "answer trim-superseded",
        "answer upload-expired",
        "answer vacuum-superseded",
        "ended by a removal by force",
        "ended by the deletion of a topic",
        "floor moved",
        "prepared transaction lost a partition",
        "prepared transaction lost a topic",
        "topic deleted",
        "trimmed",
        "trimmed inside a segment",
    }
)
"""Events that histories with removals must have met."""

YOUNG_MAX = 40
"""Age limit in entries: a vacuum's mark now and then takes objects that are no older."""


@dataclass(slots=True, eq=False)
class RemovingClient(Client):
    """Moves log starts and the vacuum's floor, and deletes topics; often on a view that is not the newest.

    Every process of a history with removals has one, and they race.
    """

    sidecars: SidecarCache | None = None
    """Reads what was sealed, without faults: what a trim counts is no part of what is simulated."""

    def plan(self, state: LogState) -> list[Action]:
        """Return one removal, or none; in an older log first of all the upgrade that allows them."""
        if state.lacks(LIFECYCLE):
            return [EnableFeatures((LIFECYCLE,))]
        choice = self.rng.random()
        if choice < 0.3:
            return []
        if choice < 0.68:
            return self._trim(state)
        if choice < 0.75:
            return self._free(state)
        return self._mark(state) if choice < 0.95 else self._delete(state)

    def _trim(self, state: LogState) -> list[Action]:
        """Move the log starts of some partitions of one topic to any sealed offset."""
        assert self.sidecars is not None
        if not state.topics:
            return []
        topic = state.topics[self.rng.choice(sorted(state.topics))]
        wanted = {}
        for number in range(topic.partitions):
            partition = state.partition(TopicPartition(topic.topic_id, number))
            if partition.log_start < partition.sealed_end and self.rng.random() < 0.7:
                wanted[number] = self.rng.randint(partition.log_start + 1, partition.sealed_end)
        action = count_trim(self.sidecars, state, topic, wanted)
        return [] if action is None else [action]

    def _free(self, state: LogState) -> list[Action]:
        """End what undecided transactions have below some offsets of one topic, as a removal by force
        does.
        """
        if not state.topics:
            return []
        topic = state.topics[self.rng.choice(sorted(state.topics))]
        ends = []
        for number in range(topic.partitions):
            partition = state.partition(TopicPartition(topic.topic_id, number))
            if partition.last_stable_offset < partition.log_end and self.rng.random() < 0.7:
                ends.append((number, self.rng.randint(partition.last_stable_offset + 1, partition.log_end)))
        if not ends:
            return []
        prepared = _prepared(state) if self.rng.random() < 0.7 else ()
        return [FreePartitions(topic.topic_id, tuple(ends), prepared)]

    def _mark(self, state: LogState) -> list[Action]:
        floor = state.entry - self.rng.choice((0, self.rng.randint(1, YOUNG_MAX)))
        return [MarkVacuum(floor)] if floor > 0 else []

    def _delete(self, state: LogState) -> list[Action]:
        if not state.topics:
            return []
        topic_id = self.rng.choice(sorted(state.topics))
        prepared = _prepared(state)
        return [
            RemoveTopic(
                topic_id, force=self.rng.random() < 0.6, prepared=prepared if self.rng.random() < 0.7 else ()
            )
        ]


def _prepared(state: LogState) -> tuple[str, ...]:
    return tuple(
        name
        for name in sorted(state.undecided)
        if state.transactional_ids[name].status is TransactionStatus.PREPARED
    )
