"""A log whose topic has one file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.views.published import rows
from tests.integration.views.tables import SCHEMA, write
from txnlog import (
    TxnLog,
)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[TxnLog]:
    log = TxnLog.create(tmp_path / "log")
    log.create_topic("t", SCHEMA, partitions=2, settings={"embed": "false"})
    write(log, rows(*range(10)), partition=0)
    yield log
    log.close()
    report = log.verify()
    assert report.ok, report.problems
