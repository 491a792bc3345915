"""What a process that commits batches of streams remembers: which run it works for."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType

from spark_datasource.options.write import parse_stream_write_options
from spark_datasource.stream.messages import BatchStamp, StreamUpload
from spark_datasource.stream.sink import TxnLogStreamWriter
from spark_datasource.write.task import upload_task
from txnformat.errors import StaleAppVersionError
from txnlog import TxnLog

FRAME = StructType().add("n", LongType())


class Runs:
    """A query's batches as this process commits them, each of a run."""

    def __init__(self, path: Path) -> None:
        self.log = TxnLog.create(path)
        self._writer = TxnLogStreamWriter(
            parse_stream_write_options({"path": str(path), "topic": "t"}, FRAME.names), FRAME
        )
        self._query_id = str(uuid.uuid4())

    def commit(self, run: str, batch_id: int) -> None:
        """Commit one row."""
        plan = TxnLogStreamWriter(self._writer._options, FRAME).make_plan()
        stamp = BatchStamp(
            query_id=self._query_id,
            run_id=str(uuid.uuid5(uuid.UUID(int=0), run)),
            batch_id=batch_id,
            log_id=plan.log_id,
            seed=plan.seed,
            born=plan.born,
        )
        rows = pa.RecordBatch.from_pydict({"n": [batch_id]}, schema=pa.schema([("n", pa.int64())]))
        message = StreamUpload.of(upload_task(iter([rows]), plan, 0, compared=True), stamp, plan)
        self._writer.commit([message], batch_id)

    def numbers(self) -> list[int]:
        """Return what is in the log."""
        self.log.refresh()
        found: list[int] = self.log.read("t").read_all()["n"].to_pylist()
        return found


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "log")


def test_a_run_repeats_the_batch_of_another_one_only_as_its_first(runs: Runs) -> None:
    runs.commit("a", 0)
    runs.commit("b", 0)
    runs.commit("a", 1)
    with pytest.raises(
        StaleAppVersionError, match=r"TXNLOG_STALE_INSTANCE.*another run of this query"
    ) as caught:
        runs.commit("b", 1)
    assert caught.value.values["batch_id"] == 1
    assert runs.numbers() == [0, 1]


def test_a_run_that_repeats_its_own_batch_is_told_that_it_is_done(runs: Runs) -> None:
    runs.commit("a", 0)
    runs.commit("a", 1)
    runs.commit("a", 1)
    assert runs.numbers() == [0, 1]


def test_a_run_goes_on_where_another_one_stopped(runs: Runs) -> None:
    runs.commit("a", 0)
    runs.commit("b", 0)
    runs.commit("b", 1)
    runs.commit("c", 1)
    runs.commit("c", 2)
    assert runs.numbers() == [0, 1, 2]
