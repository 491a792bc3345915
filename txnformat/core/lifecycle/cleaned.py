"""Folding key compaction: how far a partition was compared, which versions are no longer whole, and since
when tombstones may go.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from txnformat.core.folding import At, corrupt
from txnformat.core.lifecycle.operations import CleanedPartition
from txnformat.core.records.state import DeleteHorizon, PartitionState
from txnformat.persistent import replace

__all__ = ["HORIZONS_MAX", "apply_cleaned"]

HORIZONS_MAX = 32
"""Most horizons of a partition. Two that are closest in time then become one, of the later time: tombstones
stay longer."""


def apply_cleaned(partition: PartitionState, part: CleanedPartition, at: At) -> PartitionState:
    """Return a partition after records whose keys have later records were removed from it."""
    if not (
        partition.cleaned_end <= part.cleaned_end <= partition.listed_end
        and part.swept_end <= part.cleaned_end
        and part.commit_entry < at.entry
    ):
        corrupt(
            at,
            "a key compaction goes back, or beyond what is listed",
            partition=part.partition,
            expected=f"from {partition.cleaned_end} to {partition.listed_end}",
            got=part,
        )
    horizons = [one for one in partition.horizons if one.end_offset > part.swept_end]
    if max(partition.cleaned_end, part.swept_end) < part.cleaned_end:
        horizons.append(DeleteHorizon(part.cleaned_end, at.timestamp_ms))
    return replace(
        partition,
        cleaned_end=part.cleaned_end,
        cleaned_entry=max(partition.cleaned_entry, part.commit_entry),
        horizons=_thinned(horizons),
    )


def _thinned(horizons: Sequence[DeleteHorizon]) -> tuple[DeleteHorizon, ...]:
    if len(horizons) <= HORIZONS_MAX:
        return tuple(horizons)
    gaps = [later.timestamp_ms - one.timestamp_ms for one, later in pairwise(horizons)]
    # The newest of equal gaps: else the oldest horizon of a log that is compacted at even times would never
    # grow old.
    least = len(gaps) - 1 - gaps[::-1].index(min(gaps))
    return (*horizons[:least], *horizons[least + 1 :])
