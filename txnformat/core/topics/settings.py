"""Settings of topics: what they are called, which values they take, and what they are by default. Pure.

Names and meanings are Kafka's where Kafka has them. A state may have settings of later versions, which this
version leaves alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import permutations
from typing import NamedTuple

from txnformat.core.operations import TopicSetting
from txnformat.errors import InvalidInputError, repr_of
from txnformat.field_types import INT64_MAX

__all__ = [
    "SETTINGS",
    "Setting",
    "as_settings",
    "changed_settings",
    "check_settings",
    "is_setting",
    "value_of",
]

KIND = "invalid-setting"
_VIEWS = ("delta", "delta-offsets", "iceberg")
_FORMATS = ("", *(",".join(some) for count in (1, 2, 3) for some in permutations(_VIEWS, count)))
"""Formats of views, with commas between them."""
_RATIO = re.compile(r"(0|1)(\.[0-9]{0,20})?|\.[0-9]{1,20}|[0-9](\.[0-9]{1,20})?e-[0-9]{1,3}")
"""Texts of a number from 0 to 1, and those that Python makes of one."""
Value = int | str


class Setting(NamedTuple):
    """A setting of a topic."""

    default: Value
    values: tuple[str, ...] = ()
    """The texts that it may be; empty: it is a whole number."""
    least: int = 0
    """The smallest such number,"""
    minus_one: str | None = "no limit"
    """but for -1, which stands for this. If None, -1 is none of its values."""
    is_time: bool = False
    """It counts milliseconds, and is at least the longest timeout of a transaction."""
    is_ratio: bool = False
    """It is a number from 0 to 1, stored as text."""
    is_column: bool = False
    """It is the name of a column."""
    is_columns: bool = False
    """It is names of columns, with commas between them."""
    said: str = ""
    """The texts that it may be, in words. Empty: all of them, one after the other."""


SETTINGS: dict[str, Setting] = {
    "retention.ms": Setting(-1, is_time=True),
    "retention.bytes": Setting(-1),
    "retention.time": Setting("append", ("append", "record")),
    "retention.pinned.ms": Setting(0),
    "compact.target.bytes": Setting(
        128 * 2**20, least=1, minus_one="maintenance leaves the files as they are"
    ),
    "compact.bloom.columns": Setting("", is_columns=True),
    "cleanup.policy": Setting("delete", ("delete", "compact", "compact,delete", "delete,compact")),
    "min.compaction.lag.ms": Setting(7 * 24 * 3_600_000, minus_one=None),
    "max.compaction.lag.ms": Setting(-1, least=1),
    "min.cleanable.dirty.ratio": Setting("0.5", is_ratio=True),
    "delete.retention.ms": Setting(24 * 3_600_000, minus_one=None),
    "tombstone.column": Setting("", is_column=True),
    "embed": Setting("true", ("true", "false")),
    "publish.formats": Setting(
        "", _FORMATS, said=f"some of {', '.join(_VIEWS)}, with commas between them, each once"
    ),
    "publish.hold.ms": Setting(7 * 24 * 3_600_000, minus_one=None),
    "publish.iceberg.scheme": Setting("", ("", "file", "s3", "s3a")),
}
"""The settings by name. Unlike Kafka's (7 days), our ``retention.ms`` is -1: a topic keeps its records until
its user sets a limit. Kafka's ``min.compaction.lag.ms`` is 0."""


def is_setting(name: object) -> bool:
    """Return whether there is such a setting."""
    return isinstance(name, str) and name in SETTINGS


def value_of(settings: Iterable[TopicSetting], name: str) -> Value:
    """Return what a topic has set, or the default."""
    return next((one.value for one in settings if one.name == name), SETTINGS[name].default)


def as_settings(settings: object) -> tuple[TopicSetting, ...]:
    """Return settings that a user passes, by name in ascending order.

    Raises InvalidInputError of kind ``invalid-setting``: every problem but those of a log.
    """
    if not isinstance(settings, Mapping):
        raise _invalid([f"settings is {repr_of(settings, 80)}, not a mapping of names to values"])
    problems = [problem for name, value in settings.items() for problem in _problems(name, value)]
    if problems:
        raise _invalid(problems)
    return tuple(TopicSetting(name, _stored(name, value)) for name, value in sorted(settings.items()))


def _stored(name: str, value: Value | float) -> Value:
    return repr(abs(float(value))) if SETTINGS[name].is_ratio else value  # type: ignore[return-value]


def _problems(name: object, value: object) -> Iterable[str]:
    known = SETTINGS.get(name) if isinstance(name, str) else None
    if known is None:
        near = get_close_matches(str(name), SETTINGS, n=1) if isinstance(name, str) else []
        meant = f"; did you mean {near[0]}?" if near else f"; use {', '.join(SETTINGS)}"
        yield f"there is no setting {repr_of(name, 80)}{meant}"
    elif known.values:
        if value not in known.values:
            yield (
                f"{name} is {repr_of(value, 80)}, not "
                f"{known.said or ' or '.join(one or 'an empty text' for one in known.values)}"
            )
    elif known.is_ratio:
        if not _is_ratio(value):
            yield f"{name} is {repr_of(value, 80)}, not a number from 0 to 1"
    elif known.is_column:
        if not isinstance(value, str) or not value:
            yield f"{name} is {repr_of(value, 80)}, not the name of a column"
    elif known.is_columns:
        if not isinstance(value, str) or not all(name.strip() for name in value.split(",")):
            yield f"{name} is {repr_of(value, 80)}, not names of columns with commas between them"
    elif type(value) is not int or not (
        known.least <= value <= INT64_MAX or (value == -1 and known.minus_one)
    ):
        also = f", or -1 ({known.minus_one})" if known.minus_one else ""
        yield f"{name} is {repr_of(value, 80)}, not a whole number from {known.least} to {INT64_MAX}{also}"


def _is_ratio(value: object) -> bool:
    if type(value) not in (int, float, str) or (isinstance(value, str) and not _RATIO.fullmatch(value)):
        return False
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        return False
    return math.isfinite(number) and 0 <= number <= 1


def changed_settings(
    settings: tuple[TopicSetting, ...], changes: Iterable[TopicSetting], unset: Iterable[str]
) -> tuple[TopicSetting, ...]:
    """Return the settings of a topic after some were set, and some taken back to their defaults."""
    known = {one.name: one for one in settings} | {one.name: one for one in changes}
    gone = set(unset)
    return tuple(one for name, one in sorted(known.items()) if name not in gone)


def check_settings(settings: Iterable[TopicSetting], longest_timeout_ms: int) -> None:
    """Raise InvalidInputError of kind ``invalid-setting`` about values that a log does not allow.

    A time below the longest timeout of a transaction could remove records before the transaction that read
    them has committed its positions.
    """
    problems = [
        f"{one.name} is {one.value}: it is -1, or at least {longest_timeout_ms} ms, the longest timeout "
        "of a transaction in this log"
        for one in settings
        if one.name in SETTINGS
        and SETTINGS[one.name].is_time
        and isinstance(one.value, int)
        and 0 <= one.value < longest_timeout_ms
    ]
    if problems:
        raise _invalid(problems)


def _invalid(problems: list[str]) -> InvalidInputError:
    return InvalidInputError(problems, kind=KIND, hint="nothing was changed")
