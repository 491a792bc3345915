"""A log whose state is too large for a snapshot."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.integration.clients.failing import NUMBERS
from txnformat.core.snapshot import codec
from txnlog import TxnLog


def test_a_log_that_is_too_large_for_a_snapshot_goes_on_and_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is whole without: what is lost is a quick start."""
    monkeypatch.setattr(codec, "METADATA_BYTES_MAX", 5_000)
    log = TxnLog.create(tmp_path / "log")
    with caplog.at_level(logging.WARNING, "txnlog"):
        for number in range(110):
            log.create_topic(f"t{number}", NUMBERS)
        log.close()
    assert log.refresh().checkpoints == ()
    (warning,) = {message for message in caplog.messages if "snapshot" in message}
    assert "bytes of JSON, more than the cap of 5000" in warning
    assert "opening it reads all entries" in warning
    assert len(TxnLog.open(tmp_path / "log").state.topics) == 110
