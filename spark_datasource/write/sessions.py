"""Classic Spark: the writers of pyspark find the format in every thread, and make no tables.

Spark looks a Python data source up in the session that is *active* in the thread. pyspark makes a session
active in the thread that made it, and in no other. Reads and SQL make it active before they look; ``save``,
``saveAsTable``, ``start`` and ``toTable`` look first, find no session, and end with DATA_SOURCE_NOT_FOUND
(Spark 4.0 to 4.3). The one place that every such write goes through, in the thread that writes, is ``format``
of pyspark's writers: there the DataFrame's own session is made active, if the thread has none that knows the
format. Only for this format; other writes are as they were.

Tables of a catalog are refused at the same place: Spark would make the table first, append the rows, and then
hand the table's options to no source, so that it could never be read. Where ``register`` was not called Spark
does just that.

In Spark Connect the server makes the session active, and nothing of this is needed or done.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from spark_datasource.failures import USE_VIEW, coded, unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["activate", "active", "is_classic", "mend_writers"]

_NAME = "txnlog"
_OURS = "_txnlog_is_the_format"
"""Set on a writer by its ``format``."""
_MENDED = "_txnlog_has_mended_this"
"""Set on functions that stand for one of pyspark: each is replaced once, however often sources are
registered."""


def is_classic(spark: SparkSession) -> bool:
    """Whether the session's JVM is driven from this process; else it is one of Spark Connect."""
    return getattr(spark, "_jsparkSession", None) is not None


def activate(spark: SparkSession) -> None:
    """Make a classic session the active one of this thread, if that does not know the format."""
    companion = _companion(spark)
    active = companion.getActiveSession()
    if active.isDefined() and active.get().sessionState().dataSourceManager().dataSourceExists(_NAME):
        return
    companion.setActiveSession(spark._jsparkSession)


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Make a classic session the active one of this thread for a while."""
    companion = _companion(spark)
    before = companion.getActiveSession()
    companion.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            companion.setActiveSession(before.get())
        else:
            companion.clearActiveSession()


def _companion(spark: SparkSession) -> Any:
    return getattr(spark._jvm, "org.apache.spark.sql.classic.SparkSession")


def mend_writers() -> None:
    """Have pyspark's writers find the format in every thread, and refuse tables of a catalog; once in a
    process.
    """
    from pyspark.sql.readwriter import DataFrameWriter, DataFrameWriterV2
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    _replace(DataFrameWriter, "format", _format)
    _replace(DataFrameWriter, "saveAsTable", _table)
    _replace(DataFrameWriterV2, "using", _using)
    _replace(DataStreamWriter, "format", _format)
    _replace(DataStreamWriter, "toTable", _table)


def _replace(cls: type, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(cls, name, None)
    if original is None or hasattr(original, _MENDED):
        return
    mended = functools.wraps(original)(make(original))
    setattr(mended, _MENDED, True)
    setattr(cls, name, mended)


def _format(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, source: Any) -> Any:
        ours = _is_ours(source)
        setattr(self, _OURS, ours)
        if ours:
            activate(self._spark)
        return original(self, source)

    return method


def _table(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **named: Any) -> Any:
        given = args[1] if len(args) > 1 else named.get("format")
        if getattr(self, _OURS, False) if given is None else _is_ours(given):
            raise _refusal()
        return original(self, *args, **named)

    return method


def _using(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, provider: Any) -> Any:
        if _is_ours(provider):
            raise _refusal()
        return original(self, provider)

    return method


def _is_ours(source: object) -> bool:
    return isinstance(source, str) and source.lower() == _NAME


def _refusal() -> Exception:
    error = unsupported(
        "tables of a catalog are", f"write with save(path) or start(path), and read by SQL with {USE_VIEW}"
    )
    return coded(error)
