"""Objects that entries name, and prices of requests. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from txnformat.core.entry import CommitEntry
from txnformat.core.lifecycle.operations import Replace
from txnformat.core.operations import Append, Checkpoint, Seal, Spill, Stage
from txnformat.looking.model import ObjectKind
from txnformat.types import FileRecord, ObjectRecord

__all__ = ["PRICES", "ObjectCounts"]

PRICES = {"read": 0.0004, "write": 0.005}
"""US$ for a thousand requests: S3 Standard's list price in us-east-1. PUT and LIST are billed as writes,
DELETE not at all."""


class ObjectCounts:
    """Counts the objects that writers have created for the entries that it is given: each has cost at least
    one PUT.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, list[int]] = {
            kind: [0, 0]
            for kind in (
                "commit entries",
                "data files",
                "batch tables and spills",
                "sidecars",
                "segment lists",
                "snapshots",
            )
        }
        self._seen: set[str] = set()

    def add(self, entry: CommitEntry, size: int) -> None:
        """Count an entry of so many bytes, and the objects that it names for the first time."""
        self._count("commit entries", size)
        for kind, record in _objects(entry):
            if record.key not in self._seen:
                self._seen.add(record.key)
                self._count(kind, record.size)

    def _count(self, kind: str, size: int) -> None:
        found = self._kinds[kind]
        found[0] += 1
        found[1] += size

    def kinds(self) -> tuple[ObjectKind, ...]:
        """Return the counts so far."""
        return tuple(ObjectKind(kind, objects, size) for kind, (objects, size) in self._kinds.items())


def _objects(entry: CommitEntry) -> Iterator[tuple[str, Checkpoint | ObjectRecord | FileRecord]]:
    for op in entry.operations:
        match op:
            case Append() | Stage():
                yield from (("data files", file) for file in op.files if file.place is None)
                if op.table is not None:
                    yield "batch tables and spills", op.table
            case Spill():
                yield "batch tables and spills", op.table
            case Seal():
                for segment in op.segments:
                    yield from _present("sidecars", (segment.index, segment.markers, segment.txnindex))
                yield from _present("segment lists", (op.segment_list,))
            case Replace():
                yield from (("sidecars", segment.index) for segment in op.segments)
                yield from (("segment lists", one.segment_list) for one in op.lists)
            case Checkpoint():
                yield "snapshots", op
            case _:
                pass


def _present(kind: str, records: Iterable[ObjectRecord | None]) -> Iterator[tuple[str, ObjectRecord]]:
    yield from ((kind, record) for record in records if record is not None)
