"""The client of a simulated history that removes: records below a log start, topics, and what a vacuum may delete."""

from __future__ import annotations

from dataclasses import dataclass

from txnformat.admin.trimming import count_trim
from txnformat.core.intents import Action, EnableFeatures, MarkVacuum, RemoveTopic
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
        "ended by the deletion of a topic",
        "floor moved",
        "prepared transaction lost a topic",
        "topic deleted",
        "trimmed",
        "trimmed inside a segment",
    }
)
"""What histories with removals must have met."""

YOUNG_MAX = 40
"""Of what was born so many entries ago at most, a vacuum's mark takes something now and then."""


@dataclass(slots=True, eq=False)
class RemovingClient(Client):
    """Moves log starts and the vacuum's floor, and deletes topics; often on a view that is not the newest.

    Every process of a history with removals has one, and they race.
    """

    sidecars: SidecarCache | None = None
    """Reads what was sealed, without faults: what a trim counts is no part of what is simulated."""

    def plan(self, state: LogState) -> list[Action]:
        """Return one removal, or none; first of all the upgrade that allows them."""
        if LIFECYCLE not in state.features.reader:
            return [EnableFeatures((LIFECYCLE,))]
        choice = self.rng.random()
        if choice < 0.3:
            return []
        if choice < 0.75:
            return self._trim(state)
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

    def _mark(self, state: LogState) -> list[Action]:
        floor = state.entry - self.rng.choice((0, self.rng.randint(1, YOUNG_MAX)))
        return [MarkVacuum(floor)] if floor > 0 else []

    def _delete(self, state: LogState) -> list[Action]:
        if not state.topics:
            return []
        topic_id = self.rng.choice(sorted(state.topics))
        prepared = tuple(
            name
            for name in sorted(state.undecided)
            if state.transactional_ids[name].status is TransactionStatus.PREPARED
        )
        return [
            RemoveTopic(
                topic_id, force=self.rng.random() < 0.6, prepared=prepared if self.rng.random() < 0.7 else ()
            )
        ]
