"""Erasures: records that are to vanish for good, and how far that has come.

Plain values; a snapshot has them as they are.
"""

from __future__ import annotations

from msgspec import Struct

from txnformat.core.lifecycle.operations import KeptVersions, PartitionEnd
from txnformat.field_types import Count, Item, LogTime, OrMinusOne, Sha256, Text, TopicName, Uuid

__all__ = ["COMPLETE_MAX", "OPEN_MAX", "REWRITING_MAX", "ErasureState"]

REWRITING_MAX = 100
"""Most erasures of a log whose files are not all rewritten: each may have an offset for every partition of
its topic."""
OPEN_MAX = 1_000
"""Most erasures of a log that are not complete."""
COMPLETE_MAX = 100
"""So many complete ones stay in the state; older ones are in the history only."""


class ErasureState(Struct, frozen=True):
    """One erasure. Its condition is not here: nothing may keep its literals."""

    erasure_id: Uuid
    topic_id: Uuid
    topic: TopicName
    directory: Text
    """Directory of the topic, which may be deleted by now."""
    entry: Count
    """Entry that holds the request: records that were appended or staged in it or before are covered, and
    those of transactions begun by then."""
    timestamp_ms: LogTime
    """Log time of that entry."""
    columns: tuple[Item, ...]
    """The columns that the condition names, ascending."""
    condition: Sha256
    """Keyed hash of the condition; the log does not have the key."""
    requested_by: Text
    ends_entry: OrMinusOne = -1
    """First advance at which no transaction begun by ``entry`` was undecided; -1: there was none yet."""
    ends: tuple[PartitionEnd, ...] = ()
    """Log ends then, by partition: up to here everything is to be rewritten. Empty once that is done."""
    reached: tuple[PartitionEnd, ...] = ()
    """How far it is rewritten, by partition. Empty once that is done."""
    records: Count = 0
    """Committed records that were removed."""
    files: Count = 0
    """Files that held some, and were given up."""
    replaced_entry: OrMinusOne = -1
    """Last ``replace`` of the erasure; -1: there was none."""
    rewritten_entry: OrMinusOne = -1
    """Entry from which on no record and no live file has anything that is covered; -1: that is not so yet."""
    rewritten_ms: LogTime = 0
    """Log time of that entry."""
    complete_entry: OrMinusOne = -1
    """Entry of the certificate; -1: there is none yet."""
    floor: Count = 0
    """The vacuum's floor that the certificate names."""
    kept_versions: KeptVersions | None = None
    """The certificate's statement about old versions of objects in the store."""

    @property
    def needed_floor(self) -> int:
        """The least floor of a vacuum that has seen everything to be deleted."""
        return max(self.rewritten_entry, self.replaced_entry + 1)
