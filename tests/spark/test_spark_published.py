"""Published tables in a Spark that has no source for their format; `make engines` reads them in ones that
have."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.sessions import BOTH_SESSIONS
from txnformat.errors import InvalidInputError
from txnformat.log import TxnLog
from txnlog import Producer
from txnlog.published import spark_tables


@BOTH_SESSIONS
@pytest.mark.parametrize(
    ("format_", "package"),
    [("delta", "io.delta:delta-spark"), ("iceberg", "org.apache.iceberg:iceberg-spark")],
)
def test_a_missing_runtime_is_one_sentence(
    spark: Any, log: TxnLog, topics: None, format_: str, package: str
) -> None:
    with Producer(log, "one") as producer, producer.transaction() as transaction:
        transaction.send("numbers", [{"n": 1}])
    log.publish("numbers", format=format_)
    with pytest.raises(InvalidInputError) as refused:
        spark_tables(spark, log, format=format_)
    assert refused.value.kind == "missing-runtime"
    assert package in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.__context__ is None
