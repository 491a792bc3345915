"""The parameters of ``read_table`` and its siblings, and what is wrong with given ones. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from spark_datasource.native.small_rests import DRIVER_BYTES_MAX
from txnformat.arguments import problems_of_columns
from txnformat.reading.plan import OffsetSpec
from txnformat.types import IsolationLevel

__all__ = ["TableOptions", "problems_of"]


class TableOptions(TypedDict, total=False):
    """Parameters of a read of tables; see :func:`txnlog.spark.read_table`."""

    isolation: str | IsolationLevel | None
    start: OffsetSpec
    end: OffsetSpec
    version_as_of: int | None
    timestamp_as_of: Any
    where: str | None
    native: bool
    native_bytes_min: int | None
    driver_bytes_max: int
    storage_options: Mapping[str, str] | None


def problems_of(topics: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with topics, each with its columns or None, and with the parameters that are
    given.
    """
    known = TableOptions.__annotations__
    found = [
        f"there is no parameter {name!r:.100}, expected one of columns, {', '.join(known)}"
        for name in given
        if name not in known
    ]
    if not topics:
        found.append("topics is empty: name at least one")
    for columns in topics.values():
        found += [] if columns is None else problems_of_columns(columns)
    for name in ("start", "end"):
        offsets = given.get(name)
        numbers = [*offsets, *offsets.values()] if isinstance(offsets, Mapping) else [offsets]
        if offsets is not None and any(type(number) is not int for number in numbers):
            found.append(
                f"{name} is {offsets!r:.100}, neither an offset nor a mapping of partitions to offsets, "
                f"such as {{0: 10}}"
            )
    least = given.get("native_bytes_min")
    for name, value in (
        ("native_bytes_min", 0 if least is None else least),
        ("driver_bytes_max", given.get("driver_bytes_max", DRIVER_BYTES_MAX)),
    ):
        if type(value) is not int or value < 0:
            found.append(f"{name} is {value!r:.100}, not a number of bytes from 0")
    return list(dict.fromkeys(found))
