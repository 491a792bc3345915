"""Reads published tables with DuckDB's extensions: ``python engines_duckdb.py``, with an order on standard
input. For an interpreter with the extensions' packages, without txnlog."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb

__all__: list[str] = []


def extension(name: str) -> Path:
    """Return the file of an extension, which a package of PyPI brings."""
    spec = find_spec(f"duckdb_extension_{name}")
    assert spec is not None, name
    assert spec.origin is not None, name
    (found,) = Path(spec.origin).parent.rglob(f"{name}.duckdb_extension")
    return found


def main() -> None:
    """Write what each table has as Parquet; print the number of rows of each, or the error, and how many
    records pass each filter: filtered, and judged one by one."""
    order = json.load(sys.stdin)
    connection = duckdb.connect()
    for name in order["extensions"]:
        connection.execute(f"LOAD '{extension(name)}'")
    connection.execute("SET TimeZone = 'UTC'")
    told: list[Any] = []
    for table in order["tables"]:
        source = f"{order['function']}('{table['path']}')"
        try:
            (count,) = connection.execute(f"SELECT count(*) FROM {source}").fetchall()[0]
            # Dictionaries of DuckDB's writer take -0.0 for 0.0.
            connection.execute(
                f"COPY (SELECT * FROM {source}) TO '{table['out']}' (FORMAT parquet, DICTIONARY_SIZE_LIMIT 1)"
            )
            told.append(count)
        except duckdb.Error as error:
            told.append(str(error).splitlines()[0][:200])
    source = f"{order['function']}('{order['filtered']}')"
    passed = {}
    for one in order["filters"]:
        queries = (
            f"SELECT count(*) FROM {source} WHERE {one}",
            f"SELECT sum(CASE WHEN {one} THEN 1 ELSE 0 END) FROM {source}",
        )
        passed[one] = [int(connection.execute(query).fetchall()[0][0]) for query in queries]
    print(json.dumps({"told": told, "passed": passed}))


if __name__ == "__main__":
    main()
