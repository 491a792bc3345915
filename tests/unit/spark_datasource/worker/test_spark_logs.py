"""The logs that a worker keeps open."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_datasource.worker import logs
from spark_datasource.worker.logs import LOGS_MAX, open_log, sidecars_of
from txnformat.store.local import LocalStore
from txnlog import TxnLog


def test_a_worker_keeps_the_logs_open_that_it_used_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_logs", {})
    paths = [str(tmp_path / str(number)) for number in range(LOGS_MAX + 2)]
    for path in paths:
        TxnLog.create(path)
    kept = open_log(paths[0])
    for path in paths[1:]:
        open_log(path)
        assert open_log(paths[0]) is kept
    assert len(logs._logs) == LOGS_MAX
    assert {paths[0], *paths[3:]} == {path for path, _ in logs._logs}


def test_a_worker_keeps_the_sidecars_of_the_logs_that_it_used_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_sidecars", {})
    stores = [LocalStore(tmp_path / str(number)) for number in range(LOGS_MAX + 2)]
    kept = sidecars_of(stores[0])
    for store in stores[1:]:
        sidecars_of(store)
        assert sidecars_of(stores[0]) is kept
    assert {stores[0].url, *(store.url for store in stores[3:])} == {url for url, _ in logs._sidecars}
