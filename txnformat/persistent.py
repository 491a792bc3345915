"""Immutable values that change cheaply: what makes a pure fold affordable.

A state shares all unchanged parts with the state before it. Appending to a plain tuple or array would copy it
whole; sequences keep chunks whose sizes grow geometrically (a binary counter), so an append copies O(log n)
rows on average and never touches what an older state can see. Mappings keep what has changed beside a large
dict.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = [
    "Columns",
    "Map",
    "Members",
    "Rows",
    "Vector",
    "excluding",
    "first_value",
    "including",
    "put",
    "replace",
    "update",
    "without",
    "without_key",
]

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
Rows = npt.NDArray[Any]

DICT_MAX = 256
"""A mapping of at most so many items is a plain dict, which is copied whole."""
TAIL_ROWS = 32
"""So many rows become a table of their own."""

_Struct = msgspec.Struct
_replace = msgspec.structs.replace
_MISSING: Any = object()


def replace(value: T, **changes: Any) -> T:
    """Return ``value``, a Struct (copied in C) or a dataclass, with some fields changed: Python 3.13's
    ``copy.replace``.
    """
    if isinstance(value, _Struct):
        return _replace(value, **changes)
    return dataclasses.replace(value, **changes)  # type: ignore[type-var]  # a dataclass, or dataclasses says so


def put(mapping: Mapping[K, V], key: K, value: V) -> Mapping[K, V]:
    """Return ``mapping`` with one more item at its end, or with another value of one that is there."""
    return update(mapping, {key: value})


def update(mapping: Mapping[K, V], more: Mapping[K, V]) -> Mapping[K, V]:
    """Return ``mapping`` with more items at its end, or with other values of those that are there, which keep
    their places.
    """
    if not more:
        return mapping
    if type(mapping) is Map:
        return mapping.with_items(more)
    if len(mapping) + len(more) <= DICT_MAX:
        return {**mapping, **more}
    return Map(mapping).with_items(more)


def without(mapping: Mapping[K, V], keys: Iterable[K]) -> Mapping[K, V]:
    """Return ``mapping`` without some keys, whether or not they are there."""
    if type(mapping) is not Map and len(mapping) > DICT_MAX:
        mapping = Map(mapping)
    if type(mapping) is Map:
        return mapping.without(keys)
    copy = dict(mapping)
    for key in keys:
        copy.pop(key, None)
    return copy


def without_key(mapping: Mapping[K, V], key: K) -> Mapping[K, V]:
    """Return ``mapping`` without a key, whether or not it is there."""
    if type(mapping) is Map:
        return mapping.without_key(key)
    return without(mapping, (key,)) if key in mapping else mapping


def first_value(mapping: Mapping[K, V], default: V) -> V:
    """Return the value of the first key, or the default if there is none."""
    if type(mapping) is Map:
        found: V = mapping.first_value(default)
        return found
    return next(iter(mapping.values()), default)


def including(values: AbstractSet[K], value: K) -> AbstractSet[K]:
    """Return a set with one more value."""
    if len(values) < DICT_MAX:
        return frozenset(values) | {value}
    return Members(put(_items(values), value, None))


def excluding(values: AbstractSet[K], value: K) -> AbstractSet[K]:
    """Return a set without a value, whether or not it is there."""
    if len(values) <= DICT_MAX:
        return frozenset(values) - {value}
    return Members(without(_items(values), (value,)))


def _items(values: AbstractSet[K]) -> Mapping[K, None]:
    return values.items if type(values) is Members else dict.fromkeys(values)


class Members(AbstractSet[K]):
    """An immutable set of the keys of a mapping; copies, pickles and what operators make of it are
    frozensets.
    """

    __slots__ = ("items",)

    def __init__(self, items: Mapping[K, None]) -> None:
        self.items = items

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self.items)

    def __iter__(self) -> Iterator[K]:
        """Iterate over the values in the order in which they came."""
        return iter(self.items)

    def __contains__(self, value: object) -> bool:
        """Return whether a value is there."""
        return value in self.items

    def __reduce__(self) -> tuple[Any, ...]:
        """Let copies and pickles be frozensets."""
        return frozenset, (frozenset(self),)

    @classmethod
    def _from_iterable(cls, values: Iterable[T]) -> AbstractSet[T]:
        return frozenset(values)


class Map(Mapping[K, V]):
    """An immutable mapping with more items than a dict that is copied for each change; it has the order of a
    dict.

    Most items are in a dict that never changes and that all versions share. Beside it are the items that have
    changed or come since, and the keys that have gone: at most about twice as many as the square root of the
    number of items, then a new dict takes them in. A change of one item of n so costs O(sqrt(n)) on average,
    in steps that are made in C; finding an item costs two or three look-ups.

    :func:`put`, :func:`update` and :func:`without` make maps of large dicts, and dicts of small maps.
    """

    __slots__ = ("_base", "_first", "_gone", "_length", "_new", "_order")

    def __init__(self, base: Mapping[K, V]) -> None:
        """Make a map of a mapping that never changes any more."""
        self._base = base
        self._order: tuple[K, ...] = tuple(base)
        """Keys of the base in their order: the first one that is left is found without a look at those that
        are gone."""
        self._first = 0
        """Index of that key."""
        self._new: dict[K, V] = {}
        """Other values of items of the base, and items after it."""
        self._gone: dict[K, None] = {}
        """Keys whose items in the base are gone; one that came again is in ``_new`` besides, and stands
        there."""
        self._length = len(base)

    def __len__(self) -> int:
        """Return the number of items."""
        return self._length

    def __getitem__(self, key: K) -> V:
        """Return the value of a key, or raise KeyError."""
        if key in self._new:
            return self._new[key]
        if key in self._gone:
            raise KeyError(key)
        return self._base[key]

    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        if key in self._new:
            return self._new[key]
        return default if key in self._gone else self._base.get(key, default)

    def __eq__(self, other: object) -> bool:
        """Return whether the other is a mapping with the same items, in any order."""
        if not isinstance(other, Mapping):
            return NotImplemented
        return len(self) == len(other) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, key: object) -> bool:
        """Return whether there is an item with this key."""
        return key in self._new or (key in self._base and key not in self._gone)

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys in the order in which they came."""
        order, gone, base = self._order, self._gone, self._base
        for index in range(self._first, len(order)):
            if order[index] not in gone:
                yield order[index]
        for key in self._new:
            if key in gone or key not in base:
                yield key

    def __repr__(self) -> str:
        """Show all items, as a dict does."""
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """Let copies and pickles be plain dicts."""
        return dict, (dict(self),)

    def with_items(self, more: Mapping[K, V]) -> Mapping[K, V]:
        """Return the map with more items, or other values."""
        added = sum(key not in self for key in more)
        return self._changed({**self._new, **more}, self._gone, self._length + added)

    def without(self, keys: Iterable[K]) -> Mapping[K, V]:
        """Return the map without some keys."""
        base, new, gone, length = self._base, self._new.copy(), self._gone.copy(), self._length
        for key in keys:
            was_new = new.pop(key, _MISSING) is not _MISSING
            if key in base and key not in gone:
                gone[key] = None
            elif not was_new:
                continue
            length -= 1
        return self if length == self._length else self._changed(new, gone, length)

    def without_key(self, key: K) -> Mapping[K, V]:
        """Return the map without a key."""
        new, gone = self._new, self._gone
        is_left = key in self._base and key not in gone
        if key in new:
            new = new.copy()
            del new[key]
        elif not is_left:
            return self
        if is_left:
            gone = gone.copy()
            gone[key] = None
        return self._changed(new, gone, self._length - 1)

    def first_value(self, default: V) -> V:
        """Return the value of the first key, or the default if there is none."""
        first, order = self._first, self._order
        if first < len(order) and order[first] not in self._gone:
            key = order[first]
            return self._new[key] if key in self._new else self._base[key]
        return next(iter(self.values()), default)

    def _changed(self, new: dict[K, V], gone: dict[K, None], length: int) -> Mapping[K, V]:
        base, order, first = self._base, self._order, self._first
        if (len(new) + len(gone)) ** 2 > 4 * len(base):
            whole = dict(base)
            for key in gone:
                del whole[key]
            whole.update(new)
            return whole if length <= DICT_MAX else Map(whole)
        made: Map[K, V] = Map.__new__(Map)
        while gone and first < len(order) and order[first] in gone:
            first += 1
        made._base, made._order, made._first = base, order, first
        made._new, made._gone, made._length = new, gone, length
        return made


