"""The batch reader on the driver. No session needed."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pytest

from spark_datasource.datasource import TxnLogDataSource
from spark_datasource.read.splits import Split
from txnformat.errors import ConflictError, NotFoundError
from txnformat.log import TxnLog
from writers.bulk import BulkAppend


@pytest.fixture
def source(log: TxnLog, path: str) -> TxnLogDataSource:
    """Two topics of one record each."""
    for topic in ("a", "b"):
        log.create_topic(topic, pa.schema([("n", pa.int64())]))
        with BulkAppend(log) as bulk:
            bulk.send(topic, [{"n": 1}])
            bulk.commit()
    return TxnLogDataSource({"path": path, "topic": "a,b"})


def test_topics_that_are_gone_are_named(source: TxnLogDataSource) -> None:
    """They were deleted; or the log was restored to an older state, and has grown since."""
    reader = source.reader(source.schema())
    pin = reader._pin
    reader._pin = replace(pin, topics=(pin.topics[0], replace(pin.topics[1], topic_id="gone")))
    with pytest.raises(NotFoundError, match="topics of this DataFrame are no longer in the log") as caught:
        reader.partitions()
    assert (caught.value.kind, caught.value.values["topics"]) == ("topic-gone", ["b"])
    assert not {"expected", "got"} & set(caught.value.values)


def test_another_log_is_told_by_its_id(source: TxnLogDataSource) -> None:
    reader = source.reader(source.schema())
    found = reader._pin.log_id
    reader._pin = replace(reader._pin, log_id="another")
    with pytest.raises(ConflictError, match="not the one that this DataFrame was loaded from") as caught:
        reader.partitions()
    assert (caught.value.values["expected"], caught.value.values["got"]) == ("another", found)


def test_a_split_is_equal_to_itself_only_and_has_a_hash(source: TxnLogDataSource) -> None:
    """It is one of Spark's objects; what it holds may be megabytes, which nothing compares."""
    (split,) = source.reader(source.schema()).partitions()
    assert isinstance(split, Split)
    other = pickle.loads(pickle.dumps(split))
    assert other.parts == split.parts
    assert len({split, other}) == 2
    assert split == split  # noqa: PLR0124 - what is tested


NOT_FOR_READS = ("writers", "txnformat.verify", "txnformat.views", "txnformat.admin.")
ADMIN = {"groups", "publishing", "publishing.reports", "subscriptions", "topics", "transactions"}
"""What a TxnLog holds from its beginning."""


def test_a_read_loads_no_writer_and_no_maintenance() -> None:
    """Each Python process that Spark starts would pay for it."""
    code = (
        "import sys, spark_datasource.read.reader, spark_datasource.stream.reader; "
        f"print(*(name for name in sys.modules if name.startswith({NOT_FOR_READS!r})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {f"txnformat.admin.{name}" for name in ADMIN}
