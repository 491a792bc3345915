"""Key compaction beside other clients: what they do meanwhile ends a pass, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.upkeep.key_world import DAY, HOUR, TABLE, Hours
from txnformat.admin.compaction import cleaning
from txnformat.reading.compacting import write_together
from txnlog import Producer, TxnLog


@pytest.mark.parametrize("is_maintained", [False, True])
def test_a_topic_that_is_deleted_meanwhile_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, is_maintained: bool
) -> None:
    hours = Hours(partitions=2)
    settings: dict[str, int | str] = {"cleanup.policy": "compact", "min.compaction.lag.ms": 0}
    hours.log.create_topic("u", TABLE, key_columns=("k",), settings=settings)
    for topic in ("t", "u"):
        with Producer(hours.log) as producer:
            producer.send(topic, [{"k": f"k{number % 4}", "v": number, "gone": None} for number in range(20)])
    other = TxnLog.open(hours.log.store, clock=hours.clock)
    original = write_together

    def deleted(*args: Any) -> Any:
        if "t" in other.refresh().topic_ids:
            other.delete_topic("t")
        return original(*args)

    monkeypatch.setattr(cleaning, "write_together", deleted)
    if is_maintained:
        hours.log.maintain("compact")
    else:
        hours.log.compact()
    assert hours.log.read("u").read_all().num_rows == 4


def test_a_pass_that_another_compactor_has_overtaken_ends_without_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other one has compared keys up to a later offset, and left the parts of this one as they were."""
    hours = Hours()
    for rows in ([("a", 0), ("b", 0)], [("c", 1)], [], [("a", 2), ("b", 2)], [("d", 2)]):
        if not rows:
            hours.hour(5)
            continue
        hours.send(*rows)
        hours.log.compact(min_lag_ms=DAY, target_bytes=1)
    other = TxnLog.open(hours.log.store, clock=hours.clock)
    others: list[object] = []

    def overtaken(*args: Any) -> Any:
        written = write_together(*args)
        if not others:
            others.append(0)
            others.extend(other.compact("t", min_lag_ms=4 * HOUR, target_bytes=1))
        return written

    monkeypatch.setattr(cleaning, "write_together", overtaken)
    hours.log.compact("t", target_bytes=1)
    assert len(others) == 2
    monkeypatch.undo()
    hours.log.compact("t", target_bytes=1)
    assert [(k, v) for k, v, _ in hours.left()] == [("c", 1), ("a", 2), ("b", 2), ("d", 2)]
    assert hours.verified()