def _joined(parts: Sequence[Rows], dtype: np.dtype[Any]) -> Rows:
    """Return the parts as one array that cannot be changed; of structured rows bytes are copied several times
    faster than items.
    """
    contiguous: list[Any] = [
        part if part.flags.c_contiguous and part.dtype is dtype else np.ascontiguousarray(part, dtype)
        for part in parts
    ]
    return np.frombuffer(b"".join(contiguous), dtype)


class Columns:
    """An immutable table of fixed-width columns (numpy structured rows), appended to by making a new one."""

    __slots__ = ("_chunks", "_hidden", "_length", "_tail", "dtype")

    def __init__(self, dtype: np.dtype[Any], chunks: tuple[Rows, ...] = ()) -> None:
        self.dtype = dtype
        self._chunks = chunks
        self._hidden = 0
        """Rows before those of the first chunk that its memory still has."""
        self._length = sum(len(chunk) for chunk in chunks)
        self._tail = b""
        """The last rows, fewer than ``TAIL_ROWS``: appending to a few bytes is cheaper than to a table."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._length

    def append(self, rows: Rows) -> Columns:
        """Return a table with ``rows`` (shape (n,), the table's dtype) added at the end."""
        return self.append_bytes(rows.tobytes())

    def append_bytes(self, rows: bytes) -> Columns:
        """Return a table with rows added at the end, whose bytes are given."""
        if not rows:
            return self
        grown = Columns.__new__(Columns)
        grown.dtype, grown._length = self.dtype, self._length + len(rows) // self.dtype.itemsize
        tail = self._tail + rows
        if len(tail) < TAIL_ROWS * self.dtype.itemsize:
            grown._chunks, grown._hidden, grown._tail = self._chunks, self._hidden, tail
            return grown
        chunks, merged = self._chunks, np.frombuffer(tail, self.dtype)
        kept, size = len(chunks), len(merged)
        while kept and len(chunks[kept - 1]) <= 2 * size:
            kept -= 1
            size += len(chunks[kept])
        if kept < len(chunks):
            merged = _joined((*chunks[kept:], merged), self.dtype)
        grown._chunks, grown._hidden, grown._tail = (*chunks[:kept], merged), self._hidden if kept else 0, b""
        return grown

    def _parts(self) -> tuple[Rows, ...]:
        """Return all rows, the oldest first, as few arrays."""
        return (*self._chunks, np.frombuffer(self._tail, self.dtype)) if self._tail else self._chunks

    def array(self) -> Rows:
        """Return all rows as one read-only array, oldest first; O(rows) when there are several chunks."""
        parts = self._parts()
        return parts[0] if len(parts) == 1 else _joined(parts, self.dtype)

    def since(self, start: int) -> Rows:
        """Return the rows from index ``start`` (inclusive) on; costs only the chunks they lie in."""
        found: list[Rows] = []
        end = self._length
        for chunk in reversed(self._parts()):
            begin = end - len(chunk)
            found.append(chunk[max(0, start - begin) :])
            if begin <= start:
                break
            end = begin
        return _joined(found[::-1], self.dtype)

    def until(self, column: str, end: int) -> Rows:
        """Return the first rows, those with less than ``end`` in a column, which ascends; costs only the
        chunks they lie in.
        """
        found: list[Rows] = []
        for chunk in self._parts():
            count = int(np.searchsorted(chunk[column], end))
            found.append(chunk[:count])
            if count < len(chunk):
                break
        return found[0] if len(found) == 1 else _joined(found, self.dtype)

    def count_below(self, column: str, end: int) -> int:
        """Return how many rows have less than ``end`` in a column, in whatever order they are."""
        return sum(int(np.count_nonzero(chunk[column] < end)) for chunk in self._parts())

    def drop(self, count: int) -> Columns:
        """Return a table without the first ``count`` rows; O(rows that go) on average.

        It keeps at most twice the memory of its rows.
        """
        hidden, chunks = self._hidden, self._parts()
        while chunks and len(chunks[0]) <= count:
            count -= len(chunks[0])
            hidden, chunks = 0, chunks[1:]
        if count:
            first = chunks[0][count:]
            hidden += count
            if hidden > len(first):
                first, hidden = first.copy(), 0
                first.flags.writeable = False
            chunks = (first, *chunks[1:])
        left = Columns(self.dtype, chunks)
        left._hidden = hidden
        return left

    def last(self) -> Any:
        """Return the last row, or None when there is none."""
        parts = self._parts()
        return parts[-1][-1] if parts else None


class _Chunk(Generic[T]):
    """Values that follow each other, and their numbers. Never changed."""

    __slots__ = ("_keys", "numbers", "values")

    def __init__(self, numbers: tuple[int, ...], values: tuple[T, ...]) -> None:
        self.numbers, self.values = numbers, values
        self._keys: frozenset[str] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _Chunk, (self.numbers, self.values)

    def keys(self) -> frozenset[str]:
        """Return the values' ``key``s, each up to the first ``@``; they are collected when they are asked for
        first.
        """
        if self._keys is None:
            self._keys = frozenset([value.key.partition("@")[0] for value in self.values])  # type: ignore[attr-defined]
        return self._keys


class Vector(Generic[T]):
    """An immutable sequence of numbered values, appended to by making a new one.

    Numbers are given in order, from 0, and never change. Values that nothing needs any more are dropped;
    their numbers are not given again.
    """

    __slots__ = ("_chunks", "_length", "end")

    def __init__(self, values: Sequence[T] = ()) -> None:
        self._chunks: tuple[_Chunk[T], ...] = ()
        self._length = len(values)
        self.end = len(values)
        """The number that the next value gets."""
        if values:
            self._chunks = (_Chunk(tuple(range(len(values))), tuple(values)),)

    @classmethod
    def numbered(cls, numbers: Sequence[int], values: Sequence[T], end: int) -> Vector[T]:
        """Return a sequence of ``values`` with strictly increasing ``numbers``, all below ``end``."""
        return cls._of((_Chunk(tuple(numbers), tuple(values)),) if values else (), end)

    @classmethod
    def _of(cls, chunks: tuple[_Chunk[T], ...], end: int) -> Vector[T]:
        made = cls()
        made._chunks = chunks
        made._length = sum(len(chunk.numbers) for chunk in chunks)
        made.end = end
        return made

    def __len__(self) -> int:
        """Return the number of values that are there."""
        return self._length

    def __iter__(self) -> Iterator[T]:
        """Iterate from the oldest value to the newest."""
        for chunk in self._chunks:
            yield from chunk.values

    def numbers(self) -> Iterator[int]:
        """Iterate over the numbers of the values, ascending."""
        for chunk in self._chunks:
            yield from chunk.numbers

    def __contains__(self, number: object) -> bool:
        """Return whether there is a value with this number."""
        return isinstance(number, int) and self._find(number) is not None

    def __getitem__(self, number: int) -> T:
        """Return the value with this number; IndexError when it was never there or is dropped."""
        found = self._find(number)
        if found is None:
            raise IndexError(number)
        chunk, index = found
        return self._chunks[chunk].values[index]

    def _find(self, number: int) -> tuple[int, int] | None:
        for chunk in range(len(self._chunks) - 1, -1, -1):  # the newest are asked for most
            numbers = self._chunks[chunk].numbers
            if number >= numbers[0]:
                index = bisect_left(numbers, number)
                return (chunk, index) if index < len(numbers) and numbers[index] == number else None
        return None

    def first_of(self, keys: Collection[str]) -> str | None:
        """Return the first of some keys that a value has up to the first ``@`` of its own, None if none has
        one.

        Only for values with a ``key``.

        O(keys x log(values)), and on average O(log(values)) for each value that was added.
        """
        for chunk in self._chunks:
            found = chunk.keys()
            if not found.isdisjoint(keys):
                return next(key for key in keys if key in found)
        return None

    def extend(self, values: Sequence[T]) -> Vector[T]:
        """Return a sequence with ``values`` added at the end."""
        if not values:
            return self
        chunks = list(self._chunks)
        end = self.end + len(values)
        numbers, tail = tuple(range(self.end, end)), tuple(values)
        while chunks and len(chunks[-1].numbers) <= 2 * len(tail):
            earlier = chunks.pop()
            numbers, tail = earlier.numbers + numbers, earlier.values + tail
        grown: Vector[T] = Vector.__new__(Vector)
        grown._chunks, grown._length = (*chunks, _Chunk(numbers, tail)), self._length + len(values)
        grown.end = end
        return grown

    def keep(self, numbers: Collection[int]) -> Vector[T]:
        """Return a sequence without the values whose number is not among ``numbers``; O(values)."""
        kept = [
            (number, value) for number, value in zip(self.numbers(), self, strict=True) if number in numbers
        ]
        return self.numbered([number for number, _ in kept], [value for _, value in kept], self.end)
