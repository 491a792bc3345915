"""What a topic can be created with can be written, and read back: types of any depth, names on any store."""

from __future__ import annotations

import io
from collections.abc import Callable
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txnformat import keys
from txnformat.columns.arrow_types import PARQUET_LEVELS_MAX, check_readable, list_of, map_of, struct_of
from txnformat.core.topics.creation import new_topic
from txnformat.errors import InvalidInputError
from txnformat.store import local
from txnlog import TxnLog
from writers.bulk import BulkAppend

TOPIC_ID = "12345678-1234-4234-8234-123456789abc"


def structs(type_: pa.DataType) -> pa.DataType:
    return struct_of(["a"], [type_])


def maps(type_: pa.DataType) -> pa.DataType:
    return map_of(pa.string(), type_)


def nested(wrap: Callable[[pa.DataType], pa.DataType], times: int, inner: pa.DataType) -> pa.DataType:
    for _ in range(times):
        inner = wrap(inner)
    return inner


def can_be_read(type_: pa.DataType) -> bool:
    table = pa.table({"x": pa.nulls(2, type_)})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    try:
        return bool(pq.read_table(io.BytesIO(sink.getvalue())).equals(table))
    except OSError:
        return False


IS_LIMITED = int(pa.__version__.partition(".")[0]) >= 26
"""Whether pyarrow refuses what is deeper; earlier versions read more levels than the topics of a log may
have."""


def is_accepted(type_: pa.DataType) -> bool:
    try:
        new_topic("t", pa.schema([pa.field("x", type_)]), TOPIC_ID)
    except InvalidInputError as error:
        return error.kind != "unsupported-schema"
    return True


@pytest.mark.parametrize("wrap", [list_of, maps])
def test_the_limit_is_that_of_parquet(wrap: Callable[[pa.DataType], pa.DataType]) -> None:
    for times in (48, 49, 50, 51):
        type_ = nested(wrap, times, pa.int64())
        assert is_accepted(type_) == (times <= (PARQUET_LEVELS_MAX - 1) // 2)
        assert can_be_read(type_) == (is_accepted(type_) or not IS_LIMITED)


@pytest.mark.parametrize("seed", range(60))
def test_a_drawn_type_is_accepted_if_it_can_be_read(seed: int) -> None:
    rng = Random(seed)
    type_ = rng.choice((pa.string(), pa.decimal128(38, 10), structs(pa.int64())))
    for _ in range(rng.randrange(40, 62)):
        type_ = rng.choice((list_of, list_of, list_of, maps, structs))(type_)
    assert can_be_read(type_) == (is_accepted(type_) or not IS_LIMITED)


def test_a_column_that_is_added_has_the_same_limit(tmp_path: object) -> None:
    log = TxnLog.create(f"file://{tmp_path}/log")
    log.create_topic("t", pa.schema([pa.field("x", pa.int64())]))
    deep = pa.field("y", nested(list_of, 50, pa.int64()))
    with pytest.raises(InvalidInputError, match="nested too deep for Parquet"):
        log.alter_topic("t", add_columns=[deep])
    log.close()


def test_a_log_with_such_a_topic_is_still_opened() -> None:
    from txnformat.core.topics.schema import TopicSchema

    deep = TopicSchema(pa.schema([pa.field("x", nested(list_of, 51, pa.int64()))]))
    assert TopicSchema.from_json(*deep.to_json()).arrow_schema == deep.arrow_schema
    with pytest.raises(InvalidInputError):
        check_readable(deep.arrow_schema)


@pytest.mark.parametrize("name", [".tmp-x", ".tmp-"])
def test_a_name_that_a_local_root_keeps_for_itself_is_refused(name: str) -> None:
    assert keys.TEMPORARY_PREFIX == local.TEMPORARY_PREFIX
    with pytest.raises(InvalidInputError, match="local roots keep") as caught:
        new_topic(name, pa.schema([pa.field("x", pa.int64())]), TOPIC_ID)
    assert caught.value.kind == "invalid-topic-name"
    assert keys.check_topic_name(name) == name  # where a log has it already


@pytest.mark.parametrize("name", ["...", "..a", "-", ".a", "a.", "CON", "data", "a" * 249, ".tmpx"])
def test_a_name_that_is_accepted_is_one_of_a_local_root(tmp_path: object, name: str) -> None:
    with TxnLog.create(f"file://{tmp_path}/log") as log:
        log.create_topic(name, pa.schema([pa.field("x", pa.int64())]))
        with BulkAppend(log) as append:
            append.send(name, [{"x": 5}])
            append.commit()
        assert log.read(name, columns=["x"]).read_all().to_pylist() == [{"x": 5}]
