"""The calls that users make: ``txnlog.spark``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from spark_datasource.native.table import plan_table, plan_tables
from txnformat.arguments import listed
from txnformat.errors import NotFoundError
from txnformat.types import IsolationLevel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["create_view", "describe", "read_table", "read_tables", "renew_view"]

_views: WeakKeyDictionary[Any, dict[str, tuple[Any, ...]]] = WeakKeyDictionary()
"""How the views of a session were made, by name in lower case."""


def read_table(spark: SparkSession, root: str | os.PathLike[str], topic: str, **options: Any) -> DataFrame:
    """Return a topic as a DataFrame: the rows of ``format("txnlog")``, pinned at one entry.

    Files that hold nothing but rows of the read go to Spark's own Parquet reader: column pruning, conditions,
    counts and statistics are then Spark's own. The rest are files that are partly aborted or cut by the
    range, rows in entries, small files. This process reads a small rest at once, so that Spark knows its size
    for joins; a larger one goes through the DataSource. :func:`describe` says what goes which way.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    root : str or path
        Of the log. This process opens it, too, and needs access to the store.
    topic : str
        One topic.
    isolation, start, end, version_as_of, timestamp_as_of, columns, where : optional
        As of :meth:`txnformat.log.TxnLog.read`. A time in ``where`` needs a zone.
    native : bool, optional
        False: all of it through the DataSource.
    native_bytes_min : int, optional
        Size of the smallest file that goes natively (inclusive); by default 512 KiB on a local disk, else 4
        MiB.
    driver_bytes_max : int, optional
        Size of the largest rest that this process reads (inclusive), as its files have it; by default 4 MiB,
        in at most 64 files and entries, and 16 MiB of rows in memory. 0: none. Other rests go through the
        DataSource, and so do times of day and variants.
    storage_options : mapping of str to str, optional
        Credentials, endpoint, … of S3; by default Spark's own settings of s3a, and the environment. Spark's
        Parquet reader has only its own settings.

    Returns
    -------
    pyspark.sql.DataFrame
        The topic's columns, or ``columns``, in this order.

    Raises
    ------
    NotFoundError, OffsetOutOfRangeError, InvalidInputError
        As of :meth:`txnformat.log.TxnLog.read`. InvalidInputError of kind ``unsupported-spark``: Spark is
        older than 4.1.
    StorageError
        Kind ``spark-cannot-read``: Spark cannot get at files that this process can read.
    CorruptDataError
        A small rest is damaged.

    Notes
    -----
    The DataFrame names the files, so it can be read until a vacuum deletes them: a grace after a compaction
    replaced them. Spark's error says then that a file does not exist: make the DataFrame again. Natively the
    checksums of pages are verified, but neither page headers nor footers.
    """
    return plan_table(spark, root, topic, **options).frame()


def read_tables(
    spark: SparkSession,
    root: str | os.PathLike[str],
    topics: Iterable[str] | Mapping[str, Sequence[str] | None],
    *,
    version_as_of: int | None = None,
    timestamp_as_of: Any = None,
    **options: Any,
) -> dict[str, DataFrame]:
    """Return several topics at one entry, by name: each transaction is in all of them or in none.

    Parameters
    ----------
    topics : iterable of str, or mapping of str to sequence of str
        The topics; of a mapping with the columns of each.
    version_as_of, timestamp_as_of
        As of :meth:`txnformat.log.TxnLog.read`; by default the newest entry. The isolation is ``snapshot``.
    options
        ``native``, ``native_bytes_min``, ``driver_bytes_max`` and ``storage_options``, as of
        :func:`read_table`, which also says what is raised.
    """
    wanted = topics if isinstance(topics, Mapping) else dict.fromkeys(listed("topics", topics))
    plans = plan_tables(
        spark,
        root,
        wanted,
        isolation=IsolationLevel.SNAPSHOT,
        version_as_of=version_as_of,
        timestamp_as_of=timestamp_as_of,
        **options,
    )
    return {plan.pinned.name: plan.frame() for plan in plans}


def describe(spark: SparkSession, root: str | os.PathLike[str], topic: str, **options: Any) -> str:
    """Return what :func:`read_table` would read natively and what not, in files, rows and bytes, and why.

    Reads no data.
    """
    return plan_table(spark, root, topic, **options).describe()


def create_view(
    spark: SparkSession, name: str, root: str | os.PathLike[str], topic: str, **options: Any
) -> None:
    """Make a temporary view of a topic, pinned like :func:`read_table`, whose parameters it takes; one of the
    same name is replaced.
    """
    read_table(spark, root, topic, **options).createOrReplaceTempView(name)
    _views.setdefault(spark, {})[name.lower()] = (root, topic, options)


def renew_view(spark: SparkSession, name: str) -> None:
    """Pin a view of :func:`create_view` anew, as the log is now.

    Raises NotFoundError of kind ``unknown-view``: this session made no such view.
    """
    made = _views.get(spark, {}).get(name.lower())
    if made is None:
        raise NotFoundError(
            "this session has made no such view",
            kind="unknown-view",
            hint="make it with create_view, in this process",
            view=name,
            views=sorted(_views.get(spark, {})),
        )
    root, topic, options = made
    create_view(spark, name, root, topic, **options)
