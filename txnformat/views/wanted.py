"""Files that a table of a view is to have, and whether they have the same records as the ones before.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

__all__ = ["Wanted", "is_rearranged"]


class Wanted(NamedTuple):
    """A file that the table is to have."""

    path: str
    """Relative to the topic's directory."""
    size: int
    rows: int
    """Records, all of which are shown."""
    min_entry: int
    """Smallest entry that committed one of them."""
    max_entry: int


def is_rearranged(entry: int, records: int, wanted: Collection[Wanted]) -> bool:
    """Return whether all records of a table that shows ``entry`` with so many ``records`` are in the wanted
    files, with no newer record in the file of an older one.

    The records that were shown at an older entry can only have become fewer: so equal counts are equal
    records.
    """
    if any(one.min_entry <= entry < one.max_entry for one in wanted):
        return False
    return sum(one.rows for one in wanted if one.max_entry <= entry) == records
