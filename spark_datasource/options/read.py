"""Options of reads, of DataFrames and of streams, parsed once into plain values.

Spark asks for a schema before it says which of the two it reads: everything is parsed and checked in one
place, and options that only the other kind knows are refused as soon as the kind is known.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_datasource.options.declared import (
    LATER,
    READ,
    STREAM_WRITE,
    WRITE,
    Order,
    ReadOptions,
    field_values,
)
from spark_datasource.options.hadoop import HadoopSettings
from spark_datasource.options.offsets import parse_offsets
from spark_datasource.options.topics import parse_topics
from spark_datasource.options.values import OptionValues, storage_of
from txnformat.errors import InvalidInputError
from txnformat.protocol.cuts import check_version_options
from txnformat.types import IsolationLevel

__all__ = ["parse_read_options"]


def parse_read_options(options: Mapping[str, str], hadoop: HadoopSettings | None = None) -> ReadOptions:
    """Return the options of a read. Raises InvalidInputError of kind ``invalid-option``: every problem."""
    found = OptionValues(options, READ, {"writes": WRITE, "streaming writes": STREAM_WRITE}, LATER)
    topics = parse_topics(found)
    values = field_values(found, ReadOptions)
    order = found.choice("order", Order) or Order.OFFSET
    by_entry = order is Order.COMMIT
    for name, field in (("startingOffsets", "starting"), ("endingOffsets", "ending")):
        given = parse_offsets(found, name, topics.names, by_entry=by_entry)
        if given is not None:
            values[field] = given
    storage = storage_of(found, values["path"], hadoop)
    isolation = _isolation(found, values, order)
    _check_bounds(found, values, by_entry=by_entry)
    found.finish()
    return ReadOptions(
        topics=topics, order=order, isolation=isolation, storage=storage, given=found.given, **values
    )


def _check_bounds(found: OptionValues, values: Mapping[str, object], *, by_entry: bool) -> None:
    for name in ("starting", "ending"):
        if found.text(f"{name}Offsets") is not None and found.text(f"{name}Timestamp") is not None:
            found.problems.append(f"give {name}Offsets or {name}Timestamp, not both")
    start, end = values.get("starting_timestamp_ms"), values.get("ending_timestamp_ms")
    if isinstance(start, int) and isinstance(end, int) and end < start:
        found.problems.append("endingTimestamp is before startingTimestamp")
    if (
        by_entry
        and (end is not None or found.has("endingOffsets"))
        and values.keys() & {"version_as_of", "timestamp_as_of_ms"}
    ):
        found.problems.append(
            "with order commit give only one of endingOffsets, endingTimestamp, versionAsOf and timestampAsOf"
        )


def _isolation(found: OptionValues, values: Mapping[str, int], order: Order) -> IsolationLevel:
    text, level = found.text("isolation"), found.choice("isolation", IsolationLevel)
    if text is not None and level is None:
        return IsolationLevel.READ_COMMITTED
    if order is Order.COMMIT:
        if level is IsolationLevel.READ_UNCOMMITTED:
            found.problems.append(
                "option isolation is read_uncommitted; order commit reads committed records only"
            )
        level = IsolationLevel.SNAPSHOT
    version, moment_ms = values.get("version_as_of"), values.get("timestamp_as_of_ms")
    try:
        return check_version_options(level, version, moment_ms, ("versionAsOf", "timestampAsOf"))
    except InvalidInputError as error:
        found.problems.extend(error.problems)
        return IsolationLevel.READ_COMMITTED
