"""Sources of the fault cases, in a module that Python workers can import."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tests.chaos.faults import write_whole
from tests.chaos.source import CONTROL, ChaosSource

__all__ = ["ABORTED_FILE", "DROPS", "GAPS_BATCHES", "GapSource", "MessageSource"]

DROPS = "dropsmessage"
"""Option: the first message does not arrive at ``commit``."""
ABORTED_FILE = "aborted.json"
"""In the control folder: of the messages that ``abort`` got, which are None."""

GAPS_BATCHES = 4
ROWS = 5

Messages = Sequence[WriterCommitMessage | None]


class MessageSource(ChaosSource):
    """The sink, with messages that are noted or lost."""

    def __init__(self, options: Mapping[str, str]) -> None:
        own = dict(options)
        self._drops = own.pop(DROPS, None) is not None
        self._folder = Path(own[CONTROL])
        super().__init__(own)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # Spark's name
        return _Messages(super().streamWriter(schema, overwrite), self._folder, self._drops)


class _Messages(DataSourceStreamArrowWriter):
    def __init__(self, inner: Any, folder: Path, drops: bool) -> None:
        self._inner = inner
        self._folder = folder
        self._drops = drops

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message: WriterCommitMessage = self._inner.write(iterator)
        return message

    def commit(self, messages: Messages, batchId: int) -> None:  # Spark's name
        self._inner.commit([None, *messages[1:]] if self._drops else messages, batchId)

    def abort(self, messages: Messages, batchId: int) -> None:  # Spark's name
        write_whole(self._folder / ABORTED_FILE, [message is None for message in messages])
        self._inner.abort(messages, batchId)


class GapSource(DataSource):
    """A source of whose batches every second one has no partitions, also the last."""

    @classmethod
    def name(cls) -> str:
        return "gaps"

    def schema(self) -> str:
        return "n long, key string"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # Spark's name
        return _GapReader()


class _GapReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # Spark's name
        return {"at": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:  # Spark's name
        return {"at": min(start["at"] + 1, GAPS_BATCHES)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(start["at"])] if start["at"] % 2 == 0 else []

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str]]:
        if partition.value is not None:
            yield from ((n, f"key-{n}") for n in range(partition.value * ROWS, partition.value * ROWS + ROWS))
