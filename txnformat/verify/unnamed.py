"""Objects that no entry names: uploads under way or given up, what a vacuum has left behind, what txnlog did
not make.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from txnformat import keys
from txnformat.verify.bytes import is_control
from txnformat.verify.report import Record, VerifyNote

__all__ = ["count_unnamed", "named_after"]

EXAMPLES_MAX = 5


def count_unnamed(
    record: Record, sizes: Mapping[str, int], named: Collection[str], vacuumed: Collection[str], boundary: int
) -> None:
    """Note what no entry names, by kind.

    ``sizes``: of all objects, by key. ``named``: keys that entries name. ``vacuumed``: those of them that a
    vacuum has deleted. ``boundary``: entries below it are deleted, or may be.
    """
    unnamed = {key: size for key, size in sizes.items() if key not in named}
    ours = {key for key in unnamed if named_after(key) is not None}
    strange = {key for key in unnamed.keys() - ours if not is_control(key)}
    if vacuumed:
        what = "objects that entries name and a vacuum has deleted"
        examples = tuple(sorted(vacuumed)[:EXAMPLES_MAX])
        record.notes.append(VerifyNote("vacuumed", what, len(vacuumed), 0, examples))
    _note(
        record,
        sizes,
        "orphans",
        "objects that no entry names: uploads in progress or abandoned, and objects that a vacuum will "
        "delete",
        ours,
    )
    _note(record, sizes, "strange", "objects that txnlog did not make", strange)
    if boundary:
        what = (
            f"entries below {boundary} are deleted, or may be: of them only bundles are checked, and "
            "what the state still says of them"
        )
        record.notes.append(VerifyNote("deleted-entries", what, boundary, 0, ()))
        below = [
            key for key in unnamed if (number := keys.parse_entry_key(key)) is not None and number < boundary
        ]
        _note(
            record,
            sizes,
            "below-boundary",
            f"entries below {boundary} that still exist: not checked",
            below,
        )


def _note(record: Record, sizes: Mapping[str, int], kind: str, what: str, found: Iterable[str]) -> None:
    names = sorted(found)
    if names:
        size = sum(sizes[key] for key in names)
        record.notes.append(VerifyNote(kind, what, len(names), size, tuple(names[:EXAMPLES_MAX])))


def named_after(key: str) -> keys.ObjectName | None:
    """Return what the key of a snapshot, batch table, segment file or sidecar says."""
    return keys.parse_snapshot_key(key) or keys.named_after(key)
