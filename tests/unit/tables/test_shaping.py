"""Rows whose type has grown in their table: the error says how the topic follows, or that it cannot."""

from __future__ import annotations

import pyarrow as pa
import pytest

from txnformat.errors import InvalidInputError
from txnlog.tables.shaping import shape
from txnlog.tables.steps import SourceFile


@pytest.mark.parametrize(
    ("old", "values", "advice"),
    [
        (pa.int32(), pa.array([2**40]), "widen the column to int64 with txnlog alter-topic --widen"),
        (
            pa.int32(),
            pa.array([1.5]),
            "Delta widens int32 to double, and a topic does not: import into another topic",
        ),
        (pa.bool_(), pa.array(["maybe"]), "import into a topic whose column has the type of the table's"),
    ],
)
def test_values_that_do_not_fit_say_what_to_do(old: pa.DataType, values: pa.Array, advice: str) -> None:
    batch = pa.RecordBatch.from_arrays([values], names=["a"])
    with pytest.raises(InvalidInputError) as caught:
        shape(batch, SourceFile("p", 1, {}, None), pa.schema([("a", old)]), with_changes=False)
    assert caught.value.kind == "unmappable-schema"
    assert advice in str(caught.value.hint)
    assert "nothing of this step was imported" in str(caught.value.hint)
