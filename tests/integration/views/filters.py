"""Engines that filter published tables: with what statistics leave out, and by a look at each record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import duckdb
import polars
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow

from tests.integration.views.tables import opened, path_of
from txnformat.views.manifests import ViewTable

__all__ = ["ENGINES", "Engine"]


class Engine(NamedTuple):
    """An engine that filters. Both calls return the number of records of a published table that pass a
    filter."""

    format: str
    filtered: Callable[[ViewTable, str], int]
    """The engine may leave out files, row groups and pages."""
    judged: Callable[[ViewTable, str], int]
    """It reads all records, and judges each."""
    is_as_the_log: bool = True
    """NaN is larger than every other value to the engine, and -0.0 is 0.0."""


def case(filter_: str) -> str:
    """Return what counts the records that pass a filter, in SQL that no engine makes a filter of."""
    return f"SELECT sum(CASE WHEN {filter_} THEN 1 ELSE 0 END) FROM"


def delta(table: ViewTable) -> DeltaTable:
    return DeltaTable(path_of(table), version=table.version)


def _duckdb(query: str, table: ViewTable) -> int:
    with duckdb.connect() as connection:
        found: Any = connection.execute(query, [delta(table).file_uris()]).fetchone()
    return int(found[0])


def _deltalake(query: str, table: ViewTable) -> int:
    found = pa.table(QueryBuilder().register("t", delta(table)).execute(query))
    return int(found.column(0)[0].as_py())


def _scanned(table: ViewTable) -> polars.LazyFrame:
    if table.snapshot_id is not None:
        return polars.scan_iceberg(table.metadata)
    return polars.scan_delta(path_of(table), version=table.version)


def _polars(table: ViewTable, filter_: str) -> int:
    return _scanned(table).filter(polars.sql_expr(filter_)).collect().height


def _polars_judged(table: ViewTable, filter_: str) -> int:
    return _scanned(table).collect().filter(polars.sql_expr(filter_)).height


def _pyiceberg(table: ViewTable, filter_: str) -> int:
    return int(opened(table).scan(row_filter=filter_).to_arrow().num_rows)


def _pyiceberg_judged(table: ViewTable, filter_: str) -> int:
    found = opened(table)
    bound = bind(found.schema(), parse(filter_), case_sensitive=True)
    return int(found.scan().to_arrow().filter(expression_to_pyarrow(bound)).num_rows)


ENGINES = {
    "DuckDB": Engine(
        "delta",
        lambda table, one: _duckdb(f"SELECT count(*) FROM read_parquet($1) WHERE {one}", table),
        lambda table, one: _duckdb(f"{case(one)} read_parquet($1)", table),
    ),
    "deltalake's SQL": Engine(
        "delta",
        lambda table, one: _deltalake(f"SELECT count(*) FROM t WHERE {one}", table),
        lambda table, one: _deltalake(f"{case(one)} t", table),
    ),
    "Polars, Delta": Engine("delta", _polars, _polars_judged),
    "Polars, Iceberg": Engine("iceberg", _polars, _polars_judged),
    "pyiceberg": Engine("iceberg", _pyiceberg, _pyiceberg_judged, is_as_the_log=False),
}
