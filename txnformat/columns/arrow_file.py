"""Metadata objects that are Arrow IPC files of one record batch: written the same way everywhere, and checked
when read.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from txnformat.columns.arrow_messages import ArrowFileError, read_arrow_file
from txnformat.errors import CorruptDataError
from txnformat.persistent import Rows

__all__ = ["decode_arrow_file", "encode_arrow_file", "rows_of"]


def encode_arrow_file(batch: pa.RecordBatch) -> bytes:
    """Return the bytes of a file compressed with zstd: the same for the same batch and versions of the
    libraries.
    """
    sink = pa.BufferOutputStream()
    # One thread: the bytes must not depend on how many cores there are.
    options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
    with pa.ipc.new_file(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode_arrow_file(data: bytes, schema: pa.Schema, corrupt: Callable[[str], CorruptDataError]) -> pa.Table:
    """Return the table of a file, without nulls.

    ``corrupt``: makes the error from what is wrong. Raises CorruptDataError: the bytes are no Arrow file of
    one record batch, have other columns, nulls, or are too large when decompressed.
    """
    try:
        _, columns = read_arrow_file(data, schema)
    except ArrowFileError as error:
        raise corrupt(str(error)) from error
    return pa.table(list(columns.values()), schema=schema)


def rows_of(table: pa.Table, dtype: np.dtype[Any]) -> Rows:
    """Return the columns that ``dtype`` names as read-only structured rows."""
    rows = np.empty(table.num_rows, dtype)
    for name in dtype.names or ():
        rows[name] = table.column(name).to_numpy()
    rows.flags.writeable = False
    return rows
