"""A log that is encrypted, and its key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.encryption.rows import TOPIC
from txnformat.store.encrypted.key_file import new_key_file
from txnlog import TxnLog


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_text(new_key_file("one"), encoding="utf-8")
    return path


@pytest.fixture
def options(key_file: Path) -> dict[str, str]:
    return {"key_client": f"file:{key_file}"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def log(root: Path, options: dict[str, str]) -> Iterator[TxnLog]:
    with TxnLog.create(root, storage_options=options) as log:
        log.create_topic("t", TOPIC)
        yield log
