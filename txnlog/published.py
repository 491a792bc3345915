"""Tables that a log has published, opened by other engines at the versions of one publication; see
docs/engines.md.

Joined at these versions, every transaction is in all of its tables, or in none. The newest versions of two
tables may be of different publications.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from txnformat.errors import InvalidInputError, needing
from txnformat.log import TxnLog, check_log
from txnformat.views.manifests import ViewTable

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyiceberg.table import StaticTable
    from pyspark.sql import DataFrame

__all__ = ["deltalake_tables", "iceberg_tables", "spark_tables"]

DELTA_PACKAGE = "io.delta:delta-spark_<Spark's version>_2.13"
ICEBERG_PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-<Spark's version>_2.13"


def deltalake_tables(
    log: TxnLog,
    entry: int | None = None,
    *,
    format: str = "delta",
    storage_options: Mapping[str, str] | None = None,
) -> dict[str, DeltaTable]:
    """Open the Delta tables of one publication with deltalake.

    Parameters
    ----------
    log : TxnLog
        The log that was published.
    entry : int, optional
        The entry of the publication; by default the newest one.
    format : str
        "delta", or "delta-offsets".
    storage_options : mapping of str to str, optional
        What deltalake needs to reach the store, in deltalake's own words.

    Returns
    -------
    dict of str to deltalake.DeltaTable
        By topic. All show the same entry.

    Raises
    ------
    NotFoundError
        Kind ``not-published``.
    InvalidInputError
        Kind ``unknown-view-format``: also for "iceberg"; ``not-a-log``.
    ModuleNotFoundError
        deltalake is missing: the extra ``delta`` has it.
    """
    with needing("deltalake", "txnlog.published.deltalake_tables", extra="delta"):
        from deltalake import DeltaTable

    if format == "iceberg":
        raise InvalidInputError(
            "format is 'iceberg', which deltalake does not read",
            kind="unknown-view-format",
            hint="call iceberg_tables, or pass 'delta' or 'delta-offsets'",
        )
    found = _tables(log, entry, format, "deltalake_tables")
    options = None if storage_options is None else dict(storage_options)
    return {
        topic: DeltaTable(table.path.removeprefix("file://"), version=table.version, storage_options=options)
        for topic, table in found.items()
    }


def iceberg_tables(
    log: TxnLog, entry: int | None = None, *, properties: Mapping[str, str] | None = None
) -> dict[str, StaticTable]:
    """Open the Iceberg tables of one publication with pyiceberg.

    Parameters
    ----------
    log : TxnLog
        The log that was published.
    entry : int, optional
        The entry of the publication; by default the newest one.
    properties : mapping of str to str, optional
        What pyiceberg needs to reach the store, in pyiceberg's own words.

    Returns
    -------
    dict of str to pyiceberg.table.StaticTable
        By topic. All show the same entry.

    Raises
    ------
    NotFoundError
        Kind ``not-published``.
    InvalidInputError
        Kind ``not-a-log``.
    ModuleNotFoundError
        pyiceberg is missing: the extra ``iceberg`` has it.
    """
    with needing("pyiceberg", "txnlog.published.iceberg_tables", extra="iceberg"):
        from pyiceberg.table import StaticTable

    found = _tables(log, entry, "iceberg", "iceberg_tables")
    return {
        topic: StaticTable.from_metadata(table.metadata, properties=dict(properties or {}))
        for topic, table in found.items()
    }


def spark_tables(
    spark: Any, log: TxnLog, entry: int | None = None, *, format: str = "delta"
) -> dict[str, DataFrame]:
    """Open the tables of one publication in Spark, by Delta's or Iceberg's own source.

    No data is read. Programs that have txnlog read topics without a publication:
    :func:`txnlog.spark.read_tables`.

    Parameters
    ----------
    spark : SparkSession
        With Delta's or Iceberg's runtime, classic or Connect. Its own settings say how it reaches the store.
    log : TxnLog
        The log that was published.
    entry : int, optional
        The entry of the publication; by default the newest one.
    format : str
        "delta", "delta-offsets" or "iceberg".

    Returns
    -------
    dict of str to DataFrame
        By topic. All show the same entry.

    Raises
    ------
    NotFoundError
        Kind ``not-published``.
    InvalidInputError
        Kind ``unknown-view-format``, ``not-a-log``; ``missing-runtime``: this Spark has no source for the
        format.
    """
    found = _tables(log, entry, format, "spark_tables")
    if format == "iceberg":
        return {
            topic: _loaded(spark.read.format("iceberg"), table.metadata, ICEBERG_PACKAGE)
            for topic, table in found.items()
        }
    return {
        topic: _loaded(
            spark.read.format("delta").option("versionAsOf", table.version), table.path, DELTA_PACKAGE
        )
        for topic, table in found.items()
    }


def _loaded(reader: Any, url: str, package: str) -> Any:
    try:
        frame = reader.load(_of_hadoop(url))
        frame.schema  # noqa: B018  # load() of Connect asks nothing
        return frame
    except Exception as error:
        if "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
    raise InvalidInputError(
        "this Spark has no source for published tables of this format",
        kind="missing-runtime",
        hint=f"start Spark with the setting spark.jars.packages={package}, in the version that is made "
        "for it",
        package=package,
    )


def _tables(log: TxnLog, entry: int | None, format_: str, call: str) -> dict[str, ViewTable]:
    check_log(log, call)
    return log.published_tables(entry, format_)


def _of_hadoop(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return f"s3a://{rest}" if separator and scheme == "s3" else url
