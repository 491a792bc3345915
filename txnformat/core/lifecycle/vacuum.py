"""The vacuum's mark: which objects an operation names for the first time, and that none of them is too old.

Pure.

An object that no operation names any more may be deleted only if none ever names it again. A key says since
when its object can exist (*born*); below the floor of the last mark, ``decide`` and the fold refuse to name
anything. An intent that the log holds already is answered before that.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from txnformat import keys
from txnformat.core.folding import At, corrupt
from txnformat.core.intents import MarkVacuum
from txnformat.core.lifecycle.features import check_removal
from txnformat.core.lifecycle.operations import Replace, VacuumMark
from txnformat.core.operations import Append, Operation, Seal, Spill, Stage
from txnformat.core.state import LogState
from txnformat.errors import ConflictError, UploadExpiredError
from txnformat.types import ObjectRecord

__all__ = [
    "GRACE",
    "GRACE_MIN",
    "GRACE_MS_MIN",
    "check_born",
    "check_named",
    "expired_upload",
    "mark",
    "named_objects",
]

GRACE = datetime.timedelta(days=7)
"""How long readers may go on by what they have planned, and writers may take from an upload to its commit."""
GRACE_MS_MIN = 2 * 3_600_000
"""Shortest grace of a vacuum without consent to a shorter one: producers may take an hour and a half from
what they know to a commit."""
GRACE_MIN = datetime.timedelta(milliseconds=GRACE_MS_MIN)
"""The same; writers look for news four times in this time."""


def named_objects(op: Operation) -> Iterator[str]:
    """Yield the keys of the objects that an operation names, and that no operation before it need have named.

    A snapshot is named by its entry, and its key says that entry: a checkpoint names nothing here.
    """
    named = _NAMED.get(type(op))
    if named is not None:
        yield from named(op)


def _append(op: Append | Stage) -> Iterator[str]:
    for file in op.files:
        yield file.key
    yield from _keys(op.table)


def _seal(op: Seal) -> Iterator[str]:
    for segment in op.segments:
        yield from _keys(segment.index, segment.markers, segment.txnindex)
    yield from _keys(op.segment_list)


def _spill(op: Spill) -> Iterator[str]:
    yield op.table.key


def _replace(op: Replace) -> Iterator[str]:
    yield from _keys(*(segment.index for segment in op.segments), *(one.segment_list for one in op.lists))


def _keys(*named: ObjectRecord | None) -> Iterator[str]:
    return (one.key for one in named if one is not None)


_NAMED: dict[type, Callable[[Any], Iterator[str]]] = {
    Append: _append,
    Stage: _append,
    Seal: _seal,
    Spill: _spill,
    Replace: _replace,
}


def expired_upload(state: LogState, op: Operation) -> str | None:
    """Return the first object that an operation names although it was born below the floor; None: there is
    none.

    O(what the operation names).
    """
    floor = state.vacuum_floor
    if not floor:
        return None
    return next((key for key in named_objects(op) if keys.born_of(key) < floor), None)


def check_born(state: LogState, operations: tuple[Operation, ...]) -> None:
    """Raise UploadExpiredError about a decision that names an object born below the floor."""
    for op in operations:
        expired = expired_upload(state, op)
        if expired is not None:
            raise UploadExpiredError(
                "an object was uploaded too long ago to become part of the log: a vacuum may have deleted it",
                hint="write the data again; nothing of this call was applied",
                object=expired,
                born=keys.born_of(expired),
                floor=state.vacuum_floor,
            )


def check_named(state: LogState, op: Operation, at: At) -> None:
    """Refuse, in the fold, an operation that names an object born below the floor."""
    expired = expired_upload(state, op)
    if expired is not None:
        _too_old(state, expired, at)


def _too_old(state: LogState, key: str, at: At) -> NoReturn:
    corrupt(at, "an entry names an object that was born below the floor", floor=state.vacuum_floor, got=key)


def mark(state: LogState, action: MarkVacuum) -> VacuumMark:
    """Return the operation that moves the floor, if it is still below; raise ConflictError if another client
    was faster.
    """
    check_removal(state)
    if action.floor <= state.vacuum_floor:
        raise ConflictError(
            "another vacuum has moved the floor",
            kind="vacuum-superseded",
            hint="no action is needed",
            floor=state.vacuum_floor,
        )
    return VacuumMark(action.floor)
