"""Values with some fields changed; mappings and sets that the fold of one entry changes in place, after it has copied them once.

A state is a value: its holder never sees it change. But between the operations of one entry the states have no holder,
so these share one copy of what they change, which belongs to that fold: an entry of n operations on a mapping of m items
costs O(n + m), not O(n m). The fold's :class:`~txnformat.core.folding.At` is the owner: once it is gone, nothing changes the
copy any more, and the next fold makes its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

import msgspec

__all__ = ["draft", "drafted_set", "put", "replace", "without"]

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

_Struct = msgspec.Struct
_replace = msgspec.structs.replace


GONE_MIN = 256
"""So many items that are gone make a draft anew."""


class _Draft(dict[K, V]):
    """A copy that belongs to one fold."""

    __slots__ = ("gone", "owner")

    owner: object
    gone: int
    """Items that were removed since the copy was made, or made anew: a search for the first item steps over their places."""

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class _DraftSet(set[K]):
    """A copy that belongs to one fold."""

    __slots__ = ("owner",)

    owner: object

    def __reduce__(self) -> tuple[Any, ...]:
        return frozenset, (frozenset(self),)


def draft(mapping: Mapping[K, V], owner: object) -> dict[K, V]:
    """Return a copy of ``mapping`` that belongs to ``owner``: itself, if it does already. None owns nothing."""
    if owner is not None and type(mapping) is _Draft and mapping.owner is owner:
        return mapping
    copy: _Draft[K, V] = _Draft(mapping)
    copy.owner, copy.gone = owner, 0
    return copy


def put(mapping: Mapping[K, V], key: K, value: V, owner: object) -> dict[K, V]:
    """Return ``owner``'s copy of ``mapping`` with one more item, or another value of one."""
    copy = draft(mapping, owner)
    copy[key] = value
    return copy


def without(mapping: Mapping[K, V], keys: Iterable[K], owner: object) -> dict[K, V]:
    """Return ``owner``'s copy of ``mapping`` without some keys, whether or not they are there."""
    copy = draft(mapping, owner)
    before = len(copy)
    for key in keys:
        copy.pop(key, None)
    if type(copy) is _Draft:
        copy.gone += before - len(copy)
        if copy.gone > GONE_MIN + len(copy) // 16:
            left = [*copy.items()]
            copy.clear()
            copy.update(left)
            copy.gone = 0
    return copy


def drafted_set(
    values: AbstractSet[K], owner: object, *, more: Collection[K] = (), fewer: Collection[K] = ()
) -> AbstractSet[K]:
    """Return ``owner``'s copy of a set with more, and fewer, values."""
    if owner is not None and type(values) is _DraftSet and values.owner is owner:
        copy = values
    else:
        copy = _DraftSet(values)
        copy.owner = owner
    copy.update(more)
    copy.difference_update(fewer)
    return copy


def replace(value: T, **changes: Any) -> T:
    """Return ``value``, a Struct (copied in C) or a dataclass, with some fields changed: Python 3.13's ``copy.replace``."""
    if isinstance(value, _Struct):
        return _replace(value, **changes)
    return dataclasses.replace(value, **changes)  # type: ignore[type-var]  # a dataclass, or dataclasses says so
