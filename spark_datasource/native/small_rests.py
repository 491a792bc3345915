"""A small rest: the driver reads it while it plans, so that Spark knows its rows and their size.

Spark takes a Python DataSource for 8 EiB, whatever it holds, and so each union with one: no join would
broadcast a topic of ten rows. A local relation has its true size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_datasource.native.division import Division

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DRIVER_BYTES_MAX", "FILES_MAX", "MEMORY_BYTES_MAX", "is_small", "local_frame"]

DRIVER_BYTES_MAX = 4 * 2**20
"""Most bytes of a rest that the driver reads, as its files have them (inclusive): 60 ms at 70 MB/s."""

FILES_MAX = 64
"""Most files, and entries with rows: where a request takes 30 ms, and 16 are on their way at a time, 120 ms.
"""

MEMORY_BYTES_MAX = 16 * 2**20
"""Most bytes of its rows in memory; Spark broadcasts 10 MB by default."""

_CARRIED = (
    BooleanType,
    NumericType,
    DecimalType,
    StringType,
    BinaryType,
    DateType,
    TimestampType,
    TimestampNTZType,
    DayTimeIntervalType,
)


def is_small(division: Division, schema: StructType, bytes_max: int) -> bool:
    """Return whether the driver reads the rest of a division; ``bytes_max``: of its files, 0: it never
    does.
    """
    amounts = division.reasons
    return (
        bytes_max > 0
        and sum(one.files for one in amounts.values()) <= FILES_MAX
        and sum(one.size for one in amounts.values()) <= bytes_max
        and is_carried(schema)
    )


def is_carried(type_: DataType) -> bool:
    """Return whether a local relation carries a type as it is, in each kind of session."""
    match type_:
        case StructType():
            return all(is_carried(field.dataType) for field in type_.fields)
        case ArrayType():
            return is_carried(type_.elementType)
        case MapType():
            return is_carried(type_.keyType) and is_carried(type_.valueType)
        case _:
            return isinstance(type_, _CARRIED)


def local_frame(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """Return rows as a DataFrame that has them in its plan."""
    return spark.createDataFrame(rows, schema)
