"""What people try first: each gets what they expect, or one clear error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from txnlog import ConflictError, InvalidInputError, Producer, TxnLog

SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture
def log(tmp_path: Path) -> TxnLog:
    return TxnLog.create(tmp_path / "log")


def test_a_topic_that_exists_and_is_the_same_is_taken_if_that_is_asked_for(log: TxnLog) -> None:
    first = log.create_topic("t", SCHEMA, partitions=2, key_columns=["n"])
    entry = log.refresh().entry
    again = log.create_topic("t", SCHEMA, partitions=2, key_columns=["n"], exist_ok=True)
    assert (again.topic_id, log.refresh().entry) == (first.topic_id, entry)
    with pytest.raises(ConflictError) as caught:
        log.create_topic("t", SCHEMA, partitions=2, key_columns=["n"])
    assert caught.value.kind == "topic-exists"


@pytest.mark.parametrize(
    "change",
    [
        {"partitions": 3},
        {"key_columns": None},
        {"schema": pa.schema([("n", pa.int32())])},
        {"schema": pa.schema([("n", pa.int64()), ("m", pa.int64())])},
    ],
)
def test_a_topic_that_exists_and_differs_is_never_taken(log: TxnLog, change: dict[str, Any]) -> None:
    wanted: dict[str, Any] = {"schema": SCHEMA, "partitions": 2, "key_columns": ["n"]}
    log.create_topic("t", **wanted)
    with pytest.raises(ConflictError, match="differs"):
        log.create_topic("t", **{**wanted, **change}, exist_ok=True)


def test_headers_are_a_mapping_or_pairs(log: TxnLog) -> None:
    log.create_topic("k", "kafka")
    with Producer(log, "p") as producer, producer.transaction() as txn:
        txn.send("k", key="a", value="1", headers={"h": b"1"})
        txn.send("k", key="a", value="2", headers=[("h", b"2"), ("h", b"3")])
        for wrong in ("h", [("h",)], [1]):
            with pytest.raises(InvalidInputError) as caught:
                txn.send("k", key="a", value="3", headers=wrong)
            assert caught.value.kind == "invalid-headers"
    headers = log.read("k", columns=["headers"]).read_all().column(0).to_pylist()
    assert headers == [
        [{"key": "h", "value": b"1"}],
        [{"key": "h", "value": b"2"}, {"key": "h", "value": b"3"}],
    ]


def test_a_path_is_not_a_log(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"TxnLog\.open"):
        Producer(str(tmp_path))  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [0, "0", b"0"])
def test_partitions_are_a_list(log: TxnLog, wrong: Any) -> None:
    log.create_topic("t", SCHEMA)
    with pytest.raises(InvalidInputError) as caught:
        log.read("t", partitions=wrong)
    assert caught.value.kind == "invalid-partitions"


def test_what_a_prompt_shows_is_short(log: TxnLog) -> None:
    topic = log.create_topic("t", pa.schema([(f"column_{number}", pa.int64()) for number in range(100)]))
    assert len(repr(topic)) < 300
    assert repr(log) == f"TxnLog({log.url!r})"
    assert repr(Producer(log, "p")).endswith("transactional_id='p', status='uninitialised')")
