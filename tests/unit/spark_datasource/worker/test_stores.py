"""Stores that a worker keeps from task to task."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_datasource.options.storage import NO_STORAGE
from spark_datasource.worker.stores import STORES_MAX, kept_store
from txnformat.errors import StorageError


def test_the_next_task_finds_the_store_of_the_one_before(tmp_path: Path) -> None:
    with kept_store(str(tmp_path), NO_STORAGE, "a") as first:
        pass
    with kept_store(str(tmp_path), NO_STORAGE, "a") as second:
        assert second is first


def test_another_log_at_the_same_path_gets_another_store(tmp_path: Path) -> None:
    with (
        kept_store(str(tmp_path), NO_STORAGE, "b") as first,
        kept_store(str(tmp_path), NO_STORAGE, "c") as other,
    ):
        assert other is not first


def test_a_store_that_failed_is_not_used_again(tmp_path: Path) -> None:
    """A store on a disk that could not make a directory durable refuses all further writes: it must not
    outlive the task."""
    with (
        pytest.raises(StorageError, match="failed"),
        kept_store(str(tmp_path), NO_STORAGE, "d") as first,
    ):
        raise StorageError("failed", kind="failed")
    with kept_store(str(tmp_path), NO_STORAGE, "d") as second:
        assert second is not first


def test_a_worker_does_not_keep_every_store_that_it_ever_used(tmp_path: Path) -> None:
    with kept_store(str(tmp_path), NO_STORAGE, "e") as first:
        pass
    for number in range(STORES_MAX):
        with kept_store(str(tmp_path), NO_STORAGE, f"e{number}"):
            pass
    with kept_store(str(tmp_path), NO_STORAGE, "e") as again:
        assert again is not first
