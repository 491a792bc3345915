"""Rows of a file as rows of a topic. Pure."""

from __future__ import annotations

import pyarrow as pa

from txnformat.columns.promotions import is_wider, is_wider_in_delta
from txnformat.errors import InvalidInputError
from txnlog.tables.steps import SourceFile

__all__ = ["CHANGE_COLUMNS", "check_columns", "shape"]

CHANGE_COLUMNS = pa.schema([pa.field("change_type", pa.string()), pa.field("table_version", pa.int64())])
"""Columns that say of each row which change it is part of, and which version of the table made it."""

_FEED = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
"""Columns that a change data file has besides the table's."""


def check_columns(source: pa.Schema, topic: pa.Schema, *, with_changes: bool) -> None:
    """Raise InvalidInputError (``unmappable-schema``) unless the topic has every column of the source, and
    those of changes if they are wanted.
    """
    wanted = [*source.names, *(CHANGE_COLUMNS.names if with_changes else ())]
    missing = [name for name in wanted if name not in topic.names]
    twice = [name for name in CHANGE_COLUMNS.names if with_changes and name in source.names]
    if missing or twice:
        raise InvalidInputError(
            [f"the topic has no column {name!r}" for name in missing]
            + [f"the table has a column {name!r} of its own" for name in twice],
            kind="unmappable-schema",
            hint="add the columns with txnlog alter-topic, or import into another topic",
        )


def shape(batch: pa.RecordBatch, file: SourceFile, topic: pa.Schema, *, with_changes: bool) -> pa.RecordBatch:
    """Return a file's rows with the columns of the topic, in its order.

    A column that neither the file nor its constants have is null.

    Raises InvalidInputError of kind ``unmappable-schema``: a column that the topic does not have, or values
    that its type cannot hold.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    changed = columns.get("_change_type") if file.change is not None and file.change.kind is None else None
    if changed is not None:
        columns = {name: column for name, column in columns.items() if name not in _FEED}
    unknown = [name for name in (*columns, *file.constants) if name not in topic.names]
    if unknown:
        raise _unmappable(file, f"the topic has no column {unknown[0]!r}")
    for name, value in file.constants.items():
        columns.setdefault(name, _constant(value, batch.num_rows))
    if with_changes and file.change is not None:
        kind = _constant(file.change.kind, batch.num_rows) if changed is None else changed
        columns["change_type"], columns["table_version"] = (
            kind,
            _constant(file.change.version, batch.num_rows),
        )
    return pa.RecordBatch.from_arrays(
        [_column(columns.get(field.name), field, batch.num_rows, file) for field in topic], schema=topic
    )


def _constant(value: object, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value if value != "" else None), rows)


def _column(found: pa.Array | None, field: pa.Field, rows: int, file: SourceFile) -> pa.Array:
    if found is None:
        return pa.nulls(rows, field.type)
    try:
        if pa.types.is_string(found.type) and pa.types.is_timestamp(field.type):
            return _moments(found, field.type)
        return found if found.type == field.type else found.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _unmappable(
            file, f"column {field.name!r}: {error!s:.300}", _advice(found.type, field)
        ) from None


def _moments(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return timestamps from texts: ISO 8601 with a zone, or as values of partitions stand in Delta's log, in
    UTC.
    """
    try:
        return texts.cast(type_)
    except pa.ArrowInvalid:
        return texts.cast(pa.timestamp(type_.unit)).cast(type_)


def _advice(found: pa.DataType, field: pa.Field) -> str:
    """Return what lets a column of a topic take values of another type."""
    if is_wider(found, field.type):
        return f"widen the column to {found} with txnlog alter-topic --widen, {_AGAIN}"
    if is_wider_in_delta(found, field.type):
        return f"Delta widens {field.type} to {found}, and a topic does not: import into another topic"
    return "import into a topic whose column has the type of the table's"


_AGAIN = "then run the same command again to continue"
_GROW = f"change the topic with txnlog alter-topic, {_AGAIN}"


def _unmappable(file: SourceFile, what: str, advice: str = _GROW) -> InvalidInputError:
    return InvalidInputError(
        what, kind="unmappable-schema", hint=f"nothing of this step was imported; {advice}", file=file.path
    )
