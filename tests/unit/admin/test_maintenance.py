"""Maintenance as a service: rounds that fail are told and tried again, and the metrics say so."""

from __future__ import annotations

import pytest

from tests.integration.clients.failing import QuickClock
from tests.meta.markdown import ROOT
from txnformat.admin.maintenance import (
    METRICS,
    TASKS,
    CompactedTopics,
    MaintenanceReport,
    SkippedTask,
    Upkeep,
)
from txnformat.admin.retention import AppliedRetention
from txnformat.admin.topics import DamagedTopic
from txnformat.admin.trimming import DeletedRecords
from txnformat.errors import ConflictError, CorruptDataError, StorageError, TxnLogError
from txnlog.cli.maintain import SHOWN

REMOVED = (DeletedRecords("t", 0, 0, 5),)


def test_a_round_that_fails_is_told_and_the_next_one_tries_again() -> None:
    clock = QuickClock()
    answers: list[MaintenanceReport | TxnLogError] = [
        StorageError("the disk is away"),
        ConflictError("another process was faster"),
        MaintenanceReport.of(
            retention=AppliedRetention(REMOVED),
            skipped=[SkippedTask("retention", "so")],
            compacted=CompactedTopics(damaged=(DamagedTopic("t", "corrupt-file", "so"),)),
        ),
    ]

    def maintain() -> MaintenanceReport:
        clock.sleep(2)
        answer = answers.pop(0)
        if isinstance(answer, TxnLogError):
            raise answer
        return answer

    upkeep = Upkeep(maintain, clock)
    assert upkeep.round() is None
    assert str(upkeep.failure) == "the disk is away"
    assert "last_success" not in upkeep.to_prometheus("here")
    assert upkeep.round() is None
    done = upkeep.round()
    assert done is not None
    assert done.removed == REMOVED
    assert upkeep.failure is None
    text = upkeep.to_prometheus("here")
    for line in (
        'rounds_total{log="here"} 3',
        'failures_total{log="here"} 2',
        'seconds_total{log="here"} 6.0',
        'done_total{log="here",what="trimmed_partitions"} 1',
        'skipped{log="here",task="retention"} 1',
        'damaged_topics{log="here"} 1',
        f'last_success_timestamp_seconds{{log="here"}} {clock.now().wall_ms / 1_000!r}',
    ):
        assert f"txnlog_maintain_{line}\n" in text


def test_what_stays_wrong_ends_the_service() -> None:
    def maintain() -> MaintenanceReport:
        raise CorruptDataError("an entry is not what it was")

    with pytest.raises(CorruptDataError):
        Upkeep(maintain, QuickClock()).round()


def test_every_metric_is_documented_and_every_task_is_shown() -> None:
    text = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
    assert [name for name in METRICS if f"`{name}`" not in text] == []
    assert set(SHOWN) == set(TASKS)
