"""The Spark DataSource ``txnlog``: what Spark calls, and nothing else.

Light to import, because every Python worker that Spark starts imports it: everything heavy comes when a
method needs it. Spark makes a new object for every step, in several processes; what one step finds out
reaches the next only inside the objects that Spark itself pickles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from txnformat.errors import needing

with needing("pyspark", "the DataSource txnlog", extra="spark"):
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from spark_datasource.failures import clean_errors, unsupported
from spark_datasource.worker.collector import settle
from txnformat.spans import here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_datasource.options.declared import ReadOptions
    from spark_datasource.options.hadoop import HadoopSettings
    from spark_datasource.read.pinning import Pin
    from spark_datasource.read.reader import TxnLogBatchReader
    from spark_datasource.stream.sink import TxnLogStreamWriter
    from spark_datasource.write.sink import TxnLogBatchWriter

__all__ = ["TxnLogDataSource", "register", "register_source"]


class _Traced(Protocol):
    trace: str | None


R = TypeVar("R", bound=_Traced)

_USE_APPEND = 'a log is only appended to: use outputMode("append"), or write each result by foreachBatch'


class TxnLogDataSource(DataSource):
    """``spark.read.format("txnlog").option("topic", "orders").load("/data/log")``.

    The version is pinned by ``load()``: every action on that DataFrame, and on all that is made of it, sees
    the same rows. The options are listed in docs/options.md.
    """

    hadoop: ClassVar[HadoopSettings | None] = None
    """Settings of Spark's s3a connector: a data source runs where it cannot ask the session for them."""

    case_sensitive: ClassVar[bool] = False
    """The session's ``spark.sql.caseSensitive``, likewise."""

    trace: ClassVar[str | None] = None
    """The span that was current when the source was registered, likewise."""

    def __init__(self, options: Mapping[str, str]) -> None:
        # Nothing is checked here: Spark does not say yet whether it will read or write.
        super().__init__(dict(options))
        self._pinned: tuple[ReadOptions, Pin] | None = None
        self._travelled = False

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "txnlog"

    @clean_errors
    def schema(self) -> StructType:
        """Pin the read and return its schema; Spark calls it in ``load()`` without ``.schema()``."""
        from spark_datasource.read.planning import topic_read
        from spark_datasource.schema import common_schema

        options, pin = self._pin()
        schema = common_schema(
            {one.name: one.schema for one in pin.topics}, options.columns, case_sensitive=self.case_sensitive
        )
        for one in pin.topics:  # load() raises what is wrong with option where
            topic_read(options, one.name, one.topic_id, one.schema, schema)
        return schema

    @clean_errors
    def reader(self, schema: StructType) -> TxnLogBatchReader:
        """Return the reader of the pinned read; with ``.schema()`` it is pinned here."""
        from spark_datasource.read.reader import TxnLogBatchReader

        options, pin = self._pin()
        options.check_batch()
        return _under(self.trace, TxnLogBatchReader(options, pin, schema))

    def _pin(self) -> tuple[ReadOptions, Pin]:
        from spark_datasource.options.read import parse_read_options
        from spark_datasource.read.pinning import pin_read
        from spark_datasource.worker.logs import open_log

        if self._pinned is None:
            options = parse_read_options(self.options, self.hadoop)
            self._pinned = options, pin_read(open_log(options.path, options.storage), options)
        return self._pinned

    @clean_errors
    def writer(self, schema: StructType, overwrite: bool) -> TxnLogBatchWriter:
        """Return the writer of one atomic append."""
        from spark_datasource.options.write import parse_write_options
        from spark_datasource.write.sink import TxnLogBatchWriter, plan_write

        if overwrite:
            raise unsupported("mode overwrite is", 'a log is only appended to: use mode("append")')
        options = parse_write_options(
            self.options, schema.names, hadoop=self.hadoop, case_sensitive=self.case_sensitive
        )
        return TxnLogBatchWriter(plan_write(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # Spark's name
        """Return the reader of a stream.

        Nothing is checked yet: what is raised here, Spark 4 hides behind an error of its own.
        """
        from spark_datasource.stream.reader import TxnLogStreamReader

        return _under(self.trace, TxnLogStreamReader(self.options, self.hadoop, schema))

    @clean_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> TxnLogStreamWriter:  # Spark's
        """Return the writer of one batch of a stream: Spark makes one to plan it, and another one to commit
        it.
        """
        from spark_datasource.options.write import parse_stream_write_options
        from spark_datasource.stream.sink import TxnLogStreamWriter

        settle()
        if overwrite:
            raise unsupported("output mode complete is", _USE_APPEND)
        options = parse_stream_write_options(
            self.options, schema.names, hadoop=self.hadoop, case_sensitive=self.case_sensitive
        )
        writer = _under(self.trace, TxnLogStreamWriter(options, schema))
        if not self._travelled:
            writer.make_plan()
        return writer

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # Spark commits with an object from another process, and plans with one that it has just made. The
        # plan is for
        # tasks: the commit needs none.
        self._travelled = True


def _under(trace: str | None, made: R) -> R:
    """Let what Spark asks of an object belong to a span; without one it is pickled as it was."""
    if trace is not None:
        made.trace = trace
    return made


def register(spark: SparkSession) -> None:
    """Make ``format("txnlog")`` known to a session, in every thread, with the session's settings for
    ``s3a://``.

    Spark finds the format by itself when the package is installed for the driver's Python, and no other
    installed module called ``pyspark_*`` fails to import. Only from here are

    * the settings ``spark.hadoop.fs.s3a.*`` and ``spark.sql.caseSensitive`` known, as they are at this
      moment: call it again when they change;
    * writes of a classic session found in other threads than the one that made the session, and
      ``saveAsTable`` and ``toTable`` refused before Spark makes a table
      (:mod:`spark_datasource.write.sessions`);
    * the span of OpenTelemetry that is current at this moment the parent of what Spark's workers trace
      (docs/operate.md);
    * ``storage.key`` and its like hidden in plans, the UI and event logs: they are added to the session's
      setting ``spark.sql.redaction.options.regex``.

    A session made by ``newSession()`` is another one: register it, too. Calling it again does no harm.
    """
    register_source(spark, TxnLogDataSource)


def register_source(spark: SparkSession, source: type[TxnLogDataSource]) -> None:
    """Make a source known to a session as :func:`register` does."""
    from spark_datasource.options.storage import hadoop_settings, hide_options
    from spark_datasource.write.sessions import active, is_classic, mend_writers

    settings = {
        "hadoop": hadoop_settings(spark),
        "case_sensitive": spark.conf.get("spark.sql.caseSensitive", "false") == "true",
    }
    if (trace := here()) is not None:
        settings["trace"] = trace
    hide_options(spark)
    ours = type(source.__name__, (source,), settings)
    ours.__module__ = "__main__"  # pickled by value, with its settings
    if not is_classic(spark):
        spark.dataSource.register(ours)
        return
    with active(spark):  # else Spark looks in the thread's own session, and says that the name is taken
        spark.dataSource.register(ours)
    mend_writers()
