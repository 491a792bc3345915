"""The least that a Python DataSource can do: record batches of given row groups of given files, from pyarrow
to Spark.

It checks nothing, knows of no transactions, and gets its splits ready made. No Python source can be faster.
As a stream it reads whole files, so many in each micro-batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

__all__ = ["BareDataSource", "BareStreamSource"]


class BareSplit(InputPartition):
    """Row groups, file by file."""

    def __init__(self, runs: list[tuple[str, list[int]]]) -> None:
        super().__init__(None)
        self.runs = runs


class BareDataSource(DataSource):
    """Options: ``splits``, JSON: for each split a list of [file, row groups]; ``columns``, JSON: names, or
    null for all.
    """

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
        return _batches(partition, self._schema)


def _batches(split: BareSplit, schema: StructType) -> Iterator[pa.RecordBatch]:
    expected = to_arrow_schema(schema, timezone="UTC")
    for path, groups in split.runs:
        with pq.ParquetFile(path) as file:
            wanted = groups or list(range(file.num_row_groups))
            for batch in file.iter_batches(row_groups=wanted, columns=expected.names):
                yield batch.cast(expected)


class BareStreamSource(DataSource):
    """Options: ``files``, a JSON list; ``filesPerTrigger``; ``splits``, how many each micro-batch has."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "bare_stream"

    def schema(self) -> StructType:
        """Return the schema of the first file."""
        return from_arrow_schema(pq.read_schema(self._files()[0]), prefer_timestamp_ntz=True)

    def _files(self) -> list[str]:
        files: list[str] = json.loads(self.options["files"])
        return files

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # Spark's name
        """Return the reader."""
        per_trigger, splits = int(self.options["filesPerTrigger"]), int(self.options["splits"])
        return _BareStreamReader(self._files(), per_trigger, splits, schema)


class _BareStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset is the number of files that were read."""

    def __init__(self, files: list[str], per_trigger: int, splits: int, schema: StructType) -> None:
        self._files = files
        self._per_trigger = per_trigger
        self._splits = splits
        self._schema = schema

    def initialOffset(self) -> dict[str, int]:  # Spark's names from here on
        return {"files": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"files": min(start["files"] + self._per_trigger, len(self._files))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        files = self._files[start["files"] : end["files"]]
        return [BareSplit([(file, []) for file in files[at :: self._splits]]) for at in range(self._splits)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, BareSplit)
        return _batches(partition, self._schema)
