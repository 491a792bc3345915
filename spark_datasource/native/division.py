"""Which files of a planned read go to Spark's own Parquet reader, and which offsets are the rest. Pure.

A file is *whole* iff the plan takes all of its rows: then a reader of the file reads just what the plan says.
The footer is not looked at: runs of row groups that begin with the first one, follow each other without a
gap, and have as many rows as the log says the file has, are all that it has. A repeated append may name a
file of which some row groups are no part of the log; its rows are more than those that the plan takes.

The rest is told as ranges of offsets, never as files: a compaction may give the records other files between
this plan and the one of the DataSource, and those may hold rows that were read natively.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from spark_datasource.native.ranges import spans_of
from txnformat.core.records.scan import PLANNED, PartitionPlan, Stored
from txnformat.persistent import Rows
from txnformat.types import FileRecord, OffsetRange

__all__ = ["RANGES_MAX", "Amount", "Division", "Reason", "WholeFile", "divide"]

RANGES_MAX = 2_000
"""Most ranges of the rest; they travel in an option of the DataSource. A partition of which something is left
has at least one."""


class Reason(StrEnum):
    """Why records do not go natively; the text is for people."""

    EMBEDDED = "rows in an entry of the log, not in a file"
    PARTLY = "not all rows of the file are read (aborted, open or out of range)"
    SMALL = "the file is small"
    TYPE = "a column has a type that Spark's Parquet reader does not read as txnlog does"
    TIME = "_timestamp comes from a timestamp column without a zone"
    CONDITION = "the condition needs a type that is not translated"
    SPANS = "metadata columns would have to be computed for too many batches"
    SCATTERED = "the rest would have too many ranges"
    PATH = "the path has characters that Spark takes for a pattern"
    OFF = "native reading is switched off"
    ENCRYPTED = "the log is encrypted"


@dataclass(frozen=True, slots=True, eq=False)
class WholeFile:
    """A file of which all rows are read."""

    record: FileRecord
    is_stored: bool
    """Whether it has the metadata columns, as a compacted file does."""
    partitions: Rows
    """The partition of each of ``rows``; shape (n,)."""
    rows: Rows
    """Planned rows by row group; shape (n,), dtype ``scan.PLANNED``."""


class Amount(NamedTuple):
    """Files, rows and bytes.

    Of a file that is read in part: its rows that are read, and the bytes of their row groups.
    """

    files: int
    rows: int
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """A read in two parts."""

    native: tuple[WholeFile, ...]
    rest: Mapping[int, tuple[OffsetRange, ...]]
    """Ranges by partition, ascending and disjoint; partitions without any are left out."""
    reasons: Mapping[Reason, Amount]
    """Amounts of the rest, by why they are not native."""

    @property
    def native_amount(self) -> Amount:
        """The amount that goes natively."""
        return Amount(
            len(self.native),
            sum(one.record.rows for one in self.native),
            sum(one.record.size for one in self.native),
        )


def divide(
    plans: Sequence[PartitionPlan],
    files: Mapping[int, FileRecord],
    *,
    bytes_min: int,
    ranges_max: int = RANGES_MAX,
    refuse: Callable[[WholeFile], Reason | None] = lambda _: None,
) -> Division:
    """Divide a plan.

    ``bytes_min``: size of the smallest file that goes natively (inclusive). ``refuse``: says of a whole file
    why it does not, else None.
    """
    rows: Rows = np.concatenate([np.empty(0, PLANNED), *(one.rows for one in plans)])
    if not len(rows):
        return Division((), {}, {})
    numbers: Rows = np.repeat([one.partition for one in plans], [len(one.rows) for one in plans])
    records, owners = _by_key(rows, files)
    order = np.lexsort((rows["row_group"], owners))
    reasons: dict[int, Reason] = {}
    whole: dict[int, WholeFile] = {}
    unsorted = _unsorted(plans)
    for places in np.split(order, np.flatnonzero(np.diff(owners[order])) + 1):
        owner = int(owners[places[0]])
        mine = rows[places]
        found = WholeFile(records[owner], bool(mine["stored"][0]), numbers[places], mine)
        if unsorted.intersection(found.partitions.tolist()):
            reason: Reason | None = Reason.PARTLY
        else:
            reason = _reason(found, bytes_min) or refuse(found)
        if reason is None:
            whole[owner] = found
        else:
            reasons[owner] = reason
    rest = _rest(plans, owners, whole)
    smallest = bytes_min
    while whole and sum(map(len, rest.values())) > max(ranges_max, len(rest)):
        smallest = max(2 * smallest, 1)
        for owner in [owner for owner, one in whole.items() if one.record.size < smallest]:
            reasons[owner] = Reason.SCATTERED
            del whole[owner]
        rest = _rest(plans, owners, whole)
    return Division(tuple(whole.values()), rest, _amounts(rows, owners, reasons))


def _by_key(rows: Rows, files: Mapping[int, FileRecord]) -> tuple[list[FileRecord], Rows]:
    """Return the files, and for each row the index of its own: two numbers may name one object."""
    numbers, inverse = np.unique(rows["file"], return_inverse=True)
    records: dict[str, tuple[int, FileRecord]] = {}
    indexes = np.empty(len(numbers), np.int64)
    for place, number in enumerate(numbers.tolist()):
        record = files[number]
        indexes[place], _ = records.setdefault(record.key, (len(records), record))
    return [record for _, record in records.values()], indexes[inverse]


def _unsorted(plans: Sequence[PartitionPlan]) -> set[int]:
    """Return the partitions whose rows are not ascending and disjoint: no range of offsets stands for some of
    them.
    """
    return {
        one.partition for one in plans if (one.rows["base_offset"][1:] < one.rows["end_offset"][:-1]).any()
    }


def _reason(found: WholeFile, bytes_min: int) -> Reason | None:
    if found.record.place is not None:
        return Reason.EMBEDDED
    rows = found.rows
    ends = np.cumsum(rows["row_group_count"], dtype=np.int64)
    is_whole = (
        (rows["row_group"] == ends - rows["row_group_count"]).all()
        and (rows["skip"] == 0).all()
        and int(rows["take"].sum()) == found.record.rows
        and (rows["stored"] == (Stored.WHOLE if found.is_stored else Stored.NO)).all()
    )
    if not is_whole:
        return Reason.PARTLY
    return Reason.SMALL if found.record.size < bytes_min else None


def _rest(
    plans: Sequence[PartitionPlan], owners: Rows, whole: Mapping[int, WholeFile]
) -> dict[int, tuple[OffsetRange, ...]]:
    is_rest = ~np.isin(owners, list(whole))
    rest: dict[int, tuple[OffsetRange, ...]] = {}
    done = 0
    for one in plans:
        chosen = is_rest[done : done + len(one.rows)]
        done += len(one.rows)
        if chosen.all() and len(chosen):
            rest[one.partition] = (
                OffsetRange(int(one.rows["base_offset"].min()), int(one.rows["end_offset"].max())),
            )
        elif chosen.any():
            rest[one.partition] = spans_of(one.rows, chosen)
    return rest


def _amounts(rows: Rows, owners: Rows, reasons: Mapping[int, Reason]) -> dict[Reason, Amount]:
    takes = np.bincount(owners, rows["take"])
    sizes = np.bincount(owners, rows["size"])
    found: dict[Reason, Amount] = {}
    for owner, reason in reasons.items():
        before = found.get(reason, Amount(0, 0, 0))
        found[reason] = Amount(
            before.files + 1, before.rows + int(takes[owner]), before.size + int(sizes[owner])
        )
    return dict(sorted(found.items()))
