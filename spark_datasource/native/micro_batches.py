"""The rows of a micro-batch, found by the offsets in its query's checkpoint: what ``foreachBatch`` gets has
none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spark_datasource.failures import cause_of
from spark_datasource.native.supported import check_spark
from spark_datasource.native.table import plan_table
from spark_datasource.options.declared import Order
from spark_datasource.stream.offsets import StreamOffset, parse_stream_offset
from txnformat.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["micro_batch"]


def micro_batch(
    spark: SparkSession,
    checkpoint: str | os.PathLike[str],
    batch_id: int,
    root: str | os.PathLike[str],
    topic: str,
    **options: Any,
) -> DataFrame:
    """Return the rows of a micro-batch of a stream that reads a topic, natively where
    :func:`~txnlog.spark.read_table` reads natively.

    Parameters
    ----------
    spark : SparkSession
        That of the DataFrame that ``foreachBatch`` hands over.
    checkpoint : str or path
        The query's ``checkpointLocation``. Spark reads it.
    batch_id : int
        As handed over. Earlier batches work, too, as long as Spark keeps their offsets.
    root, topic
        What the stream reads.
    options
        ``isolation`` as the stream's, ``columns``, ``where``, ``native``, ``native_bytes_min``,
        ``driver_bytes_max`` and ``storage_options`` as of ``read_table``.

    Raises
    ------
    InvalidInputError
        Kind ``invalid-checkpoint``: the batch has not one offset of this topic, or not the order ``offset``.
    NotFoundError
        Kind ``unknown-batch``: the checkpoint does not have the batch, or no longer the one before.
    """
    given = sorted(options.keys() & {"start", "end", "version_as_of", "timestamp_as_of"})
    if given or type(batch_id) is not int or batch_id < 0:
        problems = [f"{name} is given, and the checkpoint says what a micro-batch reads" for name in given]
        if type(batch_id) is not int or batch_id < 0:
            problems.append(f"batch_id is {batch_id!r:.100}, not a number from 0")
        raise InvalidInputError(problems, kind="invalid-micro-batch")
    check_spark(spark)
    place = os.fspath(checkpoint)
    until, number = _only(_offsets(spark, place, batch_id), topic, place, batch_id)
    since = until.since(until)
    if until.began is None and batch_id:
        before = _offsets(spark, place, batch_id - 1)
        if number in before:
            since = before[number]
    (topic_id,) = (topic_id for topic_id, one in until.topics.items() if one.name == topic)
    ends, starts = until.offsets(topic_id), since.offsets(topic_id)
    return plan_table(
        spark,
        root,
        topic,
        start={
            partition: starts[partition] if partition < len(starts) else 0 for partition in range(len(ends))
        },
        end=dict(enumerate(ends)),
        topic_ids=(until.log_id, topic_id),
        **options,
    ).frame()


def _offsets(spark: SparkSession, place: str, batch_id: int) -> Mapping[int, StreamOffset]:
    """Return the offsets of txnlog's sources in a batch, by the source's number: a line each, behind a
    version and the batch's settings.
    """
    path = f"{place.rstrip('/')}/offsets/{batch_id}"
    try:
        text = spark.read.text(path, wholetext=True).collect()[0]["value"]
    except Exception as error:  # noqa: BLE001  # Spark has many, and what it says is in the cause
        raise NotFoundError(
            "the checkpoint has no such batch",
            kind="unknown-batch",
            hint="pass the query's checkpointLocation, and a batch that is running or was run lately",
            path=path,
            cause=cause_of(error),
        ) from None
    found = {}
    for number, line in enumerate(text.splitlines()[2:]):
        try:
            value = json.loads(line)
        except ValueError:
            continue  # "-": the source had nothing yet
        if isinstance(value, dict) and "log_id" in value and "topics" in value:
            found[number] = parse_stream_offset(value)
    return found


def _only(
    offsets: Mapping[int, StreamOffset], topic: str, place: str, batch_id: int
) -> tuple[StreamOffset, int]:
    found = [
        (offset, number)
        for number, offset in offsets.items()
        if any(one.name == topic for one in offset.topics.values())
    ]
    if len(found) == 1 and found[0][0].order is Order.OFFSET:
        return found[0]
    names = sorted({one.name for offset in offsets.values() for one in offset.topics.values()})
    if not found:
        what, hint = (
            "no source that reads",
            f"the batch has rows of {', '.join(names[:20]) or 'no topic'}: check the name",
        )
    else:
        what = (
            f"{len(found)} sources that read" if len(found) > 1 else "a source with order commit that reads"
        )
        hint = "use the DataFrame that foreachBatch hands over"
    raise InvalidInputError(
        f"the batch has {what} the topic, expected one, with order offset",
        kind="invalid-checkpoint",
        hint=hint,
        path=place,
        batch=batch_id,
        topic=topic,
    )
