"""Metadata columns of files that do not store them: the plan knows them batch by batch, Spark the place of
each row in its file.

A small table of the batches is broadcast and joined by the file's name and the row's number in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_datasource.native.columns import named
from spark_datasource.native.division import WholeFile
from txnformat.reading.pruning import PLAN_FIELDS
from txnformat.reading.rows import METADATA_FIELDS

__all__ = ["BATCHES_MAX", "BATCHES_PER_FILE_MAX", "by_batch", "file_name", "joined", "value"]

BATCHES_MAX = 100_000
"""Most batches of one table of all files together: it goes to every executor."""

BATCHES_PER_FILE_MAX = 64
"""Most batches of one file: each row is compared with those of its file, until one fits."""

_FILE, _FIRST, _END, _SHIFT = "_file", "_first_row", "_end_row", "_shift"


def by_batch(meta: Sequence[str], timestamp_column: str | None) -> list[str]:
    """Return those of metadata columns that the table of batches is needed for."""
    own = {"_topic"} | ({"_timestamp"} if timestamp_column is not None else set())
    return [name for name in meta if name not in own]


def file_name(file: WholeFile) -> str:
    """Return what Spark calls a file: the last part of its path."""
    return file.record.key.rpartition("/")[2]


def joined(
    spark: SparkSession, frame: DataFrame, files: Sequence[WholeFile], meta: Sequence[str], place: str
) -> DataFrame:
    """Return a frame with the metadata columns of :func:`by_batch`.

    ``place``: its column of structs with ``file_name`` and ``row_index``. A left join: a row that no batch
    claims would show as null, and not be lost.
    """
    batches = spark.createDataFrame(_batches(files, meta))
    names = {name: f"{place}{name}" for name in batches.columns}
    batches = batches.select(*[named(name).alias(names[name]) for name in batches.columns])
    index = named(place).getField("row_index")
    fits = (named(place).getField("file_name") == named(names[_FILE])) & (index >= named(names[_FIRST]))
    found = frame.join(F.broadcast(batches), fits & (index < named(names[_END])), "left")
    columns = [named(name) for name in frame.columns if name != place]
    columns += [_value(name, names, index).alias(name) for name in meta]
    return found.select(*columns)


def _value(name: str, names: dict[str, str], index: Column) -> Column:
    if name == "_offset":
        return index + named(names[_SHIFT])
    if name == "_timestamp":
        return F.timestamp_micros(named(names[name]))
    return named(names[name])


def value(name: str, topic: str, timestamp_column: str | None) -> Column:
    """Return a metadata column that every file gives: those that :func:`by_batch` leaves out."""
    if name == "_timestamp" and timestamp_column is not None:
        return named(timestamp_column)
    return F.lit(topic)


def _batches(files: Sequence[WholeFile], meta: Sequence[str]) -> pa.Table:
    rows = np.concatenate([one.rows for one in files])
    counts = [len(one.rows) for one in files]
    ends = np.concatenate([np.cumsum(one.rows["take"]) for one in files])
    firsts = ends - rows["take"]
    found = {
        _FILE: pa.array(np.repeat([file_name(one) for one in files], counts), pa.string()),
        _FIRST: pa.array(firsts),
        _END: pa.array(ends),
    }
    for name in meta:
        if name == "_offset":
            found[_SHIFT] = pa.array(rows["base_offset"] - firsts)
        elif name == "_partition":
            numbers = np.concatenate([one.partitions for one in files])
            found[name] = pa.array(numbers.astype(np.int32), METADATA_FIELDS[name].type)
        elif name == "_timestamp":
            found[name] = pa.array(rows["timestamp_ms"] * 1_000)
        else:
            numbers = rows[PLAN_FIELDS[name]]
            found[name] = pa.array(numbers, mask=numbers < 0)
    return pa.table(found)
