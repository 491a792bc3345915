"""The least that a Python DataSource can do: record batches of given row groups of given files, from pyarrow to Spark.

It checks nothing, knows of no transactions, and gets its splits ready made. What it does not reach, no Python source does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

__all__ = ["BareDataSource"]


class BareSplit(InputPartition):
    """Row groups, file by file."""

    def __init__(self, runs: list[tuple[str, list[int]]]) -> None:
        super().__init__(None)
        self.runs = runs


class BareDataSource(DataSource):
    """Options: ``splits``, JSON: for each split a list of [file, row groups]; ``columns``, JSON: names, or null for all."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "bare_parquet"

    def _columns(self) -> list[str] | None:
        columns: list[str] | None = json.loads(self.options["columns"])
        return columns

    def _splits(self) -> list[BareSplit]:
        splits = json.loads(self.options["splits"])
        return [BareSplit([(file, groups) for file, groups in split]) for split in splits]

    def schema(self) -> StructType:
        """Return the schema of the first file."""
        schema = pq.read_schema(self._splits()[0].runs[0][0])
        columns = self._columns()
        wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        return from_arrow_schema(wanted, prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return _BareReader(self._splits(), schema)


class _BareReader(DataSourceReader):
    def __init__(self, splits: list[BareSplit], schema: StructType) -> None:
        self._splits = splits
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return list(self._splits)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, BareSplit)  # there is at least one
        expected = to_arrow_schema(self._schema, timezone="UTC")
        for path, groups in partition.runs:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(row_groups=groups, columns=expected.names):
                    yield batch.cast(expected)
