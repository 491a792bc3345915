"""Spills: rows of the state of some partitions as the bytes of one object, and back. Pure.

An Arrow stream with the columns of a snapshot and these sections: ``partitions`` says how many rows of each
of ``extents``, ``markers`` and ``aborted`` belong to each partition; ``files`` and ``tables`` are what the
extents name, by their numbers in the state. The specification, section "Spills", has the format.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from txnformat import keys
from txnformat.columns.arrow_file import rows_of
from txnformat.columns.arrow_messages import ArrowFileError, check_stream
from txnformat.core.entry import difference
from txnformat.core.records.state import ABORTED, EXTENT, MARKER
from txnformat.core.sealing.spills import Spilled, SpilledRows, named_files
from txnformat.core.snapshot.sections import (
    FILES,
    OUTER,
    TABLES,
    arrays_of,
    batch_of,
    read_stream,
    record_arrays,
    records_of,
    schema_of,
    schema_of_rows,
    stream_of,
)
from txnformat.errors import CorruptDataError, InvalidInputError
from txnformat.persistent import Rows, Vector
from txnformat.store.object_sizes import METADATA_BYTES_MAX
from txnformat.types import FileRecord, ObjectRecord, TopicPartition

__all__ = ["decode_spill", "encode_spill", "sections_of"]

_ROWS = {"extents": EXTENT, "markers": MARKER, "aborted": ABORTED}
_PARTITIONS = {"topic_id": pa.string(), "partition": pa.int32(), **dict.fromkeys(_ROWS, pa.int64())}
_INNER = {
    "partitions": schema_of(_PARTITIONS),
    **{name: schema_of_rows(dtype) for name, dtype in _ROWS.items()},
    "files": schema_of(FILES),
    "tables": schema_of(TABLES),
}


def encode_spill(spilled: Spilled) -> bytes:
    """Return the bytes of a spill: the same for the same rows and versions of the libraries.

    Raises InvalidInputError of kind ``metadata-too-large`` above 256 MiB, which no reader would accept.
    """
    places = sorted(spilled.partitions)
    rows = [spilled.partitions[key] for key in places]
    columns = {
        "partitions": {
            "topic_id": pa.array([key.topic_id for key in places], pa.string()),
            "partition": pa.array([key.partition for key in places], pa.int32()),
            **{
                name: pa.array([len(one[index]) for one in rows], pa.int64())
                for index, name in enumerate(_ROWS)
            },
        },
        **{
            name: arrays_of(np.concatenate([np.empty(0, dtype), *(one[index] for one in rows)]))
            for index, (name, dtype) in enumerate(_ROWS.items())
        },
        "files": record_arrays(_numbered(spilled.files), FILES),
        "tables": record_arrays(_numbered(spilled.tables), TABLES),
    }
    batches = [batch_of(arrays) for arrays in columns.values()]
    if (size := sum(batch.nbytes for batch in batches)) > METADATA_BYTES_MAX:
        raise InvalidInputError(
            f"a spill would have {size} bytes, more than the cap of {METADATA_BYTES_MAX}",
            kind="metadata-too-large",
            hint="end the transaction that holds the extents back; the log is whole without the spill",
        )
    for compression in ("zstd", None):
        data = pa.array([stream_of(batch, compression) for batch in batches], pa.large_binary())
        made = stream_of(pa.record_batch([pa.array(list(columns)), data], schema=OUTER), None)
        try:  # readers bound what they build by the bytes as stored
            _opened(made)
        except ArrowFileError:
            if compression is None:
                raise
        else:
            return made
    raise AssertionError("the last attempt returns or raises")


def _numbered(records: Mapping[int, Any]) -> Vector[Any]:
    return Vector.numbered(sorted(records), [records[number] for number in sorted(records)], 2**62)


def _opened(data: bytes) -> dict[str, tuple[Any, int]]:
    """Return each section, and where its record batch begins.

    Raises ArrowFileError: it is no such object, or declares too much.
    """
    start, _ = check_stream(memoryview(data), OUTER, len(data))
    outer = pa.ipc.read_record_batch(
        pa.ipc.read_message(pa.BufferReader(pa.py_buffer(data).slice(start))), OUTER
    )
    outer.validate(full=True)
    names = outer.column("section").to_pylist()
    if names != list(_INNER):
        raise ArrowFileError(f"its sections are {names}")
    found: dict[str, tuple[Any, int]] = {}
    declared = 0
    for (name, schema), value in zip(_INNER.items(), outer.column("data"), strict=True):
        section = value.as_buffer()
        begins, size = check_stream(memoryview(section).cast("B"), schema, len(data), declared)
        declared += size
        found[name] = (section, begins)
    return found


def sections_of(data: bytes, name: str) -> dict[str, Any]:
    """Return the record batch of each section of a spill. Raises CorruptDataError."""
    expect = partial(_expect, name)
    try:
        return {
            section: read_stream(value, start, _INNER[section], name, expect)
            for section, (value, start) in _opened(data).items()
        }
    except (OSError, pa.ArrowException, ArrowFileError) as error:  # OSError: a stream that ends too early
        raise CorruptDataError(
            "a spill is not valid Arrow data", kind="corrupt-sidecar", object=name, got=str(error)
        ) from error


def decode_spill(data: bytes | None, named: ObjectRecord) -> Spilled:
    """Return what a spill holds, verified against what the log says first.

    Raises CorruptDataError: it is missing, not the object that was named, or not such an object.
    """
    got = difference(data, named)
    if data is None or got is not None:
        raise CorruptDataError(
            "a spill differs from the one that the log names",
            kind="corrupt-sidecar",
            hint="restore the object from a copy; records behind an open transaction cannot be read "
            "without it",
            object=named.key,
            expected=f"{named.size} bytes, sha256 {named.sha256}",
            got=got,
        )
    found = sections_of(data, named.key)
    expect = partial(_expect, named.key)
    rows = {name: rows_of(found[name], dtype) for name, dtype in _ROWS.items()}
    partitions: dict[TopicPartition, SpilledRows] = {}
    at = dict.fromkeys(_ROWS, 0)
    for topic_id, number, *counts in zip(
        *(found["partitions"].column(name).to_pylist() for name in _PARTITIONS), strict=True
    ):
        cut: list[Rows] = []
        for (name, all_rows), count in zip(rows.items(), counts, strict=True):
            expect(
                name,
                "a number of rows that are left",
                "such a number"
                if not 0 <= count <= len(all_rows) - at[name]
                else "a number of rows that are left",
            )
            cut.append(all_rows[at[name] : at[name] + count])
            at[name] += count
        partitions[TopicPartition(topic_id, number)] = SpilledRows(*cut)
    expect("partitions", sorted(partitions), list(partitions))
    for name in _ROWS:
        expect(name, len(rows[name]), at[name])
    files = {
        row[0]: FileRecord(*row[1:])
        for row in records_of(found["files"], named.key, keys.parse_data_key, expect)
    }
    tables = {
        row[0]: ObjectRecord(*row[1:])
        for row in records_of(found["tables"], named.key, keys.parse_table_key, expect)
    }
    _check_named(rows["extents"], files, tables, expect)
    for one in partitions.values():
        for part, name in zip(one, ("base_offset", "offset", "last_offset"), strict=True):
            expect("order", True, bool(np.all(np.diff(part[name]) > 0)))
    return Spilled(partitions, files, tables)


def _check_named(
    extents: Rows, files: Mapping[int, FileRecord], tables: Mapping[int, ObjectRecord], expect: partial[None]
) -> None:
    """Refuse extents whose file or batch table is not in the object, and runs of files that are longer than
    its list of them.
    """
    if len(extents):
        expect("records", True, bool(extents["records"].min() >= 1 and extents["batch_count"].min() >= 1))
        expect("file_count", True, bool(extents["file_count"].min() >= 0))
    end = 0
    in_table = extents["table"] >= 0
    for first, count in sorted(set(extents[["first_file", "file_count"]][in_table].tolist())):
        # A file is of one append: so the runs together are no longer than the list of files.
        expect("files", True, first >= end and count <= len(files))
        end = first + count
    numbers = named_files(extents)
    expect("files", sorted(numbers)[:20], sorted(numbers & files.keys())[:20])
    used = set(extents["table"][in_table].tolist())
    expect("tables", sorted(used), sorted(used & tables.keys()))
    for numbered in (files, tables):
        expect("numbers", True, all(later > one for one, later in pairwise(numbered)))


def _expect(name: str, field: str, expected: object, got: object) -> None:
    if expected != got:
        raise CorruptDataError(
            "a spill cannot be decoded",
            kind="corrupt-sidecar",
            hint="run no writer on this log before its cause is known",
            object=name,
            field=field,
            expected=expected,
            got=got,
        )
