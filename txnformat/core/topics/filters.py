"""The columns of a topic whose compacted files have Bloom filters. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.types as pt

from txnformat.core.operations import TopicSetting
from txnformat.core.topics.schema import TopicSchema
from txnformat.core.topics.settings import value_of
from txnformat.errors import InvalidInputError, repr_of

__all__ = ["bloom_columns", "check_filters"]

BLOOM = "compact.bloom.columns"


def bloom_columns(settings: Sequence[TopicSetting]) -> tuple[str, ...]:
    """Return the names that the setting has, each once, in ascending order."""
    named = str(value_of(settings, BLOOM))
    return tuple(sorted({name.strip() for name in named.split(",")})) if named else ()


def check_filters(settings: Iterable[TopicSetting], schema: TopicSchema) -> None:
    """Raise InvalidInputError of kind ``invalid-setting`` about columns that a topic with this schema does
    not have, or that cannot have a filter: every problem.
    """
    fields = {field.name: field.type for field in schema.arrow_schema}
    problems = []
    for name in bloom_columns(tuple(settings)):
        if name not in fields:
            problems.append(f"{BLOOM} names {repr_of(name, 80)}: the topic has no such column")
        elif not _takes_filter(fields[name]):
            problems.append(
                f"{BLOOM} names {repr_of(name, 80)}, of type {fields[name]}: a filter tells whole values "
                "apart by their bytes, so the column must be a whole number, text, binary, a date, a "
                "time or a decimal"
            )
    if problems:
        raise InvalidInputError(problems, kind="invalid-setting", hint="nothing was changed")


def _takes_filter(type_: pa.DataType) -> bool:
    # 0.0 and -0.0 are equal and have other bytes: an engine that asks the filter would miss rows.
    return not (
        pt.is_nested(type_)
        or pt.is_boolean(type_)
        or pt.is_floating(type_)
        or isinstance(type_, pa.ExtensionType)
    )
