"""The operations that remove records: plain values. See :mod:`txnformat.core.operations`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from txnformat.field_types import Count, OrMinusOne, PartitionNumber, Positive, Uuid

__all__ = ["Trim", "TrimmedPartition"]


class TrimmedPartition(Struct, frozen=True, gc=False):
    """A partition whose log start moves, and the segments that lie below the new log start and did not lie below the old one."""

    partition: PartitionNumber
    log_start: Positive
    """From here on (inclusive); at most the sealed end."""
    commit_entry: OrMinusOne
    """Largest entry that committed a record of the segments between the two log starts, below the new one; -1: none was committed."""
    records: Count
    """Of those segments; a segment that the log start cuts counts as a whole, later."""
    size: Count
    """Compressed bytes of the records."""
    aborted_records: Count
    aborted_size: Count


class Trim(Struct, frozen=True, tag_field="operation", tag="trim"):
    """The oldest records of a topic can be read no more; their offsets are not given again."""

    topic_id: Uuid
    partitions: Annotated[
        tuple[TrimmedPartition, ...], Meta(min_length=1, description="at least one partition")
    ]
    intent: Count = 0
