"""How far erasures have come, and what they lack, in words. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from txnformat.core.lifecycle.operations import KeptVersions
from txnformat.core.lifecycle.state import ErasureState
from txnformat.core.lifecycle.touching import begun_by
from txnformat.core.state import LogState
from txnformat.types import TopicPartition

__all__ = ["ErasureStage", "ErasureStatus", "status_of", "statuses"]

NAMES_SHOWN_MAX = 20


class ErasureStage(StrEnum):
    """How far an erasure has come."""

    REWRITING = "rewriting"
    """Files that are in use may still hold records that are to be erased."""
    DELETING = "deleting"
    """Nothing in use holds any; old objects have to be deleted, and looked for."""
    COMPLETE = "complete"
    """The certificate is in the log."""


@dataclass(frozen=True, slots=True)
class ErasureStatus:
    """One erasure."""

    erasure_id: str
    topic: str
    topic_id: str
    entry: int
    """Entry that holds the request: it covers records written in that entry or before."""
    timestamp_ms: int
    """Log time of that entry."""
    columns: tuple[str, ...]
    condition: str
    """Keyed hash of the condition."""
    requested_by: str
    stage: ErasureStage
    records: int
    """Committed records that were removed."""
    files: int
    """Files that held some, and were given up."""
    replaced_entry: int
    """Last entry that put rewritten files in the place of others; -1: there is none."""
    rewritten_entry: int
    """Entry since which nothing in use holds a record; -1: that is not so yet."""
    needed_floor: int | None
    """The least floor of a vacuum that has seen all old objects. If None, not known yet."""
    floor: int
    """The vacuum's floor: of the certificate, else of the log now."""
    complete_entry: int
    """Entry of the certificate; -1: there is none yet."""
    kept_versions: str | None
    """Whether the store keeps old versions of deleted objects. If None, not asked yet."""
    missing: tuple[str, ...]
    """The steps that are left before the erasure is complete, in words; empty when it is complete."""

    @property
    def is_complete(self) -> bool:
        """Return whether there is a certificate."""
        return self.complete_entry >= 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def statuses(state: LogState) -> list[ErasureStatus]:
    """Return all erasures that the state knows, in the order of their requests."""
    return [status_of(state, one) for one in state.erasures.values()]


def stage_of(known: ErasureState) -> ErasureStage:
    """Return how far an erasure has come, by the state alone."""
    if known.complete_entry >= 0:
        return ErasureStage.COMPLETE
    return ErasureStage.REWRITING if known.rewritten_entry < 0 else ErasureStage.DELETING


def status_of(state: LogState, known: ErasureState, left: tuple[str, ...] = ()) -> ErasureStatus:
    """Return how far an erasure has come.

    ``left``: what a look at the store has found that is to be deleted, in words.
    """
    return ErasureStatus(
        known.erasure_id,
        known.topic,
        known.topic_id,
        known.entry,
        known.timestamp_ms,
        known.columns,
        known.condition,
        known.requested_by,
        stage_of(known),
        known.records,
        known.files,
        known.replaced_entry,
        known.rewritten_entry,
        known.needed_floor if known.rewritten_entry >= 0 else None,
        known.floor if known.complete_entry >= 0 else state.vacuum_floor,
        known.complete_entry,
        _kept(known.kept_versions),
        tuple(_missing(state, known, left)),
    )


def _kept(kept: KeptVersions | None) -> str | None:
    return None if kept is None else kept.value


def _missing(state: LogState, known: ErasureState, left: tuple[str, ...]) -> list[str]:
    if known.complete_entry >= 0:
        return []
    if known.rewritten_entry < 0:
        return [_rewriting(state, known)]
    if state.vacuum_floor < known.needed_floor:
        what = (
            f"a vacuum that deletes what was written before entry {known.needed_floor} (the last one: "
            f"before entry {state.vacuum_floor})"
        )
        return [
            f"{what}: `txnlog vacuum` or `txnlog maintain all`, once these entries are older than its grace"
        ]
    return list(left) or [
        (
            "a check that vacuums have deleted all old objects: `txnlog maintain erasures` or `txnlog "
            "maintain all`"
        )
    ]


def _rewriting(state: LogState, known: ErasureState) -> str:
    names = begun_by(state, known.entry)
    if known.ends_entry < 0 and names:
        return (
            f"{_shown(names)} had begun before the request and {_is(names)} undecided: end "
            f"{_them(names)}, then call again with the same condition and key"
        )
    holders = sorted(
        name
        for name in state.undecided
        if any(
            key.topic_id == known.topic_id
            and first < next((one.end_offset for one in known.ends if one.partition == key.partition), 0)
            for key, first in state.transactional_ids[name].partitions.items()
        )
    )
    reached = {one.partition: one.end_offset for one in known.reached}
    behind = [
        one.partition
        for one in known.ends
        if reached.get(one.partition, 0) < one.end_offset
        and state.partition(TopicPartition(known.topic_id, one.partition)).last_stable_offset < one.end_offset
    ]
    if behind and holders:
        return (
            f"{_shown(holders)} {_is(holders)} undecided, and {'have' if len(holders) > 1 else 'has'} "
            f"records that the erasure covers: end {_them(holders)}, then call again with the same "
            "condition and key"
        )
    return "files are to be rewritten: call again with the same condition and key"


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    return f"transaction{'s' if len(names) > 1 else ''} {', '.join(names[:NAMES_SHOWN_MAX])}{more}"


def _is(names: list[str]) -> str:
    return "are" if len(names) > 1 else "is"


def _them(names: list[str]) -> str:
    return "them" if len(names) > 1 else "it"
