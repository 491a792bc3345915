"""Values with some fields changed: Python 3.13's ``copy.replace`` for the kinds of values of this project.

The state of a log is a :class:`msgspec.Struct`: of its many fields each entry changes a few, several times, and a Struct is
copied in C.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import msgspec

__all__ = ["replace"]

T = TypeVar("T")

_Struct = msgspec.Struct
_replace = msgspec.structs.replace


def replace(value: T, **changes: Any) -> T:
    """Return ``value``, a Struct or a dataclass, with some fields changed.

    Raises
    ------
    TypeError
        It has no such field.
    """
    if isinstance(value, _Struct):
        return _replace(value, **changes)
    return dataclasses.replace(value, **changes)  # type: ignore[type-var]  # a dataclass, or dataclasses says so
