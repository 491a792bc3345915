"""Which records a caller means: what it was given, or partition and offset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txnformat.arguments import items
from txnformat.errors import InvalidInputError, repr_of

__all__ = ["Records", "offsets_by_partition"]

Records = Any
"""A RecordBatch or Table with ``_partition`` and ``_offset``, dicts with them, (partition, offset) pairs, or
one of these."""

_HINT = (
    "give the records that receive() returned, dicts with _partition and _offset, or (partition, "
    "offset) pairs"
)


def offsets_by_partition(records: Records) -> dict[int, NDArray[np.int64]]:
    """Return the offsets that are meant, by partition, ascending.

    Raises InvalidInputError: ``invalid-records`` (also one named twice), ``no-records``.
    """
    if isinstance(records, pa.RecordBatch | pa.Table):
        missing = [name for name in ("_partition", "_offset") if name not in records.schema.names]
        if missing:
            raise InvalidInputError(
                f"the records have no column {missing[0]}", kind="invalid-records", hint=_HINT
            )
        partitions, offsets = _numbers(records, "_partition"), _numbers(records, "_offset")
    else:
        pairs = [_pair(one) for one in _listed(records)]
        partitions, offsets = np.array(pairs, np.int64).reshape(-1, 2).T
    if not len(offsets):
        raise InvalidInputError("no record is named", kind="no-records", hint=_HINT)
    found: dict[int, NDArray[np.int64]] = {}
    for partition in np.unique(partitions).tolist():
        chosen = np.sort(offsets[partitions == partition])
        twice = chosen[1:][chosen[1:] == chosen[:-1]]
        if len(twice):
            raise InvalidInputError(
                f"offset {int(twice[0])} of partition {partition} is named twice", kind="invalid-records"
            )
        found[partition] = chosen
    return found


def _numbers(records: pa.RecordBatch | pa.Table, name: str) -> NDArray[np.int64]:
    column = records.column(name)
    if pa.types.is_integer(column.type) and not column.null_count:
        numbers: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        if not len(numbers) or 0 <= numbers.min() <= numbers.max() < 2**62:
            return numbers.astype(np.int64)
    raise InvalidInputError(
        f"the column {name} has values that are not whole numbers from 0 on",
        kind="invalid-records",
        hint=_HINT,
    )


def _listed(records: Records) -> Iterable[Any]:
    if isinstance(records, Mapping) or (isinstance(records, tuple) and _is_pair(records)):
        return [records]
    if isinstance(records, Iterable) and not isinstance(records, str | bytes):
        found: Iterable[Any] = items(records, "the records")
        return found
    raise InvalidInputError(f"{repr_of(records, 80)} names no records", kind="invalid-records", hint=_HINT)


def _pair(record: Any) -> tuple[int, int]:
    pair = (record.get("_partition"), record.get("_offset")) if isinstance(record, Mapping) else record
    if isinstance(pair, tuple) and _is_pair(pair):
        return pair[0], pair[1]
    raise InvalidInputError(f"{repr_of(record, 80)} names no record", kind="invalid-records", hint=_HINT)


def _is_pair(pair: tuple[Any, ...]) -> bool:
    return len(pair) == 2 and all(type(one) is int and 0 <= one < 2**62 for one in pair)
