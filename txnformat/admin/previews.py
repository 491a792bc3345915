"""Previews of tasks of maintenance: counted from the state, and from objects that are read.

Nothing here writes.
"""

from __future__ import annotations

from typing import NamedTuple

from txnformat.admin.erasure.certificate import look
from txnformat.admin.erasure.status import ErasureStatus
from txnformat.admin.publishing.call import publishes
from txnformat.admin.publishing.reports import FORMATS
from txnformat.client.committer import Committer
from txnformat.core.state import LogState
from txnformat.protocol.sealing import BATCHES_MAX, sealable, within

__all__ = ["SealPreview", "erasures_now", "seal_preview", "tables_wanted"]


class SealPreview(NamedTuple):
    """The numbers of a seal that was not made."""

    segments: int = 0
    partitions: int = 0
    batches: int = 0


def seal_preview(state: LogState) -> SealPreview:
    """Return what the first seal of a state would take."""
    wanted = sealable(state)
    batches = sum(within(state.partitions[key], one, BATCHES_MAX)[1] for key, one in wanted.items())
    return SealPreview(len({key.topic_id for key in wanted}), len(wanted), batches)


def tables_wanted(state: LogState) -> str | None:
    """Return a sentence about the tables that a publication would make; None: no topic asks for one."""
    found = [
        f"{topic.name} ({', '.join(formats)})"
        for topic in sorted(state.topics.values(), key=lambda one: one.name)
        if (formats := [one for one in FORMATS if publishes(topic, one)])
    ]
    return f"a dry run makes no tables; topics to publish: {', '.join(found)}" if found else None


def erasures_now(committer: Committer) -> tuple[ErasureStatus, ...]:
    """Return the erasures that are not complete, and what each lacks."""
    return tuple(one for one in look(committer) if not one.is_complete)
