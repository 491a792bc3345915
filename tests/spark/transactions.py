"""What the tests of Spark transactions look at in a log."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
from pyspark.sql import DataFrame

from spark_datasource.write.transaction import NAMESPACE, transactional_id_of
from txnformat.core.transactions.state import TransactionStatus
from txnlog import TxnLog

__all__ = ["Numbers", "caught", "rows", "status", "version"]

E = TypeVar("E", bound=BaseException)
Numbers = Callable[..., DataFrame]
"""The fixture of that name."""


def rows(log: TxnLog, topic: str, isolation: str = "read_committed") -> list[int]:
    table = log.read(topic, columns=["n"], isolation=isolation).read_all()
    return sorted(table.column("n").to_pylist())


def status(log: TxnLog, app_id: str = "job") -> TransactionStatus:
    return log.refresh().transactional_ids[transactional_id_of(app_id)].status


def version(log: TxnLog, app_id: str = "job") -> int | None:
    known = log.refresh().app_versions.get((NAMESPACE, app_id))
    return None if known is None else known.version


def caught(expected: type[E], block: Callable[[], object]) -> E:
    """Run a block that has to raise."""
    with pytest.raises(expected) as found:
        block()
    return found.value
