"""Lists and tuples of classes that tell another length than they have: Arrow reads as many elements, and ends
the process."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from txnformat.columns.conform import conform
from txnformat.columns.row_values import uninferable
from txnformat.errors import InvalidInputError


class _Base:
    """Comes before the list."""

    def __len__(self) -> int:
        return 2**62


class _Hiding(type):
    """A metaclass that tells of no base but object."""

    @property
    def __mro__(cls) -> tuple[type, ...]:
        return (object,)


def _fails(value: object) -> int:
    raise RuntimeError("no length")


KINDS: list[Any] = [
    type("Long", (list,), {"__len__": lambda value: 10**9}),
    type("Short", (list,), {"__len__": lambda value: 0}),
    type("Negative", (tuple,), {"__len__": lambda value: -1}),
    type("Failing", (tuple,), {"__len__": _fails}),
    type("Derived", (type("Long", (list,), {"__len__": lambda value: 10**9}),), {}),
    type("Mixed", (_Base, list), {}),
    _Hiding("Hidden", (list,), {"__len__": lambda value: 10**9}),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_length_of_its_own_is_refused_before_arrow_asks_for_it(kind: Any) -> None:
    schema = pa.schema([pa.field("a", pa.list_(pa.int64()))])
    for value in (kind([1]), [kind([1])], {"x": kind([1])}):
        column = pd.Series([None], dtype=object)
        column.iat[0] = value
        with pytest.raises(InvalidInputError, match="whose length Arrow takes") as caught:
            conform(pd.DataFrame({"a": column}), schema)
        assert caught.value.kind == "schema-mismatch"


def test_classes_with_the_length_of_a_list_are_taken() -> None:
    point = namedtuple("point", ["x", "y"])  # noqa: PYI024 - the class itself is meant
    plain = type("Plain", (list,), {"__repr__": lambda value: "plain"})
    behind = type("Behind", (list, _Base), {})
    for value in (point(1, 2), plain([1, 2]), behind([1, 2])):
        assert uninferable([None, value]) is None
        frame = pd.DataFrame({"a": pd.Series([[3], value], dtype=object)})
        schema = pa.schema([pa.field("a", pa.list_(pa.int64()))])
        assert conform(frame, schema).column("a").to_pylist() == [[3], [1, 2]]
