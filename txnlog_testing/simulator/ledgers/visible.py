"""The judge of reads in a simulated history: the records that readers see of a partition, unsealed, sealed
and compacted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable

import numpy as np

from txnformat.core.entry import CommitEntry
from txnformat.core.lifecycle.operations import Replace
from txnformat.core.operations import Seal
from txnformat.core.records.state import PartitionState
from txnformat.core.records.visibility import committed_mask
from txnformat.core.sealing.sidecar import BatchOutcome, decode_index
from txnformat.core.sealing.spills import unspilled
from txnformat.core.snapshot.spilled import decode_spill
from txnformat.core.state import LogState
from txnformat.persistent import Rows
from txnformat.reading.sealed import SidecarCache
from txnformat.types import ObjectRecord, OffsetRange, TopicPartition
from txnlog_testing.simulator.ledgers.ends import Data
from txnlog_testing.simulator.ledgers.removals import RemovalLedger
from txnlog_testing.simulator.ledgers.rewrites import Known, RewriteLedger
from txnlog_testing.simulator.world import HistoryViolation

__all__ = ["VisibleJudge"]

_OUTCOMES = {"plain": BatchOutcome.PLAIN, "commit": BatchOutcome.COMMITTED, "abort": BatchOutcome.ABORTED}


class VisibleJudge(ABC):
    """Compares what readers see with the records of the ledger that it is part of."""

    _get: Callable[[str], bytes | None]
    _hits: Counter[str]
    _in: dict[TopicPartition, list[Data]]
    _ends: dict[TopicPartition, int]
    _stable: dict[TopicPartition, int]
    _ended: dict[TopicPartition, list[tuple[int, str, int]]]
    _compacted: set[tuple[TopicPartition, int]]
    removals: RemovalLedger
    rewrites: RewriteLedger | None

    @abstractmethod
    def _bounds(self, key: TopicPartition) -> tuple[int, int]:
        """Return the last stable offset and the log end of a partition."""

    def _check_visible(self, state: LogState, key: TopicPartition) -> None:
        """Compare what read_committed shows of a partition, above its sealed end, with what it must show."""
        partition = self._with_spills(state, key)
        here = self._in.get(key, [])
        undecided = [one.base for one in here if one.outcome == "open" and one.base is not None]
        stable = min(undecided, default=self._ends[key])
        if (partition.log_end, partition.last_stable_offset) != (self._ends[key], stable):
            raise HistoryViolation(
                f"{key} has log end and LSO {partition.log_end}, {partition.last_stable_offset}, "
                f"not {self._ends[key]}, {stable}"
            )
        if stable < self._stable.get(key, 0):
            raise HistoryViolation(f"the LSO of {key} went back from {self._stable[key]} to {stable}")
        self._stable[key] = stable
        extents = partition.extents.array()
        extents = extents[extents["base_offset"] < stable]
        mask = committed_mask(
            extents["base_offset"],
            extents["base_offset"] + extents["records"] - 1,
            extents["producer_id"],
            extents["transactional"].astype(np.bool_),
            partition.aborted.array(),
        )
        # One row for each: what clients append here is never more than one batch of a partition.
        shown = extents[["base_offset", "base_sequence", "records"]][mask].tolist()
        right = [
            (one.base, one.sequence, one.records)
            for one in here
            if one.base is not None
            and partition.sealed_end <= one.base < stable
            and one.outcome in ("plain", "commit")
        ]
        if shown != right:
            raise HistoryViolation(f"read_committed shows {shown} of {key}, not {right}")

    def _with_spills(self, state: LogState, key: TopicPartition) -> PartitionState:
        """Return a partition with the rows that were spilled."""
        partition = state.partition(key)
        if not partition.spills:
            return partition
        found = {}
        for spill in partition.spills:
            named = state.tables[spill.table]
            found[spill.table] = decode_spill(self._get(named.key), named)
        self._hits["read what was spilled"] += 1
        return unspilled(state, {key: partition.sealed_end}, found).partition(key)

    def _check_seal(self, seal: Seal) -> None:
        """Check what the sidecars say of each record, and note seams that transactions cross."""
        for segment in seal.segments:
            named: ObjectRecord = segment.record.index
            index = decode_index(self._get(named.key), named)
            for part in segment.partitions:
                key = TopicPartition(segment.record.topic_id, part.partition)
                rows = index.partition(part.partition)
                told = {
                    offset: int(row["outcome"])
                    for row in rows
                    for offset in range(int(row["base_offset"]), int(row["base_offset"] + row["records"]))
                }
                right = {
                    offset: int(_OUTCOMES[one.outcome])
                    for one in self._in.get(key, ())
                    if one.base is not None and part.start_offset <= one.base < part.end_offset
                    for offset in range(one.base, one.base + one.records)
                }
                if told != right:
                    raise HistoryViolation(f"a segment of {key} says {told}, not {right}")
                over = [
                    outcome
                    for first, outcome, marker in self._ended.get(key, ())
                    if first < part.end_offset <= marker
                ]
                if "abort" in over and "commit" in over[over.index("abort") :]:
                    self._hits["abort before a commit over a seal's seam"] += 1

    def _check_sealed(self, state: LogState, key: TopicPartition, sidecars: SidecarCache) -> None:
        """Compare what the segments of a partition show, from its log start on, with what was committed
        there.
        """
        partition = state.partition(key)
        wanted = OffsetRange(partition.log_start, partition.sealed_end)
        shown: set[int] = set()
        for part in sidecars.segments(state, key, wanted):
            index = sidecars.index(part.record.index)
            if index.is_compacted:
                runs = index.runs_of(key.partition, part.range)
                shown |= (
                    self.rewrites.shown(index, key.partition, runs).keys()
                    if self.rewrites is not None
                    else _offsets(runs)
                )
                continue
            rows = index.partition(key.partition)
            for row in rows[rows["outcome"] != int(BatchOutcome.ABORTED)]:
                shown |= set(range(int(row["base_offset"]), int(row["base_offset"] + row["records"])))
        right = self._committed(key)
        if self.rewrites is not None:
            right -= self.rewrites.gone_of(key).keys()
        if shown & set(range(*wanted)) != right & set(range(*wanted)):
            raise HistoryViolation(f"the segments of {key} show {sorted(shown)}, not {sorted(right)}")

    def _committed(self, key: TopicPartition) -> set[int]:
        return {
            offset
            for one in self._in.get(key, ())
            if one.base is not None and one.outcome in ("plain", "commit")
            for offset in range(one.base, one.base + one.records)
        }

    def committed_rows(self, key: TopicPartition) -> dict[int, Known]:
        """Return the committed records of a partition by offset, of a history whose files hold records."""
        assert self.rewrites is not None
        rows = self.rewrites.contents.rows
        return {
            one.base + number: Known(row, one.commit_entry)
            for one in self._in.get(key, ())
            if one.base is not None and one.outcome in ("plain", "commit")
            for number, row in enumerate(rows[one.digest])
        }

    def stable(self, key: TopicPartition) -> int:
        """Return the last stable offset of a partition."""
        return self._bounds(key)[0]

    def _check_replace(self, op: Replace, entry: CommitEntry, after: LogState) -> None:
        """Check that compacted segments have all committed records of their ranges from the log start on, and
        no others.
        """
        if self.rewrites is not None:
            self.rewrites.replaced(op, entry, after)
            return
        for segment in op.segments:
            index = decode_index(self._get(segment.index.key), segment.index)
            for part in segment.partitions:
                key = TopicPartition(op.topic_id, part.partition)
                told = _offsets(
                    index.runs_of(part.partition, OffsetRange(part.start_offset, part.end_offset))
                )
                committed = self._committed(key) & set(range(part.start_offset, part.end_offset))
                left = {offset for offset in committed if offset >= self.removals.start(key)}
                if not left <= told <= committed:
                    raise HistoryViolation(f"a compacted segment of {key} has {told}, not {committed}")
                self._hits["compacted"] += 1
                self._hits["compacted once more"] += (key, part.start_offset) in self._compacted
                self._compacted.add((key, part.start_offset))


def _offsets(runs: Rows) -> set[int]:
    """Return the offsets of runs of which each is one batch, without gaps."""
    return {offset for run in runs for offset in range(int(run["start_offset"]), int(run["end_offset"]))}
